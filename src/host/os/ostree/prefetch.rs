//! Prefetch: an image is pulled into the repository under the name that a later staging looks for, and nothing is staged.
//!
//! The sysroot is locked only while names are dropped: a download that takes hours keeps no other program from it. Pulls
//! of this agent exclude each other (`pull_lock`).

use std::path::Path;
use std::process::{Command, Stdio};

use ostree_ext::container::ImageReference;
use ostree_ext::container::OstreeImageReference;
use ostree_ext::container::deploy::ORIGIN_CONTAINER;
use ostree_ext::container::store::{gc_image_layers, list_images, remove_image};
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::Sysroot;

use super::super::error::{OsError, OsErrorKind};
use super::super::worker::protocol::Secret;
use super::failed::failed;
use super::sysroot::{self, Locked};
use super::{image, space, stage};
use crate::model::ImageRef;

/// Image to prefetch.
#[derive(Debug)]
pub(super) struct PrefetchRequest {
    /// The image; `None` drops the prefetched one.
    pub(super) image: Option<ImageRef>,
    /// Credentials for its pull.
    pub(super) credentials: Option<Secret>,
    /// Bytes per second.
    pub(super) bandwidth: Option<u64>,
}

/// Pulls, drops earlier prefetched images, and returns the bytes that are free.
pub(super) async fn prefetch(
    sysroot: Sysroot,
    path: &Path,
    request: &PrefetchRequest,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<u64, OsError> {
    sysroot::booted(&sysroot)?;
    let Some(image) = &request.image else {
        drop_others(sysroot, path, None, progress).await?;
        return space::free(path);
    };
    let credentials = request.credentials.as_ref();
    let pulled = stage::obtain(&sysroot, path, image, credentials, request.bandwidth, progress).await;
    let full = |error: &OsError| matches!(error.trouble, OsErrorKind::SysrootFull | OsErrorKind::NoSpace);
    match pulled {
        // If there is no room, dropping other prefetched images makes some for the next try.
        Err(error) if !full(&error) => return Err(error),
        pulled => {
            drop_others(sysroot, path, Some(image), progress).await?;
            pulled?;
        }
    }
    space::free(path)
}

/// Drops the images that no deployment uses, but for one.
async fn drop_others(
    sysroot: Sysroot,
    path: &Path,
    kept: Option<&ImageRef>,
    progress: &dyn Fn(String, Option<u8>),
) -> Result<(), OsError> {
    let locked = sysroot::lock(sysroot, path, progress).await?;
    let repo = locked.repo();
    let kept = kept.map(|image| image::reference(image).imgref);
    let used = used(&locked);
    let others: Vec<ImageReference> = list_images(&repo)
        .map_err(failed)?
        .iter()
        .filter_map(|name| ImageReference::try_from(name.as_str()).ok())
        .filter(|name| !used.contains(name) && kept.as_ref() != Some(name))
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    for other in &others {
        remove_image(&repo, other).map_err(failed)?;
    }
    gc_image_layers(&repo).map_err(failed)?;
    locked.cleanup(Cancellable::NONE).map_err(failed)
}

/// Returns the images that deployments are made from.
fn used(sysroot: &Locked) -> Vec<ImageReference> {
    let origins = sysroot.deployments().into_iter().filter_map(|deployment| deployment.origin());
    let names = origins.filter_map(|origin| origin.string("origin", ORIGIN_CONTAINER).ok());
    names
        .filter_map(|name| OstreeImageReference::try_from(name.as_str()).ok())
        .map(|name| name.imgref)
        .collect()
}

/// Puts this process, and what it starts, into the idle I/O class. Without unsafe code only util-linux can set the
/// class; where that is not installed, or the disk's scheduler knows no classes, the prefetch runs as any
/// other program.
pub(super) fn yield_disk() {
    let process = std::process::id().to_string();
    let set = Command::new("ionice").args(["-c", "3", "-p", &process]).stdout(Stdio::null()).status();
    // Not a reason to fail.
    drop(set);
}
