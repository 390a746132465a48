//! Unit files as an update leaves them, and the links that its steps make of them: looked at before anything is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::durable::examine;
use crate::host::saved::{self, PathSnapshot};
use crate::host::systemd::{Coming, LinkVerb, UnitLinks};
use crate::host::{HostError, Root};
use crate::model::ids::UNIT_DIR;
use crate::model::observation::{ObservedUnit, UnitFileState};
use crate::model::obstacles::Obstacle;
use crate::model::paths::LinkTarget;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{HostSpec, ManagedPath, Observation, Obstacles, PathSpec, UnitName};

use super::replaced::Entries;

/// Reads the links of units as they are once the files of an update are written.
pub(super) fn links_after<'a>(
    root: &'a Root,
    (from, to): (&HostSpec, &HostSpec),
    (old, new): Entries<'_>,
) -> Result<UnitLinks<'a>, HostError> {
    let mut coming = BTreeMap::new();
    for (path, entry) in new.iter().filter(|(path, _)| is_source(path)) {
        coming.extend(as_entry(root, new, entry)?.map(|entry| (path.clone(), entry)));
    }
    let masks = from.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked).map(|(name, _)| name.path());
    let (kept, masks) = (to.managed(), masks.collect::<BTreeSet<_>>());
    let left = old.keys().chain(&masks).filter(|path| is_source(path) && !kept.contains(*path));
    for path in left {
        match saved::original(root, path)? {
            Some(PathSnapshot::File { bytes, .. }) => {
                coming.insert(path.clone(), Coming::File(bytes.as_slice().to_vec()));
            }
            Some(PathSnapshot::Link { target, .. }) => {
                coming.insert(path.clone(), Coming::Link(target));
            }
            Some(PathSnapshot::HardLink { .. } | PathSnapshot::Own { .. }) => {}
            // The link of a mask goes with the links.
            Some(PathSnapshot::Absent | PathSnapshot::Directory { .. }) | None => {
                if !masks.contains(path) {
                    coming.insert(path.clone(), Coming::Nothing);
                }
            }
        }
    }
    UnitLinks::load_with(root, coming)
}

/// Returns true for the path of a unit file, a drop-in, or a link to a unit, wherever it is.
fn is_source(path: &ManagedPath) -> bool {
    let Some((directory, name)) = path.as_str().rsplit_once('/') else { return false };
    let is_drop_in = name.strip_suffix(".conf").is_some() && directory.strip_suffix(".d").is_some();
    is_drop_in || UnitName::new(name).is_ok()
}

fn as_entry(
    root: &Root,
    new: &BTreeMap<ManagedPath, PathSpec>,
    entry: &PathSpec,
) -> Result<Option<Coming>, HostError> {
    Ok(match entry {
        PathSpec::File(file) => Some(Coming::File(file.contents.bytes().to_vec())),
        PathSpec::Directory(_) => None,
        PathSpec::Link(link) => match &link.target {
            LinkTarget::Soft(text) => Some(Coming::Link(text.clone())),
            LinkTarget::Hard(target) => match new.get(target) {
                Some(PathSpec::File(file)) => Some(Coming::File(file.contents.bytes().to_vec())),
                Some(PathSpec::Directory(_) | PathSpec::Link(_)) | None => {
                    root.read(target.as_str())?.map(Coming::File)
                }
            },
        },
    })
}

/// Returns the units whose files come with the storage of a config, as they are once these are written.
pub(super) fn stored(
    after: &UnitLinks<'_>,
    from: &HostSpec,
    to: &HostSpec,
) -> Result<BTreeMap<UnitName, ObservedUnit>, HostError> {
    let mut found = BTreeMap::new();
    for name in to.units.keys() {
        if from.unit_sources(name).chain(to.unit_sources(name)).next().is_some() {
            found.insert(name.clone(), after.observe(name)?);
        }
    }
    Ok(found)
}

