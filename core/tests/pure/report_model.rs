//! A small model of what a person reads: after each course of events an oracle computes the open causes from what happened, and
//! in which order; the report has to say the same. All open causes are listed, the worst first and of alike ones the newest; each has
//! its own time; and nothing is Done while another target is desired.

use machine_config_core::model::{ConfigName, FaultClass, Target, Timestamp};
use machine_config_core::report::{FaultTimes, LoopState, NodeState, report};
use machine_config_core::update::{Fault, Record, Transition};

use crate::update_fixtures::UpdateFixture;

/// An event of a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A person writes a target: the committed one, the update's, another one, or one that is not valid.
    Committed,
    Updates,
    Other,
    Invalid,
    /// The update begins, fails and is undone; and a pass before it fails, or ends well.
    Begun,
    Failed,
    Undone,
    PassFailed,
    /// The same, for a config that the node can't reach.
    PassRefused,
    PassEnded,
    /// The settings, and the policy, become invalid and valid again.
    Settings,
    Policy,
    /// Another process of the agent starts.
    Started,
}

const EVENTS: [Event; 13] = [
    Event::Committed,
    Event::Updates,
    Event::Other,
    Event::Invalid,
    Event::Begun,
    Event::Failed,
    Event::Undone,
    Event::PassFailed,
    Event::PassRefused,
    Event::PassEnded,
    Event::Settings,
    Event::Policy,
    Event::Started,
];

const REFUSED: &str = "InvalidConfig";
const OF_PASS: &str = "ImageNotFound";
const UNREACHED: &str = "FailedToReconcile";
const OF_UPDATE: &str = "DiskFull";
const OF_SETTINGS: &str = "SettingsInvalid";
const OF_POLICY: &str = "InvalidDocument";

/// The causes with their badness. What holds the target is worse than what no update waits for.
const CAUSES: [(&str, FaultClass, bool); 6] = [
    (REFUSED, FaultClass::Degraded, false),
    (OF_PASS, FaultClass::Degraded, false),
    (UNREACHED, FaultClass::Unreconcilable, false),
    (OF_UPDATE, FaultClass::Degraded, false),
    (OF_SETTINGS, FaultClass::Degraded, true),
    (OF_POLICY, FaultClass::Unreconcilable, true),
];

fn badness(reason: &str) -> (FaultClass, bool) {
    let found = CAUSES.iter().find(|(name, ..)| *name == reason).unwrap();
    (found.1, !found.2)
}

fn fault(reason: &str) -> Fault {
    let text = |text: &str| text.to_owned();
    Fault { class: badness(reason).0, reason: text(reason), message: text("m"), next: text("n") }
}

/// The node, as the agent holds it.
struct Node<'a> {
    made: &'a UpdateFixture,
    record: Option<Record>,
    health: LoopState,
    times: FaultTimes,
    now: u64,
}

/// Times of the open causes, as the oracle saw them begin, and of the last rest.
#[derive(Debug, Clone, Default)]
struct Seen {
    begun: Vec<(&'static str, u64)>,
    rests: u64,
    is_open: bool,
}

impl<'a> Node<'a> {
    fn new(made: &'a UpdateFixture) -> Self {
        let current = Some(made.from.target());
        let health = LoopState { desired: current.clone(), current, ..LoopState::default() };
        Self { made, record: None, health, times: FaultTimes::default(), now: 0 }
    }

    fn is_undone(&self) -> bool {
        self.record.as_ref().is_some_and(Record::is_undone)
    }

    /// Desires a valid target.
    fn desire(&mut self, target: Target) {
        self.health.refused = None;
        if self.health.desired.as_ref() != Some(&target) {
            self.health.fault = None;
            self.health.desired = Some(target);
        }
    }

    /// Lets an event happen; false if it can't.
    fn lives(&mut self, event: Event, seen: &mut Seen) -> bool {
        self.now += 1;
        let other = Target::new(ConfigName::new("rendered-other").unwrap(), None);
        match event {
            Event::Committed => self.desire(self.made.from.target()),
            Event::Updates => self.desire(self.made.to.target()),
            Event::Other => self.desire(other),
            Event::Invalid => self.health.refused = Some(fault(REFUSED)),
            Event::Begun if self.record.is_none() => {
                let record = self.made.record();
                self.record =
                    Some(record.moved(&Transition::Apply { first: 0 }, Timestamp::default()).unwrap());
                self.health.fault = None;
            }
            Event::Failed if self.record.as_ref().is_some_and(|record| record.fault.is_none()) => {
                let record = self.record.take().unwrap();
                let mut record = record.moved(&Transition::RollBack, Timestamp::default()).unwrap();
                record.blame(fault(OF_UPDATE), Timestamp::from_micros(self.now * SECOND));
                self.record = Some(record);
            }
            Event::Undone if self.record.as_ref().is_some_and(|record| record.fault.is_some()) => {
                while !self.is_undone() {
                    let record = self.record.take().unwrap();
                    self.record = Some(record.moved(&Transition::UndoDone, Timestamp::default()).unwrap());
                }
            }
            Event::PassFailed => self.health.fault = Some(fault(OF_PASS)),
            Event::PassRefused => self.health.fault = Some(fault(UNREACHED)),
            Event::PassEnded => self.health.fault = None,
            Event::Settings => toggle(&mut self.health.settings, OF_SETTINGS),
            Event::Policy => toggle(&mut self.health.policy, OF_POLICY),
            Event::Started => self.times = FaultTimes::default(),
            Event::Begun | Event::Failed | Event::Undone => return false,
        }
        self.note(event, seen);
        self.times.date(self.record.as_ref(), &mut self.health, Timestamp::from_micros(self.now * SECOND));
        true
    }

