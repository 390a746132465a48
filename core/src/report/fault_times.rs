//! Since when something is wrong, and which fault is the newest: by the order in which they are noticed, never by a clock.

use super::LoopState;
use crate::model::Timestamp;
use crate::update::{Fault, Record};

/// Faults of the last report. Another fault has another time.
#[derive(Debug, Default)]
pub struct FaultTimes {
    fault: Option<Fault>,
    of_record: Option<Fault>,
    /// True once there was a report.
    has_reported: bool,
    beside: (bool, Option<Fault>),
}

impl FaultTimes {
    /// Notes the begin of the present faults.
    pub fn date(&mut self, record: Option<&Record>, health: &mut LoopState, now: Timestamp) {
        let of_record = record.and_then(|record| record.fault.clone());
        // One that was recorded before this start is older than all that is found since.
        if self.has_reported && of_record.is_some() && self.of_record != of_record {
            health.is_fault_newest = false;
        }
        (self.of_record, self.has_reported) = (of_record, true);
        if self.fault != health.fault {
            self.fault.clone_from(&health.fault);
            health.fault_since = health.fault.as_ref().map(|_| now);
            health.is_fault_newest = health.fault.is_some();
        }
        let duty = health.duty().cloned();
        let beside = (!health.drift.is_empty(), duty);
        if self.beside != beside {
            health.beside_since = (beside.0 || beside.1.is_some()).then_some(now);
            self.beside = beside;
        }
    }
}
