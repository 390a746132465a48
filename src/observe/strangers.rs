//! Accounts and groups that leave the config and are not any more what the agent made, or changed: they were renamed, or made again.
//! They may be anybody's, so nothing of them is touched, and the plan names them. So is what stays because the record was lost that says
//! what the host had before.

use std::collections::BTreeMap;

use crate::host::account_records::{AccountRecords, GroupRecord, UserRecord};
use crate::host::accounts::{Accounts, Marks};
use crate::host::{HostError, Root, account_lines, keys};
use crate::model::users::{Account, Users, group_field, user_field};
use crate::model::{HostSpec, UserName};

/// Returns what became of them, by field.
pub(super) fn of(
    root: &Root,
    accounts: &Accounts,
    (old, new): (&HostSpec, &HostSpec),
) -> Result<BTreeMap<String, String>, HostError> {
    let (from, to) = (&old.users, &new.users);
    let users =
        from.accounts.keys().filter(|name| to.accounts.get(*name).is_none_or(|new| !new.should_exist));
    let users: Vec<&UserName> = users.filter(|name| !name.is_core()).collect();
    let groups = from.groups.keys().filter(|name| to.groups.get(*name).is_none_or(|new| !new.should_exist));
    let groups: Vec<&UserName> = groups.collect();
    let mut found = BTreeMap::new();
    let records = (AccountRecords::load(root)?, AccountRecords::load_current(root)?);
    let marks = Marks::load(root)?;
    for name in users {
        let message = user(accounts, &marks, &records, name.as_str());
        found.extend(message.map(|message| (user_field(name.as_str()), message)));
    }
    for name in groups {
        let message = group(accounts, &records, name.as_str());
        let message = message.or_else(|| unrecorded_group(accounts, &records, name, from));
        found.extend(message.map(|message| (group_field(name.as_str()), message)));
    }
    for (name, account) in from.accounts.iter().filter(|(_, account)| account.should_exist) {
        let field = user_field(name.as_str());
        if !old.is_never_applied(&field) && !records.0.knows(name.as_str()) && !records.1.knows(name.as_str())
        {
            let message = unrecorded(accounts, name.as_str(), (account, to.accounts.get(name)));
            found.extend(message.map(|message| (field, message)));
        }
    }
    let is_listed = |name: &str| [from, to].into_iter().any(|users| users.account(name).is_some());
    for (name, user) in accounts.users().filter(|(name, _)| !is_listed(name)) {
        let is_lost = records.1.is_made(name) && !records.0.knows(name);
        if is_lost && !account_lines::is_expired(root, name)? {
            let message = format!(
                "the account has the mark of the agent, its record was lost, and no config lists it: it stays as it is; if nothing needs \
                 it, lock it (`usermod --lock --expiredate 1 {name}`) and remove {}",
                keys::path(user)
            );
            found.insert(user_field(name), message);
        }
    }
    Ok(found)
}

/// Returns what stays of an entry on an account of the host, as nobody knows whether it had that before.
fn unrecorded(accounts: &Accounts, name: &str, (old, new): (&Account, Option<&Account>)) -> Option<String> {
    let user = accounts.user(name)?;
    let (nothing, member_of) = (Account::default(), accounts.groups_of(name));
    let new = new.filter(|new| new.should_exist).unwrap_or(&nothing);
    let (mut parts, mut next) = (Vec::new(), Vec::new());
    for group in old.groups.difference(&new.groups).filter(|group| member_of.contains(*group)) {
        parts.push(format!("the group {group}"));
        next.push(format!("`gpasswd --delete {name} {group}`"));
    }
    let texts =
        [("comment", &old.gecos, &new.gecos, &user.gecos), ("shell", &old.shell, &new.shell, &user.shell)];
    for (what, old, new, found) in texts {
        if old.as_ref() == Some(found) && new.is_none() {
            parts.push(format!("the {what}"));
            next.push(format!("`usermod --{what} ... {name}`"));
        }
    }
    (!parts.is_empty()).then(|| {
        format!(
            "the record of what the account was before the config is lost (accounts.json), so {} of the config stay as they are; if the \
             account did not have them before, change it ({})",
            parts.join(", "),
            next.join(", ")
        )
    })
}

