//! Step of a node.

use jiff::Timestamp;
use serde::Serialize;

use super::ObservedNode;
use crate::api::MachineConfigNode;
use crate::api::pool::Condition;
use crate::drain::{self, Request};
use crate::rollout::AgentState;

/// Step of a node, or its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Step {
    /// Its agent failed, and reports the cause.
    Degraded,
    /// Only a new node could be the target.
    Unreconcilable,
    /// It is drained, and a pod may not leave.
    DrainBlocked,
    /// It is not Ready, and its agent does nothing.
    NotReady,
    /// It is cordoned, and its agent does nothing.
    Cordoned,
    /// It was given the target, and its agent has not said anything of it.
    Starting,
    /// It calculates and checks the update.
    Preparing,
    /// It downloads the image.
    PullingImage,
    /// It is cordoned and its pods leave.
    Draining,
    /// It applies files and the OS image.
    Applying,
    /// It restarts services.
    PostAction,
    /// It reboots.
    Rebooting,
    /// It waits to take pods again.
    Uncordoning,
    /// It is at work; no MachineConfigNode has its step.
    Working,
}

impl Step {
    /// Returns which come first: those that need a person.
    pub(super) fn class(self) -> u8 {
        match self {
            Self::Degraded | Self::Unreconcilable => 0,
            Self::DrainBlocked => 1,
            Self::NotReady | Self::Cordoned => 3,
            Self::Starting
            | Self::Preparing
            | Self::PullingImage
            | Self::Draining
            | Self::Applying
            | Self::PostAction
            | Self::Rebooting
            | Self::Uncordoning
            | Self::Working => 2,
        }
    }

    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Degraded => "Degraded",
            Self::Unreconcilable => "Unreconcilable",
            Self::DrainBlocked => "DrainBlocked",
            Self::NotReady => "NotReady",
            Self::Cordoned => "Cordoned",
            Self::Starting => "Starting",
            Self::Preparing => "Preparing",
            Self::PullingImage => "PullingImage",
            Self::Draining => "Draining",
            Self::Applying => "Applying",
            Self::PostAction => "PostAction",
            Self::Rebooting => "Rebooting",
            Self::Uncordoning => "Uncordoning",
            Self::Working => "Working",
        }
    }
}

/// A MachineConfigNode, reduced. The caller keeps these in place of whole objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The config that its conditions are about.
    pub desired: String,
    /// The step under way, its start, and its blocker.
    pub under_way: Option<(Step, Option<Timestamp>, String)>,
    /// Since when the node has its desired config.
    pub updated: Option<Timestamp>,
    /// Since when it has failed.
    pub degraded: Option<Timestamp>,
}

/// Conditions that are `Unknown` while a step is under way, the last one of an update first.
const STEPS: [(&str, Step); 10] = [
    ("UpdateComplete", Step::Uncordoning),
    ("RebootedNode", Step::Rebooting),
    ("UpdatePostActionComplete", Step::PostAction),
    ("AppliedOSImage", Step::Applying),
    ("AppliedFiles", Step::Applying),
    ("AppliedFilesAndOS", Step::Applying),
    ("Drained", Step::Draining),
    ("ImagePulledFromRegistry", Step::PullingImage),
    ("UpdateExecuted", Step::Working),
    ("UpdatePrepared", Step::Preparing),
];

impl Progress {
    /// Reduces a MachineConfigNode.
    pub fn from_node(node: &MachineConfigNode) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let find = |kind: &str, status: &str| {
            let mut all = conditions.unwrap_or_default().iter();
            all.find(|condition| condition.type_ == kind && condition.status == status)
        };
        let since = |condition: &Condition| condition.last_transition_time.as_deref()?.parse().ok();
        let under_way = STEPS.iter().find_map(|(kind, step)| {
            let found = find(kind, "Unknown")?;
            // `-` stands for no message: an empty one is refused.
            let message = found.message.clone().filter(|message| message != "-");
            Some((*step, since(found), message.unwrap_or_default()))
        });
        Self {
            desired: node.spec.config_version.desired.clone(),
            under_way,
            updated: find("Updated", "True").and_then(since),
            degraded: find("NodeDegraded", "True").and_then(since),
        }
    }
}

/// Step of a node, with its start and its detail.
#[derive(Debug)]
pub(super) struct At {
    pub(super) step: Step,
    pub(super) since: Option<Timestamp>,
    pub(super) detail: String,
}

/// Returns the step of a node; `None` if it serves and has nothing to do.
pub(super) fn step(seen: &ObservedNode<'_>) -> Option<At> {
    let node = seen.node;
    let at = |step, since, detail: String| Some(At { step, since, detail });
    let ready = if node.ready { "" } else { "the node is not Ready" };
    if node.is_degraded() {
        let is_refused = node.state == AgentState::Unreconcilable;
        let step = if is_refused { Step::Unreconcilable } else { Step::Degraded };
        let since = seen.progress.and_then(|progress| progress.degraded);
        return at(step, since, node.reason.clone().unwrap_or_else(|| "it gives no reason".to_owned()));
    }
    let current = seen.progress.filter(|progress| Some(&progress.desired) == node.desired.config.as_ref());
    let under_way = current.and_then(|progress| progress.under_way.clone());
    match (drain::request(&seen.drain), seen.drain.blocked) {
        (Some(Request::Drain), Some(why)) => {
            return at(Step::DrainBlocked, drain::since(&seen.drain), why.to_owned());
        }
        (Some(Request::Drain), None) => {
            return at(Step::Draining, drain::since(&seen.drain), ready.to_owned());
        }
        (Some(Request::Uncordon), _) => {
            let since = under_way.filter(|(step, ..)| *step == Step::Uncordoning).and_then(|found| found.1);
            return at(Step::Uncordoning, since, ready.to_owned());
        }
        (Some(Request::Unknown) | None, _) => {}
    }
    match under_way {
        _ if !node.is_in_flight() && !node.ready => at(Step::NotReady, None, String::new()),
        _ if !node.is_in_flight() && node.unschedulable => at(Step::Cordoned, None, String::new()),
        _ if !node.is_in_flight() => None,
        // Announced as the next step while the image is staged; no drain is requested yet.
        Some((Step::Draining, since, _)) => at(Step::Preparing, since, ready.to_owned()),
        Some((step, since, detail)) => at(step, since, detail),
        None if node.state == AgentState::Working => at(Step::Working, node.desired_since, ready.to_owned()),
        None => at(Step::Starting, node.desired_since, ready.to_owned()),
    }
}
