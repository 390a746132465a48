//! The watch of the own Node, its metadata only: a task of its own puts its state into one value.

use std::time::Duration;

use kube::core::{ObjectList, WatchEvent};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::client::ApiClient;
use super::error::KubeError;
use super::node::{NodeEvent, NodeMetadata, NodeView};
use super::reflector::{Reflector, Requests, WatchHandler, WatchStep};
use crate::host::clock::Clock;
use crate::model::backoff::Backoff;
use crate::model::{Timestamp, message};

/// Known state of the Node and of the link to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NodeSnapshot {
    /// The first try is over, however it ended.
    pub(super) tried: bool,
    /// The API server answers.
    pub(super) up: bool,
    /// Cause of the lost link.
    pub(super) down: Option<KubeError>,
    /// Since when it does not.
    pub(super) since: Timestamp,
    /// The Node as last seen; `None` when there is none, or none was seen yet.
    pub(super) node: Option<NodeView>,
}

/// The task and its value. Dropped, it ends.
#[derive(Debug)]
pub(super) struct NodeWatcher {
    sender: Sender<NodeSnapshot>,
    task: AbortHandle,
}

impl NodeWatcher {
    /// Begins. Within a tokio runtime.
    pub(super) fn start(api: ApiClient, node: &str) -> (Self, Receiver<NodeSnapshot>) {
        let (sender, receiver) = channel(NodeSnapshot::default());
        let handler = NodeHandler {
            api: api.clone(),
            node: node.to_owned(),
            object: format!("Node {node}"),
            sender: sender.clone(),
            clock: Clock::system(),
        };
        let task = tokio::spawn(Reflector { api, handler, backoff: Backoff::for_requests(node) }.run())
            .abort_handle();
        (Self { sender, task }, receiver)
    }

    /// Takes the answer to an own write: the next difference is taken from it.
    pub(super) fn learn(&self, node: NodeView) {
        self.sender.send_if_modified(|snapshot| newer(snapshot, node));
    }
}

impl Drop for NodeWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes a Node as seen unless it is an older version of the known one.
fn newer(snapshot: &mut NodeSnapshot, node: NodeView) -> bool {
    let old =
        snapshot.node.as_ref().is_some_and(|observed| observed.uid == node.uid && node.is_older(observed));
    if old || snapshot.node.as_ref() == Some(&node) {
        return false;
    }
    snapshot.node = Some(node);
    true
}

/// Sees the Node.
struct NodeHandler {
    api: ApiClient,
    node: String,
    object: String,
    sender: Sender<NodeSnapshot>,
    clock: Clock,
}

impl NodeHandler {
    /// Marks the API server as there.
    fn found(&self, change: impl FnOnce(&mut NodeSnapshot)) {
        if !self.sender.borrow().up {
            info!(
                MESSAGE_ID = message::API_SERVER_CONNECTED,
                "Connected to the API server as {}", self.object
            );
        }
        self.api.traffic().answers(true);
        self.sender.send_modify(|snapshot| {
            (snapshot.tried, snapshot.up, snapshot.down) = (true, true, None);
            change(snapshot);
        });
    }

    /// Marks the API server as away; the last snapshot stays.
    fn away(&self, error: KubeError) {
        let is_known =
            self.sender.borrow().down.as_ref().is_some_and(|down| down.identity() == error.identity());
        if !is_known {
            warn!(
                MESSAGE_ID = message::API_SERVER_LOST,
                MCA_FAULT = error.reason(),
                "{error}. Next: {}",
                error.next()
            );
        }
        self.api.traffic().answers(false);
        let now = self.clock.now();
        self.sender.send_modify(|snapshot| {
            if snapshot.down.is_none() {
                snapshot.since = now;
            }
            (snapshot.tried, snapshot.up, snapshot.down) = (true, false, Some(error));
        });
    }
}

impl WatchHandler for NodeHandler {
    type Object = NodeMetadata;

    fn requests(&self) -> Requests {
        Requests { path: "/api/v1/nodes", name: self.node.clone(), metadata: true }
    }

    fn object(&self) -> &str {
        &self.object
    }

    fn on_list(&mut self, list: ObjectList<NodeMetadata>) -> String {
        let node = list.items.into_iter().next().map(|node| node.metadata.into());
        // Taken as it is, also when its version is lower: the database may be another one.
        self.found(|snapshot| snapshot.node = node);
        list.metadata.resource_version.unwrap_or_default()
    }

    fn on_event(&mut self, event: WatchEvent<NodeMetadata>) -> WatchStep {
        match NodeEvent::new(event, &self.object) {
            NodeEvent::Now(node) => {
                let version = node.resource_version.clone();
                self.sender.send_if_modified(|snapshot| newer(snapshot, node));
                WatchStep::At(version)
            }
            NodeEvent::Gone(at) => {
                self.sender.send_modify(|snapshot| snapshot.node = None);
                WatchStep::At(at)
            }
            NodeEvent::Bookmark(at) => WatchStep::At(at),
            NodeEvent::Expired => WatchStep::Expired,
            NodeEvent::Failed(error) => WatchStep::Failed(error),
        }
    }

    fn on_start(&mut self) {
        if !self.sender.borrow().up {
            self.found(|_| {});
        }
    }

    async fn on_error(&mut self, error: KubeError, wait: Duration) {
        self.away(error);
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(uid: &str, version: &str) -> NodeView {
        let text = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
        NodeView::parse(text.as_bytes(), "Node a").unwrap()
    }

    /// An event that was on its way while an own write was answered does not undo the known version.
    #[test]
    fn older_version_is_not_taken() {
        let mut snapshot = NodeSnapshot { node: Some(view("u", "11")), ..NodeSnapshot::default() };
        assert!(!newer(&mut snapshot, view("u", "10")));
        assert!(!newer(&mut snapshot, view("u", "11")));
        assert!(newer(&mut snapshot, view("u", "12")));
        assert!(newer(&mut snapshot, view("other", "3")));
        assert_eq!(snapshot.node, Some(view("other", "3")));
    }
}
