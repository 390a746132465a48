//! The input of a plan: old spec, new spec, facts and mode.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{entry_holds, same_entry};
use super::{Mode, StepReason};
use crate::model::observation::EmbeddedConfig;
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
}

impl<'a> PlanInput<'a> {
    pub(super) fn new(from: &'a HostSpec, to: &'a HostSpec, facts: &'a Facts, mode: Mode) -> Self {
        let masked =
            to.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked).map(|(name, _)| name.path());
        let (old, mut new) = (from.entries(), to.entries());
        // An entry that came with a take-over waits for its next change.
        let waits = unapplied(to, from, &facts.observed);
        new.retain(|path, _| !waits.contains(path));
        Self { from, to, facts, mode, old, new, masked: masked.collect() }
    }

    /// Returns why a path of the new config is written now; `None` when it is not.
    pub(super) fn write(&self, path: &ManagedPath) -> Option<StepReason> {
        let new = self.new.get(path)?;
        let old = self.old.get(path);
        let named = if old.is_some() { StepReason::Changed } else { StepReason::Added };
        let differs = !entry_holds(path, new, &self.facts.observed) || self.leaves_target(new);
        match self.mode {
            Mode::Image => self.uncarried(path).filter(|_| differs),
            Mode::Adopt => differs.then_some(named),
            Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage => {
                let same = old.is_some_and(|old| same_entry(old, new, &self.facts.observed));
                (!same || self.leaves_target(new)).then_some(named)
            }
        }
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

    /// Returns true if the agent may replace what is there: an earlier config brought it.
    pub(super) fn is_ours(&self, path: &ManagedPath) -> bool {
        self.old.contains_key(path) || self.from.claimed.contains(path)
    }

    /// Returns why a path of the old config is removed now; `None` when it stays or another step removes it.
    pub(super) fn take_away(&self, path: &ManagedPath) -> Option<StepReason> {
        if self.new.contains_key(path) || self.from.unapplied.contains(path) || self.masked.contains(path) {
            return None;
        }
        let absent = self.facts.observed.files.get(path) == Some(&ObservedFile::Absent);
        match self.mode {
            Mode::Image => self.uncarried(path).filter(|_| !absent),
            Mode::Adopt => (!absent).then_some(StepReason::Removed),
            Mode::Nothing | Mode::Files | Mode::ImageAndFiles | Mode::LeaveImage => Some(StepReason::Removed),
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
        entry.is_some_and(|entry| entry_holds(path, entry, &self.facts.observed))
    }

    /// Returns the number of bytes of a path of the new config.
    pub(super) fn new_len(&self, path: &ManagedPath) -> Option<u64> {
        self.new.get(path).map(|entry| match entry {
            PathSpec::File(file) => u64::try_from(file.contents.len()).unwrap_or(u64::MAX),
            PathSpec::Directory(_) | PathSpec::Link(_) => 0,
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

    /// Returns true if a unit is masked again when the old config's file in its place goes.
    pub(super) fn has_own_mask(&self, path: &ManagedPath) -> bool {
        self.facts.own_masks.contains(path) && self.restorable(path)
    }

    /// Returns true if there is an original to restore. A file of the *old config* in the booted image is no
    /// original: putting it back would bring back the very file that is to go.
    pub(super) fn restorable(&self, path: &ManagedPath) -> bool {
        let carried = self.facts.observed.os.booted().is_some_and(|booted| match &booted.carries {
            EmbeddedConfig::Config(_) => self.from.image.is_some(),
            EmbeddedConfig::Unknown => false,
        });
        self.facts.restorable.contains(path) && !(carried && self.mode == Mode::Files)
    }
}
