//! Removal of keys of configs from homes that accounts had before, and of accounts that were removed.

use std::collections::BTreeSet;

use super::run_steps::left_as_it_is;
use crate::host::account_records::AccountRecords;
use crate::host::accounts::Accounts;
use crate::host::durable::{self, Attempt, Change};
use crate::host::saved::PathSnapshot;
use crate::host::{Host, HostError, Root, keys};
use crate::journal::Intent;
use crate::model::UserName;
use crate::model::users::{SshKey, keys_in};

/// A keys file without the keys of configs.
pub(super) struct StrayFile {
    home: String,
    user: String,
    keys: Vec<SshKey>,
    uid: u32,
    /// The file as it is to be; `None` if it can't be changed.
    left: Option<PathSnapshot>,
    attributes: Vec<(String, Vec<u8>)>,
}

impl StrayFile {
    /// Returns the change of the file.
    pub(super) fn change(&self) -> Option<Change<'_>> {
        let path = keys::path_in(&self.home);
        Some(self.left.as_ref()?.put_back(&path, self.uid, &self.attributes).of_owner())
    }
}

/// Returns the files of these accounts. Other lines stay; where there are none, what the host had before the config comes back.
pub(super) fn of(
    intent: &Intent<'_>,
    host: &Host,
    accounts: &Accounts,
    names: &BTreeSet<&UserName>,
) -> Result<Vec<StrayFile>, HostError> {
    let (root, records) = (&host.root, AccountRecords::load_current(&host.root)?);
    let specs = [intent.from(), intent.to()];
    let keyed: BTreeSet<&str> = specs.iter().flat_map(|spec| spec.users.keyed()).collect();
    let mut found = Vec::new();
    for (home, written) in records.stray_homes(root, accounts, &keyed)? {
        if !names.iter().any(|name| name.as_str() == written.user) {
            continue;
        }
        let (uid, left) = match keys::read_left(root, home, written.uid) {
            Err(error) if error.is_of_names() => {
                left_as_it_is(intent, &keys::path_in(home), &error);
                (written.uid, None)
            }
            read => {
                let (now, uid) = read?;
                let without = now.clone().without_keys(written.keys().iter());
                let before = || {
                    let original =
                        records.original(&written.user).filter(|one| one.home.as_ref() == Some(home));
                    let kept = written.before.as_ref().or(original.map(|one| &one.keys));
                    kept.map(|keys| keys.clone().without_keys(written.keys().iter()))
                };
                let is_emptied = without == PathSnapshot::Absent && now != PathSnapshot::Absent;
                (uid, Some(if is_emptied { before().unwrap_or(without) } else { without }))
            }
        };
        let attributes = left.as_ref().map(PathSnapshot::attributes).unwrap_or_default();
        let (home, user, keys) = (home.clone(), written.user.clone(), written.keys());
        found.push(StrayFile { home, user, keys, uid, left, attributes });
    }
    Ok(found)
}

/// Changes the files, one by one: what keeps one from it holds no update. What is done is no longer on record; what is not is on record as
/// keys that could not be removed, wherever the account has its home next.
pub(super) fn apply(
    intent: &Intent<'_>,
    host: &Host,
    files: &[StrayFile],
    run: Attempt,
) -> Result<(), HostError> {
    if files.is_empty() {
        return Ok(());
    }
    let mut done = Vec::new();
    for file in files {
        let Some(change) = file.change() else { continue };
        match durable::apply_changes(&host.root, std::slice::from_ref(&change), run, &host.fail_points) {
            Err(error) if error.is_of_names() || error.is_closed() => {
                left_as_it_is(intent, change.path(), &error);
            }
            changed => {
                changed?;
                done.push(&file.home);
            }
        }
    }
    let (mut records, accounts) = (AccountRecords::load_current(&host.root)?, Accounts::load(&host.root)?);
    records.written.retain(|home, _| !done.contains(&home));
    for file in files {
        if !done.contains(&&file.home) {
            records.note_unremoved(&file.user, file.keys.iter());
        } else if !records.written.values().any(|written| written.user == file.user)
            && has_none(&host.root, &accounts, file)?
        {
            records.unremoved.remove(&file.user);
        }
    }
    records.save(&host.root)
}

/// Returns true if the keys file that the account has now is without these keys.
fn has_none(root: &Root, accounts: &Accounts, file: &StrayFile) -> Result<bool, HostError> {
    let Some(user) = accounts.user(&file.user) else { return Ok(true) };
    Ok(keys::read(root, user)?.is_some_and(|text| keys_in(&text, file.keys.iter()).is_empty()))
}
