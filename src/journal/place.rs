//! The directory of the state: who may change it, and what is in the place of its files.

use std::collections::BTreeSet;

use super::error::JournalError;
use super::files::state;
use crate::host::root::{Holder, LockFile, Root};
use crate::host::{HostError, durable};
use crate::model::ObservedFile;
use crate::model::ids::STATE_DIR;

/// The lock of the journal.
pub(super) const LOCK: &str = "lock";
/// Files that a start or an update reads and replaces.
const FILES: [&str; 7] = [
    "record.json",
    "target.json",
    "from.json",
    "current.json",
    "machine.json",
    "kargs.json",
    "accounts.json",
];
/// Directories that an update writes to.
const DIRECTORIES: [&str; 3] = ["history", PREIMAGES, "preimages/kept"];
/// The directory of originals, with one for each open update.
const PREIMAGES: &str = "preimages";

/// Refuses what a start could not read, or an update could not write to.
pub(super) fn check(root: &Root) -> Result<(), JournalError> {
    root.check_kind(STATE_DIR, "a directory").map_err(misplaced)?;
    for name in FILES {
        check_file(root, name)?;
    }
    check_lock(root, LOCK)?;
    check_directory(root)?;
    for name in DIRECTORIES {
        root.check_kind(&state(name), "a directory").map_err(misplaced)?;
        root.check_directory(&state(name))?;
    }
    Ok(())
}

/// Refuses a state that an update could not be written to: found before anything of the host is touched.
pub(super) fn check_writable(root: &Root) -> Result<(), JournalError> {
    for name in FILES {
        durable::check_writable(root, &state(name))?;
    }
    let updates = root.list(&state(PREIMAGES))?.into_iter().map(|name| format!("{PREIMAGES}/{name}"));
    let mut directories: BTreeSet<String> = DIRECTORIES.iter().map(|name| (*name).to_owned()).collect();
    directories.extend(updates);
    for directory in directories.iter().map(|name| state(name)) {
        if root.observe(&directory)?.is_other_than_directory() {
            continue;
        }
        durable::check_writable_directory(root, &directory)?;
    }
    Ok(())
}

/// Refuses a lock that can't be taken.
pub(super) fn check_lock_writable(root: &Root) -> Result<(), JournalError> {
    let lock = state(LOCK);
    if root.check_lock(&lock)? { Ok(()) } else { Ok(durable::check_writable(root, &lock)?) }
}

/// Refuses a directory of the state that others may change, and something else in its place: no file below it would look as if
/// nothing was committed.
pub(super) fn check_directory(root: &Root) -> Result<(), JournalError> {
    root.check_kind(STATE_DIR, "a directory").map_err(misplaced)?;
    Ok(root.check_directory(STATE_DIR)?)
}

/// Takes a lock of the state; `None` if another process holds it.
pub(super) fn lock(root: &Root, name: &str) -> Result<Option<LockFile>, JournalError> {
    check_lock(root, name)?;
    Ok(root.lock(&state(name))?)
}

/// Returns the process that holds the journal.
pub fn holder(root: &Root) -> Result<Option<Holder>, JournalError> {
    check_lock(root, LOCK)?;
    Ok(root.lock_holder(&state(LOCK))?)
}

/// A lock is opened without following a link: two names could stand for one file.
fn check_lock(root: &Root, name: &str) -> Result<(), JournalError> {
    check_file(root, name)?;
    match root.observe(&state(name))? {
        ObservedFile::Symlink { .. } => {
            let (expected, found) = ("a regular file", "a link");
            Err(JournalError::Misplaced { path: state(name), expected, found })
        }
        ObservedFile::Absent
        | ObservedFile::Regular { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => Ok(()),
    }
}

fn check_file(root: &Root, name: &str) -> Result<(), JournalError> {
    root.check_kind(&state(name), "a regular file").map_err(misplaced)
}

pub(super) fn misplaced(error: HostError) -> JournalError {
    if let HostError::Kind { path, expected, found } = error {
        return JournalError::Misplaced { path, expected, found };
    }
    error.into()
}
