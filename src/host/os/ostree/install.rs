//! A sysroot from nothing: for the sandbox, which is a real libostree host.
//!
//! Invariant: the deployment is made from the OCI form of the tree, so that its origin names an image, as on a host
//! that was installed from one.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use ostree_ext::container::deploy::{DeployOpts, deploy};
use ostree_ext::container::store::ImageProxyConfig;
use ostree_ext::container::{Config, ExportOpts, ImageReference, Transport, encapsulate};
use ostree_ext::gio::Cancellable;
use ostree_ext::glib::{ToVariant as _, VariantDict};
use ostree_ext::ostree::{
    METADATA_KEY_BOOTABLE, MutableTree, Repo, RepoCommitModifier, RepoCommitModifierFlags,
};
use ostree_ext::ostree::{RepoFile, Sysroot};
use ostree_ext::prelude::Cast as _;

use super::super::error::{OsError, OsErrorKind};
use super::failed::failed;
use super::image;
use super::sysroot::{Access, load};
use crate::host::HostError;
use crate::model::{ImageRef, Sha256};

/// Makes an empty sysroot with one stateroot. Nothing in it is worth an fsync: it is thrown away.
pub(crate) fn initialise(path: &Path, stateroot: &str) -> Result<(), HostError> {
    let make = || -> Result<(), OsError> {
        let sysroot = Sysroot::new(Some(&ostree_ext::gio::File::for_path(path)));
        sysroot.ensure_initialized(Cancellable::NONE).map_err(failed)?;
        sysroot.load(Cancellable::NONE).map_err(failed)?;
        let repo = sysroot.repo();
        let config = repo.copy_config();
        config.set_boolean("core", "fsync", false);
        config.set_string("core", "min-free-space-percent", "0");
        config.set_string("sysroot", "bootloader", "none");
        config.set_boolean("sysroot", "readonly", true);
        repo.write_config(&config).map_err(failed)?;
        sysroot.init_osname(stateroot, Cancellable::NONE).map_err(failed)
    };
    make().map_err(OsError::into_error)
}

/// Turns a directory tree into a bootable image, `images:tag`, in OCI layout.
pub(crate) async fn build(
    sysroot: &Path,
    tree: &Path,
    images: &Path,
    tag: &str,
    labels: BTreeMap<String, String>,
) -> Result<Sha256, HostError> {
    let sysroot = load(sysroot, Access::Read).map_err(OsError::into_error)?;
    let commit = commit(&sysroot.repo(), tree).map_err(OsError::into_error)?;
    let config = Config { labels: Some(labels), cmd: None };
    let target = ImageReference { transport: Transport::OciDir, name: format!("{}:{tag}", images.display()) };
    // Speed, not size: the tree is a few kilobytes.
    let mut options = ExportOpts::default();
    options.skip_compression = true;
    let digest = encapsulate(&sysroot.repo(), commit, &config, Some(options), &target)
        .await
        .map_err(|e| failed(format!("{e:#}")).into_error())?;
    image::parse_digest(digest.as_ref()).ok_or_else(|| failed(format!("{digest} is not sha256")).into_error())
}

fn commit(repo: &Repo, tree: &Path) -> Result<String, OsError> {
    let directory = File::open(tree).map_err(failed)?;
    let modifier = RepoCommitModifier::new(RepoCommitModifierFlags::SKIP_XATTRS, None);
    let metadata = VariantDict::new(None);
    metadata.insert_value(*METADATA_KEY_BOOTABLE, &true.to_variant());
    let transaction = repo.auto_transaction(Cancellable::NONE).map_err(failed)?;
    let files = MutableTree::new();
    repo.write_dfd_to_mtree(directory.as_raw_fd(), ".", &files, Some(&modifier), Cancellable::NONE)
        .map_err(failed)?;
    let root = repo.write_mtree(&files, Cancellable::NONE).map_err(failed)?;
    let root = root.downcast::<RepoFile>().map_err(|_| failed("the tree is not a directory"))?;
    let commit = repo
        .write_commit(None, Some("sandbox"), None, Some(&metadata.end()), &root, Cancellable::NONE)
        .map_err(failed)?;
    transaction.commit(Cancellable::NONE).map_err(failed)?;
    Ok(commit.to_string())
}

/// Deploys `images:tag` to a sysroot that is not booted, under the name that it will have on the booted machine.
pub(crate) async fn install(
    sysroot: &Path,
    stateroot: &str,
    images: &Path,
    tag: &str,
    name: &ImageRef,
    kargs: &[&str],
) -> Result<(), HostError> {
    let sysroot = load(sysroot, Access::Read).map_err(OsError::into_error)?;
    let source = ImageReference { transport: Transport::OciDir, name: format!("{}:{tag}", images.display()) };
    let target = image::reference(name);
    let mut skopeo = std::process::Command::new("skopeo");
    // The image was made a moment ago; the policy of the machine around does not apply.
    skopeo.arg("--insecure-policy");
    let mut options = DeployOpts::default();
    options.kargs = Some(kargs);
    options.target_imgref = Some(&target);
    options.proxy_cfg = Some(ImageProxyConfig { skopeo_cmd: Some(skopeo), ..ImageProxyConfig::default() });
    deploy(&sysroot, stateroot, &image::unverified(source), Some(options)).await.map(drop).map_err(|e| {
        OsError::from_text(&name.to_string(), &format!("{e:#}"), OsErrorKind::Libostree).into_error()
    })
}
