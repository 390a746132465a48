//! Configs that can't be reached from the present one (docs/contract.md, "Configs that are refused"; RC1 to RC3 and
//! RC13 are refused where a config is read).
//!
//! All reasons are collected: an administrator corrects a config once, not field by field.

use super::compare::{entry_holds, found_word, id_of};
use super::input::PlanInput;
use super::{Batch, Mode, Op, Step};
use crate::model::ids::UNIT_DIR;
use crate::model::observation::{ObservedFips, ObservedOs, UnitFileState};
use crate::model::os::KernelType;
use crate::model::paths::LinkTarget;
use crate::model::policy::{DisruptionPolicy, StorageOverride};
use crate::model::users::Unsupported;
use crate::model::{
    Facts, FaultClass, HostSpec, LinkSpec, ManagedPath, ObservedFile, PathSpec, Principal, UnitName,
};

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unreachable {
    /// The field, as in the MachineConfig; `plan` for a broken invariant of the planner itself.
    pub field: String,
    /// Cause and next step.
    pub message: String,
}

/// The old config can't be turned into the new one on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Irreconcilable {
    /// Every reason; never empty.
    pub reasons: Vec<Unreachable>,
    /// True if all that is in the way is on this host, where it can be repaired.
    pub is_of_host: bool,
}

impl std::fmt::Display for Irreconcilable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the node can't get to its new config")?;
        for (place, reason) in self.reasons.iter().enumerate() {
            let before = if place == 0 { ": " } else { "; " };
            write!(f, "{before}{}: {}", reason.field, reason.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Irreconcilable {}

impl Irreconcilable {
    /// Returns the class for the node.
    pub fn class(&self) -> FaultClass {
        FaultClass::Unreconcilable
    }

    /// Returns the word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        if self.is_of_host { "HostNotPrepared" } else { "FailedToReconcile" }
    }

    /// Returns the next step: most fields are corrected, only a few belong to an installation.
    pub fn next_step(&self) -> &'static str {
        let installed = |reason: &Unreachable| reason.message.ends_with(INSTALL);
        if self.reasons.iter().any(installed) {
            "Take the named fields back in the MachineConfig; only an installation can change them."
        } else if self.is_of_host {
            "Correct what is named, on this host or in the MachineConfig."
        } else {
            "Correct what is named, in the MachineConfig or on this host; after a change on this host: \
             `systemctl reload machine-config-agent`."
        }
    }

    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reasons: vec![unreachable(field, message)], is_of_host: false }
    }
}

/// MCD's file that forces an update (RC14): a config that creates it would force each one.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// The way to change the part of an installation.
const INSTALL: &str = "reinstall the node";

fn unreachable(field: impl Into<String>, message: impl Into<String>) -> Unreachable {
    Unreachable { field: field.into(), message: message.into() }
}

/// Returns every reason that the two configs, the host and the policy give.
pub(super) fn reasons(input: &PlanInput<'_>, policy: &DisruptionPolicy) -> Vec<Unreachable> {
    let PlanInput { from, to, facts, .. } = input;
    let mut reasons = fixed(from, to, policy);
    // On a host that was never managed they are there since its installation, as `fixed` is: MCD compares two configs,
    // never a config with the host.
    let installed = from.is_unmanaged() && from.users.unsupported == to.users.unsupported;
    if from.users != to.users && !installed {
        reasons.extend(users(to));
    }
    if to.files.keys().any(|path: &ManagedPath| path.as_str() == FORCE_FILE) {
        let message = "a config must not create MCD's force file; remove the entry";
        reasons.push(unreachable(format!("storage.files {FORCE_FILE:?}"), message));
    }
    reasons.extend(fips(from, to, facts));
    reasons.extend(os(input));
    reasons.extend(os_fields(to, facts));
    reasons
}

/// Returns the obstacles of the steps on this host.
pub(super) fn blocked(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let unit_masked = |unit: &UnitName| {
        let spec = input.to.units.get(unit)?;
        let observed = input.facts.observed.units.get(unit)?.enabled == UnitFileState::Masked;
        let planned = |op: &Op| steps.iter().any(|step| step.op == *op);
        // A file's restored original may be an administrator's mask.
        let removed = planned(&Op::RemoveUnit { unit: unit.clone() });
        let masked = if removed { input.has_own_mask(&unit.path()) } else { observed };
        let unmasked = planned(&Op::UnmaskUnit { unit: unit.clone() });
        let stays = masked && !unmasked && spec.contents.is_none();
        let message = "it is masked on this host, so it can't be enabled; unmask it, or set `mask: false`";
        stays.then(|| unreachable(format!("systemd.units {:?}", unit.as_str()), message))
    };
    let blocked = |step: &Step| {
        if let Op::WriteFile { path } | Op::MakeDirectory { path } | Op::WriteLink { path } = &step.op {
            unknown_owner(input, path).or_else(|| in_the_way(input, step))
        } else if let Op::EnableUnit { unit } = &step.op {
            unit_masked(unit).or_else(|| own_link(input, unit))
        } else if let Op::DisableUnit { unit } = &step.op {
            own_link(input, unit)
        } else {
            None
        }
    };
    let live = live(input, steps);
    steps.iter().filter_map(blocked).chain(live).collect()
}

