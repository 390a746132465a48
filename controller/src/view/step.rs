//! Steps of nodes, and the progress that a MachineConfigNode reports.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::MachineConfigNode;
use crate::api::pool::Condition;

/// Step of a node, or its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Step {
    /// Its agent failed, and reports the cause.
    Degraded,
    /// Only a new node can reach the target.
    Unreconcilable,
    /// It is drained, and a pod may not leave.
    DrainBlocked,
    /// It is not Ready, and its agent does nothing.
    NotReady,
    /// It is cordoned, and its agent does nothing.
    Cordoned,
    /// It was given the target, and its agent has not reported on it yet.
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
    /// It waits for its uncordon.
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
