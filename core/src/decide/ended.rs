//! How a run of `apply` ended: what is told to who ran it.

use super::mode::{End, Reboots};
use crate::model::Target;
use crate::plan::differences::Difference;
use crate::update::{Fault, Phase, Record};

/// What is known at the end.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Why the loop ended.
    pub end: End,
    /// What became of reboots.
    pub reboots: Reboots,
    /// The target that was given.
    pub target: &'a Target,
    /// The open update.
    pub record: Option<&'a Record>,
    /// What is committed.
    pub committed: Option<&'a Target>,
    /// What is wrong beside the update.
    pub fault: Option<&'a Fault>,
    /// What differs from what is committed.
    pub drift: &'a [Difference],
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended<'a> {
    /// The host is as the target says.
    Done,
    /// All is written, and a person reboots.
    RebootLeft,
    /// The new deployment is not healthy, and a person reboots into the one before.
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

/// Says how a run ended.
pub fn ended<'a>(run: &Attempt<'a>) -> Ended<'a> {
    let is_in = |meant: fn(&Phase) -> bool| run.record.is_some_and(|record| meant(&record.phase));
    match (run.end, run.reboots) {
        (End::Reboot, Reboots::Left) if is_in(|phase| matches!(phase, Phase::FallingBack { .. })) => {
            return Ended::GoesBack;
        }
        (End::Reboot, Reboots::Left) => return Ended::RebootLeft,
        (End::Reboot, Reboots::Asked) => return Ended::RebootPlayed,
        (End::Stopped | End::Settled, _) => {}
    }
    if let Some(fault) = run.record.and_then(|record| record.fault.as_ref()).or(run.fault) {
        return Ended::Failed(fault);
    }
    if run.committed != Some(run.target) {
        let waits = run.record.and_then(|record| record.waiting.as_deref());
        return match waits {
            Some(what) => Ended::Waits(what),
            None if is_in(|phase| matches!(phase, Phase::Rebooting { .. })) => Ended::GoesDown,
            None => Ended::Unfinished,
        };
    }
    run.drift.first().map_or(Ended::Done, Ended::Differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConfigName, FaultClass};

    #[test]
    fn a_run_is_done_only_when_its_target_is_committed_and_nothing_is_wrong() {
        let target = |name: &str| Target { config: ConfigName::new(name).unwrap(), image: None };
        let (wanted, old) = (target("rendered-b"), target("rendered-a"));
        let text = |text: &str| text.to_owned();
        let fault =
            Fault { class: FaultClass::Degraded, reason: text("Io"), message: text("m"), next: text("n") };
        let run = Attempt {
            end: End::Settled,
            reboots: Reboots::Asked,
            target: &wanted,
            record: None,
            committed: Some(&wanted),
            fault: None,
            drift: &[],
        };
        assert_eq!(ended(&run), Ended::Done);
        assert_eq!(ended(&Attempt { committed: Some(&old), ..run }), Ended::Unfinished);
        assert_eq!(ended(&Attempt { fault: Some(&fault), ..run }), Ended::Failed(&fault));
        assert_eq!(ended(&Attempt { end: End::Reboot, ..run }), Ended::RebootPlayed);
        assert_eq!(ended(&Attempt { end: End::Reboot, reboots: Reboots::Left, ..run }), Ended::RebootLeft);
    }
}
