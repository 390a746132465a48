//! Decision from the state on disk: one table, used at every start and whenever the target changes.
//!
//! [`resume`] reads the record, the boot and the deployments; [`after_verification`] the differences, once they were
//! determined, and [`not_finalized`] libostree's message. All are pure; `core/tests/pure/resume_table.rs` is the
//! table, row by row.
//!
//! # Decisions
//! 1. The committed target is an argument beside the record: whether an idle node has work is the same question.
//! 2. A superseded target wins until the reboot was requested. From then on the machine is going down: the update
//!    ends first, verified, and the new target follows at once.
//!    A manual reboot, once all batches are done, counts as the update's own.
//! 3. A node that came up wrong is planned for again, from its observation: the image's label lied, or the shutdown
//!    could not copy the files that the merge of `/etc` skips (`host::etc_merge`). The second time the target is held
//!    (the loop breaker) until it changes.
//! 4. A node that runs the update's own deployment and is at fault there goes back to the previous deployment, whole, where
//!    that is allowed: undoing files under a running OS would be a third state. The update's files are undone
//!    there. An update without a deployment of its own has nothing to go back to.
//! 5. What runs is the starting point, whatever the record hoped for. A shutdown between the staging and the update's own
//!    reboot finalizes the staged deployment, so an update that is then given up runs it, or a half of it where the
//!    tooling stages in two transactions ([`runs_another`]). Its files are undone as always: that needs no reboot. Its OS
//!    is not undone but planned away, by the next update: that one starts from the observation, with what both
//!    configs had set counted as held, and is due even where the target is the committed one. A way back of its own
//!    would be a second reboot under the same power cuts, to a deployment that may be gone by then; this is one reboot,
//!    and each step of it is one of an update.

use super::phase::{Phase, Transition};
use super::record::{Fault, Record, StagedOs};
use crate::model::node_settings::{HealthRules, RollBack};
use crate::model::observation::{BootCount, Finalization, Staged};
use crate::model::{FaultClass, Observation, Target, UnitName};
use crate::plan::differences::Difference;
use crate::plan::listing::listed;
use crate::plan::{Op, PostActions};

/// Requests of a reboot before it counts as refused. Three: a shutdown that a person took back is met by the second
/// try, and a person should see the rest. A wait for an inhibitor of the shutdown is no try.
pub const REBOOT_TRIES: u32 = 3;

/// Failed boots before the config is held; and boots of the old deployment with an error of libostree.
pub const WRONG_BOOTS: u32 = 2;

/// Boots of the old deployment in total, before the config is held.
/// Five: a power cut has no cause on the node and passes, so it does not count as a wrong boot. A machine whose every
/// shutdown is cut short (a watchdog, a host that gives its guests no time) would reboot for ever.
pub const OLD_BOOTS: u32 = 5;

/// Stagings of a deployment that another program drops. Three: a person does it once, and a program that always does needs a
/// person.
pub const RESTAGINGS: u32 = 3;

/// The fault of a deployment that is not on the host any more.
pub const DEPLOYMENT_GONE: &str = "DeploymentGone";

/// The fault of a staged deployment that no shutdown finalized.
pub const NOT_FINALIZED: &str = "DeploymentNotFinalized";

/// The fault of a new deployment that did not prove itself.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";

/// The fault of a deployment that the boot loader gave up.
pub const BOOT_FAILED: &str = "BootFailed";

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No update is open and none is desired: compare the host with the committed spec, report, touch nothing.
    Idle,
    /// No update is open and another target is desired: plan.
    Begin,
    /// Carry on where the record stands; every step is idempotent.
    Continue,
    /// The target changed: undo the finished work, then plan again.
    Supersede,
    /// A staged deployment is gone with its boot: stage it again and go through the batches again.
    Restage,
    /// The node came up in its old deployment: find out the result of the finalization.
    Inquire,
    /// Request the reboot again.
    Reboot,
    /// Compare the host with the new spec.
    Verify,
    /// The node came up otherwise than planned: end this update, and plan from the observation.
    Replan(Fault),
    /// Make the previous deployment the next boot's, and reboot.
    FallBack,
    /// The node is in its old deployment again: undo the changes there.
    UndoAfterFallback,
    /// Something is wrong that no step of this update repairs.
    Fault(Fault),
    /// All is undone and the target is still the one that failed: wait for another, or for the next try.
    Hold,
    /// All is undone and another target is desired: archive the record, then plan.
    Archive,
    /// The host is as the spec: the new spec is the committed one.
    Commit,
}

