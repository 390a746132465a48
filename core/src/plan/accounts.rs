//! Accounts and groups compared with the host: the differences, and what can't be changed on those that exist.
//!
//! # Decisions
//! `groups` adds memberships: those that the host has given an account stay. Home, primary group and ids are set when an
//! account is made: on one that exists, the files that belong to them would be left behind.

use super::difference::{Difference, DifferenceKind, Kind, difference};
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use crate::model::observation::{Maker, Observation, ObservedAccount, ObservedGroup};
use crate::model::text::counted;
use crate::model::users::{Account, Group, PasswordHash, SshKey, group_field, keys_text, user_field};
use crate::model::{Contents, HostSpec, ManagedPath, ObservedFile, UserName};

/// Returns true if the keys file is as desired; no file is as good as an empty one.
pub(super) fn keys_hold(desired: &[SshKey], found: &ObservedAccount) -> bool {
    match &found.keys {
        ObservedFile::Absent => desired.is_empty(),
        ObservedFile::Regular { sha256, mode, uid, gid, .. } if found.foreign.is_none() => {
            let text = Contents::new(keys_text(desired).into_bytes());
            *sha256 == text.sha256() && *mode == 0o600 && (*uid, *gid) == (found.uid, found.gid)
        }
        ObservedFile::Regular { .. }
        | ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => false,
    }
}

/// Returns true if the keys file has one of these keys, whoever owns it, and whatever else is in it.
pub(super) fn has_keys_of(keys: &[SshKey], found: &ObservedAccount) -> bool {
    let text = Contents::new(keys_text(keys).into_bytes());
    let is_text = matches!(&found.keys, ObservedFile::Regular { sha256, .. } if *sha256 == text.sha256());
    is_text || keys.iter().any(|key| found.given_keys.contains(key))
}

/// Returns true if no password opens the account.
pub(super) fn is_password_locked(found: &ObservedAccount) -> bool {
    found.password.as_ref().is_none_or(PasswordHash::is_locked)
}

/// Returns true if a lock keeps the password of a config: who unlocks the account opens it with that.
pub(super) fn hides_password(given: &PasswordHash, found: &ObservedAccount) -> bool {
    found.password.as_ref().and_then(PasswordHash::behind_lock).as_ref() == Some(given)
}

/// Returns true if the password is as desired; every field that starts with `!` or `*` is a locked password.
pub(super) fn password_holds(desired: &PasswordHash, found: &ObservedAccount) -> bool {
    found.password.as_ref() == Some(desired) || (desired.is_locked() && is_password_locked(found))
}

/// Returns true if the comment is a config's. Another one is of a person who changed it since, and no roll-back touches it.
pub(super) fn is_gecos_given(old: &Account, found: &ObservedAccount) -> bool {
    old.gecos.as_ref().is_some_and(|old| *old == found.gecos || found.given.gecos)
}

/// Returns true if the shell is a config's ([`is_gecos_given`]).
pub(super) fn is_shell_given(old: &Account, found: &ObservedAccount) -> bool {
    old.shell.as_ref().is_some_and(|old| *old == found.shell || found.given.shell)
}

/// Returns true if the password is a config's ([`is_gecos_given`]).
pub(super) fn is_password_given(old: &PasswordHash, found: &ObservedAccount) -> bool {
    password_holds(old, found) || found.given.password
}

/// Returns true if nobody can log in, and unlocking lets nobody in: the agent leaves its own accounts so. Keys that could not be removed
/// are named by themselves.
pub(super) fn is_locked(found: &ObservedAccount) -> bool {
    let has_none = keys_hold(&[], found) || !found.unremoved_keys.is_empty();
    let keeps_hash = found.password.as_ref().and_then(PasswordHash::behind_lock).is_some();
    is_closed(found) && has_none && !keeps_hash
}

/// Returns true if nobody can log in: no key opens an account that has expired.
fn is_closed(found: &ObservedAccount) -> bool {
    is_password_locked(found) && found.is_expired
}

/// An attribute of an account that is otherwise than desired.
struct Attribute {
    name: &'static str,
    expected: String,
    found: String,
    /// It can be changed on an account that exists.
    is_changeable: bool,
}

