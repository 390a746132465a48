//! Publishing of the report: its changes of the Node's annotations, in one patch.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use super::error::KubeError;
use super::node::{NodeView, nodes};
use super::{Cluster, annotations, bootstrap};
use crate::control::{ControlError, ControlPlane as _};
use crate::model::message;
use crate::model::text::chain;
use crate::report::{Event, NodeReport, NodeState};

use annotations::Changes;

impl Cluster {
    /// Publishes a report, or fails at once if the API server is away. A failed report is due again.
    pub(super) async fn publish_report(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        if let Some(away) = self.away() {
            // Its return is a change, and the newest report goes out then.
            return Err(away.into());
        }
        let Some(node) = self.present() else { return Ok(()) };
        match self.publish_to(&node, report).await {
            Ok(()) => {
                self.backoff.reset();
                Ok(())
            }
            Err(error) => {
                self.due = Some(Instant::now() + self.backoff.next_wait());
                Err(error)
            }
        }
    }

    async fn publish_to(&mut self, node: &NodeView, report: &NodeReport) -> Result<(), ControlError> {
        let unread = match self.provisioned(node, report) {
            Ok(Some(changes)) => return self.initialise(node, &changes).await,
            Ok(None) => None,
            // What the provisioning left does not hold back what this node says of itself.
            Err(error) => Some(error),
        };
        let changes = annotations::changes(&node.annotations, report);
        let node = if changes.is_empty() { node.clone() } else { self.patch(node, &changes).await? };
        if report.state == NodeState::Done {
            self.done(report, changes.contains_key(annotations::STATE)).await?;
        }
        self.outbox.report(node, report.clone()).await;
        unread.map_or(Ok(()), Err)
    }

    /// Returns the annotations that a new Node lacks (MCD-022, MCD-025): those that its provisioning left. Where they can't be
    /// read, they are made of the config that the host has.
    fn provisioned(&self, node: &NodeView, report: &NodeReport) -> Result<Option<Changes>, ControlError> {
        let named =
            node.annotations.get(annotations::CURRENT_CONFIG).is_some_and(|config| !config.is_empty());
        if named || !self.bootstrapping {
            return Ok(None);
        }
        let provisioned = match (bootstrap::read(&self.root), &report.current_config) {
            (Ok(provisioned), _) => provisioned.unwrap_or_default(),
            (Err(error), None) => return Err(error),
            (Err(error), Some(config)) => {
                warn!(
                    MESSAGE_ID = message::PROVISIONED,
                    "Node {} gets annotations made from config {config} of this host: {}. The agent continues. Next: find out what \
                     damaged the file",
                    self.node,
                    chain(&error)
                );
                let mut made = bootstrap::of_host(config, report.current_image.as_ref());
                // What the controllers want by now stays.
                made.retain(|key, _| node.annotations.get(key).is_none_or(String::is_empty));
                made
            }
        };
        let changes = annotations::initial(&node.annotations, &provisioned);
        // A file that does not name the config does not help.
        Ok(changes.contains_key(annotations::CURRENT_CONFIG).then_some(changes))
    }

    /// Gives a new Node its first annotations. They are read first: the report of that pass follows.
    async fn initialise(&mut self, node: &NodeView, changes: &Changes) -> Result<(), ControlError> {
        info!(
            MESSAGE_ID = message::PROVISIONED,
            "Node {} gets the annotations of its provisioning", self.node
        );
        let known = self.known.clone();
        self.patch(node, changes).await?;
        // They are news to the loop, unlike its own writes.
        self.known = known;
        Ok(())
    }

    /// Emits once that the node is done; the provisioning's annotations have served then.
    async fn done(&mut self, report: &NodeReport, now: bool) -> Result<(), ControlError> {
        let Some(config) = report.current_config.clone() else { return Ok(()) };
        if now {
            self.emit(&Event::NodeDone { node: self.node.clone(), config }).await;
        }
        if self.bootstrapping {
            bootstrap::retire(&self.root)?;
            self.bootstrapping = false;
        }
        Ok(())
    }

    /// Changes annotations of this very Node: one that was created again meanwhile refuses the uid. The next difference
    /// is taken from the answer.
    pub(super) async fn patch(
        &mut self,
        node: &NodeView,
        changes: &Changes,
    ) -> Result<NodeView, ControlError> {
        let patch = json!({ "metadata": { "uid": node.uid, "annotations": changes } });
        let (api, params) = (nodes(self.writer.client()), PatchParams::default());
        let written = api.patch_metadata(&self.node, &params, &Patch::Merge(&patch)).await;
        let written = written.map_err(KubeError::about(&format!("Node {}", self.node)))?;
        let written = NodeView::from(written.metadata);
        // Own writes are no news to the loop; writes of others meanwhile stay news.
        if let Some((_, _, known)) = &mut self.known.node {
            for key in changes.keys() {
                match written.annotations.get(key) {
                    Some(value) => drop(known.insert(key.clone(), value.clone())),
                    None => drop(known.remove(key)),
                }
            }
        }
        self.watcher.learn(written.clone());
        Ok(written)
    }
}
