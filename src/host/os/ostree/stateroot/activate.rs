//! Another stateroot becomes the one that boots, and the way back.
//!
//! There is one place for what is staged, for all stateroots: its finalization would come before the new default, so neither
//! is done while something is staged. A stateroot whose `/var` another file system hides has no state of its own: it is refused.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ostree_ext::ostree::{Deployment, Sysroot};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::StaterootCommand;
use super::super::failed::failed;
use super::super::stage;
use super::super::sysroot::{self, Locked};
use crate::host::durable::{Attempt, Change, DesiredPath, apply_changes};
use crate::host::{FailPoints, HostError, Root};
use crate::model::FileMode;
use crate::model::ids::STATE_DIR;
use crate::model::text::chain;
use crate::stateroot::lifecycle::LIFECYCLE_FILE;
use crate::stateroot::{RETURN_FILE, StaterootTrial, TRIAL_FILE, TrialPhase, stateroot_of};

/// The unit that proves the new system, or returns from it.
const UNIT: &str = "machine-config-agent-stateroot.service";
const UNIT_DIRECTORIES: [&str; 2] = ["/usr/lib/systemd/system", "/etc/systemd/system"];
const WANTS: &str = "multi-user.target.wants";

/// Does one piece of work.
pub(super) fn perform(locked: &Locked, path: &Path, command: StaterootCommand) -> Result<(), OsError> {
    match command {
        StaterootCommand::Arm { deployment, trial } => arm(locked, path, &deployment, trial.as_ref()),
        StaterootCommand::SetDefault { deployment, drop_staged } => {
            if !drop_staged {
                refuse_staged(locked, &deployment)?;
            }
            stage::set_default_deployment(locked, path, &deployment)
        }
        StaterootCommand::Restore { deployment, previous } => {
            // What is staged would be dropped; it boots before all others in any case.
            let first = locked.deployments().into_iter().find(|one| !one.is_staged());
            if first.is_none_or(|first| sysroot::id(&first) != previous) {
                stage::set_default_deployment(locked, path, &previous)?;
            }
            if find(locked, &deployment).is_ok() { disarm(path, &deployment) } else { Ok(()) }
        }
        StaterootCommand::RecordReturn { deployment, left } => {
            find(locked, &deployment)?;
            let json = serde_json::to_vec(&left).map_err(failed)?;
            write(&var(path, &deployment)?, RETURN_FILE, &json).map_err(unwritten(&deployment))
        }
        StaterootCommand::HandOver { deployment, state } => {
            refuse_separate_var(locked, path)?;
            find(locked, &deployment)?;
            let json = serde_json::to_vec(&state).map_err(failed)?;
            write(&var(path, &deployment)?, LIFECYCLE_FILE, &json).map_err(unwritten(&deployment))
        }
        StaterootCommand::List
        | StaterootCommand::Inspect { .. }
        | StaterootCommand::Fetch(_)
        | StaterootCommand::FetchBase { .. }
        | StaterootCommand::ListFiles { .. }
        | StaterootCommand::Archive(_)
        | StaterootCommand::Assemble(_)
        | StaterootCommand::Deploy(_)
        | StaterootCommand::Remove { .. } => Err(failed("it is not part of an activation")),
    }
}

/// Refuses a host whose `/var` is not that of the stateroot that runs.
pub(super) fn refuse_separate_var(sysroot: &Sysroot, path: &Path) -> Result<(), OsError> {
    let booted = sysroot::booted(sysroot)?;
    let own = path.join("ostree/deploy").join(booted.osname().as_str()).join("var");
    let number = |path: &Path| std::fs::metadata(path).map(|stat| (stat.dev(), stat.ino()));
    let (shown, own) = (number(&path.join("var")).map_err(failed)?, number(&own).map_err(failed)?);
    if shown == own {
        return Ok(());
    }
    Err(blocked("/var", "it is a separate file system, which every stateroot would share"))
}

fn arm(
    locked: &Locked,
    path: &Path,
    deployment: &str,
    trial: Option<&StaterootTrial>,
) -> Result<(), OsError> {
    refuse_separate_var(locked, path)?;
    refuse_staged(locked, deployment)?;
    let found = find(locked, deployment)?;
    let Some(trial) = trial else {
        // The trial of the system that runs is its own.
        let runs = sysroot::id(&sysroot::booted(locked)?) == deployment;
        return if runs { Ok(()) } else { disarm(path, deployment) };
    };
    refuse_without_unit(locked, path)?;
    let checkout = open(&path.join(locked.deployment_dirpath(&found).as_str()))?;
    enable(&checkout, deployment)?;
    let json = serde_json::to_vec(trial).map_err(failed)?;
    let var = var(path, deployment)?;
    write(&var, TRIAL_FILE, &json).map_err(unwritten(deployment))
}

