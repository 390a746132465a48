//! Entries that a person put in the place of one of the old config, or of a directory on its way: they are no config's. One stays where the
//! entry leaves; where something is to be written or restored there, it is in the way.
//!
//! # Decisions
//! 1. A file of other bytes or another mode is drift, which a change of the entry overwrites. An entry of another kind is not, a link in the
//!    place of a file neither: nobody could tell that from what the host had. A mask counts as an entry, too.
//! 2. Behind a link in the place of a listed directory nothing is the config's. Behind one in the place of a directory that the agent made,
//!    and in a mount, only what is as the old config had it: an administrator may have moved the directory, with what is in it.
//! 3. `overwrite: true` is for what the host had before the entry; no original would be kept of what comes after.

use super::compare::{entry_holds, found_word};
use super::field::field;
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{BatchOp, FileOp, LinkOp, Op};
use crate::model::observation::ObservedOs;
use crate::model::{Displaced, FileSpec, ManagedPath, ObservedFile, PathSpec};

impl PlanInput<'_> {
    /// Returns true if something of another kind than the entry of an earlier config is in its place.
    fn is_replaced(&self, path: &ManagedPath) -> bool {
        let observed = &self.facts.observed;
        let claimed = || self.from.claimed.get(path)?.as_ref();
        self.old(path)
            .or_else(claimed)
            .is_some_and(|entry| entry.is_replaced_in(path, observed, |target| self.earlier_file(target)))
            || self.from.has_mask_replaced(path, observed.files.get(path).unwrap_or(&ObservedFile::Absent))
    }

    /// Returns a file of an earlier config.
    fn earlier_file(&self, path: &ManagedPath) -> Option<&FileSpec> {
        let claimed = || self.from.claimed.get(path)?.as_ref();
        match self.old(path).or_else(claimed) {
            Some(PathSpec::File(file)) => Some(file),
            Some(PathSpec::Directory(_) | PathSpec::Link(_)) | None => None,
        }
    }

    /// Returns true if a person put something in the place of an entry that leaves, or of a directory on its way, and no config brings
    /// anything there: it stays. Where something has to come back, or is needed below it, it is in the way.
    pub(super) fn is_others(&self, path: &ManagedPath) -> bool {
        let (Some(entry), None) = (self.old(path), self.new_entry(path)) else { return false };
        let is_directory = matches!(entry, PathSpec::Directory(_));
        if self.restorable(path) && (!is_directory || self.uncovers(path)) {
            return false;
        }
        self.is_replaced(path) && (is_directory || !self.holds_new(path)) || self.stays_behind(path).is_some()
    }

    /// Returns true for a directory that leaves, and in whose place the file or the link of the host comes back that it has replaced.
    fn uncovers(&self, path: &ManagedPath) -> bool {
        self.facts.covering.contains(path) && !self.holds_new(path)
    }

    /// Returns the directory in whose place a link or a mount is, and where a path that leaves stays behind it.
    pub(super) fn stays_behind(&self, path: &ManagedPath) -> Option<(&ManagedPath, Displaced)> {
        let found = self.facts.observed.files.get(path).unwrap_or(&ObservedFile::Absent);
        let (directory, how) = self.displaced_above(path).filter(|_| !is_nothing(found))?;
        let stays = how != Displaced::Mount || !self.is_own(path);
        stays.then_some((directory, how))
    }

    /// Returns true if the directory, or an entry in it, is of both configs, and no step writes it.
    fn leaves_any_in(&self, directory: &ManagedPath) -> bool {
        let is_in = |path: &ManagedPath| path == directory || path.is_below(directory.as_str());
        let is_of_both = |path: &ManagedPath| self.old(path).is_some() && self.new_entry(path).is_some();
        self.paths().any(|path| is_in(path) && is_of_both(path) && self.write(path).is_none())
    }

    fn displaced_above(&self, path: &ManagedPath) -> Option<(&ManagedPath, Displaced)> {
        let is_above = |directory: &ManagedPath| directory != path && path.is_below(directory.as_str());
        let above = self.facts.displaced.iter().find(|(directory, _)| is_above(directory));
        above.map(|(directory, how)| (directory, *how))
    }

    /// Returns true if what is at a path is known, and can be had again: it is as the new config or the original has it, or the image's.
    fn is_known(&self, path: &ManagedPath) -> bool {
        let observed = &self.facts.observed;
        let is_of_image = || {
            matches!(observed.os, ObservedOs::Deployments { .. })
                && path.is_below("/etc")
                && !self.facts.local.contains(path)
        };
        self.new_entry(path).is_some_and(|entry| entry_holds(path, entry, observed))
            || self.facts.restored.contains(path)
            || is_of_image()
    }
}

