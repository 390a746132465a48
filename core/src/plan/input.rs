//! The input of a plan: old spec, new spec, facts and mode.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{entry_holds, same_entry};
use super::{Mode, StepReason};
use crate::model::ids::{STATE_DIR, is_at_or_below};
use crate::model::observation::EmbeddedConfig;
use crate::model::protected::WRITTEN;
use crate::model::units::Mask;
use crate::model::{Facts, HostSpec, ManagedPath, Observation, ObservedFile, PathSpec};

/// Returns what was never applied of the old spec, is the same in the new one and is still not as listed on the host.
pub(super) fn unapplied(to: &HostSpec, from: &HostSpec, observed: &Observation) -> BTreeSet<ManagedPath> {
    if from.unapplied.is_empty() {
        return BTreeSet::new();
    }
    let old: BTreeMap<_, _> = from.stored_paths().filter(|(path, _)| from.unapplied.contains(path)).collect();
    let waits = to
        .stored_paths()
        .filter(|(path, entry)| old.get(path) == Some(entry) && !entry_holds(path, entry, observed));
    waits.map(|(path, _)| path).collect()
}

/// Returns true if an entry is below a path.
fn holds_any(entries: &BTreeMap<ManagedPath, PathSpec>, path: &ManagedPath) -> bool {
    entries.keys().any(|other| other.is_below(path.as_str()))
}

/// The input of a plan.
#[derive(Debug)]
pub(super) struct PlanInput<'a> {
    pub(super) from: &'a HostSpec,
    pub(super) to: &'a HostSpec,
    pub(super) facts: &'a Facts,
    pub(super) mode: Mode,
    old: BTreeMap<ManagedPath, PathSpec>,
    new: BTreeMap<ManagedPath, PathSpec>,
    masked: BTreeSet<ManagedPath>,
    /// Directories of the new config, or with entries of it, in whose place a file or a link is.
    replaced: Vec<&'a ManagedPath>,
}

