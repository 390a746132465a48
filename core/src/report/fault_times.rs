//! Since when something is wrong.

use super::LoopState;
use crate::model::Timestamp;
use crate::update::Fault;

/// Fault of the last report. Another fault has another time.
#[derive(Debug, Default)]
pub struct FaultTimes {
    fault: Option<Fault>,
    beside: (bool, Option<Fault>),
}

impl FaultTimes {
    /// Notes the begin of the present faults.
    pub fn date(&mut self, health: &mut LoopState, now: Timestamp) {
        if self.fault != health.fault {
            self.fault.clone_from(&health.fault);
            health.fault_since = health.fault.as_ref().map(|_| now);
        }
        let duty = health.duty.as_ref().or(health.unwatched.as_ref()).cloned();
        let beside = (!health.drift.is_empty(), duty);
        if self.beside != beside {
            health.beside_since = (beside.0 || beside.1.is_some()).then_some(now);
            self.beside = beside;
        }
    }
}