/// Returns the owner of a path whom the host does not know.
fn unknown_owner(input: &PlanInput<'_>, path: &ManagedPath) -> Option<Unreachable> {
    let entry = input.new_entry(path)?;
    let (user, group) = entry.owners();
    let observed = &input.facts.observed;
    let unknown = [(user, &observed.user_ids, "user"), (group, &observed.group_ids, "group")];
    let unknown = unknown.into_iter().filter_map(|(principal, ids, what)| Some((principal?, ids, what)));
    let (principal, _, what) =
        unknown.into_iter().find(|(principal, ids, _)| id_of(principal, ids).is_none())?;
    let Principal::Name(name) = principal else { return None };
    let message = format!("this host has no {what} {name:?}; create it first, or give its number");
    Some(unreachable(format!("{} {:?} {what}", entry.section(), path.as_str()), message))
}

/// Returns what keeps a directory or a link, or a file in the place of one, from being written.
pub(super) fn in_the_way(input: &PlanInput<'_>, step: &Step) -> Option<Unreachable> {
    let path = step.op.path()?;
    let entry = input.new_entry(&path)?;
    let found = input.facts.observed.files.get(&path).unwrap_or(&ObservedFile::Absent);
    let refused =
        |message: String| Some(unreachable(format!("{} {:?}", entry.section(), path.as_str()), message));
    let is_ours = input.is_ours(&path) || entry_holds(&path, entry, &input.facts.observed);
    let (overwrite, what) = match entry {
        PathSpec::File(_) => {
            let drifted = matches!(input.old(&path), Some(PathSpec::File(_)));
            let is_directory = !drifted && matches!(found, ObservedFile::Directory { .. });
            return is_directory.then(|| kept_directory(input, &path)).flatten().and_then(refused);
        }
        PathSpec::Directory(directory) => (directory.overwrite, "directory"),
        PathSpec::Link(link) => {
            if let Some(dead) = dead_target(input, link) {
                return refused(dead);
            }
            (link.overwrite, "link")
        }
    };
    match (entry, found) {
        (_, ObservedFile::Absent) | (PathSpec::Directory(_), ObservedFile::Directory { .. }) => None,
        (_, ObservedFile::Directory { .. }) => kept_directory(input, &path).and_then(refused),
        (
            PathSpec::Link(LinkSpec { target: LinkTarget::Soft(text), .. }),
            ObservedFile::Symlink { target, .. },
        ) if text == target => None,
        (_, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. }) if is_ours || overwrite => None,
        (_, ObservedFile::Regular { .. } | ObservedFile::Symlink { .. }) => {
            let found = found_word(found);
            refused(format!(
                "{found} is there, which no config brought; move it away, or set `overwrite: true`"
            ))
        }
        (_, ObservedFile::Special | ObservedFile::Unreachable) => {
            let found = found_word(found);
            refused(format!("{found} is in the place of the {what}; move it away"))
        }
    }
}

/// Returns why a directory can't give way to a file or a link.
fn kept_directory(input: &PlanInput<'_>, path: &ManagedPath) -> Option<String> {
    let ours = matches!(input.old(path), Some(PathSpec::Directory(_))) || input.from.claimed.contains(path);
    if !ours {
        Some("a directory is there, which no config made; move it away, or choose another path".to_owned())
    } else if input.facts.occupied.contains(path) {
        let message = "the directory there was no config's at first, or holds what no config brought; \
                       move it away, or choose another path";
        Some(message.to_owned())
    } else {
        None
    }
}

/// Returns why a hard link has no file to lead to.
fn dead_target(input: &PlanInput<'_>, link: &LinkSpec) -> Option<String> {
    let target = link.hard_target()?;
    let found = input.facts.observed.files.get(target).unwrap_or(&ObservedFile::Absent);
    let goes = input.leaves(target) && !input.restorable(target);
    let is_file = matches!(found, ObservedFile::Regular { .. }) && !goes;
    let comes = matches!(input.new_entry(target), Some(PathSpec::File(_)));
    if is_file || comes {
        return None;
    }
    let found = if goes { "a file that leaves with the old config".to_owned() } else { found_word(found) };
    Some(format!(
        "its target {target} is {found}; a hard link needs a file, so add it to the config, or make it first"
    ))
}

