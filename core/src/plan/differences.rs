//! Differences between the host and a spec. Verification and the drift monitor call the same function, and the
//! planner the same predicates, so that "done" and "nothing to do" can't disagree.
//!
//! In the order of MCD-175: OS, kernel arguments, files, units; the account comes last. Contents are compared by
//! digest and never shown; of secrets only the length is.

use std::collections::{BTreeMap, BTreeSet};

use super::accounts;
use super::carried;
use super::compare::{self, compare, holds};
pub use super::difference::{Difference, DifferenceKind, Kind};
use super::difference::{difference, of_path};
use crate::model::install::{is_template, template};
use crate::model::layers::Architecture;
use crate::model::observation::{Booted, ObservedOs, ObservedUnit, UnitFileState};
use crate::model::os::KernelType;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{
    ConfigName, Contents, FileSpec, HostSpec, Karg, ManagedPath, Observation, PathSpec, UnitName,
};

/// Paths that the cluster rotates by itself (MCD-171): never compared.
const IGNORED: [&str; 3] = [
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];

/// Returns every difference.
pub fn differences(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let mut found: Vec<Difference> = image(spec, &observed.os).into_iter().collect();
    if let Some(booted) = observed.os.booted() {
        found.extend(packages(spec, booted));
        found.extend(
            spec.kargs.iter().zip(kargs_held(&spec.kargs, &observed.kargs)).filter(|(_, held)| !held).map(
                |(karg, _)| {
                    difference(
                        Kind::Karg,
                        karg,
                        DifferenceKind::Missing,
                        karg,
                        &"not on the kernel's command line",
                    )
                },
            ),
        );
    }
    if let Some(booted) = observed.os.booted() {
        let packages = left_packages(spec, booted, observed);
        found.extend(
            packages
                .iter()
                .map(|name| left_over(Kind::Package, name, "not requested of the booted deployment")),
        );
        let left = observed.former_kargs.left_over(&observed.kargs, &spec.kargs, &observed.image_kargs);
        found.extend(left.iter().map(|karg| left_over(Kind::Karg, karg, "not on the kernel's command line")));
    }
    for (path, file) in spec.files.iter().filter(|(path, _)| !IGNORED.contains(&path.as_str())) {
        found.extend(file_difference(Kind::File, path, file, observed));
    }
    let stored = spec.stored_paths().filter(|(path, _)| !spec.unapplied.contains(path));
    found.extend(stored.filter_map(|(path, entry)| path_difference(&path, &entry, observed)));
    for (name, unit) in &spec.units {
        found.extend(unit_differences(name, unit, observed));
    }
    found.extend(carried::differences(spec, observed));
    found.extend(accounts::differences(spec, observed));
    found
}

/// Returns the part of a spec that already holds, as the origin of a host that was never managed.
///
/// Sections that can't be changed count as held: there is nothing older to compare them with.
pub fn already_applied(to: &HostSpec, observed: &Observation) -> HostSpec {
    let mut held = to.clone();
    if let Ok(name) = ConfigName::new(HostSpec::UNMANAGED) {
        held.name = name;
    }
    held.image = None;
    if !layers_hold(to, observed) {
        held.kernel_type = KernelType::Default;
        held.extensions.clear();
    }
    let kargs = to.kargs.iter().zip(kargs_held(&to.kargs, &observed.kargs));
    held.kargs = kargs.filter(|(_, held)| *held).map(|(karg, _)| karg.clone()).collect();
    held.files.retain(|path, file| holds(path, file, observed));
    held.directories.retain(|path, entry| compare::directory(path, entry, observed).is_empty());
    held.links.retain(|path, entry| compare::link(path, entry, observed).is_empty());
    held.units = to
        .units
        .iter()
        .filter_map(|(name, unit)| Some((name.clone(), held_unit(to, (name, unit), observed)?)))
        .collect();
    held.users.accounts.retain(|name, account| accounts::account_holds(name, account, observed));
    held.users.groups.retain(|name, group| {
        accounts::group_difference(name, group, observed.groups.get(name.as_str())).is_none()
    });
    held.never_applied = Some(std::collections::BTreeSet::new());
    held
}

/// Returns true if a change to the layers of a spec would change nothing on the booted deployment.
pub(super) fn layers_hold(to: &HostSpec, observed: &Observation) -> bool {
    let holds = |booted: &Booted| to.layers().change(&booted.local, Architecture::HERE);
    let change = observed.os.booted().filter(|_| to.image.is_none()).map(holds);
    matches!(change, Some(Ok(change)) if change.is_empty())
}

