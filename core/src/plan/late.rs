//! Accounts and groups of a config that are not applied to this host, and those that follow by themselves.
//!
//! An entry was never applied if the host lacked its account (`core` on a host that comes without), or if
//! machine-config-daemon or an earlier agent committed the config: they applied nothing but keys and password of `core`.
//! The marker is stored with the committed config. An entry of the second kind is applied with its next change.

use std::collections::BTreeSet;

use super::accounts::{
    account_differences, account_holds, attribute_difference, group_difference, has_keys_of_others,
};
use super::users::appeared;
use super::{Batch, Drain, Mode, Plan, PostActions, Step, StepReason, check, unremoved};
use crate::model::observation::Maker;
use crate::model::users::{Account, attributes_field, group_field, user_field};
use crate::model::{HostSpec, NotApplied, NotAppliedReason, Observation, UserName};

/// Returns the accounts and groups of a config that are not applied to this host.
pub fn accounts(spec: &HostSpec, observed: &Observation) -> Vec<NotApplied> {
    let mut named = Vec::new();
    let lacking = lacking(spec, observed);
    for field in lacking.clone().chain(differing(spec, observed)) {
        let message = if bare(spec, observed).any(|one| one == field) {
            "this host has no such account, and an entry that sets nothing makes none: create the account, set one of its attributes \
             (homeDir), or remove the entry from the config"
        } else if lacking.clone().any(|one| one == field) {
            "this host has no such account; its keys and its password are set as soon as it has: create the account, or \
             remove the entry from the config"
        } else {
            "it was never applied: the config was committed by machine-config-daemon or an earlier agent, and this host \
             differs; it is applied with the next change of the entry"
        };
        named.push(NotApplied::new(field, NotAppliedReason::HostLacks, message));
    }
    let message = "its keys and its password are not set yet: the host has this account only by now, or machine-config-daemon wrote the \
                   keys of other users into its file; a running agent sets them at once, else `apply` does";
    let due = due(spec, observed).map(|field| NotApplied::new(field, NotAppliedReason::HostLacks, message));
    named.extend(due);
    named.extend(unremoved::named(spec, observed));
    named
}

/// Returns the entries whose account has appeared, and whose keys and password are still to be set.
fn due<'a>(spec: &'a HostSpec, observed: &'a Observation) -> impl Iterator<Item = String> + 'a {
    let appeared = spec.users.accounts.iter().filter(|(name, account)| {
        let found = observed.accounts.get(name.as_str());
        // Others are named as never applied already.
        name.is_core()
            && waits(name, account)
            && found.is_some()
            && (spec.is_never_applied(&user_field(name.as_str())) || has_keys_of_others(spec))
            && !account_differences(name, account, found).is_empty()
    });
    appeared.map(|(name, _)| user_field(name.as_str()))
}

/// Returns the entries of the new config that stay without effect once it is committed.
pub fn never_applied(from: &HostSpec, to: &HostSpec, observed: &Observation) -> BTreeSet<String> {
    let same_user = |name: &UserName| from.users.accounts.get(name) == to.users.accounts.get(name);
    let users = to.users.accounts.keys().filter(|name| same_user(name));
    let groups =
        to.users.groups.keys().filter(|name| from.users.groups.get(*name) == to.users.groups.get(*name));
    let stay: BTreeSet<String> = users
        .flat_map(|name| [user_field(name.as_str()), attributes_field(name.as_str())])
        .chain(groups.map(|name| group_field(name.as_str())))
        .collect();
    differing(from, observed).filter(|field| stay.contains(field)).chain(lacking(to, observed)).collect()
}

/// Returns the entries of the committed config that were never applied, where that is not noted yet: nothing is, or the
/// host has lost an account whose keys have to follow when it comes back.
pub fn settled(spec: &HostSpec, observed: &Observation) -> Option<BTreeSet<String>> {
    if let Some(noted) = &spec.never_applied {
        let lost = lacking(spec, observed).any(|field| !noted.contains(&field));
        return lost.then(|| noted.iter().cloned().chain(lacking(spec, observed)).collect());
    }
    // Its own are written again.
    let others = has_keys_of_others(spec);
    let core = spec.users.accounts.iter().filter(|(name, account)| {
        let found = observed.accounts.get(name.as_str());
        name.is_core() && others && !account_differences(name, account, found).is_empty()
    });
    let core = core.map(|(name, _)| user_field(name.as_str()));
    Some(lacking(spec, observed).chain(differing(spec, observed)).chain(core).collect())
}

