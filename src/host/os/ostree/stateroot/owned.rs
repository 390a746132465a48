//! Belongings of one stateroot, and their removal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use ostree_ext::container::deploy::ORIGIN_CONTAINER;
use ostree_ext::container::store::{gc_image_layers, list_images, remove_image};
use ostree_ext::container::{ImageReference, OstreeImageReference};
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::{Deployment, Sysroot, SysrootWriteDeploymentsOpts};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::failed::failed;
use super::super::image::reference;
use super::super::sysroot::{self, Access, Locked};
use super::{fetch, repository, tree};
use crate::host::fsync::fsync;
use crate::model::ImageRef;
use crate::stateroot::StaterootName;

/// Refuses to touch the stateroot that runs, or that boots next.
pub(super) fn refuse_booted(locked: &Locked, stateroot: &StaterootName) -> Result<(), OsError> {
    let is_of_it = |d: &Deployment| d.osname() == stateroot.as_str();
    let in_use = |cause: &str| Err(OsError::new(OsErrorKind::StaterootInUse, stateroot.to_string(), cause));
    if is_of_it(&sysroot::booted(locked)?) {
        return in_use("the running system is in it");
    }
    if locked.deployments().first().is_some_and(is_of_it) {
        return in_use("it boots next");
    }
    Ok(())
}

/// Removes a stateroot with all that is its own. It may be repeated; one that is not there is ignored.
///
/// Its image goes before its deployments: they are what names it. A deployment keeps its commit without it.
pub(super) async fn remove(
    sysroot: Sysroot,
    path: &Path,
    stateroot: &StaterootName,
    known: Option<&ImageRef>,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let locked = sysroot::lock(sysroot, path, progress).await?;
    refuse_booted(&locked, stateroot)?;
    progress(format!("removing the stateroot {stateroot}"), None);
    let (own, others): (Vec<_>, Vec<_>) =
        locked.deployments().into_iter().partition(|d| d.osname() == stateroot.as_str());
    let known = known.map(|image| reference(image).imgref);
    let images = own.iter().filter_map(image).chain(known).map(|image| image.to_string());
    remove_images(&locked, images.collect(), &others)?;
    if !own.is_empty() {
        let options = SysrootWriteDeploymentsOpts { do_postclean: false };
        locked.write_deployments_with_options(&others, &options, Cancellable::NONE).map_err(failed)?;
    }
    remove_unlisted(&locked, path, stateroot)?;
    gone(tree::remove_path(&fetch::directory(path, stateroot)))?;
    repository::forget_base(&locked.repo(), stateroot)?;
    gc_image_layers(&locked.repo()).map_err(failed)?;
    // Objects of others are kept by their refs.
    locked.cleanup(Cancellable::NONE).map_err(failed)
}

/// Removes images that no other deployment was made from.
fn remove_images(
    locked: &Locked,
    mut images: BTreeSet<String>,
    others: &[Deployment],
) -> Result<(), OsError> {
    for image in others.iter().filter_map(image) {
        images.remove(&image.to_string());
    }
    let repo = locked.repo();
    for name in list_images(&repo).map_err(failed)?.iter().filter(|name| images.contains(*name)) {
        remove_image(&repo, &ImageReference::try_from(name.as_str()).map_err(failed)?).map_err(failed)?;
    }
    Ok(())
}

/// Removes what a stateroot without deployments has on disk: checkouts, `/var`, kernels.
pub(super) fn remove_unlisted(
    locked: &Locked,
    path: &Path,
    stateroot: &StaterootName,
) -> Result<(), OsError> {
    // A failure of libostree may have come after the list was written.
    let listed = sysroot::load(path, Access::Read)?.deployments();
    if listed.iter().any(|d| d.osname() == stateroot.as_str()) {
        return Ok(());
    }
    let (deploy, boot) = (path.join("ostree/deploy"), path.join("boot/ostree"));
    let kernels = kernels(&boot, stateroot)?;
    let directory = deploy.join(stateroot.as_str());
    if directory.symlink_metadata().is_err() && kernels.is_empty() {
        return Ok(());
    }
    locked.prepare_cleanup(Cancellable::NONE).map_err(failed)?;
    gone(tree::remove_path(&directory))?;
    for kernel in kernels {
        gone(tree::remove_path(&boot.join(kernel)))?;
    }
    // A power cut must not bring back what the record says is gone.
    for directory in [deploy, boot].iter().filter(|directory| directory.exists()) {
        let synced = File::open(directory).map_err(failed).and_then(|open| fsync(&open).map_err(failed));
        synced?;
    }
    Ok(())
}

/// Finds the directories `<stateroot>-<checksum>` with its kernels.
fn kernels(boot: &Path, stateroot: &StaterootName) -> Result<Vec<String>, OsError> {
    let entries = match fs::read_dir(boot) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        let checksum = name.strip_prefix(stateroot.as_str()).and_then(|rest| rest.strip_prefix('-'));
        if checksum.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())) {
            found.push(name);
        }
    }
    Ok(found)
}

fn image(deployment: &Deployment) -> Option<ImageReference> {
    let origin = deployment.origin()?.string("origin", ORIGIN_CONTAINER).ok()?;
    Some(OstreeImageReference::try_from(origin.as_str()).ok()?.imgref)
}

fn gone(done: std::io::Result<()>) -> Result<(), OsError> {
    done.map_err(failed)
}