/// Returns the part of a unit that is in sync; `None` for nothing.
fn held_unit(
    to: &HostSpec,
    (name, unit): (&UnitName, &UnitSpec),
    observed: &Observation,
) -> Option<UnitSpec> {
    if unit_differences(name, unit, observed).is_empty() && strays(to, name, observed).is_empty() {
        return Some(unit.clone());
    }
    let holds_at = |path: &ManagedPath, contents: &Contents| {
        let file = FileSpec::of_unit(contents.clone());
        holds(path, &file, observed)
    };
    let contents = unit.contents.clone().filter(|contents| holds_at(&name.path(), contents));
    let dropins: BTreeMap<_, _> = unit
        .dropins
        .iter()
        .filter(|(dropin, contents)| holds_at(&name.dropin_path(dropin), contents))
        .map(|(dropin, contents)| (dropin.clone(), contents.clone()))
        .collect();
    let nothing = contents.is_none() && dropins.is_empty();
    (!nothing).then_some(UnitSpec { contents, dropins, enablement: Enablement::Preset, mask: Mask::Unset })
}

/// Returns true if the host masks a unit.
pub(super) fn is_masked(observed: ObservedUnit) -> bool {
    observed.mask == Mask::Masked
}

fn image(spec: &HostSpec, os: &ObservedOs) -> Option<Difference> {
    let desired = spec.effective_image()?;
    let found = match os {
        ObservedOs::NotImageBased => {
            spec.image.is_some().then(|| "a host that does not boot images".to_owned())?
        }
        ObservedOs::Deployments { booted, .. } => match &booted.image {
            Some(image) if image.digest() == desired.digest() => return None,
            Some(image) => image.to_string(),
            None => format!("deployment {}, which comes from no image", booted.deployment),
        },
    };
    Some(difference(Kind::Image, &"os", DifferenceKind::Value, desired, &found))
}

/// Packages of the kernel and of extensions that the booted deployment does not request (MCD-202). In image mode they
/// are the image's business (MCD-204); unknown names are refused when they are to be layered.
fn packages(spec: &HostSpec, booted: &Booted) -> Vec<Difference> {
    let missing = spec.host_layers().missing(&booted.local).unwrap_or_default().into_iter();
    let found = &"not requested of the booted deployment";
    missing.map(|name| difference(Kind::Package, &name, DifferenceKind::Missing, &name, found)).collect()
}

/// Returns for each desired argument whether the command line has it; one that is desired twice must be there twice.
fn kargs_held(desired: &[Karg], found: &[Karg]) -> Vec<bool> {
    let mut left: BTreeMap<&Karg, usize> = BTreeMap::new();
    for karg in found {
        *left.entry(karg).or_default() += 1;
    }
    let mut take = |karg: &Karg| match left.get_mut(karg) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        Some(_) | None => false,
    };
    desired.iter().map(&mut take).collect()
}

/// Returns the packages that earlier configs had layered and that the booted deployment still requests. In image mode they go with the
/// next deployment (MCD-204).
pub(super) fn left_packages(spec: &HostSpec, booted: &Booted, observed: &Observation) -> BTreeSet<String> {
    let desired = spec.host_layers().packages().ok().filter(|_| spec.image.is_none());
    desired.map_or_else(BTreeSet::new, |desired| {
        observed.former_kargs.left_packages(&booted.local.requested, &desired)
    })
}

/// An argument that an earlier config had set, or one that is there once too often; or a package.
fn left_over(kind: Kind, target: &dyn std::fmt::Display, expected: &'static str) -> Difference {
    difference(kind, target, DifferenceKind::Unexpected, &expected, &"a left-over of an earlier config")
}

fn file_difference(
    kind: Kind,
    path: &ManagedPath,
    desired: &FileSpec,
    observed: &Observation,
) -> Option<Difference> {
    of_path(kind, path, compare(path, desired, observed))
}

/// Returns the difference between a directory or a link and the host.
fn path_difference(path: &ManagedPath, entry: &PathSpec, observed: &Observation) -> Option<Difference> {
    let (kind, found) = match entry {
        PathSpec::File(file) => return file_difference(Kind::File, path, file, observed),
        PathSpec::Directory(directory) => (Kind::Directory, compare::directory(path, directory, observed)),
        PathSpec::Link(link) => (Kind::Link, compare::link(path, link, observed)),
    };
    of_path(kind, path, found)
}

fn unit_differences(name: &UnitName, unit: &UnitSpec, observed: &Observation) -> Vec<Difference> {
    let mut found = Vec::new();
    for (dropin, contents) in &unit.dropins {
        let file = FileSpec::of_unit(contents.clone());
        found.extend(file_difference(Kind::Dropin, &name.dropin_path(dropin), &file, observed));
    }
    let Some(state) = observed.units.get(name) else {
        let expected = "to be looked at";
        found.push(difference(
            Kind::Unit,
            name,
            DifferenceKind::Missing,
            &expected,
            &"not part of the observation",
        ));
        return found;
    };
    if let Some(contents) = unit.contents.as_ref().filter(|_| unit.mask != Mask::Masked) {
        let file = FileSpec::of_unit(contents.clone());
        found.extend(file_difference(Kind::Unit, &name.path(), &file, observed));
    }
    found.extend(mask_difference(name, unit, *state));
    found.extend(enablement_difference(name, unit, *state));
    found
}

