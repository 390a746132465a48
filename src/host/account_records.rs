//! Record of the accounts and groups that the agent made, and of what the host's own were before.
//!
//! Invariant: an account is in the record before it is made, so that a kill in between leaves none that nobody knows.
//!
//! # Decisions
//! 1. A build leaves its record in the image: an account that a node has as its image brings it was made by the build, or changed from
//!    what the base had. What the host has otherwise is the host's.
//! 2. The mark says which account or group the agent made: one with another id is the same as long as it has its mark, and one whose
//!    record is lost is known by it. Without a place for a mark the id decides.
//! 3. An account of the host is the same as long as its uid is: nothing of another one is given back.
//! 4. What a config gave is never the host's original: a key is known by itself, whoever put it there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::HostError;
use super::accounts::{Accounts, GROUP_MARK, Marks};
use super::error::ACCOUNT_RECORDS;
use super::image_accounts::ImageLines;
use super::keys::{self, Moved};
use super::root::{LaidPath, Root};
use super::saved::{Bytes, PathSnapshot};

use crate::model::FileMode;
use crate::model::ids::IMAGE_ORIGINALS;
use crate::model::users::{PasswordHash, SshKey};
use crate::model::yaml::redacted;

/// The record's file.
pub const ACCOUNTS: &str = "/var/lib/machine-config-agent/accounts.json";

/// The name of the record in the directory of an image's originals.
pub const OF_IMAGE: &str = "accounts.json";

/// The version of the file's shape.
pub const SCHEMA: u32 = 1;

/// Accounts and groups of which the agent knows something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountRecords {
    schema_version: u32,
    /// By user.
    #[serde(default)]
    pub users: BTreeMap<String, UserRecord>,
    /// By group.
    #[serde(default)]
    pub groups: BTreeMap<String, GroupRecord>,
    /// Entries that were in the way of keys: the path that each was moved to, and the one before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moved: BTreeMap<String, String>,
    /// Keys that left a config and could not be removed, by user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unremoved: BTreeMap<String, Vec<Bytes>>,
    /// Keys files that the agent wrote, by home: an account may have another one by now, or be gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub written: BTreeMap<String, WrittenKeys>,
}

/// The keys of configs in a home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenKeys {
    /// The account that they were for.
    pub user: String,
    /// Its user id, which owns the file.
    pub uid: u32,
    /// The keys.
    pub keys: Vec<Bytes>,
    /// The file in a home that the account has no more, as it was before the keys: the original is that of the home of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PathSnapshot>,
}

/// The record of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "maker", rename_all = "kebab-case")]
pub enum UserRecord {
    /// The agent was about to make it.
    Begun,
    /// The agent made it.
    Agent {
        /// Its user id, which is its mark in `/etc/shadow`, too: an account that somebody made again under the name lacks the
        /// mark. Earlier agents left none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
    },
    /// The host has it; this is what it was before a config changed it.
    Host(UserOriginal),
}

/// An account of the host before a config changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserOriginal {
    /// Its user id: one with another id is another account. Earlier agents left none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The comment.
    pub gecos: String,
    /// The login shell.
    pub shell: String,
    /// The groups that it is a member of.
    pub groups: BTreeSet<String>,
    /// The password field.
    pub password: Option<Bytes>,
    /// The keys file.
    pub keys: PathSnapshot,
    /// The home that it is in. Earlier agents left none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Values that the agent set last: anything else is a person's newer value. Earlier agents left none.
    #[serde(default, skip_serializing_if = "SetParts::is_unset")]
    pub set: Box<SetParts>,
}

/// The parts of an account of the host that a config changed, as it set them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetParts {
    /// The comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gecos: Option<String>,
    /// The login shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The password field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Bytes>,
    /// By part, the batch that recorded it last: one that was cut off right before does so when it is repeated. Earlier agents left
    /// none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded_by: BTreeMap<String, String>,
}

/// The record of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "maker", rename_all = "kebab-case")]
pub enum GroupRecord {
    /// The agent was about to make it.
    Begun,
    /// The agent made it.
    Agent {
        /// Its group id: a group with another one is not the agent's. Earlier agents left none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gid: Option<u32>,
        /// The password fields that the agent gave it, in `/etc/gshadow`: a group that somebody made again under the name has another.
        /// Two while it is changed; none where there is no such line, and of earlier agents.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<Bytes>,
    },
    /// It is of the OS image; the agent copied it to `/etc/group`, where it can have members.
    Copied,
    /// The host has it; this is the password before a config changed it.
    Host {
        /// The password.
        password: Option<Bytes>,
    },
}

