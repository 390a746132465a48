//! The stages as tables: what is desired, what is done, and what the conditions say.

mod ways;

use super::*;
use crate::model::FaultClass;
use crate::stateroot::{Job, Return, StaterootTrial, TRIAL_SCHEMA, TrialPhase, TrialRules};
use crate::update::Fault;
use serde_json::{Value, json};

const NOW: &str = "2026-11-24T09:00:00Z";
const IMAGE: &str =
    "registry.test/seed@sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn boot(digit: char) -> BootId {
    BootId::new(format!("{digit}f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0")).unwrap()
}

fn desire(stage: Stage) -> Desire {
    let seed = SeedRef { image: IMAGE.to_owned(), version: "4.17.2".to_owned() };
    Desire { stage, seed, generation: 3, ..Desire::default() }
}

fn fault() -> Fault {
    let (reason, message, next) = ("HealthCheckFailed".to_owned(), "it is ill".to_owned(), String::new());
    Fault { class: FaultClass::Degraded, reason, message, next }
}

/// A host whose actions are played.
struct Host {
    state: Lifecycle,
    observed: ObservedStateroots,
}

impl Host {
    fn new() -> Self {
        let observed = ObservedStateroots {
            running: "rhcos".to_owned(),
            boot_id: boot('0'),
            open: None,
            trial: None,
            returned: None,
        };
        Self { state: Lifecycle::idle(desire(Stage::Idle), NOW), observed }
    }

    fn want(&mut self, stage: Stage) -> Option<LifecycleAction> {
        self.take(&desire(stage))
    }

    fn take(&mut self, desire: &Desire) -> Option<LifecycleAction> {
        let (state, action) = decide(&self.state, Some(desire), &self.observed, NOW);
        self.state = state;
        action
    }

    fn look(&mut self) -> Option<LifecycleAction> {
        let (state, action) = decide(&self.state, None, &self.observed, NOW);
        self.state = state;
        action
    }

    fn done(&mut self, action: &LifecycleAction) {
        self.state = self.state.clone().done(action, NOW);
    }

    fn prepared() -> Self {
        let mut host = Self::new();
        let action = host.want(Stage::Prep).unwrap();
        host.done(&action);
        host
    }

    /// The reboot into a stateroot, with this phase of its trial.
    fn reboots(&mut self, running: &str, phase: Option<TrialPhase>) {
        self.state.left_in = Some(self.observed.boot_id.clone());
        self.observed.boot_id = boot(if self.observed.boot_id == boot('0') { '1' } else { '2' });
        self.observed.running = running.to_owned();
        self.observed.trial = phase.map(|phase| {
            let trial = StaterootTrial::new("rhcos_4.17.2-cd.0", "rhcos-ab.0", TrialRules::default());
            StaterootTrial { phase, ..trial }
        });
    }

    fn upgraded() -> Self {
        let mut host = Self::prepared();
        host.want(Stage::Upgrade).unwrap();
        host.reboots("rhcos_4.17.2", Some(TrialPhase::Passed));
        let action = host.look().unwrap();
        assert_eq!(action, LifecycleAction::Conclude(Stage::Upgrade));
        host.done(&action);
        host
    }

    fn valid(&self) -> Vec<&'static str> {
        self.state.valid_next_stages(&self.observed.running).into_iter().map(Stage::as_str).collect()
    }

    /// The conditions: type, status, reason and message.
    fn said(&self) -> Vec<String> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let conditions = serde_json::to_value(&self.state.conditions).unwrap();
        let line = |one: &Value| ["type", "status", "reason", "message"].map(|key| word(&one[key])).join(" ");
        conditions.as_array().unwrap().iter().map(line).collect()
    }
}

