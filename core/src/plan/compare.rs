//! Comparison of one path with the host: a file, a directory, a link. Differences and plans ask the same functions.

use std::collections::BTreeMap;

use super::difference::{DifferenceKind, Found};
use crate::model::observation::ObservedOs;
use crate::model::paths::LinkTarget;
use crate::model::text::counted;
use crate::model::{
    DirectorySpec, FileSpec, LinkSpec, ManagedPath, Observation, ObservedFile, Owner, PathSpec, Principal,
    Sha256, short,
};

/// As many characters of a link's text as are shown.
const SHOWN: usize = 200;

/// Returns true if a path is the file.
pub(super) fn holds(path: &ManagedPath, desired: &FileSpec, observed: &Observation) -> bool {
    compare(path, desired, observed).is_empty()
}

/// Returns true if two entries set the same file: names of owners count as the ids they stand for here.
pub(super) fn same_file(one: &FileSpec, other: &FileSpec, observed: &Observation) -> bool {
    one.contents == other.contents && one.mode == other.mode && same_owner(&one.owner, &other.owner, observed)
}

/// Returns true if two owners are one on this host.
pub(super) fn same_owner(one: &Owner, other: &Owner, observed: &Observation) -> bool {
    same_principal(&one.user, &other.user, &observed.user_ids)
        && same_principal(&one.group, &other.group, &observed.group_ids)
}

/// Returns true if a name and a number, or two of them, are one on this host.
pub(super) fn same_principal(one: &Principal, other: &Principal, ids: &BTreeMap<String, u32>) -> bool {
    one == other || id_of(one, ids).is_some_and(|id| id_of(other, ids) == Some(id))
}

/// Returns true if a path is as an entry has it.
pub(super) fn entry_holds(path: &ManagedPath, entry: &PathSpec, observed: &Observation) -> bool {
    match entry {
        PathSpec::File(file) => holds(path, file, observed),
        PathSpec::Directory(directory) => self::directory(path, directory, observed).is_empty(),
        PathSpec::Link(link) => self::link(path, link, observed).is_empty(),
    }
}

/// Returns true if the old entry of a path leaves nothing to do for the new one. Leave to replace something is no part of
/// it, and what a directory never set stays as it is.
pub(super) fn same_entry(old: &PathSpec, new: &PathSpec, observed: &Observation) -> bool {
    let same = |old: &Option<Principal>, new: &Option<Principal>, ids| match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => same_principal(old, new, ids),
        (None, Some(_)) | (Some(_), None) => false,
    };
    match (old, new) {
        (PathSpec::File(old), PathSpec::File(new)) => same_file(old, new, observed),
        (PathSpec::Directory(old), PathSpec::Directory(new)) => {
            old.mode == new.mode
                && same(&old.user, &new.user, &observed.user_ids)
                && same(&old.group, &new.group, &observed.group_ids)
        }
        (PathSpec::Link(old), PathSpec::Link(new)) => {
            old.target == new.target
                && (old.hard_target().is_some() || same_owner(&old.owner, &new.owner, observed))
        }
        (PathSpec::File(_) | PathSpec::Directory(_) | PathSpec::Link(_), _) => false,
    }
}

/// Describes an entry of the host.
pub(super) fn found_word(found: &ObservedFile) -> String {
    match found {
        ObservedFile::Absent => "nothing".to_owned(),
        ObservedFile::Regular { .. } => "a file".to_owned(),
        ObservedFile::Symlink { target, .. } => {
            let target: String = target.chars().take(SHOWN).collect();
            format!("a symbolic link to {target:?}")
        }
        ObservedFile::Directory { .. } => "a directory".to_owned(),
        ObservedFile::Special => "a device, a socket or a pipe".to_owned(),
        ObservedFile::Unreachable => "a path that can't be followed".to_owned(),
    }
}

/// Compares a path with a directory: each attribute that differs.
pub(super) fn directory(path: &ManagedPath, desired: &DirectorySpec, observed: &Observation) -> Vec<Found> {
    let found = observed.files.get(path).unwrap_or(&ObservedFile::Absent);
    let ObservedFile::Directory { mode, uid, gid } = found else {
        return vec![(unlike(found), "a directory".to_owned(), found_word(found))];
    };
    let mut all = Vec::new();
    if let Some(desired) = desired.mode.filter(|desired| desired.bits() != *mode) {
        all.push((DifferenceKind::Mode, desired.to_string(), format!("{mode:04o}")));
    }
    let is = |desired: &Option<Principal>, ids, found: u32| {
        desired.as_ref().is_none_or(|desired| id_of(desired, ids) == Some(found))
    };
    if is(&desired.user, &observed.user_ids, *uid) && is(&desired.group, &observed.group_ids, *gid) {
        return all;
    }
    let shown = |desired: &Option<Principal>| desired.as_ref().map_or("any".to_owned(), ToString::to_string);
    let expected = format!("{}:{}", shown(&desired.user), shown(&desired.group));
    all.push((DifferenceKind::Owner, expected, format!("{uid}:{gid}")));
    all
}

