//! Accounts and groups that the booted image's own config brought to a host that is to have another one.

use std::fmt::Display;

use super::accounts::is_locked;
use super::difference::{Difference, DifferenceKind, Kind, difference};
use crate::model::observation::{Maker, ObservedAccount};
use crate::model::users::{Account, Group, Users};
use crate::model::{HostSpec, Observation, UserName};

/// Returns the part that a spec does not have.
pub(super) fn beyond(spec: &Users, brought: &Users, observed: &Observation) -> Users {
    let mut left = Users::default();
    for (name, account) in &brought.accounts {
        let Some(found) = observed.accounts.get(name.as_str()) else { continue };
        let part = match spec.accounts.get(name) {
            None if found.maker == Maker::Agent => (!is_locked(found)).then(|| account.clone()),
            None => Some(account.clone()).filter(|part| *part != Account::default()),
            Some(listed) => part(name, account, listed),
        };
        left.accounts.extend(part.map(|part| (name.clone(), part)));
    }
    let groups = brought.groups.iter().filter(|(name, _)| !spec.groups.contains_key(*name));
    left.groups.extend(groups.map(|(name, group)| (name.clone(), group.clone())));
    left
}

/// Returns what an entry of the spec does not set.
fn part(name: &UserName, brought: &Account, listed: &Account) -> Option<Account> {
    let keys = if listed.desired_keys(name).is_none() { brought.keys.clone() } else { Vec::new() };
    let part = Account {
        keys,
        password: brought.password.clone().filter(|_| listed.password.is_none()),
        gecos: brought.gecos.clone().filter(|_| listed.gecos.is_none()),
        shell: brought.shell.clone().filter(|_| listed.shell.is_none()),
        groups: brought.groups.difference(&listed.groups).cloned().collect(),
        ..Account::default()
    };
    (listed.should_exist && part != Account::default()).then_some(part)
}

/// Returns the differences that a part is.
pub(super) fn differences(
    spec: &HostSpec,
    left: &Users,
    observed: &Observation,
    expected: &dyn Display,
    found: &dyn Display,
) -> Vec<Difference> {
    let mut all = Vec::new();
    for (name, account) in &left.accounts {
        let is_listed = spec.users.accounts.contains_key(name);
        let kinds = kinds(account, is_listed, observed.accounts.get(name.as_str()));
        all.extend(kinds.into_iter().map(|what| difference(Kind::User, name, what, expected, found)));
    }
    for (name, group) in &left.groups {
        let what = if group.password.is_some() { DifferenceKind::Value } else { DifferenceKind::Unexpected };
        all.push(difference(Kind::Group, name, what, expected, found));
    }
    all
}

fn kinds(account: &Account, is_listed: bool, found: Option<&ObservedAccount>) -> Vec<DifferenceKind> {
    // The agent locks its own, keys and password with it.
    if !is_listed && found.is_some_and(|found| found.maker == Maker::Agent) {
        return vec![DifferenceKind::Unexpected];
    }
    let Account { keys, password, gecos, shell, groups, .. } = account;
    let has_attributes = gecos.is_some() || shell.is_some() || !groups.is_empty();
    [
        (!keys.is_empty(), DifferenceKind::Content),
        (password.is_some(), DifferenceKind::Value),
        (has_attributes, DifferenceKind::Attributes),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| is_there.then_some(what))
    .collect()
}

/// Adds the part to the accounts of a plan's origin, which knows its own entries better.
pub(super) fn add(from: &mut Users, left: &Users) {
    for (name, account) in &left.accounts {
        match from.accounts.get_mut(name).filter(|held| held.should_exist) {
            Some(held) => complete(held, account),
            None => drop(from.accounts.insert(name.clone(), account.clone())),
        }
    }
    for (name, group) in &left.groups {
        match from.groups.get_mut(name).filter(|held| held.should_exist) {
            Some(Group { password, .. }) if password.is_none() => password.clone_from(&group.password),
            Some(_) => {}
            None => drop(from.groups.insert(name.clone(), group.clone())),
        }
    }
}

fn complete(held: &mut Account, left: &Account) {
    if held.keys.is_empty() {
        held.keys.clone_from(&left.keys);
    }
    held.password = held.password.take().or_else(|| left.password.clone());
    held.gecos = held.gecos.take().or_else(|| left.gecos.clone());
    held.shell = held.shell.take().or_else(|| left.shell.clone());
    held.groups.extend(left.groups.iter().cloned());
}
