//! The resume table: one row per phase and observation, those of staging, a superseded target and the loop breaker included.

use machine_config_core::decide::ahead::Ahead;
use machine_config_core::model::node_settings::{HealthRules, RollBack};
use machine_config_core::model::observation::LocalPackages;
use machine_config_core::model::observation::{BootCount, Booted, EmbeddedConfig, Finalization, ObservedOs};
use machine_config_core::model::{BootId, FaultClass, Observation, Target, Timestamp};
use machine_config_core::plan::Undo;
use machine_config_core::plan::differences::{Difference, DifferenceKind, Kind};
use machine_config_core::update::resume::{
    OLD_BOOTS, REBOOT_TRIES, WRONG_BOOTS, can_take_back, held, is_on_trial, is_unproven, not_fallen_back,
    recovery_transition, runs_another, unproven,
};
use machine_config_core::update::{
    Decision, Phase, Record, Transition, Trial, after_verification, not_finalized, resume,
};

use crate::update_fixtures::{self, NEW, OLD, UpdateFixture};

/// Moves a fresh record along the events.
pub(crate) fn record(made: &UpdateFixture, events: &[Transition]) -> Record {
    let mut record = made.record();
    for event in events {
        record = record.moved(event, Timestamp::default()).unwrap();
    }
    record
}

pub(crate) fn boot(id: &str) -> BootId {
    BootId::new(id).unwrap()
}

pub(crate) fn reboot() -> Transition {
    Transition::Reboot { boot_id: boot("boot-1") }
}

/// Observation in a boot that runs the given image.
pub(crate) fn observation(made: &UpdateFixture, boot_id: &str, image: &str, deployment: &str) -> Observation {
    let image = Some(machine_config_core::model::ImageRef::parse(image).unwrap());
    let booted = Booted {
        image,
        deployment: deployment.to_owned(),
        carries: EmbeddedConfig::Unknown,
        local: LocalPackages::default(),
    };
    let os = ObservedOs::Deployments { booted, staged: None, next: None };
    Observation { boot_id: boot(boot_id), os, ..made.observed.clone() }
}

pub(crate) fn ask(record: &Record, observed: &Observation, desired: &Target) -> Decision {
    resume(Some(record), record.from.as_ref(), observed, Some(desired))
}

/// MCD-220: a target that changed during the reboot is begun; the workload is let back only by `Watch`, when all is as desired.
#[test]
fn without_record_target_alone_decides() {
    let made = UpdateFixture::with_image();
    let here = observation(&made, "boot-1", OLD, "origin");
    let (old, new) = (made.from.target(), made.to.target());
    assert_eq!(resume(None, Some(&old), &here, Some(&old)), Decision::Idle);
    assert_eq!(resume(None, Some(&old), &here, None), Decision::Idle);
    assert_eq!(resume(None, Some(&old), &here, Some(&new)), Decision::Begin);
    assert_eq!(resume(None, None, &here, Some(&new)), Decision::Begin);
    assert_eq!(resume(None, None, &here, None), Decision::Idle);
}

/// Controllers compare the reported image with the desired one byte by byte: a tag that comes or goes is committed.
#[test]
fn tag_of_same_image_is_another_text_to_commit() {
    let made = UpdateFixture::with_image();
    let there = observation(&made, "boot-1", NEW, "new");
    let plain = made.to.target();
    let image = machine_config_core::model::ImageRef::parse(&NEW.replace('@', ":4.17@")).unwrap();
    let tagged = Target { image: Some(image), ..plain.clone() };
    assert_eq!(resume(None, Some(&plain), &there, Some(&tagged)), Decision::Begin);
    assert_eq!(resume(None, Some(&tagged), &there, Some(&tagged)), Decision::Idle);
}

#[test]
fn record_with_current_target_only_has_to_end() {
    let made = UpdateFixture::with_image();
    let record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot(), Transition::Verify]);
    let there = observation(&made, "boot-2", NEW, "new");
    let new = made.to.target();
    for desired in [None, Some(&new), Some(&UpdateFixture::other())] {
        assert_eq!(resume(Some(&record), Some(&new), &there, desired), Decision::Commit);
    }
}

