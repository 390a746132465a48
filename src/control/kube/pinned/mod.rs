//! PinnedImageSets of the node's pools: watched only while there are some, reported in the MachineConfigNode.
//!
//! # How a node learns of its first one
//! Nothing is watched for it. A node asks once, with a list of at most one entry, whether the cluster has a PinnedImageSet
//! at all: when the API server is seen first or again, when the Node's labels change, and when somebody changes the
//! Node's annotation `machine-config-agent.io/pinned-image-sets`. Only a cluster with a `ControllerConfig` is asked, or a Node
//! with that annotation: others have no PinnedImageSets. Pools and sets are watched from then on until no pool of the
//! node names one. A refusal is logged, and the node asks again ever less often: permissions come with no event.

mod objects;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ListParams;
use serde::de::IgnoredAny;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tracing::warn;

use super::client::ApiClient;
use super::error::KubeError;
use super::node::NodeView;
use super::node_watch::NodeSnapshot;
use super::reflector::Reflector;
use crate::control::link::link;
use crate::control::pins::{DesiredPins, PinLink, PinSource};
use crate::control::trust::TrustReceiver;
use crate::model::annotations::PINNED_IMAGE_SETS;
use crate::model::backoff::Backoff;
use crate::model::message;
use crate::model::pinned::Pins;

use objects::{Collector, Kind, Objects, Pool, Set};

/// The task that follows them. Dropped, it ends.
#[derive(Debug)]
pub(super) struct PinWatcher {
    /// The agent's end of the channel.
    pub(super) link: Option<PinLink>,
    tasks: [AbortHandle; 2],
}

impl Drop for PinWatcher {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl PinWatcher {
    /// Begins. Within a tokio runtime; nothing is requested yet.
    pub(super) fn start(
        api: &ApiClient,
        node: &str,
        snapshot: &Receiver<NodeSnapshot>,
        trust: TrustReceiver,
    ) -> Self {
        let (PinSource { desired, report }, link) = link();
        let status = status::Writer::new(api, node, snapshot.clone());
        let task =
            Follower { api: api.clone(), node: node.to_owned(), snapshot: snapshot.clone(), trust, desired };
        let tasks =
            [tokio::spawn(task.run()).abort_handle(), tokio::spawn(status.run(report)).abort_handle()];
        Self { link: Some(link), tasks }
    }
}

/// Fields of the Node that decide on its pins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PinFields {
    labels: BTreeMap<String, String>,
    is_control_plane: bool,
    requested: Option<String>,
}

impl PinFields {
    fn new(node: &NodeView) -> Self {
        Self {
            labels: node.labels.clone(),
            is_control_plane: node.is_control_plane(),
            requested: node.annotations.get(PINNED_IMAGE_SETS).cloned(),
        }
    }

    fn of(snapshot: &NodeSnapshot) -> Option<Self> {
        snapshot.node.as_ref().filter(|node| snapshot.up && !node.deleting).map(Self::new)
    }

    fn pins(&self, objects: &Objects) -> Option<Pins> {
        let pools: Vec<_> = objects.pools.as_ref()?.values().cloned().collect();
        Some(Pins::collect(&self.labels, &pools, objects.sets.as_ref()?, self.is_control_plane))
    }
}

struct Follower {
    api: ApiClient,
    node: String,
    snapshot: Receiver<NodeSnapshot>,
    trust: TrustReceiver,
    desired: Sender<DesiredPins>,
}

impl Follower {
    async fn run(mut self) {
        let mut backoff = Backoff::for_requests(&format!("{}/pins", self.node));
        let mut refused = Backoff::for_missing_kind(&format!("{}/pins", self.node));
        let mut logged = None;
        loop {
            let fields = self.pin_fields().await;
            match self.has_sets().await {
                Ok(true) => self.follow().await,
                Ok(false) => self.put(Pins::default()),
                Err(error) if error.is_not_found() => self.put(Pins::default()),
                Err(error) if error.is_away() => {
                    tokio::time::sleep(backoff.next_wait()).await;
                    continue;
                }
                Err(error) => {
                    log_refusal(&error, &mut logged);
                    // Both only wait, and each end means another look.
                    let occasion = Self::another(&mut self.snapshot, fields.as_ref());
                    drop(tokio::time::timeout(refused.next_wait(), occasion).await);
                    continue;
                }
            }
            logged = None;
            backoff.reset();
            refused.reset();
            Self::another(&mut self.snapshot, fields.as_ref()).await;
        }
    }