/// Decides about an open update, or about none.
pub fn resume(
    record: Option<&Record>,
    committed: Option<&Target>,
    observed: &Observation,
    desired: Option<&Target>,
) -> Decision {
    let Some(record) = record else {
        return if desired.is_none_or(|desired| Some(desired) == committed) {
            Decision::Idle
        } else {
            Decision::Begin
        };
    };
    if committed == Some(&record.to) && !record.forced && !record.is_repair() {
        // The process died between the commit and the end of the record: only that is left to do.
        return Decision::Commit;
    }
    let superseded = desired.is_some_and(|desired| *desired != record.to);
    let same_boot = record.boot_id == observed.boot_id;
    match &record.phase {
        Phase::RollingBack { .. } if record.is_undone() => {
            if superseded {
                Decision::Archive
            } else {
                Decision::Hold
            }
        }
        Phase::Applying { .. } if was_rebooted(record, observed) => Decision::Verify,
        Phase::Planned | Phase::Staging | Phase::Draining | Phase::Applying { .. } if superseded => {
            Decision::Supersede
        }
        Phase::Planned | Phase::Staging | Phase::RollingBack { .. } => Decision::Continue,
        Phase::Draining | Phase::Applying { .. } => {
            let staged = !same_boot && record.staged_os() != StagedOs::None;
            if staged { Decision::Restage } else { Decision::Continue }
        }
        // Not every systemd counts its soft reboots: a finished one shows in the booted deployment, too.
        Phase::Rebooting { boot_id } if *boot_id == observed.boot_id && !os_in_place(record, observed) => {
            reboot_again(record)
        }
        Phase::Rebooting { .. } => came_up(record, observed),
        // Another target waits until the node is back: the node is well then, for any fault of that one.
        Phase::FallingBack { .. } => falling_back(record, observed),
        Phase::Verifying if held(record) && superseded => Decision::Begin,
        // A person went back.
        Phase::Verifying if held(record) && is_back(record, observed) => Decision::UndoAfterFallback,
        Phase::Verifying if held(record) => Decision::Hold,
        // A person in the boot menu ended the trial, or the boot loader's counter.
        Phase::Verifying if record.trial.is_some() && is_back(record, observed) => {
            Decision::Fault(left_on_trial(record))
        }
        Phase::Verifying => Decision::Verify,
    }
}

/// Decides on the result of the comparison with the spec.
pub fn after_verification(record: &Record, differences: &[Difference]) -> Decision {
    if differences.is_empty() {
        return Decision::Commit;
    }
    let fault = wrong(record, differences);
    if record.reboots > 0 && has_tries(record) {
        return Decision::Replan(fault);
    }
    Decision::Fault(fault)
}

/// Returns true if an update plans again from the observation where the host is not as planned at its end: after a reboot.
pub fn plans_again(record: &Record) -> bool {
    let reboots = record.reboots > 0 || matches!(record.plan.after(), PostActions::Reboot { .. });
    reboots && has_tries(record)
}

fn has_tries(record: &Record) -> bool {
    record.attempts + 1 < WRONG_BOOTS
}

/// Decides on the result of the finalization. `record` has counted this boot.
pub fn not_finalized(record: &Record, ended: &Finalization) -> Decision {
    let (failed, all) =
        (record.failed_finalizations, record.failed_finalizations + record.interrupted_finalizations);
    let (times, next) = match ended {
        Finalization::Failed { .. } | Finalization::Untold { .. } if failed >= WRONG_BOOTS => (
            format!("{all} times, as the staged one was not finalized"),
            "See `journalctl -b -1 -u ostree-finalize-staged`; free space in /boot, then change the target.",
        ),
        Finalization::Failed { .. } | Finalization::CutShort | Finalization::Untold { .. }
            if all >= OLD_BOOTS =>
        {
            (
                format!(
                    "{all} times, as the machine went down {} times before the staged one was finalized",
                    record.interrupted_finalizations
                ),
                "Find what cuts the shutdown short (power, a watchdog, a limit of its time), then change the target.",
            )
        }
        Finalization::Failed { .. } | Finalization::CutShort | Finalization::Untold { .. } => {
            return Decision::Restage;
        }
    };
    Decision::Fault(Fault {
        class: FaultClass::Degraded,
        reason: "DeploymentNotFinalized".to_owned(),
        message: format!("the node came up in its old deployment {times}: {ended}"),
        next: next.to_owned(),
    })
}

