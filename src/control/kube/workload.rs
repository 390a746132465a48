//! The workload leaves and comes back: requested of the drain controller, or done by the agent itself.
//!
//! An API server that is away is an answer to wait for, like any other: its return is a change.

use tokio::time::Instant;
use tracing::warn;

use super::drain_protocol::{self, DrainAction};
use super::error::KubeError;
use super::node::{NodeView, nodes};
use super::{Cluster, DrainBy, annotations};
use crate::control::{ControlError, DrainStatus, UncordonStatus};
use crate::model::annotations::DRAIN_BLOCKED;
use crate::model::{ConfigName, Target, message};
use crate::report::Event;

/// Drains that may end with a schedulable node before the node reports it: one is an administrator's hand, and this
/// many in a row are a controller that does not cordon.
const MAX_DRAIN_RETRIES: u32 = 3;

impl Cluster {
    /// Sees to it that the workload leaves.
    pub(super) async fn drain_node(&mut self, target: &Target) -> Result<DrainStatus, ControlError> {
        if let Some(why) = self.nobody() {
            return Ok(DrainStatus::Waiting { why });
        }
        match self.drain_by {
            DrainBy::Agent => {
                let drained = self.evictor.drain(&target.config).await?;
                if let (Some(pods), Some(node)) = (self.evictor.take_late(), self.present()) {
                    self.outbox.event(node, Event::PodsNotEvicted { pods }).await;
                }
                Ok(drained)
            }
            DrainBy::Controller => self.request_drain(&target.config).await,
        }
    }

    /// Sees to it that the node takes workload again.
    pub(super) async fn uncordon_node(&mut self, committed: &Target) -> Result<UncordonStatus, ControlError> {
        let Some(node) = self.present() else { return Ok(UncordonStatus::Yes) };
        match self.drain_by {
            DrainBy::Controller => self.request_uncordon(&node, &committed.config).await,
            DrainBy::Agent => match self.nobody() {
                Some(why) => Ok(UncordonStatus::Waiting { why }),
                None => Ok(self.evictor.uncordon().await?),
            },
        }
    }

    /// Returns why no drain can be requested; `None` if one can.
    fn nobody(&self) -> Option<String> {
        if let Some(away) = self.away() {
            return Some(format!("the API server: {away}"));
        }
        self.present().is_none().then(|| format!("Node {} to be in the cluster", self.node))
    }

    async fn request_drain(&mut self, config: &ConfigName) -> Result<DrainStatus, ControlError> {
        let Some(node) = self.present() else { return Ok(DrainStatus::NotRequested) };
        let request = match drain_protocol::drain(&node.annotations, config) {
            DrainAction::Request(request) => request,
            DrainAction::Answered | DrainAction::NotRequested => {
                if self.is_cordoned().await? {
                    self.drain_retries.forget();
                    return Ok(DrainStatus::Yes);
                }
                match self.drain_retries(config)? {
                    Some(why) => return Ok(DrainStatus::Waiting { why }),
                    None => drain_protocol::again(config),
                }
            }
            DrainAction::Wait => return Ok(DrainStatus::Waiting { why: answer_to(&node) }),
        };
        let node = self.write_request(&node, request).await?;
        Ok(DrainStatus::Waiting { why: answer_to(&node) })
    }

    /// Returns why the next drain is not requested yet; an error once this happened too often.
    fn drain_retries(&mut self, config: &ConfigName) -> Result<Option<String>, ControlError> {
        let now = Instant::now();
        let begun = self.drain_retries.due.is_none();
        let due = self.drain_retries.count(config, now);
        let drains = self.drain_retries.drains;
        if begun {
            let after = due.duration_since(now).as_secs();
            warn!(
                MESSAGE_ID = message::WAITING,
                MCA_CONFIG = %config,
                "Node {} was drained, but it is schedulable ({drains} times so far); requesting another drain in {after} s",
                self.node
            );
        }
        if due <= now {
            self.drain_retries.due = None;
            return Ok(None);
        }
        self.due = Some(due);
        if drains > MAX_DRAIN_RETRIES {
            let (node, config) = (self.node.clone(), config.clone());
            return Err(ControlError::NotCordoned { node, config });
        }
        Ok(Some(format!("Node {} to be cordoned: its drain was answered, but it is schedulable", self.node)))
    }

    async fn request_uncordon(
        &mut self,
        node: &NodeView,
        config: &ConfigName,
    ) -> Result<UncordonStatus, ControlError> {
        match drain_protocol::uncordon(&node.annotations, config) {
            DrainAction::Answered if std::mem::take(&mut self.uncordon_requested) => {
                Ok(UncordonStatus::Again)
            }
            DrainAction::Answered | DrainAction::NotRequested => Ok(UncordonStatus::Yes),
            DrainAction::Wait => {
                self.uncordon_requested = true;
                Ok(UncordonStatus::Waiting { why: answer_to(node) })
            }
            DrainAction::Request(request) => {
                if let Some(why) = self.nobody() {
                    return Ok(UncordonStatus::Waiting { why });
                }
                let node = self.write_request(node, request).await?;
                self.uncordon_requested = true;
                Ok(UncordonStatus::Waiting { why: answer_to(&node) })
            }
        }
    }

    async fn write_request(&mut self, node: &NodeView, request: String) -> Result<NodeView, ControlError> {
        let changes = [(annotations::DESIRED_DRAIN.to_owned(), Some(request))].into();
        self.patch(node, &changes).await
    }

    /// Looks at the live Node: the watch has its metadata only.
    async fn is_cordoned(&self) -> Result<bool, ControlError> {
        let node = nodes(self.api.client()).get(&self.node).await;
        let node = node.map_err(KubeError::about(&format!("Node {}", self.node)))?;
        Ok(node.spec.unschedulable)
    }
}

/// Returns the answer that the node waits for, and the pod that keeps the drain controller from it.
fn answer_to(node: &NodeView) -> String {
    let get = |key: &str| node.annotations.get(key).map(String::as_str).unwrap_or_default();
    let request = get(annotations::DESIRED_DRAIN);
    let answer =
        format!("the machine-config-controller's answer to desiredDrain={request} on Node {}", node.name);
    let blocked = Some(get(DRAIN_BLOCKED)).filter(|why| !why.is_empty() && request.starts_with("drain-"));
    blocked.map_or_else(|| answer.clone(), |why| format!("{answer}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status, the MachineConfigNode and the event of a late drain name the pod, as the Node does.
    #[test]
    fn pod_that_keeps_drain_is_named() {
        let view = |request: &str, blocked: Option<&str>| {
            let all = [(annotations::DESIRED_DRAIN, Some(request)), (DRAIN_BLOCKED, blocked)];
            let pairs = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            NodeView { name: "n".to_owned(), annotations: pairs.collect(), ..NodeView::default() }
        };
        let answer = |request: &str| {
            format!("the machine-config-controller's answer to desiredDrain={request} on Node n")
        };
        let why =
            "pod shop/a should have ended at 12:00, and is held by finalizers: x/y; check their controllers";
        assert_eq!(answer_to(&view("drain-b", Some(why))), format!("{}: {why}", answer("drain-b")));
        assert_eq!(answer_to(&view("drain-b", None)), answer("drain-b"));
        assert_eq!(answer_to(&view("drain-b", Some(""))), answer("drain-b"));
        assert_eq!(answer_to(&view("uncordon-b", Some(why))), answer("uncordon-b"), "the drain is over");
    }
}
