//! End of a run of `apply`: the result for its caller.

use super::mode::{ExitReason, Reboots};
use crate::model::Target;
use crate::plan::differences::Difference;
use crate::update::{Fault, Phase, Record};

/// Facts at the end of a run.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Reason of the loop's end.
    pub end: ExitReason,
    /// Policy of reboots.
    pub reboots: Reboots,
    /// The target that was given.
    pub target: &'a Target,
    /// The open update.
    pub record: Option<&'a Record>,
    /// The current target.
    pub current: Option<&'a Target>,
    /// Fault beside the update.
    pub fault: Option<&'a Fault>,
    /// Differences from the current target.
    pub drift: &'a [Difference],
}

/// Result of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult<'a> {
    /// The host is as the target.
    Done,
    /// All is written, and a person reboots.
    RebootLeft,
    /// The new deployment is not healthy, and a person reboots into the previous one.
    GoesBack,
    /// The supervisor plays the reboot.
    RebootPlayed,
    /// The machine is going down.
    GoesDown,
    /// It failed.
    Failed(&'a Fault),
    /// It waits for this.
    Waits(&'a str),
    /// The update is not at its end, without a known cause.
    Unfinished,
    /// All is committed, and the host differs from it in so many things.
    Differs(usize),
}

/// Returns the result of a run.
pub fn ended<'a>(run: &Attempt<'a>) -> RunResult<'a> {
    let is_in = |meant: fn(&Phase) -> bool| run.record.is_some_and(|record| meant(&record.phase));
    match (run.end, run.reboots) {
        (ExitReason::Reboot, Reboots::Left) if is_in(|phase| matches!(phase, Phase::FallingBack { .. })) => {
            return RunResult::GoesBack;
        }
        (ExitReason::Reboot, Reboots::Left) => return RunResult::RebootLeft,
        (ExitReason::Reboot, Reboots::Requested) => return RunResult::RebootPlayed,
        (ExitReason::Stopped | ExitReason::Settled, _) => {}
    }
    if let Some(fault) = run.record.and_then(|record| record.fault.as_ref()).or(run.fault) {
        return RunResult::Failed(fault);
    }
    if run.current != Some(run.target) {
        let waits = run.record.and_then(|record| record.waiting.as_deref());
        return match waits {
            Some(what) => RunResult::Waits(what),
            None if is_in(|phase| matches!(phase, Phase::Rebooting { .. })) => RunResult::GoesDown,
            None => RunResult::Unfinished,
        };
    }
    if run.drift.is_empty() { RunResult::Done } else { RunResult::Differs(run.drift.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConfigName, FaultClass};

    #[test]
    fn run_is_done_only_when_its_target_is_committed_and_nothing_is_wrong() {
        let target = |name: &str| Target::new(ConfigName::new(name).unwrap(), None);
        let (desired, old) = (target("rendered-b"), target("rendered-a"));
        let text = |text: &str| text.to_owned();
        let fault =
            Fault { class: FaultClass::Degraded, reason: text("Io"), message: text("m"), next: text("n") };
        let run = Attempt {
            end: ExitReason::Settled,
            reboots: Reboots::Requested,
            target: &desired,
            record: None,
            current: Some(&desired),
            fault: None,
            drift: &[],
        };
        assert_eq!(ended(&run), RunResult::Done);
        assert_eq!(ended(&Attempt { current: Some(&old), ..run }), RunResult::Unfinished);
        assert_eq!(ended(&Attempt { fault: Some(&fault), ..run }), RunResult::Failed(&fault));
        assert_eq!(ended(&Attempt { end: ExitReason::Reboot, ..run }), RunResult::RebootPlayed);
        assert_eq!(
            ended(&Attempt { end: ExitReason::Reboot, reboots: Reboots::Left, ..run }),
            RunResult::RebootLeft
        );
    }
}
