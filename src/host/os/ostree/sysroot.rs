//! The sysroot: loading, locking, and its deployments in the agent's types.

use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use ostree_ext::container::OstreeImageReference;
use ostree_ext::container::deploy::ORIGIN_CONTAINER;
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::{Deployment, Sysroot};

use super::super::error::{OsError, OsErrorKind, SYSROOT};
use super::failed::failed;
use super::image;
use crate::host::lock_holder;
use crate::model::observation::{Booted, LocalPackages, ObservedOs, Staged};
use crate::model::{ImageRef, Karg};

/// Longest wait for another program's lock of the sysroot: rpm-ostree and bootc hold it while they pull.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(300);

/// Interval of tries of the lock: a file lock has no wait with a limit.
pub(super) const LOCK_POLL: Duration = Duration::from_millis(250);

/// Access of the work to the sysroot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Looks only.
    Read,
    /// Writes, in an own mount namespace.
    Write,
}

/// Loads the sysroot.
pub(super) fn load(path: &Path, access: Access) -> Result<Sysroot, OsError> {
    let sysroot = Sysroot::new(Some(&ostree_ext::gio::File::for_path(path)));
    if access == Access::Write {
        sysroot.set_mount_namespace_in_use();
    }
    sysroot.load(Cancellable::NONE).map_err(|e| {
        OsError::new(OsErrorKind::NotBooted, SYSROOT, format!("{} can't be loaded: {e}", path.display()))
    })?;
    Ok(sysroot)
}

/// Has pulls into the repository sync each object by itself.
pub(super) fn set_per_object_fsync(sysroot: &Sysroot) -> Result<(), OsError> {
    let repo = sysroot.repo();
    let config = repo.copy_config();
    config.set_boolean("core", "per-object-fsync", true);
    repo.write_config(&config).map_err(failed)
}

/// A sysroot that is ours until dropped.
#[derive(Debug)]
pub(super) struct Locked(Sysroot);

impl Deref for Locked {
    type Target = Sysroot;
    fn deref(&self) -> &Sysroot {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Locks the sysroot, waiting for other programs, and reads it again if they changed it.
pub(super) async fn lock(
    sysroot: Sysroot,
    path: &Path,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<Locked, OsError> {
    let began = Instant::now();
    let mut reported = false;
    let holder = || lock_holder::name(&path.join("ostree/lock"));
    while !sysroot.try_lock().map_err(failed)? {
        if began.elapsed() >= LOCK_WAIT {
            let cause = format!("it is held by {} since more than {} s", holder(), LOCK_WAIT.as_secs());
            return Err(OsError::new(OsErrorKind::Busy, SYSROOT, cause));
        }
        if !reported {
            progress(format!("waiting for {}, which holds the sysroot", holder()), None);
            reported = true;
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
    let locked = Locked(sysroot);
    locked.load_if_changed(Cancellable::NONE).map_err(failed)?;
    Ok(locked)
}

/// Returns the booted deployment.
pub(super) fn booted(sysroot: &Sysroot) -> Result<Deployment, OsError> {
    sysroot
        .booted_deployment()
        .ok_or_else(|| OsError::new(OsErrorKind::NotBooted, SYSROOT, "this machine was not booted from it"))
}

/// Returns the booted and the staged deployment.
pub(super) fn observe(sysroot: &Sysroot) -> Result<ObservedOs, OsError> {
    let deployment = booted(sysroot)?;
    let repo = sysroot.repo();
    let booted = Booted {
        image: image_of(sysroot, &deployment),
        deployment: id(&deployment),
        carries: image::carried_by_commit(&repo, &deployment.csum())?,
        local: local_packages(&deployment),
    };
    let first = sysroot.deployments().into_iter().next();
    let next = first.filter(|first| !first.is_staged() && !first.equal(&deployment));
    Ok(ObservedOs::Deployments {
        booted,
        staged: sysroot.staged_deployment().map(|d| staged(sysroot, &d)),
        next: next.map(|d| staged(sysroot, &d)),
    })
}

/// Reads rpm-ostree's changes on top of the image: it writes them into the origin.
fn local_packages(deployment: &Deployment) -> LocalPackages {
    let origin = deployment.origin().unwrap_or_default();
    let names = |group: &str, keys: &[&str]| {
        let lists = keys.iter().filter_map(|key| origin.string_list(group, key).ok());
        lists
            .flat_map(|list| {
                list.iter().map(|entry| LocalPackages::name_in(entry).to_owned()).collect::<Vec<_>>()
            })
            .collect()
    };
    LocalPackages {
        requested: names("packages", &["requested", "requested-local"]),
        removed: names("overrides", &["remove"]),
        replaced: names("overrides", &["replace-local", "replace"]),
    }
}

/// Describes a deployment of a next boot.
pub(super) fn staged(sysroot: &Sysroot, deployment: &Deployment) -> Staged {
    Staged { image: image_of(sysroot, deployment), deployment: id(deployment), kargs: kargs(deployment) }
}

/// Returns the id: stateroot, checksum and serial.
pub(super) fn id(deployment: &Deployment) -> String {
    format!("{}-{}.{}", deployment.osname(), deployment.csum(), deployment.deployserial())
}

/// Returns the kernel arguments in order, without `ostree=`: that one names the deployment itself.
pub(super) fn kargs(deployment: &Deployment) -> Vec<Karg> {
    let options = deployment.bootconfig().and_then(|config| config.get("options")).unwrap_or_default();
    Karg::split(&options).into_iter().filter(|karg| !karg.is_of_ostree()).collect()
}

/// Returns the image that a deployment was made from.
pub(super) fn image_of(sysroot: &Sysroot, deployment: &Deployment) -> Option<ImageRef> {
    let origin = deployment.origin()?.string("origin", ORIGIN_CONTAINER).ok()?;
    let reference = OstreeImageReference::try_from(origin.as_str()).ok()?;
    image::named(&reference, image::digest_of_commit(&sysroot.repo(), &deployment.csum()))
}
