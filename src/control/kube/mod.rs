//! The control plane as a Kubernetes API server: the Node object is the interface between controllers and agent.
//!
//! ```text
//!   own Node  --watch (metadata)-->  NodeSnapshot  --> desired(), changed(), drain(), uncordon()   annotations in
//!   report    --annotations, pure--> one merge patch of the Node --> NodeSnapshot                  annotations out
//!             --mcn-->  MachineConfigNode (server-side apply)       events --> Events              evict --> Pods
//!   ControllerConfig --watch--> trust()                                                            certificates in
//!   MachineConfig, MachineConfiguration: GET by name, cached on disk for outages of the API server
//! ```
//!
//! | file | does |
//! |---|---|
//! | `identity` | credentials of the agent, read again for each connection |
//! | `tls` | one connection: TCP, TLS, HTTP/2 |
//! | `proxy`, `socks` | the way to it through a proxy |
//! | `connection` | sends requests on that connection, with the credentials |
//! | `request` | the purpose of a request, and the meaning of an answer; pure |
//! | `body`, `adaptive_timeout` | limits of an answer's size and time |
//! | `client` | kube's client over the connection, with its layers |
//! | `node` | reads the Node and the events of its watch; pure |
//! | `reflector` | lists and watches one object |
//! | `node_watch` | watches the Node |
//! | `controller_config` | watches the `ControllerConfig`, where the cluster has one |
//! | `optional_kind` | looks for a kind that the cluster may not have |
//! | `lifecycle` | watches ImageBasedUpgrade and SeedGenerator, where the agent carries them out |
//! | `server_ca` | reads the API server's new CA while it is rotated |
//! | `annotations` | changes of the Node by a report; pure |
//! | `drain_protocol` | requests to the drain controller and their answers; pure |
//! | `publish` | writes the Node |
//! | `workload`, `drain_retries` | drain and uncordon |
//! | `bootstrap` | the first annotations, from the files that the provisioning left |
//! | `fetch` | reads MachineConfigs and the policy by name, when needed |
//! | `objects` | caches these on disk |
//! | `mounted` | reads a hosted cluster's config from its mount |
//! | `stand_in` | compares a config that the cluster does not have with that of its pool |
//! | `desired` | all of these once, for `plan` |
//! | `review` | access to the metrics |
//! | `traffic` | counts requests and bytes |
//! | `outbox` | writes the MachineConfigNode and the Events beside the work |
//! | `mcn`, `events`, `evict` | the MachineConfigNode, the Events, the Pods |
//!
//! Invariants: a request is sent because something changed, never because time passed, but for a try after a failure;
//! a Node that is absent or being deleted is not written (MCD-021).
//!
//! # The used parts of kube
//! Its client carries the requests, over a connection of ours: its own connector pools HTTP/1.1 connections, and a node
//! is to cost an API server one. Bounds and retries that a node needs and the client lacks are in the layers below it
//! (`client`). Errors are made there too, so that they name the object, and so that the client, which logs answers that
//! it can't read, sees fewer of them; its log lines are turned off (`telemetry::log`).
//!
//! - Not `kube_runtime::watcher`: after a watch that the server ends it begins the next one at once and in silence, so an
//!   API server or a proxy that ends each watch is asked without a pause, and the caller, which could wait, learns nothing
//!   of it. Nor does it say that a watch began, by which the agent knows that the API server is back although nothing
//!   changed. `reflector` waits longer each time, and spreads renewals by node.
//! - Not `Api::evict`: its body says `delete_options` where the API says `deleteOptions`, so the API server drops the
//!   uid, and another pod of the same name would be evicted.

mod adaptive_timeout;
mod annotations;
mod body;
mod bootstrap;
mod client;
mod connection;
mod controller_config;
mod desired;
mod drain_protocol;
mod drain_retries;
mod error;
mod events;
mod evict;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod identity;
mod lifecycle;
mod mcn;
mod mounted;
mod node;
mod node_watch;
mod objects;
mod optional_kind;
mod outbox;
mod pem;
mod pinned;
mod proxy;
mod publish;
mod reflector;
mod request;
mod review;
mod server_ca;
mod socks;
mod stand_in;
mod tls;
mod traffic;
pub(in crate::control) mod untrusted;
mod validity;
mod workload;

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::{
    ConfigAndPolicy, ControlError, ControlPlane, DrainStatus, PinLink, TrustReceiver, UncordonStatus,
    trust_channel,
};
use crate::host::Root;
use crate::model::annotations::PREFETCH_IMAGE;
use crate::model::backoff::Backoff;
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, ModelError, Target};
use crate::report::{Event, LinkDown, NodeReport, Unread};
use crate::update::Fault;

