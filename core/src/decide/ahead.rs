//! Fate of an open update before the plan to a target, for verbs that only show it: the same decision as at a start of `apply`.

use std::time::Duration;

use crate::model::{Observation, Target};
use crate::update::ending::{RetryTrigger, Try, next_try};
use crate::update::resume::{can_take_back, held, runs_another};
use crate::update::{Decision, Phase, Record, resume};

/// Fate of an open update before a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The target is committed: nothing is planned, and drift is named.
    Committed,
    /// The host is planned for as it is.
    Nothing,
    /// The open update leads to the target: what is left of it goes on.
    GoesOn,
    /// The open update leads to the target, failed, and is held.
    Held,
    /// The open update is undone first.
    UndoneFirst,
    /// The node is on its way to the open update's config, which is verified first.
    EndsFirst,
    /// The open update ended wrong and its effects stay: the plan starts from the observation.
    LeftAsItIs,
}

impl Ahead {
    /// Decides as a start of `apply` with this target, on a host without an open update.
    pub fn of_idle(committed: Option<&Target>, target: &Target, is_forced: bool) -> Self {
        if committed == Some(target) && !is_forced { Self::Committed } else { Self::Nothing }
    }

    /// The same, beside an open update.
    pub fn of_open(
        record: &Record,
        committed: Option<&Target>,
        observed: &Observation,
        target: &Target,
        is_forced: bool,
    ) -> Self {
        let decision = resume(Some(record), committed, observed, Some(target));
        let is_same = *target == record.to;
        let on_its_way = if is_same { Self::GoesOn } else { Self::EndsFirst };
        match decision {
            Decision::Begin | Decision::Idle => Self::LeftAsItIs,
            Decision::Hold if is_forced && held(record) => Self::LeftAsItIs,
            Decision::Archive => Self::Nothing,
            Decision::Hold if record.is_undone() && is_tried(record) => Self::Nothing,
            Decision::Hold => Self::Held,
            Decision::Continue if matches!(record.phase, Phase::RollingBack { .. }) => Self::UndoneFirst,
            Decision::Supersede | Decision::UndoAfterFallback => Self::UndoneFirst,
            Decision::Fault(_) if !is_same && can_take_back(record, observed) => Self::UndoneFirst,
            Decision::FallBack if !is_same => Self::UndoneFirst,
            Decision::Continue
            | Decision::Restage
            | Decision::Inquire
            | Decision::Reboot
            | Decision::Verify
            | Decision::Replan(_)
            | Decision::FallBack
            | Decision::Fault(_)
            | Decision::Commit => on_its_way,
        }
    }

    /// Returns true if the node runs another deployment than the open update began in when that is undone: the plan starts
    /// from the observation then. A node that falls back is on its way to the one before.
    pub fn starts_from_observation(self, record: &Record, observed: &Observation) -> bool {
        let is_undone_here = match self {
            Self::UndoneFirst | Self::Nothing => !matches!(record.phase, Phase::FallingBack { .. }),
            Self::Committed | Self::GoesOn | Self::Held | Self::EndsFirst | Self::LeftAsItIs => false,
        };
        is_undone_here && runs_another(record, observed)
    }

    /// Returns the word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Nothing => "nothing",
            Self::GoesOn => "goes-on",
            Self::Held => "held",
            Self::UndoneFirst => "undone-first",
            Self::EndsFirst => "ends-first",
            Self::LeftAsItIs => "left-as-it-is",
        }
    }
}

/// Returns true if a run of `apply` tries an undone update again.
fn is_tried(record: &Record) -> bool {
    next_try(record, RetryTrigger::Rewritten, Duration::MAX) == Try::Now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::example::spec;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{BootId, Facts, FaultClass, Timestamp, UpdateId};
    use crate::plan::plan;
    use crate::update::Fault;

    /// In each phase, for the target of the update and for another one.
    #[test]
    fn open_update_has_one_fate() {
        let (from, to) = (spec("rendered-a"), spec("rendered-b"));
        let facts = Facts::assumed(&from, &to).unwrap();
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let boot_id = BootId::new("boot-1").unwrap();
        let observed = Observation { boot_id: boot_id.clone(), ..facts.observed };
        let record =
            Record::new(UpdateId::new("1").unwrap(), plan, boot_id.clone(), None, Timestamp::default());
        let (same, other) = (to.target(), spec("rendered-c").target());
        let fate = |record: &Record, target: &Target| {
            Ahead::of_open(record, Some(&from.target()), &observed, target, false)
        };
        for (phase, of_same, of_other) in [
            (Phase::Planned, Ahead::GoesOn, Ahead::UndoneFirst),
            (Phase::Draining, Ahead::GoesOn, Ahead::UndoneFirst),
            (Phase::Applying { next: 0 }, Ahead::GoesOn, Ahead::UndoneFirst),
            (Phase::Rebooting { boot_id: boot_id.clone() }, Ahead::GoesOn, Ahead::EndsFirst),
            (Phase::Verifying, Ahead::GoesOn, Ahead::EndsFirst),
        ] {
            let open = Record { phase, ..record.clone() };
            assert_eq!((fate(&open, &same), fate(&open, &other)), (of_same, of_other), "{:?}", open.phase);
        }
        let fault = Fault {
            class: FaultClass::Degraded,
            reason: "VerificationFailed".to_owned(),
            message: "it is not as planned".to_owned(),
            next: "Correct it.".to_owned(),
        };
        let held = Record { phase: Phase::Verifying, fault: Some(fault), ..record.clone() };
        assert_eq!((fate(&held, &same), fate(&held, &other)), (Ahead::Held, Ahead::LeftAsItIs));
        // All is undone: the target is planned for as any other.
        let undone = Record { phase: Phase::RollingBack { next: 0 }, ..record };
        assert_eq!((fate(&undone, &same), fate(&undone, &other)), (Ahead::Nothing, Ahead::Nothing));
        assert_eq!(Ahead::of_idle(Some(&same), &same, false), Ahead::Committed);
        assert_eq!(Ahead::of_idle(Some(&same), &same, true), Ahead::Nothing);
    }
}
