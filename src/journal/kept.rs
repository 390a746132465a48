//! Originals as a start finds them: whether each can be read, and which paths have one.
//!
//! The stored config lists the paths that were the host's before. One that is listed and has no kept original any more has lost it:
//! nobody knows what to put back, so the path stays as it is when its entry leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::error::JournalError;
use super::stored::{Stored, read_state};
use super::{originals, version};
use crate::host::saved::{self, PREIMAGES, PathSnapshot, SAVED_DIRECTORY};
use crate::host::{HostError, Root, parents};
use crate::model::{HostSpec, ManagedPath, ObservedFile, UpdateId};

/// Name of these files in messages.
const WHAT: &str = "the original of a path";

/// Refuses originals that can't be read: the kept ones, and those of the open update. Changes nothing.
pub(super) fn check(root: &Root, open: Option<&UpdateId>) -> Result<(), JournalError> {
    let directory = format!("{PREIMAGES}/{SAVED_DIRECTORY}");
    for path in documents(root, &directory)? {
        let bytes = read(root, &path)?;
        version::check(&path, originals::SCHEMA, &bytes)?;
        serde_json::from_slice::<PathSnapshot>(&bytes).map_err(|error| not_understood(&path, &error))?;
    }
    let Some(open) = open else { return Ok(()) };
    for path in documents(root, &format!("{PREIMAGES}/{open}"))? {
        let bytes = read(root, &path)?;
        version::check(&path, originals::SCHEMA, &bytes)?;
        serde_json::from_slice::<originals::Document>(&bytes)
            .map_err(|error| not_understood(&path, &error))?;
    }
    Ok(())
}

/// Notes in a config that is about to be stored which paths have an original, and where they are.
pub(super) fn note(root: &Root, from: &HostSpec, to: &HostSpec, target: Stored) -> Result<Stored, HostError> {
    Ok(target.with_originals(index(root, from, to)?, led(root, from, to)?))
}

/// Returns the paths of a config with a kept original of something that the host had, and those that had lost one before.
fn index(root: &Root, from: &HostSpec, to: &HostSpec) -> Result<BTreeSet<ManagedPath>, HostError> {
    let mut paths = to.managed();
    paths.extend(parents::made(root, to)?);
    let mut found = BTreeSet::new();
    for path in paths {
        let is_of_host = match saved::load_original(root, &path)? {
            Some(original) => original != PathSnapshot::Absent,
            None => from.originals.contains(&path),
        };
        if is_of_host {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Returns where links of the host lead to, by the directories of the entries of a config. A directory of the config before stays where
/// it led then, as long as anything of it is there.
fn led(root: &Root, from: &HostSpec, to: &HostSpec) -> Result<BTreeMap<ManagedPath, String>, HostError> {
    let (before, mut found) = (from.managed(), BTreeMap::new());
    let paths = to.managed();
    let directories: BTreeSet<&str> =
        paths.iter().filter_map(|path| path.as_str().rsplit_once('/')).map(|(above, _)| above).collect();
    for directory in directories {
        let Ok(directory) = ManagedPath::new(directory) else { continue };
        let mut real = parents::real_directory(root, directory.as_str())?;
        if let Some(held) = from.led.get(&directory) {
            let names = before.iter().filter_map(|path| path.as_str().rsplit_once('/'));
            for (_, name) in names.filter(|(above, _)| *above == directory.as_str()) {
                if root.observe(&format!("{held}/{name}"))? != ObservedFile::Absent {
                    real.clone_from(held);
                    break;
                }
            }
        }
        if real != directory.as_str() {
            found.insert(directory, real);
        }
    }
    Ok(found)
}

/// Returns the documents in a directory; a draft of a process that died is none.
fn documents(root: &Root, directory: &str) -> Result<Vec<String>, HostError> {
    let names = root.list(directory)?.into_iter().filter(|name| name.strip_suffix(".json").is_some());
    Ok(names.map(|name| format!("{directory}/{name}")).collect())
}

fn read(root: &Root, path: &str) -> Result<Vec<u8>, JournalError> {
    root.check_kind(path, "a regular file").map_err(super::place::misplaced)?;
    Ok(read_state(root, path, WHAT)?.unwrap_or_default())
}

/// The library's own words may have a content in them: only the place of the damage is told.
fn not_understood(path: &str, error: &serde_json::Error) -> JournalError {
    match (version::not_understood(path, WHAT, error), saved::malformed(path, error)) {
        (JournalError::Unreadable { path, what, .. }, HostError::Malformed { cause, .. }) => {
            JournalError::Unreadable { path, what, cause }
        }
        (newer, _) => newer,
    }
}
