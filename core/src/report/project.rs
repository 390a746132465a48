//! The projection: the recorded state, and the loop's state beside it, as one report.

use super::conditions;
use super::{LoopState, NodeReport, NodeState, reason};
use crate::model::{FaultClass, Timestamp};
use crate::plan::listing::listed;
use crate::update::resume::held;
use crate::update::{Fault, Record};

/// Projects the recorded state.
pub fn report(record: Option<&Record>, health: &LoopState) -> NodeReport {
    let (fault, faulted) = newest(record, health).unzip();
    let own = fault.or_else(|| drift_fault(record, health));
    let duty = health.duty().cloned();
    let fault = own.clone().or_else(|| duty.clone());
    let state = state(record, health, fault.as_ref());
    let beside = || fault.as_ref().and(health.beside_since);
    let since =
        faulted.flatten().or_else(beside).unwrap_or(record.map_or(health.since, |record| record.since));
    let committed = health.current.as_ref();
    let desired = health.desired.as_ref().or(record.map(|record| &record.to));
    NodeReport {
        schema_version: 1,
        node: health.node.clone(),
        state,
        reason: fault.as_ref().map(reason).unwrap_or_default(),
        current_config: committed.map(|target| target.config.clone()),
        desired_config: desired.map(|target| target.config.clone()),
        current_image: committed.and_then(|target| target.image.clone()),
        desired_image: desired.and_then(|target| target.image.clone()),
        content_changed: desired
            .zip(committed)
            .is_some_and(|(desired, current)| desired.is_renewal_of(current)),
        phase: phase(record).to_owned(),
        update: record.map(|record| record.id.to_string()),
        conditions: conditions::conditions(record, health, [own.as_ref(), fault.as_ref()], state),
        progress: record.and(health.progress.clone()),
        trust: health.trust.clone(),
        duty,
        prefetch: health.prefetch.clone(),
        not_applied: health.not_applied_now(record),
        irreconcilable_changes: health.irreconcilable_changes.clone(),
        waiting: waiting(record, health),
        link_down: health.link_down.clone(),
        unpublished: health.unpublished.clone(),
        fault,
        since: since.to_string(),
    }
}

fn waiting(record: Option<&Record>, health: &LoopState) -> Option<String> {
    let open = || record.and_then(|record| record.waiting.clone());
    health.waiting.clone().or_else(open).or_else(|| health.awaited.clone())
}

/// Returns the newest fault, and its time if known.
fn newest(record: Option<&Record>, health: &LoopState) -> Option<(Fault, Option<Timestamp>)> {
    let of_record = record.and_then(|record| Some((record.fault.clone()?, record.faulted)));
    let of_health = health.fault.clone().map(|fault| (fault, health.fault_since));
    let is_newest = health.is_fault_newest;
    match (of_record, of_health) {
        (Some(record), Some(health)) => Some(if is_newest { health } else { record }),
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

fn state(record: Option<&Record>, health: &LoopState, fault: Option<&Fault>) -> NodeState {
    match fault.map(|fault| fault.class) {
        Some(FaultClass::Unreconcilable) => NodeState::Unreconcilable,
        Some(FaultClass::Retry | FaultClass::Degraded | FaultClass::Fatal) => NodeState::Degraded,
        None if record.is_some() => NodeState::Working,
        // A node that is still to be uncordoned is not done.
        None if health.waiting.is_none()
            && health.current.is_some()
            && (health.desired.is_none() || health.desired == health.current) =>
        {
            NodeState::Done
        }
        None => NodeState::Working,
    }
}

fn drift_fault(record: Option<&Record>, health: &LoopState) -> Option<Fault> {
    if record.is_some() || health.drift.is_empty() {
        return None;
    }
    Some(Fault {
        class: FaultClass::Degraded,
        reason: "ConfigDrift".to_owned(),
        message: format!("the host differs from its config: {}", listed(&health.drift)),
        next: "See `machine-config-agent verify`; take the change back, or change the target.".to_owned(),
    })
}
