//! Decision after an error outside of a step: of a pass, or of a wait.

use std::time::Duration;

use super::action::{Action, Query, Wait};
use super::answer::UncordonStatus;
use super::down::Shutdown;
use super::inputs::Memory;
use super::mode::RunMode;
use super::next::{Uncordoned, on_its_way, sooner, uncordoned};
use crate::update::ending::SOON;
use crate::update::{Ending, Fault};

/// Facts of an error.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a> {
    /// Run mode of the agent.
    pub mode: RunMode,
    /// The host can't be watched.
    pub is_unwatched: bool,
    /// logind's state of a shutdown, if known.
    pub shutdown: Option<Shutdown>,
    /// The error; `None`: the control plane is unreachable, which is not a fault of the node.
    pub fault: Option<&'a Fault>,
    /// No update is open, or it is undone: the host is as the current target.
    pub is_untouched: bool,
    /// State of the uncordon, once requested.
    pub uncordoned: Option<&'a UncordonStatus>,
    /// The time since the boot.
    pub now: Duration,
}

/// Returns the action after an error of a pass. During a shutdown other services stop before the agent does: the
/// end of this boot is waited for then.
pub fn failed(error: &Failed<'_>, memory: &mut Memory) -> Action {
    let leaving = memory.down.is_requested().then(|| on_its_way(error.shutdown, memory, error.now)).flatten();
    let mut uncordon = Uncordoned::Yes;
    if leaving.is_none() && is_refused(error) {
        uncordon = uncordoned(error.uncordoned, memory, error.now);
        if matches!(uncordon, Uncordoned::Ask) {
            return Action::Query(Query::Uncordoned);
        }
    }
    let mut action = leaving.unwrap_or_else(|| {
        let left = match error.fault {
            None => Some(memory.backoff.next_wait()),
            Some(fault) => {
                Ending::from_fault(fault).longest().map(|longest| memory.backoff.next_wait_up_to(longest))
            }
        };
        Action::Wait(match uncordon {
            Uncordoned::Wait(wait) => Wait { left: sooner(wait.left, left), ..wait },
            Uncordoned::Ask | Uncordoned::Yes => Wait::plain(left),
        })
    });
    action.fit(error.mode, error.is_unwatched);
    action
}

/// Returns true if the update is refused for more than a passing cause, and a node that was drained for an earlier try takes
/// its workload back: nothing has changed on the host.
fn is_refused(error: &Failed<'_>) -> bool {
    let lasts = error.fault.is_some_and(|fault| Ending::from_fault(fault) != Ending::Soon);
    lasts && error.is_untouched && error.mode == RunMode::Daemon
}

/// Returns the delay of the next wait after one that failed: the same error would end the next one, too.
pub fn pause(memory: &mut Memory) -> Duration {
    memory.backoff.next_wait_up_to(SOON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::down::Down;
    use crate::model::FaultClass;

    fn fault(reason: &str) -> Fault {
        let text = |text: &str| text.to_owned();
        Fault { class: FaultClass::Degraded, reason: text(reason), message: text("m"), next: text("n") }
    }

    fn at(fault: Option<&Fault>) -> Failed<'_> {
        let now = Duration::from_secs(100);
        Failed {
            mode: RunMode::Daemon,
            is_unwatched: false,
            shutdown: None,
            fault,
            is_untouched: false,
            uncordoned: None,
            now,
        }
    }

    fn left(action: Action) -> Option<Duration> {
        let Action::Wait(wait) = action else { panic!("{action:?}") };
        wait.left
    }

    #[test]
    fn wait_after_error_depends_on_its_ending() {
        let mut memory = Memory::new(RunMode::Daemon, "worker-0");
        let refused = fault("InvalidConfig");
        let first = left(failed(&at(None), &mut memory)).unwrap();
        assert_eq!(left(failed(&at(Some(&fault("TimedOut"))), &mut memory)), Some(first * 2));
        assert_eq!(left(failed(&at(Some(&refused)), &mut memory)), None);
        let unwatched = Failed { is_unwatched: true, ..at(Some(&refused)) };
        assert_eq!(left(failed(&unwatched, &mut memory)), Some(SOON));
        let settled = Failed { mode: RunMode::OneShot, ..at(None) };
        assert!(matches!(failed(&settled, &mut memory), Action::Wait(Wait { ends: true, .. })));
    }

    #[test]
    fn refused_update_gives_workload_back() {
        let mut memory = Memory::new(RunMode::Daemon, "worker-0");
        let (refused, passing) = (fault("HostNotPrepared"), fault("TimedOut"));
        let at = |fault| Failed { is_untouched: true, ..at(Some(fault)) };
        assert_eq!(failed(&at(&refused), &mut memory), Action::Query(Query::Uncordoned));
        assert!(left(failed(&at(&passing), &mut memory)).is_some(), "the next try comes soon");
        let open = Failed { is_untouched: false, ..at(&refused) };
        assert!(left(failed(&open, &mut memory)).is_some(), "an update is open");
        let answered = Failed { uncordoned: Some(&UncordonStatus::Again), ..at(&refused) };
        assert!(left(failed(&answered, &mut memory)).is_some());
        let waits = UncordonStatus::Waiting { why: "the controller".to_owned() };
        let asked = Failed { uncordoned: Some(&waits), ..at(&refused) };
        assert!(left(failed(&asked, &mut memory)).is_some());
        let late = Failed { now: Duration::from_secs(10_000), ..asked };
        let Action::Wait(wait) = failed(&late, &mut memory) else { panic!("it does not wait") };
        assert!(matches!(wait.meanwhile, crate::decide::action::Meanwhile::Late(..)), "{wait:?}");
    }

    #[test]
    fn error_while_machine_goes_down_is_waited_out_with_it() {
        let mut memory = Memory::new(RunMode::Daemon, "worker-0");
        memory.down = Down::requested(Duration::from_secs(99));
        assert_eq!(failed(&at(None), &mut memory), Action::Query(Query::Shutdown));
        let signaled =
            |preparing| Failed { shutdown: Some(Shutdown { preparing, was_begun: true }), ..at(None) };
        assert_eq!(left(failed(&signaled(true), &mut memory)), Some(Duration::from_secs(600)));
        assert!(matches!(failed(&signaled(false), &mut memory), Action::RebootInVain { .. }));
    }
}
