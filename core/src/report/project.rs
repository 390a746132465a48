//! The projection: the recorded state, and the loop's state beside it, as one report.

use super::causes::{causes, is_ended, is_of_earlier_target};
use super::conditions;
use super::{HeldUpdate, LoopState, NodeReport, NodeState, Unread, reason};
use crate::model::FaultClass;
use crate::update::{Fault, Record};

/// Projects the recorded state.
pub fn report(record: Option<&Record>, health: &LoopState) -> NodeReport {
    let causes = causes(record, health);
    let first =
        |is_beside| causes.iter().find(|cause| cause.is_beside == is_beside).map(|cause| &cause.fault);
    let [own, duty] = [false, true].map(first);
    let headline = causes.first();
    let fault = headline.map(|cause| cause.fault.clone());
    let state = state(record, health, fault.as_ref());
    let entered = record.filter(|record| !is_of_earlier_target(record, health));
    let since = match headline {
        // One without a time has just been found, by a process that can't know its begin.
        Some(cause) => cause.since.unwrap_or_default(),
        None => entered.map_or(health.since, |record| record.since),
    };
    let committed = health.current.as_ref();
    let named = health.refused_target.as_ref().filter(|_| health.refused.is_some());
    let desired = named.or(health.desired.as_ref()).or(record.map(|record| &record.to));
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
        conditions: conditions::conditions(record, health, [own, fault.as_ref()], state),
        progress: record.and(health.progress.clone()),
        doing: health.doing.clone(),
        doing_since: health.doing.as_ref().and(health.doing_since).map(|since| since.to_string()),
        trust: health.trust.clone(),
        duty: duty.cloned(),
        prefetch: health.prefetch.clone(),
        not_applied: health.not_applied_now(record),
        irreconcilable_changes: health.irreconcilable_changes.clone(),
        waiting: waiting(record, health),
        next_try: fault.as_ref().and(health.next_try).map(|at| at.to_string()),
        link_down: health.link_down.clone(),
        unpublished: health.unpublished.clone(),
        held: HeldUpdate::of_record(entered, true),
        fault,
        faults: causes.iter().map(|cause| cause.fault.clone()).collect(),
        since: since.to_string(),
    }
}

fn waiting(record: Option<&Record>, health: &LoopState) -> Option<String> {
    let open = || record.and_then(|record| record.waiting.clone());
    let unread = || match &health.unread {
        Some(Unread::Awaited(what)) => Some(what.clone()),
        Some(Unread::Refused(_)) | None => None,
    };
    health.waiting.clone().or_else(open).or_else(|| health.awaited.clone()).or_else(unread)
}

/// Name of the phase of a reboot.
const REBOOTING: &str = "Rebooting";

fn phase(record: Option<&Record>) -> &'static str {
    match record {
        // Only the reboot is open, and a block or a person delays it.
        Some(record) if record.waiting.is_some() && record.awaits_reboot() => REBOOTING,
        Some(record) if !is_ended(record) => record.phase.name(),
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
            && health.doing.is_none()
            && health.unread.is_none()
            && health.current.is_some()
            // A target that was taken away is awaited.
            && (health.awaited.is_none() || health.desired.is_some())
            && (health.desired.is_none() || health.desired == health.current) =>
        {
            NodeState::Done
        }
        None => NodeState::Working,
    }
}