/// Makes the changes of links in memory, and looks whether they can be made and leave the units as the config has them.
pub(super) fn obstacles(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    observed: &Observation,
    after: &UnitLinks<'_>,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    let mut verbs = changes(from, to, observed);
    if verbs.is_empty() {
        return Ok(());
    }
    let (mut links, mut seen) = (after.clone(), BTreeSet::new());
    // As they are made.
    verbs.sort_by_key(|(verb, unit)| (*verb, links.is_preset(unit)));
    for (verb, name) in verbs {
        match links.make(verb, name) {
            // The plan says whether a mask stays.
            Err(HostError::Unit { .. }) if is_masked(name, observed) => {}
            Err(error @ HostError::Unit { .. }) => {
                found.units.entry(name.clone()).or_insert((&error).into());
            }
            made => made?,
        }
        for change in links.changes(&[]) {
            if seen.insert(change.path().to_owned())
                && let Some(obstacle) = examine(root, &change)?.obstacle
            {
                found.units.entry(name.clone()).or_insert(obstacle);
            }
        }
    }
    taken(to, &links, found)
}

/// Returns the changes of links that the steps of an update may make.
fn changes<'a>(
    from: &'a HostSpec,
    to: &'a HostSpec,
    observed: &Observation,
) -> Vec<(LinkVerb, &'a UnitName)> {
    let is_stored = |name: &UnitName| {
        from.unit_sources(name).any(|path| from.files.get(path) != to.files.get(path))
            || to.unit_sources(name).any(|path| from.files.get(path) != to.files.get(path))
    };
    let differs = |name: &UnitName, unit: &UnitSpec| {
        let enabled = observed.units.get(name).map(|unit| unit.enabled);
        unit.enablement == Enablement::Enabled && enabled != Some(UnitFileState::Enabled)
    };
    let changed = to.units.iter().filter(|(name, unit)| {
        from.units.get(*name) != Some(*unit) || is_stored(name) || differs(name, unit)
    });
    let changed = changed.flat_map(|(name, unit)| verbs(unit).into_iter().map(move |verb| (verb, name)));
    let dropped = from.units.iter().filter(|(name, _)| !to.units.contains_key(*name));
    let dropped = dropped.flat_map(|(name, unit)| {
        let unmask = (unit.mask == Mask::Masked).then_some(LinkVerb::Unmask);
        unmask.into_iter().chain([LinkVerb::Preset]).map(move |verb| (verb, name))
    });
    changed.chain(dropped).collect()
}

/// Names the units that would not be as the config has them, since another one has the same link.
fn taken(to: &HostSpec, links: &UnitLinks<'_>, found: &mut Obstacles) -> Result<(), HostError> {
    for (name, unit) in &to.units {
        if unit.mask == Mask::Masked
            || unit.enablement != Enablement::Enabled
            || found.units.contains_key(name)
        {
            continue;
        }
        for (at, other) in links.taken(name)? {
            let cause = format!("{UNIT_DIR}/{at} would lead to {other}, and so {name} would not be enabled");
            let next = format!("Give one of them another Alias=, or do not enable {name}.");
            let obstacle = Obstacle { cause, next };
            found.units.extend(UnitName::new(other).ok().map(|other| (other, obstacle.clone())));
            found.units.insert(name.clone(), obstacle);
        }
    }
    Ok(())
}

fn is_masked(name: &UnitName, observed: &Observation) -> bool {
    observed.units.get(name).is_some_and(|unit| unit.enabled == UnitFileState::Masked)
}

fn verbs(unit: &UnitSpec) -> Vec<LinkVerb> {
    let enablement = match unit.enablement {
        Enablement::Enabled => LinkVerb::Enable,
        Enablement::Disabled => LinkVerb::Disable,
        Enablement::Preset => LinkVerb::Preset,
    };
    match unit.mask {
        Mask::Masked => vec![LinkVerb::Mask],
        Mask::Unmasked => vec![LinkVerb::Unmask, enablement],
        Mask::Unset => vec![enablement],
    }
}