/// Returns true if the boot has to be healthy before the commit: the update brought it a deployment of its own. A node
/// that is being provisioned has no deployment worth going back to, and most of its units wait for the end of that.
pub fn is_on_trial(record: &Record) -> bool {
    record.reboots > 0 && record.staged_os() != StagedOs::None && !record.provisioning
}

/// Returns true if the record holds a deployment that failed its trial.
pub fn is_unproven(record: &Record) -> bool {
    held(record) && record.fault.as_ref().is_some_and(|fault| fault.reason == HEALTH_CHECK_FAILED)
}

/// Returns the fault of a failed health trial.
pub fn unproven(record: &Record, observed: &Observation, ill: &[String], rules: &HealthRules) -> Fault {
    let deployment = observed.os.booted().map_or("the deployment", |os| os.deployment.as_str());
    let (config, seconds) = (&record.to.config, rules.within.as_secs());
    let lines = ill.first().and_then(|one| unit_of(one)).map(|unit| format!("-u {}", shell_word(&unit)));
    let lines = lines.as_deref().unwrap_or("-t machine-config-agent-health");
    let ill = ill.join("; ");
    let message =
        format!("{deployment}, the new deployment of {config}, is not healthy within {seconds} s: {ill}");
    if recovery_transition(record, observed, rules.roll_back).is_some() {
        return left_behind(message, lines);
    }
    let next = format!(
        "See the journal of this boot (`journalctl -b {lines}`); mend it, then `systemctl reload machine-config-agent`, or \
         set a corrected target."
    );
    unhealthy(message, next)
}

/// Returns the unit that a message of the trial begins with; one about a check begins with the check.
fn unit_of(message: &str) -> Option<UnitName> {
    message.split_once(" is ").and_then(|(unit, _)| UnitName::new(unit).ok())
}

/// Returns a unit's name as a shell takes it: escaped ones hold backslashes.
fn shell_word(unit: &UnitName) -> String {
    if unit.as_str().contains('\\') { format!("'{unit}'") } else { unit.to_string() }
}

/// Returns the fault of a node that left its new deployment during the trial.
fn left_on_trial(record: &Record) -> Fault {
    let config = &record.to.config;
    let message = format!(
        "the new deployment of {config} was on trial, and the node came up in its previous deployment, which this agent \
         did not ask for"
    );
    left_behind(message, "-t machine-config-agent")
}

/// Returns the fault of a deployment that the node leaves: its lines are in the journal of the boot before.
fn left_behind(message: String, lines: &str) -> Fault {
    unhealthy(
        message,
        format!("See the journal of that boot (`journalctl -b -1 {lines}`), then set a corrected target."),
    )
}

fn unhealthy(message: String, next: String) -> Fault {
    Fault { class: FaultClass::Degraded, reason: "HealthCheckFailed".to_owned(), message, next }
}

/// Returns where a fault leads: back, by an undo or a fallback; or on, to where the target is held. `None`
/// leaves the phase as it is.
pub fn recovery_transition(
    record: &Record,
    observed: &Observation,
    roll_back: RollBack,
) -> Option<Transition> {
    if can_take_back(record, observed) {
        return Some(Transition::RollBack);
    }
    match record.phase {
        Phase::Rebooting { .. } | Phase::FallingBack { .. } => Some(Transition::Verify),
        Phase::Verifying
            if roll_back == RollBack::Automatic && is_on_trial(record) && record.origin.is_some() =>
        {
            Some(Transition::FallBack { boot_id: observed.boot_id.clone() })
        }
        Phase::Planned
        | Phase::Staging
        | Phase::Draining
        | Phase::Applying { .. }
        | Phase::Verifying
        | Phase::RollingBack { .. } => None,
    }
}

/// Returns true if the loop breaker holds the record's target.
pub fn held(record: &Record) -> bool {
    matches!(record.phase, Phase::Verifying) && record.fault.is_some()
}

/// Returns true if a faulted update is undone, or its node is left as it came up.
///
/// It is undone while its effects are only on disk of the boot it began in, and when the node fell back to its
/// old deployment. A node that runs the new one is left alone: undoing files under a running OS would be a third state.
pub fn can_take_back(record: &Record, observed: &Observation) -> bool {
    let asked_in_this_boot = matches!(&record.phase, Phase::Rebooting { boot_id } if *boot_id == observed.boot_id)
        && !os_in_place(record, observed);
    record.reboots == 0 || asked_in_this_boot || is_back(record, observed)
}