/// Returns what stays of a group whose password the config had set: it has no other mark.
fn unrecorded_group(
    accounts: &Accounts,
    (kept, current): &(AccountRecords, AccountRecords),
    name: &UserName,
    from: &Users,
) -> Option<String> {
    let text = name.as_str();
    let is_lost = !kept.groups.contains_key(text) && !current.groups.contains_key(text);
    from.groups.get(name)?.password.as_ref().filter(|_| is_lost)?;
    accounts.group(text)?;
    Some(format!(
        "the record is lost (accounts.json) that says whether the agent made the group: the password of the config goes, the rest stays; if \
         nothing needs it, remove it (`groupdel {text}`)"
    ))
}

fn user(
    accounts: &Accounts,
    marks: &Marks,
    (kept, current): &(AccountRecords, AccountRecords),
    name: &str,
) -> Option<String> {
    let renamed = |other: &str, sign: String| {
        let user = accounts.user(other)?;
        // Keys leave the home in which the record has them.
        let is_written = kept.written.values().any(|written| written.user == name);
        let (keys, next) = if is_written {
            ("", String::new())
        } else {
            ("keys, ", format!(" and remove {}", keys::path(user)))
        };
        Some(format!(
            "this host has no account {name}, and {other} has {sign}, so it was renamed: it stays as it is, with {keys}password and groups \
             of the config; if nothing needs it, lock it (`usermod --lock --expiredate 1 {other}`){next}"
        ))
    };
    match (kept.users.get(name)?, accounts.user(name)) {
        (UserRecord::Agent { uid: Some(uid) }, None) => {
            let other = marks.marked_user(*uid).filter(|other| !kept.knows(other))?;
            renamed(other, "its mark in /etc/shadow".to_owned())
        }
        (UserRecord::Host(original), None) => {
            let other = accounts.user_name(original.uid?).filter(|other| !kept.knows(other))?;
            renamed(other, format!("its uid {}", original.uid?))
        }
        (UserRecord::Agent { .. }, Some(_)) if !current.is_made(name) => Some(format!(
            "the account has lost the mark of the agent (`pwunconv`), or somebody made it again, so it is not locked: keys and password \
             of the config go, the rest stays; if nothing needs it, lock it (`usermod --lock --expiredate 1 {name}`)"
        )),
        (UserRecord::Host(_), Some(user)) if !current.knows(name) => Some(format!(
            "the account has another uid ({}) than the one that the config changed, so nothing of before is restored: keys and password \
             of the config go, the rest stays; look at it (`id {name}`)",
            user.uid
        )),
        (UserRecord::Begun | UserRecord::Agent { .. } | UserRecord::Host(_), _) => None,
    }
}

fn group(
    accounts: &Accounts,
    (kept, current): &(AccountRecords, AccountRecords),
    name: &str,
) -> Option<String> {
    let GroupRecord::Agent { gid: Some(gid), .. } = kept.groups.get(name)? else { return None };
    if accounts.group(name).is_some() {
        let is_other = !current.is_group_made(name);
        return is_other.then(|| {
            format!(
                "the group has another gid or no mark of the agent, so somebody made it again: it stays; if nothing needs it, remove \
                 it (`groupdel {name}`)"
            )
        });
    }
    let other = accounts.group_name(*gid).filter(|other| !kept.groups.contains_key(*other))?;
    Some(format!(
        "this host has no group {name}, and {other} has its gid {gid}, so it was renamed: it stays with its members; if nothing needs \
         it, remove it (`groupdel {other}`)"
    ))
}
