//! One test row per row of the report table (`model-codebases.md` D5): the state and the conditions of each phase.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod made;

use machine_config_agent::model::{BootId, Class, Timestamp};
use machine_config_agent::report::{Health, NodeReport, REASON_LIMIT, State, Status, report};
use machine_config_agent::update::{Event, Fault, Record};

use made::Made;

fn told(record: Option<&Record>, made: &Made) -> NodeReport {
    let health = Health {
        node: "worker-0".to_owned(),
        committed: Some(made.from.target()),
        wanted: Some(made.to.target()),
        ..Health::default()
    };
    report(record, &health)
}

fn status(report: &NodeReport, kind: &str) -> Option<Status> {
    report.conditions.iter().find(|condition| condition.kind == kind).map(|condition| condition.status)
}

fn events() -> Vec<(Event, &'static str, &'static str)> {
    let boot_id = BootId::new("boot-1").unwrap();
    vec![
        (Event::Stage, "Staging", "ImagePulledFromRegistry"),
        (Event::Drain, "Draining", "Drained"),
        (Event::Apply { first: 1 }, "Applying", "AppliedFiles"),
        (Event::Reboot { boot_id }, "Rebooting", "RebootedNode"),
    ]
}

#[test]
fn each_phase_moves_its_condition() {
    let made = Made::with_image();
    let mut record = made.record();
    let planned = told(Some(&record), &made);
    assert_eq!((planned.state, planned.phase.as_str()), (State::Working, "Planned"));
    assert_eq!(status(&planned, "UpdatePrepared"), Some(Status::Unknown));
    let mut passed = vec!["UpdatePrepared"];
    for (event, phase, under_way) in events() {
        record = record.moved(&event, Timestamp::default()).unwrap();
        let report = told(Some(&record), &made);
        assert_eq!((report.state, report.phase.as_str()), (State::Working, phase));
        assert_eq!(status(&report, under_way), Some(Status::Unknown), "{phase}");
        for kind in &passed {
            assert_eq!(status(&report, kind), Some(Status::True), "{kind} in {phase}");
        }
        assert_eq!(status(&report, "Updated"), Some(Status::False));
        assert_eq!(status(&report, "NodeDegraded"), Some(Status::False));
        passed.push(under_way);
    }
}

#[test]
fn the_class_of_a_fault_alone_makes_the_state() {
    let made = Made::with_files();
    let rows = [
        (Class::Retry, State::Degraded),
        (Class::Degraded, State::Degraded),
        (Class::Fatal, State::Degraded),
        (Class::Unreconcilable, State::Unreconcilable),
    ];
    for (class, state) in rows {
        let mut record = made.record();
        let message = "x".repeat(5000);
        record.fault = Some(Fault { class, reason: "Why".to_owned(), message, next: "do this".to_owned() });
        let report = told(Some(&record), &made);
        assert_eq!(report.state, state);
        assert_eq!(report.reason.chars().count(), REASON_LIMIT);
        assert_eq!(status(&report, "NodeDegraded"), Some(Status::True));
    }
}

#[test]
fn done_is_said_only_of_what_is_committed_and_wanted() {
    let made = Made::with_files();
    let working = told(None, &made);
    assert_eq!(working.state, State::Working);
    let health =
        Health { committed: Some(made.to.target()), wanted: Some(made.to.target()), ..Health::default() };
    let done = report(None, &health);
    assert_eq!((done.state, done.reason.as_str(), done.phase.as_str()), (State::Done, "", "Idle"));
    assert_eq!(status(&done, "Updated"), Some(Status::True));
    let never = report(None, &Health::default());
    assert_eq!(never.state, State::Working);
    let json = serde_json::to_value(&done).unwrap();
    for key in
        ["schemaVersion", "node", "state", "reason", "currentConfig", "desiredConfig", "phase", "conditions"]
    {
        assert!(json.get(key).is_some(), "{key}");
    }
}

#[test]
fn an_undone_update_is_idle_and_degraded() {
    let made = Made::with_files();
    let mut record = made.record().moved(&Event::Apply { first: 0 }, Timestamp::default()).unwrap();
    let (reason, message) = ("DiskFull".to_owned(), "can't write /etc/motd".to_owned());
    record.fault = Some(Fault { class: Class::Retry, reason, message, next: "free space".to_owned() });
    record = record.moved(&Event::RollBack, Timestamp::default()).unwrap();
    assert_eq!(told(Some(&record), &made).phase, "RollingBack");
    while !record.is_undone() {
        record = record.moved(&Event::UndoDone, Timestamp::default()).unwrap();
    }
    let report = told(Some(&record), &made);
    assert_eq!((report.phase.as_str(), report.state), ("Idle", State::Degraded));
    assert!(report.reason.contains("can't write /etc/motd") && report.reason.contains("free space"));
    assert_eq!(report.current_config, Some(made.from.name.clone()));
}