fn attributes(account: &Account, found: &ObservedAccount) -> Vec<Attribute> {
    let mut wrong = Vec::new();
    let mut compare = |name, expected: Option<&str>, found: &str, is_changeable| {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let (expected, found) = (expected.to_owned(), found.to_owned());
            wrong.push(Attribute { name, expected, found, is_changeable });
        }
    };
    let uid = account.uid.map(|uid| uid.to_string());
    compare("uid", uid.as_deref(), &found.uid.to_string(), false);
    let home = account.home.as_deref().filter(|home| !is_home(home, found));
    compare("homeDir", home, &found.home, false);
    let primary = found.primary_group.as_deref().unwrap_or("a group without a name");
    compare("primaryGroup", account.primary_group.as_deref(), primary, false);
    compare("gecos", account.gecos.as_deref(), &found.gecos, true);
    compare("shell", account.shell.as_deref(), &found.shell, true);
    let lacks = account.groups.iter().filter(|group| !is_member(found, group));
    let lacks: Vec<&str> = lacks.map(String::as_str).collect();
    let lacks = (!lacks.is_empty()).then(|| format!("member of {}", lacks.join(", ")));
    compare("groups", lacks.as_deref(), "not a member", true);
    compare("expiry", found.is_expired.then_some("none"), "expired", true);
    wrong
}

fn is_member(found: &ObservedAccount, group: &str) -> bool {
    found.groups.contains(group) || found.primary_group.as_deref() == Some(group)
}

/// Returns true if a name leads to the home of an account on this host.
fn is_home(home: &str, found: &ObservedAccount) -> bool {
    let home = home.trim_end_matches('/');
    home == found.home.trim_end_matches('/') || found.home_names.contains(home)
}

/// Returns true if an account has to be modified.
pub(super) fn is_modified(account: &Account, found: &ObservedAccount) -> bool {
    attributes(account, found).iter().any(|attribute| attribute.is_changeable)
}

/// Returns true if an account differs in what its own user may change (chfn(1), chsh(1)), and in nothing else. A shell that lets
/// nobody in is an administrator's work.
pub(super) fn is_modified_by_user(account: &Account, found: &ObservedAccount) -> bool {
    let is_closed = ["nologin", "false"].contains(&found.shell.rsplit('/').next().unwrap_or_default());
    let wrong = attributes(account, found);
    let is_of_user = |one: &Attribute| one.name == "gecos" || (one.name == "shell" && !is_closed);
    !wrong.is_empty() && wrong.iter().all(is_of_user)
}

/// Returns the differences of an account's attributes, as one.
pub(super) fn attribute_difference(
    name: &UserName,
    account: &Account,
    found: &ObservedAccount,
) -> Option<Difference> {
    let wrong = attributes(account, found);
    if wrong.is_empty() || !account.should_exist {
        return None;
    }
    let list = |value: fn(&Attribute) -> &String| {
        wrong.iter().map(|one| format!("{} {}", one.name, value(one))).collect::<Vec<_>>().join(", ")
    };
    let (expected, found) = (list(|one| &one.expected), list(|one| &one.found));
    Some(difference(Kind::User, name, DifferenceKind::Attributes, &expected, &found))
}

/// Returns the differences of an account, its attributes aside where it exists.
pub(super) fn account_differences(
    name: &UserName,
    account: &Account,
    found: Option<&ObservedAccount>,
) -> Vec<Difference> {
    let Some(found) = found else {
        let missing = account.is_made(name).then(|| {
            difference(Kind::User, name, DifferenceKind::Missing, &"an account of this host", &"no account")
        });
        return missing.into_iter().collect();
    };
    if !account.should_exist {
        let open = (found.maker != Maker::Agent || !is_closed(found)).then(|| {
            let expected = "no account, or a locked one";
            difference(Kind::User, name, DifferenceKind::Unexpected, &expected, &"an open account")
        });
        return open.into_iter().collect();
    }
    let keys = account.desired_keys(name).filter(|keys| !keys_hold(keys, found)).map(|keys| {
        let place = found.keys_path.as_ref().map_or("its home", ManagedPath::as_str);
        let found = match &found.foreign {
            Some(directory) => format!("the directory {directory} that is not the account's own"),
            None => "other keys, mode or owner".to_owned(),
        };
        let keys = counted(keys.len(), "SSH key");
        let expected = format!("{keys} in {place}, mode 0600, owned by the account");
        difference(Kind::User, name, DifferenceKind::Content, &expected, &found)
    });
    let password = account.password.as_ref().filter(|password| !password_holds(password, found));
    let password = password.map(|password| {
        let expected = if password.is_locked() { "a locked password" } else { "the password of the config" };
        difference(Kind::User, name, DifferenceKind::Value, &expected, &"another password in /etc/shadow")
    });
    keys.into_iter().chain(password).collect()
}

