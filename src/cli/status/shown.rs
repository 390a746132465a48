//! Contents of `status`, as its JSON has it.

use serde::Serialize;

use super::agent::AgentStatus;
use super::staged_manually::StagedManually;
use crate::cli::last_report::Follows;
use crate::model::observation::LocalPackages;
use crate::model::{ImageRef, NotApplied, Target};
use crate::plan::Warning;
use crate::plan::differences::Difference;
use crate::report::{HeldUpdate, LinkDown, NodeState, PrefetchStatus, Progress};
use crate::stateroot::OpenWork;
use crate::update::Fault;

#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) schema_version: u32,
    pub(super) node: String,
    pub(super) state: NodeState,
    pub(super) phase: String,
    pub(super) current: Option<Target>,
    pub(super) desired: Option<Target>,
    /// Set if both have one name and their contents differ.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) content_changed: bool,
    pub(super) booted: Option<BootedOs>,
    pub(super) staged: Option<ImageRef>,
    /// Deployment staged by another program than this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) staged_by_hand: Option<StagedManually>,
    /// The deployment that boots next when it is neither: after a manual rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_boot: Option<NextBoot>,
    /// The worst open fault.
    pub(super) fault: Option<Fault>,
    /// All open faults, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) faults: Vec<Fault>,
    /// The update that failed and is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<HeldUpdate>,
    /// Start of the state, or of the fault. `None` if unknown: on a host that was never managed, and of a fault that no agent noticed.
    pub(super) since: Option<String>,
    pub(super) progress: Option<Progress>,
    /// Work for the desired target before there is an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) doing: Option<String>,
    /// Start of that work, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) doing_since: Option<String>,
    /// The awaited object: the drain, and the cause of its delay.
    pub(super) waiting: Option<String>,
    /// Time of the agent's next automatic retry, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_try: Option<String>,
    /// The image that is to be on the node before it is desired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prefetch: Option<PrefetchStatus>,
    /// Set if the control plane can't be reached, by the agent's last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) link_down: Option<LinkDown>,
    /// Set if the report can't be published: the control plane has an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unpublished: Option<LinkDown>,
    /// State of the agent.
    pub(super) agent: AgentStatus,
    /// Source of its targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) follows: Option<Follows>,
    /// The next worst fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duty: Option<Fault>,
    /// Work on a stateroot that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stateroot_work: Option<OpenWork>,
    /// Fields of the config that this host does not get.
    pub(super) not_applied: Vec<NotApplied>,
    /// Paths of the config that can't be restored when it leaves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_restorable: Vec<Warning>,
    /// Entries that were in the way of the keys of accounts, and their paths now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) moved_aside: Vec<MovedAside>,
    /// Files that this user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unread: Vec<String>,
    /// Differences for people; programs call `verify`.
    #[serde(skip)]
    pub(super) drift: Vec<Difference>,
    /// Layers of the config that the image has to bring, for people.
    #[serde(skip)]
    pub(super) layers: Option<String>,
}

/// An entry that was in the way of an account's keys.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MovedAside {
    /// The path that it was at.
    pub(super) path: String,
    /// The path that it is at now.
    pub(super) aside: String,
}

#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct BootedOs {
    pub(super) image: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) backend: &'static str,
    /// Reason for the selection of this backend.
    pub(super) backend_because: String,
    pub(super) deployment: String,
    /// Manual changes on top of the image, of no config.
    #[serde(skip_serializing_if = "LocalPackages::is_empty")]
    pub(super) changed_by_hand: LocalPackages,
}

#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NextBoot {
    pub(super) image: Option<ImageRef>,
    pub(super) deployment: String,
}