impl<'a> PlanInput<'a> {
    pub(super) fn new(from: &'a HostSpec, to: &'a HostSpec, facts: &'a Facts, mode: Mode) -> Self {
        let masked =
            to.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked).map(|(name, _)| name.path());
        let (old, mut new) = (from.entries(), to.entries());
        // An entry that came with a take-over waits for its next change.
        let waits = unapplied(to, from, &facts.observed);
        new.retain(|path, _| !waits.contains(path));
        let is_other = |path: &&ManagedPath| {
            let found = facts.observed.files.get(*path);
            matches!(found, Some(ObservedFile::Regular { .. } | ObservedFile::Symlink { .. }))
        };
        // A file or a link that leaves makes way for what the new config has below it.
        let left = from.files.keys().chain(from.links.keys());
        let left = left.filter(|path| !new.contains_key(*path) && holds_any(&new, path));
        let left = left.filter(|path| !from.unapplied.contains(*path));
        let listed = to.directories.keys().filter(|path| !waits.contains(*path));
        let replaced = listed.chain(left).filter(is_other).collect();
        Self { from, to, facts, mode, old, new, masked: masked.collect(), replaced }
    }

    /// Returns why a path of the new config is written now; `None` when it is not.
    pub(super) fn write(&self, path: &ManagedPath) -> Option<StepReason> {
        let new = self.new.get(path)?;
        let old = self.old.get(path);
        let named = if old.is_some() { StepReason::Changed } else { StepReason::Added };
        let differs = !self.is_as(Some(new), path) || self.leaves_target(new) || self.drops_attributes(path);
        match self.mode {
            Mode::Image => self.uncarried(path).filter(|_| differs),
            Mode::Adopt => differs.then_some(named),
            Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage => {
                let same = old.is_some_and(|old| same_entry(old, new, &self.facts.observed));
                (!same || self.leaves_target(new)).then_some(named)
            }
        }
    }

    /// Returns true if a directory's entry no longer sets an attribute: it goes back to what it was, which nothing on the host
    /// tells.
    pub(super) fn drops_attributes(&self, path: &ManagedPath) -> bool {
        match (self.old.get(path), self.new.get(path)) {
            (Some(PathSpec::Directory(old)), Some(PathSpec::Directory(new))) => new.drops_attributes_of(old),
            (Some(_) | None, _) => false,
        }
    }

    /// Returns what is at a path of the new config. Below a directory that takes the place of a file or a link nothing is yet,
    /// wherever that link leads.
    pub(super) fn found(&self, path: &ManagedPath) -> &ObservedFile {
        let is_in = |directory: &ManagedPath| path != directory && path.is_below(directory.as_str());
        if self.replaced.iter().any(|directory| is_in(directory)) {
            return &ObservedFile::Absent;
        }
        self.facts.observed.files.get(path).unwrap_or(&ObservedFile::Absent)
    }

    /// Returns true if an entry is a hard link to what is written anew: it would be left with the old file.
    fn leaves_target(&self, entry: &PathSpec) -> bool {
        let PathSpec::Link(link) = entry else { return false };
        link.hard_target().is_some_and(|target| self.write(target).is_some() || self.leaves(target))
    }

    /// Returns true if a path of the old config is removed now.
    pub(super) fn leaves(&self, path: &ManagedPath) -> bool {
        self.old.contains_key(path) && self.take_away(path).is_some()
    }

    /// Returns the old config's entry of a path.
    pub(super) fn old(&self, path: &ManagedPath) -> Option<&PathSpec> {
        self.old.get(path)
    }

    /// Returns the new config's entry of a path.
    pub(super) fn new_entry(&self, path: &ManagedPath) -> Option<&PathSpec> {
        self.new.get(path)
    }

    /// Returns the paths of the new config, and those that leave with the old one.
    pub(super) fn paths(&self) -> impl Iterator<Item = &ManagedPath> {
        self.new.keys().chain(self.old.keys().filter(|path| !self.new.contains_key(*path)))
    }

    /// Returns true if the agent may replace what is there: an earlier config brought it.
    pub(super) fn is_ours(&self, path: &ManagedPath) -> bool {
        self.old.contains_key(path) || self.from.claimed.contains_key(path)
    }

    /// Returns why a path of the old config is removed now; `None` when it stays or another step removes it.
    pub(super) fn take_away(&self, path: &ManagedPath) -> Option<StepReason> {
        if self.new.contains_key(path) || self.from.unapplied.contains(path) || self.masked.contains(path) {
            return None;
        }
        if self.is_lost(path) || self.is_agents(path) || self.is_others(path) {
            return None;
        }
        let absent = self.facts.observed.files.get(path) == Some(&ObservedFile::Absent);
        match self.mode {
            Mode::Image => self.uncarried(path).filter(|_| !absent),
            Mode::Adopt => (!absent).then_some(StepReason::Removed),
            Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage => Some(StepReason::Removed),
        }
    }

    /// Returns true if a file or a link that leaves becomes a directory, for the entries of the new config below it.
    pub(super) fn makes_way(&self, path: &ManagedPath) -> bool {
        (self.from.links.contains_key(path) || self.from.files.contains_key(path))
            && self.take_away(path).is_some()
            && !self.restorable(path)
            && holds_any(&self.new, path)
    }

    /// Returns true for a directory that the agent made for paths of the old config, and that the new one does not need.
    pub(super) fn is_spare(&self, path: &ManagedPath) -> bool {
        self.facts.spare.contains(path)
    }

    /// Returns true for a directory of the old config that leaves and stays on the host, as it holds what no config brought.
    pub(super) fn is_kept(&self, path: &ManagedPath) -> bool {
        self.facts.holding.contains(path) && !self.restorable(path)
    }

    /// Returns why a directory that the agent made for paths of the old config goes with them; `None` when it stays.
    pub(super) fn take_parent_away(&self, path: &ManagedPath) -> Option<StepReason> {
        match self.mode {
            Mode::Image => self.uncarried(path),
            Mode::Adopt | Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage => {
                Some(StepReason::Removed)
            }
        }
    }

    /// Returns true if the host has a path of the new config as that wants it.
    pub(super) fn is_in_place(&self, path: &ManagedPath) -> bool {
        self.is_as(self.new.get(path), path)
    }

    /// Returns true if the host has a path exactly as the old config wrote it: it can be written again from there.
    pub(super) fn is_own(&self, path: &ManagedPath) -> bool {
        self.is_as(self.old.get(path), path)
    }

    fn is_as(&self, entry: Option<&PathSpec>, path: &ManagedPath) -> bool {
        let is_hidden = *self.found(path) == ObservedFile::Absent;
        !is_hidden && entry.is_some_and(|entry| entry_holds(path, entry, &self.facts.observed))
    }

    /// Returns the number of bytes of a path of the new config, as far as it takes blocks. A directory takes one; the text of a
    /// link mostly is in its inode.
    pub(super) fn new_len(&self, path: &ManagedPath) -> Option<u64> {
        self.new.get(path).map(|entry| match entry {
            PathSpec::File(file) => u64::try_from(file.contents.len()).unwrap_or(u64::MAX),
            PathSpec::Directory(_) => 1,
            PathSpec::Link(_) => 0,
        })
    }

    /// Returns why no image can bring a path to this host; `None` if one can.
    pub(super) fn uncarried(&self, path: &ManagedPath) -> Option<StepReason> {
        if self.facts.under_var.contains(path) {
            Some(StepReason::UnderVar)
        } else {
            self.facts.local.contains(path).then_some(StepReason::LocallyModified)
        }
    }

    /// Returns true if the host had something there before, and the agent's original of it is gone: what is there stays, as nothing
    /// could bring the host's own back.
    pub(super) fn is_lost(&self, path: &ManagedPath) -> bool {
        self.facts.lost.contains(path)
    }

    /// Returns the other names of a path: its real one, and those by which links of the host lead to it.
    pub(super) fn other_names(&self, path: &ManagedPath) -> Vec<String> {
        let found = &self.facts.obstacles;
        let real = found.real_paths.get(path).map_or(path.as_str(), String::as_str);
        let mut names = vec![real.to_owned()];
        for (protected, place) in &found.places {
            if let Some(rest) = real.strip_prefix(&place.real)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                names.push(format!("{protected}{rest}"));
            }
        }
        names.retain(|name| name != path.as_str());
        names
    }

    /// Returns true if an entry of the new config is below a path.
    pub(super) fn holds_new(&self, path: &ManagedPath) -> bool {
        holds_any(&self.new, path)
    }

    /// Returns true if a path of the old config is the agent's by now: somebody made a directory on the way a link since.
    fn is_agents(&self, path: &ManagedPath) -> bool {
        let is_own =
            |name: &str| WRITTEN.into_iter().chain([STATE_DIR]).any(|file| is_at_or_below(name, file));
        self.other_names(path).iter().any(|name| is_own(name))
    }

    /// Returns true if a unit is masked again when the old config's file in its place goes.
    pub(super) fn has_own_mask(&self, path: &ManagedPath) -> bool {
        self.facts.own_masks.contains(path) && self.restorable(path)
    }

    /// Returns true if there is an original to restore. A file of the *old config* in the booted image is no
    /// original: putting it back would bring back the very file that is to go. The facts tell them apart by the config in the
    /// image; of an image that only has the label of one, all may be.
    pub(super) fn restorable(&self, path: &ManagedPath) -> bool {
        let observed = &self.facts.observed;
        let is_labelled = observed.os.booted().is_some_and(|booted| match &booted.carries {
            EmbeddedConfig::Config(_) => self.from.image.is_some() && observed.carried.is_none(),
            EmbeddedConfig::Unknown => false,
        });
        self.facts.restorable.contains(path) && !(is_labelled && self.mode == Mode::Files)
    }
}
