//! List of stateroots: the directories below `/ostree/deploy`, with what is deployed to them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use ostree_ext::ostree::Sysroot;

use super::super::super::error::OsError;
use super::super::failed::failed;
use super::super::sysroot::{id, image_of, kargs};
use crate::stateroot::{Stateroot, StaterootDeployment};

/// Directory of the stateroots.
const DEPLOY: &str = "ostree/deploy";

/// Returns the stateroots in the order of their names.
pub(super) fn list(sysroot: &Sysroot, path: &Path) -> Result<Vec<Stateroot>, OsError> {
    let booted = sysroot.booted_deployment();
    let is_booted = |deployment: &_| booted.as_ref().is_some_and(|booted| booted.equal(deployment));
    let all = sysroot.deployments();
    let next = all.first().map(|deployment| deployment.osname().to_string());
    let mut names = directories(&path.join(DEPLOY))?;
    names.extend(all.iter().map(|deployment| deployment.osname().to_string()));
    let stateroot = |name: String| {
        let own = all.iter().filter(|deployment| deployment.osname() == name.as_str());
        let deployments: Vec<StaterootDeployment> = own
            .map(|deployment| StaterootDeployment {
                id: id(deployment),
                image: image_of(sysroot, deployment),
                booted: is_booted(deployment),
                boots_next: all.first().is_some_and(|first| first.equal(deployment)),
                staged: deployment.is_staged(),
                kernel_arguments: kargs(deployment),
            })
            .collect();
        Stateroot {
            booted: deployments.iter().any(|deployment| deployment.booted),
            boots_next: next.as_ref() == Some(&name),
            deployments,
            name,
        }
    };
    Ok(names.into_iter().map(stateroot).collect())
}

/// Returns the names of the directories in one.
fn directories(path: &Path) -> Result<BTreeSet<String>, OsError> {
    let unreadable = |error: std::io::Error| failed(format!("{} can't be read: {error}", path.display()));
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        if entry.file_type().map_err(unreadable)?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.insert(name);
        }
    }
    Ok(found)
}
