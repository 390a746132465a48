//! Targets of nodes: every version of each, as a watch has it. Config and image come together, so no version has one without the other.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Bench, annotation, node_api, node_until, within};

/// A desired config with the desired image.
pub type Pair = (String, Option<String>);

/// The annotation that ends an observation.
const MARK: &str = "test/mark";

/// The pairs of one node, each once in a row, and its last mark.
#[derive(Default)]
struct History {
    pairs: Vec<Pair>,
    mark: Option<String>,
}

/// A watch of all nodes.
pub struct Pairs {
    client: Client,
    histories: Arc<watch::Sender<BTreeMap<String, History>>>,
    task: JoinHandle<()>,
}

impl Pairs {
    pub async fn start(bench: &Bench) -> Self {
        let client = bench.client("pairs").await;
        let histories = Arc::new(watch::Sender::new(BTreeMap::new()));
        let task = tokio::spawn(follow(node_api(&client), Arc::clone(&histories)));
        Self { client, histories, task }
    }

    /// The pairs that a node had from the start of the watch, in their order. All that was written to it before is among them.
    pub async fn of(&self, node: &str) -> Vec<Pair> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { MARK: mark } } }));
        node_api(&self.client).patch(node, &PatchParams::default(), &patch).await.unwrap();
        let mut histories = self.histories.subscribe();
        let is_marked = |histories: &BTreeMap<String, History>| {
            histories.get(node).is_some_and(|history| history.mark.as_ref() == Some(&mark))
        };
        within("the watch has all versions", histories.wait_for(is_marked)).await.unwrap()[node].pairs.clone()
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records all versions. A watch that ends goes on where it was, as far as the server still has what came then: one that was restarted
/// does not, and wrote nothing meanwhile.
async fn follow(api: Api<Node>, histories: Arc<watch::Sender<BTreeMap<String, History>>>) {
    let mut version: Option<String> = None;
    loop {
        let from = if let Some(version) = &version {
            version.clone()
        } else if let Ok(listed) = api.list(&ListParams::default()).await {
            listed.items.iter().for_each(|node| note(&histories, node));
            listed.metadata.resource_version.unwrap_or_default()
        } else {
            tokio::task::yield_now().await;
            continue;
        };
        let Ok(changes) = api.watch(&WatchParams::default(), &from).await else {
            tokio::task::yield_now().await;
            continue;
        };
        version = Some(from);
        let mut changes = pin!(changes);
        while let Some(change) = changes.next().await {
            match change {
                Ok(WatchEvent::Added(node) | WatchEvent::Modified(node)) => {
                    note(&histories, &node);
                    version = node.resource_version();
                }
                Ok(WatchEvent::Deleted(node)) => version = node.resource_version(),
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(_)) => version = None,
                Err(_) => break,
            }
        }
    }
}

fn note(histories: &watch::Sender<BTreeMap<String, History>>, node: &Node) {
    let pair = (
        annotation(node, "desiredConfig").unwrap_or_default().to_owned(),
        annotation(node, "desiredImage").map(str::to_owned),
    );
    histories.send_modify(|all| {
        let history = all.entry(node.name_any()).or_default();
        if history.pairs.last() != Some(&pair) {
            history.pairs.push(pair);
        }
        history.mark = node.annotations().get(MARK).cloned();
    });
}

/// Waits until a node has an image.
pub async fn until_image(client: &Client, node: &str, image: &str) {
    node_until(client, node, "the image", |node| annotation(node, "currentImage") == Some(image)).await;
}