#[test]
fn upgrade_passes_its_stages_in_words_of_lifecycle_agent() {
    let mut host = Host::new();
    assert_eq!((host.said(), host.valid()), (vec!["Idle True Idle Idle".to_owned()], vec!["Prep"]));
    assert_eq!(host.want(Stage::Idle), None);
    let action = host.want(Stage::Prep).unwrap();
    assert_eq!(action, LifecycleAction::Prepare(desire(Stage::Prep).seed));
    assert_eq!(
        host.said(),
        ["Idle False InProgress In progress", "PrepInProgress True InProgress In progress"]
    );
    assert_eq!(host.valid(), ["Idle"]);
    host.done(&action);
    assert_eq!(host.look(), None);
    assert_eq!(
        host.said(),
        [
            "Idle False InProgress In progress",
            "PrepInProgress False Completed Prep completed",
            "PrepCompleted True Completed Prep stage completed successfully",
        ]
    );
    assert_eq!(host.valid(), ["Idle", "Upgrade"]);
    let Some(LifecycleAction::Activate { stateroot, trial }) = host.want(Stage::Upgrade) else { panic!() };
    assert_eq!((stateroot.as_str(), trial), ("rhcos_4.17.2", TrialRules::default()));
    assert_eq!(host.valid(), ["Idle"]);
    host.reboots("rhcos_4.17.2", Some(TrialPhase::Armed));
    assert_eq!(host.look(), None, "it is on trial");
    assert_eq!(host.valid(), ["Rollback"]);
    host.observed.trial.as_mut().unwrap().phase = TrialPhase::Passed;
    let action = host.look().unwrap();
    host.done(&action);
    assert_eq!(
        host.said()[3..],
        [
            "UpgradeInProgress False Completed Upgrade completed",
            "UpgradeCompleted True Completed Upgrade completed"
        ]
    );
    assert_eq!(host.valid(), ["Idle", "Rollback"]);
    // Finalizing removes the stateroot that does not run.
    let action = host.want(Stage::Idle).unwrap();
    assert_eq!(
        action,
        LifecycleAction::CleanUp { prepared: None, image: IMAGE.to_owned(), left: Some("rhcos".to_owned()) }
    );
    assert_eq!(host.said().last().unwrap(), "Idle False Finalizing Finalizing");
    assert_eq!(host.valid(), [""; 0]);
    host.done(&action);
    assert_eq!((host.said(), host.valid()), (vec!["Idle True Idle Idle".to_owned()], vec!["Prep"]));
    assert!(host.state.seed.is_none() && host.state.left_in.is_none());
}

#[test]
fn rollback_leads_to_the_stateroot_in_which_it_began() {
    let mut host = Host::upgraded();
    assert_eq!(host.want(Stage::Rollback), Some(LifecycleAction::RollBack { to: "rhcos".to_owned() }));
    assert_eq!(
        host.said()[3..],
        [
            "UpgradeInProgress False Failed Rollback requested",
            "UpgradeCompleted False Failed Rollback requested",
            "RollbackInProgress True InProgress In progress",
        ]
    );
    assert_eq!(host.valid(), [""; 0]);
    assert!(matches!(host.want(Stage::Idle), Some(LifecycleAction::RollBack { .. })), "it is not stopped");
    assert_eq!(
        host.said().last().unwrap(),
        "Idle False InvalidTransition Transition to Idle not allowed - Rollback is in progress"
    );
    host.reboots("rhcos", None);
    let action = host.want(Stage::Rollback).unwrap();
    assert_eq!(action, LifecycleAction::Conclude(Stage::Rollback));
    host.done(&action);
    assert_eq!(host.said().last().unwrap(), "RollbackCompleted True Completed Rollback completed");
    assert_eq!(host.valid(), ["Idle"]);
    let action = host.want(Stage::Idle).unwrap();
    let LifecycleAction::CleanUp { prepared: Some(prepared), left: None, .. } = &action else {
        panic!("{action:?}")
    };
    assert_eq!(prepared.as_str(), "rhcos_4.17.2");
    assert_eq!(host.said().last().unwrap(), "Idle False Finalizing Finalizing");
}

/// A host that came back from the upgrade.
fn returned() -> Host {
    let mut host = on_trial();
    host.observed.running = "rhcos".to_owned();
    host.observed.trial = None;
    host.look();
    host
}

fn failed_rollback() -> Host {
    let mut host = Host::upgraded();
    let action = host.want(Stage::Rollback).unwrap();
    host.state = host.state.clone().failed(&action, "x", NOW);
    host
}

fn on_trial() -> Host {
    let mut host = Host::prepared();
    host.want(Stage::Upgrade).unwrap();
    host.reboots("rhcos_4.17.2", Some(TrialPhase::Armed));
    host
}

