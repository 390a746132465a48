//! `passwd.users` and `passwd.groups`. The values go into colon-separated databases and onto command lines: what would
//! break out of its field there is refused here.

use std::collections::{BTreeMap, BTreeSet};

use ignition_config::v3_6::{Group as PasswdGroup, User as PasswdUser};

use super::super::error::ModelError;
use super::super::faults::Faults;
use super::super::text::short;
use super::super::users::{Account, CORE, Group, PasswordHash, SshKey, Users, group_field, user_field};
use super::super::{NotApplied, NotAppliedReason, UserName};
use super::within::{Entries, Within};

/// Reads all users and groups.
pub(super) fn read(entries: &mut Entries<'_>, users: Vec<PasswdUser>, groups: Vec<PasswdGroup>) -> Users {
    let within = entries.within;
    let mut read = Users { accounts: BTreeMap::new(), groups: BTreeMap::new() };
    for user in users {
        let field = user_field(&short(&user.name, 40));
        let name =
            UserName::new(user.name.as_str()).map_err(|error| within.error(field.clone(), error.to_string()));
        let name = entries.faults.take(name);
        if user.should_exist == Some(false) {
            entries.remarks.extend(beside_absence(&field, &parts_of_user(&user)));
        }
        let account = account(entries, &field, &user.name.clone(), user);
        let owner = owner_of(&read.accounts, |other| other.uid.filter(|_| other.should_exist), account.uid);
        if let Some(owner) = owner.filter(|_| account.should_exist) {
            let cause = same_id("uid", account.uid, &owner, "user");
            entries.faults.add(within.error(format!("{field} uid"), cause));
        }
        if name.is_some_and(|name| read.accounts.insert(name, account).is_some()) {
            entries.faults.add(within.unreachable(field, "the user is listed twice; keep one entry"));
        }
    }
    for group in groups {
        let field = group_field(&short(&group.name, 40));
        if group.should_exist == Some(false) {
            let parts = [
                ("gid", group.gid.is_some()),
                ("passwordHash", group.password_hash.is_some()),
                ("system", group.system.is_some()),
            ];
            entries.remarks.extend(beside_absence(&field, &parts));
        }
        let name = group_name(group.name).map_err(|cause| within.error(field.clone(), cause));
        let name = entries.faults.take(name);
        let entry = Group {
            should_exist: group.should_exist != Some(false),
            gid: entries.faults.take(id(within, &field, "gid", group.gid)).flatten(),
            password: entries.faults.take(password(within, &field, filled(group.password_hash))).flatten(),
            system: group.system == Some(true),
        };
        let owner = owner_of(&read.groups, |other| other.gid.filter(|_| other.should_exist), entry.gid);
        if let Some(owner) = owner.filter(|_| entry.should_exist) {
            let cause = same_id("gid", entry.gid, &owner, "group");
            entries.faults.add(within.error(format!("{field} gid"), cause));
        }
        if name.is_some_and(|name| read.groups.insert(name, entry).is_some()) {
            entries.faults.add(within.unreachable(field, "the group is listed twice; keep one entry"));
        }
    }
    read
}

/// Names the fields beside `shouldExist: false`, empty ones included.
fn beside_absence(entry: &str, parts: &[(&str, bool)]) -> Vec<NotApplied> {
    let message = "it has no effect with `shouldExist: false`; remove one of the two";
    let set = parts.iter().filter(|(_, is_set)| *is_set);
    set.map(|(part, _)| NotApplied::new(format!("{entry} {part}"), NotAppliedReason::NoEffect, message))
        .collect()
}

