//! `MachineConfigPools` and PinnedImageSets, watched as wholes: a cluster has a few of each.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use kube::core::{ObjectList, WatchEvent};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender};
use tracing::warn;

use super::super::error::KubeError;
use super::super::node::broken;
use super::super::node_watch::NodeSnapshot;
use super::super::reflector::{Requests, WatchHandler, WatchStep};
use crate::model::pinned::{PinnedSet, PinningPool};
use crate::model::{ModelError, message};

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

/// An object as its list or its watch has it. It is read by [`Kind::read`]: one that can't be read is no end of the watch.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Watched<K> {
    tree: Value,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Watched<K> {
    fn metadata(&self, field: &str) -> &str {
        let metadata = self.tree.get("metadata");
        metadata.and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
    }

    fn name(&self) -> String {
        self.metadata("name").to_owned()
    }
}

/// A MachineConfigPool.
#[derive(Debug, Clone)]
pub(super) struct Pool;

/// A PinnedImageSet.
#[derive(Debug, Clone)]
pub(super) struct Set;

/// A kind that is watched as a whole.
pub(super) trait Kind: Clone + Send + 'static {
    /// The kept part of an object.
    type Stored: PartialEq + Clone + Send;

    /// Its path.
    const PATH: &'static str;
    /// Its name for people.
    const NAME: &'static str;

    /// Reads an object.
    fn read(tree: &Value) -> Result<Self::Stored, ModelError>;

    /// Returns where it is kept.
    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, Self::Stored>>;
}

impl Kind for Pool {
    type Stored = PinningPool;

    const PATH: &'static str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
    const NAME: &'static str = "MachineConfigPools";

    fn read(tree: &Value) -> Result<PinningPool, ModelError> {
        PinningPool::of_tree(tree)
    }

    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, PinningPool>> {
        &mut objects.pools
    }
}

impl Kind for Set {
    type Stored = PinnedSet;

    const PATH: &'static str = "/apis/machineconfiguration.openshift.io/v1/pinnedimagesets";
    const NAME: &'static str = "PinnedImageSets";

    fn read(tree: &Value) -> Result<PinnedSet, ModelError> {
        Ok(PinnedSet::of_tree(tree))
    }

    fn of(objects: &mut Objects) -> &mut Option<BTreeMap<String, PinnedSet>> {
        &mut objects.sets
    }
}

/// Reads an object. A pool that can't be read is none of this node's: its labels can't be compared.
fn stored<K: Kind>(object: &Watched<K>) -> Option<K::Stored> {
    let cause = match K::read(&object.tree) {
        Ok(stored) => return Some(stored),
        Err(error) => error,
    };
    warn!(
        MESSAGE_ID = message::PINS_FAILED,
        MCA_FAULT = cause.reason(),
        "One of the {} is ignored: {cause}. Next: correct it",
        K::NAME
    );
    None
}

/// Puts one kind into the common value.
pub(super) struct Collector<K> {
    objects: Sender<Objects>,
    snapshot: Receiver<NodeSnapshot>,
    logged: Option<&'static str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Collector<K> {
    /// Collects into this value.
    pub(super) fn new(objects: Sender<Objects>, snapshot: Receiver<NodeSnapshot>) -> Self {
        Self { objects, snapshot, logged: None, kind: PhantomData }
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
    type Object = Watched<K>;

    fn requests(&self) -> Requests {
        Requests { path: K::PATH, name: String::new(), metadata: false }
    }

    fn object(&self) -> &str {
        K::NAME
    }

    fn on_list(&mut self, list: ObjectList<Watched<K>>) -> String {
        self.logged = None;
        self.change(|kept| {
            *kept = list.items.iter().filter_map(|one| Some((one.name(), stored(one)?))).collect();
        });
        list.metadata.resource_version.unwrap_or_default()
    }

    fn on_event(&mut self, event: WatchEvent<Watched<K>>) -> WatchStep {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let read = stored(&object);
                self.change(|kept| match read {
                    Some(read) => drop(kept.insert(object.name(), read)),
                    None => drop(kept.remove(&object.name())),
                });
                WatchStep::At(object.metadata("resourceVersion").to_owned())
            }
            WatchEvent::Deleted(object) => {
                self.change(|kept| drop(kept.remove(&object.name())));
                WatchStep::At(object.metadata("resourceVersion").to_owned())
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