/// Plans the keys and passwords of accounts that have appeared, and the removal of keys that can go by now. Nobody can have depended on
/// them: no policy applies.
pub fn follow(spec: &HostSpec, observed: &Observation) -> Option<Plan> {
    let mut steps: Vec<Step> =
        appeared(spec, observed).into_iter().map(|op| Step { op, because: StepReason::Added }).collect();
    let removals = unremoved::removals(spec, observed).into_iter();
    let removals = removals.filter(|op| !steps.iter().any(|step| step.op == *op)).collect::<Vec<_>>();
    steps.extend(removals.into_iter().map(|op| Step { op, because: StepReason::Removed }));
    let plan = Plan {
        from: Some(spec.target()),
        to: spec.target(),
        mode: Mode::Files,
        steps,
        drain: Drain::NotNeeded,
        after: PostActions::Nothing,
        not_applied: Vec::new(),
        warnings: Vec::new(),
    };
    (!plan.steps.is_empty() && check::check(&plan, spec, spec).is_ok()).then_some(plan)
}

/// Returns the marker that goes with the committed config once its accounts have appeared.
pub fn after_appearance(spec: &HostSpec, observed: &Observation) -> BTreeSet<String> {
    let appeared = |field: &&String| {
        spec.users.accounts.iter().any(|(name, account)| {
            user_field(name.as_str()) == **field
                && waits(name, account)
                && observed.accounts.contains_key(name.as_str())
        })
    };
    spec.never_applied.iter().flatten().filter(|field| !appeared(field)).cloned().collect()
}

impl Plan {
    /// Returns true if the plan sets the keys or the password of accounts alone: one that follows by itself.
    pub fn is_of_accounts(&self) -> bool {
        !self.is_empty() && self.steps().iter().all(|step| step.op.batch() == Batch::Users)
    }
}

fn waits(name: &UserName, account: &Account) -> bool {
    account.should_exist && !account.is_made(name)
}

/// Returns the entries that wait for an account of the host.
fn lacking<'a>(spec: &'a HostSpec, observed: &'a Observation) -> impl Iterator<Item = String> + Clone + 'a {
    let waiting = spec
        .users
        .accounts
        .iter()
        .filter(|(name, account)| waits(name, account) && !observed.accounts.contains_key(name.as_str()));
    waiting.map(|(name, _)| user_field(name.as_str()))
}

/// Returns those of them that have nothing to set once the account appears.
fn bare<'a>(spec: &'a HostSpec, observed: &'a Observation) -> impl Iterator<Item = String> + 'a {
    let is_bare = |name: &&UserName| {
        let account = spec.users.accounts.get(*name);
        account.is_some_and(|account| account.keys.is_empty() && account.password.is_none())
    };
    let names = spec.users.accounts.keys().filter(is_bare).map(|name| user_field(name.as_str()));
    names.filter(|field| lacking(spec, observed).any(|one| one == *field))
}

/// Returns the entries that were never applied and that the host differs from.
fn differing<'a>(spec: &'a HostSpec, observed: &'a Observation) -> impl Iterator<Item = String> + 'a {
    let untold = spec.never_applied.is_none();
    let users = spec.users.accounts.iter().filter_map(move |(name, account)| {
        let (whole, attributes) = (user_field(name.as_str()), attributes_field(name.as_str()));
        let found = observed.accounts.get(name.as_str());
        if name.is_core() && found.is_some() {
            let wrong = found.and_then(|found| attribute_difference(name, account, found)).is_some();
            return (wrong && (untold || spec.is_never_applied(&attributes))).then_some(attributes);
        }
        let wrong = !account_holds(name, account, observed);
        // One that the agent made had its entry applied.
        let untold = untold && found.is_none_or(|found| found.maker != Maker::Agent);
        (wrong && (untold || spec.is_never_applied(&whole))).then_some(whole)
    });
    let groups = spec.users.groups.iter().filter_map(move |(name, group)| {
        let field = group_field(name.as_str());
        let wrong = group_difference(name, group, observed.groups.get(name.as_str())).is_some();
        (wrong && (untold || spec.is_never_applied(&field))).then_some(field)
    });
    users.chain(groups)
}
