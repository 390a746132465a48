//! Changes of accounts by people on this host that the steps overwrite, and entries in the way of keys: named before it is done.

use super::accounts::{
    hides_password, is_gecos_given, is_group_closed, is_password_given, is_password_locked, is_shell_given,
    keys_hold, password_holds,
};
use super::homes;
use super::input::PlanInput;
use super::users::is_group_password_given;
use super::warnings::{Warning, gone_at_boot};
use super::{Op, Step};
use crate::model::observation::{Maker, ObservedAccount};
use crate::model::text::escaped;
use crate::model::users::{Account, PasswordHash, group_field, user_field};
use crate::model::{HostSpec, UserName};

/// Returns the warnings about the steps of accounts.
pub(super) fn warnings(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    let mut found = Vec::new();
    for step in steps {
        if let Op::CreateUser { user } = &step.op {
            found.extend(home(input, user));
        } else if let Op::ModifyUser { user } = &step.op {
            found.extend(attributes(input, user));
        } else if let Op::SetPassword { user } = &step.op {
            found.extend(password(input, user));
        } else if let Op::SetSshKeys { user } = &step.op {
            found.extend(keys(input, user));
            found.extend(in_the_way(input, user));
        } else if let Op::LockUser { user } = &step.op {
            found.extend(in_the_way(input, user));
        } else if let Op::ModifyGroup { group } = &step.op {
            found.extend(group_password(input, group));
        } else if let Op::RemoveGroup { group } = &step.op {
            found.extend(group_people(input, group));
        }
    }
    found
}

fn warning(user: &UserName, part: &str, message: &str) -> Warning {
    Warning { field: format!("{} {part}", user_field(user.as_str())), message: escaped(message) }
}

fn observed<'a>(input: &'a PlanInput<'_>, user: &UserName) -> Option<&'a ObservedAccount> {
    input.facts.observed.accounts.get(user.as_str())
}

fn home(input: &PlanInput<'_>, user: &UserName) -> Option<Warning> {
    let account = input.to.users.accounts.get(user)?;
    let home = homes::home(input, user, account);
    let directory = gone_at_boot(&home).filter(|_| homes::uses_home(input, user, account))?;
    let message =
        format!("the home {home} is in {directory}, which is empty after each boot; choose a home elsewhere");
    Some(warning(user, "homeDir", &message))
}

fn attributes(input: &PlanInput<'_>, user: &UserName) -> Option<Warning> {
    let (found, old) = (observed(input, user)?, input.from.users.accounts.get(user)?);
    let new = input.to.users.accounts.get(user).filter(|new| new.should_exist)?;
    let other = |old: &Option<String>, new: &Option<String>, found: &str| {
        old.as_ref().is_some_and(|old| old != found) && new.as_ref().is_some_and(|new| new != found)
    };
    let parts = [
        ("gecos", other(&old.gecos, &new.gecos, &found.gecos)),
        ("shell", other(&old.shell, &new.shell, &found.shell)),
    ];
    let parts: Vec<&str> =
        parts.into_iter().filter(|(_, is_other)| *is_other).map(|(part, _)| part).collect();
    let message = "it was changed on this host, and this update sets the config's value; to keep the host's, put it into the config";
    (!parts.is_empty()).then(|| warning(user, &parts.join(" and "), message))
}

/// Returns the warnings about values of people that stay as the config lets them go: what was before it is not restored.
pub(super) fn stays(input: &PlanInput<'_>) -> Vec<Warning> {
    let mut found = Vec::new();
    for (name, old) in &input.from.users.accounts {
        let parts = newer_parts(input, name, old).unwrap_or_default();
        let message = "it was changed on this host after the config had set it, so it stays, and the one from before the config is not \
                       restored; if nobody wants it, set another (`usermod`, `passwd`)";
        found.extend((!parts.is_empty()).then(|| warning(name, &parts.join(" and "), message)));
    }
    for (name, group) in &input.from.users.groups {
        let Some(seen) = input.facts.observed.groups.get(name.as_str()) else { continue };
        let new = input.to.users.groups.get(name).filter(|group| group.should_exist);
        let is_let_go = new.map_or(seen.maker != Maker::Agent, |new| new.password.is_none());
        let is_newer = group.password.is_some() && !is_group_password_given(group.password.as_ref(), seen);
        if is_let_go && is_newer && input.changed_group(name).is_some() {
            let message = "it was changed on this host after the config had set it, so it stays; if nobody wants it, set another (`gpasswd`)";
            found.push(of_group(name, "passwordHash", message));
        }
    }
    found
}