#[test]
fn before_reboot_update_continues_or_is_superseded() {
    let made = UpdateFixture::with_image();
    let here = observation(&made, "boot-1", OLD, "origin");
    let (new, other) = (made.to.target(), UpdateFixture::other());
    let apply = Transition::Apply { first: 1 };
    let rows: [(&[Transition], Decision); 4] = [
        (&[], Decision::Continue),
        (&[Transition::Stage], Decision::Continue),
        (&[Transition::Stage, Transition::Drain], Decision::Continue),
        (&[Transition::Stage, apply.clone()], Decision::Continue),
    ];
    for (events, expected) in rows {
        let record = record(&made, events);
        assert_eq!(ask(&record, &here, &new), expected, "{events:?}");
        assert_eq!(ask(&record, &here, &other), Decision::Supersede, "{events:?}");
    }
}

/// An update that is given up in its own deployment, which a shutdown finalized early, is undone and archived as always. The node
/// runs another deployment than it began in then, also where only a half of it was staged: the next plan starts from there.
#[test]
fn update_is_given_up_in_its_own_deployment() {
    let made = UpdateFixture::with_image();
    let (new, other) = (made.to.target(), UpdateFixture::other());
    let apply = Transition::Apply { first: 1 };
    let here = observation(&made, "boot-1", OLD, "origin");
    let later = observation(&made, "boot-2", OLD, "origin");
    let early = observation(&made, "boot-2", NEW, "new");
    // The tooling staged a part of it: the image is still the old one.
    let half = observation(&made, "boot-2", OLD, "half");
    let rows: [(&[Transition], Decision); 3] = [
        (&[Transition::Stage], Decision::Continue),
        (&[Transition::Stage, Transition::Drain], Decision::Restage),
        (&[Transition::Stage, apply.clone()], Decision::Restage),
    ];
    for (events, with_same) in rows {
        let open = record(&made, events);
        for (observed, runs) in [(&here, false), (&later, false), (&early, true), (&half, true)] {
            assert_eq!(runs_another(&open, observed), runs, "{events:?}");
            assert_eq!(ask(&open, observed, &other), Decision::Supersede, "{events:?}");
            // A fault is taken back, too.
            assert!(can_take_back(&open, observed), "{events:?}");
        }
        assert_eq!(ask(&open, &early, &new), with_same, "{events:?}");
        let mut undone = open.moved(&Transition::RollBack, Timestamp::default()).unwrap();
        while !undone.is_undone() {
            assert_eq!(ask(&undone, &early, &other), Decision::Continue, "{events:?}");
            undone = undone.moved(&Transition::UndoDone, Timestamp::default()).unwrap();
        }
        assert_eq!(ask(&undone, &early, &other), Decision::Archive, "{events:?}");
        // What is asked of `plan` meanwhile.
        let committed = made.from.target();
        for target in [&other, &committed] {
            for (record, fate) in [(&open, Ahead::UndoneFirst), (&undone, Ahead::Nothing)] {
                let ahead = Ahead::of_open(record, Some(&committed), &early, target, false);
                assert_eq!(ahead, fate, "{events:?}");
                assert!(ahead.starts_from_observation(record, &early), "{events:?}");
                assert!(!ahead.starts_from_observation(record, &later), "{events:?}");
            }
        }
    }
    // Nothing of the OS is an update's of files.
    let files = record(&UpdateFixture::with_files(), &[Transition::Apply { first: 0 }]);
    assert!(!runs_another(&files, &early));
    // A node that falls back is on its way to the deployment before.
    let falls = record(&made, &[Transition::Stage, apply, reboot(), Transition::Verify]);
    let falls = falls.moved(&Transition::FallBack { boot_id: boot("boot-2") }, Timestamp::default()).unwrap();
    let ahead = Ahead::of_open(&falls, Some(&made.from.target()), &early, &other, false);
    assert_eq!(ahead, Ahead::UndoneFirst);
    assert!(!ahead.starts_from_observation(&falls, &early));
}

