//! Since when something is wrong, and which fault is the newest: by the order in which they are noticed, never by a clock. And since
//! when nothing is.

use super::LoopState;
use super::causes::drift_fault;
use crate::model::Timestamp;
use crate::update::{Fault, Record};

/// An open fault and the time at which it was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticedFault {
    /// The fault.
    pub fault: Fault,
    /// Its begin.
    pub at: Timestamp,
}

impl NoticedFault {
    /// Returns true if it is this fault. Another fault has another time; a drift of more paths is the same drift.
    pub(super) fn is_of(&self, fault: &Fault) -> bool {
        self.fault == *fault || (fault.reason == super::DRIFT && self.fault.reason == super::DRIFT)
    }
}

/// Faults of the last report, in the order in which they were noticed.
#[derive(Debug, Default)]
pub struct FaultTimes {
    open: Vec<NoticedFault>,
    /// True if the last report was not one of a node at rest.
    was_open: bool,
}

impl FaultTimes {
    /// Notes the begin of the present faults, and the end of the last one. What was recorded before this start is older than all that
    /// is found since.
    pub fn date(&mut self, record: Option<&Record>, health: &mut LoopState, now: Timestamp) {
        let present = present(record, health);
        self.open.retain(|known| present.iter().any(|fault| known.is_of(fault)));
        for fault in &present {
            if self.open.iter().all(|known| !known.is_of(fault)) {
                self.open.push(NoticedFault { fault: fault.clone(), at: now });
            }
        }
        health.noticed.clone_from(&self.open);
        let is_behind = match &health.desired {
            Some(desired) => health.current.as_ref() != Some(desired),
            None => health.awaited.is_some(),
        };
        let is_open = !present.is_empty() || record.is_some() || is_behind || health.waiting.is_some();
        if self.was_open && !is_open {
            health.since = now;
        }
        self.was_open = is_open;
    }
}

/// Returns the faults that are there, that of the record first.
fn present(record: Option<&Record>, health: &LoopState) -> Vec<Fault> {
    let of_record = record.and_then(|record| record.fault.as_ref());
    let of_inputs = health.refused.iter().chain(&health.fault).chain(health.access_fault());
    let named = of_record.into_iter().chain(of_inputs).chain(health.beside()).cloned();
    named.chain(drift_fault(health)).collect()
}