fn parts_of_user(user: &PasswdUser) -> [(&'static str, bool); 12] {
    [
        ("sshAuthorizedKeys", user.ssh_authorized_keys.is_some()),
        ("passwordHash", user.password_hash.is_some()),
        ("uid", user.uid.is_some()),
        ("gecos", user.gecos.is_some()),
        ("homeDir", user.home_dir.is_some()),
        ("noCreateHome", user.no_create_home.is_some()),
        ("primaryGroup", user.primary_group.is_some()),
        ("groups", user.groups.is_some()),
        ("noUserGroup", user.no_user_group.is_some()),
        ("noLogInit", user.no_log_init.is_some()),
        ("shell", user.shell.is_some()),
        ("system", user.system.is_some()),
    ]
}

/// Returns the entry that has an id already: `useradd` and `groupadd` make no second one of it.
fn owner_of<T>(
    entries: &BTreeMap<UserName, T>,
    of: impl Fn(&T) -> Option<u32>,
    id: Option<u32>,
) -> Option<UserName> {
    let id = id?;
    entries.iter().find(|(_, entry)| of(entry) == Some(id)).map(|(name, _)| name.clone())
}

fn same_id(part: &str, id: Option<u32>, owner: &UserName, kind: &str) -> String {
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    format!("the {kind} {owner} has the {part} {id}, too; give each {kind} its own")
}

/// Names of groups follow the rule of users.
fn group_name(name: String) -> Result<UserName, String> {
    UserName::new(name).map_err(|error| error.to_string().replacen("user name", "group name", 1))
}

fn account(entries: &mut Entries<'_>, field: &str, name: &str, user: PasswdUser) -> Account {
    let within = entries.within;
    let keys = keys(entries, field, &user);
    let faults = &mut *entries.faults;
    let mut hash = faults.take(password(within, field, user.password_hash.clone())).flatten();
    // As with MCD, keys alone lock the password of core (MCD-161).
    let sets_keys = user.ssh_authorized_keys.as_ref().is_some_and(|keys| !keys.is_empty());
    if name == CORE && hash.is_none() && (sets_keys || user.password_hash.is_some()) {
        hash = Some(PasswordHash::locked());
    }
    let group = |faults: &mut Faults, part: &str, group: String| {
        let name = group_name(group).map_err(|cause| within.error(format!("{field} {part}"), cause));
        faults.take(name).map(String::from)
    };
    let groups = user.groups.unwrap_or_default().into_iter();
    let groups: BTreeSet<String> = groups.filter_map(|one| group(faults, "groups", one)).collect();
    Account {
        should_exist: user.should_exist != Some(false),
        keys,
        password: hash,
        uid: faults.take(id(within, field, "uid", user.uid)).flatten(),
        gecos: faults.take(text(within, field, "gecos", filled(user.gecos))).flatten(),
        home: faults.take(path(within, field, "homeDir", user.home_dir)).flatten(),
        no_create_home: user.no_create_home == Some(true),
        primary_group: filled(user.primary_group).and_then(|one| group(faults, "primaryGroup", one)),
        groups,
        no_user_group: user.no_user_group == Some(true),
        no_log_init: user.no_log_init == Some(true),
        shell: faults.take(path(within, field, "shell", user.shell)).flatten(),
        system: user.system == Some(true),
    }
}

/// Reads the keys of a user: an entry of several lines is several keys (install-config's `sshKey: |`), and lines that
/// hold none are skipped, as sshd skips them.
fn keys(entries: &mut Entries<'_>, field: &str, user: &PasswdUser) -> Vec<SshKey> {
    let mut keys = Vec::new();
    for (place, entry) in user.ssh_authorized_keys.iter().flatten().enumerate() {
        for line in SshKey::lines(entry) {
            let key = SshKey::new(line).ok_or_else(|| {
                entries.within.error(
                    format!("{field} sshAuthorizedKeys[{place}]"),
                    "it holds a NUL or a carriage return inside of a line; give one key a line",
                )
            });
            keys.extend(entries.faults.take(key));
        }
    }
    keys
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn password(
    within: Within<'_>,
    field: &str,
    hash: Option<String>,
) -> Result<Option<PasswordHash>, ModelError> {
    let hash = match hash {
        None => return Ok(None),
        // As with Ignition: no password opens the account.
        Some(hash) if hash.is_empty() => return Ok(Some(PasswordHash::locked())),
        Some(hash) => hash,
    };
    let refused = || {
        within.error(format!("{field} passwordHash"), "it holds `:` or a line break; give a crypt(3) hash")
    };
    PasswordHash::new(hash).map(Some).ok_or_else(refused)
}

fn id(within: Within<'_>, field: &str, part: &str, id: Option<i64>) -> Result<Option<u32>, ModelError> {
    let Some(id) = id else { return Ok(None) };
    // The highest id means "leave as it is" to chown(2).
    let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
    id.map(Some).ok_or_else(|| within.error(format!("{field} {part}"), "it must be 0 to 4294967294"))
}

/// Refuses what would break out of its field in `/etc/passwd`.
fn text(
    within: Within<'_>,
    field: &str,
    part: &str,
    text: Option<String>,
) -> Result<Option<String>, ModelError> {
    let Some(text) = text else { return Ok(None) };
    if text.contains([':', '\0']) || text.contains(char::is_control) {
        let cause = "it holds `:` or a control character; take it out";
        return Err(within.error(format!("{field} {part}"), cause));
    }
    Ok(Some(text))
}

fn path(
    within: Within<'_>,
    field: &str,
    part: &str,
    path: Option<String>,
) -> Result<Option<String>, ModelError> {
    let path = text(within, field, part, filled(path))?;
    match path {
        Some(path) if !path.starts_with('/') => {
            Err(within.error(format!("{field} {part}"), "it must be an absolute path"))
        }
        path => Ok(path),
    }
}
