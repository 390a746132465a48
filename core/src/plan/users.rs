//! The steps of accounts and groups. They are on no image, so in image mode they are judged by the present state.

use super::accounts::{
    account_holds, group_password_holds, has_keys_of, hides_password, is_gecos_given, is_locked, is_modified,
    is_modified_by_user, is_password_given, is_password_locked, is_shell_given, keys_hold, password_holds,
};
use super::input::PlanInput;
use super::{Mode, Op, Step, StepReason, unremoved};
use crate::model::observation::{Maker, ObservedAccount, ObservedGroup};
use crate::model::users::{
    Account, Group, PasswordHash, SshKey, Users, attributes_field, group_field, user_field,
};
use crate::model::{HostSpec, Observation, UserName};

/// The password field of an account that useradd makes.
const MADE_PASSWORD: &str = "!";

impl<'a> PlanInput<'a> {
    /// Returns why an account is changed now; `None` when its entry stays: then only what its user changed is set again.
    pub(super) fn changed_account(&self, name: &UserName) -> Option<StepReason> {
        let (old, new) = (self.from.users.accounts.get(name), self.to.users.accounts.get(name));
        // Its keys may have to follow all the same.
        let waits = self.from.is_never_applied(&user_field(name.as_str()));
        if self.keeps_attributes(name) && !waits {
            return None;
        }
        if self.stays(name) && self.facts.observed.accounts.contains_key(name.as_str()) && !waits {
            return None;
        }
        if !self.is_carried(name)
            && old.is_some_and(|old| never_applied(self.from, name, old, &self.facts.observed))
        {
            match new {
                // There is nothing to take back, but keys and password: those of a config are known, whoever set them.
                None if !name.is_core() && !self.has_secrets_of(name) => return None,
                // It waited for the account.
                Some(new) if old == Some(new) && (name.is_core() || !new.is_made(name)) => {
                    return self.facts.observed.accounts.get(name.as_str()).map(|_| StepReason::Added);
                }
                Some(new) if old == Some(new) => return None,
                None | Some(_) => {}
            }
        }
        self.reason(old, new)
    }

    /// Returns true if an account has keys or the password of its old entry.
    fn has_secrets_of(&self, name: &UserName) -> bool {
        let found = self.facts.observed.accounts.get(name.as_str());
        let Some((old, found)) = self.from.users.accounts.get(name).zip(found) else { return false };
        let has_password = old
            .password
            .as_ref()
            .filter(|hash| !hash.is_locked())
            .is_some_and(|hash| found.password.as_ref() == Some(hash) || hides_password(hash, found));
        has_password || (!old.keys.is_empty() && has_keys_of(&old.keys, found))
    }

    /// Returns true if both configs have the same entry of an account, and it was applied.
    fn stays(&self, name: &UserName) -> bool {
        let (old, new) = (self.from.users.accounts.get(name), self.to.users.accounts.get(name));
        let untold = self.from.never_applied.is_none() && !name.is_core();
        let is_applied = !untold && !self.from.is_never_applied(&user_field(name.as_str()));
        is_applied && old == new && new.is_some_and(|new| new.should_exist)
    }

    /// Returns the entry of an account that stays, as the host has it.
    fn kept(&self, name: &UserName) -> Option<(&'a Account, &'a ObservedAccount)> {
        let new = self.to.users.accounts.get(name).filter(|_| self.stays(name))?;
        Some((new, self.facts.observed.accounts.get(name.as_str())?))
    }

    /// Returns the reason of a step of an account whose entry stays.
    fn drift_reason(&self) -> StepReason {
        match self.mode {
            Mode::Nothing | Mode::Files => StepReason::Drifted,
            Mode::Image | Mode::ImageAndFiles | Mode::LeaveImage | Mode::Adopt => StepReason::UnderVar,
        }
    }

    /// Returns true if the config of the booted image has brought something of an account.
    fn is_carried(&self, name: &UserName) -> bool {
        self.carried_users().is_some_and(|brought| brought.accounts.contains_key(name))
    }

