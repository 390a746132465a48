//! A small model of what a person reads: for each combination of record, causes and state of the agent an oracle computes the headline,
//! the lines and the document; what `status` shows has to be the same.

use serde_json::{Value, json};

use super::agent::AgentStatus;
use super::tests::{alone_here, host_at};
use super::{Around, alone, status, text};
use crate::model::observation::ObservedOs;
use crate::model::os::Layers;
use crate::model::{ConfigName, FaultClass, Target, Timestamp};
use crate::report::{FaultTimes, LoopState, NodeReport, Unread, report};
use crate::update::{Fault, Record, Transition};

#[path = "../../../core/tests/support/update_fixtures.rs"]
mod update_fixtures;

use update_fixtures::UpdateFixture;

/// Time of the commit, of the record's fault, of the begin of the other causes, and now; in seconds.
const COMMITTED: u64 = 1_700_000_000;
const FAILED: u64 = COMMITTED + 1000;
const NOTICED: u64 = COMMITTED + 2000;
const NOW: u64 = COMMITTED + 2075;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// An input that may be wrong. The order is that of badness within a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Target,
    Config,
    Access,
    Settings,
    Policy,
    Proxies,
    Trust,
}

const INPUTS: [(Input, &str, FaultClass); 7] = [
    (Input::Target, "InvalidImage", FaultClass::Degraded),
    (Input::Config, "FailedToReconcile", FaultClass::Unreconcilable),
    (Input::Access, "CredentialsUnusable", FaultClass::Retry),
    (Input::Settings, "SettingsInvalid", FaultClass::Degraded),
    (Input::Policy, "InvalidDocument", FaultClass::Degraded),
    (Input::Proxies, "ProxyFileUnusable", FaultClass::Retry),
    (Input::Trust, "CertificatesNotWritten", FaultClass::Retry),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    None,
    Applying,
    /// Failed, rolled back, and held.
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    Runs,
    Dead,
    Starts,
    GoesDown,
    /// Nobody expects one.
    None,
}

fn fault(reason: &str, class: FaultClass) -> Fault {
    let text = |text: &str| format!("{text} of {reason}");
    Fault { class, reason: reason.to_owned(), message: text("cause"), next: text("step") }
}

/// A node in one state of the model.
struct Node {
    record: Option<Record>,
    health: LoopState,
    agent: Agent,
}

impl Node {
    fn new(made: &UpdateFixture, update: Update, wrong: &[Input], agent: Agent) -> Self {
        let target = if update == Update::None { made.from.target() } else { made.to.target() };
        let current = Some(made.from.target());
        let mut health =
            LoopState { current, desired: Some(target), since: at(COMMITTED), ..LoopState::default() };
        for (input, reason, class) in INPUTS.iter().filter(|(input, ..)| wrong.contains(input)) {
            let fault = Some(fault(reason, *class));
            match input {
                Input::Target => {
                    health.refused = fault;
                    let named = ConfigName::new("rendered-refused").unwrap();
                    health.refused_target = Some(Target::new(named, None));
                }
                Input::Config => health.fault = fault,
                Input::Access => health.unread = fault.map(Unread::Refused),
                Input::Settings => health.settings = fault,
                Input::Policy => health.policy = fault,
                Input::Proxies => health.proxies = fault,
                Input::Trust => health.duty = fault,
            }
        }
        let record = (update != Update::None).then(|| {
            let record = made.record().moved(&Transition::Apply { first: 0 }, at(COMMITTED)).unwrap();
            if update == Update::Applying {
                return record;
            }
            let mut record = record.moved(&Transition::RollBack, at(FAILED)).unwrap();
            record.blame(fault("JobFailed", FaultClass::Degraded), at(FAILED));
            while !record.is_undone() {
                record = record.moved(&Transition::UndoDone, at(FAILED)).unwrap();
            }
            record
        });
        FaultTimes::default().date(record.as_ref(), &mut health, at(NOTICED));
        Self { record, health, agent }
    }

