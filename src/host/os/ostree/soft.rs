//! Facts of a soft reboot into one of libostree's deployments, and its preparation.
//!
//! The library that this is built with can't prepare one (2022.7), so that is done by the host's own `ostree` (`next_root`);
//! what it goes by can be read with any version.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ostree_ext::glib::{Bytes, Variant};
use ostree_ext::ostree::{Deployment, Sysroot, check_version};
use sha2::{Digest as _, Sha256};

use super::super::SoftRebootState;
use super::super::error::OsError;
use super::failed::failed;
use super::sysroot;
use crate::model::soft_reboot::{Requirement, SoftRebootFacts};

/// Written by the initramfs, and after a soft reboot anew: how the root was mounted.
const BOOTED: &str = "run/ostree-booted";
/// Written by `ostree admin prepare-soft-reboot`: what is mounted in `/run/nextroot`.
const PREPARED: &str = "run/ostree/nextroot-booted";
/// The key in it that names the deployment: device and inode of its directory.
const BACKING: &str = "backing-root-device-inode";
/// A kernel with SELinux: user space that starts again does not load another policy.
const SELINUX: &str = "sys/fs/selinux/enforce";

/// Returns what is known of a soft reboot into a deployment, or into one that is yet to be staged.
pub(super) fn observe(
    sysroot: &Sysroot,
    path: &Path,
    deployment: Option<&str>,
) -> Result<SoftRebootState, OsError> {
    let booted = sysroot::booted(sysroot)?;
    let composefs = fs::read(path.join(BOOTED))
        .is_ok_and(|keys| keys.windows(b"composefs".len()).any(|part| part == b"composefs"));
    let mut facts = SoftRebootFacts::default()
        .with(Requirement::Libostree, check_version(2025, 3))
        .with(Requirement::Composefs, composefs);
    if !path.join(SELINUX).exists() {
        facts = facts.with(Requirement::Policy, true);
    }
    let Some(id) = deployment else {
        // What is staged is staged in the stateroot that runs.
        let facts = facts.with(Requirement::Stateroot, true);
        return Ok(SoftRebootState { facts, index: None, is_prepared: false });
    };
    let all = sysroot.deployments();
    let target = all.iter().find(|one| sysroot::id(one) == id).ok_or_else(|| OsError::gone(id))?;
    let facts = facts
        .with(Requirement::Deployment, true)
        .with(Requirement::Stateroot, booted.osname() == target.osname())
        .with(Requirement::Kargs, sysroot::kargs(&booted) == sysroot::kargs(target))
        .with(Requirement::Kernel, booted.bootcsum() == target.bootcsum());
    let facts = if facts.known.contains_key(&Requirement::Policy) {
        facts
    } else {
        let directory = |deployment| directory(sysroot, path, deployment);
        let same = policies(&directory(&booted)).ok() == policies(&directory(target)).ok();
        facts.with(Requirement::Policy, same)
    };
    let is_prepared = is_prepared(path, &directory(sysroot, path, target))?;
    Ok(SoftRebootState { facts, index: u32::try_from(target.index()).ok(), is_prepared })
}

fn directory(sysroot: &Sysroot, path: &Path, deployment: &Deployment) -> PathBuf {
    path.join(sysroot.deployment_dirpath(deployment).as_str().trim_start_matches('/'))
}

/// Returns the digests of the policies that a deployment brings, by type and version.
fn policies(deployment: &Path) -> std::io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for kind in fs::read_dir(deployment.join("usr/etc/selinux"))? {
        let Ok(versions) = fs::read_dir(kind?.path().join("policy")) else { continue };
        for version in versions {
            let file = version?.path();
            let name = file.strip_prefix(deployment).unwrap_or(&file).to_owned();
            let mut digest = Sha256::new();
            std::io::copy(&mut fs::File::open(&file)?, &mut digest)?;
            found.insert(name, digest.finalize().to_vec());
        }
    }
    Ok(found)
}

/// Returns true if what is mounted as the next root is the deployment in this directory.
fn is_prepared(path: &Path, directory: &Path) -> Result<bool, OsError> {
    let Ok(bytes) = fs::read(path.join(PREPARED)) else { return Ok(false) };
    let keys = Variant::from_bytes::<HashMap<String, Variant>>(&Bytes::from_owned(bytes));
    let keys = keys.get::<HashMap<String, Variant>>().unwrap_or_default();
    let backing = keys.get(BACKING).and_then(Variant::get::<(u64, u64)>);
    let found = directory.metadata().map_err(failed)?;
    Ok(backing == Some((found.dev(), found.ino())))
}
