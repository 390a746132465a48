//! Entries of the host that can't be what a config brought, since they are of another kind: a person put them there.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::LinkTarget;
use super::units::Mask;
use super::{Displaced, FileSpec, HostSpec, LinkSpec, ManagedPath, Observation, ObservedFile, PathSpec};

impl PathSpec {
    /// Returns true if what is found is of another kind than this entry, however that was changed since. `is_name` returns whether it
    /// may be another name of a hard link's file.
    pub fn is_replaced_by(&self, found: &ObservedFile, is_name: impl FnOnce(&ManagedPath) -> bool) -> bool {
        match (self, found) {
            (_, ObservedFile::Absent | ObservedFile::Unreachable)
            | (Self::Directory(_), ObservedFile::Directory { .. })
            | (Self::File(_), ObservedFile::Regular { .. }) => false,
            (Self::Link(link), ObservedFile::Symlink { .. }) => {
                link.hard_target().is_some_and(|target| !is_name(target))
            }
            (Self::Link(link), ObservedFile::Regular { .. }) => {
                link.hard_target().is_none_or(|target| !is_name(target))
            }
            (
                Self::Directory(_),
                ObservedFile::Regular { .. } | ObservedFile::Symlink { .. } | ObservedFile::Special,
            )
            | (Self::File(_), ObservedFile::Symlink { .. })
            | (Self::File(_) | Self::Link(_), ObservedFile::Directory { .. } | ObservedFile::Special) => true,
        }
    }

    /// As [`PathSpec::is_replaced_by`], by an observation. `file` returns those of the entry's config.
    pub fn is_replaced_in<'a>(
        &self,
        path: &ManagedPath,
        observed: &Observation,
        file: impl FnOnce(&ManagedPath) -> Option<&'a FileSpec>,
    ) -> bool {
        let found = observed.files.get(path).unwrap_or(&ObservedFile::Absent);
        self.is_replaced_by(found, |target| {
            let other = observed.files.get(target);
            observed.hard_links.contains(&(path.clone(), target.clone()))
                || other.is_some_and(|other| found.has_content_of(other))
                || file(target).is_some_and(|file| file.has_content_of(found))
        })
    }
}

impl FileSpec {
    /// Returns true if what is found is a regular file with its bytes.
    pub fn has_content_of(&self, found: &ObservedFile) -> bool {
        matches!(found, ObservedFile::Regular { sha256, .. } if *sha256 == self.contents.sha256())
    }
}

impl HostSpec {
    /// Returns the applied paths in whose place something of another kind is.
    pub fn replaced(&self, observed: &Observation) -> BTreeSet<ManagedPath> {
        let entries = self.entries().into_iter();
        let file = |path: &ManagedPath| self.files.get(path);
        let replaced = entries.filter(|(path, entry)| entry.is_replaced_in(path, observed, file));
        replaced.map(|(path, _)| path).collect()
    }

    /// Returns true if something else is found in the place of a unit's mask: a file, or another link.
    pub fn has_mask_replaced(&self, path: &ManagedPath, found: &ObservedFile) -> bool {
        let is_mask = |link: &PathSpec| matches!(link, PathSpec::Link(link) if *link == LinkSpec::mask());
        let claimed = self.claimed.get(path).is_some_and(|entry| entry.as_ref().is_some_and(is_mask));
        let mut masked = self.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked);
        let is_other = match found {
            ObservedFile::Regular { .. } => true,
            ObservedFile::Symlink { target, .. } => {
                LinkSpec::mask().target != LinkTarget::Soft(target.clone())
            }
            ObservedFile::Absent
            | ObservedFile::Directory { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable => false,
        };
        is_other && (claimed || masked.any(|(name, _)| name.path() == *path))
    }

    /// Returns the listed directories in whose place a symbolic link is.
    pub fn displaced(&self, observed: &Observation) -> BTreeMap<ManagedPath, Displaced> {
        let is_link = |path: &&ManagedPath| {
            let found = observed.files.get(*path);
            matches!(found, Some(ObservedFile::Symlink { .. })) && !self.unapplied.contains(*path)
        };
        let links = self.directories.keys().filter(is_link);
        links.map(|path| (path.clone(), Displaced::ListedLink)).collect()
    }
}
