//! `MachineConfigPools` and PinnedImageSets, watched as wholes: a cluster has a few of each.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::{ObjectList, WatchEvent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch::{Receiver, Sender};
use tracing::warn;

use super::super::error::KubeError;
use super::super::node::broken;
use super::super::node_watch::NodeSnapshot;
use super::super::reflector::{Requests, WatchHandler, WatchStep};
use crate::model::message;
use crate::model::pinned::{PinnedSet, PinningPool, Selector};

/// So many objects of a kind are kept.
const MAX_OBJECTS: usize = 1000;

/// Both kinds as last seen; `None` before the first list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// The pools, by name.
    pub(super) pools: Option<BTreeMap<String, PinningPool>>,
    /// The sets, by name.
    pub(super) sets: Option<BTreeMap<String, PinnedSet>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: String,
    generation: i64,
    resource_version: String,
}

/// A MachineConfigPool.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pool {
    metadata: Metadata,
    #[serde(default)]
    spec: PoolSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PoolSpec {
    node_selector: Option<Selector>,
    pinned_image_sets: Option<Vec<Name>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Name {
    name: String,
}

/// A PinnedImageSet.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Set {
    metadata: Metadata,
    #[serde(default)]
    spec: SetSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SetSpec {
    pinned_images: Option<Vec<Name>>,
}

/// A kind that is watched as a whole.
pub(super) trait Kind: Clone + DeserializeOwned + Send + 'static {
    /// The kept part of an object.
    type Stored: PartialEq + Clone + Send;

    /// Its path.
    const PATH: &'static str;
    /// Its name for people.
    const NAME: &'static str;

    /// Returns the metadata.
    fn metadata(&self) -> &Metadata;

    /// Returns what is kept.
    fn into_stored(self) -> Self::Stored;

    /// Returns where it is kept.
    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, Self::Stored>>;
}

fn names(names: Option<Vec<Name>>) -> Vec<String> {
    names.into_iter().flatten().map(|one| one.name).collect()
}

impl Kind for Pool {
    type Stored = PinningPool;

    const PATH: &'static str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
    const NAME: &'static str = "MachineConfigPools";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn into_stored(self) -> PinningPool {
        let PoolSpec { node_selector, pinned_image_sets } = self.spec;
        PinningPool { name: self.metadata.name, selector: node_selector, sets: names(pinned_image_sets) }
    }

    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, PinningPool>> {
        &mut objects.pools
    }
}

impl Kind for Set {
    type Stored = PinnedSet;

    const PATH: &'static str = "/apis/machineconfiguration.openshift.io/v1/pinnedimagesets";
    const NAME: &'static str = "PinnedImageSets";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn into_stored(self) -> PinnedSet {
        let Metadata { name, generation, .. } = self.metadata;
        PinnedSet { name, generation, images: names(self.spec.pinned_images) }
    }

    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, PinnedSet>> {
        &mut objects.sets
    }
}

/// Puts one kind into the common value.
pub(super) struct Collector<K> {
    objects: Sender<Objects>,
    snapshot: Receiver<NodeSnapshot>,
    logged: Option<&'static str>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Kind> Collector<K> {
    /// Collects into this value.
    pub(super) fn new(objects: Sender<Objects>, snapshot: Receiver<NodeSnapshot>) -> Self {
        Self { objects, snapshot, logged: None, kind: std::marker::PhantomData }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, K::Stored>)) {
        self.objects.send_if_modified(|objects| {
            let before = K::of(objects).clone();
            let kept = K::of(objects).get_or_insert_default();
            change(kept);
            while kept.len() > MAX_OBJECTS {
                kept.pop_last();
            }
            before.as_ref() != Some(&*kept)
        });
    }
}

impl<K: Kind> WatchHandler for Collector<K> {
    type Object = K;

    fn requests(&self) -> Requests {
        Requests { path: K::PATH, name: String::new(), metadata: false }
    }

    fn object(&self) -> &str {
        K::NAME
    }

    fn on_list(&mut self, list: ObjectList<K>) -> String {
        self.logged = None;
        self.change(|kept| {
            *kept =
                list.items.into_iter().map(|one| (one.metadata().name.clone(), one.into_stored())).collect();
        });
        list.metadata.resource_version.unwrap_or_default()
    }

    fn on_event(&mut self, event: WatchEvent<K>) -> WatchStep {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let Metadata { name, resource_version, .. } = object.metadata().clone();
                self.change(|kept| drop(kept.insert(name, object.into_stored())));
                WatchStep::At(resource_version)
            }
            WatchEvent::Deleted(object) => {
                self.change(|kept| drop(kept.remove(&object.metadata().name)));
                WatchStep::At(object.metadata().resource_version.clone())
            }
            WatchEvent::Bookmark(bookmark) => WatchStep::At(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => {
                broken(K::NAME, *status).map_or(WatchStep::Expired, WatchStep::Failed)
            }
        }
    }

    async fn on_error(&mut self, error: KubeError, wait: Duration) {
        if !error.is_away() && self.logged.replace(error.reason()) != Some(error.reason()) {
            warn!(
                MESSAGE_ID = message::PINS_FAILED,
                MCA_FAULT = error.reason(),
                "{} are not watched: {error}. Next: {}",
                K::NAME,
                error.next()
            );
        }
        tokio::time::sleep(wait).await;
        // The Node's watch delivers an API server that is away; it is gone with the process only.
        drop(self.snapshot.wait_for(|snapshot| snapshot.up).await);
    }
}