/// Compares a path with a link: each attribute that differs.
pub(super) fn link(path: &ManagedPath, desired: &LinkSpec, observed: &Observation) -> Vec<Found> {
    let found = observed.files.get(path).unwrap_or(&ObservedFile::Absent);
    let text = match &desired.target {
        LinkTarget::Soft(text) => text,
        LinkTarget::Hard(target) => return hard_link(path, target, found, observed).into_iter().collect(),
    };
    let ObservedFile::Symlink { target, uid, gid } = found else {
        let expected = format!("a symbolic link to {:?}", short(text, SHOWN));
        return vec![(unlike(found), expected, found_word(found))];
    };
    let mut all = Vec::new();
    if target != text {
        all.push((DifferenceKind::Value, short(text, SHOWN), short(target, SHOWN)));
    }
    let owner =
        (id_of(&desired.owner.user, &observed.user_ids), id_of(&desired.owner.group, &observed.group_ids));
    let expected = format!("{}:{}", desired.owner.user, desired.owner.group);
    if owner != (Some(*uid), Some(*gid)) {
        all.push((DifferenceKind::Owner, expected, format!("{uid}:{gid}")));
    }
    all
}

fn hard_link(
    path: &ManagedPath,
    target: &ManagedPath,
    found: &ObservedFile,
    observed: &Observation,
) -> Option<Found> {
    if observed.hard_links.contains(&(path.clone(), target.clone())) || is_copy(path, target, observed) {
        return None;
    }
    let expected = format!("a hard link to {target}");
    Some(match found {
        ObservedFile::Regular { .. } => (DifferenceKind::Value, expected, "another file".to_owned()),
        ObservedFile::Absent
        | ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => (unlike(found), expected, found_word(found)),
    })
}

/// Each deployment has its own `/etc`, copied file by file: a copy that is equal is all that is left of a hard link.
fn is_copy(path: &ManagedPath, target: &ManagedPath, observed: &Observation) -> bool {
    let copies = match observed.os {
        ObservedOs::NotImageBased => false,
        ObservedOs::Deployments { .. } => path.is_below("/etc") && target.is_below("/etc"),
    };
    let is_file = |found: &&ObservedFile| matches!(found, ObservedFile::Regular { .. });
    let found = observed.files.get(path).filter(is_file);
    copies && found.is_some() && found == observed.files.get(target)
}

fn unlike(found: &ObservedFile) -> DifferenceKind {
    if *found == ObservedFile::Absent { DifferenceKind::Missing } else { DifferenceKind::Unexpected }
}

/// Compares an observed path with a file: each attribute that differs.
pub(super) fn compare(path: &ManagedPath, desired: &FileSpec, observed: &Observation) -> Vec<Found> {
    let found = observed.files.get(path).unwrap_or(&ObservedFile::Absent);
    let regular = || format!("a file of {}", counted(desired.contents.len(), "byte"));
    let (sha256, len, mode, uid, gid) = match found {
        ObservedFile::Absent => return vec![(DifferenceKind::Missing, regular(), found_word(found))],
        ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => {
            return vec![(DifferenceKind::Unexpected, regular(), found_word(found))];
        }
        ObservedFile::Regular { sha256, len, mode, uid, gid } => (*sha256, *len, *mode, *uid, *gid),
    };
    let mut all = Vec::new();
    if sha256 != desired.contents.sha256() {
        let shown = |sha256: Sha256, len: String| {
            if desired.is_secret() { len } else { format!("{len}, sha256:{sha256}") }
        };
        let expected = shown(desired.contents.sha256(), counted(desired.contents.len(), "byte"));
        all.push((DifferenceKind::Content, expected, shown(sha256, counted(len, "byte"))));
    }
    if mode != desired.mode.bits() {
        all.push((DifferenceKind::Mode, desired.mode.to_string(), format!("{mode:04o}")));
    } else if observed.access_lists.contains(path) {
        let found = format!("{mode:04o} and an access list (getfacl {path})");
        all.push((DifferenceKind::Mode, desired.mode.to_string(), found));
    }
    let owner =
        (id_of(&desired.owner.user, &observed.user_ids), id_of(&desired.owner.group, &observed.group_ids));
    if owner != (Some(uid), Some(gid)) {
        let expected = format!("{}:{}", desired.owner.user, desired.owner.group);
        all.push((DifferenceKind::Owner, expected, format!("{uid}:{gid}")));
    }
    all
}

/// Returns the id of an owner on this host; `None` when the name has no account.
pub(super) fn id_of(principal: &Principal, ids: &BTreeMap<String, u32>) -> Option<u32> {
    match principal {
        Principal::Id(id) => Some(*id),
        Principal::Name(name) => ids.get(name).copied(),
    }
}