/// CRA-009: a manual reboot in the middle drops what was staged, and the update continues from there.
/// LCA-013: the boot loader went back, because the new deployment did not come up: it is not tried again.
#[test]
fn deployment_abandoned_by_boot_loader_is_not_retried() {
    let made = UpdateFixture::with_image();
    let record = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let mut back = observation(&made, "boot-2", OLD, "origin");
    assert_eq!(
        ask(&record, &back, &made.to.target()),
        Decision::Inquire,
        "nobody counts: it was not finalized"
    );
    back.boots = BootCount::Left(2);
    assert_eq!(
        ask(&record, &back, &made.to.target()),
        Decision::Inquire,
        "the loader booted what it was given"
    );
    back.boots = BootCount::FellBack;
    let Decision::Fault(fault) = ask(&record, &back, &made.to.target()) else { panic!("no fault") };
    assert_eq!((fault.reason.as_str(), fault.class), ("BootFailed", FaultClass::Degraded));
    assert!(can_take_back(&record, &back), "what was written before the reboot is undone");
    // The booted deployment decides, whatever a counter shows.
    let there = Observation { boots: BootCount::Left(2), ..observation(&made, "boot-2", NEW, "new") };
    assert_eq!(ask(&record, &there, &made.to.target()), Decision::Verify);
}

#[test]
fn another_boot_in_middle_stages_again() {
    let made = UpdateFixture::with_image();
    let there = observation(&made, "boot-2", OLD, "origin");
    for events in
        [vec![Transition::Stage, Transition::Drain], vec![Transition::Stage, Transition::Apply { first: 1 }]]
    {
        assert_eq!(ask(&record(&made, &events), &there, &made.to.target()), Decision::Restage);
    }
    let staging = record(&made, &[Transition::Stage]);
    assert_eq!(ask(&staging, &there, &made.to.target()), Decision::Continue);
    // Files outlive a boot: there is nothing to stage.
    let files = UpdateFixture::with_files();
    let applying = record(&files, &[Transition::Apply { first: 0 }]);
    assert_eq!(ask(&applying, &there, &files.to.target()), Decision::Continue);
}

/// CRA-009: a manual reboot when only the reboot is left is that reboot. The whole of it: `vm-tests/tests/reboot_by_hand.py`.
#[test]
fn reboot_manually_when_all_is_done_is_updates_own() {
    let made = UpdateFixture::with_image();
    let (new, other) = (made.to.target(), UpdateFixture::other());
    let mut all = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }]);
    let there = observation(&made, "boot-2", NEW, "new");
    // A batch is left: its writes need a reboot of their own.
    assert_eq!(ask(&all, &there, &new), Decision::Restage);
    while all.under_way().is_some() {
        all = all.moved(&Transition::BatchDone, Timestamp::default()).unwrap();
    }
    assert_eq!(ask(&all, &there, &new), Decision::Verify);
    assert_eq!(ask(&all, &there, &other), Decision::Verify, "nothing is undone under the new OS");
    // The staged deployment is gone with the boot, or the boot is the same.
    assert_eq!(ask(&all, &observation(&made, "boot-2", OLD, "origin"), &new), Decision::Restage);
    assert_eq!(ask(&all, &observation(&made, "boot-1", OLD, "origin"), &new), Decision::Continue);
    let files = UpdateFixture::with_files();
    let mut all = record(&files, &[Transition::Apply { first: 0 }]);
    while all.under_way().is_some() {
        all = all.moved(&Transition::BatchDone, Timestamp::default()).unwrap();
    }
    let (here, there) =
        (observation(&files, "boot-1", OLD, "origin"), observation(&files, "boot-2", OLD, "origin"));
    assert_eq!(ask(&all, &here, &files.to.target()), Decision::Continue);
    assert_eq!(ask(&all, &there, &files.to.target()), Decision::Verify);
}

/// MCD-044: once the reboot was requested, only the reboot is seen to; a new target waits for the other side of it.
#[test]
fn missing_reboot_is_requested_again_few_times() {
    let made = UpdateFixture::with_image();
    let here = observation(&made, "boot-1", OLD, "origin");
    let mut record = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    // The machine is going down: another target waits until this one is verified.
    assert_eq!(ask(&record, &here, &UpdateFixture::other()), Decision::Reboot);
    // Reboots that led into the old deployment did happen.
    (record.reboots, record.failed_finalizations, record.interrupted_finalizations) =
        (record.reboots + 3, 1, 2);
    for _ in 1..REBOOT_TRIES {
        assert_eq!(ask(&record, &here, &made.to.target()), Decision::Reboot);
        record = record.moved(&reboot(), Timestamp::default()).unwrap();
    }
    let Decision::Fault(fault) = ask(&record, &here, &made.to.target()) else { panic!("no fault") };
    assert_eq!(fault.reason, "RebootDidNotHappen");
    assert!(can_take_back(&record, &here));
}

