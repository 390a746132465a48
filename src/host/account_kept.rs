//! Changes of accounts by persons since an update: the undo leaves them, and opens no account that one has locked.

use std::collections::{BTreeMap, BTreeSet};

use super::account_layout::line_of;
use super::account_records::AccountRecords;
use super::{HostError, Root, accounts};
use crate::model::users::{Account, CORE, PasswordHash, Users};

const PASSWORD: usize = 1;
const LAST_CHANGE: usize = 2;
const GECOS: usize = 4;
const SHELL: usize = 6;
const EXPIRY: usize = 7;
/// Fields of `/etc/passwd` that no update changes of an account that exists: its group, and its home.
const OF_PERSONS: [usize; 2] = [3, 5];
/// Those of `/etc/shadow`: how long a password may be used.
const OF_PERSONS_SHADOW: [usize; 4] = [3, 4, 5, 6];

/// The config of the update, and what is on record of it.
#[derive(Debug, Clone, Copy)]
pub struct Undone<'a> {
    /// The accounts of the config that the update came from.
    pub before: &'a Users,
    /// Those of the config that it was to set.
    pub users: &'a Users,
    /// The record of the values that it has set, and of those before.
    pub records: &'a AccountRecords,
}

/// A database whose lines have another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Database {
    Passwd,
    Shadow,
}

