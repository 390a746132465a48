//! Reporting: a projection of what is written down, never a chore between the steps that do the work.
//!
//! Pure: imports `model`, `plan` and `update`. [`report`] is the only place that turns a phase into a state, a
//! reason and conditions; the control plane publishes its result, whatever it is.

mod conditions;
mod occurrence;

use serde::{Deserialize, Serialize};

use crate::model::certificates::TrustSynced;
use crate::model::{Class, ConfigName, ImageRef, Target, Timestamp};
use crate::plan::differences::Difference;
use crate::plan::listing::listed;
use crate::update::resume::held;
use crate::update::{Fault, Record};

pub use conditions::{Condition, NOT_YET, Status, not_yet};
pub use occurrence::{Occurrence, Severity};

/// The cut of the reason, as MCD's: the annotation is read by people in a terminal.
pub const REASON_LIMIT: usize = 2000;

/// The node's state, as in its annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// It is what it should be.
    Done,
    /// An update is under way.
    Working,
    /// Something is wrong; the reason says what and what to do.
    Degraded,
    /// The wanted config can't be reached from the current one.
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

/// What the loop knows beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// The node's name.
    pub node: String,
    /// What is committed.
    pub committed: Option<Target>,
    /// What the control plane wants.
    pub wanted: Option<Target>,
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
    /// What the control plane was asked for and has not answered yet: the drain, or the end of it.
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
    pub state: State,
    /// Why; empty when Done. At most [`REASON_LIMIT`] characters.
    pub reason: String,
    /// The committed config.
    pub current_config: Option<ConfigName>,
    /// The wanted config.
    pub desired_config: Option<ConfigName>,
    /// The committed image.
    pub current_image: Option<ImageRef>,
    /// The wanted image.
    pub desired_image: Option<ImageRef>,
    /// The phase's name, `Idle` without an update.
    pub phase: String,
    /// The update's id.
    pub update: Option<String>,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// How far the step under way is.
    pub progress: Option<Progress>,
    /// What is waited for: the drain, the end of it, or an object of the cluster.
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
    /// The MachineConfigNode's conditions.
    pub conditions: Vec<Condition>,
    /// When the phase or state began, RFC 3339.
    pub since: String,
}

/// Projects what is written down.
pub fn report(record: Option<&Record>, health: &Health) -> NodeReport {
    let (fault, faulted) = newest(record, health).unzip();
    let own = fault.or_else(|| drift_fault(record, health));
    let duty = health.duty.as_ref().or(health.unwatched.as_ref()).cloned();
    let fault = own.clone().or_else(|| duty.clone());
    let state = state(record, health, fault.as_ref());
    let beside = || fault.as_ref().and(health.beside_since);
    let since =
        faulted.flatten().or_else(beside).unwrap_or(record.map_or(health.since, |record| record.since));
    let committed = health.committed.as_ref();
    let wanted = health.wanted.as_ref().or(record.map(|record| &record.to));
    NodeReport {
        schema_version: 1,
        node: health.node.clone(),
        state,
        reason: fault.as_ref().map(reason).unwrap_or_default(),
        current_config: committed.map(|target| target.config.clone()),
        desired_config: wanted.map(|target| target.config.clone()),
        current_image: committed.and_then(|target| target.image.clone()),
        desired_image: wanted.and_then(|target| target.image.clone()),
        phase: phase(record).to_owned(),
        update: record.map(|record| record.id.to_string()),
        conditions: conditions::conditions(record, health, [own.as_ref(), fault.as_ref()], state),
        progress: record.and(health.progress.clone()),
        trust: health.trust.clone(),
        duty,
        waiting: waiting(record, health),
        link_down: health.link_down.clone(),
        fault,
        since: since.to_string(),
    }
}

fn waiting(record: Option<&Record>, health: &Health) -> Option<String> {
    let open = || record.and_then(|record| record.waiting.clone());
    health.waiting.clone().or_else(open).or_else(|| health.awaited.clone())
}

/// Returns the newest fault, and its time where it is known.
fn newest(record: Option<&Record>, health: &Health) -> Option<(Fault, Option<Timestamp>)> {
    let of_record = record.and_then(|record| Some((record.fault.clone()?, record.faulted)));
    let of_health = health.fault.clone().map(|fault| (fault, health.fault_since));
    match (of_record, of_health) {
        (Some(record), Some(health)) => Some(if health.1 > record.1 { health } else { record }),
        (record, health) => record.or(health),
    }
}

/// An update that is undone, or held as it came up, is not being worked on.
fn phase(record: Option<&Record>) -> &'static str {
    match record {
        Some(record) if !record.is_undone() && !held(record) => record.phase.name(),
        Some(_) | None => "Idle",
    }
}

fn state(record: Option<&Record>, health: &Health, fault: Option<&Fault>) -> State {
    match fault.map(|fault| fault.class) {
        Some(Class::Unreconcilable) => State::Unreconcilable,
        Some(Class::Retry | Class::Degraded | Class::Fatal) => State::Degraded,
        None if record.is_some() => State::Working,
        // A node that is still to be uncordoned is not done.
        None if health.waiting.is_none()
            && health.committed.is_some()
            && (health.wanted.is_none() || health.wanted == health.committed) =>
        {
            State::Done
        }
        None => State::Working,
    }
}

fn drift_fault(record: Option<&Record>, health: &Health) -> Option<Fault> {
    if record.is_some() || health.drift.is_empty() {
        return None;
    }
    Some(Fault {
        class: Class::Degraded,
        reason: "ConfigDrift".to_owned(),
        message: format!("the host is not as its config says: {}", listed(&health.drift)),
        next: "See `machine-config-agent verify`; put the content back, or change the target.".to_owned(),
    })
}

fn reason(fault: &Fault) -> String {
    fault.to_string().chars().take(REASON_LIMIT).collect()
}