/// Returns the difference of a group.
pub(super) fn group_difference(
    name: &UserName,
    group: &Group,
    found: Option<&ObservedGroup>,
) -> Option<Difference> {
    let differs = |what, expected: &str, found: &str| {
        Some(difference(Kind::Group, name, what, &expected.to_owned(), &found.to_owned()))
    };
    match (group.should_exist, found) {
        (false, None) => None,
        (false, Some(found)) if found.maker == Maker::Agent && found.is_primary => None,
        (false, Some(_)) => differs(DifferenceKind::Unexpected, "no group", "a group of this host"),
        (true, None) => differs(DifferenceKind::Missing, "a group of this host", "no group"),
        (true, Some(found)) => match group.gid {
            Some(gid) if gid != found.gid => {
                differs(DifferenceKind::Attributes, &format!("gid {gid}"), &format!("gid {}", found.gid))
            }
            Some(_) | None if !group_password_holds(group, found) => {
                differs(DifferenceKind::Value, "the password of the config", "another password")
            }
            Some(_) | None => None,
        },
    }
}

/// Returns true if the password of a group is as desired; none is as locked as one that starts with `!` or `*`.
pub(super) fn group_password_holds(group: &Group, found: &ObservedGroup) -> bool {
    let is_found_closed = found.password.as_ref().is_none_or(is_group_closed);
    group.password.as_ref().is_none_or(|password| {
        found.password.as_ref() == Some(password) || (is_group_closed(password) && is_found_closed)
    })
}

/// Returns true if no password opens a group. Neither of two other texts is a hash: `x` names the other database.
pub(super) fn is_group_closed(password: &PasswordHash) -> bool {
    password.is_locked() || ["", "x"].contains(&password.as_str())
}

/// Returns the differences of every account and group, those aside that were never applied.
pub(super) fn differences(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let mut found: Vec<Difference> = Vec::new();
    for (name, account) in &spec.users.accounts {
        found.extend(managed_differences(spec, name, account, observed));
    }
    let untold = spec.never_applied.is_none();
    for (name, group) in &spec.users.groups {
        if !untold && !spec.is_never_applied(&group_field(name.as_str())) {
            found.extend(group_difference(name, group, observed.groups.get(name.as_str())));
        }
    }
    found
}

/// Returns true if the keys file of `core` may have the keys of other users: machine-config-daemon and earlier agents wrote all there.
pub(super) fn has_keys_of_others(spec: &HostSpec) -> bool {
    let mut others = spec.users.accounts.iter().filter(|(name, _)| !name.is_core());
    spec.never_applied.is_none() && others.any(|(_, account)| !account.keys.is_empty())
}

fn managed_differences(
    spec: &HostSpec,
    name: &UserName,
    account: &Account,
    observed: &Observation,
) -> Vec<Difference> {
    // MCD, and agents before this one, applied keys and password of core alone.
    let untold = spec.never_applied.is_none();
    if (untold && (!name.is_core() || has_keys_of_others(spec)))
        || spec.is_never_applied(&user_field(name.as_str()))
    {
        return Vec::new();
    }
    let found = observed.accounts.get(name.as_str());
    if untold && found.is_none() {
        return Vec::new();
    }
    let attributes = !untold && !spec.is_never_applied(&crate::model::users::attributes_field(name.as_str()));
    let wrong = found.filter(|_| attributes).and_then(|found| attribute_difference(name, account, found));
    wrong.into_iter().chain(account_differences(name, account, found)).collect()
}