impl Undone<'_> {
    fn entry(&self, name: &str) -> Option<&Account> {
        let entry = self.users.accounts.iter().find(|(user, _)| user.as_str() == name);
        entry.map(|(_, account)| account).filter(|account| account.should_exist)
    }

    /// Returns the fields of a line that stay as they are now, although the saved line has others.
    pub(in crate::host) fn kept(
        &self,
        database: Database,
        name: &str,
        (now, saved): (&[u8], &[u8]),
    ) -> BTreeMap<usize, Vec<u8>> {
        let (Some(now), Some(saved)) = (line_of(now, name), line_of(saved, name)) else {
            return BTreeMap::new();
        };
        let fields = |line| -> Vec<&[u8]> { <[u8]>::split(line, |byte| *byte == b':').collect() };
        let (now, saved): (Vec<&[u8]>, Vec<&[u8]>) = (fields(now), fields(saved));
        let is_other_account = database == Database::Passwd && now.get(2) != saved.get(2);
        if now.len() != saved.len() || is_other_account {
            return BTreeMap::new();
        }
        let mut kept = BTreeMap::new();
        for (place, (now, saved)) in
            now.iter().zip(&saved).enumerate().filter(|(_, (now, saved))| now != saved)
        {
            let text = String::from_utf8_lossy(now);
            let value = match (database, place) {
                (Database::Shadow, PASSWORD) => {
                    self.password(name, &text, &String::from_utf8_lossy(saved)).map(String::into_bytes)
                }
                (Database::Shadow, EXPIRY) => self.is_expiry_of_person(name, &text).then(|| now.to_vec()),
                (Database::Shadow, place) => OF_PERSONS_SHADOW.contains(&place).then(|| now.to_vec()),
                (Database::Passwd, place) => {
                    let is_kept = OF_PERSONS.contains(&place) || self.is_part_of_person(name, place, &text);
                    is_kept.then(|| now.to_vec())
                }
            };
            kept.extend(value.map(|value| (place, value)));
        }
        if database == Database::Shadow && kept.contains_key(&PASSWORD) {
            kept.extend(now.get(LAST_CHANGE).map(|now| (LAST_CHANGE, now.to_vec())));
        }
        kept
    }

    /// Returns true if a comment or a shell is none that the update has set.
    fn is_part_of_person(&self, name: &str, place: usize, now: &str) -> bool {
        let (entry, original) = (self.entry(name), self.records.original(name));
        let (new, set, before) = match place {
            GECOS => (
                entry.and_then(|entry| entry.gecos.as_deref()),
                original.and_then(|original| original.set.gecos.as_deref()),
                original.map(|original| original.gecos.as_str()),
            ),
            SHELL => (
                entry.and_then(|entry| entry.shell.as_deref()),
                original.and_then(|original| original.set.shell.as_deref()),
                original.map(|original| original.shell.as_str()),
            ),
            _ => return false,
        };
        // One of the agent's own gets what useradd gives.
        if new.is_none() && self.records.is_made(name) {
            return false;
        }
        ![new, set, before].contains(&Some(now))
    }

    /// Returns true if the update has not set that an account has expired, or that it has not.
    fn is_expiry_of_person(&self, name: &str, now: &str) -> bool {
        let set = if self.entry(name).is_some() { "" } else { "1" };
        !self.records.is_made(name) || now != set
    }

    /// Returns the password that stays where the saved one would come back: a person's newer one, or the saved one behind his lock.
    fn password(&self, name: &str, now: &str, saved: &str) -> Option<String> {
        let (now, saved) = (PasswordHash::new(now.to_owned())?, PasswordHash::new(saved.to_owned())?);
        self.kept_password(name, &now, &saved).map(|kept| kept.as_str().to_owned())
    }

    /// As above.
    pub fn kept_password(
        &self,
        name: &str,
        now: &PasswordHash,
        saved: &PasswordHash,
    ) -> Option<PasswordHash> {
        let set = self.set_passwords(name);
        let is_known = |hash: &PasswordHash| hash == saved || set.contains(hash.as_str());
        match now.behind_lock() {
            Some(hash) if is_known(&hash) => (!saved.is_locked()).then(|| saved.kept_locked()),
            _ if is_known(now) => None,
            None if now.is_locked() => (!saved.is_locked()).then(|| saved.kept_locked()),
            Some(_) | None => Some(now.clone()),
        }
    }

    /// Returns the password fields that the update may have set.
    fn set_passwords(&self, name: &str) -> BTreeSet<String> {
        let (entry, locked) = (self.entry(name), PasswordHash::locked());
        if let Some(new) = entry.and_then(|entry| entry.password.as_ref()) {
            return BTreeSet::from([new.as_str().to_owned()]);
        }
        let is_own = self.records.is_made(name) || name == CORE;
        let Some(original) = self.records.original(name).filter(|_| !is_own) else {
            return if is_own { BTreeSet::from([locked.as_str().to_owned()]) } else { BTreeSet::new() };
        };
        // The config of an image may have given another one: only what was before is known then.
        let before = original.password().unwrap_or(locked);
        original.set.password().into_iter().chain([before]).map(|hash| hash.as_str().to_owned()).collect()
    }
}

/// Names the fields that stay, for a log line.
pub(in crate::host) fn words(database: Database, kept: &BTreeMap<usize, Vec<u8>>) -> BTreeSet<&'static str> {
    let word = |place: &usize| match (database, *place) {
        (Database::Passwd, GECOS) => "comment",
        (Database::Passwd, SHELL) => "shell",
        (Database::Passwd, 3) => "group",
        (Database::Passwd, _) => "home",
        (Database::Shadow, PASSWORD | LAST_CHANGE) => "password",
        (Database::Shadow, EXPIRY) => "expiry",
        (Database::Shadow, _) => "age of the password",
    };
    kept.keys().map(word).collect()
}

/// Returns the password that `core` has after the undo, and whether it is a person's.
pub fn password_of_core(
    root: &Root,
    users: &Users,
    saved: &PasswordHash,
) -> Result<(PasswordHash, bool), HostError> {
    let records = AccountRecords::load(root)?;
    let now = accounts::password(root, CORE)?;
    let kept = now
        .and_then(|now| Undone { before: users, users, records: &records }.kept_password(CORE, &now, saved));
    Ok(kept.map_or_else(|| (saved.clone(), false), |kept| (kept, true)))
}
