//! The conditions `Cordoned` and `Uncordoned` of a node's `MachineConfigNode`, which are the drain controller's. The agent
//! writes all others.
//!
//! Both are applied together, so that neither is given up. They are written before the agent gets its answer: a process
//! that is killed in between is replaced by one that writes them again.

use jiff::{Timestamp, Unit};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{debug, info, warn};

use super::causes::Causes;
use super::client::{RequestError, send};
use super::conflict::{Expected, or_judged};
use super::write::{Write, write};
use crate::api::MachineConfigNode;
use crate::api::pool::Condition;
use machine_config_core::report::NOT_YET;

/// The field manager; the agent's is another one.
const MANAGER: &str = "machine-config-controller-drain";

/// Progress of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// The node takes no pods.
    Cordoned,
    /// The node takes pods again, after an update.
    Uncordoned,
}

/// Reports the progress of a drain, where the cluster has the node's object; returns false if that failed. No drain waits
/// for it. A cause that comes back is logged once.
pub(super) async fn report(
    client: &Client,
    causes: &Causes,
    node: &str,
    config: &str,
    reached: Reached,
) -> bool {
    match apply(client, node, config, reached).await {
        Ok(()) => {
            if causes.is_over(node) {
                info!("node {node}: {reached:?} is reported in its MachineConfigNode");
            }
            true
        }
        Err(error) if error.is_conflict() && error.code() == 404 => {
            debug!("node {node} has no MachineConfigNode");
            true
        }
        Err(error) => {
            if causes.is_news(node, &error.to_string()) {
                warn!("node {node}: {reached:?} can't be reported in its MachineConfigNode: {error}");
            }
            false
        }
    }
}

async fn apply(client: &Client, node: &str, config: &str, reached: Reached) -> Result<(), RequestError> {
    let resource = ApiResource::erase::<MachineConfigNode>(&());
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let stored = send(api.get(node)).await?;
    let expected = Expected::of(&stored.metadata);
    let listed = stored.data.pointer("/status/conditions").cloned().unwrap_or_default();
    // Unreadable conditions are replaced.
    let stored: Vec<Condition> = serde_json::from_value(listed).unwrap_or_default();
    let now = Timestamp::now().round(Unit::Second).unwrap_or_else(|_| Timestamp::now()).to_string();
    let Some(conditions) = conditions(&stored, config, reached, &now) else { return Ok(()) };
    let body = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": node },
        "status": { "conditions": conditions },
    });
    let how = PatchParams::apply(MANAGER).force();
    let written = write(Write::ConfigNodeStatus, api.patch_status(node, &how, &Patch::Apply(&body))).await;
    or_judged(Write::ConfigNodeStatus, written, &expected, api.get(node)).await.map(drop)
}

/// Returns both conditions, or `None` if nothing is to be written. A node that was not cordoned for an update is not uncordoned
/// after one.
fn conditions(stored: &[Condition], config: &str, reached: Reached, now: &str) -> Option<[Condition; 2]> {
    let find = |kind: &str| stored.iter().find(|condition| condition.type_ == kind);
    let made = |kind: &str, status: &str, reason: &str, message: String| {
        let since = find(kind).filter(|before| before.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            last_transition_time: since
                .and_then(|before| before.last_transition_time.clone())
                .or_else(|| Some(now.to_owned())),
            reason: Some(reason.to_owned()),
            message: Some(message),
        }
    };
    let cordoned = || {
        let message = format!("update to {config}: cordoned");
        made("Cordoned", "True", "UpdateExecutedCordoned", message)
    };
    let both = match reached {
        Reached::Cordoned => {
            let message = "This node has not yet entered the Uncordoned phase".to_owned();
            [cordoned(), made("Uncordoned", "False", NOT_YET, message)]
        }
        Reached::Uncordoned => {
            let before = find("Cordoned").filter(|condition| condition.status == "True")?.clone();
            let message = format!("update to {config}: uncordoned");
            [before, made("Uncordoned", "True", "UpdateCompleteUncordoned", message)]
        }
    };
    both.iter().any(|condition| find(&condition.type_) != Some(condition)).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(both: &[Condition; 2]) -> [(&str, &str, Option<&str>); 2] {
        both.each_ref().map(|one| (&*one.type_, &*one.status, one.last_transition_time.as_deref()))
    }

    #[test]
    fn conditions_follow_drain_and_are_written_once() {
        // An agent that starts requests the end of a drain that never was.
        assert_eq!(conditions(&[], "b", Reached::Uncordoned, "1"), None);
        let first = conditions(&[], "b", Reached::Cordoned, "1").unwrap();
        assert_eq!(summary(&first), [("Cordoned", "True", Some("1")), ("Uncordoned", "False", Some("1"))]);
        assert_eq!(conditions(&first, "b", Reached::Cordoned, "2"), None);
        let second = conditions(&first, "b", Reached::Uncordoned, "3").unwrap();
        assert_eq!(summary(&second), [("Cordoned", "True", Some("1")), ("Uncordoned", "True", Some("3"))]);
        assert_eq!(conditions(&second, "b", Reached::Uncordoned, "4"), None);
        // The next update begins before its agent has taken back what the last one reached.
        let third = conditions(&second, "c", Reached::Cordoned, "5").unwrap();
        assert_eq!(summary(&third), [("Cordoned", "True", Some("1")), ("Uncordoned", "False", Some("5"))]);
    }
}
