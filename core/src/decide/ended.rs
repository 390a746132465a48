//! How a run of `apply` ended: what is told to who ran it.

use super::mode::{ExitReason, Reboots};
use crate::model::Target;
use crate::plan::differences::Difference;
use crate::update::{Fault, Phase, Record};

/// What is known at the end.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Why the loop ended.
    pub end: ExitReason,
    /// What became of reboots.
    pub reboots: Reboots,
    /// The target that was given.
    pub target: &'a Target,
    /// The open update.
    pub record: Option<&'a Record>,
    /// What is committed.
    pub current: Option<&'a Target>,
    /// What is wrong beside the update.
    pub fault: Option<&'a Fault>,
    /// What differs from what is committed.
    pub drift: &'a [Difference],
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult<'a> {
    /// The host is as the target says.
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
    /// The update is not at its end, and nothing says why.
    Unfinished,
    /// All is committed, and the host is not as it says.
    Differs(&'a Difference),
}

/// Returns the result of a run.
pub fn ended<'a>(run: &Attempt<'a>) -> RunResult<'a> {
    let is_in = |meant: fn(&Phase) -> bool| run.record.is_some_and(|record| meant(&record.phase));
    match (run.end, run.reboots) {
        (ExitReason::Reboot, Reboots::Left) if is_in(|phase| matches!(phase, Phase::FallingBack { .. })) => {
            return RunResult::GoesBack;
        }
        (ExitReason::Reboot, Reboots::Left) => return RunResult::RebootLeft,
        (ExitReason::Reboot, Reboots::Asked) => return RunResult::RebootPlayed,
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
    run.drift.first().map_or(RunResult::Done, RunResult::Differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConfigName, FaultClass};

    #[test]
    fn run_is_done_only_when_its_target_is_committed_and_nothing_is_wrong() {
        let target = |name: &str| Target { config: ConfigName::new(name).unwrap(), image: None };
        let (desired, old) = (target("rendered-b"), target("rendered-a"));
        let text = |text: &str| text.to_owned();
        let fault =
            Fault { class: FaultClass::Degraded, reason: text("Io"), message: text("m"), next: text("n") };
        let run = Attempt {
            end: ExitReason::Settled,
            reboots: Reboots::Asked,
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