fn malformed(path: &str, cause: String) -> HostError {
    HostError::Malformed { path: path.to_owned(), format: ACCOUNT_RECORDS, cause }
}

fn of_image() -> String {
    format!("{IMAGE_ORIGINALS}/{OF_IMAGE}")
}

impl Default for AccountRecords {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            moved: BTreeMap::new(),
            unremoved: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }
}

impl AccountRecords {
    /// Reads the record; a missing one is empty.
    pub fn load(root: &Root) -> Result<Self, HostError> {
        Ok(Self::read(root, ACCOUNTS)?.unwrap_or_default())
    }

    fn read(root: &Root, path: &str) -> Result<Option<Self>, HostError> {
        let Some(bytes) = root.read(path)? else { return Ok(None) };
        let records: Self =
            serde_json::from_slice(&bytes).map_err(|error| malformed(path, redacted(&error.to_string())))?;
        if records.schema_version > SCHEMA {
            let schema = records.schema_version;
            return Err(malformed(path, format!("it has schema {schema}, this agent knows {SCHEMA}")));
        }
        Ok(Some(records))
    }

    /// Reads the record that a build left in the image whose root this is; `None` if there is none.
    pub fn load_of_image(root: &Root) -> Result<Option<Self>, HostError> {
        Self::read(root, &of_image())
    }

    /// Copies the record into the image whose root this is, without what was moved aside and labels of the builder.
    pub fn keep_in_image(root: &Root) -> Result<(), HostError> {
        let mut records = Self::load(root)?;
        if records.users.is_empty() && records.groups.is_empty() {
            return Ok(());
        }
        records.moved.clear();
        records.unremoved.clear();
        records.written.clear();
        for record in records.users.values_mut() {
            if let UserRecord::Host(original) = record {
                original.keys = original.keys.clone().without_label();
            }
        }
        root.create_dir(IMAGE_ORIGINALS, FileMode::PRIVATE_DIRECTORY)?;
        root.write_if_changed(&of_image(), &records.json()?, FileMode::PRIVATE)?;
        Ok(())
    }

    /// Adds what the build of the booted image recorded of accounts and groups that the host has as the image brings them.
    fn add_of_image(&mut self, root: &Root) -> Result<(), HostError> {
        let kept = match Self::load_of_image(root) {
            // Nobody can mend it on this host: the accounts are the host's own.
            Err(HostError::Malformed { .. }) => None,
            read => read?,
        };
        let Some(kept) = kept else { return Ok(()) };
        let lines = ImageLines::load(root)?;
        for (name, record) in kept.users {
            if lines.has_user(&name) {
                self.users.entry(name).or_insert(record);
            }
        }
        for (name, record) in kept.groups {
            if lines.has_group(&name) {
                self.groups.entry(name).or_insert(record);
            }
        }
        Ok(())
    }

    /// Reads the record with that of the booted image, and with the accounts and groups that have the agent's mark; without those that
    /// somebody has removed and made again since, which are the host's.
    pub fn load_current(root: &Root) -> Result<Self, HostError> {
        let mut records = Self::load(root)?;
        records.add_of_image(root)?;
        let accounts = Accounts::load(root)?;
        let marks = Marks::load(root)?;
        for (name, user) in accounts.users() {
            let is_other = match records.users.get(name) {
                Some(UserRecord::Agent { uid: Some(made) }) => match marks.user(name) {
                    None => user.uid != *made,
                    Some(mark) => mark != Some(*made),
                },
                Some(UserRecord::Host(original)) => original.uid.is_some_and(|uid| uid != user.uid),
                Some(UserRecord::Begun | UserRecord::Agent { uid: None }) => false,
                None => {
                    // The record was lost. The mark of a line that was copied is another account's, too.
                    let is_own = |mark: &u32| {
                        *mark == user.uid || (marks.is_alone(*mark) && accounts.user_name(*mark).is_none())
                    };
                    let mark = marks.user(name).flatten().filter(is_own);
                    if let Some(uid) = mark.filter(|_| user.is_local) {
                        records.set_user(name, Some(UserRecord::Agent { uid: Some(uid) }));
                    }
                    false
                }
            };
            if is_other {
                records.set_user(name, None);
            }
        }
        for (name, group) in accounts.groups() {
            let is_other = match records.groups.get(name) {
                Some(GroupRecord::Agent { gid: Some(made), marks: known }) => match marks.group(name) {
                    Some(mark) if !known.is_empty() => !known.iter().any(|known| known.as_slice() == mark),
                    Some(_) | None => *made != group.gid,
                },
                Some(
                    GroupRecord::Begun
                    | GroupRecord::Agent { gid: None, .. }
                    | GroupRecord::Copied
                    | GroupRecord::Host { .. },
                ) => false,
                None => {
                    let mark = marks.group(name).filter(|mark| *mark == GROUP_MARK.as_bytes());
                    if let Some(mark) = mark.filter(|_| group.is_local) {
                        let marks = vec![Bytes::new(mark)];
                        records.set_group(name, Some(GroupRecord::Agent { gid: Some(group.gid), marks }));
                    }
                    false
                }
            };
            if is_other {
                records.set_group(name, None);
            }
        }
        Ok(records)
    }

