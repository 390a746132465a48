//! The one watch: the own Node, its metadata only.
//!
//! A task of its own lists once, then watches, and puts what it sees into one value; while nothing happens nothing is
//! sent but the watch's renewal. Whatever ends the watch before its time ends in another list, after a wait that
//! differs by node.

use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use super::api::{Call, Link};
use super::error::KubeError;
use super::node::{NodeEvent, NodeView};
use super::pace::Pace;
use crate::model::message;

/// How long one watch lasts: this, and up to as much again by node. Long, because a renewal is the only request of an
/// idle node, and a connection that is lost is noticed by its pings.
const LASTS: u64 = 1800;

/// A watch that ends sooner was not ended by its time.
const TOO_SOON: Duration = Duration::from_secs(5);

/// What is known of the Node and of the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sight {
    /// The first try is over, however it ended.
    pub(super) tried: bool,
    /// The API server answers.
    pub(super) up: bool,
    /// Why it does not.
    pub(super) down: Option<KubeError>,
    /// The Node as last seen; `None` when there is none, or none was seen yet.
    pub(super) node: Option<NodeView>,
}

/// The task and its value. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Watcher {
    sender: Sender<Sight>,
    task: AbortHandle,
}

impl Watcher {
    /// Begins. Within a tokio runtime.
    pub(super) fn start(link: Link, node: &str) -> (Self, Receiver<Sight>) {
        let (sender, receiver) = channel(Sight::default());
        let following =
            Following { link, node: node.to_owned(), sender: sender.clone(), pace: Pace::new(node) };
        let task = tokio::spawn(following.run()).abort_handle();
        (Self { sender, task }, receiver)
    }

    /// Takes the answer to an own write: the next difference is taken from it.
    pub(super) fn learn(&self, node: NodeView) {
        self.sender.send_if_modified(|sight| newer(sight, node));
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes a Node as seen unless it is an older version of what is known.
fn newer(sight: &mut Sight, node: NodeView) -> bool {
    let old = sight.node.as_ref().is_some_and(|seen| seen.uid == node.uid && node.is_older(seen));
    if old || sight.node.as_ref() == Some(&node) {
        return false;
    }
    sight.node = Some(node);
    true
}

/// How a watch ended.
enum End {
    /// In its time: the next one begins where it ended.
    InTime(String),
    /// Its beginning was too old.
    Expired,
    /// It broke.
    Broken(KubeError),
}

struct Following {
    link: Link,
    node: String,
    sender: Sender<Sight>,
    pace: Pace,
}

impl Following {
    async fn run(mut self) {
        let mut from = None;
        loop {
            let version = match from.take() {
                Some(version) => Ok(version),
                None => self.list().await,
            };
            let end = match version {
                Ok(version) => self.follow(version).await,
                Err(error) => End::Broken(error),
            };
            match end {
                End::InTime(version) => from = Some(version),
                End::Expired if !self.pace.is_failing() => drop(self.pace.next()),
                End::Expired => tokio::time::sleep(self.pace.next()).await,
                End::Broken(error) => {
                    self.lost(error);
                    tokio::time::sleep(self.pace.next()).await;
                }
            }
        }
    }

    fn path(&self, query: &str) -> String {
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{}{query}", self.node)
    }

    fn object(&self) -> String {
        format!("Node {}", self.node)
    }

    /// Reads the Node as it is now; returns the version to watch from.
    async fn list(&mut self) -> Result<String, KubeError> {
        let bytes = self.link.send(&Call::get(self.path("")).metadata_list()).await?;
        let (node, version) = NodeView::parse_list(&bytes, &self.object())?;
        // Taken as it is, also when its version is lower: the database may be another one.
        self.found(|sight| sight.node = node);
        Ok(version)
    }

    /// Marks the API server as there.
    fn found(&self, change: impl FnOnce(&mut Sight)) {
        if !self.sender.borrow().up {
            info!(MESSAGE_ID = message::PHASE, "connected to the API server as Node {}", self.node);
        }
        self.link.traffic().answers(true);
        self.sender.send_modify(|sight| {
            (sight.tried, sight.up, sight.down) = (true, true, None);
            change(sight);
        });
    }

    /// Marks the API server as away; what was last seen stays.
    fn lost(&self, error: KubeError) {
        let told = self.sender.borrow().down.as_ref().is_some_and(|down| down.reason() == error.reason());
        if !told {
            warn!(MESSAGE_ID = message::FAULT, MCA_FAULT = error.reason(), "{error}. Next: {}", error.next());
        }
        self.link.traffic().answers(false);
        self.sender.send_modify(|sight| (sight.tried, sight.up, sight.down) = (true, false, Some(error)));
    }

    /// Watches from a version on until the watch ends.
    async fn follow(&mut self, mut version: String) -> End {
        let seconds = LASTS + self.pace.draw(LASTS);
        let query = format!(
            "&watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        );
        let began = Instant::now();
        let mut lines = match self.link.follow(&Call::get(self.path(&query)).metadata()).await {
            Ok(lines) => lines,
            Err(KubeError::Refused { status: 410, .. }) => return End::Expired,
            Err(error) => return End::Broken(error),
        };
        if !self.sender.borrow().up {
            self.found(|_| {});
        }
        loop {
            let event = match lines.next().await {
                Ok(Some(line)) => NodeEvent::parse(&line, &self.object()),
                Ok(None) if began.elapsed() < TOO_SOON => return End::Broken(self.ended()),
                Ok(None) => return End::InTime(version),
                Err(error) => Err(error),
            };
            // What begins is not yet what works: an event, or staying up, is.
            if began.elapsed() > TOO_SOON {
                self.pace.reset();
            }
            match event {
                Ok(NodeEvent::Now(node)) => {
                    version.clone_from(&node.resource_version);
                    self.sender.send_if_modified(|sight| newer(sight, node));
                }
                Ok(NodeEvent::Gone(at)) => {
                    version = at;
                    self.sender.send_modify(|sight| sight.node = None);
                }
                Ok(NodeEvent::Bookmark(at)) => version = at,
                Ok(NodeEvent::Expired) => return End::Expired,
                Ok(NodeEvent::Failed(error)) | Err(error) => return End::Broken(error),
            }
        }
    }

    fn ended(&self) -> KubeError {
        let cause = "it ends each watch at once".to_owned();
        KubeError::Away { server: self.object(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(uid: &str, version: &str) -> NodeView {
        let text = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
        NodeView::parse(text.as_bytes(), "Node a").unwrap()
    }

    /// An event that was on its way while an own write was answered does not undo what is known.
    #[test]
    fn an_older_version_is_not_taken() {
        let mut sight = Sight { node: Some(view("u", "11")), ..Sight::default() };
        assert!(!newer(&mut sight, view("u", "10")));
        assert!(!newer(&mut sight, view("u", "11")));
        assert!(newer(&mut sight, view("u", "12")));
        assert!(newer(&mut sight, view("other", "3")));
        assert_eq!(sight.node, Some(view("other", "3")));
    }
}
