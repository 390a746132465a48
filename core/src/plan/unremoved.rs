//! Keys that left a config and could not be removed: an attribute of chattr(1), a read-only file system, the owner of the home.
//!
//! # Decisions
//! No update fails or waits for them. They are on record until they are gone: `plan` and `status` name them, `verify` has them as a
//! difference, and the next update, or an idle agent, removes them as soon as nothing keeps them. A key that a config lists again
//! is that config's. The same of keys in a home that is not its account's any more.

use std::collections::BTreeSet;

use super::accounts::keys_hold;
use super::difference::{Difference, DifferenceKind, Kind, difference};
use super::input::PlanInput;
use super::{Op, Step, StepReason};
use crate::model::observation::{Maker, Observation, ObservedAccount, StrayKeys};
use crate::model::obstacles::Obstacle;
use crate::model::text::counted;
use crate::model::users::{KEYS_FILE, keys_beside, keys_field};
use crate::model::{HostSpec, ManagedPath, NotApplied, NotAppliedReason, UserName};

/// Returns the accounts with such keys that a config does not list, and the number of these keys.
fn accounts<'a>(
    spec: &'a HostSpec,
    observed: &'a Observation,
) -> impl Iterator<Item = (&'a String, &'a ObservedAccount, usize)> {
    let counted = observed.accounts.iter().map(|(name, found)| {
        let entry = spec.users.accounts.iter().find(|(one, _)| one.as_str() == name);
        let desired = entry.and_then(|(name, account)| account.desired_keys(name)).unwrap_or_default();
        (name, found, keys_beside(&found.unremoved_keys, desired).count())
    });
    counted.filter(|(_, _, count)| *count > 0)
}

/// Returns the differences that such keys are.
pub fn unremoved_keys(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let difference = |(name, found, count): (&String, &ObservedAccount, usize)| {
        let expected = format!("no SSH key that left the config in {}", place(found));
        difference_of(name, &expected, &text(found, count))
    };
    let stray = observed.stray_keys.iter().map(|stray| {
        let expected = format!("no SSH key of a config in {}", stray.path);
        difference_of(&stray.user, &expected, &stray_text(spec, observed, stray))
    });
    accounts(spec, observed).map(difference).chain(stray).collect()
}

fn difference_of(user: &str, expected: &str, found: &str) -> Difference {
    difference(Kind::User, &user, DifferenceKind::Unexpected, &expected, &found)
}

/// Names such keys.
pub(super) fn named(spec: &HostSpec, observed: &Observation) -> Vec<NotApplied> {
    let named = |(name, found, count): (&String, &ObservedAccount, usize)| {
        let message = format!("{} ({})", text(found, count), place(found));
        NotApplied::new(keys_field(name), NotAppliedReason::NotRemoved, message)
    };
    let stray = observed.stray_keys.iter().map(|stray| {
        let message = format!("{} ({})", stray_text(spec, observed, stray), stray.path);
        NotApplied::new(keys_field(&stray.user), NotAppliedReason::NotRemoved, message)
    });
    accounts(spec, observed).map(named).chain(stray).collect()
}

/// Returns the steps that remove such keys, where nothing keeps them any more.
pub(super) fn removals(spec: &HostSpec, observed: &Observation) -> Vec<Op> {
    let free = accounts(spec, observed).filter(|(_, found, _)| found.unremovable.is_none());
    let stray = observed.stray_keys.iter();
    let stray = stray.filter(|stray| stray.unremovable.is_none() && !follow(spec, observed, &stray.user));
    let users: BTreeSet<&String> =
        free.map(|(name, ..)| name).chain(stray.map(|stray| &stray.user)).collect();
    users
        .into_iter()
        .filter_map(|name| Some(Op::SetSshKeys { user: UserName::new(name.as_str()).ok()? }))
        .collect()
}

/// Returns true if keys have to follow an account to its home: they do so in an update, which removes the others, too.
fn follow(spec: &HostSpec, observed: &Observation, user: &str) -> bool {
    let entry = spec.users.accounts.iter().find(|(one, _)| one.as_str() == user);
    let desired = entry.and_then(|(name, account)| account.desired_keys(name));
    let found = observed.accounts.get(user);
    desired.is_some_and(|desired| found.is_none_or(|found| !keys_hold(desired, found)))
}

/// Returns those of them that other steps leave to be done.
pub(super) fn steps(input: &PlanInput<'_>, others: &[Step]) -> Vec<Step> {
    let is_done = |op: &Op| {
        let of_keys = |other: &Op| matches!(other, Op::SetSshKeys { .. } | Op::LockUser { .. });
        others.iter().any(|other| of_keys(&other.op) && other.op.target() == op.target())
    };
    let left = removals(input.to, &input.facts.observed).into_iter().filter(|op| !is_done(op));
    left.map(|op| Step { op, because: StepReason::Removed }).collect()
}

fn place(found: &ObservedAccount) -> &str {
    found.keys_path.as_ref().map_or("its home", ManagedPath::as_str)
}

fn next_step(obstacle: Option<&Obstacle>) -> String {
    let by_agent = || "a running agent removes them, else the next `apply` does".to_owned();
    obstacle.map_or_else(by_agent, ToString::to_string)
}

fn stray_text(spec: &HostSpec, observed: &Observation, stray: &StrayKeys) -> String {
    let keys = counted(stray.count, "SSH key");
    let home = stray.path.strip_suffix(KEYS_FILE).map_or(&*stray.path, |home| home.trim_end_matches('/'));
    let next = match &stray.unremovable {
        None if !observed.accounts.contains_key(&stray.user) && follow(spec, observed, &stray.user) => {
            "create the account again, or remove its entry from the config".to_owned()
        }
        None if follow(spec, observed, &stray.user) => format!(
            "the next update to another config moves them; to end it before, give the account that home again (`usermod --home {home} {}`)",
            stray.user
        ),
        unremovable => next_step(unremovable.as_ref()),
    };
    format!(
        "{keys} of a config in a home that is not the account's any more, open to any account that gets it; {next}"
    )
}

fn text(found: &ObservedAccount, count: usize) -> String {
    let is_locked = found.maker == Maker::Agent && found.is_expired;
    let opens = if is_locked { ", which is locked" } else { ", and open it" };
    let next = next_step(found.unremovable.as_ref());
    format!(
        "{} that left the config could not be removed from the account{opens}; {next}",
        counted(count, "SSH key")
    )
}
