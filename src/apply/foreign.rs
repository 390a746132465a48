//! Entries that somebody put in the place of others, or of a directory on their way, after the plan was made or while a batch was
//! interrupted: they are no config's. A path that leaves is left out then; a change is refused, as a plan would be.

use std::collections::{BTreeMap, BTreeSet};

use tracing::warn;

use crate::host::durable::{self, Change};
use crate::host::saved::PathSnapshot;
use crate::host::{Host, HostError, parents, restore};
use crate::journal::Intent;
use crate::journal::originals::Original;
use crate::model::{HostSpec, ManagedPath, ObservedFile, PathSpec};

/// Directories of the configs, and those made for them, in whose place a link is.
#[derive(Debug)]
pub(super) struct DisplacedDirectories {
    /// True for a directory that is listed, or made by the batch: nothing behind it is of a config.
    all: BTreeMap<ManagedPath, bool>,
}

impl DisplacedDirectories {
    /// Looks for them.
    pub(super) fn load(
        host: &Host,
        listed: impl Iterator<Item = ManagedPath>,
        made: &BTreeSet<ManagedPath>,
    ) -> Result<Self, HostError> {
        let mut all = BTreeMap::new();
        for (path, is_listed) in
            made.iter().cloned().map(|path| (path, false)).chain(listed.map(|path| (path, true)))
        {
            if matches!(host.root.observe(path.as_str())?, ObservedFile::Symlink { .. }) {
                all.insert(path, is_listed);
            }
        }
        Ok(Self { all })
    }

    /// Returns the directory above a path, and whether nothing behind it is of a config.
    pub(super) fn above(&self, path: &str) -> Option<(&ManagedPath, bool)> {
        let is_above = |directory: &ManagedPath| crate::model::ids::is_below(path, directory.as_str());
        self.all.iter().find(|(directory, _)| is_above(directory)).map(|(directory, is)| (directory, *is))
    }

    /// Returns the error of a path behind one.
    pub(super) fn error(directory: &ManagedPath) -> HostError {
        HostError::Kind {
            path: directory.to_string(),
            expected: "a directory",
            found: "a link, which no config brought",
        }
    }
}

/// Returns the directories that entries list.
pub(super) fn directories(
    entries: &BTreeMap<ManagedPath, PathSpec>,
) -> impl Iterator<Item = ManagedPath> + '_ {
    let listed = entries.iter().filter(|(_, entry)| matches!(entry, PathSpec::Directory(_)));
    listed.map(|(path, _)| path.clone())
}

/// Returns true if what is found at a path is of another kind than a config's entry there.
pub(super) fn is_replaced(
    host: &Host,
    spec: &HostSpec,
    (path, entry): (&ManagedPath, &PathSpec),
    found: &ObservedFile,
) -> Result<bool, HostError> {
    let target = match entry {
        PathSpec::Link(link) => link.hard_target(),
        PathSpec::File(_) | PathSpec::Directory(_) => None,
    };
    let is_name = match target {
        Some(target) => is_name(host, spec, (path.as_str(), found), target)?,
        None => false,
    };
    Ok(entry.is_replaced_by(found, |_| is_name))
}

/// Returns true if what is found at a path may be another name of a file.
pub(super) fn is_name(
    host: &Host,
    spec: &HostSpec,
    (path, found): (&str, &ObservedFile),
    target: &ManagedPath,
) -> Result<bool, HostError> {
    let of_config = spec.files.get(target).is_some_and(|file| file.has_content_of(found));
    Ok(of_config || durable::may_be_name(&host.root, path, target.as_str(), found)?)
}

/// Returns those of the paths that leave in whose place somebody put something, or that are behind a link in the place of a directory.
pub(super) fn left<'a>(
    intent: &Intent<'_>,
    host: &Host,
    displaced: &DisplacedDirectories,
    leaving: impl Iterator<Item = (&'a ManagedPath, Option<&'a PathSpec>)>,
) -> Result<BTreeSet<String>, HostError> {
    let mut stays = BTreeSet::new();
    for (path, entry) in leaving {
        let found = host.root.observe(path.as_str())?;
        let is_replaced = match entry {
            Some(entry) => is_replaced(host, intent.from(), (path, entry), &found)?,
            None => false,
        };
        if is_replaced || displaced.above(path.as_str()).is_some() {
            if !matches!(found, ObservedFile::Absent | ObservedFile::Unreachable) {
                warn!("{path} stays: no config brought what is there");
            }
            stays.insert(path.to_string());
        }
    }
    Ok(stays)
}

