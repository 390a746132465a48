//! The drain without a drain controller (`--drain self`): the agent cordons its Node and evicts its pods.
//!
//! As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does: pods of a DaemonSet and of a
//! file stay, finished ones are not counted, and a disruption budget is honoured for as long as it refuses. The node's
//! pods are watched while a drain lasts, and only then.
//!
//! The annotation [`CORDONED_BY`] records that the agent cordoned: a node cordoned otherwise stays cordoned.

mod pods;

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod as CorePod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client::ApiClient;
use super::error::KubeError;
use super::node::{CordonedNode, nodes};
use crate::control::{DrainStatus, UncordonStatus};

use pods::{Change, EvictionState, Pod, PodMetadata, Pods};

/// The Node's annotation while the agent keeps it cordoned.
pub(super) const CORDONED_BY: &str = "machine-config-agent.io/cordoned-by";

/// Its value.
const AGENT: &str = "machine-config-agent";

/// Delay of a refused eviction's next request, as kubectl's: a budget changes with pods of other nodes, which are not
/// watched here.
const RETRY: Duration = Duration::from_secs(5);

/// Evictions requested side by side.
const MAX_EVICTIONS: usize = 8;

/// Duration of one watch: the longest wait without a new list (DRN-006).
const LASTS: u32 = 3600;

/// The node's pods, as they change.
type Events = BoxStream<'static, kube::Result<WatchEvent<PodMetadata>>>;

/// The drain of one node.
pub(super) struct Evictor {
    api: ApiClient,
    node: String,
    pods: Pods,
    watch: Option<Events>,
    version: String,
    recheck: Option<Instant>,
    released: bool,
}

impl std::fmt::Debug for Evictor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evictor").field("node", &self.node).field("pods", &self.pods).finish_non_exhaustive()
    }
}

impl Evictor {
    /// Nothing is requested yet.
    pub(super) fn new(api: ApiClient, node: &str) -> Self {
        Self {
            api,
            node: node.to_owned(),
            pods: Pods::default(),
            watch: None,
            version: String::new(),
            recheck: None,
            released: false,
        }
    }

    /// Cordons the node and evicts its pods; returns the progress.
    pub(super) async fn drain(&mut self) -> Result<DrainStatus, KubeError> {
        self.released = false;
        if self.watch.is_none() || self.pods.left.is_empty() {
            // Begun, or seen as done: looked at as a whole.
            self.watch = None;
            self.cordon().await?;
            self.list().await?;
        }
        self.evict().await;
        if self.pods.left.is_empty() {
            self.watch = None;
            return Ok(DrainStatus::Yes);
        }
        if self.watch.is_none() {
            self.follow().await?;
        }
        Ok(DrainStatus::Waiting { why: self.pods.why() })
    }

    /// Uncordons the node if the agent had cordoned it. Looked up once, and again after each drain.
    pub(super) async fn uncordon(&mut self) -> Result<UncordonStatus, KubeError> {
        if self.released {
            return Ok(UncordonStatus::Yes);
        }
        (self.watch, self.recheck) = (None, None);
        self.pods = Pods::default();
        let ours =
            self.get_node().await?.metadata.annotations.is_some_and(|all| all.contains_key(CORDONED_BY));
        if ours {
            let patch = json!({
                "metadata": { "annotations": { CORDONED_BY: null } },
                "spec": { "unschedulable": null },
            });
            self.patch(&patch).await?;
        }
        self.released = true;
        Ok(if ours { UncordonStatus::Again } else { UncordonStatus::Yes })
    }

