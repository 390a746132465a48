//! Reporting: a projection of the recorded state, never a chore between the steps that do the work.
//!
//! Pure: imports `model`, `plan` and `update`. [`report`] is the only place that turns a phase into a state, a
//! reason and conditions; the control plane publishes its result unchanged.

mod causes;
mod conditions;
mod event;
mod fault_times;
mod held;
mod irreconcilable;
mod project;
mod unknown;

use serde::{Deserialize, Serialize};

use crate::model::certificates::TrustSynced;
use crate::model::{ConfigName, ImageRef, NotApplied, Target, Timestamp};
use crate::plan::differences::Difference;
use crate::update::{Fault, Record};

pub use conditions::{CONDITIONS, Condition, ConditionGroup, NOT_YET, Status, not_yet};
pub use event::{Event, Severity};
pub use fault_times::{FaultTimes, NoticedFault};
pub use held::HeldUpdate;
pub use irreconcilable::{IrreconcilableChange, irreconcilable_changes};
pub use project::report;
pub use unknown::config_difference;

/// Reason of a drift.
pub const DRIFT: &str = "ConfigDrift";

/// The cut of the reason, as MCD's: the annotation is read by people in a terminal.
pub const MAX_REASON_LENGTH: usize = 2000;

/// The node's state, as in its annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NodeState {
    /// It is as desired.
    Done,
    /// An update is under way.
    Working,
    /// There is a fault; its reason, message and next step explain it.
    Degraded,
    /// The desired config can't be reached from the current one.
    Unreconcilable,
}

/// Progress of the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    /// The step under way, from 1.
    pub step: usize,
    /// The number of steps.
    pub of: usize,
    /// Its word.
    pub op: String,
    /// Object of the work.
    pub target: String,
    /// Percentage done, if known.
    pub percent: Option<u8>,
}

/// Status of a prefetch of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PrefetchStatus {
    /// The image, as it was requested.
    pub image: String,
    /// State of the prefetch.
    pub state: PrefetchState,
    /// Percentage downloaded, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Free bytes in the file system of the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Fault of a failed prefetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// State of a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PrefetchState {
    /// It begins when the node has nothing else to do.
    Waiting,
    /// It is under way.
    Downloading,
    /// The image is on the node.
    Done,
    /// It failed and is tried again.
    Failed,
}

impl PrefetchStatus {
    /// Creates the status of an image in a state.
    pub fn new(image: impl Into<String>, state: PrefetchState) -> Self {
        Self { image: image.into(), state, percent: None, free_bytes: None, fault: None }
    }
}

/// Cause of an unreachable control plane, or of a report that can't be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkDown {
    /// A bounded word.
    pub reason: String,
    /// The cause.
    pub message: String,
    /// The next step.
    pub next: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// Cause of a desired target that was never read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// The awaited object, and the cause of its delay if known.
    Awaited(String),
    /// The access is wrong.
    Refused(Fault),
}

/// The state of the loop beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopState {
    /// The node's name.
    pub node: String,
    /// The current target.
    pub current: Option<Target>,
    /// The control plane's desired target.
    pub desired: Option<Target>,
    /// Differences from the current target.
    pub drift: Vec<Difference>,
    /// Fields of the current target that this host does not get.
    pub not_applied: Vec<NotApplied>,
    /// Fault of the desired target as it is given now: it is not valid. The last valid one stays, and no update to it begins.
    pub refused: Option<Fault>,
    /// Fault of the other inputs or of the agent's surroundings, when no update is open.
    pub fault: Option<Fault>,
    /// The target as it is named now, if its name can be read and it is refused.
    pub refused_target: Option<Target>,
    /// Open faults with the time of their begin, in the order in which they were noticed.
    pub noticed: Vec<NoticedFault>,
    /// Progress of the current step.
    pub progress: Option<Progress>,
    /// Time at which the agent looks again by itself; `None` where it waits for an event alone.
    pub next_try: Option<Timestamp>,
    /// Work for the desired target before it has a record.
    pub doing: Option<String>,
    /// Begin of that work.
    pub doing_since: Option<Timestamp>,
    /// The request that the control plane has not answered yet: the drain, or the end of it.
    pub waiting: Option<String>,
    /// Object that the control plane has to provide before an update can begin: a MachineConfig that is not there yet.
    pub awaited: Option<String>,
    /// Set if nobody knows yet whether something is desired.
    pub unread: Option<Unread>,
    /// Set if the control plane can't be reached.
    pub link_down: Option<LinkDown>,
    /// Set if the report can't be published: the control plane has an earlier one.
    pub unpublished: Option<LinkDown>,
    /// The cluster's trust that is on the host.
    pub trust: Option<TrustSynced>,
    /// Fault of a reconciler; no update waits for it.
    pub duty: Option<Fault>,
    /// Fault of the watch of the host, which is then polled; no update waits for it.
    pub unwatched: Option<Fault>,
    /// Fault of the settings file; no update waits for it.
    pub settings: Option<Fault>,
    /// Keys of the settings file that have no effect.
    pub unknown_settings: Vec<NotApplied>,
    /// Fault of the disruption policy as it is given now; an update waits for it when it begins.
    pub policy: Option<Fault>,
    /// Fault of the file of the proxies; a pull waits for it.
    pub proxies: Option<Fault>,
    /// Lines of the file of the proxies that have no effect.
    pub unknown_proxies: Vec<NotApplied>,
    /// Fault of the host after a seed that was cut short.
    pub unrestored: Option<Fault>,
    /// Fault of the watch of the source of targets, which is then polled.
    pub unwatched_source: Option<Fault>,
    /// The image that is to be on the node before it is desired.
    pub prefetch: Option<PrefetchStatus>,
    /// Storage of the current config that differs from the node's installation; `None` if unknown.
    pub irreconcilable_changes: Option<Vec<IrreconcilableChange>>,
    /// Time at which the state was reached, when no update is open.
    pub since: Timestamp,
}