/// Returns the link of the config that enabling or disabling a unit would remove.
fn own_link(input: &PlanInput<'_>, unit: &UnitName) -> Option<Unreachable> {
    let base = |path: &str| path.rsplit('/').next().is_some_and(|name| name == unit.as_str());
    let leads = |path: &ManagedPath, link: &LinkSpec| match &link.target {
        LinkTarget::Soft(text) => path.is_below(UNIT_DIR) && (base(text) || base(path.as_str())),
        LinkTarget::Hard(_) => false,
    };
    let (path, _) = input.to.links.iter().find(|(path, link)| leads(path, link))?;
    let message = format!(
        "it leads to {unit}, whose `enabled` in systemd.units decides about all such links; remove the link, or `enabled`"
    );
    Some(unreachable(format!("storage.links {:?}", path.as_str()), message))
}

/// A live system has no disk that a deployment could be written to.
fn live(input: &PlanInput<'_>, steps: &[Step]) -> Option<Unreachable> {
    let step = steps.iter().find(|step| input.facts.is_live && step.op.batch() == Batch::Os)?;
    let message = "this host runs from live media (/run/ostree-live), where no OS can be staged; install it to a disk first";
    Some(unreachable(format!("{} {}", step.op.as_str(), step.op.target()), message))
}

fn fixed(from: &HostSpec, to: &HostSpec, policy: &DisruptionPolicy) -> Vec<Unreachable> {
    let (old, new) = (&from.fixed.sections, &to.fixed.sections);
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let overridden = |name: &str| {
        let desired = match name {
            "storage.disks" => StorageOverride::Disks,
            "storage.filesystems" => StorageOverride::FileSystems,
            "storage.raid" => StorageOverride::Raid,
            _ => return false,
        };
        policy.overrides.contains(&desired)
    };
    let refused = |name: &&'static str| old.get(name) != new.get(name) && !overridden(name);
    let message = format!("it can only be set when a node is installed; revert the change, or {INSTALL}");
    names.into_iter().filter(refused).map(|name| unreachable(name, message.clone())).collect()
}

fn users(to: &HostSpec) -> impl Iterator<Item = Unreachable> {
    to.users.unsupported.iter().map(|entry| {
        let field = format!("passwd.users {:?}", entry.user.as_str());
        match entry.why {
            Unsupported::OtherUser => {
                unreachable(field, "only the user core can be changed; remove this user from the config")
            }
            Unsupported::Field(name) => {
                let message = "only sshAuthorizedKeys and passwordHash can be changed; remove this field";
                unreachable(format!("{field} {name}"), message)
            }
            Unsupported::NothingSet => unreachable(
                field,
                "it has neither sshAuthorizedKeys nor passwordHash; set one, or remove the user",
            ),
        }
    })
}

/// The running kernel decides; if it is unknown, the old config does (RC15, RC16).
fn fips(from: &HostSpec, to: &HostSpec, facts: &Facts) -> Option<Unreachable> {
    let on = match facts.fips {
        ObservedFips::On => true,
        ObservedFips::Off => false,
        ObservedFips::Unknown => from.fips,
    };
    let word = |on| if on { "on" } else { "off" };
    (on != to.fips).then(|| {
        let message = format!(
            "refusing to modify FIPS on a running cluster: it is {} on this node and {} in the config; {INSTALL}",
            word(on),
            word(to.fips)
        );
        unreachable("spec.fips", message)
    })
}

/// Fields of the OS on a host that has none that could be changed.
fn os_fields(to: &HostSpec, facts: &Facts) -> Vec<Unreachable> {
    if facts.observed.os.booted().is_some() {
        return Vec::new();
    }
    let set = [
        ("spec.osImageURL", to.os_image_url.is_some()),
        ("spec.kernelArguments", !to.kargs.is_empty()),
        ("spec.kernelType", to.kernel_type != KernelType::Default),
        ("spec.extensions", !to.extensions.is_empty()),
    ];
    let message = "this host has no OS backend (--os-backend none, or it does not boot images); remove the field from the configs of this host";
    set.into_iter().filter(|(_, set)| *set).map(|(field, _)| unreachable(field, message)).collect()
}

fn os(input: &PlanInput<'_>) -> Option<Unreachable> {
    match (&input.facts.observed.os, &input.to.image) {
        (ObservedOs::NotImageBased, Some(image)) => {
            let message = "this host does not boot images, so it can't switch to one; clear the desired image of this node";
            Some(unreachable(format!("image {image}"), message))
        }
        (ObservedOs::Deployments { .. }, None)
            if input.mode == Mode::LeaveImage && input.to.os_image_url.is_none() =>
        {
            let message =
                "the node leaves image mode and the config names no OS image to go to; set spec.osImageURL";
            Some(unreachable("spec.osImageURL", message))
        }
        (ObservedOs::NotImageBased | ObservedOs::Deployments { .. }, _) => None,
    }
}
