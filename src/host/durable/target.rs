//! Comparison of a path with its desired state, without writing anything.

use std::io::Read as _;

use rustix::fd::AsFd;
use rustix::fs::Stat;

use super::change::{Attempt, Attributes, DesiredPath};
use crate::host::HostError;
use crate::host::root::{
    ACCESS_LIST, AttributeList, Dir, Entry, FLAGS, READ_ATTRIBUTES, SIGNATURE, attributes, has_access_list,
    is_trusted,
};

/// As much as is compared at once: a large file is not held a second time.
const CHUNK: usize = 64 * 1024;

/// The outcome.
#[derive(Debug)]
pub(super) enum Comparison {
    /// Nothing is to be done.
    Equal,
    /// It has to be changed.
    PendingChange {
        /// The attributes that the next version of a file takes over; `None` when there is no file.
        kept: Option<AttributeList>,
    },
}

/// Compares an entry of a directory with its desired state. An entry that no config can own is an error.
pub(super) fn compare_at(
    dir: &Dir,
    name: &str,
    path: &str,
    want: &DesiredPath<'_>,
    run: Attempt,
) -> Result<Comparison, HostError> {
    compare(Entry::of(dir, name, path)?, path, want, run)
}

/// Compares the entry found with its desired state.
pub(super) fn compare(
    found: Entry,
    path: &str,
    want: &DesiredPath<'_>,
    run: Attempt,
) -> Result<Comparison, HostError> {
    if let Some(error) = foreign(&found, path, want) {
        return Err(error);
    }
    match (want, found) {
        (DesiredPath::Absent, Entry::Absent)
        | (
            DesiredPath::NoDirectory,
            Entry::Absent | Entry::File { .. } | Entry::Link { .. } | Entry::Other(_),
        ) => Ok(Comparison::Equal),
        (DesiredPath::Link { target, owner }, Entry::Link { target: found, owner: own })
            if *target == found && owner.is_none_or(|owner| owner == own) && run != Attempt::Anew =>
        {
            Ok(Comparison::Equal)
        }
        (DesiredPath::Directory { mode, uid, gid }, Entry::Directory { stat })
            if mode.is_none_or(|mode| mode == stat.st_mode & 0o7777)
                && uid.is_none_or(|uid| uid == stat.st_uid)
                && gid.is_none_or(|gid| gid == stat.st_gid) =>
        {
            Ok(Comparison::Equal)
        }
        (DesiredPath::File { bytes, mode, uid, gid, attributes: desired }, Entry::File { file, stat }) => {
            let right = run != Attempt::Anew
                && same_dress(&stat, *mode, *uid, *gid)
                && same_attributes(&file, path, *desired)?
                && same_bytes(&file, &stat, bytes).map_err(|source| HostError::io("read", path, source))?;
            if right {
                return Ok(Comparison::Equal);
            }
            Ok(Comparison::PendingChange { kept: Some(attributes_to_keep(&file, path, *desired)?) })
        }
        (
            DesiredPath::Absent
            | DesiredPath::NoDirectory
            | DesiredPath::Directory { .. }
            | DesiredPath::Link { .. }
            | DesiredPath::HardLink { .. }
            | DesiredPath::File { .. },
            _,
        ) => Ok(Comparison::PendingChange { kept: None }),
    }
}

/// Returns the error of an entry that does not give way to what is wanted. A directory that may is known to be one by
/// then.
fn foreign(found: &Entry, path: &str, want: &DesiredPath<'_>) -> Option<HostError> {
    let expected = "a file, a link or nothing";
    let found = match (found, want) {
        (_, DesiredPath::NoDirectory)
        | (Entry::Absent | Entry::File { .. } | Entry::Link { .. }, _)
        | (Entry::Directory { .. }, DesiredPath::Directory { .. }) => return None,
        (Entry::Directory { .. }, _) => "a directory",
        (Entry::Other(found), _) => found,
    };
    Some(HostError::Kind { path: path.to_owned(), expected, found })
}

fn attributes_to_keep(
    file: &std::fs::File,
    path: &str,
    desired: Attributes<'_>,
) -> Result<AttributeList, HostError> {
    let keeps_access = matches!(desired, Attributes::KeepAccess);
    let mut kept = attributes(file, path)?;
    // Capabilities and signatures belong to the old contents; so do access lists, where mode and owner come from the config.
    kept.retain(|(name, _)| {
        name.starts_with("user.")
            || is_trusted(name)
            || [FLAGS, "security.selinux"].contains(&&**name)
            || name == ACCESS_LIST && keeps_access
    });
    Ok(kept)
}

fn same_dress(stat: &Stat, mode: u32, uid: u32, gid: u32) -> bool {
    stat.st_mode & 0o7777 == mode && stat.st_uid == uid && stat.st_gid == gid
}

fn same_attributes(file: impl AsFd, path: &str, desired: Attributes<'_>) -> Result<bool, HostError> {
    let exactly = match desired {
        Attributes::Keep => {
            let has_list = has_access_list(file);
            return Ok(!has_list.map_err(|errno| HostError::io(READ_ATTRIBUTES, path, errno))?);
        }
        Attributes::KeepAccess => return Ok(true),
        Attributes::Exactly(exactly) => exactly,
    };
    let mut found = attributes(file, path)?;
    let mut exactly = exactly.to_vec();
    // Where the kernel measures files, it writes a digest by itself.
    if !exactly.iter().any(|(name, _)| name == SIGNATURE) {
        found.retain(|(name, _)| name != SIGNATURE);
    }
    found.sort();
    exactly.sort();
    Ok(found == exactly)
}

/// Returns true if an open file has these bytes.
pub(in crate::host) fn same_bytes(
    mut file: &std::fs::File,
    stat: &Stat,
    bytes: &[u8],
) -> std::io::Result<bool> {
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    let desired = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size != desired {
        return Ok(false);
    }
    let mut buffer = vec![0_u8; CHUNK.min(bytes.len() + 1)];
    let mut rest = bytes;
    loop {
        let read = match file.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let found = buffer.get(..read).unwrap_or_default();
        match rest.strip_prefix(found) {
            // The end: nothing may be missing. A file that grew meanwhile is longer than the rest.
            Some(_) if read == 0 => return Ok(rest.is_empty()),
            Some(left) => rest = left,
            None => return Ok(false),
        }
    }
}
