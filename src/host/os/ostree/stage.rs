//! Staging: one deployment with the desired image and the desired kernel arguments, or none.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::{Instant, SystemTime};

use ostree_ext::container::deploy::{ORIGIN_CONTAINER, remove_undeployed_images};
use ostree_ext::container::store::{LayeredImageState, PrepareResult, gc_image_layers};
use ostree_ext::gio::Cancellable;
use ostree_ext::glib::{Bytes, KeyFile, Variant};
use ostree_ext::ostree::{Deployment, Sysroot, SysrootDeployTreeOpts};
use ostree_ext::sysroot::SysrootLock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::super::error::{OsError, OsErrorKind, SYSROOT};
use super::super::worker::protocol::Secret;
use super::failed::failed;
use super::image::{self, Pull};
use super::space;
use super::sysroot::{self, Access, Locked};
use super::{misplaced, unverified};
use crate::model::observation::Staged;
use crate::model::{ImageRef, Karg};

/// libostree's file of the staged deployment until the shutdown.
const STAGED: &str = "/run/ostree/staged-deployment";

/// The mark of a locked staged deployment; since libostree 2023.8 there is also a key in [`STAGED`].
const LOCKED: &str = "/run/ostree/staged-deployment-locked";

/// Deployment to stage.
#[derive(Debug)]
pub(super) struct StageRequest {
    /// The image; `None` keeps the booted one.
    pub(super) image: Option<ImageRef>,
    /// Credentials for its pull.
    pub(super) credentials: Option<Secret>,
    /// Arguments to remove, one instance each.
    pub(super) delete: Vec<Karg>,
    /// Arguments to add at the end.
    pub(super) append: Vec<Karg>,
}