use client::ApiClient;
use controller_config::ControllerConfigWatcher;
use node::NodeView;
use node_watch::{NodeSnapshot, NodeWatcher};
use objects::Cache;

pub use desired::{Desired, desired};
pub use error::KubeError;
pub use identity::Identity;
pub use lifecycle::{KubeSeedCluster, LifecycleObjects, LifecycleWatcher};
pub use mounted::Mounted;
pub use review::{Access, Reviews};
pub use traffic::Traffic;

/// Namespace of a node's Events: MCD's, where its watchers look.
const NAMESPACE: &str = "openshift-machine-config-operator";

/// Longest wait of the first pass for the first look at the Node: without it, it would be done twice; but a node's work
/// after a reboot does not wait for an API server that is away.
const FIRST_TRY: Duration = Duration::from_secs(2);

/// The actor of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainBy {
    /// The machine-config-controller's drain controller.
    Controller,
    /// The agent.
    Agent,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    api: ApiClient,
    /// Client that writes the Node.
    writer: ApiClient,
    node: String,
    root: Root,
    watcher: NodeWatcher,
    snapshot: Receiver<NodeSnapshot>,
    _trust_watcher: ControllerConfigWatcher,
    trust: TrustReceiver,
    pins: pinned::PinWatcher,
    /// Node and link as the loop knows them.
    known: Known,
    cache: Cache,
    /// Source of the configs of a hosted cluster's node.
    mounted: Option<Mounted>,
    drain_by: DrainBy,
    evictor: evict::Evictor,
    outbox: outbox::Outbox,
    /// Drains that were answered without a cordon.
    drain_retries: drain_retries::DrainRetries,
    /// The cluster's replacement for a config that it does not know, for people.
    instead: String,
    /// An object that is waited for, and since when.
    awaited: Option<(String, Instant)>,
    /// Time of the next request.
    awaited_backoff: Backoff,
    /// The drain's end was requested by this process.
    uncordon_requested: bool,
    /// The provisioning's annotations have not served yet.
    bootstrapping: bool,
    /// A report or a request is to be tried again.
    due: Option<Instant>,
    backoff: Backoff,
}

/// Node and link as a pass of the loop knows them: another value is a reason for another pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Known {
    up: bool,
    /// Cause of the lost link.
    down: Option<String>,
    node: Option<(String, bool, annotations::Annotations)>,
}

impl Known {
    fn new(snapshot: &NodeSnapshot) -> Self {
        let node = snapshot.node.as_ref();
        Self {
            up: snapshot.up,
            down: snapshot.down.as_ref().map(KubeError::identity),
            node: node.map(|node| (node.uid.clone(), node.deleting, node.annotations.clone())),
        }
    }

    /// Returns true if the API server came back meanwhile, or the Node is another one: other stored objects may be,
    /// too.
    fn is_another(&self, before: &Self) -> bool {
        let uid = |known: &Self| known.node.as_ref().map(|(uid, ..)| uid.clone());
        (self.up && !before.up) || uid(self) != uid(before)
    }

    /// Returns true if a snapshot is a reason for another pass: also an API server that goes, so that the node itself can
    /// report it. It costs no other component anything.
    fn is_behind(&self, snapshot: &NodeSnapshot) -> bool {
        Self::new(snapshot) != *self
    }
}