/// Returns true if the node runs the update's own deployment already: a shutdown between staging and the update's own
/// reboot finalized it. Kernel arguments change the running ones, so staging again would apply them twice.
pub fn os_in_place(record: &Record, observed: &Observation) -> bool {
    let Some(booted) = observed.os.booted() else { return false };
    let held = record.plan.steps().iter().all(|step| {
        let Op::SetKargs { append, .. } = &step.op else { return true };
        append.iter().all(|karg| observed.kargs.contains(karg))
    });
    let image = match record.staged_os() {
        StagedOs::None => false,
        StagedOs::SameImage => true,
        StagedOs::Image(image) => {
            booted.image.as_ref().is_some_and(|running| running.digest() == image.digest())
        }
    };
    image && held && Some(&booted.deployment) != record.origin.as_ref()
}

/// Returns true if neither the running deployment nor the next boot's is the update's own: another program has dropped the staged
/// one (`rpm-ostree cleanup -p`, `ostree admin undeploy`), or put another in its place.
pub fn is_dropped(record: &Record, observed: &Observation) -> bool {
    let Some(booted) = observed.os.booted() else { return false };
    let image = match record.staged_os() {
        StagedOs::None => return false,
        StagedOs::SameImage => booted.image.as_ref(),
        StagedOs::Image(image) => Some(image),
    };
    let is_own = |next: &Staged| {
        image.is_none_or(|image| next.image.as_ref().is_some_and(|next| next.digest() == image.digest()))
    };
    let next = observed.os.staged().or_else(|| observed.os.next());
    !os_in_place(record, observed) && !next.is_some_and(is_own)
}

/// Returns the fault of a staged deployment that is dropped again and again; `None` while it is worth another staging.
pub fn always_dropped(record: &Record) -> Option<Fault> {
    let config = &record.to.config;
    (record.dropped >= RESTAGINGS).then(|| Fault {
        class: FaultClass::Degraded,
        reason: DEPLOYMENT_GONE.to_owned(),
        message: format!(
            "the staged deployment of {config} was gone {} times before the reboot: another program drops it",
            record.dropped + 1
        ),
        next: "Find the program (`journalctl -b -u rpm-ostreed`, `ostree admin status`) and stop it, then \
               `systemctl reload machine-config-agent`."
            .to_owned(),
    })
}

/// Returns true if the node runs another deployment than the one in which the update began: its own, a half of it, or one that
/// somebody chose. Once the update is undone, nothing but another update changes that.
pub fn runs_another(record: &Record, observed: &Observation) -> bool {
    let runs = observed.os.booted().map(|os| &os.deployment);
    record.staged_os() != StagedOs::None
        && record.origin.is_some()
        && runs.is_some_and(|_| runs != record.origin.as_ref())
}

/// Returns true if another program did the pending reboot: all was on disk when this boot began, and the staged
/// deployment is the one that runs.
pub fn was_rebooted(record: &Record, observed: &Observation) -> bool {
    let next = match &record.phase {
        Phase::Staging => record.first_applied(),
        Phase::Applying { next } => *next,
        Phase::Planned
        | Phase::Draining
        | Phase::Rebooting { .. }
        | Phase::Verifying
        | Phase::FallingBack { .. }
        | Phase::RollingBack { .. } => return false,
    };
    let left = record.plan.batch(next).is_none() && matches!(record.plan.after(), PostActions::Reboot { .. });
    let in_place = match record.staged_os() {
        StagedOs::None => record.boot_id != observed.boot_id,
        StagedOs::SameImage | StagedOs::Image(_) => os_in_place(record, observed),
    };
    left && in_place
}

/// Returns true if the node runs the deployment that ran before the update, which has one of its own.
fn is_back(record: &Record, observed: &Observation) -> bool {
    record.staged_os() != StagedOs::None
        && observed.os.booted().map(|os| &os.deployment) == record.origin.as_ref()
}

fn falling_back(record: &Record, observed: &Observation) -> Decision {
    if is_back(record, observed) {
        return Decision::UndoAfterFallback;
    }
    if record.fallbacks < REBOOT_TRIES {
        return Decision::FallBack;
    }
    let how = record
        .waiting
        .as_ref()
        .map_or_else(|| "the node did not come up in it".to_owned(), |waiting| format!("last: {waiting}"));
    Decision::Fault(not_fallen_back(record, &format!("it was tried {} times; {how}", record.fallbacks)))
}