    /// Waits until there is a Node, and a reason to think that its cluster knows PinnedImageSets.
    async fn pin_fields(&mut self) -> Option<PinFields> {
        loop {
            let fields = {
                let observed = self.snapshot.wait_for(|snapshot| PinFields::of(snapshot).is_some()).await;
                observed.ok().and_then(|snapshot| PinFields::of(&snapshot))
            };
            let is_requested = fields.as_ref().is_some_and(|fields| fields.requested.is_some());
            if is_requested || self.trust.now().is_some() {
                return fields;
            }
            tokio::select! {
                // Each only waits: what came is read again.
                () = self.trust.changed() => {}
                () = Self::another(&mut self.snapshot, fields.as_ref()) => {}
            }
        }
    }

    /// Waits for the next occasion: another Node, or an API server that goes away.
    async fn another(snapshot: &mut Receiver<NodeSnapshot>, fields: Option<&PinFields>) {
        // The Node's watch is gone with the process only.
        drop(snapshot.wait_for(|snapshot| PinFields::of(snapshot).as_ref() != fields).await);
    }

    async fn has_sets(&self) -> Result<bool, KubeError> {
        let request = kube::core::Request::new(Set::PATH).list_metadata(&ListParams::default().limit(1));
        let list = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api.client().request::<kube::core::ObjectList<IgnoredAny>>(request).await
        };
        Ok(!list.await.map_err(KubeError::about(Set::NAME))?.items.is_empty())
    }

    /// Watches pools and sets until no pool of the node names a set.
    async fn follow(&mut self) {
        let (sender, mut objects) = channel(Objects::default());
        let pools = self.reflector::<Pool>(&sender, "pools").run();
        let sets = self.reflector::<Set>(&sender, "sets").run();
        let compare = async {
            loop {
                let fields = PinFields::of(&self.snapshot.borrow_and_update());
                let pins = fields.and_then(|fields| fields.pins(&objects.borrow_and_update()));
                let is_over = pins.as_ref().is_some_and(Pins::is_empty);
                if let Some(pins) = pins {
                    put(&self.desired, pins);
                }
                if is_over {
                    return;
                }
                tokio::select! {
                    // Each only waits. The watched values are gone with the process only.
                    _ = objects.changed() => {}
                    _ = self.snapshot.changed() => {}
                }
            }
        };
        tokio::select! {
            // The watches do not end by themselves.
            () = pools => {}
            () = sets => {}
            () = compare => {}
        }
    }

    fn reflector<K: Kind>(&self, objects: &Sender<Objects>, seed: &str) -> Reflector<Collector<K>> {
        let backoff = Backoff::for_requests(&format!("{}/{seed}", self.node));
        Reflector {
            api: self.api.clone(),
            handler: Collector::new(objects.clone(), self.snapshot.clone()),
            backoff,
        }
    }

    fn put(&self, pins: Pins) {
        put(&self.desired, pins);
    }
}

/// Logs why it is not known whether there are sets, once.
fn log_refusal(error: &KubeError, logged: &mut Option<&'static str>) {
    if logged.replace(error.reason()) != Some(error.reason()) {
        warn!(
            MESSAGE_ID = message::PINS_FAILED,
            MCA_FAULT = error.reason(),
            "{} can't be queried: {error}. Next: {}",
            Set::NAME,
            error.next()
        );
    }
}

fn put(desired: &Sender<DesiredPins>, pins: Pins) {
    desired.send_if_modified(|known| {
        let news = known.as_deref() != Some(&pins);
        if news {
            *known = Some(Arc::new(pins));
        }
        news
    });
}