impl Cluster {
    /// Begins to watch the Node. Within a tokio runtime; nothing is waited for.
    pub fn start(
        identity: Identity,
        node: &str,
        root: Root,
        drain_by: DrainBy,
    ) -> Result<Self, ControlError> {
        let api = ApiClient::new(identity);
        let (watcher, snapshot) = NodeWatcher::start(api.clone(), node);
        let (sender, trust) = trust_channel();
        let trust_watcher = ControllerConfigWatcher::start(api.clone(), node, snapshot.clone(), sender);
        let pins = pinned::PinWatcher::start(&api, node, &snapshot, trust.clone());
        let mcn = mcn::Mcn::new(&api, node).with(match drain_by {
            DrainBy::Controller => mcn::Cordons::Controllers,
            DrainBy::Agent => mcn::Cordons::Own,
        });
        let events = events::Events::new(api.clone(), node, NAMESPACE);
        Ok(Self {
            bootstrapping: bootstrap::is_pending(&root)?,
            evictor: evict::Evictor::new(api.clone(), node),
            outbox: outbox::Outbox::start(mcn, events, snapshot.clone(), node),
            cache: Cache::new(root.clone()),
            mounted: None,
            writer: api.clone(),
            api,
            node: node.to_owned(),
            root,
            watcher,
            snapshot,
            _trust_watcher: trust_watcher,
            trust,
            pins,
            known: Known::default(),
            drain_by,
            drain_retries: drain_retries::DrainRetries::new(node),
            instead: String::new(),
            awaited: None,
            awaited_backoff: Backoff::for_missing_object(node),
            uncordon_requested: false,
            due: None,
            backoff: Backoff::for_requests(node),
        })
    }

    /// Reads configs from a directory that is mounted into this pod.
    #[must_use]
    pub fn with_mounted(self, mounted: Mounted) -> Self {
        Self { mounted: Some(mounted), ..self }
    }

    /// Writes the Node as another identity: the account of machine-config-daemon may not.
    #[must_use]
    pub fn writing_as(self, identity: Identity) -> Self {
        Self { writer: self.api.beside(identity), ..self }
    }

    /// Begins to follow the objects of lifecycle-agent. Within a tokio runtime.
    pub fn follow_lifecycle(&self) -> LifecycleObjects {
        LifecycleObjects::follow(&self.api, &self.node, &self.snapshot)
    }

    /// Returns the traffic of the link.
    pub fn traffic(&self) -> std::sync::Arc<Traffic> {
        std::sync::Arc::clone(self.api.traffic())
    }

    /// Returns the reviews for the readers of this agent's metrics.
    pub fn reviews(&self) -> Reviews {
        Reviews::new(self.api.clone())
    }

    /// Waits until the API server answered or did not, the first time, but not for long.
    async fn tried(&mut self) {
        let (snapshot, trust) = (&mut self.snapshot, &self.trust);
        let looked = async {
            let there = snapshot.wait_for(|snapshot| snapshot.tried).await.is_ok_and(|snapshot| snapshot.up);
            // The pull secret comes with it, and is to be there before the first pull.
            if there {
                trust.observed().await;
            }
        };
        // Neither end matters: an unseen Node is seen as a change.
        drop(tokio::time::timeout(FIRST_TRY, looked).await);
    }

    /// Returns the Node as it may be written, or `None`.
    fn present(&self) -> Option<NodeView> {
        self.snapshot.borrow().node.clone().filter(|node| !node.deleting)
    }

    /// Returns why the API server is away now.
    fn away(&self) -> Option<KubeError> {
        let snapshot = self.snapshot.borrow();
        if snapshot.up {
            return None;
        }
        let (server, cause) = ("of this node".to_owned(), "not connected yet".to_owned());
        Some(snapshot.down.clone().unwrap_or(KubeError::Away { server, cause }))
    }