/// Stages, unless the same is staged already, and looks at the result.
pub(super) async fn stage(
    sysroot: &Locked,
    path: &Path,
    request: &StageRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Staged, OsError> {
    let booted = sysroot::booted(sysroot)?;
    let kargs = Karg::changed(sysroot::kargs(&booted), &request.delete, &request.append);
    let (commit, origin) = match &request.image {
        None => (booted.csum().to_string(), origin_of(&booted)),
        Some(image) => {
            let state = obtain(sysroot, path, image, request.credentials.as_ref(), None, progress).await?;
            space::before_staging(sysroot, path, image, &state.merge_commit)?;
            (state.merge_commit.clone(), new_origin(image))
        }
    };
    let same = |d: &Deployment| d.csum() == commit && sysroot::kargs(d) == kargs && !locked();
    if let Some(staged) = sysroot.staged_deployment().filter(same) {
        return Ok(sysroot::staged(sysroot, &staged));
    }
    progress("staging the deployment".to_owned(), None);
    let new = NewDeployment { commit, origin, kargs };
    new.stage(sysroot, &booted)?;
    let staged = verified(path, &new.commit, &new.kargs)?;
    forget_old_images(sysroot)?;
    Ok(staged)
}

/// Changes the arguments of the staged deployment, or stages the booted one with others.
pub(super) fn kargs(
    sysroot: &Locked,
    path: &Path,
    delete: &[Karg],
    append: &[Karg],
) -> Result<Staged, OsError> {
    let booted = sysroot::booted(sysroot)?;
    let base = sysroot.staged_deployment().unwrap_or_else(|| booted.clone());
    let kargs = Karg::changed(sysroot::kargs(&base), delete, append);
    if base.is_staged() && sysroot::kargs(&base) == kargs && !locked() {
        return Ok(sysroot::staged(sysroot, &base));
    }
    let new = NewDeployment { commit: base.csum().to_string(), origin: origin_of(&base), kargs };
    // One that is staged has its arguments in a file: a second checkout of the same commit would take as long as the
    // first. A lock goes only with a new one.
    if !base.is_staged() || locked() || new.change_in_place(sysroot, path, &base).is_err() {
        new.stage(sysroot, &booted)?;
    }
    verified(path, &new.commit, &new.kargs)
}

/// A deployment to be staged.
struct NewDeployment {
    commit: String,
    origin: KeyFile,
    kargs: Vec<Karg>,
}

impl NewDeployment {
    /// Changes the arguments of the staged deployment. libostree replaces one file for that; the mark by which its
    /// programs notice changes is set here, since it leaves that out.
    fn change_in_place(&self, sysroot: &Locked, path: &Path, staged: &Deployment) -> Result<(), OsError> {
        let line: Vec<&str> = self.kargs.iter().map(Karg::as_str).collect();
        let line = Some(line.join(" "));
        sysroot.deployment_set_kargs_in_place(staged, line.as_deref(), Cancellable::NONE).map_err(failed)?;
        let noticed = File::open(path.join("ostree/deploy"))
            .and_then(|directory| directory.set_modified(SystemTime::now()));
        noticed.map_err(failed)?;
        verified(path, &self.commit, &self.kargs).map(drop)
    }

    /// Stages it: `/etc` is merged from the booted one when the machine goes down.
    fn stage(&self, sysroot: &Locked, booted: &Deployment) -> Result<(), OsError> {
        let arguments: Vec<&str> = self.kargs.iter().map(Karg::as_str).collect();
        let override_kernel_argv = Some(arguments.as_slice());
        let options = SysrootDeployTreeOpts { override_kernel_argv, ..SysrootDeployTreeOpts::default() };
        let (stateroot, none) = (booted.osname(), Cancellable::NONE);
        unlock()?;
        let staged = sysroot.stage_tree_with_options(
            Some(&stateroot),
            &self.commit,
            Some(&self.origin),
            Some(booted),
            &options,
            none,
        );
        staged.map(drop).map_err(failed)
    }
}

/// Returns the image's commit, pulling it only when no image with this digest is in the repository.
pub(super) async fn obtain(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    credentials: Option<&Secret>,
    bandwidth: Option<u64>,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Box<LayeredImageState>, OsError> {
    let repo = sysroot.repo();
    let _alone = pull_lock(path, progress).await?;
    unverified::forget(&repo, path)?;
    let mut state = match image::present(&repo, image) {
        Some(state) => {
            progress("the image is in the repository already".to_owned(), Some(100));
            state
        }
        None => pulled(sysroot, path, image, (credentials, bandwidth), progress).await?,
    };
    if misplaced::is_in(&repo, &state.merge_commit)? {
        progress("moving files of /etc to /usr/etc".to_owned(), None);
        misplaced::mend(&repo, &state)?;
        state = pulled(sysroot, path, image, (credentials, bandwidth), progress).await?;
    }
    image::name(&repo, image, &state)?;
    Ok(state)
}

/// Pulls an image that is not in the repository.
async fn pulled(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    (credentials, bandwidth): (Option<&Secret>, Option<u64>),
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Box<LayeredImageState>, OsError> {
    let repo = sysroot.repo();
    progress("fetching the manifest".to_owned(), None);
    let mut pull = Pull::open(&repo, image, credentials).await?;
    match pull.prepare(image).await? {
        PrepareResult::AlreadyPresent(state) => Ok(state),
        PrepareResult::Ready(prepared) => {
            space::before_pull(sysroot, path, image, &prepared)?;
            pull.import(&repo, path, prepared, bandwidth, progress).await
        }
    }
}

/// Waits until no other pull of this agent runs, and keeps others away until dropped: a prefetch that was ended may need a
/// moment for its end, and one file separates its leftovers from complete layers.
async fn pull_lock(path: &Path, progress: &dyn Fn(String, Option<u8>)) -> Result<File, OsError> {
    let directory = File::open(path.join("ostree")).map_err(failed)?;
    let began = Instant::now();
    let mut reported = false;
    while let Err(errno) = flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        if errno != Errno::WOULDBLOCK {
            return Err(failed(format!("{} can't be locked: {errno}", path.join("ostree").display())));
        }
        if began.elapsed() >= sysroot::LOCK_WAIT {
            return Err(OsError::new(OsErrorKind::Busy, SYSROOT, "another pull of the agent does not end"));
        }
        if !reported {
            progress("waiting for another pull of the agent".to_owned(), None);
            reported = true;
        }
        tokio::time::sleep(sysroot::LOCK_POLL).await;
    }
    Ok(directory)
}

/// The origin file of a deployment made from an image.
pub(super) fn new_origin(image: &ImageRef) -> KeyFile {
    let origin = KeyFile::new();
    origin.set_string("origin", ORIGIN_CONTAINER, &image::reference(image).to_string());
    origin
}

fn origin_of(deployment: &Deployment) -> KeyFile {
    let origin = deployment.origin().unwrap_or_default();
    Deployment::origin_remove_transient_state(&origin);
    origin
}

/// Reads the sysroot again: the staged deployment must be the requested one.
fn verified(path: &Path, commit: &str, kargs: &[Karg]) -> Result<Staged, OsError> {
    let sysroot = sysroot::load(path, Access::Read)?;
    let first = sysroot.deployments().into_iter().next().filter(Deployment::is_staged);
    match first.filter(|d| d.csum() == commit && sysroot::kargs(d) == kargs) {
        Some(staged) => Ok(sysroot::staged(&sysroot, &staged)),
        None => Err(failed("libostree reported success, but the deployment is not staged")),
    }
}

/// Drops names of images that no deployment uses any more. Their objects go when libostree cleans up at the next
/// finalization; walking the whole repository here would only cost time.
fn forget_old_images(sysroot: &Locked) -> Result<(), OsError> {
    let lock = SysrootLock::from_assumed_locked(sysroot);
    remove_undeployed_images(&lock).map_err(failed)?;
    gc_image_layers(&sysroot.repo()).map_err(failed)?;
    Ok(())
}

/// Drops the staged deployment and makes sure that none is left. One that was finalized and has not booted (a soft reboot
/// does that) would boot next: it comes after the one that runs. What another stateroot's activation put first stays.
pub(super) fn unstage(sysroot: &Locked, path: &Path) -> Result<(), OsError> {
    let booted = sysroot::booted(sysroot)?;
    let mut kept: Vec<_> = sysroot.deployments().into_iter().filter(|d| !d.is_staged()).collect();
    let would_boot = |first: &Deployment| !first.equal(&booted) && first.osname() == booted.osname();
    let is_finalized = kept.first().is_some_and(would_boot);
    if !is_finalized && sysroot.staged_deployment().is_none() {
        return Ok(());
    }
    if is_finalized {
        kept.retain(|d| !d.equal(&booted));
        kept.insert(0, booted);
    }
    sysroot.write_deployments(&kept, Cancellable::NONE).map_err(failed)?;
    match sysroot::load(path, Access::Read)?.staged_deployment() {
        None => Ok(()),
        Some(_) => Err(failed("libostree reported success, but a deployment is still staged")),
    }
}

/// Gives up the deployment that ran before the booted one; libostree frees its space.
pub(super) fn drop_rollback(sysroot: &Locked) -> Result<(), OsError> {
    let booted = sysroot::booted(sysroot)?;
    let (_, rollback) = sysroot.query_deployments_for(Some(&booted.osname()));
    let Some(rollback) = rollback.filter(|d| !d.is_pinned()) else { return Ok(()) };
    let all = sysroot.deployments();
    let kept: Vec<_> = all.into_iter().filter(|d| !d.is_staged() && !d.equal(&rollback)).collect();
    if sysroot.staged_deployment().is_some() {
        // Writing deployments would drop the staged one; the finalization gives the rollback up anyway.
        return Ok(());
    }
    sysroot.write_deployments(&kept, Cancellable::NONE).map_err(failed)?;
    sysroot.cleanup(Cancellable::NONE).map_err(failed)
}

/// Makes a deployment the next boot's, as `ostree admin set-default` does: it comes first, and the others follow in their
/// order. A staged deployment would come before it, so that goes.
pub(super) fn set_default_deployment(sysroot: &Locked, path: &Path, deployment: &str) -> Result<(), OsError> {
    let is_desired = |d: &Deployment| !d.is_staged() && sysroot::id(d) == deployment;
    let all = sysroot.deployments();
    let Some(desired) = all.iter().find(|d| is_desired(d)) else {
        return Err(OsError::gone(deployment));
    };
    if all.first().is_some_and(is_desired) {
        return Ok(());
    }
    let others = all.iter().filter(|d| !d.is_staged() && !is_desired(d));
    let order: Vec<Deployment> = std::iter::once(desired).chain(others).cloned().collect();
    sysroot.write_deployments(&order, Cancellable::NONE).map_err(failed)?;
    if sysroot::load(path, Access::Read)?.deployments().first().is_some_and(is_desired) {
        return Ok(());
    }
    Err(failed(format!("libostree reported success, but {deployment} does not boot next")))
}

/// Checks that the shutdown will finalize the staged deployment: it silently drops a locked one.
pub(super) fn finalizable(sysroot: &Sysroot) -> Result<(), OsError> {
    if sysroot.staged_deployment().is_some() && locked() {
        let cause = "the staged deployment is locked: the reboot would drop it and boot the old one";
        return Err(OsError::new(OsErrorKind::Locked, SYSROOT, cause));
    }
    Ok(())
}

/// Takes the mark away: libostree leaves it when it stages again, and the new deployment would be dropped with it.
fn unlock() -> Result<(), OsError> {
    match std::fs::remove_file(LOCKED) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(format!("{LOCKED}: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn locked() -> bool {
    Path::new(LOCKED).exists()
        || std::fs::read(STAGED).is_ok_and(|bytes| {
            let state = Variant::from_bytes::<HashMap<String, Variant>>(&Bytes::from_owned(bytes));
            state
                .get::<HashMap<String, Variant>>()
                .is_some_and(|keys| keys.get("locked").and_then(Variant::get::<bool>).unwrap_or_default())
        })
}
