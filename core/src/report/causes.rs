//! Open causes of a node, the worst first. Each input has its own verdict: the target, the settings, the policy, the proxies, the
//! access to the cluster, and the config that an update or a pass works with.
//!
//! # Decisions
//! 1. A worse class comes first. Of one class, what holds the target comes before what no update waits for, and then the cause
//!    that was noticed last.
//! 2. A target that is refused now was given last. What an ended update or an earlier pass met is a cause of the target before
//!    it, so it comes after the refusal, and is still listed.

use std::cmp::Reverse;

use super::LoopState;
use crate::model::{FaultClass, Timestamp};
use crate::plan::listing::listed;
use crate::update::resume::held;
use crate::update::{Fault, Record};

/// An open cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) fault: Fault,
    /// Its begin, if known.
    pub(super) since: Option<Timestamp>,
    /// True if no update waits for it.
    pub(super) is_beside: bool,
    /// True if it is a cause of the target before the one that is given now.
    is_earlier: bool,
    /// Its place in the order of noticing; 0: before this process.
    newness: usize,
}

impl Cause {
    fn rank(&self) -> (bool, Reverse<FaultClass>, bool, Reverse<usize>) {
        (self.is_earlier, Reverse(self.fault.class), self.is_beside, Reverse(self.newness))
    }
}

/// Returns the open causes, the worst first.
pub(super) fn causes(record: Option<&Record>, health: &LoopState) -> Vec<Cause> {
    let cause = |fault: &Fault, is_beside: bool, is_earlier: bool| {
        let at = health.noticed.iter().position(|one| one.is_of(fault));
        let since = at.and_then(|at| health.noticed.get(at)).map(|one| one.at);
        let newness = at.map_or(0, |at| at + 1);
        Cause { fault: fault.clone(), since, is_beside, is_earlier, newness }
    };
    let is_refused = health.refused.is_some();
    let mut all = Vec::new();
    if let Some((record, fault)) = of_record(record, health) {
        let since = record.faulted;
        let found = cause(fault, false, is_refused && is_ended(record));
        all.push(Cause { since: since.or(found.since), ..found });
    }
    all.extend(health.refused.as_ref().map(|fault| cause(fault, false, false)));
    all.extend(health.fault.as_ref().map(|fault| cause(fault, false, is_refused)));
    if record.is_none() {
        all.extend(health.access_fault().map(|fault| cause(fault, false, false)));
        all.extend(drift_fault(health).map(|fault| cause(&fault, false, false)));
    }
    all.extend(health.beside().map(|fault| cause(fault, true, false)));
    all.sort_by_key(Cause::rank);
    let mut once: Vec<Cause> = Vec::new();
    for cause in all {
        // A policy that is not valid is found by the watch, and by the update that begins.
        if once.iter().all(|other| other.fault != cause.fault) {
            once.push(cause);
        }
    }
    once
}

/// Returns the fault of the record. One of an update that has ended is none of another target's.
fn of_record<'a>(record: Option<&'a Record>, health: &LoopState) -> Option<(&'a Record, &'a Fault)> {
    let record = record.filter(|record| !is_of_earlier_target(record, health))?;
    Some((record, record.fault.as_ref()?))
}

/// An update that is undone, or held as it came up, is not being worked on.
pub(super) fn is_ended(record: &Record) -> bool {
    record.is_undone() || held(record)
}

/// Returns true if the record holds a failed update, and another target is desired now.
pub(super) fn is_of_earlier_target(record: &Record, health: &LoopState) -> bool {
    is_ended(record) && health.desired.as_ref().is_some_and(|desired| *desired != record.to)
}

/// Returns the fault of a host that differs from its config.
pub(super) fn drift_fault(health: &LoopState) -> Option<Fault> {
    if health.drift.is_empty() {
        return None;
    }
    Some(Fault {
        class: FaultClass::Degraded,
        reason: super::DRIFT.to_owned(),
        message: format!("the host differs from its config: {}", listed(&health.drift)),
        next: "See `machine-config-agent verify`; revert the change, or change the target.".to_owned(),
    })
}