    /// Waits for the time of the next try.
    async fn due(due: Option<Instant>) {
        match due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a snapshot that is a reason for another pass.
    async fn snapshot_changed(snapshot: &mut Receiver<NodeSnapshot>, known: &Known) {
        // An error means that the watching task is gone, which only the end of the runtime does.
        if snapshot.wait_for(|snapshot| known.is_behind(snapshot)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl ControlPlane for Cluster {
    async fn changed(&mut self) -> Result<(), ControlError> {
        // Its tries wait for the API server, whose return is a change.
        let evictor = async {
            if !self.known.up {
                std::future::pending::<()>().await;
            }
            self.evictor.changed().await;
        };
        tokio::select! {
            // Each arm only waits: a snapshot stays in the channel until a pass takes it in `desired`, a time that
            // has come stays come, and the evictor and the outbox keep their own.
            () = Self::snapshot_changed(&mut self.snapshot, &self.known) => {}
            () = Self::due(self.due) => {}
            () = evictor => {}
            () = self.outbox.due() => {}
        }
        Ok(())
    }

    async fn desired(&mut self) -> Result<Option<Target>, ControlError> {
        self.tried().await;
        let snapshot = self.snapshot.borrow_and_update().clone();
        let known = Known::new(&snapshot);
        if known.is_another(&self.known) {
            self.outbox.reread().await;
        }
        self.known = known;
        // A pass is about to do the due work.
        self.due = None;
        let Some(node) = snapshot.node.filter(|node| !node.deleting) else { return Ok(None) };
        let target = crate::model::annotations::target(&node.annotations);
        target.map_err(|source| invalid(&format!("Node {}", self.node), source))
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        self.fetch_config(name).await
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        self.fetch_policy().await
    }

    async fn config_and_policy(&mut self, name: &ConfigName) -> Result<ConfigAndPolicy, ControlError> {
        Box::pin(self.fetch_both(name)).await
    }

    fn trust(&self) -> TrustReceiver {
        self.trust.clone()
    }

    fn take_pins(&mut self) -> Option<PinLink> {
        self.pins.link.take()
    }

    fn link_down(&self) -> Option<LinkDown> {
        let snapshot = self.snapshot.borrow();
        snapshot.down.as_ref().map(|error| LinkDown {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            next: error.next(),
            since: snapshot.since.to_string(),
        })
    }

    fn unread(&self) -> Option<Unread> {
        unread(&self.snapshot.borrow(), &self.node)
    }

    fn is_control_plane(&self) -> bool {
        let snapshot = self.snapshot.borrow();
        snapshot.node.as_ref().is_some_and(NodeView::is_control_plane)
    }

    fn prefetch(&self) -> Option<String> {
        let (_, deleting, annotations) = self.known.node.as_ref()?;
        annotations.get(PREFETCH_IMAGE).filter(|image| !deleting && !image.is_empty()).cloned()
    }

    fn can_drain(&self) -> bool {
        let snapshot = self.snapshot.borrow();
        let topology = snapshot.node.as_ref().and_then(|node| node.annotations.get(annotations::TOPOLOGY));
        // Unknown and missing topologies are like a highly available one (MCD-054).
        topology.is_none_or(|topology| topology != "SingleReplica")
    }

    async fn drain(&mut self, target: &Target) -> Result<DrainStatus, ControlError> {
        self.drain_node(target).await
    }

    async fn uncordon(&mut self, committed: &Target) -> Result<UncordonStatus, ControlError> {
        self.uncordon_node(committed).await
    }

    async fn emit(&mut self, event: &Event) {
        let Some(node) = self.present() else { return };
        if self.away().is_some() {
            return;
        }
        self.outbox.event(node, event.clone()).await;
    }

    async fn flush(&mut self) {
        self.outbox.flush().await;
    }

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        self.publish_report(report).await
    }
}

/// Returns why nobody knows what is desired of the Node: the API server is awaited, the access to it is wrong, or the cluster has no
/// such Node.
fn unread(snapshot: &NodeSnapshot, node: &str) -> Option<Unread> {
    if snapshot.node.is_some() {
        return None;
    }
    let awaited = |what: String| Some(Unread::Awaited(what));
    if snapshot.up {
        return awaited(format!(
            "Node {node}, which is not in the cluster; its kubelet registers it (`systemctl status kubelet`, `kubectl get node \
             {node}`)"
        ));
    }
    match &snapshot.down {
        None => awaited("the API server".to_owned()),
        Some(KubeError::Away { server, cause }) if !untrusted::is_certificate(cause) => {
            awaited(format!("the API server at {server}: {cause}"))
        }
        Some(error @ KubeError::NoKubeconfig { .. }) => awaited(format!("a kubeconfig: {error}")),
        Some(error) => Some(Unread::Refused(Fault {
            class: error.class(),
            reason: error.reason().to_owned(),
            message: error.to_string(),
            next: error.next(),
        })),
    }
}

fn invalid(document: &str, source: ModelError) -> ControlError {
    ControlError::Invalid { document: document.to_owned(), source }
}

#[cfg(test)]
mod tests;
