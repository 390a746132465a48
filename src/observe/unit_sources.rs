//! Unit files as an update leaves them, and the links that its steps make of them: looked at before anything is written.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::durable::examine;
use crate::host::restore;
use crate::host::saved::PathSnapshot;
use crate::host::systemd::{Coming, ConfigUnits, DEV_NULL, LinkVerb, UnitLinks};
use crate::host::{HostError, Root};
use crate::model::ids::{UNIT_DIR, is_preset};
use crate::model::observation::{ObservedUnit, UnitFileState};
use crate::model::obstacles::Obstacle;
use crate::model::paths::LinkTarget;
use crate::model::rehearsal::Renamed;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{
    FileMode, HostSpec, ManagedPath, Observation, ObservedFile, Obstacles, PathSpec, Principal, Rehearsal,
    UnitName,
};

use super::ObserveError;
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
    let masked = |spec: &HostSpec| {
        let masked = spec.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked);
        masked.map(|(name, _)| name.path()).collect::<BTreeSet<_>>()
    };
    let (masks, new_masks) = (masked(from), masked(to));
    let is_left = |path: &ManagedPath| !new.contains_key(path) && !new_masks.contains(path);
    // A directory that leaves is there as long as links are in it.
    let is_directory = |path: &ManagedPath| matches!(old.get(path), Some(PathSpec::Directory(_)));
    let left =
        old.keys().chain(&masks).filter(|path| is_source(path) && is_left(path) && !is_directory(path));
    for path in left {
        match restore::original(root, path)? {
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
    Ok(UnitLinks::load_with(root, coming)?.of_configs(ConfigUnits::new(from, to)))
}

/// Returns true for the path of a unit file, a drop-in, or a link to a unit, wherever it is; for that of a directory of links, and for
/// presets.
fn is_source(path: &ManagedPath) -> bool {
    let Some((directory, name)) = path.as_str().rsplit_once('/') else { return false };
    let is_drop_in = name.strip_suffix(".conf").is_some() && directory.strip_suffix(".d").is_some();
    let is_folder = || [".wants", ".requires", ".upholds"].iter().any(|end| name.ends_with(end));
    is_drop_in || is_preset(path) || UnitName::new(name).is_ok() || (directory == UNIT_DIR && is_folder())
}

fn as_entry(
    root: &Root,
    new: &BTreeMap<ManagedPath, PathSpec>,
    entry: &PathSpec,
) -> Result<Option<Coming>, HostError> {
    Ok(match entry {
        PathSpec::File(file) => Some(Coming::File(file.contents.bytes().to_vec())),
        PathSpec::Directory(_) => Some(Coming::Directory),
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

/// Returns the units whose files or links come with the storage of a config, or with their template, as they are once these are
/// written; with presets in storage that come, change or go, those that go by presets, too.
pub(super) fn stored(
    after: &UnitLinks<'_>,
    from: &HostSpec,
    to: &HostSpec,
) -> Result<BTreeMap<UnitName, ObservedUnit>, HostError> {
    let mut found = BTreeMap::new();
    for name in to.units.keys() {
        let is_stored =
            |spec: &HostSpec| !spec.unit_sources(name).is_empty() || spec.unit_links(name).next().is_some();
        if is_stored(from) || is_stored(to) {
            found.insert(name.clone(), after.observe(name)?);
        }
    }
    if from.presets() != to.presets() {
        let goes_by_presets =
            |name: &&UnitName| to.units.get(*name).is_none_or(|unit| unit.enablement == Enablement::Preset);
        for name in from.units.keys().chain(to.units.keys()).filter(goes_by_presets) {
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
    let (old, new) = (from.entries(), to.entries());
    let mut verbs = changes((from, to), (&old, &new), observed);
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
                && !is_set_before(root, (&old, &new), change.path())?
                && let Some(obstacle) = examine(root, &change)?.obstacle
            {
                found.units.entry(name.clone()).or_insert(obstacle);
            }
        }
    }
    taken(to, &links, found)
}

/// Returns true if the files of an update make the directory of a link, or set it right, before the link is made: what is there now is
/// no obstacle then. One that leaves and holds links is there until they have gone.
fn is_set_before(root: &Root, (old, new): Entries<'_>, link: &str) -> Result<bool, HostError> {
    let above = link.rsplit_once('/').and_then(|(above, _)| ManagedPath::new(above).ok());
    let Some(above) = above.filter(|above| old.contains_key(above) || new.contains_key(above)) else {
        return Ok(false);
    };
    let ObservedFile::Directory { mode, uid, .. } = root.observe(above.as_str())? else { return Ok(true) };
    let (mode, uid) = match new.get(&above) {
        Some(PathSpec::Directory(directory)) => {
            let owner = match &directory.user {
                None => uid,
                Some(Principal::Id(id)) => *id,
                Some(Principal::Name(name)) => u32::from(name != "root"),
            };
            (directory.mode.map_or(mode, FileMode::bits), owner)
        }
        Some(PathSpec::File(_) | PathSpec::Link(_)) => return Ok(true),
        None => match restore::original(root, &above)? {
            Some(PathSnapshot::Directory { mode, uid, .. }) => (mode, uid),
            Some(_) | None => return Ok(false),
        },
    };
    Ok(uid == 0 && mode & 0o022 == 0)
}

/// Returns the changes of links that the steps of an update may make.
fn changes<'a>(
    (from, to): (&'a HostSpec, &'a HostSpec),
    (old, new): Entries<'_>,
    observed: &Observation,
) -> Vec<(LinkVerb, &'a UnitName)> {
    let is_stored = |name: &UnitName| {
        let sources = [from, to].map(|spec| spec.unit_sources(name)).concat();
        sources.iter().any(|path| old.get(path) != new.get(path))
    };
    let differs = |name: &UnitName, unit: &UnitSpec| {
        let found = observed.units.get(name);
        let enabled = found.map(|found| found.enabled);
        let is_masked = found.is_some_and(|found| found.mask == Mask::Masked);
        match (unit.mask, unit.enablement) {
            (Mask::Masked, _) => !is_masked,
            (Mask::Unmasked, _) if is_masked => true,
            (Mask::Unmasked | Mask::Unset, Enablement::Enabled) => enabled != Some(UnitFileState::Enabled),
            (Mask::Unmasked | Mask::Unset, Enablement::Disabled) => {
                matches!(enabled, Some(UnitFileState::Enabled | UnitFileState::Partial))
            }
            (Mask::Unmasked | Mask::Unset, Enablement::Preset) => false,
        }
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

/// Makes the link steps of a plan in memory, and looks at what comes of them.
pub fn rehearse(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    steps: &[(LinkVerb, UnitName)],
) -> Result<Rehearsal, ObserveError> {
    rehearsed(root, (from, to), steps).map_err(ObserveError::wrap("the units"))
}

fn rehearsed(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    steps: &[(LinkVerb, UnitName)],
) -> Result<Rehearsal, HostError> {
    let mut links = links_after(root, (from, to), (&from.entries(), &to.entries()))?;
    let mut rehearsal = Rehearsal::default();
    let mut ordered: Vec<_> = steps.iter().collect();
    ordered.sort_by_key(|(verb, unit)| (*verb, links.is_preset(unit)));
    for (verb, unit) in ordered {
        match links.make(*verb, unit) {
            Err(error @ HostError::Unit { .. }) => {
                rehearsal.obstacles.insert(unit.clone(), (&error).into());
            }
            made => made?,
        }
    }
    let mut along = BTreeSet::new();
    for (_, unit) in steps {
        along.extend(links.companions(unit)?.into_keys());
    }
    let listed = to.units.keys().chain(from.units.keys()).chain(steps.iter().map(|(_, unit)| unit));
    let listed = listed.chain(&along);
    for name in listed.collect::<BTreeSet<_>>() {
        let decisive = links.decisive(name)?;
        let observed = links.observe(name)?;
        if to.units.contains_key(name) && observed.enabled == UnitFileState::Enabled {
            rehearsal.links.extend(decisive.iter().cloned());
            rehearsal.enabled.extend(decisive.iter().cloned());
        }
        let mut stray = links.stray(name)?;
        // A config may list such a link.
        stray.retain(|link| !to.links.contains_key(link));
        rehearsal.stray.insert(name.clone(), stray);
        if let Some(other) = links.hidden_by(name)? {
            rehearsal.hidden.insert(name.clone(), other);
        }
        rehearsal.decisive.extend(decisive.into_iter().next().map(|path| (name.clone(), path)));
        rehearsal.units.insert(name.clone(), observed);
    }
    let changed = links.changes(&[]).into_iter().filter_map(|change| ManagedPath::new(change.path()).ok());
    rehearsal.links.extend(changed);
    rehearsal.lost = links.lost(&to.links);
    rehearsal.renamed = of_host(&links, (from, to))?;
    Ok(rehearsal)
}

/// Returns the names of units of the host that become another unit's. A name that a config has an entry for is that config's, and
/// one of a unit that is masked or gone is nobody's.
fn of_host(links: &UnitLinks<'_>, (from, to): (&HostSpec, &HostSpec)) -> Result<Vec<Renamed>, HostError> {
    let is_of_config = |unit: &UnitName| from.units.contains_key(unit) || to.units.contains_key(unit);
    let mut found = Vec::new();
    for one in links.renamed() {
        let name = UnitName::new(one.link.as_str().rsplit('/').next().unwrap_or_default());
        let is_listed = from.links.contains_key(&one.link) || name.is_ok_and(|name| is_of_config(&name));
        let is_host = match UnitName::new(&*one.from) {
            Ok(unit) if is_of_config(&unit) => false,
            Ok(unit) => {
                !matches!(links.observe(&unit)?.enabled, UnitFileState::Masked | UnitFileState::NotFound)
            }
            // A mask.
            Err(_) => true,
        };
        if is_host && !is_listed {
            found.push(one);
        }
    }
    Ok(found)
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
            if other == DEV_NULL {
                found.units.insert(name.clone(), Obstacle::masked_alias(&format!("{UNIT_DIR}/{at}"), name));
                continue;
            }
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