    /// Notes what the oracle sees.
    fn note(&self, event: Event, seen: &mut Seen) {
        let there = |reason: &str| match reason {
            OF_UPDATE => self.record.as_ref().is_some_and(|record| record.fault.is_some()),
            OF_SETTINGS => self.health.settings.is_some(),
            OF_POLICY => self.health.policy.is_some(),
            REFUSED => self.health.refused.is_some(),
            other => self.health.fault.as_ref().is_some_and(|fault| fault.reason == other),
        };
        if event == Event::Started {
            // What a process finds is newer than what an earlier one has recorded.
            seen.begun.retain(|(reason, _)| *reason == OF_UPDATE);
            seen.is_open = false;
        }
        seen.begun.retain(|(reason, _)| there(reason));
        for (reason, ..) in CAUSES {
            if there(reason) && seen.begun.iter().all(|(other, _)| *other != reason) {
                seen.begun.push((reason, self.now));
            }
        }
        let is_at_target = self.health.desired == self.health.current;
        let is_open = !seen.begun.is_empty() || self.record.is_some() || !is_at_target;
        if std::mem::replace(&mut seen.is_open, is_open) && !is_open {
            seen.rests = self.now;
        }
    }

    /// Computes the causes of what is current, the worst first.
    fn causes(&self, seen: &Seen) -> Vec<(&'static str, u64)> {
        let is_given_up = self.is_undone() && self.health.desired != Some(self.made.to.target());
        let mut all = seen.begun.clone();
        all.retain(|(reason, _)| *reason != OF_UPDATE || !is_given_up);
        let is_past = |reason: &str| {
            let of_earlier =
                [OF_PASS, UNREACHED].contains(&reason) || (reason == OF_UPDATE && self.is_undone());
            self.health.refused.is_some() && of_earlier
        };
        // The newest of alike ones.
        all.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        all.sort_by_key(|(reason, _)| (is_past(reason), std::cmp::Reverse(badness(reason))));
        all
    }

    fn check(&self, seen: &Seen, course: &[Event]) {
        let told = report(self.record.as_ref(), &self.health);
        let causes = self.causes(seen);
        let reasons: Vec<&str> = told.faults.iter().map(|fault| fault.reason.as_str()).collect();
        assert_eq!(reasons, causes.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), "{course:?}");
        assert_eq!(told.fault.as_ref(), told.faults.first(), "{course:?}");
        let duty = told.duty.map(|duty| duty.reason);
        let beside = causes.iter().find(|(reason, _)| !badness(reason).1);
        assert_eq!(duty.as_deref(), beside.map(|(reason, _)| *reason), "{course:?}");
        let headline = causes.first();
        let is_done =
            headline.is_none() && self.record.is_none() && self.health.desired == self.health.current;
        let expected = match headline.map(|(reason, _)| badness(reason).0) {
            Some(FaultClass::Unreconcilable) => NodeState::Unreconcilable,
            Some(_) => NodeState::Degraded,
            None if is_done => NodeState::Done,
            None => NodeState::Working,
        };
        assert_eq!(told.state, expected, "{course:?}");
        let at = |seconds: u64| Timestamp::from_micros(seconds * SECOND).to_string();
        // A start is no new state: it stays that of the commit.
        let since = headline.map(|(_, at)| *at).or(is_done.then_some(seen.rests));
        assert!(since.is_none_or(|since| told.since == at(since)), "{course:?}: {} {since:?}", told.since);
        assert_eq!(told.desired_config, self.health.desired.as_ref().map(|desired| desired.config.clone()));
    }
}

const SECOND: u64 = 1_000_000;

fn toggle(input: &mut Option<Fault>, reason: &str) {
    *input = if input.is_some() { None } else { Some(fault(reason)) };
}

/// Issue 33: after each course of up to four events.
#[test]
fn open_causes_are_told_worst_first_with_their_times() {
    let made = UpdateFixture::with_files();
    let mut courses = vec![Vec::new()];
    for _ in 0..4 {
        let mut longer = Vec::new();
        for course in &courses {
            for event in EVENTS {
                let course = [&course[..], &[event]].concat();
                let (mut node, mut seen) = (Node::new(&made), Seen::default());
                if course.iter().all(|event| node.lives(*event, &mut seen)) {
                    node.check(&seen, &course);
                    longer.push(course);
                }
            }
        }
        courses = longer;
    }
}
