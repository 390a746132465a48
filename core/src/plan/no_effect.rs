//! Fields that have no effect: another field of the entry, or what the host has already, decides instead.

use std::collections::BTreeMap;

use super::not_enabled::unit_field;
use crate::model::observation::{Maker, ObservedAccount, ObservedUnit, UnitFileState};
use crate::model::settings::{self, SETTINGS_PATH};
use crate::model::units::{Mask, UnitSpec};
use crate::model::users::{Account, Group, group_field, user_field};
use crate::model::{
    HostSpec, ManagedPath, NotApplied, NotAppliedReason, Observation, ObservedFile, Sha256, UnitName,
    UserName,
};

/// The first id of an account or a group that is not of the system, by the defaults of Debian and Fedora.
const FIRST_ORDINARY_ID: u32 = 1000;

/// Returns what has no effect on the observed host.
pub(super) fn fields(
    spec: &HostSpec,
    observed: &Observation,
    units: &BTreeMap<UnitName, ObservedUnit>,
) -> Vec<NotApplied> {
    let accounts = spec.users.accounts.iter().flat_map(|(name, account)| of_account(name, account, observed));
    let passwords = spec.users.accounts.iter().filter_map(|(name, account)| hidden(name, account, observed));
    let groups =
        spec.users.groups.iter().filter_map(|(name, group)| of_group(name.as_str(), group, observed));
    let nothing = nothing(spec, observed, units);
    contents(spec)
        .chain(accounts)
        .chain(passwords)
        .chain(groups)
        .chain(settings(spec))
        .chain(nothing)
        .chain(unwritten(spec, observed))
        .collect()
}

/// Names the entries that set nothing of units that the host lacks: its presets have nothing to decide.
fn nothing<'a>(
    spec: &'a HostSpec,
    observed: &'a Observation,
    known: &'a BTreeMap<UnitName, ObservedUnit>,
) -> impl Iterator<Item = NotApplied> + 'a {
    let is_missing = |name: &UnitName| {
        let found = known.get(name).or_else(|| observed.units.get(name));
        found.is_some_and(|found| found.enabled == UnitFileState::NotFound)
    };
    // The template of an instance may come with the config.
    let is_brought =
        |name: &UnitName| name.template().is_some_and(|template| spec.units.contains_key(&template));
    let named = spec
        .units
        .iter()
        .filter(move |(name, unit)| **unit == UnitSpec::empty() && is_missing(name) && !is_brought(name));
    named.map(|(name, _)| {
        let message = "the entry sets nothing, and this host has no such unit; give it contents or drop-ins, or remove the entry";
        NotApplied::new(unit_field(name), NotAppliedReason::NoEffect, message)
    })
}

/// Names empty contents of units and drop-ins where the host has a file of its own: nothing is written, and that one stays.
fn unwritten<'a>(spec: &'a HostSpec, observed: &'a Observation) -> impl Iterator<Item = NotApplied> + 'a {
    let has_own = |path: &ManagedPath| match observed.files.get(path) {
        None | Some(ObservedFile::Absent | ObservedFile::Unreachable) => false,
        Some(ObservedFile::Regular { sha256, .. }) => *sha256 != Sha256::digest(b""),
        Some(ObservedFile::Symlink { .. } | ObservedFile::Directory { .. } | ObservedFile::Special) => true,
    };
    let listed = spec.entries();
    let own = spec.unwritten.iter().filter(move |(path, _)| has_own(path) && !listed.contains_key(*path));
    own.map(|(path, field)| {
        let message = format!(
            "they are empty, so nothing is written, and {path} of this host stays; remove that file, or give the entry contents"
        );
        NotApplied::new(field.as_str(), NotAppliedReason::NoEffect, message)
    })
}

/// Names what this agent does not know in its own settings.
fn settings(spec: &HostSpec) -> Vec<NotApplied> {
    let file = spec.files.iter().find(|(path, _)| path.as_str() == SETTINGS_PATH);
    let Some(read) = file.map(|(_, file)| settings::read(file.contents.bytes(), SETTINGS_PATH)) else {
        return Vec::new();
    };
    // One that can't be read is refused.
    let unknown = read.map(|read| read.unknown).unwrap_or_default();
    let named = |key| settings::unknown_key(&format!("storage.files {SETTINGS_PATH:?} contents {key}"));
    unknown.iter().map(named).collect()
}

/// A masked unit is a link to `/dev/null` in the place of its file.
fn contents(spec: &HostSpec) -> impl Iterator<Item = NotApplied> + '_ {
    let hidden = spec.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked && unit.contents.is_some());
    hidden.map(|(name, _)| {
        let message = "the unit is masked, so a link to /dev/null stands in the place of its file; remove mask or contents";
        NotApplied::new(format!("{} contents", unit_field(name)), NotAppliedReason::NoEffect, message)
    })
}

/// Names fields that only count when an account is made. The agent's own accounts were made so.
fn of_account(name: &UserName, account: &Account, observed: &Observation) -> Vec<NotApplied> {
    let found = observed.accounts.get(name.as_str());
    let Some(found) = found.filter(|found| account.should_exist && found.maker != Maker::Agent) else {
        return Vec::new();
    };
    let has_own_group = |found: &ObservedAccount| found.primary_group.as_deref() == Some(name.as_str());
    let parts = [
        ("system", account.system && found.uid >= FIRST_ORDINARY_ID),
        ("noCreateHome", account.no_create_home),
        ("noUserGroup", account.no_user_group && has_own_group(found)),
        ("noLogInit", account.no_log_init),
    ];
    let message = "it only counts when the account is made, and this host has the account; remove the field";
    let named = parts.into_iter().filter(|(_, has_no_effect)| *has_no_effect);
    named
        .map(|(part, _)| {
            NotApplied::new(
                format!("{} {part}", user_field(name.as_str())),
                NotAppliedReason::NoEffect,
                message,
            )
        })
        .collect()
}

/// Names a locked password over one that is locked already, with a password behind the lock: that one is an administrator's, and stays.
fn hidden(name: &UserName, account: &Account, observed: &Observation) -> Option<NotApplied> {
    let desired = account.password.as_ref().filter(|desired| account.should_exist && desired.is_locked())?;
    let found = observed.accounts.get(name.as_str())?.password.as_ref().filter(|found| *found != desired)?;
    let behind = found.as_str().strip_prefix('!')?.trim_start_matches('!');
    let message = format!(
        "the password is locked on this host already, with one behind the lock that `usermod -U {name}` would open again, and which \
         stays; to remove it: usermod -p '*' {name}"
    );
    let has_one = !behind.is_empty() && !behind.starts_with('*');
    let field = format!("{} passwordHash", user_field(name.as_str()));
    has_one.then(|| NotApplied::new(field, NotAppliedReason::NoEffect, message))
}

fn of_group(name: &str, group: &Group, observed: &Observation) -> Option<NotApplied> {
    let found = observed.groups.get(name)?;
    let has_no_effect =
        group.should_exist && group.system && found.maker != Maker::Agent && found.gid >= FIRST_ORDINARY_ID;
    let message = "it only counts when the group is made, and this host has the group; remove the field";
    has_no_effect.then(|| {
        NotApplied::new(format!("{} system", group_field(name)), NotAppliedReason::NoEffect, message)
    })
}
