//! The drain without a drain controller (`--drain self`): the agent cordons its Node and evicts its pods.
//!
//! As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does: pods of a DaemonSet and of a
//! file stay, finished ones are not counted, and a disruption budget is honoured for as long as it refuses. The node's
//! pods are watched while a drain lasts, and only then. What happens to them decides [`crate::drain`].
//!
//! The annotation [`CORDONED_BY`] records that the agent cordoned: a node cordoned otherwise stays cordoned. [`DRAINS_UNTIL`]
//! records which pods leave: an agent that starts meanwhile evicts none that came to the cordoned node.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta, WatchEvent};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::client::ApiClient;
use super::error::KubeError;
use super::node::{CordonedNode, nodes};
use crate::control::{DrainStatus, UncordonStatus};
use crate::drain::{Answer, KnownBudgets, Outcome, Pod, PodSeen, Pods, Terminating};
use crate::host::clock::Clock;
use crate::model::pod::stays_on_node;
use crate::model::{ConfigName, Timestamp};

/// The part of a pod that is read.
type PodMetadata = PartialObjectMeta<CorePod>;

/// The Node's annotation while the agent keeps it cordoned.
pub(super) const CORDONED_BY: &str = "machine-config-agent.io/cordoned-by";

/// The config of a drain, and when the newest pod was created that leaves: `<config> <time>`.
const DRAINS_UNTIL: &str = "machine-config-agent.io/drains-until";

/// The value of [`CORDONED_BY`].
const AGENT: &str = "machine-config-agent";

/// Delay of a refused eviction's next request, as kubectl's: budgets are not watched here.
const RETRY: Duration = Duration::from_secs(5);