    /// Notes keys of an account that left a config and could not be removed.
    pub fn note_unremoved<'a>(&mut self, user: &str, keys: impl Iterator<Item = &'a SshKey>) {
        let noted = self.unremoved.entry(user.to_owned()).or_default();
        for key in keys.map(|key| Bytes::new(key.as_str().as_bytes())) {
            if !noted.contains(&key) {
                noted.push(key);
            }
        }
    }

    /// Notes keys that are about to be written into a home, beside those that the file may still have.
    pub fn note_written(&mut self, home: String, user: &str, uid: u32, keys: &[SshKey]) {
        let mut keys: Vec<Bytes> = keys.iter().map(|key| Bytes::new(key.as_str().as_bytes())).collect();
        let mut before = None;
        if let Some(written) = self.written.get(&home) {
            let more = written.keys.iter().filter(|key| !keys.contains(key)).cloned().collect::<Vec<_>>();
            keys.extend(more);
            before = written.before.clone().filter(|_| written.user == user);
        }
        self.written.insert(home, WrittenKeys { user: user.to_owned(), uid, keys, before });
    }

    /// Keeps the original of a keys file in a home beside the keys there, as the account has another home by now.
    pub fn keep_of_home(&mut self, home: &str, user: &str, keys: &PathSnapshot) {
        if let Some(written) = self.written.get_mut(home).filter(|written| written.user == user) {
            written.before.get_or_insert_with(|| keys.clone());
        }
    }

    /// Returns the original of a keys file in a home that an account had before.
    pub fn of_home(&self, home: &str, user: &str) -> Option<&PathSnapshot> {
        self.written.get(home).filter(|written| written.user == user)?.before.as_ref()
    }

    /// Returns the homes with keys of configs that are not those of their accounts any more, nor of one of those whose keys files are
    /// of a config.
    pub fn stray_homes(
        &self,
        root: &Root,
        accounts: &Accounts,
        keyed: &BTreeSet<&str>,
    ) -> Result<Vec<(&String, &WrittenKeys)>, HostError> {
        let mut used = BTreeSet::new();
        for user in keyed.iter().filter_map(|name| accounts.user(name)) {
            used.insert(keys::real_home(root, &user.home)?);
        }
        let mut stray = Vec::new();
        for (home, written) in &self.written {
            let now = accounts.user(&written.user).map(|user| keys::real_home(root, &user.home));
            let real = keys::real_home(root, home)?;
            if now.transpose()?.as_ref() != Some(&real) && !used.contains(&real) {
                stray.push((home, written));
            }
        }
        Ok(stray)
    }

    /// Returns the keys of configs that the keys files of an account may have: those that could not be removed, and those written.
    pub fn given_keys(&self, user: &str) -> Vec<SshKey> {
        let written = self.written.values().filter(|written| written.user == user);
        self.unremoved_keys(user).into_iter().chain(written.flat_map(WrittenKeys::keys)).collect()
    }

    /// Returns true if keys were written for an account, and none into the home that it has now.
    pub fn is_written_elsewhere(&self, root: &Root, user: &str, home: &str) -> Result<bool, HostError> {
        let is_here = self.written.get(&keys::real_home(root, home)?).is_some_and(|one| one.user == user);
        Ok(!is_here && self.written.values().any(|written| written.user == user))
    }

    /// Returns the keys of an account that left a config and could not be removed when it did.
    pub fn unremoved_keys(&self, user: &str) -> Vec<SshKey> {
        let noted = self.unremoved.get(user).into_iter().flatten();
        noted.filter_map(|key| SshKey::new(key.to_text())).collect()
    }

    /// Notes what was moved aside, and forgets what is not there any more.
    pub fn note_moved(root: &Root, moved: &[Moved]) -> Result<(), HostError> {
        if moved.is_empty() {
            return Ok(());
        }
        let mut records = Self::load(root)?;
        records.moved = records.still_moved(root);
        records.moved.extend(moved.iter().map(|one| (one.aside.clone(), one.path.clone())));
        records.save(root)
    }

    /// Returns what was moved aside and is still there.
    pub fn still_moved(&self, root: &Root) -> BTreeMap<String, String> {
        let is_there = |aside: &str| matches!(root.dress_of(aside), Ok(Some(_)));
        let moved = self.moved.iter().filter(|(aside, _)| is_there(aside));
        moved.map(|(aside, path)| (aside.clone(), path.clone())).collect()
    }

    /// Writes the record, durably; an equal one is not written.
    pub fn save(&self, root: &Root) -> Result<(), HostError> {
        if Self::load(root)? == *self {
            return Ok(());
        }
        root.replace(ACCOUNTS, &self.json()?, FileMode::PRIVATE)
    }

    /// Returns the file as it is once the record is saved.
    pub(in crate::host) fn laid(&self) -> Result<LaidPath, HostError> {
        Ok(LaidPath::File { bytes: self.json()?, mode: FileMode::PRIVATE.bits(), uid: 0, gid: 0 })
    }

    fn json(&self) -> Result<Vec<u8>, HostError> {
        serde_json::to_vec(self).map_err(|error| malformed(ACCOUNTS, redacted(&error.to_string())))
    }

    /// Returns true if something was begun and not ended.
    pub fn has_begun(&self) -> bool {
        self.users.values().any(|record| *record == UserRecord::Begun)
            || self.groups.values().any(|record| *record == GroupRecord::Begun)
    }

    /// Returns true if the agent made a user.
    pub fn is_made(&self, user: &str) -> bool {
        matches!(self.users.get(user), Some(UserRecord::Begun | UserRecord::Agent { .. }))
    }

    /// Returns true if a config has changed an account, or the agent made it.
    pub fn knows(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// Returns true if the agent made a group.
    pub fn is_group_made(&self, group: &str) -> bool {
        matches!(self.groups.get(group), Some(GroupRecord::Begun | GroupRecord::Agent { .. }))
    }

    /// Returns true if the agent copied a group of the image.
    pub fn is_group_copied(&self, group: &str) -> bool {
        self.groups.get(group) == Some(&GroupRecord::Copied)
    }

    /// Returns what a user of the host was before.
    pub fn original(&self, user: &str) -> Option<&UserOriginal> {
        match self.users.get(user) {
            Some(UserRecord::Host(original)) => Some(original),
            Some(UserRecord::Begun | UserRecord::Agent { .. }) | None => None,
        }
    }

    /// Returns the password of a group of the host before; `None` if nothing is known.
    pub fn group_original(&self, group: &str) -> Option<Option<PasswordHash>> {
        match self.groups.get(group) {
            Some(GroupRecord::Host { password }) => {
                Some(password.as_ref().and_then(|bytes| PasswordHash::new(bytes.to_text())))
            }
            Some(GroupRecord::Begun | GroupRecord::Agent { .. } | GroupRecord::Copied) | None => None,
        }
    }

    /// Sets what is known of a user.
    pub fn set_user(&mut self, user: &str, record: Option<UserRecord>) {
        match record {
            Some(record) => drop(self.users.insert(user.to_owned(), record)),
            None => drop(self.users.remove(user)),
        }
    }

    /// Sets what is known of a group.
    pub fn set_group(&mut self, group: &str, record: Option<GroupRecord>) {
        match record {
            Some(record) => drop(self.groups.insert(group.to_owned(), record)),
            None => drop(self.groups.remove(group)),
        }
    }
}

impl WrittenKeys {
    /// Returns the keys.
    pub fn keys(&self) -> Vec<SshKey> {
        self.keys.iter().filter_map(|key| SshKey::new(key.to_text())).collect()
    }
}

impl SetParts {
    fn is_unset(set: &Self) -> bool {
        *set == Self::default()
    }

    /// Returns the password field.
    pub fn password(&self) -> Option<PasswordHash> {
        self.password.as_ref().and_then(|bytes| PasswordHash::new(bytes.to_text()))
    }
}

impl UserOriginal {
    /// Returns the password field.
    pub fn password(&self) -> Option<PasswordHash> {
        self.password.as_ref().and_then(|bytes| PasswordHash::new(bytes.to_text()))
    }
}