/// Each stage that may not come next, in the words of lifecycle-agent; nothing is done.
#[test]
fn invalid_transitions_are_refused() {
    let previous = "InvalidTransition Previous stage not succeeded";
    let cases: [(&str, Host, Stage, &str, &str); 7] = [
        ("idle", Host::new(), Stage::Upgrade, "UpgradeInProgress", previous),
        (
            "idle",
            Host::new(),
            Stage::Rollback,
            "RollbackInProgress",
            "InvalidTransition Upgrade not started or already finalized",
        ),
        ("upgraded", Host::upgraded(), Stage::Prep, "", ""),
        (
            "on trial",
            on_trial(),
            Stage::Idle,
            "Idle",
            "InvalidTransition Transition to Idle not allowed - Rollback first",
        ),
        ("returned", returned(), Stage::Upgrade, "", ""),
        (
            "returned",
            returned(),
            Stage::Rollback,
            "RollbackInProgress",
            "InvalidTransition Upgrade not started or already finalized",
        ),
        (
            "failed rollback",
            failed_rollback(),
            Stage::Idle,
            "Idle",
            "InvalidTransition Transition to Idle not allowed - Rollback failed",
        ),
    ];
    for (when, mut host, stage, kind, said) in cases {
        let before = host.said();
        assert_eq!(host.want(stage), None, "{when}: {stage:?}");
        if kind.is_empty() {
            assert_eq!(host.said(), before, "{when}: {stage:?} is over already");
            continue;
        }
        assert_eq!(host.said().last().unwrap(), &format!("{kind} False {said}"), "{when}: {stage:?}");
        let again = host.said();
        assert_eq!((host.look(), host.said()), (None, again), "{when}: the same again");
    }
}

#[test]
fn refusal_is_cleared_by_a_valid_stage() {
    let mut host = Host::new();
    host.want(Stage::Upgrade);
    assert_eq!(host.said().len(), 2);
    host.want(Stage::Prep).unwrap();
    assert_eq!(
        host.said(),
        ["Idle False InProgress In progress", "PrepInProgress True InProgress In progress"]
    );
}

/// An object that is made with another stage than `Idle` has to be idle first.
#[test]
fn new_object_begins_idle() {
    let mut host = Host::new();
    host.state = Lifecycle::new(desire(Stage::Prep), Conditions::default());
    assert_eq!(host.valid(), ["Idle"]);
    assert_eq!(host.look(), None);
    assert_eq!(host.said(), ["PrepInProgress False InvalidTransition Previous stage not succeeded"]);
    assert_eq!(host.want(Stage::Idle), None);
    assert_eq!(host.said(), ["Idle True Idle Idle"]);
}

#[test]
fn abort_removes_what_was_prepared() {
    for completes in [false, true] {
        let mut host = Host::new();
        let action = host.want(Stage::Prep).unwrap();
        if completes {
            host.done(&action);
        }
        let action = host.want(Stage::Idle).unwrap();
        let LifecycleAction::CleanUp { prepared: Some(name), left: None, .. } = &action else {
            panic!("{action:?}")
        };
        assert_eq!(name.as_str(), "rhcos_4.17.2");
        assert_eq!(host.said().last().unwrap(), "Idle False Aborting Aborting");
        host.done(&action);
        assert_eq!(host.said(), ["Idle True Idle Idle"]);
    }
    // Before the reboot an upgrade can be aborted, too.
    let mut host = Host::prepared();
    host.want(Stage::Upgrade).unwrap();
    assert!(matches!(host.want(Stage::Idle), Some(LifecycleAction::CleanUp { .. })));
}

#[test]
fn failed_clean_up_waits_for_a_person() {
    let mut host = Host::prepared();
    let action = host.want(Stage::Idle).unwrap();
    host.state = host.state.clone().failed(&action, "the disk is gone.", NOW);
    assert_eq!(
        host.said().last().unwrap(),
        "Idle False AbortFailed the disk is gone. Perform cleanup manually then add \
         'lca.openshift.io/manual-cleanup-done' annotation to ibu CR to transition back to Idle"
    );
    assert_eq!((host.look(), host.valid()), (None, vec![]));
    let cleaned = Desire { is_cleaned_up: true, ..desire(Stage::Idle) };
    let action = host.take(&cleaned).unwrap();
    assert!(matches!(action, LifecycleAction::CleanUp { .. }));
    host.state = host.state.clone().failed(&action, "x", NOW);
    assert_eq!(host.take(&cleaned), None, "the same word counts once");
}

#[test]
fn failed_prep_ends_in_idle_alone() {
    let mut host = Host::new();
    let action = host.want(Stage::Prep).unwrap();
    host.state = host.state.clone().failed(&action, "the seed is damaged", NOW);
    assert_eq!(
        host.said(),
        [
            "Idle False InProgress In progress",
            "PrepCompleted False Failed Prep failed",
            "PrepInProgress False Failed the seed is damaged",
        ]
    );
    assert_eq!((host.look(), host.valid()), (None, vec!["Idle"]));
    assert!(matches!(host.want(Stage::Idle), Some(LifecycleAction::CleanUp { .. })));
}