/// Returns the links that enabling or disabling a unit of a spec takes away.
pub(super) fn strays<'a>(
    spec: &HostSpec,
    name: &UnitName,
    observed: &'a Observation,
) -> Vec<&'a ManagedPath> {
    let (Some(state), Some(found)) = (observed.units.get(name), observed.stray_links.get(name)) else {
        return Vec::new();
    };
    strays_of(spec, name, state.enabled, found)
}

/// Returns those of the further links to a unit in this state that are against its entry. To disable a template disables its instances,
/// as in systemctl(1), but for those that have entries of their own; to enable it leaves them.
pub(super) fn strays_of<'a>(
    spec: &HostSpec,
    name: &UnitName,
    state: UnitFileState,
    links: &'a [ManagedPath],
) -> Vec<&'a ManagedPath> {
    let Some(unit) = spec.units.get(name).filter(|unit| has_strays(unit, state)) else { return Vec::new() };
    let is_template = is_template(name.as_str());
    let is_against = |link: &&ManagedPath| {
        let has_entry = || instance_of(name, link).is_some_and(|instance| spec.units.contains_key(&instance));
        !is_template || (unit.enablement == Enablement::Disabled && !has_entry())
    };
    links.iter().filter(is_against).collect()
}

/// Returns the instance of a template that a link is for.
pub(super) fn instance_of(unit: &UnitName, link: &ManagedPath) -> Option<UnitName> {
    let name = link.as_str().rsplit('/').next().unwrap_or_default();
    let is_instance = is_template(unit.as_str()) && template(name).is_some();
    UnitName::new(name).ok().filter(|_| is_instance)
}

/// Returns true if further links to a unit in this state are against its entry.
fn has_strays(unit: &UnitSpec, state: UnitFileState) -> bool {
    let counts = match (unit.enablement, state) {
        (Enablement::Enabled, UnitFileState::Enabled | UnitFileState::Static)
        | (Enablement::Disabled, UnitFileState::Disabled | UnitFileState::Static) => true,
        (Enablement::Enabled | Enablement::Disabled | Enablement::Preset, _) => false,
    };
    counts && unit.mask != Mask::Masked
}

/// Returns the difference of a unit's mask, or of its enablement.
pub(super) fn unit_state_difference(
    name: &UnitName,
    unit: &UnitSpec,
    state: ObservedUnit,
) -> Option<Difference> {
    mask_difference(name, unit, state).or_else(|| enablement_difference(name, unit, state))
}

fn mask_difference(name: &UnitName, unit: &UnitSpec, state: ObservedUnit) -> Option<Difference> {
    let (expected, found) = match unit.mask {
        Mask::Masked if !is_masked(state) => ("masked", "not masked"),
        Mask::Unmasked if unit.contents.is_none() && is_masked(state) => ("not masked", "masked"),
        Mask::Masked | Mask::Unmasked | Mask::Unset => return None,
    };
    Some(difference(Kind::Unit, name, DifferenceKind::Mask, &expected, &found))
}

fn enablement_difference(name: &UnitName, unit: &UnitSpec, state: ObservedUnit) -> Option<Difference> {
    let expected = match (unit.enablement, state.enabled) {
        // The OS has no such unit and the config brings none: there is nothing to enable (MCD-151).
        (_, UnitFileState::NotFound) if unit.contents.is_none() => return None,
        (
            Enablement::Enabled,
            UnitFileState::Partial
            | UnitFileState::Disabled
            | UnitFileState::Masked
            | UnitFileState::NotFound,
        ) => "enabled",
        (Enablement::Disabled, UnitFileState::Enabled | UnitFileState::Partial) => "disabled",
        (Enablement::Preset, _)
        | (Enablement::Enabled, UnitFileState::Enabled | UnitFileState::Static)
        | (
            Enablement::Disabled,
            UnitFileState::Disabled | UnitFileState::Static | UnitFileState::Masked | UnitFileState::NotFound,
        ) => return None,
    };
    let found = match state.enabled {
        UnitFileState::Enabled => "enabled",
        UnitFileState::Partial => "partly enabled",
        UnitFileState::Disabled => "disabled",
        UnitFileState::Static => "static",
        UnitFileState::Masked => "masked",
        UnitFileState::NotFound => "not found",
    };
    Some(difference(Kind::Unit, name, DifferenceKind::Enablement, &expected, &found))
}
