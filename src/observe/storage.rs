//! Storage that an installation makes: which entries of the specs are on this host, as far as that can be seen cheaply.

use std::collections::BTreeSet;

use tracing::debug;

use super::{ObserveError, kernel};
use crate::host::Root;
use crate::model::fixed::{Evidence, FIPS_FIELD, FixedEntry};
use crate::model::hosted::SERVED;
use crate::model::observation::ObservedFips;
use crate::model::{HostSpec, installed_storage, machineconfig};

/// Returns the fields of the entries that are there: those that show, and those that the host was installed with.
pub(super) fn found(root: &Root, specs: &[&HostSpec]) -> Result<BTreeSet<String>, ObserveError> {
    let entries: Vec<FixedEntry> = specs.iter().flat_map(|spec| spec.fixed.entries()).collect();
    let (mut found, mut open) = (BTreeSet::new(), Vec::new());
    for entry in entries {
        if shows(root, &entry.evidence)? {
            found.insert(entry.field);
        } else {
            open.push(entry);
        }
    }
    if !open.is_empty() {
        let installed = installed(root);
        let made = open.into_iter().filter(|entry| installed.iter().any(|one| one.is_same(entry)));
        found.extend(made.map(|entry| entry.field));
    }
    if specs.iter().any(|spec| spec.fips) && kernel::fips(root)? == ObservedFips::On {
        found.insert(FIPS_FIELD.to_owned());
    }
    Ok(found)
}

fn shows(root: &Root, evidence: &Evidence) -> Result<bool, ObserveError> {
    let failed = || ObserveError::wrap("the storage");
    match evidence {
        Evidence::MountedAt(path) => root.has_own_file_system(path).map_err(failed()),
        Evidence::Devices(devices) => {
            for device in devices {
                if !root.exists(device).map_err(failed())? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // The command line is compared by the planner.
        Evidence::Kargs { .. } | Evidence::Nothing => Ok(false),
    }
}

/// Returns the storage that the host was installed with; nothing where it is not known.
fn installed(root: &Root) -> Vec<FixedEntry> {
    let bytes = match root.read_trusted(SERVED, machineconfig::MAX_BYTES) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => {
            debug!("Ignored {SERVED}: {error}");
            return Vec::new();
        }
    };
    installed_storage(&bytes, SERVED).map(|fixed| fixed.entries()).unwrap_or_default()
}