/// LCA-013: a return by itself fails the upgrade, with its reason where it is known; the object is left to a person.
#[test]
fn return_fails_the_upgrade() {
    for is_told in [true, false] {
        let mut host = Host::prepared();
        host.want(Stage::Upgrade).unwrap();
        host.reboots("rhcos", None);
        let job = Job::Remove { stateroot: StaterootName::new("x").unwrap() };
        host.observed.open = Some((job, true));
        assert_eq!(host.look(), None);
        assert_eq!(host.valid(), ["Idle"], "the boot has not closed the record yet");
        host.observed.open = None;
        host.observed.returned = is_told.then(|| Return {
            schema: TRIAL_SCHEMA,
            deployment: "rhcos_4.17.2-cd.0".to_owned(),
            fault: fault(),
            at: crate::model::Timestamp::default(),
        });
        assert_eq!(host.look(), None);
        let why = if is_told { "it is ill" } else { "Uncontrolled rollback" };
        assert_eq!(
            host.said()[3..],
            [
                "UpgradeCompleted False Failed Upgrade failed".to_owned(),
                format!("UpgradeInProgress False Failed {why}"),
            ]
        );
        assert_eq!(host.valid(), ["Idle"]);
        assert!(matches!(host.want(Stage::Idle), Some(LifecycleAction::CleanUp { .. })));
    }
}

#[test]
fn failed_trial_that_stays_fails_the_upgrade() {
    let mut host = Host::prepared();
    host.want(Stage::Upgrade).unwrap();
    host.reboots("rhcos_4.17.2", Some(TrialPhase::Failed { fault: fault() }));
    assert_eq!(host.look(), None);
    assert_eq!(host.said().last().unwrap(), "UpgradeInProgress False Failed it is ill");
    assert_eq!(host.valid(), ["Rollback"]);
}

/// An activation that was cut short goes on in its boot; a way back that does not boot is not tried for ever.
#[test]
fn cut_short_reboots_are_told_apart() {
    let mut host = Host::prepared();
    host.want(Stage::Upgrade).unwrap();
    host.state.left_in = Some(host.observed.boot_id.clone());
    assert!(matches!(host.look(), Some(LifecycleAction::Activate { .. })));
    let mut host = Host::upgraded();
    host.want(Stage::Rollback).unwrap();
    host.reboots("rhcos_4.17.2", None);
    assert_eq!(host.look(), None);
    assert_eq!(
        host.said().last().unwrap(),
        "RollbackInProgress False Failed The stateroot rhcos did not boot"
    );
}

/// A file that names another seed: what was begun is undone, and the other one is prepared.
#[test]
fn superseded_seed_is_undone_first() {
    let mut other = desire(Stage::Prep);
    other.seed.version = "4.17.3".to_owned();
    let mut host = Host::prepared();
    let action = host.take(&other).unwrap();
    assert!(
        matches!(&action, LifecycleAction::CleanUp { prepared: Some(name), .. } if name.as_str() == "rhcos_4.17.2")
    );
    host.done(&action);
    assert_eq!(host.look(), Some(LifecycleAction::Prepare(other.seed.clone())));
    // What runs is not undone by another name.
    let mut host = Host::upgraded();
    assert_eq!(host.take(&Desire { stage: Stage::Upgrade, ..other }), None);
    assert_eq!(host.valid(), ["Idle", "Rollback"]);
}

/// A file that came with the seed from another host ends no upgrade.
#[test]
fn file_without_the_version_finalizes_nothing() {
    let mut host = Host::upgraded();
    let mut file = Desire { source: Source::File, ..desire(Stage::Idle) };
    file.seed = SeedRef::default();
    assert_eq!(host.take(&file), None);
    assert!(host.said().last().unwrap().starts_with("Idle False InvalidTransition The file does not name"));
    file.seed.version = "4.17.2".to_owned();
    assert!(matches!(host.take(&file), Some(LifecycleAction::CleanUp { .. })));
}

#[test]
fn state_survives_its_json() {
    let host = Host::upgraded();
    let json = serde_json::to_value(&host.state).unwrap();
    assert_eq!(serde_json::from_value::<Lifecycle>(json).unwrap(), host.state);
    assert!(host.state.copied().is_copy);
    assert_eq!(host.state.conditions.as_slice()[0].observed_generation, 3);
    assert_eq!(json!(Stage::Rollback), json!("Rollback"));
}