/// Returns the parts of an account that the config lets go and a person has changed since.
fn newer_parts(input: &PlanInput<'_>, name: &UserName, old: &Account) -> Option<Vec<&'static str>> {
    let found = observed(input, name).filter(|_| old.should_exist)?;
    input.changed_account(name)?;
    let new = input.to.users.accounts.get(name).filter(|new| new.should_exist);
    let is_own = found.maker == Maker::Agent;
    // One of the agent's own that leaves is locked.
    if (is_own && new.is_none()) || (!is_own && !found.has_original) {
        return None;
    }
    let nothing = Account::default();
    let new = new.unwrap_or(&nothing);
    let gecos = old.gecos.is_some() && new.gecos.is_none() && !is_gecos_given(old, found);
    let shell = old.shell.is_some() && new.shell.is_none() && !is_shell_given(old, found);
    let is_newer = |old: &PasswordHash| !is_password_given(old, found) && !hides_password(old, found);
    let password = new.password.is_none() && !name.is_core() && old.password.as_ref().is_some_and(is_newer);
    let parts = [("gecos", gecos), ("shell", shell), ("passwordHash", password)];
    Some(parts.into_iter().filter(|(_, is_newer)| *is_newer).map(|(part, _)| part).collect())
}

fn password(input: &PlanInput<'_>, user: &UserName) -> Option<Warning> {
    let found = observed(input, user)?;
    let new = input.to.users.accounts.get(user).filter(|new| new.should_exist);
    let new = new.and_then(|new| new.password.as_ref());
    let old = input.from.users.accounts.get(user).and_then(|old| old.password.as_ref());
    let message = match (old, new) {
        (Some(old), _) if password_holds(old, found) => return None,
        (Some(old), new) if hides_password(old, found) && new.is_none_or(PasswordHash::is_locked) => {
            "it was locked on this host (`usermod --lock`), which keeps the hash of the config; this update replaces that by the one \
             from before the config, or by none, and the account stays locked"
        }
        (Some(_), Some(_)) => {
            "it was changed on this host, and this update sets the config's password; to keep the host's, put its hash into the config"
        }
        (Some(_), None) if user.is_core() => {
            "it was changed on this host, and this update locks the password, since the config has none any more; to keep one, set \
             passwordHash"
        }
        // Keys alone lock it (MCD-161), which nobody would guess.
        (None, Some(new)) if new.is_locked() && !is_password_locked(found) => {
            if user.is_core() {
                "the account has a password on this host, and this update locks it, since the config has keys and no password; to keep \
                 one, set passwordHash"
            } else {
                "the account has a password on this host, and this update locks it, since no password opens this passwordHash; to keep \
                 one, set its hash, or remove the field"
            }
        }
        (_, _) => return None,
    };
    Some(warning(user, "passwordHash", message))
}

fn of_group(group: &UserName, part: &str, message: &str) -> Warning {
    let field = format!("{} {part}", group_field(group.as_str()));
    Warning { field: field.trim_end().to_owned(), message: escaped(message) }
}

fn group_password(input: &PlanInput<'_>, group: &UserName) -> Option<Warning> {
    let found = input.facts.observed.groups.get(group.as_str())?;
    let new = input.to.users.groups.get(group).filter(|new| new.should_exist)?.password.as_ref()?;
    let old = input.from.users.groups.get(group).and_then(|old| old.password.as_ref());
    let message = match old {
        Some(_) if !is_group_password_given(old, found) => {
            "it was changed on this host (`gpasswd`), and this update sets the config's password; to keep the host's, put its hash into \
             the config"
        }
        None if is_group_closed(new) => {
            "the group has a password on this host, and this update removes it, since no password opens this passwordHash; to keep it, \
             set its hash, or remove the field"
        }
        Some(_) | None => return None,
    };
    Some(of_group(group, "passwordHash", message))
}

/// Returns the warning about those whom no config made members of a group that goes.
fn group_people(input: &PlanInput<'_>, group: &UserName) -> Option<Warning> {
    let found = input.facts.observed.groups.get(group.as_str())?;
    let is_given = |spec: &HostSpec, person: &str| {
        let mut given =
            spec.users.accounts.iter().filter(|(_, account)| account.groups.contains(group.as_str()));
        given.any(|(name, _)| name.as_str() == person)
    };
    let people = found
        .people
        .iter()
        .filter(|person| !is_given(input.from, person.as_str()) && !is_given(input.to, person.as_str()));
    let people: Vec<&str> = people.map(String::as_str).collect();
    let message = format!(
        "this host made members or administrators of the group that no config lists ({}), and this update removes the group with them; to \
         keep it, keep its entry in the config",
        people.join(", ")
    );
    (!people.is_empty()).then(|| of_group(group, "", &message))
}

fn keys(input: &PlanInput<'_>, user: &UserName) -> Option<Warning> {
    let found = observed(input, user)?;
    let old = input.from.users.accounts.get(user)?.desired_keys(user)?;
    let is_set = input.to.users.accounts.get(user).is_some_and(|new| new.desired_keys(user).is_some());
    let does =
        if is_set { "overwrites it" } else { "takes it away, or restores the one from before the config" };
    let message = format!(
        "the keys file was changed on this host, and this update {does}; other keys belong into .ssh/authorized_keys"
    );
    (!keys_hold(old, found)).then(|| warning(user, "sshAuthorizedKeys", &message))
}

fn in_the_way(input: &PlanInput<'_>, user: &UserName) -> Option<Warning> {
    let found = input.facts.obstacles.in_the_way.get(user.as_str())?;
    let message = format!(
        "{} is in the way of the keys file, and is moved aside to {} or the same name with a number; look at it there",
        found.path, found.aside
    );
    Some(warning(user, "sshAuthorizedKeys", &message))
}
