//! A staged deployment that another program drops, or replaces, before the reboot (`rpm-ostree cleanup -p`, `ostree admin undeploy`):
//! the agent stages anew instead of rebooting into the old one.

use std::time::Duration;

use machine_config_core::decide::action::Action;
use machine_config_core::decide::decide;
use machine_config_core::decide::down::Shutdown;
use machine_config_core::decide::inputs::{Answers, Inputs, Memory};
use machine_config_core::decide::mode::{Reboots, RunMode};
use machine_config_core::model::observation::{ObservedOs, Staged};
use machine_config_core::model::{ImageRef, NodeSettings, Observation, Timestamp};
use machine_config_core::update::{Fault, Record, Transition};

use crate::resume_table::{observation, reboot, record};
use crate::update_fixtures::{FOREIGN, NEW, OLD, UpdateFixture};

/// The deployment of the next boot.
#[derive(Debug, Clone, Copy)]
enum NextBoot {
    Nothing,
    Staged(&'static str),
    /// Finalized in a soft reboot, or put first by a person.
    Next(&'static str),
}

fn observed(made: &UpdateFixture, next_boot: NextBoot) -> Observation {
    let mut observed = observation(made, "boot-1", OLD, "origin");
    let ObservedOs::Deployments { staged, next, .. } = &mut observed.os else { panic!() };
    let of = |image: &str| {
        let image = Some(ImageRef::parse(image).unwrap());
        Some(Staged { image, deployment: "new".to_owned(), kargs: Vec::new() })
    };
    match next_boot {
        NextBoot::Nothing => {}
        NextBoot::Staged(image) => *staged = of(image),
        NextBoot::Next(image) => *next = of(image),
    }
    observed
}

/// Decides when all else is ready for the reboot.
fn decided(made: &UpdateFixture, record: &Record, observed: &Observation) -> Action {
    let (current, desired) = (made.from.target(), made.to.target());
    let answers = Answers {
        shutdown: Some(Shutdown { preparing: false, was_begun: false }),
        is_armed: true,
        is_blocked: Some(false),
        ..Answers::default()
    };
    let inputs = Inputs {
        mode: RunMode::Daemon,
        reboots: Reboots::Requested,
        record: Some(record),
        current: Some(&current),
        desired: Some(&desired),
        observed,
        is_forced: false,
        is_refused: false,
        unreadable: None,
        is_unwatched: false,
        can_drain: false,
        node_settings: &NodeSettings::default(),
        answers: &answers,
        prefetch: None,
        now: Duration::from_secs(100),
    };
    decide(&inputs, &mut Memory::new(RunMode::Daemon, "worker-0"))
}

/// All batches are done, and the reboot was not requested yet.
fn applied(made: &UpdateFixture) -> Record {
    let mut all = record(made, &[Transition::Stage, Transition::Apply { first: 1 }]);
    while all.under_way().is_some() {
        all = all.moved(&Transition::BatchDone, Timestamp::default()).unwrap();
    }
    all
}

/// Issue 33: before the first request and before another one; a deployment of the target's image boots, staged or finalized, and
/// nothing else does.
#[test]
fn dropped_deployment_is_staged_anew() {
    let made = UpdateFixture::with_image();
    let requested = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    for record in [applied(&made), requested] {
        for (next_boot, expected) in [
            (NextBoot::Staged(NEW), Action::Reboot),
            (NextBoot::Next(NEW), Action::Reboot),
            (NextBoot::Nothing, Action::RestageDropped),
            (NextBoot::Staged(FOREIGN), Action::RestageDropped),
            (NextBoot::Next(FOREIGN), Action::RestageDropped),
        ] {
            let action = decided(&made, &record, &observed(&made, next_boot));
            assert_eq!(action, expected, "{} {next_boot:?}", record.phase.as_str());
        }
    }
}

/// The target runs already, whatever is staged: nothing is staged again.
#[test]
fn running_target_needs_no_staged_deployment() {
    let made = UpdateFixture::with_image();
    let runs = observation(&made, "boot-1", NEW, "new");
    let requested = record(&made, &[Transition::Stage, Transition::Apply { first: 1 }, reboot()]);
    for record in [applied(&made), requested] {
        let action = decided(&made, &record, &runs);
        assert!(matches!(action, Action::Move(Transition::Reboot { .. } | Transition::Verify)), "{action:?}");
    }
}

/// An update of files stages nothing.
#[test]
fn update_without_deployment_of_its_own_reboots() {
    let made = UpdateFixture::with_files();
    let action = decided(&made, &applied(&made), &observed(&made, NextBoot::Nothing));
    assert_eq!(action, Action::Reboot);
}

/// A program that drops each one is met three times; then a person is needed.
#[test]
fn program_that_always_drops_it_is_reported() {
    let made = UpdateFixture::with_image();
    let nothing = observed(&made, NextBoot::Nothing);
    let dropped = |times| Record { dropped: times, ..applied(&made) };
    assert_eq!(decided(&made, &dropped(2), &nothing), Action::RestageDropped);
    let Action::Fail(Fault { reason, message, .. }, Some(Transition::RollBack)) =
        decided(&made, &dropped(3), &nothing)
    else {
        panic!("no fault")
    };
    assert_eq!(reason, "DeploymentGone");
    assert!(message.contains("4 times"), "{message}");
}
