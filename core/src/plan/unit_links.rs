//! The links that enabling the units of a config makes, against its other entries: what of it no host could change.
//!
//! The agent makes all links of a host in memory (`rehearsed`). This is the part of it that the text of the config decides, in the
//! same words: a unit whose file, drop-ins and `enabled` are in `systemd.units`, and nowhere else in the config.

use std::collections::BTreeMap;

use super::not_enabled::{not_enabled, unit_field};
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::shared;
use crate::model::ids::UNIT_DIR;
use crate::model::install::{Install, InstallLink};
use crate::model::observation::Observation;
use crate::model::paths::LinkTarget;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{HostSpec, ManagedPath, Obstacle, PathSpec, UnitName};

/// The next step where entries decide about the links of one unit.
pub(super) const CORRECT: &str =
    "correct one of them (Alias=, DefaultInstance= and Also= of units, and storage.links)";

/// Refuses a link of storage that is not as listed once the units are enabled.
pub(super) fn lost(kind: ReasonKind, path: &ManagedPath) -> Unreachable {
    let message = "`enabled` or `mask` of a unit in systemd.units decides about this link, and takes it away or leads it \
                   elsewhere; remove the entry, or the one of the unit";
    unreachable(kind, format!("storage.links {:?}", path.as_str()), message)
}

/// Refuses a link of storage that a link of a unit would be made through: it would stay where that leads.
pub(super) fn through(kind: ReasonKind, link: &ManagedPath, inside: &ManagedPath) -> Unreachable {
    let message =
        format!("the link {inside} of a unit would be made through it; list a directory here, or nothing");
    unreachable(kind, format!("storage.links {:?}", link.as_str()), message)
}

/// Says that a unit would be otherwise than its entry has it.
pub(super) fn otherwise(link: Option<&ManagedPath>, found: &str, expected: &str) -> String {
    let link = link.map_or_else(String::new, |link| format!(" ({link})"));
    format!(
        "another entry of the config decides about its links{link}, so it would be {found}, not {expected}; {CORRECT}"
    )
}

/// Returns what keeps the units of a config from being enabled on each host that does not have them yet.
pub(super) fn refused(to: &HostSpec, observed: &Observation) -> Vec<Unreachable> {
    let (mut reasons, mut made) = (Vec::new(), BTreeMap::new());
    let input = (to, observed, &to.entries());
    for (name, unit) in to.units.iter().filter(|(name, unit)| is_alone(to, name, unit)) {
        match links(name, unit) {
            Err(cause) => reasons.push(not_enabled(ReasonKind::InvalidInstall, name, &cause)),
            Ok(links) => {
                for link in links {
                    let Ok(path) = ManagedPath::new(format!("{UNIT_DIR}/{}", link.at)) else { continue };
                    reasons.extend(in_place(input, name, &path));
                    if let Some(other) = made.insert(path.clone(), name).filter(|other| *other != name) {
                        reasons.extend(taken(&path, other, name));
                    }
                }
            }
        }
    }
    reasons
}

/// Returns true if all that decides how a unit is enabled is in its entry.
fn is_alone(to: &HostSpec, name: &UnitName, unit: &UnitSpec) -> bool {
    unit.enablement == Enablement::Enabled
        && unit.mask != Mask::Masked
        && unit.contents.is_some()
        && to.unit_sources(name).is_empty()
}

fn links(name: &UnitName, unit: &UnitSpec) -> Result<Vec<InstallLink>, String> {
    let mut install = Install::default();
    for contents in unit.contents.iter().chain(unit.dropins.values()) {
        install.read(&String::from_utf8_lossy(contents.bytes()));
    }
    install.also(name.as_str())?;
    install.links(name.as_str())
}

/// Two units that have one link: the later one gets it.
fn taken(path: &ManagedPath, name: &UnitName, other: &UnitName) -> [Unreachable; 2] {
    let message = format!(
        "{path} would lead to {other}, and so {name} would not be enabled; give one of them another Alias=, or do not enable {name}"
    );
    [name, other].map(|unit| unreachable(ReasonKind::LinkInPlace, unit_field(unit), message.clone()))
}

/// Returns the entry of the config that is in the place of a link of a unit, above it, or about the same unit.
fn in_place(
    (to, observed, entries): (&HostSpec, &Observation, &BTreeMap<ManagedPath, PathSpec>),
    name: &UnitName,
    path: &ManagedPath,
) -> Option<Unreachable> {
    let exists = |at: &str, what: &str| {
        let cause = format!("{at} exists and is not a {what}; move it away");
        Some(not_enabled(ReasonKind::LinkInPlace, name, &cause))
    };
    let (folder, base) = path.as_str().rsplit_once('/')?;
    if let Some(PathSpec::File(_)) = ManagedPath::new(folder).ok().and_then(|folder| entries.get(&folder)) {
        return exists(folder, "directory");
    }
    match entries.get(path) {
        Some(PathSpec::File(_) | PathSpec::Directory(_)) => return exists(path.as_str(), "link"),
        Some(PathSpec::Link(link)) => {
            let leads_here = matches!(&link.target, LinkTarget::Soft(text) if text.rsplit('/').next() == Some(name.as_str()));
            if !leads_here {
                return Some(lost(ReasonKind::LinkInPlace, path));
            }
        }
        None => {}
    }
    let above = to.links.keys().find(|link| *link != path && path.is_below(link.as_str()));
    if let Some(link) = above {
        return Some(through(ReasonKind::LinkInPlace, link, path));
    }
    let is_mask = |(unit, spec): (&UnitName, &UnitSpec)| unit.as_str() == base && spec.mask == Mask::Masked;
    if folder == UNIT_DIR && to.units.iter().any(is_mask) {
        let message = Obstacle::masked_alias(path.as_str(), name).to_string();
        return Some(unreachable(ReasonKind::LinkInPlace, unit_field(name), message));
    }
    let is_other = |(unit, spec): &(&UnitName, &UnitSpec)| {
        let is_off = spec.enablement == Enablement::Disabled && spec.mask != Mask::Masked;
        unit.as_str() == base && *unit != name && is_off && spec.contents.is_none()
    };
    if let Some((unit, _)) = to.units.iter().find(is_other) {
        // An alias makes another unit of it; an instance, which is disabled after that, leaves the template without its link.
        let is_alias = folder == UNIT_DIR;
        let (unit, found, expected) =
            if is_alias { (unit, "enabled", "disabled") } else { (name, "disabled", "enabled") };
        let message = otherwise(Some(path), found, expected);
        return Some(unreachable(ReasonKind::ContradictedUnit, unit_field(unit), message));
    }
    shared::closed(to, observed, path)
}
