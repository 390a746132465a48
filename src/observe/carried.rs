//! The part of this host that the booted image's own config brought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ObserveError, carried_users};
use crate::host::embedded::{self, Embedded};
use crate::host::systemd::{UnitFileLinks, UnitLinks};
use crate::host::{HostError, Root};
use crate::model::carried::Carried;
use crate::model::observation::{ObservedOs, UnitFileState};
use crate::model::units::{Enablement, UnitSpec};
use crate::model::users::Users;
use crate::model::{FileMode, HostSpec, ManagedPath, ObservedFile, UnitName};

/// A directory that is made for entries of a config.
const MADE: ObservedFile = ObservedFile::Directory { mode: FileMode::DIRECTORY.bits(), uid: 0, gid: 0 };

/// Observes it, without what all specs have; `None` if the host boots no images, or the image has no config in it.
pub(super) fn carried(
    root: &Root,
    os: &ObservedOs,
    specs: &[&HostSpec],
    links: &UnitLinks<'_>,
) -> Result<Option<Arc<Carried>>, ObserveError> {
    if os.booted().is_none() || specs.is_empty() {
        return Ok(None);
    }
    let failed = || ObserveError::wrap("the config in the image");
    let Some(config) = Embedded::load(root, "").map_err(failed())? else { return Ok(None) };
    let users = carried_users::brought(root, config.spec())?;
    found(root, config, users, specs, links).map(|carried| Some(Arc::new(carried))).map_err(failed())
}

fn found(
    root: &Root,
    config: Embedded,
    users: Users,
    specs: &[&HostSpec],
    links: &UnitLinks<'_>,
) -> Result<Carried, HostError> {
    let managed: Vec<BTreeSet<ManagedPath>> = specs.iter().map(|spec| spec.managed()).collect();
    let beyond = config.paths().iter().filter(|path| !managed.iter().all(|spec| spec.contains(*path)));
    let (mut brought, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for path in beyond {
        let kept = embedded::kept(root, "", path)?;
        let live = root.observe(path.as_str())?;
        let is_of_image = live != ObservedFile::Absent && live == embedded::observe_of_image(root, "", path)?;
        // One with entries stays, as it would with a config that leaves; its own mode and owner go back, and where a spec has entries in
        // it, it becomes one that is made for them.
        let is_directory = |file: &ObservedFile| matches!(file, ObservedFile::Directory { .. });
        let is_needed = managed.iter().flatten().any(|other| other.is_below(path.as_str()));
        let stays = is_directory(&live)
            && !kept.as_ref().is_some_and(|kept| is_directory(&kept.observed()))
            && !root.list(path.as_str())?.is_empty()
            && (!is_needed || live == MADE);
        if is_of_image && !stays && kept.as_ref().is_none_or(|kept| kept.observed() != live) {
            brought.insert(path.clone());
        }
        if kept.is_none() {
            unknown.insert(path.clone());
        }
    }
    let turned = turned(root, config.spec(), specs, links)?;
    let brought =
        Carried::keep(config.into_spec(), |path| brought.contains(path), |unit| turned.contains(unit), users);
    Ok(Carried { brought, unknown })
}

/// Returns the units of the OS that the image's config enabled or disabled against their preset, and whose links are still as the
/// image has them.
fn turned(
    root: &Root,
    config: &HostSpec,
    specs: &[&HostSpec],
    links: &UnitLinks<'_>,
) -> Result<BTreeSet<UnitName>, HostError> {
    let decides = |name: &UnitName| {
        let decided =
            |spec: &&HostSpec| spec.units.get(name).is_some_and(|unit| unit.enablement != Enablement::Preset);
        specs.iter().all(decided)
    };
    let free: BTreeMap<&UnitName, &UnitSpec> = config
        .units
        .iter()
        .filter(|(name, unit)| unit.enablement != Enablement::Preset && !decides(name))
        .collect();
    let mut turned = BTreeSet::new();
    if free.is_empty() {
        return Ok(turned);
    }
    let (live, own) = (UnitFileLinks::load(root, "/etc")?, UnitFileLinks::load(root, "/usr/etc")?);
    for (name, unit) in free {
        let observed = links.observe(name)?;
        let is_turned = match unit.enablement {
            Enablement::Enabled => observed.enabled.has_links() && observed.is_against_preset(),
            Enablement::Disabled => {
                observed.enabled != UnitFileState::Enabled && observed.is_against_preset()
            }
            Enablement::Preset => false,
        };
        if is_turned && live.leading_to(name) == own.leading_to(name) {
            turned.insert(name.clone());
        }
    }
    Ok(turned)
}
