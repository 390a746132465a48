//! Ways between two stateroots that end otherwise: by a hook that fails, by a power cut, and under a clock that is set.

use super::*;

/// A program of the administrator that fails in the new system: it is left, and the previous one says why. One that is to be kept
/// stays, and has failed.
#[test]
fn upgrade_that_can_not_be_completed_returns() {
    let why = "hook after-activate/10-app failed: exit code 1";
    let concluding = |keeps_incomplete| {
        let mut host = on_trial();
        host.observed.trial.as_mut().unwrap().phase = TrialPhase::Passed;
        let action = host.take(&Desire { keeps_incomplete, ..desire(Stage::Upgrade) }).unwrap();
        host.state = host.state.clone().failed(&action, why, NOW);
        host
    };
    let mut host = concluding(false);
    let back = LifecycleAction::Return { to: "rhcos".to_owned() };
    assert_eq!(
        host.said().last().unwrap(),
        &format!("UpgradeInProgress True InProgress Returning to the stateroot rhcos: {why}")
    );
    assert_eq!((host.look(), host.valid()), (Some(back.clone()), vec!["Rollback"]));
    host.reboots("rhcos", None);
    assert_eq!(host.look(), None);
    assert_eq!(host.said().last().unwrap(), &format!("UpgradeInProgress False Failed {why}"));
    assert_eq!((host.valid(), host.state.returning.clone()), (vec!["Idle"], None));
    // The way back fails, or leads to the same system again.
    let mut host = concluding(false);
    host.state = host.state.clone().failed(&back, "no deployment", NOW);
    let failed = format!("UpgradeInProgress False Failed {why}; the return failed: no deployment");
    assert_eq!((host.said().last().unwrap(), host.look()), (&failed, None));
    let mut host = concluding(false);
    host.reboots("rhcos_4.17.2", Some(TrialPhase::Passed));
    assert_eq!(host.look(), None);
    let failed = format!("UpgradeInProgress False Failed {why}; the stateroot rhcos did not boot");
    assert_eq!((host.said().last().unwrap(), host.valid()), (&failed, vec!["Rollback"]));
    // A person takes it over.
    let mut host = concluding(false);
    assert_eq!(host.want(Stage::Rollback), Some(LifecycleAction::RollBack { to: "rhcos".to_owned() }));
    assert_eq!(host.state.returning, None);
    let mut host = concluding(true);
    assert_eq!(host.said().last().unwrap(), &format!("UpgradeInProgress False Failed {why}"));
    assert_eq!((host.look(), host.valid()), (None, vec!["Rollback"]));
}

/// A power cut between the hand-over and the new default: the record of the job is still open, so the way goes on.
#[test]
fn way_that_was_cut_before_the_default_goes_on() {
    let job = |stateroot: &str| Job::Activate {
        stateroot: StaterootName::new(stateroot).unwrap(),
        deployment: format!("{stateroot}-cd.0"),
        previous: "x-ab.0".to_owned(),
        trial: None,
        reboot: true,
    };
    let mut host = Host::prepared();
    host.want(Stage::Upgrade).unwrap();
    host.reboots("rhcos", None);
    host.observed.open = Some((job("rhcos_4.17.2"), true));
    assert_eq!(host.look(), None, "the boot has yet to see to the record");
    host.observed.open = Some((job("rhcos_4.17.2"), false));
    assert!(matches!(host.look(), Some(LifecycleAction::Activate { .. })));
    let mut host = Host::upgraded();
    host.want(Stage::Rollback).unwrap();
    host.reboots("rhcos_4.17.2", Some(TrialPhase::Passed));
    host.observed.open = Some((job("rhcos"), false));
    assert_eq!(host.look(), Some(LifecycleAction::RollBack { to: "rhcos".to_owned() }));
}

/// A clock that is set by years, either way, changes neither an action nor a condition but its time.
#[test]
fn clock_that_is_set_changes_times_alone() {
    let played = |times: &[&str]| {
        let mut times = times.iter().cycle();
        let mut now = || *times.next().unwrap();
        let mut host = Host::new();
        let mut observed = Vec::new();
        for stage in [Stage::Prep, Stage::Upgrade, Stage::Rollback, Stage::Idle] {
            let (state, action) = decide(&host.state, Some(&desire(stage)), &host.observed, now());
            host.state = state;
            observed.push((action.clone(), host.said()));
            let action = action.unwrap();
            let conclude = match stage {
                Stage::Upgrade => Some(("rhcos_4.17.2", stage)),
                Stage::Rollback => Some(("rhcos", stage)),
                Stage::Prep | Stage::Idle => None,
            };
            let Some((running, stage)) = conclude else {
                host.state = host.state.clone().done(&action, now());
                continue;
            };
            host.reboots(running, (stage == Stage::Upgrade).then_some(TrialPhase::Passed));
            let (state, action) = decide(&host.state, None, &host.observed, now());
            assert_eq!(action, Some(LifecycleAction::Conclude(stage)));
            host.state = state.done(&action.unwrap(), now());
            observed.push((None, host.said()));
        }
        observed
    };
    let even = played(&[NOW]);
    for times in
        [["2026-11-24T09:00:00Z", "1970-01-01T00:00:00Z"], ["2100-01-01T00:00:00Z", "2026-11-24T09:00:00Z"]]
    {
        assert_eq!(played(&times), even, "{times:?}");
    }
}
