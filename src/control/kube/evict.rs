//! The drain without a drain controller (`--drain self`): the agent cordons its Node and evicts its pods.
//!
//! As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does: pods of a DaemonSet and of a
//! file stay, finished ones are not counted, and a disruption budget is honoured for as long as it refuses. The node's
//! pods are watched while a drain lasts, and only then.
//!
//! The annotation [`CORDONED_BY`] says that the agent cordoned: a node that somebody else cordoned stays cordoned.

mod pods;

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client::{Call, Lines, Link};
use super::error::KubeError;
use crate::control::{Drained, Released};

use pods::{Line, List, Metadata, News, Pod, Pods, Stand};

/// The Node's annotation while the agent keeps it cordoned.
pub(super) const CORDONED_BY: &str = "machine-config-agent.io/cordoned-by";

/// Its value.
const AGENT: &str = "machine-config-agent";

/// When a refused eviction is asked for again, as kubectl does: a budget changes with pods of other nodes, which nobody
/// here sees.
const RETRY: Duration = Duration::from_secs(5);

/// How many evictions are requested side by side.
const MAX_EVICTIONS: usize = 8;

/// How long one watch lasts: the longest wait that nobody looks into (DRN-006).
const LASTS: u64 = 3600;

/// The drain of one node.
#[derive(Debug)]
pub(super) struct Evictor {
    link: Link,
    node: String,
    pods: Pods,
    watch: Option<Lines>,
    version: String,
    look_again: Option<Instant>,
    released: bool,
}

impl Evictor {
    /// Nothing is asked yet.
    pub(super) fn new(link: Link, node: &str) -> Self {
        Self {
            link,
            node: node.to_owned(),
            pods: Pods::default(),
            watch: None,
            version: String::new(),
            look_again: None,
            released: false,
        }
    }

    /// Sees to it that the node is cordoned and its pods leave, and says how far that is.
    pub(super) async fn drain(&mut self) -> Result<Drained, KubeError> {
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
            return Ok(Drained::Yes);
        }
        if self.watch.is_none() {
            self.follow().await?;
        }
        Ok(Drained::Waiting { why: self.pods.why() })
    }

    /// Uncordons the node if the agent had cordoned it. Looked up once, and again after each drain.
    pub(super) async fn release(&mut self) -> Result<Released, KubeError> {
        if self.released {
            return Ok(Released::Yes);
        }
        (self.watch, self.look_again) = (None, None);
        self.pods = Pods::default();
        let ours = self.look().await?.is_ours();
        if ours {
            let patch = json!({
                "metadata": { "annotations": { CORDONED_BY: null } },
                "spec": { "unschedulable": null },
            });
            self.link.send(&Call::merge_patch(self.path(), &patch)).await?;
        }
        self.released = true;
        Ok(if ours { Released::Again } else { Released::Yes })
    }

    /// Waits until the drain is to be looked at: a pod left or came, or a refused one is due. Never returns while no
    /// drain lasts. Cancel-safe: a line that was read in part stays read, and times are points in time.
    pub(super) async fn changed(&mut self) {
        loop {
            let due = self.look_again.or(self.pods.due());
            let again = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let line = async {
                match &mut self.watch {
                    Some(watch) => watch.next().await,
                    None => std::future::pending().await,
                }
            };
            let line = tokio::select! {
                // Cancel-safe: the lines keep what they have read.
                line = line => line,
                // Cancel-safe: it only waits.
                () = again => { self.look_again = None; return; }
            };
            let seen = line.ok().flatten().and_then(|line| serde_json::from_slice::<Line>(&line).ok());
            match seen.and_then(|line| self.pods.see(line)) {
                Some(News::Nothing) => {}
                Some(News::Changed) => return,
                None => {
                    // The watch ended: the pods are listed again, and not at once where each watch ends at once.
                    self.watch = None;
                    self.look_again = Some(Instant::now() + RETRY);
                }
            }
        }
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.node)
    }

    /// The node's pods that run or will.
    fn pods_path(&self) -> String {
        let unfinished = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}%2C{unfinished}", self.node)
    }

    async fn look(&self) -> Result<Node, KubeError> {
        let answer = self.link.send(&Call::get(self.path())).await?;
        read(&answer, &format!("Node {}", self.node))
    }

    async fn cordon(&self) -> Result<(), KubeError> {
        if self.look().await?.spec.unschedulable {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "annotations": { CORDONED_BY: AGENT } },
            "spec": { "unschedulable": true },
        });
        self.link.send(&Call::merge_patch(self.path(), &patch)).await.map(drop)
    }

    async fn list(&mut self) -> Result<(), KubeError> {
        let answer = self.link.send(&Call::get(self.pods_path()).metadata_list()).await?;
        let list: List = read(&answer, &format!("the list of Node {}'s pods", self.node))?;
        self.version = list.metadata.resource_version;
        self.pods.replace(list.items.into_iter().flatten().map(|item| item.metadata));
        Ok(())
    }

    async fn follow(&mut self) -> Result<(), KubeError> {
        let query = format!("&watch=true&resourceVersion={}&timeoutSeconds={LASTS}", self.version);
        let path = format!("{}{query}", self.pods_path());
        self.watch = Some(self.link.follow(&Call::get(path).metadata()).await?);
        self.look_again = None;
        Ok(())
    }

    /// Requests the eviction of each pod that was not asked for, or whose refusal is old enough. What one pod is
    /// refused for keeps no other one here.
    async fn evict(&mut self) {
        for pods in self.pods.to_ask(Instant::now()).chunks(MAX_EVICTIONS) {
            let mut evictions = JoinSet::new();
            for pod in pods {
                evictions.spawn(eviction(self.link.clone(), pod.clone()));
            }
            // A task of these ends with its answer; a panic ends the process.
            while let Some(Ok((uid, stand))) = evictions.join_next().await {
                self.pods.stands(&uid, stand);
            }
        }
    }
}

/// Requests the eviction of one pod; returns how it stands then, `None` when it is gone.
async fn eviction(link: Link, pod: Pod) -> (String, Option<Stand>) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        // Another pod of the same name is not meant.
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
    let answer = link.send(&Call::create(path, &object)).await;
    let again = Instant::now() + RETRY;
    let stand = match answer {
        Ok(_) => Some(Stand::Leaving),
        Err(error) if error.is_not_found() => None,
        Err(KubeError::Refused { status, message, .. }) => {
            Some(Stand::Refused { budget: status == 429, message, again })
        }
        // A webhook that does not answer; where it is the whole API server, nobody asks before it is back.
        Err(error) => Some(Stand::Refused { budget: false, message: error.to_string(), again }),
    };
    (pod.uid, stand)
}

#[derive(Debug, Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

impl Node {
    fn is_ours(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CORDONED_BY))
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: &[u8], object: &str) -> Result<T, KubeError> {
    serde_json::from_slice(answer).map_err(|error| KubeError::Invalid {
        object: object.to_owned(),
        cause: format!("the answer is no such object (line {}, column {})", error.line(), error.column()),
    })
}