    /// Waits until the drain is to be looked at: a pod left or came, or a refused one is due. Never returns while no
    /// drain lasts. Cancel-safe: a line that was read in part stays read, and times are points in time.
    pub(super) async fn changed(&mut self) {
        loop {
            let due = self.recheck.or(self.pods.due());
            let again = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let event = async {
                match &mut self.watch {
                    Some(watch) => watch.next().await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                // Cancel-safe: the stream keeps its read bytes.
                event = event => event,
                // Cancel-safe: it only waits.
                () = again => { self.recheck = None; return; }
            };
            match event.and_then(Result::ok).and_then(|event| self.pods.see(event)) {
                Some(Change::None) => {}
                Some(Change::Changed) => return,
                None => {
                    // The watch ended: the pods are listed again, and not at once where each watch ends at once.
                    self.watch = None;
                    self.recheck = Some(Instant::now() + RETRY);
                }
            }
        }
    }

    /// The node's pods that run or will.
    fn selector(&self) -> String {
        format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", self.node)
    }

    fn object(&self) -> String {
        format!("Node {}", self.node)
    }

    async fn get_node(&self) -> Result<CordonedNode, KubeError> {
        let node = nodes(self.api.client()).get(&self.node).await;
        node.map_err(KubeError::about(&self.object()))
    }

    async fn patch(&self, patch: &serde_json::Value) -> Result<(), KubeError> {
        let (nodes, params) = (nodes(self.api.client()), PatchParams::default());
        let patched = nodes.patch_metadata(&self.node, &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(KubeError::about(&self.object()))
    }

    async fn cordon(&self) -> Result<(), KubeError> {
        if self.get_node().await?.spec.unschedulable {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "annotations": { CORDONED_BY: AGENT } },
            "spec": { "unschedulable": true },
        });
        self.patch(&patch).await
    }

    async fn list(&mut self) -> Result<(), KubeError> {
        let pods = Api::<CorePod>::all(self.api.client());
        let list = pods.list_metadata(&ListParams::default().fields(&self.selector())).await;
        let list = list.map_err(KubeError::about(&format!("the list of Node {}'s pods", self.node)))?;
        self.version = list.metadata.resource_version.unwrap_or_default();
        self.pods.replace(list.items.into_iter().map(|pod| pod.metadata));
        Ok(())
    }

    async fn follow(&mut self) -> Result<(), KubeError> {
        let pods = Api::<CorePod>::all(self.api.client());
        let params = WatchParams::default().fields(&self.selector()).timeout(LASTS);
        let watch = pods.watch_metadata(&params, &self.version).await;
        let watch = watch.map_err(KubeError::about(&format!("Node {}'s pods", self.node)))?;
        self.api.traffic().watching();
        self.watch = Some(watch.boxed());
        self.recheck = None;
        Ok(())
    }

    /// Requests the eviction of each pod for which it was not requested, or whose refusal is old enough. A refusal of
    /// one pod affects no other one here.
    async fn evict(&mut self) {
        for pods in self.pods.to_ask(Instant::now()).chunks(MAX_EVICTIONS) {
            let mut evictions = JoinSet::new();
            for pod in pods {
                evictions.spawn(eviction(self.api.clone(), pod.clone()));
            }
            // A task of these ends with its answer; a panic ends the process.
            while let Some(Ok((uid, state))) = evictions.join_next().await {
                self.pods.stands(&uid, state);
            }
        }
    }
}

/// Requests the eviction of one pod; returns its state then, `None` when it is gone.
async fn eviction(api: ApiClient, pod: Pod) -> (String, Option<EvictionState>) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        // Another pod of the same name is not meant.
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let pods = Api::<CorePod>::namespaced(api.client(), &pod.namespace);
    // Not `Api::evict`: see `super`.
    let answer = pods.create_subresource("eviction", &pod.name, &PostParams::default(), &object).await;
    let answer: Result<serde_json::Value, KubeError> = answer.map_err(KubeError::about("Pod"));
    let again = Instant::now() + RETRY;
    let state = match answer {
        Ok(_) => Some(EvictionState::Leaving),
        Err(error) if error.is_not_found() => None,
        Err(KubeError::Refused { status, message, .. }) => {
            Some(EvictionState::Refused { budget: status == 429, message, again })
        }
        // A webhook that does not answer; if it is the whole API server, no request is sent before it is back.
        Err(error) => Some(EvictionState::Refused { budget: false, message: error.to_string(), again }),
    };
    (pod.uid, state)
}
