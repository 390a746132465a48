//! What a node was asked to give up, and what came of it: no drain without a write.

use std::cell::RefCell;

use machine_config_agent::report::{NodeReport, NodeState};

/// Phases in which the host is written, or was.
const WRITING: [&str; 5] = ["Applying", "Rebooting", "Verifying", "RollingBack", "FallingBack"];

enum Seen {
    Drained,
    Uncordoned,
    /// The phase, and whether the update was refused, undone or superseded.
    Report {
        phase: String,
        state: NodeState,
        ended_early: bool,
    },
}

/// The drains of a plane and its reports, in order. It is checked when the last who knows the plane is gone, at the end of each
/// test.
#[derive(Default)]
pub struct Course {
    seen: RefCell<Vec<Seen>>,
    target: RefCell<Option<String>>,
}

impl Course {
    pub fn drained(&self) {
        self.seen.borrow_mut().push(Seen::Drained);
    }

    pub fn uncordoned(&self) {
        self.seen.borrow_mut().push(Seen::Uncordoned);
    }

    pub fn reported(&self, report: &NodeReport) {
        let desired = report.desired_config.as_ref().map(ToString::to_string);
        let is_other = self.target.borrow().is_some() && *self.target.borrow() != desired;
        *self.target.borrow_mut() = desired;
        let ended_early = is_other || report.fault.is_some() || report.irreconcilable_changes.is_some();
        let (phase, state) = (report.phase.clone(), report.state);
        self.seen.borrow_mut().push(Seen::Report { phase, state, ended_early });
    }

    /// Returns what is wrong: a drained node that comes to rest without a write, and is not given back.
    fn wrong(&self) -> Option<String> {
        let mut drained = false;
        let (mut wrote, mut refused, mut rests) = (false, false, false);
        for seen in self.seen.borrow().iter() {
            match seen {
                Seen::Drained if drained => {}
                Seen::Drained => (drained, wrote, refused, rests) = (true, false, false, false),
                Seen::Uncordoned if drained && !wrote && !refused => {
                    return Some("the node was drained and uncordoned, and nothing was written".to_owned());
                }
                Seen::Uncordoned => drained = false,
                Seen::Report { phase, state, ended_early } => {
                    wrote |= WRITING.contains(&phase.as_str());
                    refused |= ended_early;
                    rests = phase == "Idle" && *state == NodeState::Done;
                }
            }
        }
        (drained && rests && !wrote)
            .then(|| "the node is Done and stays drained, and nothing was written".to_owned())
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.wrong(), None, "a drain without a write");
        }
    }
}

#[test]
fn drain_without_write_is_found() {
    let report =
        |phase: &str, state, ended_early| Seen::Report { phase: phase.to_owned(), state, ended_early };
    let working = |phase| report(phase, NodeState::Working, false);
    let cases = [
        (vec![Seen::Drained, working("Draining"), Seen::Uncordoned], true),
        (vec![Seen::Drained, report("Idle", NodeState::Done, false)], true),
        (vec![Seen::Drained, working("Applying"), Seen::Uncordoned], false),
        (vec![Seen::Drained, report("Draining", NodeState::Degraded, true), Seen::Uncordoned], false),
        (vec![Seen::Drained, working("Draining")], false),
        (vec![Seen::Uncordoned], false),
    ];
    for (seen, is_wrong) in cases {
        let course = Course { seen: RefCell::new(seen), target: RefCell::default() };
        assert_eq!(course.wrong().is_some(), is_wrong, "{:?}", course.wrong());
        course.seen.borrow_mut().clear();
    }
}