/// CRA-004: a node that came up in its old deployment stages again, and is Degraded the second time. The whole of it, with
/// libostree failing at the shutdown: `vm-tests/tests/finalization_fails.py`.
#[test]
fn booted_deployment_decides_after_reboot() {
    let made = UpdateFixture::with_image();
    let mut rebooting = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let new = made.to.target();
    assert_eq!(ask(&rebooting, &observation(&made, "boot-2", NEW, "new"), &new), Decision::Verify);
    let fell_back = observation(&made, "boot-2", OLD, "origin");
    assert_eq!(ask(&rebooting, &fell_back, &new), Decision::Inquire);
    let failed = Finalization::Failed { said: "error: no space".to_owned() };
    rebooting.came_back(&failed, &boot("boot-2"));
    assert_eq!(not_finalized(&rebooting, &failed), Decision::Restage);
    rebooting.came_back(&failed, &boot("boot-3"));
    let Decision::Fault(fault) = not_finalized(&rebooting, &failed) else { panic!("no fault") };
    assert_eq!(fault.reason, "DeploymentNotFinalized");
    assert!(
        fault.message.contains("2 times") && fault.message.ends_with("error: no space"),
        "{}",
        fault.message
    );
    assert!(can_take_back(&rebooting, &fell_back));
    let foreign = observation(&made, "boot-2", update_fixtures::FOREIGN, "foreign");
    let Decision::Fault(fault) = ask(&rebooting, &foreign, &new) else { panic!("no fault") };
    assert_eq!(fault.reason, "UnexpectedImage");
    assert!(!can_take_back(&rebooting, &foreign));
}

/// CRA-004: a machine that went down in the finalization had no error, so it does not count towards the two; all boots
/// together have a bound. The whole of it, with two power cuts in one update: `vm-tests/tests/finalization_cut.py`.
#[test]
fn interrupted_finalization_is_no_failed_one() {
    let made = UpdateFixture::with_image();
    let fresh = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let failed = Finalization::Failed { said: "error: no space".to_owned() };
    let untold = Finalization::Untold { why: "no journal".to_owned() };
    let fault = |record: &Record, ended: &Finalization| {
        let decision = not_finalized(record, ended);
        if let Decision::Fault(fault) = decision {
            return Some(fault);
        }
        assert_eq!(decision, Decision::Restage);
        None
    };
    let mut cut = fresh.clone();
    for number in 1..OLD_BOOTS {
        let here = boot(&format!("boot-{number}-later"));
        cut.came_back(&Finalization::CutShort, &here);
        // The process died before it staged again: this boot is counted once.
        cut.came_back(&Finalization::CutShort, &here);
        assert_eq!((cut.interrupted_finalizations, cut.failed_finalizations), (number, 0));
        assert_eq!(fault(&cut, &Finalization::CutShort), None, "{number}");
    }
    cut.came_back(&Finalization::CutShort, &boot("the-last"));
    let bound = fault(&cut, &Finalization::CutShort).unwrap();
    assert_eq!((bound.reason.as_str(), bound.class), ("DeploymentNotFinalized", FaultClass::Degraded));
    assert!(bound.message.contains("went down 5 times before") && bound.next.contains("power"), "{bound:?}");

    // An unknown cause counts as a failure; cuts in between change nothing of the two.
    for second in [&failed, &untold] {
        let mut mixed = fresh.clone();
        mixed.came_back(&failed, &boot("boot-2"));
        mixed.came_back(&Finalization::CutShort, &boot("boot-3"));
        assert_eq!(fault(&mixed, &Finalization::CutShort), None);
        mixed.came_back(second, &boot("boot-4"));
        assert_eq!((mixed.failed_finalizations, mixed.interrupted_finalizations), (WRONG_BOOTS, 1));
        let fault = fault(&mixed, second).unwrap();
        assert!(
            fault.message.contains("3 times, as the staged one was not finalized: "),
            "{}",
            fault.message
        );
        assert!(fault.message.ends_with(&second.to_string()) && fault.next.contains("/boot"), "{fault:?}");
    }
}

#[test]
fn file_update_is_verified_in_next_boot() {
    let made = UpdateFixture::with_files();
    let rebooting = record(&made, &[Transition::Apply { first: 0 }, reboot()]);
    let there = observation(&made, "boot-2", OLD, "origin");
    assert_eq!(ask(&rebooting, &there, &made.to.target()), Decision::Verify);
}