/// Refuses a running system that does not start its unit: it would not take over after a return by the boot loader, which
/// would boot the new system once more.
fn refuse_without_unit(locked: &Locked, path: &Path) -> Result<(), OsError> {
    let booted = sysroot::booted(locked)?;
    let running = open(&path.join(locked.deployment_dirpath(&booted).as_str()))?;
    if unit(&running)?.is_some() && is_enabled(&running)? {
        return Ok(());
    }
    let cause =
        format!("it does not start {UNIT}, which takes over after a return; systemctl enable {UNIT} helps");
    Err(blocked(&sysroot::id(&booted), cause))
}

/// Makes sure that the new system has what proves it, and starts that.
fn enable(checkout: &Root, deployment: &str) -> Result<(), OsError> {
    let Some(target) = unit(checkout)? else {
        let cause =
            format!("its system has no {UNIT}, so nothing would run its health trial or return from it");
        return Err(blocked(deployment, cause));
    };
    if is_enabled(checkout)? {
        return Ok(());
    }
    let link = format!("/etc/systemd/system/{WANTS}/{UNIT}");
    let change = Change::new(link, rustix::process::geteuid().as_raw(), DesiredPath::link(target));
    apply_changes(checkout, &[change], Attempt::Again, &FailPoints::off())
        .map(drop)
        .map_err(|error| unread(&error))
}

/// Returns the path of the unit in a system; that of the administrator wins.
fn unit(checkout: &Root) -> Result<Option<String>, OsError> {
    let mut found = None;
    for directory in UNIT_DIRECTORIES {
        let unit = format!("{directory}/{UNIT}");
        if checkout.exists(&unit).map_err(|error| unread(&error))? {
            found = Some(unit);
        }
    }
    Ok(found)
}

fn is_enabled(checkout: &Root) -> Result<bool, OsError> {
    for directory in UNIT_DIRECTORIES {
        if checkout.exists(&format!("{directory}/{WANTS}/{UNIT}")).map_err(|error| unread(&error))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unread(error: &HostError) -> OsError {
    failed(chain(error))
}

/// Takes a trial away that is not over; what has proved itself stays so.
fn disarm(path: &Path, deployment: &str) -> Result<(), OsError> {
    let var = var(path, deployment)?;
    let document = below(TRIAL_FILE);
    let text = var.read(&document).map_err(unwritten(deployment))?;
    let trial = text.and_then(|bytes| serde_json::from_slice::<StaterootTrial>(&bytes).ok());
    if trial.is_some_and(|trial| trial.phase == TrialPhase::Passed) {
        return Ok(());
    }
    var.remove(&document).map_err(unwritten(deployment))
}

fn find(locked: &Locked, deployment: &str) -> Result<Deployment, OsError> {
    let all = locked.deployments().into_iter();
    let mut own = all.filter(|one| !one.is_staged() && sysroot::id(one) == deployment);
    own.next().ok_or_else(|| OsError::gone(deployment))
}

fn refuse_staged(locked: &Locked, deployment: &str) -> Result<(), OsError> {
    match locked.staged_deployment().map(|staged| sysroot::id(&staged)) {
        None => Ok(()),
        Some(staged) => Err(blocked(deployment, format!("{staged} is staged, and would boot instead"))),
    }
}

/// The stateroot of a deployment, whose `/var` is `var` in it.
fn var(path: &Path, deployment: &str) -> Result<Root, OsError> {
    open(&path.join("ostree/deploy").join(stateroot_of(deployment)))
}

fn open(path: &Path) -> Result<Root, OsError> {
    Root::open(path).map_err(|error| failed(chain(&error)))
}

fn below(name: &str) -> String {
    format!("{STATE_DIR}/{name}")
}

fn write(var: &Root, name: &str, bytes: &[u8]) -> Result<(), HostError> {
    var.create_dir(STATE_DIR, FileMode::PRIVATE_DIRECTORY)?;
    var.rewrite(&below(name), bytes, FileMode::PRIVATE)
}

fn unwritten(deployment: &str) -> impl Fn(HostError) -> OsError {
    move |error| OsError::new(OsErrorKind::Libostree, deployment.to_owned(), chain(&error))
}

fn blocked(object: &str, cause: impl Into<String>) -> OsError {
    OsError::new(OsErrorKind::StaterootBlocked, object.to_owned(), cause)
}
