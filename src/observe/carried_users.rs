//! The parts of accounts and groups that the booted image's own config brought, and that a plan can take back.
//!
//! # Decisions
//! 1. A password and an account count where the host has them as the image does; a password that the base had before is none of them.
//! 2. Keys are below `/var`, which an image brings to a new host alone: those of the config, word for word, are the image's.
//! 3. Comment, shell, groups and the password of a group go back to what the build recorded of the base. Without that record nobody
//!    knows what they were, and they stay.

use super::ObserveError;
use super::users::account;
use crate::host::account_records::{AccountRecords, UserOriginal};
use crate::host::accounts::Accounts;
use crate::host::image_accounts::ImageLines;
use crate::host::{Root, account_lines};
use crate::model::observation::{Maker, ObservedAccount};
use crate::model::users::{Account, Group, Users};
use crate::model::{Contents, HostSpec, ObservedFile, UserName};

/// Observes them.
pub(super) fn brought(root: &Root, config: &HostSpec) -> Result<Users, ObserveError> {
    let mut users = Users::default();
    if config.users == users {
        return Ok(users);
    }
    let failed = || ObserveError::wrap("the accounts");
    let accounts = Accounts::load(root).map_err(failed())?;
    let records = AccountRecords::load_current(root).map_err(failed())?;
    let image = ImageLines::load(root).map_err(failed())?;
    for (name, entry) in config.users.accounts.iter().filter(|(_, entry)| entry.should_exist) {
        let Some(user) = accounts.user(name.as_str()) else { continue };
        let found = account(root, &accounts, &records, name.as_str(), user)?;
        let original = records.original(name.as_str());
        users.accounts.extend(part(name, entry, &found, original, &image).map(|part| (name.clone(), part)));
    }
    for (name, entry) in config.users.groups.iter().filter(|(_, entry)| entry.should_exist) {
        let text = name.as_str();
        let is_of_image =
            accounts.group_entry(text).is_some_and(|group| group.is_local) && image.has_group(text);
        let is_primary = accounts.group(text).is_some_and(|gid| accounts.is_primary(gid));
        if is_of_image && records.is_group_made(text) && !is_primary {
            users.groups.insert(name.clone(), Group::default());
        } else if let (true, Some(original), Some(password)) =
            (is_of_image, records.group_original(text), &entry.password)
            && original.as_ref() != Some(password)
            && account_lines::group_password(root, text).map_err(failed())?.as_ref() == Some(password)
        {
            users.groups.insert(name.clone(), Group { password: Some(password.clone()), ..Group::default() });
        }
    }
    Ok(users)
}

fn part(
    name: &UserName,
    entry: &Account,
    found: &ObservedAccount,
    original: Option<&UserOriginal>,
    image: &ImageLines,
) -> Option<Account> {
    let is_made = found.maker == Maker::Agent && image.has_user(name.as_str());
    let password = entry.password.clone().filter(|hash| {
        !hash.is_locked()
            && found.password.as_ref() == Some(hash)
            && image.password(name.as_str()).as_ref() == Some(hash)
            && original.is_none_or(|original| original.password().as_ref() != Some(hash))
    });
    let text = Contents::new(entry.keys_text().into_bytes());
    let has_keys = !entry.keys.is_empty()
        && matches!(&found.keys, ObservedFile::Regular { sha256, .. } if *sha256 == text.sha256())
        && original.is_none_or(|original| original.keys.observed() != found.keys);
    let had = |group: &String| original.is_some_and(|original| original.groups.contains(group));
    let is_known = is_made || original.is_some();
    let groups = entry.groups.iter().filter(|group| is_known && found.groups.contains(*group) && !had(group));
    let changed = |desired: &Option<String>, found: &String, before: Option<&String>| {
        let is_brought = desired.as_ref() == Some(found) && before.is_some_and(|before| before != found);
        desired.clone().filter(|_| is_brought)
    };
    let part = Account {
        keys: if has_keys { entry.keys.clone() } else { Vec::new() },
        password,
        groups: groups.cloned().collect(),
        gecos: changed(&entry.gecos, &found.gecos, original.map(|original| &original.gecos)),
        shell: changed(&entry.shell, &found.shell, original.map(|original| &original.shell)),
        ..Account::default()
    };
    (is_made || part != Account::default()).then_some(part)
}
