//! The drain controller of a cluster: cordons and answers `desiredDrain`, as machine-config-controller does, or fails to
//! in one of the ways that an agent has to cope with. It moves on the events of its watch and on the test's release.

use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Bench;
use super::objects::{annotation, changes, key, node_api};

/// The controller's answers. An uncordon request is always answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// At once.
    Echo,
    /// Cordons, and answers each drain request when the test releases it.
    Delay,
    /// Cordons, and never answers a drain request.
    Refuse,
    /// Answers a drain request with that of another config first, and rightly when the test releases it.
    Stale,
    /// Answers the first drain request only when the next one is there, first the old one and then the new one.
    Late,
    /// An administrator uncordons the node before its drain is answered; the node is schedulable with the answer.
    AdminUncordons,
}

/// A drain controller for one node; dropping it stops it.
#[derive(Debug)]
pub struct DrainController {
    task: JoinHandle<()>,
    release: mpsc::UnboundedSender<()>,
    seen: watch::Receiver<Vec<String>>,
}

impl DrainController {
    /// Starts to watch a node, which may come later.
    pub async fn start(bench: &Bench, node: &str, behaviour: Behaviour) -> Self {
        let client = bench.client("machine-config-controller").await;
        let (release, released) = mpsc::unbounded_channel();
        let (tell, seen) = watch::channel(vec![]);
        let controller = Controller {
            api: node_api(&client),
            node: node.to_owned(),
            behaviour,
            released,
            tell,
            held: None,
        };
        Self { task: tokio::spawn(controller.run()), release, seen }
    }

    /// Lets one answer go that is held back, or the next one.
    pub fn release(&self) {
        self.release.send(()).unwrap();
    }

    /// All requests that it saw so far.
    pub fn requests(&self) -> Vec<String> {
        self.seen.borrow().clone()
    }

    /// Waits until it saw a request, such as `drain-rendered-worker-b`, and cordoned if it is one to drain.
    pub async fn until(&mut self, request: &str) {
        let what = format!("the drain controller sees {request}");
        let seen = self.seen.wait_for(|all| all.iter().any(|one| one == request));
        super::within(&what, seen).await.unwrap();
    }
}

impl Drop for DrainController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Controller {
    api: Api<Node>,
    node: String,
    behaviour: Behaviour,
    released: mpsc::UnboundedReceiver<()>,
    tell: watch::Sender<Vec<String>>,
    /// The request that [`Behaviour::Late`] holds back.
    held: Option<String>,
}

impl Controller {
    async fn run(mut self) {
        let which = ListParams::default().fields(&format!("metadata.name={}", self.node));
        loop {
            // The server may be away, or cut the watch: as the real one, it begins again.
            let Ok(changes) = changes(&self.api, &which).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let mut changes = pin!(changes);
            while let Some((node, _)) = changes.next().await {
                self.respond(&node).await;
            }
        }
    }

    async fn respond(&mut self, node: &Node) {
        let Some(desired) = annotation(node, "desiredDrain") else { return };
        // A watch reports also the controller's own writes, and states between them.
        let answered = annotation(node, "lastAppliedDrain") == Some(desired);
        let known = self.tell.borrow().last().is_some_and(|last| last == desired);
        if answered || known {
            return;
        }
        let desired = desired.to_owned();
        if desired.starts_with("drain-") {
            self.patch(json!({ "spec": { "unschedulable": true } })).await;
            self.tell.send_modify(|all| all.push(desired.clone()));
            self.drain(desired).await;
        } else {
            self.tell.send_modify(|all| all.push(desired.clone()));
            let answer = json!({ "spec": { "unschedulable": null }, "metadata": answer(&desired) });
            self.patch(answer).await;
        }
    }

    async fn drain(&mut self, desired: String) {
        match self.behaviour {
            Behaviour::Echo => self.answer(&desired).await,
            Behaviour::Delay => {
                self.let_go().await;
                self.answer(&desired).await;
            }
            Behaviour::Refuse => {}
            Behaviour::Stale => {
                self.answer("drain-rendered-of-another-time").await;
                self.let_go().await;
                self.answer(&desired).await;
            }
            Behaviour::Late => match self.held.take() {
                None => self.held = Some(desired),
                Some(old) => {
                    self.answer(&old).await;
                    self.answer(&desired).await;
                }
            },
            Behaviour::AdminUncordons => {
                // One patch, so that there is no moment at which the agent sees one without the other.
                self.patch(json!({ "spec": { "unschedulable": null }, "metadata": answer(&desired) })).await;
            }
        }
    }

    async fn let_go(&mut self) {
        // The test's end drops the sender, and with it this task.
        self.released.recv().await;
    }

    async fn answer(&self, value: &str) {
        self.patch(json!({ "metadata": answer(value) })).await;
    }

    async fn patch(&self, patch: Value) {
        self.api.patch(&self.node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

fn answer(value: &str) -> Value {
    json!({ "annotations": { key("lastAppliedDrain"): value } })
}