    /// Returns the accounts and groups that the config of the booted image has brought.
    fn carried_users(&self) -> Option<&'a Users> {
        self.facts.observed.carried.as_deref().map(|carried| &carried.brought.users)
    }

    /// Returns the keys that leave with the old entry of an account. A keys file of `core` is of the config that sets his password; an
    /// image brings the password alone.
    fn old_keys(&self, name: &UserName) -> Option<&'a [SshKey]> {
        let old = self.from.users.accounts.get(name)?;
        let brought = self.carried_users().and_then(|brought| brought.accounts.get(name));
        let is_password_alone = brought.is_some_and(|brought| {
            old.keys.is_empty() && old.password.is_some() && brought.password == old.password
        });
        old.desired_keys(name).filter(|_| !is_password_alone)
    }

    /// Returns true if an account's attributes were never applied, and wait for the next change of the entry.
    fn keeps_attributes(&self, name: &UserName) -> bool {
        let (old, new) = (self.from.users.accounts.get(name), self.to.users.accounts.get(name));
        old.is_some() && old == new && self.from.is_never_applied(&attributes_field(name.as_str()))
    }

    /// Returns why a group is changed now; `None` when its entry stays.
    pub(super) fn changed_group(&self, name: &UserName) -> Option<StepReason> {
        let (old, new) = (self.from.users.groups.get(name), self.to.users.groups.get(name));
        let untold = self.from.never_applied.is_none();
        let is_carried = self.carried_users().is_some_and(|brought| brought.groups.contains_key(name));
        if (untold || self.from.is_never_applied(&group_field(name.as_str())))
            && (old == new || (new.is_none() && !is_carried))
        {
            return None;
        }
        self.reason(old, new)
    }

    fn reason<T: PartialEq>(&self, old: Option<&T>, new: Option<&T>) -> Option<StepReason> {
        match (self.mode, old, new) {
            (_, None, None) => None,
            (_, Some(_), None) => Some(StepReason::Removed),
            (_, None, Some(_)) => Some(StepReason::Added),
            (Mode::Nothing | Mode::Files, Some(old), Some(new)) if old == new => None,
            (_, Some(old), Some(new)) if old == new => Some(StepReason::UnderVar),
            (_, Some(_), Some(_)) => Some(StepReason::Changed),
        }
    }
}

fn never_applied(spec: &HostSpec, name: &UserName, old: &Account, observed: &Observation) -> bool {
    // One that the agent made had its entry applied.
    let is_own = observed.accounts.get(name.as_str()).is_some_and(|found| found.maker == Maker::Agent);
    let untold = spec.never_applied.is_none() && !name.is_core() && !is_own;
    (untold && !account_holds(name, old, observed)) || spec.is_never_applied(&user_field(name.as_str()))
}

/// Returns the steps that files may depend on: groups first, accounts then.
pub(super) fn creations(input: &PlanInput<'_>) -> Vec<Step> {
    let observed = &input.facts.observed;
    let mut steps = Vec::new();
    // First those that have an id in the config: the host's programs could give it to another one.
    let has_gid = |name: &UserName| input.to.users.groups.get(name).is_some_and(|group| group.gid.is_some());
    for name in ordered(names(input, |spec| spec.users.groups.keys()), has_gid) {
        let Some(because) = input.changed_group(name) else { continue };
        let new = input.to.users.groups.get(name).filter(|group| group.should_exist);
        let old = input.from.users.groups.get(name).and_then(|group| group.password.as_ref());
        let op = match (new, observed.groups.get(name.as_str())) {
            (Some(_), None) => Op::CreateGroup { group: name.clone() },
            (Some(group), Some(found)) => {
                let dropped = group.password.is_none() && is_group_password_given(old, found);
                if group_password_holds(group, found) && !dropped {
                    continue;
                }
                Op::ModifyGroup { group: name.clone() }
            }
            // A group that the agent made goes, with its password.
            (None, Some(found)) if found.maker != Maker::Agent && is_group_password_given(old, found) => {
                Op::ModifyGroup { group: name.clone() }
            }
            (None, _) => continue,
        };
        steps.push(Step { op, because });
    }
    let has_uid = |name: &UserName| input.to.users.accounts.get(name).is_some_and(|one| one.uid.is_some());
    for name in ordered(names(input, |spec| spec.users.accounts.keys()), has_uid) {
        if let Some((new, found)) = input.kept(name) {
            let untold = input.from.never_applied.is_none() || input.keeps_attributes(name);
            if !untold && is_modified_by_user(new, found) {
                let op = Op::ModifyUser { user: name.clone() };
                steps.push(Step { op, because: input.drift_reason() });
            }
            continue;
        }
        let Some(because) = input.changed_account(name) else { continue };
        // One that must not exist is as one that is not listed.
        let new = input.to.users.accounts.get(name).filter(|account| account.should_exist);
        let old = input.from.users.accounts.get(name);
        let op = match (new, observed.accounts.get(name.as_str())) {
            (Some(new), None) if new.is_made(name) => Op::CreateUser { user: name.clone() },
            (Some(_), Some(_)) if input.keeps_attributes(name) => continue,
            // An administrator has it expire: what is listed in both configs is not opened again.
            (Some(_), Some(found)) if found.is_expired && old.is_some_and(|old| old.should_exist) => continue,
            (Some(new), Some(found)) if is_modified(new, found) || drops(old, Some(new), found) => {
                Op::ModifyUser { user: name.clone() }
            }
            (None, Some(found)) if drops(old, None, found) => Op::ModifyUser { user: name.clone() },
            (Some(_) | None, _) => continue,
        };
        steps.push(Step { op, because });
    }
    steps
}

