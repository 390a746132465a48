//! What a node was asked to give up, and what came of it: no drain without a write.

use std::cell::{Cell, RefCell};

use machine_config_agent::report::{NodeReport, NodeState};
use machine_config_agent::update::Fault;

use super::seen_before::is_seen_before;

/// Phases in which the host was written.
const WRITTEN: [&str; 3] = ["Rebooting", "Verifying", "FallingBack"];
/// Phases in which it is written, unless a step failed for what a plan sees.
const WRITING: [&str; 2] = ["Applying", "RollingBack"];

enum Seen {
    Drained,
    Uncordoned,
    /// The phase, whether the update was refused, undone or superseded, and whether that was for what a plan sees.
    Report {
        phase: String,
        state: NodeState,
        /// Another target than that of the report before.
        is_other: bool,
        ended_early: bool,
        is_seen_before: bool,
    },
}

/// The drains of a plane and its reports, in order. It is checked when the last who knows the plane is gone, at the end of each
/// test.
#[derive(Default)]
pub struct Course {
    seen: RefCell<Vec<Seen>>,
    target: RefCell<Option<String>>,
    is_changed_meanwhile: Cell<bool>,
}

impl Course {
    pub fn drained(&self) {
        self.seen.borrow_mut().push(Seen::Drained);
    }

    /// Notes that the test puts something in the way after the plan: no plan sees that.
    pub fn host_changes_meanwhile(&self) {
        self.is_changed_meanwhile.set(true);
    }

    pub fn uncordoned(&self) {
        self.seen.borrow_mut().push(Seen::Uncordoned);
    }

    pub fn reported(&self, report: &NodeReport) {
        let desired = report.desired_config.as_ref().map(ToString::to_string);
        let is_other = self.target.borrow().is_some() && *self.target.borrow() != desired;
        *self.target.borrow_mut() = desired;
        let ended_early = is_other || report.fault.is_some() || report.irreconcilable_changes.is_some();
        let is_seen =
            |fault: &Fault| is_seen_before(&fault.reason, &fault.message) && !self.is_changed_meanwhile.get();
        let is_seen_before = report.fault.as_ref().is_some_and(is_seen);
        let (phase, state) = (report.phase.clone(), report.state);
        self.seen.borrow_mut().push(Seen::Report { phase, state, is_other, ended_early, is_seen_before });
    }

    /// Returns what is wrong: a drained node that comes to rest without a write, and is not given back.
    fn wrong(&self) -> Option<String> {
        let mut drained = false;
        let (mut wrote, mut is_begun, mut refused, mut rests) = (false, false, false, false);
        let mut was_for_another = false;
        for seen in self.seen.borrow().iter() {
            match seen {
                Seen::Drained if drained => {}
                Seen::Drained => {
                    (drained, wrote, is_begun, refused, rests) = (true, false, false, false, false);
                    was_for_another = false;
                }
                Seen::Uncordoned if drained && !wrote && !is_begun && !refused => {
                    return Some("the node was drained and uncordoned, and nothing was written".to_owned());
                }
                Seen::Uncordoned => drained = false,
                Seen::Report { phase, state, is_other, ended_early, is_seen_before } => {
                    // The drain of a target that is not wanted any more says nothing of the next one.
                    was_for_another |= is_other;
                    if drained && !was_for_another && !wrote && *is_seen_before {
                        return Some("the node was drained for a step that a plan sees to fail".to_owned());
                    }
                    wrote |= WRITTEN.contains(&phase.as_str());
                    is_begun |= WRITING.contains(&phase.as_str());
                    refused |= ended_early;
                    rests = phase == "Idle" && *state == NodeState::Done;
                }
            }
        }
        (drained && rests && !wrote && !is_begun)
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
    let of_fault = |phase: &str, state, ended_early, is_seen_before| Seen::Report {
        phase: phase.to_owned(),
        state,
        is_other: false,
        ended_early,
        is_seen_before,
    };
    let report = |phase: &str, state, ended_early| of_fault(phase, state, ended_early, false);
    let working = |phase| report(phase, NodeState::Working, false);
    let another = Seen::Report {
        phase: "Draining".to_owned(),
        state: NodeState::Working,
        is_other: true,
        ended_early: true,
        is_seen_before: false,
    };
    let cases = [
        (vec![Seen::Drained, working("Draining"), Seen::Uncordoned], true),
        (vec![Seen::Drained, report("Idle", NodeState::Done, false)], true),
        (vec![Seen::Drained, working("Applying"), Seen::Uncordoned], false),
        (vec![Seen::Drained, report("Draining", NodeState::Degraded, true), Seen::Uncordoned], false),
        (vec![Seen::Drained, working("Draining")], false),
        (vec![Seen::Drained, of_fault("Draining", NodeState::Degraded, true, true)], true),
        (vec![Seen::Drained, another, of_fault("Draining", NodeState::Degraded, true, true)], false),
        (vec![Seen::Uncordoned], false),
        (
            vec![
                Seen::Drained,
                working("Applying"),
                of_fault("RollingBack", NodeState::Degraded, true, true),
                Seen::Uncordoned,
            ],
            true,
        ),
    ];
    for (seen, is_wrong) in cases {
        let course = Course::default();
        course.seen.replace(seen);
        assert_eq!(course.wrong().is_some(), is_wrong, "{:?}", course.wrong());
        course.seen.borrow_mut().clear();
    }
}