/// CRA-005: only a host that was compared with the spec, in its new boot, is committed.
#[test]
fn verification_commits_tries_once_more_or_holds() {
    let made = UpdateFixture::with_image();
    let wrong = Difference {
        kind: Kind::File,
        target: "/etc/motd".to_owned(),
        what: DifferenceKind::Content,
        expected: "a".to_owned(),
        found: "b".to_owned(),
        also: None,
        diff: None,
        unrepaired: None,
    };
    let there = observation(&made, "boot-2", NEW, "new");
    let mut record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot(), Transition::Verify]);
    assert_eq!(ask(&record, &there, &made.to.target()), Decision::Verify);
    assert_eq!(ask(&record, &there, &UpdateFixture::other()), Decision::Verify);
    assert_eq!(after_verification(&record, &[]), Decision::Commit);
    assert!(matches!(after_verification(&record, std::slice::from_ref(&wrong)), Decision::Replan(_)));
    // A failed finalization before is another matter.
    record.failed_finalizations = 1;
    assert!(matches!(after_verification(&record, std::slice::from_ref(&wrong)), Decision::Replan(_)));
    record.attempts = 1;
    let Decision::Fault(fault) = after_verification(&record, &[wrong]) else { panic!("no fault") };
    assert!(fault.message.contains("/etc/motd"));
    assert!(!can_take_back(&record, &there));
    record.fault = Some(fault);
    assert!(held(&record));
    assert_eq!(ask(&record, &there, &made.to.target()), Decision::Hold);
    assert_eq!(ask(&record, &there, &UpdateFixture::other()), Decision::Begin);
}

/// A fault in the new deployment leads back to the previous one, where it is allowed and there is one; a node that is there
/// undoes what was done.
#[test]
fn failed_deployment_is_replaced_by_previous() {
    let made = UpdateFixture::with_image();
    let (new, there) = (made.to.target(), observation(&made, "boot-2", NEW, "new"));
    let back = observation(&made, "boot-3", OLD, "origin");
    let mut record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot(), Transition::Verify]);
    assert!(is_on_trial(&record));
    let fault = unproven(&record, &there, &["a.service is failed".to_owned()], &HealthRules::default());
    for words in ["new, the new deployment", "within 600 s: a.service is failed"] {
        assert!(fault.message.contains(words), "{}", fault.message);
    }
    let fall_back = Transition::FallBack { boot_id: boot("boot-2") };
    assert_eq!(recovery_transition(&record, &there, RollBack::Automatic), Some(fall_back.clone()));
    assert_eq!(recovery_transition(&record, &there, RollBack::Never), None);
    record.fault = Some(fault);
    assert!(is_unproven(&record));
    assert_eq!(ask(&record, &there, &new), Decision::Hold);
    assert_eq!(ask(&record, &back, &new), Decision::UndoAfterFallback, "somebody went back by hand");

    record = record.moved(&fall_back, Timestamp::default()).unwrap();
    for tries in 0..REBOOT_TRIES {
        assert_eq!(record.fallbacks, tries);
        for desired in [&new, &UpdateFixture::other()] {
            assert_eq!(ask(&record, &there, desired), Decision::FallBack);
            assert_eq!(ask(&record, &back, desired), Decision::UndoAfterFallback);
        }
        record = record.moved(&reboot(), Timestamp::default()).unwrap();
    }
    let Decision::Fault(fault) = ask(&record, &there, &new) else { panic!("no fault") };
    assert!(fault.message.contains("a.service is failed; falling back to origin failed too: "));
    assert_eq!(recovery_transition(&record, &there, RollBack::Automatic), Some(Transition::Verify));
    assert_eq!(recovery_transition(&record, &back, RollBack::Never), Some(Transition::RollBack));
    assert_eq!(not_fallen_back(&record, "x").reason, "HealthCheckFailed");
    record = record.moved(&Transition::RollBack, Timestamp::default()).unwrap();
    assert!(!record.undo.is_empty());
}