    fn agent_status(&self) -> AgentStatus {
        let none = alone_here().agent;
        match self.agent {
            Agent::Runs => AgentStatus { running: Some(true), expected: true, ..none },
            Agent::Dead => AgentStatus { running: Some(false), expected: true, ..none },
            Agent::Starts => AgentStatus { running: Some(false), expected: true, starts: true, ..none },
            Agent::GoesDown => AgentStatus { running: Some(false), expected: true, goes_down: true, ..none },
            Agent::None => AgentStatus { running: Some(false), ..none },
        }
    }

    fn report(&self) -> NodeReport {
        let report = report(self.record.as_ref(), &self.health);
        let agent = self.agent_status();
        if agent.running == Some(true) { report } else { alone(report, self.record.as_ref(), &agent) }
    }
}

/// The oracle's causes: reason, class, begin.
fn causes(update: Update, wrong: &[Input], agent: Agent) -> Vec<(&'static str, FaultClass, Option<u64>)> {
    let is_refused = wrong.contains(&Input::Target);
    // What no target is given for any more comes last.
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (input, reason, class) in INPUTS.iter().filter(|(input, ..)| wrong.contains(input)) {
        match input {
            Input::Access if update != Update::None => {}
            Input::Config if is_refused => last.push((*reason, *class, Some(NOTICED))),
            Input::Target
            | Input::Config
            | Input::Access
            | Input::Settings
            | Input::Policy
            | Input::Proxies
            | Input::Trust => first.push((*input, *reason, *class)),
        }
    }
    // Of what no update waits for nothing is newer than another: the last one noticed comes first.
    first.sort_by_key(|(input, _, class)| {
        let order = INPUTS.iter().position(|(other, ..)| other == input).unwrap();
        let is_beside = order > 2;
        // The trust is noticed before the others.
        let newness = if *input == Input::Trust { 3 } else { order + 1 };
        (std::cmp::Reverse(*class), is_beside, std::cmp::Reverse(newness))
    });
    let mut all: Vec<_> =
        first.into_iter().map(|(_, reason, class)| (reason, class, Some(NOTICED))).collect();
    let put = |all: &mut Vec<_>, cause: (&'static str, FaultClass, Option<u64>), is_first: bool| {
        let behind = |other: &(&'static str, FaultClass, Option<u64>)| {
            if is_first {
                other.1 <= cause.1
            } else {
                other.1 < cause.1 || is_beside(other.0) && other.1 == cause.1
            }
        };
        let at = all.iter().position(behind).unwrap_or(all.len());
        all.insert(at, cause);
    };
    if update == Update::Held {
        let failed = ("JobFailed", FaultClass::Degraded, Some(FAILED));
        if is_refused {
            last.push(failed);
        } else {
            put(&mut all, failed, false);
        }
        last.sort_by_key(|(_, class, _)| std::cmp::Reverse(*class));
    }
    all.extend(last);
    if agent == Agent::Dead || (agent == Agent::None && update == Update::Applying && all.is_empty()) {
        put(&mut all, ("AgentNotRunning", FaultClass::Degraded, None), true);
    }
    all
}

fn is_beside(reason: &str) -> bool {
    INPUTS.iter().skip(3).any(|(_, other, _)| *other == reason)
}

/// Computes the state that a person reads.
fn state(update: Update, causes: &[(&str, FaultClass, Option<u64>)], agent: Agent) -> &'static str {
    match (causes.first(), update) {
        (Some((_, FaultClass::Unreconcilable, _)), _) => "Unreconcilable",
        (Some(_), _) => "Degraded",
        (None, Update::None) if !matches!(agent, Agent::Starts | Agent::GoesDown) => "Done",
        (None, _) => "Working",
    }
}