/// Returns the paths that links of the host lead elsewhere than when they were saved, with the error of each: what the batch made is in
/// the place of before, and nothing is written behind the new one.
pub(super) fn led_elsewhere(
    intent: &Intent<'_>,
    host: &Host,
    saved: &[Original],
    all: &[Change<'_>],
) -> Result<BTreeMap<String, HostError>, HostError> {
    let (entries, mut led) = (intent.to().entries(), BTreeMap::new());
    for (original, change) in saved.iter().zip(all) {
        let Some(before) = &original.led else { continue };
        // A link that the batch made leads there, or did until it was put back.
        let links = host.root.links_on_the_way(change.path())?;
        if all.iter().any(|other| links.iter().any(|link| link == other.path())) {
            continue;
        }
        let is_taken_away = match ManagedPath::new(change.path()) {
            Ok(path) if !original.directory && !entries.contains_key(&path) => {
                let kept = restore::original(&host.root, &path)?;
                kept.is_none_or(|kept| kept == PathSnapshot::Absent)
                    && !durable::is_in_sync(&host.root, change).unwrap_or(false)
            }
            Ok(_) | Err(_) => false,
        };
        let mut error = parents::led_elsewhere(&host.root, change.path(), before)?;
        if error.is_none() && is_taken_away {
            error = parents::led_away(&host.root, change.path(), before)?;
        }
        led.extend(error.map(|error| (original.path.clone(), error)));
    }
    Ok(led)
}

/// Returns the paths that leave, and where somebody put something else after an interrupted run had removed them: no config brought it.
pub(super) fn put_meanwhile(
    intent: &Intent<'_>,
    host: &Host,
    is_removed: impl Fn(&ManagedPath) -> bool,
) -> Result<BTreeSet<String>, HostError> {
    let mut stays = BTreeSet::new();
    let saved = intent.originals().load(&host.root, &intent.from().written())?;
    for original in saved.into_iter().flat_map(|saved| saved.paths) {
        if !ManagedPath::new(&*original.path).is_ok_and(|path| is_removed(&path)) {
            continue;
        }
        let (found, before) = (host.root.observe(&original.path)?, original.saved.observed());
        let is_other = match (&original.saved, &found) {
            (PathSnapshot::Absent, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. })
            | (PathSnapshot::HardLink { .. }, ObservedFile::Symlink { .. })
            | (
                _,
                ObservedFile::Absent
                | ObservedFile::Directory { .. }
                | ObservedFile::Special
                | ObservedFile::Unreachable,
            ) => false,
            (PathSnapshot::HardLink { target }, ObservedFile::Regular { .. }) => {
                let target = ManagedPath::new(target.as_str());
                let is_known = |target| is_name(host, intent.from(), (&original.path, &found), &target);
                !target.map_or(Ok(true), is_known)?
            }
            (_, ObservedFile::Regular { .. }) => !found.has_content_of(&before),
            (_, ObservedFile::Symlink { target, .. }) => {
                !matches!(&before, ObservedFile::Symlink { target: was, .. } if target == was)
            }
        };
        if is_other {
            warn!("{} stays: it was created while the update was interrupted", original.path);
            stays.insert(original.path);
        }
    }
    Ok(stays)
}

/// The entries of a path, and its change.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub(super) path: &'a ManagedPath,
    pub(super) old: Option<&'a PathSpec>,
    pub(super) new: Option<&'a PathSpec>,
    pub(super) change: &'a Change<'a>,
}

/// Refuses to go on where somebody put something in the place of an entry, as a plan would: its original is saved, so that it stays when
/// the update is undone.
pub(super) fn check(
    host: &Host,
    from: &HostSpec,
    displaced: &DisplacedDirectories,
    Checked { path, old, new, change }: &Checked<'_>,
) -> Result<(), HostError> {
    let found = host.root.observe(path.as_str())?;
    if let Some((directory, is_strict)) = displaced.above(path.as_str()) {
        // What is there as it was before the config stays so, whatever leads to it; what is as it is to be is not written.
        let is_right =
            !is_strict && found != ObservedFile::Absent && durable::is_in_sync(&host.root, change)?;
        if !is_right && !is_original(host, path, &found)? {
            return Err(DisplacedDirectories::error(directory));
        }
    }
    if durable::may_have_made(&host.root, change, &found)? {
        return Ok(());
    }
    // A repair sets the entry as it was.
    let is_other_kind = match old.filter(|old| new.is_none_or(|new| new != *old)) {
        Some(entry) => is_replaced(host, from, (path, entry), &found)?,
        None => from.has_mask_replaced(path, &found),
    };
    if is_other_kind && !is_original(host, path, &found)? {
        return Err(other_kind(path, old.or(*new), &found));
    }
    let is_foreign = match new.filter(|_| old.is_none() && !from.claimed.contains_key(*path)) {
        Some(PathSpec::Directory(directory)) => !directory.overwrite,
        // A hard link takes the place of a link, as the plan has it.
        Some(PathSpec::Link(link)) => {
            let is_taken = link.hard_target().is_some() && matches!(found, ObservedFile::Symlink { .. });
            !link.overwrite && !is_taken
        }
        Some(PathSpec::File(_)) | None => false,
    };
    if is_foreign { Err(other_kind(path, *new, &found)) } else { Ok(()) }
}

fn is_original(host: &Host, path: &ManagedPath, found: &ObservedFile) -> Result<bool, HostError> {
    Ok(restore::original(&host.root, path)?.is_some_and(|original| original.observed() == *found))
}

fn other_kind(path: &ManagedPath, entry: Option<&PathSpec>, found: &ObservedFile) -> HostError {
    let expected = match entry {
        Some(PathSpec::Directory(_)) => "a directory",
        Some(PathSpec::Link(_)) => "a link",
        Some(PathSpec::File(_)) | None => "a file",
    };
    let found = match found {
        ObservedFile::Symlink { .. } => "a link",
        ObservedFile::Directory { .. } => "a directory",
        ObservedFile::Absent
        | ObservedFile::Regular { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => "a file",
    };
    HostError::Kind { path: path.to_string(), expected, found }
}