/// Returns true if a group has the password of the old config: another one is of a person.
pub(super) fn is_group_password_given(old: Option<&PasswordHash>, found: &ObservedGroup) -> bool {
    let as_group = |old: &PasswordHash| Group { password: Some(old.clone()), ..Group::default() };
    old.is_some_and(|old| group_password_holds(&as_group(old), found))
}

/// Returns true if the config lets an attribute go: it becomes the default, or what the host's own account had before.
fn drops(old: Option<&Account>, new: Option<&Account>, found: &ObservedAccount) -> bool {
    let Some(old) = old.filter(|old| old.should_exist) else { return false };
    let (is_listed, nothing) = (new.is_some(), Account::default());
    let new = new.unwrap_or(&nothing);
    let left = old.groups.difference(&new.groups).any(|group| found.groups.contains(group));
    let text = (new.gecos.is_none() && is_gecos_given(old, found))
        || (new.shell.is_none() && is_shell_given(old, found));
    match found.maker {
        // One that no config lists is locked, and gets its attributes anew when it is opened.
        Maker::Agent => left || (is_listed && text),
        // Without an original, it was so before.
        Maker::Host | Maker::Image => found.has_original && (left || text),
    }
}

/// Returns the steps after the files: keys, passwords, and what leaves the config.
pub(super) fn steps(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in names(input, |spec| spec.users.accounts.keys()) {
        if let Some((new, found)) = input.kept(name) {
            let because = input.drift_reason();
            steps.extend(changed_by_user(name, new, found).into_iter().map(|op| Step { op, because }));
            continue;
        }
        let Some(because) = input.changed_account(name) else { continue };
        let found = input.facts.observed.accounts.get(name.as_str());
        let (old, new) = (input.from.users.accounts.get(name), input.to.users.accounts.get(name));
        let ops = match (new.filter(|new| new.should_exist), found) {
            (Some(new), None) if new.is_made(name) => first(name, new, input.facts.accounts.lacks_shadow),
            (Some(_) | None, None) => Vec::new(),
            (Some(new), Some(found)) => secrets(name, (old, input.old_keys(name)), Some(new), found),
            (None, Some(found)) if found.maker == Maker::Agent => {
                let lock = (!is_locked(found)).then(|| Op::LockUser { user: name.clone() });
                lock.into_iter().collect()
            }
            (None, Some(found)) => secrets(name, (old, input.old_keys(name)), None, found),
        };
        steps.extend(ops.into_iter().map(|op| Step { op, because }));
    }
    steps.extend(unremoved::steps(input, &steps));
    for name in names(input, |spec| spec.users.groups.keys()) {
        let Some(because) = input.changed_group(name) else { continue };
        let desired = input.to.users.groups.get(name).is_some_and(|group| group.should_exist);
        let own = |group: &ObservedGroup| group.maker == Maker::Agent && !group.is_primary;
        let goes = !desired && input.facts.observed.groups.get(name.as_str()).is_some_and(own);
        steps.extend(goes.then(|| Step { op: Op::RemoveGroup { group: name.clone() }, because }));
    }
    steps
}

/// Returns the steps of an account that is made: it begins without keys, with the locked password of useradd. Another locked one
/// is set, too, where there is a place for it.
fn first(name: &UserName, new: &Account, lacks_shadow: bool) -> Vec<Op> {
    let keys = (!new.keys.is_empty()).then(|| Op::SetSshKeys { user: name.clone() });
    let is_made_so = |password: &&PasswordHash| {
        password.as_str() == MADE_PASSWORD || (lacks_shadow && password.is_locked())
    };
    let other = new.password.as_ref().filter(|password| !is_made_so(password));
    keys.into_iter().chain(other.map(|_| Op::SetPassword { user: name.clone() })).collect()
}