/// Returns true if nothing is known to be at a path: whether something is behind a link to itself can't be told, and is refused as such.
fn is_nothing(found: &ObservedFile) -> bool {
    matches!(found, ObservedFile::Absent | ObservedFile::Unreachable)
}

/// Returns why a step can't be taken: it would replace what no config brought, and no original would be kept of it.
pub(super) fn in_place(input: &PlanInput<'_>, op: &Op) -> Option<Unreachable> {
    let path =
        op.path().filter(|_| matches!(op.in_batch(), BatchOp::File(_) | BatchOp::Link(LinkOp::Mask, _)))?;
    let found = input.facts.observed.files.get(&path)?;
    // Others refuse the change by themselves.
    let is_other = matches!(found, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. });
    if !is_other || !input.is_replaced(&path) || input.is_known(&path) {
        return None;
    }
    let found = found_word(found);
    let message = format!("{found} is in its place by now, which no config brought; move {path} away");
    Some(unreachable(ReasonKind::InTheWay, field(op), message))
}

/// Returns why a directory can't leave: the host's own file or link comes back in its place, and it holds what no config brought.
pub(super) fn full(input: &PlanInput<'_>, path: &ManagedPath) -> Option<Unreachable> {
    let is_left =
        input.take_away(path).is_some() || (!input.is_ours(path) && input.take_parent_away(path).is_some());
    if !input.facts.holding.contains(path) || !input.uncovers(path) || !input.restorable(path) || !is_left {
        return None;
    }
    let message = format!(
        "it holds what no config brought, and the file or link that the host had there before comes back in its place; move {path} away"
    );
    let op = Op::RestoreDirectory { path: path.clone() };
    Some(unreachable(ReasonKind::InTheWay, field(&op), message))
}

/// Returns why a step can't be taken: it would change what is behind a link or a mount in the place of a directory of the config.
pub(super) fn behind(input: &PlanInput<'_>, op: &Op) -> Option<Unreachable> {
    let path = op.path()?;
    let is_write = match op.in_batch() {
        BatchOp::File(FileOp::Write | FileOp::Directory | FileOp::Link | FileOp::OpenDirectory) => true,
        BatchOp::File(FileOp::Restore | FileOp::Remove) => false,
        BatchOp::File(FileOp::LeaveDirectory) if input.restorable(&path) && input.uncovers(&path) => false,
        BatchOp::File(FileOp::LeaveDirectory)
        | BatchOp::Os(_)
        | BatchOp::Account(..)
        | BatchOp::User(..)
        | BatchOp::Link(..)
        | BatchOp::Service(_) => return None,
    };
    let (directory, how) = input.displaced_above(&path)?;
    let found = input.facts.observed.files.get(&path).unwrap_or(&ObservedFile::Absent);
    let is_absent = is_nothing(found);
    let is_ours = input.is_own(&path) || input.is_known(&path);
    let is_refused = match (how, is_write) {
        // Nothing is there to be removed.
        (_, false) if is_absent && !input.restorable(&path) => false,
        (Displaced::ListedLink, _) | (Displaced::MadeLink | Displaced::LinkOfAccount, false) => {
            !input.facts.restored.contains(&path)
        }
        // What is there as it is to be is not written.
        (Displaced::MadeLink, true) => is_absent || !input.is_known(&path),
        (Displaced::Mount, true) => !is_absent && input.is_ours(&path) && !is_ours,
        // The walk of a write says it.
        (Displaced::LinkOfAccount, true) => false,
        (Displaced::Mount, false) => !is_ours,
    };
    let next = match how {
        // Without what the config leaves as it is there, the host would differ from it, and no update would start.
        Displaced::ListedLink | Displaced::MadeLink if input.leaves_any_in(directory) => {
            format!("make {directory} a directory again, with what the config has in it")
        }
        Displaced::ListedLink | Displaced::MadeLink | Displaced::LinkOfAccount => {
            format!("move {directory} away")
        }
        Displaced::Mount => format!("umount {directory} (findmnt {directory})"),
    };
    let how = how.as_str();
    let message =
        format!("{directory} above it is {how}, and what is behind it belongs to no config; {next}");
    is_refused.then(|| unreachable(ReasonKind::InTheWay, field(op), message))
}