/// Returns the fault of a fallback that did not boot the previous deployment, with the cause of the fallback.
pub fn not_fallen_back(record: &Record, cause: &str) -> Fault {
    let origin = record.origin.as_deref().unwrap_or("the previous deployment");
    let first = record.fault.as_ref().map(|fault| format!("{}; ", fault.message)).unwrap_or_default();
    let reason = record.fault.as_ref().map_or(HEALTH_CHECK_FAILED, |fault| fault.reason.as_str());
    Fault {
        class: FaultClass::Degraded,
        reason: reason.to_owned(),
        message: format!("{first}falling back to {origin} failed too: {cause}"),
        next: "Boot the deployment before by hand (ostree admin status), or change the target; mended in place: \
               `systemctl reload machine-config-agent` repeats its health trial."
            .to_owned(),
    }
}

fn reboot_again(record: &Record) -> Decision {
    // Those into the old deployment did happen.
    if record.reboots.saturating_sub(record.failed_finalizations + record.interrupted_finalizations)
        < REBOOT_TRIES
    {
        return Decision::Reboot;
    }
    let why = record.waiting.as_ref().map(|waiting| format!("; last: {waiting}")).unwrap_or_default();
    Decision::Fault(Fault {
        class: FaultClass::Retry,
        reason: "RebootDidNotHappen".to_owned(),
        message: format!(
            "the reboot into {} was requested {} times and did not happen{why}",
            record.to.config, record.reboots
        ),
        next: "See `systemd-inhibit --list` and `systemctl list-jobs`; a manual `systemctl reboot` continues the update."
            .to_owned(),
    })
}

fn came_up(record: &Record, observed: &Observation) -> Decision {
    let booted = observed.os.booted();
    let back_in_origin = booted.map(|os| &os.deployment) == record.origin.as_ref();
    match record.staged_os() {
        StagedOs::Image(image) => match booted.and_then(|os| os.image.as_ref()) {
            Some(running) if running.digest() == image.digest() => Decision::Verify,
            Some(_) | None if back_in_origin => in_vain(record, observed),
            Some(running) => Decision::Fault(foreign(record, &running.to_string())),
            None => Decision::Fault(foreign(record, "a deployment that did not come from an image")),
        },
        StagedOs::SameImage if back_in_origin => in_vain(record, observed),
        StagedOs::SameImage | StagedOs::None => Decision::Verify,
    }
}

/// Decides on a node that came up in its old deployment. After a soft reboot that led there, the new one is finalized and boots
/// next: a whole reboot brings it up, and nothing has to be staged again.
fn in_vain(record: &Record, observed: &Observation) -> Decision {
    let was_soft =
        matches!(&record.phase, Phase::Rebooting { boot_id } if observed.boot_id.is_soft_from(boot_id));
    if was_soft && boots_next(record, observed) {
        return reboot_again(record);
    }
    if observed.boots != BootCount::FellBack {
        return Decision::Inquire;
    }
    Decision::Fault(Fault {
        class: FaultClass::Degraded,
        reason: "BootFailed".to_owned(),
        message: format!(
            "the new deployment of {} did not come up in any of its tries: the boot loader booted the previous one",
            record.to.config
        ),
        next: "See the console of the machine and `journalctl --list-boots`; correct the image, then change the target."
            .to_owned(),
    })
}

/// Returns true if the image of the update is finalized, and boots next.
fn boots_next(record: &Record, observed: &Observation) -> bool {
    let StagedOs::Image(image) = record.staged_os() else { return false };
    let next = observed.os.next().and_then(|next| next.image.as_ref());
    next.is_some_and(|next| next.digest() == image.digest())
}

fn foreign(record: &Record, running: &str) -> Fault {
    Fault {
        class: FaultClass::Degraded,
        reason: "UnexpectedImage".to_owned(),
        message: format!(
            "the node came up in {running}, neither the old nor the new image of {}",
            record.to.config
        ),
        next: "Another program or person switched the OS: boot the desired deployment, or change the target."
            .to_owned(),
    }
}

fn wrong(record: &Record, differences: &[Difference]) -> Fault {
    Fault {
        class: FaultClass::Degraded,
        reason: "VerificationFailed".to_owned(),
        message: format!(
            "after the update to {} the host differs from the plan: {}",
            record.to.config,
            listed(differences)
        ),
        next: if record.reboots > 0 {
            "See `machine-config-agent verify --config target`; correct the differences, or change the target."
        } else {
            "Find the program that writes there at the same time, and correct it, or change the target."
        }
        .to_owned(),
    }
}