/// Returns true if an administrator has locked the password: no update that does not change it opens the account again.
fn is_locked_by_hand(old: Option<&PasswordHash>, found: &ObservedAccount) -> bool {
    old.is_some_and(|old| !old.is_locked()) && is_password_locked(found)
}

/// Returns the steps of keys and password of an account that exists. What the config lets go is put back; where the agent
/// keeps no original, what still is as in the old config goes with it, and anything else is the host's.
fn secrets(
    name: &UserName,
    (old, old_keys): (Option<&Account>, Option<&[SshKey]>),
    new: Option<&Account>,
    found: &ObservedAccount,
) -> Vec<Op> {
    let keys = match (new.and_then(|new| new.desired_keys(name)), old_keys) {
        (Some(desired), _) => !keys_hold(desired, found),
        (None, Some(_)) if name.is_core() || found.maker == Maker::Agent => !keys_hold(&[], found),
        (None, Some(old)) => found.has_original || has_keys_of(old, found),
        // One that is opened again has the keys of its entry alone.
        (None, None) if found.maker == Maker::Agent && old.is_none_or(|old| !old.should_exist) => {
            new.is_some() && !keys_hold(&[], found)
        }
        (None, None) => false,
    };
    let password = is_password_set(
        name,
        (old.and_then(|old| old.password.as_ref()), new.and_then(|new| new.password.as_ref())),
        found,
    );
    let keys = keys.then(|| Op::SetSshKeys { user: name.clone() });
    keys.into_iter().chain(password.then(|| Op::SetPassword { user: name.clone() })).collect()
}

/// Returns true if the password of an account that exists has to be set. An administrator's lock stays, but the hash of a config that
/// leaves does not stay behind it.
fn is_password_set(
    name: &UserName,
    (old, new): (Option<&PasswordHash>, Option<&PasswordHash>),
    found: &ObservedAccount,
) -> bool {
    let is_hidden = old.is_some_and(|old| hides_password(old, found));
    match (new, old) {
        (Some(desired), old) if is_locked_by_hand(old, found) && old == Some(desired) => false,
        (Some(desired), _) => !password_holds(desired, found) || (is_hidden && desired.is_locked()),
        (None, Some(_)) if is_hidden => true,
        (None, Some(_)) if name.is_core() => !is_password_locked(found),
        (None, Some(old)) if found.has_original => found.password.is_some() && is_password_given(old, found),
        (None, Some(old)) => !is_password_locked(found) && password_holds(old, found),
        (None, None) => false,
    }
}

/// Returns the steps of keys and password that the user of an account changed himself: an update must not wait for him. That a
/// password is locked, or is no longer, is an administrator's work.
fn changed_by_user(name: &UserName, new: &Account, found: &ObservedAccount) -> Vec<Op> {
    let keys = new.desired_keys(name).is_some_and(|keys| !keys_hold(keys, found));
    let password = new.password.as_ref().is_some_and(|desired| {
        !desired.is_locked() && !is_password_locked(found) && !password_holds(desired, found)
    });
    let keys = keys.then(|| Op::SetSshKeys { user: name.clone() });
    keys.into_iter().chain(password.then(|| Op::SetPassword { user: name.clone() })).collect()
}

fn names<'a, I: Iterator<Item = &'a UserName>>(
    input: &PlanInput<'a>,
    of: impl Fn(&'a HostSpec) -> I,
) -> std::collections::BTreeSet<&'a UserName> {
    of(input.from).chain(of(input.to)).collect()
}

fn ordered(
    names: std::collections::BTreeSet<&UserName>,
    is_first: impl Fn(&UserName) -> bool,
) -> Vec<&UserName> {
    let (first, rest): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_first(name));
    first.into_iter().chain(rest).collect()
}

/// Returns the keys and the password of accounts that have appeared on the host since their config was committed.
pub(super) fn appeared(spec: &HostSpec, observed: &Observation) -> Vec<Op> {
    let waited = spec.users.accounts.iter().filter(|(name, account)| {
        !account.is_made(name) && account.should_exist && spec.is_never_applied(&user_field(name.as_str()))
    });
    waited
        .filter_map(|(name, account)| {
            let found = observed.accounts.get(name.as_str())?;
            Some(secrets(name, (None, None), Some(account), found))
        })
        .flatten()
        .collect()
}
