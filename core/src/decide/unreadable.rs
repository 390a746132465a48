//! An open update whose config this version of the agent can't read: another version began it. Its steps are not begun any more,
//! and it is undone; once it has rebooted the node, it ends by the part that can be read.

use super::inputs::Inputs;
use crate::update::resume::recovery_transition;
use crate::update::{Decision, Fault, Phase, Record};

/// Returns the fault with which the update is undone; `None` if its config can be read, or nothing more is done for it.
pub(super) fn unreadable<'a>(inputs: &Inputs<'a>, record: &Record, decision: &Decision) -> Option<&'a Fault> {
    let goes_on = matches!(decision, Decision::Continue | Decision::Restage)
        && !matches!(record.phase, Phase::RollingBack { .. });
    let fault = inputs.unreadable.filter(|_| goes_on)?;
    let way = recovery_transition(record, inputs.observed, inputs.node_settings.health.roll_back);
    way.is_some().then_some(fault)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decide::action::Action;
    use crate::decide::example::spec;
    use crate::decide::inputs::{Answers, Memory};
    use crate::decide::mode::{Reboots, RunMode};
    use crate::decide::next::decide;
    use crate::model::policy::DisruptionPolicy;
    use crate::model::{BootId, Facts, FaultClass, NodeSettings, Timestamp, UpdateId};
    use crate::plan::plan;
    use crate::update::Transition;

    /// In each phase: the update is undone, or goes on to an end of its own.
    #[test]
    fn unreadable_update_is_undone_or_finished() {
        let (from, to) = (spec("rendered-a"), spec("rendered-b"));
        let facts = Facts::assumed(&from, &to).unwrap();
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        let boot_id = BootId::new("boot-1").unwrap();
        let observed = crate::model::Observation { boot_id: boot_id.clone(), ..facts.observed };
        let record =
            Record::new(UpdateId::new("1").unwrap(), plan, boot_id.clone(), None, Timestamp::default());
        let fault = Fault {
            class: FaultClass::Degraded,
            reason: "InvalidConfig".to_owned(),
            message: "it can't be read".to_owned(),
            next: "Correct it.".to_owned(),
        };
        let undoing = |phase: &Phase| matches!(phase, Phase::RollingBack { .. });
        for phase in [
            Phase::Planned,
            Phase::Applying { next: 0 },
            Phase::Rebooting { boot_id: boot_id.clone() },
            Phase::Verifying,
            Phase::RollingBack { next: 0 },
        ] {
            let record = Record { phase: phase.clone(), ..record.clone() };
            let (settings, answers) = (NodeSettings::default(), Answers::default());
            let (current, desired) = (from.target(), to.target());
            let inputs = Inputs {
                mode: RunMode::Daemon,
                reboots: Reboots::Requested,
                record: Some(&record),
                current: Some(&current),
                desired: Some(&desired),
                observed: &observed,
                is_forced: false,
                is_refused: false,
                unreadable: Some(&fault),
                is_unwatched: false,
                can_drain: false,
                node_settings: &settings,
                answers: &answers,
                prefetch: None,
                now: Duration::ZERO,
            };
            let action = decide(&inputs, &mut Memory::new(RunMode::Daemon, "worker-0"));
            let is_undone = action == Action::Fail(fault.clone(), Some(Transition::RollBack));
            let begins = matches!(phase, Phase::Planned | Phase::Applying { .. });
            assert_eq!(is_undone, begins, "{phase:?}: {action:?}");
            assert!(!undoing(&phase) || action != Action::Execute || !record.undo.is_empty());
        }
    }
}
