//! One test row per row of the report table (docs/reference.md): the state and the conditions of each phase.

use machine_config_core::model::{BootId, FaultClass, NotApplied, NotAppliedReason, Timestamp};
use machine_config_core::report::{
    CONDITIONS, LoopState, MAX_REASON_LENGTH, NodeReport, NodeState, Status, Unread, report,
};
use machine_config_core::update::{Fault, Record, Transition};

use crate::update_fixtures::UpdateFixture;

fn reported(record: Option<&Record>, made: &UpdateFixture) -> NodeReport {
    let health = LoopState {
        node: "worker-0".to_owned(),
        current: Some(made.from.target()),
        desired: Some(made.to.target()),
        ..LoopState::default()
    };
    report(record, &health)
}

fn status(report: &NodeReport, kind: &str) -> Option<Status> {
    report.conditions.iter().find(|condition| condition.kind == kind).map(|condition| condition.status)
}

fn reason(report: &NodeReport, kind: &str) -> String {
    report.conditions.iter().find(|condition| condition.kind == kind).unwrap().reason.clone()
}

/// An event, the phase it leads to, the condition under way then, and those done by then.
fn events() -> Vec<(Transition, &'static str, &'static [&'static str], &'static [&'static str])> {
    let boot_id = BootId::new("boot-1").unwrap();
    let content = &["AppliedFiles", "AppliedOSImage"];
    vec![
        (Transition::Stage, "Staging", &["ImagePulledFromRegistry"], &["UpdatePrepared"]),
        (Transition::Drain, "Draining", &["Drained", "UpdateExecuted"], &["ImagePulledFromRegistry"]),
        (Transition::Apply { first: 1 }, "Applying", content, &["Drained"]),
        (
            Transition::BatchDone,
            "Applying",
            &["UpdatePostActionComplete"],
            &["UpdateExecuted", "AppliedFiles"],
        ),
        (Transition::Reboot { boot_id }, "Rebooting", &["RebootedNode"], &["AppliedOSImage"]),
        (Transition::Verify, "Verifying", &[], &["UpdatePostActionComplete", "RebootedNode"]),
    ]
}

/// MCN-002, MCD-247: each phase moves its conditions, and what was reached stays reached.
#[test]
fn each_phase_moves_its_condition() {
    let made = UpdateFixture::with_image();
    let mut record = made.record();
    let planned = reported(Some(&record), &made);
    assert_eq!((planned.state, planned.phase.as_str()), (NodeState::Working, "Planned"));
    assert_eq!(status(&planned, "UpdatePrepared"), Some(Status::True));
    assert_eq!(planned.conditions.len(), 13);
    let mut passed: Vec<&str> = vec![];
    for (event, phase, under_way, done) in events() {
        record = record.moved(&event, Timestamp::default()).unwrap();
        let report = reported(Some(&record), &made);
        assert_eq!((report.state, report.phase.as_str()), (NodeState::Working, phase));
        for kind in under_way {
            assert_eq!(status(&report, kind), Some(Status::Unknown), "{kind} in {phase}");
        }
        passed.extend(done);
        for kind in &passed {
            assert_eq!(status(&report, kind), Some(Status::True), "{kind} in {phase}");
        }
        assert_eq!(status(&report, "Updated"), Some(Status::False));
        assert_eq!(status(&report, "NodeDegraded"), Some(Status::False));
        for condition in &report.conditions {
            assert!(CONDITIONS.iter().any(|(kind, _)| *kind == condition.kind), "{}", condition.kind);
        }
    }
}

/// A node that goes back to its previous deployment is Degraded, and comes up again.
#[test]
fn falling_back_is_reported_with_its_cause() {
    let made = UpdateFixture::with_image();
    let mut record = made.record();
    for (event, ..) in events() {
        record = record.moved(&event, Timestamp::default()).unwrap();
    }
    record.fault = Some(Fault {
        class: FaultClass::Degraded,
        reason: "HealthCheckFailed".to_owned(),
        message: "kubelet.service is failed".to_owned(),
        next: "see its journal".to_owned(),
    });
    record = record
        .moved(&Transition::FallBack { boot_id: BootId::new("boot-2").unwrap() }, Timestamp::default())
        .unwrap();
    let report = reported(Some(&record), &made);
    assert_eq!((report.state, report.phase.as_str()), (NodeState::Degraded, "FallingBack"));
    assert_eq!(reason(&report, "NodeDegraded"), "HealthCheckFailed");
    assert_eq!(status(&report, "RebootedNode"), Some(Status::Unknown));
    let rebooted = report.conditions.iter().find(|condition| condition.kind == "RebootedNode").unwrap();
    assert!(rebooted.message.contains("kubelet.service is failed"), "{}", rebooted.message);
}

/// MCD-247: a child's reason names its parent too, a parent's the child it stands at.
#[test]
fn reasons_are_those_of_mcd() {
    let made = UpdateFixture::with_image();
    let mut record = made.record();
    let rows = [
        (Transition::Stage, "UpdatePrepared", "UpdatePrepared"),
        (Transition::Drain, "UpdateExecuted", "Drained"),
        (Transition::Apply { first: 1 }, "Drained", "UpdateExecutedDrained"),
        (Transition::BatchDone, "AppliedFiles", "UpdateExecutedAppliedFiles"),
        (
            Transition::Reboot { boot_id: BootId::new("b").unwrap() },
            "UpdatePostActionComplete",
            "RebootedNode",
        ),
        (Transition::Verify, "RebootedNode", "UpdatePostActionCompleteRebootedNode"),
    ];
    for (event, kind, expected) in rows {
        record = record.moved(&event, Timestamp::default()).unwrap();
        assert_eq!(reason(&reported(Some(&record), &made), kind), expected);
    }
    assert_eq!(reason(&reported(Some(&record), &made), "Resumed"), "NotYetOccurred");
}

/// An update without a drain reports that, and an undone one is neither done nor left alone.
#[test]
fn conditions_of_undrained_and_undone_updates() {
    let made = UpdateFixture::with_files();
    let record = made.record().moved(&Transition::Apply { first: 0 }, Timestamp::default()).unwrap();
    let report = reported(Some(&record), &made);
    assert_eq!(status(&report, "Drained"), Some(Status::False));
    assert_eq!(reason(&report, "Drained"), "UpdateExecutedDrained");
    let mut undone = record.moved(&Transition::RollBack, Timestamp::default()).unwrap();
    undone.fault = Some(Fault {
        class: FaultClass::Retry,
        reason: "DiskFull".to_owned(),
        message: "can't write /etc/motd".to_owned(),
        next: "free space".to_owned(),
    });
    let report = reported(Some(&undone), &made);
    assert_eq!(status(&report, "UpdatePrepared"), Some(Status::True));
    assert_eq!(status(&report, "AppliedFiles"), Some(Status::Unknown));
    assert_eq!(status(&report, "UpdateExecuted"), Some(Status::Unknown));
    let applied = report.conditions.iter().find(|condition| condition.kind == "AppliedFiles").unwrap();
    assert!(applied.message.contains("can't write /etc/motd"), "{}", applied.message);
    // MCN-006
    let degraded = report.conditions.iter().find(|condition| condition.kind == "NodeDegraded").unwrap();
    assert_eq!((degraded.status, degraded.reason.as_str()), (Status::True, "DiskFull"));
    assert_eq!(degraded.message, report.reason);
}

/// MCD-250: a target without a plan is not prepared; a committed update resumes before it is complete.
/// A field that is not applied is told of the update under way, else of the current config; the message is bounded.
#[test]
fn fields_not_applied_are_condition_and_part_of_report() {
    let made = UpdateFixture::with_files();
    let field = |at: usize| {
        let message = "no reader knows it; remove it".to_owned();
        NotApplied::new(format!("spec.field{at}"), NotAppliedReason::UnknownField, message)
    };
    let mut health = LoopState { not_applied: vec![field(1)], ..LoopState::default() };
    let idle = report(None, &health);
    assert_eq!(idle.not_applied, health.not_applied);
    assert_eq!(status(&idle, "FieldsNotApplied"), Some(Status::True));
    assert_eq!(reason(&idle, "FieldsNotApplied"), "UnknownField");
    let message = |report: &NodeReport| {
        let condition = report.conditions.iter().find(|condition| condition.kind == "FieldsNotApplied");
        condition.unwrap().message.clone()
    };
    assert_eq!(message(&idle), "spec.field1: no reader knows it; remove it");
    // The update under way applies each field.
    let updating = report(Some(&made.record()), &health);
    assert_eq!((updating.not_applied.len(), status(&updating, "FieldsNotApplied")), (0, Some(Status::False)));
    health.not_applied = (0..200).map(field).collect();
    let text = message(&report(None, &health));
    assert!(text.chars().count() <= MAX_REASON_LENGTH, "{text}");
    let (named, more) = text.rsplit_once("; and ").unwrap();
    let more: usize = more.strip_suffix(" more").unwrap().parse().unwrap();
    assert_eq!(
        (named.matches("spec.field").count() + more, named.ends_with("; remove it")),
        (200, true),
        "{text}"
    );
}

#[test]
fn report_without_update() {
    let made = UpdateFixture::with_files();
    let mut health = LoopState {
        current: Some(made.from.target()),
        desired: Some(made.to.target()),
        fault: Some(Fault {
            class: FaultClass::Unreconcilable,
            reason: "Unreconcilable".to_owned(),
            message: "no".to_owned(),
            next: "change it".to_owned(),
        }),
        ..LoopState::default()
    };
    let refused = report(None, &health);
    assert_eq!(status(&refused, "UpdatePrepared"), Some(Status::Unknown));
    assert_eq!(status(&refused, "NodeDegraded"), Some(Status::True));
    health.fault = None;
    assert_eq!(report(None, &health).conditions.len(), 3, "what was told of the update stays as it was told");
    health.current.clone_from(&health.desired);
    health.waiting = Some("the answer".to_owned());
    let waiting = report(None, &health);
    assert_eq!(status(&waiting, "Resumed"), Some(Status::True));
    assert_eq!(status(&waiting, "UpdateComplete"), Some(Status::Unknown));
    assert_eq!(status(&waiting, "Updated"), Some(Status::False));
}

#[test]
fn class_of_fault_alone_makes_state() {
    let made = UpdateFixture::with_files();
    let rows = [
        (FaultClass::Retry, NodeState::Degraded),
        (FaultClass::Degraded, NodeState::Degraded),
        (FaultClass::Fatal, NodeState::Degraded),
        (FaultClass::Unreconcilable, NodeState::Unreconcilable),
    ];
    for (class, state) in rows {
        let mut record = made.record();
        let message = "x".repeat(5000);
        record.fault = Some(Fault { class, reason: "Why".to_owned(), message, next: "do this".to_owned() });
        let report = reported(Some(&record), &made);
        assert_eq!(report.state, state);
        assert_eq!(report.reason.chars().count(), MAX_REASON_LENGTH);
        assert_eq!(status(&report, "NodeDegraded"), Some(Status::True));
    }
}

#[test]
fn done_requires_current_equals_desired() {
    let made = UpdateFixture::with_files();
    let working = reported(None, &made);
    assert_eq!(working.state, NodeState::Working);
    let health = LoopState {
        current: Some(made.to.target()),
        desired: Some(made.to.target()),
        ..LoopState::default()
    };
    let done = report(None, &health);
    assert_eq!((done.state, done.reason.as_str(), done.phase.as_str()), (NodeState::Done, "", "Idle"));
    assert_eq!(status(&done, "Updated"), Some(Status::True));
    let never = report(None, &LoopState::default());
    assert_eq!(never.state, NodeState::Working);
    let json = serde_json::to_value(&done).unwrap();
    for key in
        ["schemaVersion", "node", "state", "reason", "currentConfig", "desiredConfig", "phase", "conditions"]
    {
        assert!(json.get(key).is_some(), "{key}");
    }
}

/// Issue 33: while a block of the reboot alone is open, the phase is that of the reboot.
#[test]
fn awaited_reboot_is_its_own_phase() {
    let made = UpdateFixture::with_image();
    let mut record = made.record();
    record.phase = machine_config_core::update::Phase::Applying { next: record.plan.batches().len() };
    record.since = Timestamp::from_micros(7_000_000);
    assert_eq!(reported(Some(&record), &made).phase, "Applying");
    record.waiting = Some("the reboot, which is blocked by a person".to_owned());
    let blocked = reported(Some(&record), &made);
    assert_eq!((blocked.state, blocked.phase.as_str()), (NodeState::Working, "Rebooting"));
    assert_eq!(blocked.since, record.since.to_string());
}

/// Issue 33: a node that never read what is desired is not done, whatever is committed.
#[test]
fn node_that_never_read_its_target_is_not_done() {
    let made = UpdateFixture::with_files();
    let awaited = Unread::Awaited("the API server at https://api.test: refused".to_owned());
    let mut health =
        LoopState { current: Some(made.to.target()), unread: Some(awaited), ..LoopState::default() };
    let waits = report(None, &health);
    assert_eq!((waits.state, waits.fault.clone()), (NodeState::Working, None));
    assert_eq!(waits.waiting.as_deref(), Some("the API server at https://api.test: refused"));
    let fault = Fault {
        class: FaultClass::Retry,
        reason: "CredentialsUnusable".to_owned(),
        message: "kubeconfig can't be used".to_owned(),
        next: "Correct it.".to_owned(),
    };
    health.unread = Some(Unread::Refused(fault.clone()));
    let refused = report(None, &health);
    assert_eq!((refused.state, refused.fault.as_ref()), (NodeState::Degraded, Some(&fault)));
    // An open update goes on.
    assert_eq!(report(Some(&made.record()), &health).state, NodeState::Working);
}

#[test]
fn undone_update_is_idle_and_degraded() {
    let made = UpdateFixture::with_files();
    let mut record = made.record().moved(&Transition::Apply { first: 0 }, Timestamp::default()).unwrap();
    let (reason, message) = ("DiskFull".to_owned(), "can't write /etc/motd".to_owned());
    record.fault = Some(Fault { class: FaultClass::Retry, reason, message, next: "free space".to_owned() });
    record = record.moved(&Transition::RollBack, Timestamp::default()).unwrap();
    assert_eq!(reported(Some(&record), &made).phase, "RollingBack");
    while !record.is_undone() {
        record = record.moved(&Transition::UndoDone, Timestamp::default()).unwrap();
    }
    let report = reported(Some(&record), &made);
    assert_eq!((report.phase.as_str(), report.state), ("Idle", NodeState::Degraded));
    assert!(report.reason.contains("can't write /etc/motd") && report.reason.contains("free space"));
    assert_eq!(report.current_config, Some(made.from.name.clone()));
}

/// W-21: a reconciler's fault is the node's where nothing else is wrong, and does not affect the conditions of the target.
#[test]
fn failed_reconciler_is_no_failed_update() {
    let made = UpdateFixture::with_image();
    let duty = Fault {
        class: FaultClass::Retry,
        reason: "CertificatesNotWritten".to_owned(),
        message: "no space".to_owned(),
        next: "Free space.".to_owned(),
    };
    let committed = Some(made.to.target());
    let mut health = LoopState {
        current: committed.clone(),
        desired: committed,
        duty: Some(duty),
        ..LoopState::default()
    };
    let at_rest = report(None, &health);
    assert_eq!(at_rest.state, NodeState::Degraded);
    assert!(at_rest.reason.starts_with("CertificatesNotWritten: no space"), "{}", at_rest.reason);
    assert_eq!(status(&at_rest, "NodeDegraded"), Some(Status::True));
    assert_eq!(status(&at_rest, "UpdatePrepared"), None);
    let record = made.record().moved(&Transition::Stage, Timestamp::default()).unwrap();
    let under_way = report(Some(&record), &health);
    assert_eq!(under_way.state, NodeState::Degraded);
    assert!(
        under_way
            .conditions
            .iter()
            .all(|condition| { condition.kind == "NodeDegraded" || !condition.message.contains("no space") })
    );
    health.duty = None;
    assert_eq!(report(None, &health).state, NodeState::Done);
}