fn check(made: &UpdateFixture, update: Update, wrong: &[Input], agent: Agent) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::new(made, update, wrong, agent);
    let around = Around { agent: node.agent_status(), ..alone_here() };
    let shown =
        status(node.report(), &ObservedOs::NotImageBased, &host_at(dir.path()), &Layers::default(), around);
    let causes = causes(update, wrong, agent);
    let why = format!("{update:?} {wrong:?} {agent:?}");
    let state = state(update, &causes, agent);
    let since = match causes.first() {
        Some((_, _, since)) => since.map(|since| at(since).to_string()),
        None => Some(at(COMMITTED).to_string()),
    };
    let document = serde_json::to_value(&shown).unwrap();
    assert_eq!(document["state"], state, "{why}");
    assert_eq!(document["since"], json!(since), "{why}");
    let reasons = |list: &Value| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.map(|one| one["reason"].as_str().unwrap().to_owned()).collect()
    };
    let expected: Vec<&str> = causes.iter().map(|(reason, ..)| *reason).collect();
    assert_eq!(reasons(&document["faults"]), expected, "{why}");
    assert_eq!(document["fault"], document["faults"].get(0).cloned().unwrap_or_default(), "{why}");
    assert_eq!(document["duty"], document["faults"].get(1).cloned().unwrap_or_default(), "{why}");
    let named = match (wrong.contains(&Input::Target), update) {
        (true, _) => "rendered-refused",
        (false, Update::None) => "rendered-worker-a",
        (false, _) => "rendered-worker-b",
    };
    assert_eq!(document["desired"]["config"], named, "{why}");
    read(&text::text(&shown, Some(at(NOW))), (state, since.as_deref()), &causes, &why);
    let is_held = update == Update::Held;
    assert_eq!(document["held"]["isRolledBack"], if is_held { json!(true) } else { Value::Null }, "{why}");
    assert_eq!(text::text(&shown, None).contains("rolled back and held; it ends with"), is_held, "{why}");
}

/// Holds the lines against the oracle.
fn read(
    text: &str,
    (state, since): (&str, Option<&str>),
    causes: &[(&str, FaultClass, Option<u64>)],
    why: &str,
) {
    let head = text.lines().next().unwrap();
    let since = since.map(|since| format!(", since {since}")).unwrap_or_default();
    assert_eq!(head, format!("Node  is {state}{since}"), "{why}: {text}");
    let of = |label: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(label)).map(str::to_owned).collect()
    };
    let told = of("  why      ");
    let next = of("  next     ");
    assert_eq!((told.len(), next.len()), (causes.len(), causes.len()), "{why}: {text}");
    for ((reason, ..), line) in causes.iter().zip(&told) {
        assert!(line.starts_with(&format!("{reason}: ")), "{why}: {line}");
    }
}

/// Issue 33: for each record, input and state of the agent.
#[test]
fn status_shows_what_oracle_computes() {
    let made = UpdateFixture::with_files();
    for update in [Update::None, Update::Applying, Update::Held] {
        for agent in [Agent::Runs, Agent::Dead, Agent::Starts, Agent::GoesDown, Agent::None] {
            for set in 0_u32..1 << INPUTS.len() {
                let wrong: Vec<Input> =
                    (0..).zip(INPUTS).filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, one)| one.0).collect();
                check(&made, update, &wrong, agent);
            }
        }
    }
}

/// Work before an update, and its duration.
#[test]
fn work_is_told_with_its_duration() {
    let made = UpdateFixture::with_files();
    let mut node = Node::new(&made, Update::None, &[], Agent::Runs);
    node.health.doing = Some("inspects image a".to_owned());
    node.health.doing_since = Some(at(NOW - 12));
    let dir = tempfile::tempdir().unwrap();
    let around = Around { agent: node.agent_status(), ..alone_here() };
    let shown =
        status(node.report(), &ObservedOs::NotImageBased, &host_at(dir.path()), &Layers::default(), around);
    let text = text::text(&shown, Some(at(NOW)));
    assert!(text.lines().any(|line| line == "  doing    inspects image a, for 12 s"), "{text}");
}