/// The next step of a failed trial is a command that runs, about the boot that was on trial.
#[test]
fn failed_trial_names_its_journal() {
    let made = UpdateFixture::with_image();
    let there = observation(&made, "boot-2", NEW, "new");
    let record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot(), Transition::Verify]);
    for (ill, lines) in [
        ("a.service is failed; its last line: it is late", "-u a.service"),
        ("dev-a\\x2db.swap is failed", "-u 'dev-a\\x2db.swap'"),
        ("health check 10-a: exit code 3: it is late", "-t machine-config-agent-health"),
        ("health check 10-a.service: /etc/a is not used", "-t machine-config-agent-health"),
    ] {
        for (roll_back, boot) in [(RollBack::Automatic, "-b -1"), (RollBack::Never, "-b")] {
            let rules = HealthRules { roll_back, ..HealthRules::default() };
            let next = unproven(&record, &there, &[ill.to_owned()], &rules).next;
            assert!(next.contains(&format!("`journalctl {boot} {lines}`")), "{ill}: {next}");
        }
    }
}

/// Files alone create no deployment: there is nothing to go back to, so nothing is on trial.
#[test]
fn only_deployment_is_on_trial() {
    let files = UpdateFixture::with_files();
    let record = record(&files, &[Transition::Apply { first: 0 }, reboot(), Transition::Verify]);
    assert!(!is_on_trial(&record));
    assert_eq!(
        recovery_transition(&record, &observation(&files, "boot-2", OLD, "origin"), RollBack::Automatic),
        None
    );
}

/// A boot menu, or what counts boots, ends a trial too.
#[test]
fn aborted_trial_holds_target() {
    let made = UpdateFixture::with_image();
    let back = observation(&made, "boot-3", OLD, "origin");
    let mut record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot(), Transition::Verify]);
    assert_eq!(ask(&record, &back, &made.to.target()), Decision::Verify);
    record.trial = Some(Trial { boot_id: boot("boot-2"), since: 7 });
    let Decision::Fault(fault) = ask(&record, &back, &made.to.target()) else { panic!("no fault") };
    assert_eq!(fault.reason, "HealthCheckFailed");
    assert_eq!(recovery_transition(&record, &back, RollBack::Automatic), Some(Transition::RollBack));
}

#[test]
fn wrong_host_without_reboot_is_rolled_back_at_once() {
    let made = UpdateFixture::with_files();
    let record = record(&made, &[Transition::Apply { first: 0 }, Transition::Verify]);
    let wrong = Difference {
        kind: Kind::Unit,
        target: "a.service".to_owned(),
        what: DifferenceKind::Enablement,
        expected: "enabled".to_owned(),
        found: "disabled".to_owned(),
        also: None,
        diff: None,
        unrepaired: None,
    };
    assert!(matches!(after_verification(&record, &[wrong]), Decision::Fault(_)));
    assert!(can_take_back(&record, &observation(&made, "boot-1", OLD, "origin")));
}

#[test]
fn roll_back_ends_before_anything_else_begins() {
    let made = UpdateFixture::with_image();
    let here = observation(&made, "boot-1", OLD, "origin");
    let mut record =
        record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, Transition::RollBack]);
    assert!(!record.undo.is_empty());
    assert_eq!(ask(&record, &here, &UpdateFixture::other()), Decision::Continue);
    while !record.is_undone() {
        assert_eq!(ask(&record, &here, &made.to.target()), Decision::Continue);
        record = record.moved(&Transition::UndoDone, Timestamp::default()).unwrap();
    }
    assert_eq!(ask(&record, &here, &made.to.target()), Decision::Hold);
    assert_eq!(ask(&record, &here, &UpdateFixture::other()), Decision::Archive);
    assert!(matches!(record.phase, Phase::RollingBack { .. }));
}

/// MCD-215, MCD-216: an update is taken back in reverse order, from where it stands; its staged deployment is dropped last.
#[test]
fn update_is_rolled_back_in_reverse_order() {
    let made = UpdateFixture::with_image();
    let undone = |events: &[Transition]| {
        let mut record = record(&made, events);
        record = record.moved(&Transition::RollBack, Timestamp::default()).unwrap();
        record.undo
    };
    assert_eq!(undone(&[]), []);
    assert_eq!(undone(&[Transition::Stage]), [Undo::UnstageOs]);
    let all = undone(&[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    let batches: Vec<usize> = all
        .iter()
        .map(|undo| match undo {
            Undo::UnstageOs => 0,
            Undo::RestoreOriginals { batch } | Undo::RepeatServices { batch } => *batch,
        })
        .collect();
    assert!(batches.len() > 1 && batches.iter().rev().is_sorted(), "{all:?}");
    assert_eq!(all.last(), Some(&Undo::UnstageOs));
}
