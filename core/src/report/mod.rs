//! Reporting: a projection of what is written down, never a chore between the steps that do the work.
//!
//! Pure: imports `model`, `plan` and `update`. [`report`] is the only place that turns a phase into a state, a
//! reason and conditions; the control plane publishes its result, whatever it is.

mod conditions;
mod event;
mod fault_times;
mod irreconcilable;
mod project;
mod unknown;

use serde::{Deserialize, Serialize};

use crate::model::certificates::TrustSynced;
use crate::model::{ConfigName, ImageRef, Target, Timestamp};
use crate::plan::differences::Difference;
use crate::update::Fault;

pub use conditions::{Condition, NOT_YET, Status, not_yet};
pub use event::{Event, Severity};
pub use fault_times::FaultTimes;
pub use irreconcilable::{IrreconcilableChange, irreconcilable_changes};
pub use project::report;
pub use unknown::config_difference;

/// The cut of the reason, as MCD's: the annotation is read by people in a terminal.
pub const MAX_REASON_LENGTH: usize = 2000;

/// The node's state, as in its annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeState {
    /// It is what it should be.
    Done,
    /// An update is under way.
    Working,
    /// Something is wrong; the reason says what and what to do.
    Degraded,
    /// The desired config can't be reached from the current one.
    Unreconcilable,
}

/// How far the work is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The step under way, from 1.
    pub step: usize,
    /// The number of steps.
    pub of: usize,
    /// Its word.
    pub op: String,
    /// What it is about.
    pub target: String,
    /// How much of it is done, when it can say.
    pub percent: Option<u8>,
}

/// How a prefetch of an image stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefetchStatus {
    /// The image, as it was requested.
    pub image: String,
    /// How far it is.
    pub state: PrefetchState,
    /// How much of it is downloaded, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// What is free in the file system of the images, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// How far a prefetch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Why the control plane can't be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDown {
    /// A bounded word.
    pub reason: String,
    /// The cause.
    pub message: String,
    /// What a person does next.
    pub next: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// The state of the loop beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopState {
    /// The node's name.
    pub node: String,
    /// What is committed.
    pub current: Option<Target>,
    /// What the control plane wants.
    pub desired: Option<Target>,
    /// What on the host is not as committed.
    pub drift: Vec<Difference>,
    /// What is wrong with the input or the agent's surroundings, when no update is open.
    pub fault: Option<Fault>,
    /// Since when.
    pub fault_since: Option<Timestamp>,
    /// Since when something on the host is not as committed, or a duty is not done.
    pub beside_since: Option<Timestamp>,
    /// How far the step under way is.
    pub progress: Option<Progress>,
    /// The request that the control plane has not answered yet: the drain, or the end of it.
    pub waiting: Option<String>,
    /// What the control plane has to bring before an update can begin: a MachineConfig that is not there yet.
    pub awaited: Option<String>,
    /// Why the control plane can't be reached.
    pub link_down: Option<LinkDown>,
    /// The cluster's trust that is on the host.
    pub trust: Option<TrustSynced>,
    /// What keeps a duty from its end; no update waits for it.
    pub duty: Option<Fault>,
    /// Why changes of the host are not noticed at once; it is looked at from time to time, and no update waits for it.
    pub unwatched: Option<Fault>,
    /// The image that is to be on the node before it is desired.
    pub prefetch: Option<PrefetchStatus>,
    /// Where the storage of the committed config is not what the node was installed with; `None` where that is not known.
    pub irreconcilable_changes: Option<Vec<IrreconcilableChange>>,
    /// When the state was reached, when no update is open.
    pub since: Timestamp,
}

/// What the cluster is told.
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
    /// The phase's name, `Idle` without an update.
    pub phase: String,
    /// The update's id.
    pub update: Option<String>,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// How far the step under way is.
    pub progress: Option<Progress>,
    /// What the node waits for: a drain, an uncordon, or an object of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Why the control plane can't be reached; nobody there reads it, `status` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_down: Option<LinkDown>,
    /// The cluster's trust that is on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustSynced>,
    /// What keeps a duty from its end. Where nothing else is wrong it is the fault, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<Fault>,
    /// The image that is to be on the node before it is desired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<PrefetchStatus>,
    /// Where the storage of the committed config is not what the node was installed with; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irreconcilable_changes: Option<Vec<IrreconcilableChange>>,
    /// The MachineConfigNode's conditions.
    pub conditions: Vec<Condition>,
    /// When the phase or state began, RFC 3339.
    pub since: String,
}

/// Returns the text of a fault as the cluster gets it.
fn reason(fault: &Fault) -> String {
    fault.to_string().chars().take(MAX_REASON_LENGTH).collect()
}