/// Returns true if an account is as its entry, in all that the entry sets.
pub(super) fn account_holds(name: &UserName, account: &Account, observed: &Observation) -> bool {
    let found = observed.accounts.get(name.as_str());
    account_differences(name, account, found).is_empty()
        && found.is_none_or(|found| attribute_difference(name, account, found).is_none())
}

/// Returns why a password can't be set: an administrator has locked the account since a config, or this update, set one.
pub(super) fn opens_lock(input: &PlanInput<'_>, user: &UserName) -> Option<Unreachable> {
    let found = input.facts.observed.accounts.get(user.as_str())?.password.as_ref()?;
    let entry = input.to.users.accounts.get(user).filter(|entry| entry.should_exist)?;
    let new = entry.password.as_ref()?;
    let message = format!(
        "the password was locked on this host (`usermod --lock`), and this update would open it; unlock it (`usermod --unlock {user}`), or set \
         passwordHash to \"\""
    );
    let field = format!("{} passwordHash", user_field(user.as_str()));
    found.is_lock_that_opens(new).then(|| unreachable(ReasonKind::Obstacle, field, message))
}

const ALWAYS: &str = "each host has root and needs it; remove the entry";

/// Returns what can't be changed on an account or a group that exists.
pub(super) fn refused(input: &PlanInput<'_>) -> Vec<Unreachable> {
    let mut refused = Vec::new();
    for (name, account) in &input.to.users.accounts {
        let (field, found) = (user_field(name.as_str()), input.facts.observed.accounts.get(name.as_str()));
        let Some(found) = found.filter(|_| input.changed_account(name).is_some()) else { continue };
        if !account.should_exist {
            refused.extend((found.maker != Maker::Agent).then(|| {
                let message = "this host has the account, and the agent removes none that it did not make; \
                               remove the account on this host (`userdel`), or the entry";
                let (kind, message) =
                    if name.is_root() { (ReasonKind::Root, ALWAYS) } else { (ReasonKind::NotMade, message) };
                unreachable(kind, format!("{field} shouldExist"), message)
            }));
            continue;
        }
        let kind = if name.is_root() { ReasonKind::Root } else { ReasonKind::FixedAttribute };
        let fixed = attributes(account, found).into_iter().filter(|attribute| !attribute.is_changeable);
        refused.extend(fixed.map(|Attribute { name: part, expected, found, .. }| {
            let here = if name.is_root() { "" } else { ", or change the account on this host (`usermod`)" };
            let message = format!(
                "the account exists with {found}, and {expected} can only be set when an account is made; \
                 set {found} in the config{here}"
            );
            unreachable(kind, format!("{field} {part}"), message)
        }));
    }
    for (name, group) in &input.to.users.groups {
        let (field, found) = (group_field(name.as_str()), input.facts.observed.groups.get(name.as_str()));
        let Some(found) = found.filter(|_| input.changed_group(name).is_some()) else { continue };
        let kind = if name.is_root() { ReasonKind::Root } else { ReasonKind::FixedAttribute };
        match (group.should_exist, group.gid) {
            (false, _) if name.is_root() => {
                refused.push(unreachable(kind, format!("{field} shouldExist"), ALWAYS));
            }
            (false, _) if found.maker != Maker::Agent => {
                let message = "this host has the group, and the agent removes none that it did not make; \
                               remove the group on this host (`groupdel`), or the entry";
                refused.push(unreachable(ReasonKind::NotMade, format!("{field} shouldExist"), message));
            }
            (true, Some(gid)) if gid != found.gid => {
                let here =
                    if name.is_root() { "" } else { ", or change the group on this host (`groupmod`)" };
                let message = format!(
                    "the group exists with gid {}, which can only be set when a group is made; \
                     set {} in the config{here}",
                    found.gid, found.gid
                );
                refused.push(unreachable(kind, format!("{field} gid"), message));
            }
            (false, _) | (true, Some(_) | None) => {}
        }
    }
    refused
}