impl LoopState {
    /// Returns true if something is polled because it can't be watched.
    pub fn is_unwatched(&self) -> bool {
        self.unwatched.is_some() || self.unwatched_source.is_some()
    }

    /// Returns the fields that the host does not get: of the update under way, else of the current config; and of the settings.
    fn not_applied_now(&self, record: Option<&Record>) -> Vec<NotApplied> {
        let of_config = record.map_or(&*self.not_applied, |record| record.plan.not_applied());
        [of_config, &self.unknown_settings, &self.unknown_proxies].concat()
    }

    /// Returns the fault of a node that can't find out what is desired.
    fn access_fault(&self) -> Option<&Fault> {
        match &self.unread {
            Some(Unread::Refused(fault)) => Some(fault),
            Some(Unread::Awaited(_)) | None => None,
        }
    }

    /// Returns the faults that no update under way waits for.
    fn beside(&self) -> impl Iterator<Item = &Fault> {
        let beside = [
            &self.duty,
            &self.settings,
            &self.policy,
            &self.proxies,
            &self.unrestored,
            &self.unwatched,
            &self.unwatched_source,
        ];
        beside.into_iter().flatten()
    }
}

/// The node's report to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The version of this shape.
    pub schema_version: u32,
    /// The node.
    pub node: String,
    /// Its state.
    pub state: NodeState,
    /// Why; empty when Done. At most [`MAX_REASON_LENGTH`] characters.
    pub reason: String,
    /// The committed config.
    pub current_config: Option<ConfigName>,
    /// The desired config.
    pub desired_config: Option<ConfigName>,
    /// The committed image.
    pub current_image: Option<ImageRef>,
    /// The desired image.
    pub desired_image: Option<ImageRef>,
    /// Set if the desired config has the name of the current one and other content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content_changed: bool,
    /// The phase's name, `Idle` without an update.
    pub phase: String,
    /// The update's id.
    pub update: Option<String>,
    /// Fault of the node: the worst open one.
    pub fault: Option<Fault>,
    /// All open faults, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The update that failed and is held; only `status` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldUpdate>,
    /// Progress of the current step.
    pub progress: Option<Progress>,
    /// Work for the desired target before there is an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Begin of that work, RFC 3339; only `status` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing_since: Option<String>,
    /// The awaited object: a drain, an uncordon, or an object of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Time of the next try by itself after a fault, RFC 3339; only `status` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<String>,
    /// Set if the control plane can't be reached; only `status` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_down: Option<LinkDown>,
    /// Set if the report can't be published; only `status` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpublished: Option<LinkDown>,
    /// The cluster's trust that is on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustSynced>,
    /// The worst fault that no update waits for. It is the node's fault, too, where no other one is worse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<Fault>,
    /// The image that is to be on the node before it is desired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<PrefetchStatus>,
    /// Storage of the current config that differs from the node's installation; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irreconcilable_changes: Option<Vec<IrreconcilableChange>>,
    /// Fields that this host does not get: of the config of the update under way, else of the current one; and of the settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<NotApplied>,
    /// The MachineConfigNode's conditions.
    pub conditions: Vec<Condition>,
    /// Start of the phase or state, RFC 3339.
    pub since: String,
}

/// Returns the text of a fault as the cluster gets it.
fn reason(fault: &Fault) -> String {
    fault.to_string().chars().take(MAX_REASON_LENGTH).collect()
}