/// Writes of a Node that others change meanwhile.
const MAX_CONFLICTS: usize = 5;

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
    clock: Clock,
    /// Zero of the clock of the retries.
    began: Instant,
    pods: Pods,
    watch: Option<Events>,
    version: String,
    recheck: Option<Instant>,
    released: bool,
    /// Pods that came to the cordoned node were logged.
    late: Option<String>,
    /// The same, and no Event names them yet.
    untold: Option<String>,
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
            clock: Clock::system(),
            began: Instant::now(),
            pods: Pods::default(),
            watch: None,
            version: String::new(),
            recheck: None,
            released: false,
            late: None,
            untold: None,
        }
    }

    /// Cordons the node for a config and evicts its pods; returns the progress.
    pub(super) async fn drain(&mut self, config: &ConfigName) -> Result<DrainStatus, KubeError> {
        self.released = false;
        if self.watch.is_none() || self.pods.is_drained() {
            // Begun, or seen as done: looked at as a whole.
            self.watch = None;
            if self.cordon().await? {
                // What came while it was not cordoned leaves, too.
                self.pods = Pods::default();
            }
            if !self.pods.is_listed() {
                self.pods.go_on(recorded(&self.get_node().await?, config));
            }
            self.list().await?;
            self.record(config).await?;
        }
        self.evict().await;
        if self.pods.is_drained() {
            self.watch = None;
            self.log_late();
            return Ok(DrainStatus::Yes);
        }
        if self.watch.is_none() {
            self.follow().await?;
        }
        let why = self.awaited().unwrap_or_else(|| "the node's pods are leaving".to_owned());
        Ok(DrainStatus::Waiting { why })
    }

    /// Names the pod that is awaited.
    fn awaited(&self) -> Option<String> {
        let blocker = self.pods.blocker(|_| KnownBudgets::Unknown, self.clock.now());
        blocker.map(|blocker| blocker.text).or_else(|| self.pods.leaving())
    }

    /// Logs the pods that stay, each set once.
    fn log_late(&mut self) {
        let late = self.pods.late();
        if let Some(text) = late.as_ref().filter(|_| late != self.late) {
            warn!("Drained, but {text}");
            self.untold = Some(text.clone());
        }
        self.late = late;
    }

    /// Returns the text on pods that stay on the drained node, once.
    pub(super) fn take_late(&mut self) -> Option<String> {
        self.untold.take()
    }

    /// Uncordons the node if the agent had cordoned it. Looked up once, and again after each drain.
    pub(super) async fn uncordon(&mut self) -> Result<UncordonStatus, KubeError> {
        if self.released {
            return Ok(UncordonStatus::Yes);
        }
        (self.watch, self.recheck) = (None, None);
        self.pods = Pods::default();
        let patch =
            |node: &CordonedNode| match (annotation(node, CORDONED_BY), annotation(node, DRAINS_UNTIL)) {
                (Some(_), _) => Some(json!({
                    "metadata": { "annotations": { CORDONED_BY: null, DRAINS_UNTIL: null } },
                    "spec": { "unschedulable": null },
                })),
                (None, Some(_)) => Some(json!({ "metadata": { "annotations": { DRAINS_UNTIL: null } } })),
                (None, None) => None,
            };
        let written = self.write(patch).await?;
        self.released = true;
        let uncordoned = written.is_some_and(|patch| patch.get("spec").is_some());
        Ok(if uncordoned { UncordonStatus::Again } else { UncordonStatus::Yes })
    }

    /// Waits until the drain is to be looked at: a pod left or came, or a refused one is due. Never returns while no
    /// drain lasts. Cancel-safe: a line that was read in part stays read, and times are points in time.
    pub(super) async fn changed(&mut self) {
        loop {
            let overdue = self.pods.overdue_at(self.clock.now()).map(|left| Instant::now() + left);
            let refused = self.pods.due().map(|due| self.began + due);
            let due = self.recheck.or_else(|| refused.into_iter().chain(overdue).min());
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
            match event.and_then(Result::ok).and_then(|event| self.take(event)) {
                Some(false) => {}
                Some(true) => return,
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

    /// Writes to the Node as it is; returns the patch, if it needs one. A Node that others change meanwhile is read again.
    async fn write(
        &self,
        patch: impl Fn(&CordonedNode) -> Option<serde_json::Value>,
    ) -> Result<Option<serde_json::Value>, KubeError> {
        let (nodes, params) = (nodes(self.api.client()), PatchParams::default());
        let mut conflicts = 0;
        loop {
            let node = self.get_node().await?;
            let Some(mut patch) = patch(&node) else { return Ok(None) };
            if let Some(metadata) = patch.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
                metadata.insert("resourceVersion".to_owned(), json!(node.metadata.resource_version));
            }
            let patched = nodes.patch_metadata(&self.node, &params, &Patch::Merge(&patch)).await;
            match patched.map_err(KubeError::about(&self.object())) {
                Ok(_) => return Ok(Some(patch)),
                Err(KubeError::Refused { status: 409, .. }) if conflicts < MAX_CONFLICTS => conflicts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Cordons the node; returns true unless it was cordoned before.
    async fn cordon(&self) -> Result<bool, KubeError> {
        let patch = json!({
            // What came while it was not cordoned leaves, too.
            "metadata": { "annotations": { CORDONED_BY: AGENT, DRAINS_UNTIL: null } },
            "spec": { "unschedulable": true },
        });
        let written = self.write(|node| (!node.spec.unschedulable).then(|| patch.clone())).await?;
        Ok(written.is_some())
    }

    /// Records which pods leave, unless the Node has it already, or none does.
    async fn record(&self, config: &ConfigName) -> Result<(), KubeError> {
        let Some(newest) = self.pods.newest() else { return Ok(()) };
        let patch = json!({ "metadata": { "annotations": { DRAINS_UNTIL: format!("{config} {newest}") } } });
        self.write(|node| recorded(node, config).is_none().then(|| patch.clone())).await?;
        Ok(())
    }

    async fn list(&mut self) -> Result<(), KubeError> {
        let pods = Api::<CorePod>::all(self.api.client());
        let list = pods.list_metadata(&ListParams::default().fields(&self.selector())).await;
        let list = list.map_err(KubeError::about(&format!("the list of Node {}'s pods", self.node)))?;
        self.version = list.metadata.resource_version.unwrap_or_default();
        self.pods.list(list.items.into_iter().map(|pod| seen(pod.metadata)));
        Ok(())
    }

    /// Takes an event of the watch: true if another pod is awaited then, `None` when it ends the watch.
    fn take(&mut self, event: WatchEvent<PodMetadata>) -> Option<bool> {
        let before = self.awaited();
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                self.pods.put(seen(pod.metadata));
            }
            WatchEvent::Deleted(pod) => {
                self.pods.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return None,
        }
        Some(self.awaited() != before)
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
        for pods in self.pods.to_evict(self.began.elapsed()).chunks(MAX_EVICTIONS) {
            let mut evictions = JoinSet::new();
            for pod in pods {
                evictions.spawn(eviction(self.api.clone(), pod.clone()));
            }
            // A task of these ends with its answer; a panic ends the process.
            while let Some(Ok((uid, outcome))) = evictions.join_next().await {
                self.pods.answered(&uid, outcome, KnownBudgets::Unknown, self.began.elapsed());
            }
        }
    }
}

/// Requests the eviction of one pod.
async fn eviction(api: ApiClient, pod: Pod) -> (String, Outcome) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        // Another pod of the same name is not meant.
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let pods = Api::<CorePod>::namespaced(api.client(), &pod.namespace);
    // Not `Api::evict`: see `super`.
    let answer: kube::Result<serde_json::Value> =
        pods.create_subresource("eviction", &pod.name, &PostParams::default(), &object).await;
    let outcome = match answer.map_err(KubeError::about("Pod")) {
        Ok(_) => Outcome::Evicted,
        Err(error) if error.is_not_found() => Outcome::Gone,
        Err(KubeError::Refused { status, message, details, .. }) => {
            let (budget, retry_after) = (details.budget.as_deref(), details.retry_after);
            Outcome::of_refusal(Answer { code: status, message: &message, budget, retry_after }, RETRY)
        }
        // A webhook that does not answer; if it is the whole API server, no request is sent before it is back.
        Err(error) => Outcome::of_failure(&error.to_string()),
    };
    let outcome = if outcome == Outcome::Gone { seen_again(&pods, &pod).await } else { outcome };
    (pod.uid, outcome)
}

/// Looks at a pod that is said to be gone.
async fn seen_again(pods: &Api<CorePod>, pod: &Pod) -> Outcome {
    match pods.get_metadata_opt(&pod.name).await.map_err(KubeError::about("Pod")) {
        Ok(found) => Outcome::Gone.confirmed(&pod.uid, found.and_then(|found| found.metadata.uid).as_deref()),
        Err(error) => Outcome::of_failure(&error.to_string()),
    }
}

fn annotation<'a>(node: &'a CordonedNode, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the creation of the newest pod that leaves in the drain for a config, as it was recorded.
fn recorded(node: &CordonedNode, config: &ConfigName) -> Option<Timestamp> {
    let (of, newest) = annotation(node, DRAINS_UNTIL)?.split_once(' ')?;
    if of == config.as_str() { Timestamp::read(newest) } else { None }
}

fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_micros(u64::try_from(time.0.as_microsecond()).unwrap_or_default())
}

fn seen(metadata: ObjectMeta) -> PodSeen {
    let owners = metadata.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let stays = stays_on_node(metadata.annotations.as_ref(), owners.map(|owner| owner.kind.as_str()));
    let finalizers = metadata.finalizers.unwrap_or_default();
    let terminating = metadata.deletion_timestamp.map(|due| Terminating { due: timestamp(&due), finalizers });
    PodSeen {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        // Budgets are not known here.
        labels: std::collections::BTreeMap::new(),
        created: metadata.creation_timestamp.map(|created| timestamp(&created)),
        stays,
        terminating,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_and_mirror_pods_stay() {
        let table = [
            ("", false),
            (r#","annotations":{"kubernetes.io/config.mirror":"x"}"#, true),
            (r#","annotations":{"a":"b"}"#, false),
            (r#","ownerReferences":[{"kind":"DaemonSet","controller":true}]"#, true),
            (r#","ownerReferences":[{"kind":"DaemonSet"}]"#, false),
            (r#","ownerReferences":[{"kind":"ReplicaSet","controller":true}]"#, false),
        ];
        for (more, desired) in table {
            let metadata = format!(r#"{{"name":"a","namespace":"shop","uid":"u-a"{more}}}"#);
            assert_eq!(seen(serde_json::from_str(&metadata).unwrap()).stays, desired, "{more}");
        }
    }
}
