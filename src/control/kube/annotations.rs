//! The Node's annotations as the cluster expects them: their changes by a report (docs/contract.md).
//!
//! Pure and level-triggered: the difference between the Node's annotations and the desired ones, whatever was written
//! before. No key of the controllers is ever changed, but for an empty `desiredImage`, which means nothing (MCD-033).

use std::collections::BTreeMap;

use super::node::PREFIX;
use crate::model::annotations::{DESIRED_IMAGE, PREFETCH_STATUS};
use crate::model::certificates::ServerCaRotation;
use crate::report::{MAX_REASON_LENGTH, NodeReport, NodeState, PrefetchStatus};

/// The config that the node runs.
pub(super) const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// The image that the node runs; absent outside of image mode.
pub(super) const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
/// The node's state.
pub(super) const STATE: &str = "machineconfiguration.openshift.io/state";
/// Reason of the node's state.
pub(super) const REASON: &str = "machineconfiguration.openshift.io/reason";
/// `Rebooting`, or empty.
pub(super) const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
/// Cause that kept the staged deployment from being finalized in the last shutdown.
pub(super) const FINALIZE_FAILURE: &str = "machineconfiguration.openshift.io/ostree-finalize-staged-failure";
/// The topology of the control plane, as the controllers know it.
pub(super) const TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// Request to the drain controller.
pub(super) const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// The drain controller's last answer.
pub(super) const APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";

/// The version of the `ControllerConfig` whose certificates are on the host.
pub(super) const SYNCED_TRUST: &str =
    "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
/// Set if the rotation of the API server's CA was on in it.
pub(super) const OBSERVED_ROTATION: &str = "machineconfiguration.openshift.io/lastObservedServerCAAnnotation";

/// The only value of [`POST_CONFIG_ACTION`] with a meaning.
const REBOOTING: &str = "Rebooting";

/// The fault that [`FINALIZE_FAILURE`] reports.
const NOT_FINALIZED: &str = "DeploymentNotFinalized";

/// Annotations, by key.
pub(super) type Annotations = BTreeMap<String, String>;

/// Changes to write: a value, or the key's removal.
pub(super) type Changes = BTreeMap<String, Option<String>>;

/// Returns a report's changes. `Done` is one change as a whole: state, config, image and reason (ANN-004).
pub(super) fn changes(now: &Annotations, report: &NodeReport) -> Changes {
    let mut desired = Changes::new();
    let mut set = |key: &str, value: &str| {
        desired.insert(key.to_owned(), Some(value.to_owned()));
    };
    let failing = matches!(now.get(STATE).map(String::as_str), Some("Degraded" | "Unreconcilable"));
    let unknown = now.get(CURRENT_CONFIG).is_none_or(String::is_empty);
    match report.state {
        // A node that failed reports that until it is done (MCD-027).
        NodeState::Working if failing => {}
        NodeState::Working => set(STATE, "Working"),
        NodeState::Degraded | NodeState::Unreconcilable => {
            let state = if report.state == NodeState::Degraded { "Degraded" } else { "Unreconcilable" };
            set(STATE, state);
            set(REASON, &cut(&report.reason));
        }
        NodeState::Done => {
            set(STATE, "Done");
            set(REASON, "");
        }
    }
    match report.fault.as_ref().filter(|fault| fault.reason == NOT_FINALIZED) {
        Some(fault) => set(FINALIZE_FAILURE, &cut(&fault.message)),
        None if now.contains_key(FINALIZE_FAILURE) => set(FINALIZE_FAILURE, ""),
        None => {}
    }
    if report.phase == REBOOTING {
        set(POST_CONFIG_ACTION, REBOOTING);
    } else if now.get(POST_CONFIG_ACTION).is_some_and(|value| value == REBOOTING) {
        set(POST_CONFIG_ACTION, "");
    }
    if let Some(trust) = &report.trust {
        set(SYNCED_TRUST, &trust.version);
        // `true` shows MCD that the kubeconfigs have the new CA, should the node go back to it.
        match trust.rotation {
            ServerCaRotation::Off => set(OBSERVED_ROTATION, "false"),
            ServerCaRotation::Brought => set(OBSERVED_ROTATION, "true"),
            ServerCaRotation::On => {}
        }
    }
    if report.state == NodeState::Done || unknown || is_done_but_for_a_duty(report) {
        committed(&mut desired, report);
    }
    if report.state == NodeState::Done && now.get(DESIRED_IMAGE[0]).is_some_and(String::is_empty) {
        desired.insert(DESIRED_IMAGE[0].to_owned(), None);
    }
    if report.prefetch.is_some() || now.contains_key(PREFETCH_STATUS) {
        desired.insert(PREFETCH_STATUS.to_owned(), report.prefetch.as_ref().and_then(prefetch));
    }
    differing(now, desired)
}

/// Returns the status of a prefetch without its percentage, which would be a write for each percent and node.
fn prefetch(status: &PrefetchStatus) -> Option<String> {
    serde_json::to_string(&PrefetchStatus { percent: None, ..status.clone() }).ok()
}

/// Returns true if the target is reached and only a duty is not done: its fault is not the target's (W-21).
fn is_done_but_for_a_duty(report: &NodeReport) -> bool {
    report.duty.is_some()
        && report.fault == report.duty
        && report.update.is_none()
        && report.waiting.is_none()
        && report.doing.is_none()
        && report.current_config == report.desired_config
        && report.current_image == report.desired_image
}

/// Sets the current config and image, if one is committed: also on a Node that was created again (MCD-023).
fn committed(desired: &mut Changes, report: &NodeReport) {
    let Some(config) = &report.current_config else { return };
    desired.insert(CURRENT_CONFIG.to_owned(), Some(config.to_string()));
    desired.insert(CURRENT_IMAGE.to_owned(), report.current_image.as_ref().map(ToString::to_string));
}

/// Returns the changes of the provisioning's annotations to a Node that has none yet (MCD-022). Its state is `Done`
/// before anything was observed: the report that follows has the state.
pub(super) fn initial(now: &Annotations, provisioned: &Annotations) -> Changes {
    let ours = provisioned.iter().filter(|(key, _)| key.starts_with(PREFIX) && *key != STATE);
    differing(now, ours.map(|(key, value)| (key.clone(), Some(value.clone()))).collect())
}

/// Leaves out annotations that are as they should be (MCD-035).
fn differing(now: &Annotations, mut desired: Changes) -> Changes {
    desired.retain(|key, value| now.get(key) != value.as_ref());
    desired
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_REASON_LENGTH).collect()
}

#[cfg(test)]
mod tests;
