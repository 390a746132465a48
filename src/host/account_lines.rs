//! The lines of accounts and groups in the databases below `/etc`: saved before a change, and put back exactly.
//!
//! Other lines are never touched: an administrator may have added an account meanwhile. All changes are made under the
//! lock of lckpwdf(3).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::HostError;
use super::account_kept::{self, Database, Undone};
use super::account_layout::{self, Layout, has_member, is_of, line_of, with_line, with_member};
use super::account_records::{ACCOUNTS, AccountRecords, GroupRecord, UserRecord, WrittenKeys};
use super::accounts::{self, Accounts, GROUP_MARK, MARK, lock};
use super::durable::{self, Attempt, Change, DesiredPath};
use super::failpoint::FailPoints;
use super::group_kept::{self, Changed};
use super::root::{LaidPath, Root};
use super::saved::{Bytes, PathSnapshot};
use crate::model::users::{PasswordHash, Users};

const PASSWD: &str = "/etc/passwd";
const SHADOW: &str = "/etc/shadow";
pub(in crate::host) const GROUP: &str = "/etc/group";
const GSHADOW: &str = "/etc/gshadow";
/// Databases with lines of a user.
const OF_USERS: [&str; 4] = [PASSWD, SHADOW, "/etc/subuid", "/etc/subgid"];
/// Databases with lines of a group; the last field has its members.
const OF_GROUPS: [&str; 2] = [GROUP, GSHADOW];
/// The field of the password, in all of them.
const PASSWORD: usize = 1;

/// The field of `/etc/shadow` with the day of the expiry.
const EXPIRY: usize = 7;
/// The day after the epoch, as `chage --expiredate 1` sets it.
const EXPIRED: &[u8] = b"1";

/// Accounts and groups as they were.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AccountLines {
    users: BTreeMap<String, UserLines>,
    groups: BTreeMap<String, GroupLines>,
    /// By database, the places of these lines and of those of the groups that the users are or become members of. Earlier agents
    /// wrote none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    layouts: BTreeMap<String, Layout>,
    /// Keys that were on record as not removed: they are so again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unremoved: BTreeMap<String, Vec<Bytes>>,
    /// The keys files that the agent had written. Earlier agents kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<BTreeMap<String, WrittenKeys>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct UserLines {
    /// By database; a user that is in none has none.
    lines: BTreeMap<String, Bytes>,
    /// By database of groups, the groups that list it.
    member_of: BTreeMap<String, BTreeSet<String>>,
    /// The home that is made with the account: it was not there.
    home: Option<String>,
    record: Option<UserRecord>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct GroupLines {
    lines: BTreeMap<String, Bytes>,
    record: Option<GroupRecord>,
}

/// The saved part of a user: its home, where that is made.
#[derive(Debug, Clone, Default)]
pub struct SavedUser {
    /// Its name.
    pub name: String,
    /// The home that the change makes.
    pub home: Option<String>,
    /// Groups that the change makes it join or leave.
    pub groups: BTreeSet<String>,
}

impl AccountLines {
    /// Reads the lines of users and groups.
    pub fn read(
        root: &Root,
        users: &[SavedUser],
        groups: &BTreeSet<String>,
        records: &AccountRecords,
    ) -> Result<Self, HostError> {
        let (of_users, of_groups) = (load(root, &OF_USERS)?, load(root, &OF_GROUPS)?);
        let mut saved = Self {
            unremoved: records.unremoved.clone(),
            written: Some(records.written.clone()),
            ..Self::default()
        };
        for user in users {
            let name = &user.name;
            let member_of =
                of_groups.iter().map(|(path, bytes)| (path.to_string(), memberships(bytes, name)));
            let home = match &user.home {
                Some(home) if !root.exists(home)? => Some(home.clone()),
                Some(_) | None => None,
            };
            let lines = UserLines {
                lines: own_lines(&of_users, name),
                member_of: member_of.collect(),
                home,
                record: records.users.get(name).cloned(),
            };
            saved.users.insert(name.clone(), lines);
        }
        for name in groups {
            let record = records.groups.get(name).cloned();
            saved.groups.insert(name.clone(), GroupLines { lines: own_lines(&of_groups, name), record });
        }
        for (path, bytes) in &of_users {
            let layout = Layout::read(bytes, users.iter().map(|user| user.name.as_str()));
            saved.layouts.insert(path.to_string(), layout);
        }
        for (path, bytes) in &of_groups {
            let mut names = groups.clone();
            names.extend(users.iter().flat_map(|user| user.groups.clone()));
            names.extend(users.iter().flat_map(|user| memberships(bytes, &user.name)));
            // Those that shadow-utils has split it joins at each change, whichever group that is about.
            names.extend(repeated(bytes));
            saved.layouts.insert(path.to_string(), Layout::read(bytes, names.iter().map(String::as_str)));
        }
        Ok(saved)
    }

    /// Returns the keys file that an account had before a config changed it.
    pub(in crate::host) fn original_keys(&self, name: &str) -> Option<PathSnapshot> {
        match &self.users.get(name)?.record {
            Some(UserRecord::Host(original)) => Some(original.keys.clone()),
            Some(UserRecord::Begun | UserRecord::Agent { .. }) | None => None,
        }
    }

    /// Returns true if there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.unremoved.is_empty() && self.written.is_none()
    }

    /// Puts everything back but what persons have changed since the update, the records last. It may be repeated. Returns the accounts
    /// and groups (`account core`, `group wheel`) with the names of their parts that stay.
    pub fn put_back(
        &self,
        root: &Root,
        (before, users): (&Users, &Users),
        fail_points: &FailPoints,
    ) -> Result<Vec<(String, BTreeSet<&'static str>)>, HostError> {
        let mut records = AccountRecords::load(root)?;
        for (name, user) in &self.users {
            user.remove_home(root, name, &records)?;
        }
        let undone = Undone { before, users, records: &records };
        let kept = self.kept_parts(root, undone)?;
        edit(root, Attempt::Again, fail_points, &|path, bytes| self.edited(path, bytes, undone))?;
        self.set_records(&mut records);
        records.save(root)?;
        Ok(kept)
    }

    /// Returns the accounts and groups with the names of their parts that stay when everything is put back.
    pub fn kept(
        &self,
        root: &Root,
        (before, users): (&Users, &Users),
    ) -> Result<Vec<(String, BTreeSet<&'static str>)>, HostError> {
        let records = AccountRecords::load(root)?;
        self.kept_parts(root, Undone { before, users, records: &records })
    }

    /// Returns the accounts and groups with the names of their parts that a person has changed since.
    fn kept_parts(
        &self,
        root: &Root,
        undone: Undone<'_>,
    ) -> Result<Vec<(String, BTreeSet<&'static str>)>, HostError> {
        let mut kept = Vec::new();
        let databases = load(root, &[PASSWD, SHADOW])?;
        for name in self.users.keys() {
            let mut parts = BTreeSet::new();
            for (path, bytes) in &databases {
                let Some(database) = database(path) else { continue };
                let saved = self.saved(path, bytes);
                parts.extend(account_kept::words(database, &undone.kept(database, name, (bytes, &saved))));
            }
            if !parts.is_empty() {
                kept.push((format!("account {name}"), parts));
            }
        }
        let mut of_groups = BTreeMap::<String, BTreeSet<&'static str>>::new();
        for (path, bytes) in load(root, &OF_GROUPS)? {
            for (name, parts) in self.kept_groups(path, &bytes, undone).1 {
                of_groups.entry(name).or_default().extend(parts);
            }
        }
        kept.extend(of_groups.into_iter().map(|(name, parts)| (format!("group {name}"), parts)));
        Ok(kept)
    }

    /// Returns the paths that are changed when everything is put back, as they will be.
    pub fn laid(
        &self,
        root: &Root,
        (before, users): (&Users, &Users),
    ) -> Result<Vec<(String, LaidPath)>, HostError> {
        let mut records = AccountRecords::load(root)?;
        let homes = self.users.iter().filter_map(|(name, user)| user.own_home(name, &records));
        let mut laid: Vec<_> = homes.map(|home| (home.to_owned(), LaidPath::Absent)).collect();
        let all: Vec<&'static str> = OF_USERS.into_iter().chain(OF_GROUPS).collect();
        for (path, bytes) in load(root, &all)? {
            let after = self.edited(path, &bytes, Undone { before, users, records: &records });
            if let Some((mode, uid, gid)) = root.dress_of(path)?.filter(|_| after != bytes) {
                laid.push((path.to_owned(), LaidPath::File { bytes: after, mode, uid, gid }));
            }
        }
        self.set_records(&mut records);
        laid.push((ACCOUNTS.to_owned(), records.laid()?));
        Ok(laid)
    }

    /// Returns a database with everything put back but what persons have changed since.
    fn edited(&self, path: &str, bytes: &[u8], undone: Undone<'_>) -> Vec<u8> {
        if OF_GROUPS.contains(&path) {
            return self.kept_groups(path, bytes, undone).0;
        }
        let mut after = self.saved(path, bytes);
        let Some(database) = database(path) else { return after };
        for name in self.users.keys() {
            for (place, value) in undone.kept(database, name, (bytes, &after)) {
                after = with_first_field(&after, name, place, &value);
            }
        }
        after
    }

    /// The same of a database of groups, with the parts of each that stay.
    fn kept_groups(
        &self,
        path: &str,
        bytes: &[u8],
        undone: Undone<'_>,
    ) -> (Vec<u8>, BTreeMap<String, BTreeSet<&'static str>>) {
        let groups = self.groups.keys().map(String::as_str).collect();
        let users = self.users.iter().map(|(name, user)| (name.as_str(), !user.lines.contains_key(PASSWD)));
        let changed = Changed { path, groups: &groups, users: &users.collect() };
        group_kept::with_kept(undone, changed, (bytes, self.saved(path, bytes)))
    }

    /// Returns a database with everything as it was saved.
    fn saved(&self, path: &str, bytes: &[u8]) -> Vec<u8> {
        let Some(layout) = self.layouts.get(path) else { return self.edited_by_name(path, bytes) };
        let is_of_users = OF_USERS.contains(&path);
        let is_whole = |name: &str| is_of_users || self.groups.contains_key(name);
        let users = self.users.keys().map(String::as_str).collect();
        let mut bytes = layout.put_back(bytes, &is_whole, &users);
        // useradd may put a new account into groups that no config names.
        let made = self.users.iter().filter(|(_, user)| !is_of_users && !user.lines.contains_key(PASSWD));
        for (name, user) in made {
            bytes = user.with_memberships(path, &bytes, name);
        }
        bytes
    }

    /// The same of originals without places.
    fn edited_by_name(&self, path: &str, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if OF_USERS.contains(&path) {
            for (name, user) in &self.users {
                bytes = with_line(&bytes, name, user.lines.get(path).map(Bytes::as_slice));
            }
            return bytes;
        }
        for (name, group) in &self.groups {
            bytes = with_line(&bytes, name, group.lines.get(path).map(Bytes::as_slice));
        }
        for (name, user) in &self.users {
            bytes = user.with_memberships(path, &bytes, name);
        }
        bytes
    }

    fn set_records(&self, records: &mut AccountRecords) {
        for (name, user) in &self.users {
            records.set_user(name, user.record.clone());
        }
        for (name, group) in &self.groups {
            records.set_group(name, group.record.clone());
        }
        records.unremoved.extend(self.unremoved.clone());
        if let Some(written) = &self.written {
            records.written.clone_from(written);
        }
    }
}

impl UserLines {
    /// Returns a database of groups with the user in those groups that listed it.
    fn with_memberships(&self, path: &str, bytes: &[u8], name: &str) -> Vec<u8> {
        let groups = self.member_of.get(path).cloned().unwrap_or_default();
        with_members(bytes, name, &|group| groups.contains(group))
    }

    /// Removes the home that was made with an account which was not there before.
    fn remove_home(&self, root: &Root, name: &str, records: &AccountRecords) -> Result<(), HostError> {
        match self.own_home(name, records).map(|home| (home, root.remove_tree(home))) {
            Some((home, Err(error))) if error.is_of_names() => {
                tracing::warn!("The home {home} of the account {name} stays: {error}");
                Ok(())
            }
            Some((_, done)) => done,
            None => Ok(()),
        }
    }

    /// Returns the home that was made with an account which was not there before.
    fn own_home(&self, name: &str, records: &AccountRecords) -> Option<&str> {
        let is_ours = self.record.is_none() && records.is_made(name) && self.lines.is_empty();
        self.home.as_deref().filter(|_| is_ours)
    }
}

fn database(path: &str) -> Option<Database> {
    match path {
        PASSWD => Some(Database::Passwd),
        SHADOW => Some(Database::Shadow),
        _ => None,
    }
}

/// Returns true if an account has expired as [`lock_account`] leaves it.
pub fn is_expired(root: &Root, user: &str) -> Result<bool, HostError> {
    let shadow = root.read(SHADOW)?.unwrap_or_default();
    Ok(field(&shadow, user, EXPIRY) == Some(EXPIRED))
}

/// Returns the line of a group, without its end, with the members of all its lines.
pub(in crate::host) fn whole_line(bytes: &[u8], group: &str) -> Option<Vec<u8>> {
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| is_of(line, group));
    let mut whole = lines.next()?.to_vec();
    for line in lines {
        for member in account_layout::members(line) {
            whole = with_member(&whole, &String::from_utf8_lossy(member), true);
        }
    }
    Some(whole)
}

/// Returns a field of the line of a name.
fn field<'a>(bytes: &'a [u8], name: &str, place: usize) -> Option<&'a [u8]> {
    let line = line_of(bytes, name)?;
    line.split(|byte| *byte == b':').nth(place)
}

/// Returns the password of a group: that of `/etc/gshadow`, where it has a line there.
pub fn group_password(root: &Root, group: &str) -> Result<Option<PasswordHash>, HostError> {
    Ok(group_field(root, group)?
        .filter(|text| !["", "x", "!", "*", GROUP_MARK].contains(&text.as_str()))
        .and_then(PasswordHash::new))
}

/// Returns the password field of a group, whatever it means: that of `/etc/gshadow`, where it has a line there.
pub fn group_field(root: &Root, group: &str) -> Result<Option<String>, HostError> {
    let databases = load(root, &[GSHADOW, GROUP])?;
    let found = databases.iter().find_map(|(_, bytes)| field(bytes, group, PASSWORD));
    Ok(found.map(|found| String::from_utf8_lossy(found).into_owned()))
}

/// Gives a group that the agent made its password, or [`GROUP_MARK`] for none, and records it as the group's mark: before, beside the
/// one that it has, and afterwards alone. A group without a line in `/etc/gshadow` has no mark.
pub fn set_marked_password(
    root: &Root,
    group: &str,
    password: Option<&PasswordHash>,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    let Some(found) = accounts::group_mark(root, group)? else {
        // One without a password stays as groupadd wrote it.
        let is_right = password.is_none() && group_password(root, group)?.is_none();
        return if is_right { Ok(()) } else { set_group_password(root, group, password, run, fail_points) };
    };
    let mark = password.map_or(GROUP_MARK, PasswordHash::as_str);
    let record = |marks: Vec<Bytes>| {
        let mut records = AccountRecords::load(root)?;
        let gid = Accounts::load(root)?.group(group);
        records.set_group(group, Some(GroupRecord::Agent { gid, marks }));
        records.save(root)
    };
    if found != mark.as_bytes() {
        record(vec![Bytes::new(&found), Bytes::new(mark.as_bytes())])?;
        fail_points.hit("group-marks");
    }
    write_password(root, (GSHADOW, group, mark), run, fail_points)?;
    record(vec![Bytes::new(mark.as_bytes())])
}

/// Sets the password of a group, `!` for none.
pub fn set_group_password(
    root: &Root,
    group: &str,
    password: Option<&PasswordHash>,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    let shadowed = root.read(GSHADOW)?.is_some_and(|bytes| field(&bytes, group, PASSWORD).is_some());
    let database = if shadowed { GSHADOW } else { GROUP };
    let hash = password.map_or("!", PasswordHash::as_str);
    write_password(root, (database, group, hash), run, fail_points)
}

/// Writes the password of a line of one database.
fn write_password(
    root: &Root,
    (database, name, password): (&str, &str, &str),
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    edit(root, run, fail_points, &|path, bytes| {
        if path == database {
            with_first_field(bytes, name, PASSWORD, password.as_bytes())
        } else {
            bytes.to_vec()
        }
    })
}

/// Locks an account: no password opens it, and it has expired, which keeps sshd from taking any key.
pub fn lock_account(
    root: &Root,
    user: &str,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    edit(root, run, fail_points, &|path, bytes| {
        if path != SHADOW {
            return bytes.to_vec();
        }
        let locked = PasswordHash::locked();
        let bytes = with_field(bytes, user, PASSWORD, locked.as_str().as_bytes());
        with_field(&bytes, user, EXPIRY, EXPIRED)
    })
}

/// Marks an account as the agent's, by its id in the last field of its line in `/etc/shadow`.
pub fn set_mark(root: &Root, user: &str, uid: u32, fail_points: &FailPoints) -> Result<(), HostError> {
    edit(root, Attempt::First, fail_points, &|path, bytes| {
        if path == SHADOW {
            with_field(bytes, user, MARK, uid.to_string().as_bytes())
        } else {
            bytes.to_vec()
        }
    })
}

/// Ends the membership of an account in groups, and the expiry of an own one that [`lock_account`] has locked. One of the host that has
/// expired was locked by an administrator.
pub fn release(
    root: &Root,
    user: &str,
    is_own: bool,
    leaves: &BTreeSet<String>,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    edit(root, run, fail_points, &|path, bytes| {
        if is_own && path == SHADOW && field(bytes, user, EXPIRY) == Some(EXPIRED) {
            return with_field(bytes, user, EXPIRY, b"");
        }
        if !OF_GROUPS.contains(&path) {
            return bytes.to_vec();
        }
        let stays = memberships(bytes, user);
        with_members(bytes, user, &|group| stays.contains(group) && !leaves.contains(group))
    })
}

/// Removes a group that is no account's primary one.
pub fn remove_group(
    root: &Root,
    group: &str,
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<(), HostError> {
    edit(root, run, fail_points, &|path, bytes| {
        if OF_GROUPS.contains(&path) { with_line(bytes, group, None) } else { bytes.to_vec() }
    })
}

/// Edits the databases under their lock; what stays the same is not written.
pub(in crate::host) fn edit(
    root: &Root,
    run: Attempt,
    fail_points: &FailPoints,
    new: &dyn Fn(&str, &[u8]) -> Vec<u8>,
) -> Result<(), HostError> {
    let lock = lock(root)?;
    let all: Vec<&'static str> = OF_USERS.into_iter().chain(OF_GROUPS).collect();
    let mut edited = Vec::new();
    for (path, bytes) in load(root, &all)? {
        let after = new(path, &bytes);
        // A repetition clears what one that was cut off has left beside a database, which may be right already.
        let is_written = after != bytes || run != Attempt::First;
        match accounts::linked(root, path)? {
            // Nothing was left beside it: a plan refuses to change one.
            Some(_) if after == bytes => continue,
            Some(error) => return Err(error),
            None => {}
        }
        let Some((mode, uid, gid)) = root.dress_of(path)?.filter(|_| is_written) else { continue };
        edited.push((path, after, mode, uid, gid));
    }
    let change =
        |(path, bytes, mode, uid, gid)| Change::new(path, uid, DesiredPath::edited(bytes, mode, uid, gid));
    let changes: Vec<Change<'_>> = edited
        .iter()
        .map(|(path, bytes, mode, uid, gid)| change((*path, bytes.as_slice(), *mode, *uid, *gid)))
        .collect();
    let done = durable::apply_changes(root, &changes, run, fail_points);
    drop(lock);
    done.map(|_| ())
}

/// Reads databases; those that the host lacks are left out.
fn load(root: &Root, paths: &[&'static str]) -> Result<Vec<(&'static str, Vec<u8>)>, HostError> {
    let mut loaded = Vec::new();
    for path in paths {
        loaded.extend(root.read(path)?.map(|bytes| (*path, bytes)));
    }
    Ok(loaded)
}

fn own_lines(databases: &[(&'static str, Vec<u8>)], name: &str) -> BTreeMap<String, Bytes> {
    let lines = databases.iter().filter_map(|(path, bytes)| {
        let own: Vec<u8> = lines(bytes).filter(|line| is_of(line, name)).flatten().copied().collect();
        (!own.is_empty()).then(|| (path.to_string(), Bytes::new(&own)))
    });
    lines.collect()
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

/// Returns the database with a field of each line of a name.
fn with_field(bytes: &[u8], name: &str, place: usize, value: &[u8]) -> Vec<u8> {
    let edited = |line| if is_of(line, name) { line_with_field(line, place, value) } else { line.to_vec() };
    lines(bytes).flat_map(edited).collect()
}

/// Returns the database with a field of the first line of a name, which is the one that counts.
fn with_first_field(bytes: &[u8], name: &str, place: usize, value: &[u8]) -> Vec<u8> {
    let mut is_done = false;
    let edited = |line| {
        let is_first = !is_done && is_of(line, name);
        is_done |= is_first;
        if is_first { line_with_field(line, place, value) } else { line.to_vec() }
    };
    lines(bytes).flat_map(edited).collect()
}

fn line_with_field(line: &[u8], place: usize, value: &[u8]) -> Vec<u8> {
    let (text, end) = line.split_at(without_end(line).len());
    let mut fields: Vec<&[u8]> = text.split(|byte| *byte == b':').collect();
    if let Some(field) = fields.get_mut(place) {
        *field = value;
    }
    [fields.join(&b':'), end.to_vec()].concat()
}

/// Returns the groups of a database that list a user, on any of their lines.
fn memberships(bytes: &[u8], user: &str) -> BTreeSet<String> {
    lines(bytes).map(without_end).filter(|line| has_member(line, user)).filter_map(name_of).collect()
}

/// Returns the names of a database that have several lines.
fn repeated(bytes: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let again = |name: &String| !found.insert(name.clone());
    lines(bytes).filter_map(name_of).filter(again).collect()
}

fn name_of(line: &[u8]) -> Option<String> {
    let end = line.iter().position(|byte| *byte == b':')?;
    line.get(..end).map(|name| String::from_utf8_lossy(name).into_owned())
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Returns the database with a user in exactly these groups: removed from each line of the others, and added to the first line of one
/// that lists it on none. Other members and their order stay, and a line that was made for it alone goes.
fn with_members(bytes: &[u8], user: &str, is_member: &dyn Fn(&str) -> bool) -> Vec<u8> {
    let now = memberships(bytes, user);
    let mut new = Vec::with_capacity(bytes.len());
    let mut joined = BTreeSet::new();
    let texts: Vec<&[u8]> = lines(bytes).map(without_end).collect();
    let spare = account_layout::emptied(&texts, |line| {
        let leaves = has_member(line, user) && name_of(line).is_some_and(|name| !is_member(&name));
        leaves.then(|| with_member(line, user, false))
    });
    for (at, line) in lines(bytes).enumerate() {
        if spare.contains(&at) {
            continue;
        }
        let (text, end) = line.split_at(without_end(line).len());
        match name_of(text) {
            Some(name) if !is_member(&name) => new.extend(with_member(text, user, false)),
            Some(name) if !now.contains(&name) && joined.insert(name.clone()) => {
                new.extend(with_member(text, user, true));
            }
            Some(_) | None => new.extend_from_slice(text),
        }
        new.extend_from_slice(end);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn only_named_lines_change() {
        let passwd = b"root:x:0:0::/:/s\nbob:x:5:5::/:/s\nbobby:x:6:6::/:/s\n";
        assert_eq!(text(with_line(passwd, "bob", None)), "root:x:0:0::/:/s\nbobby:x:6:6::/:/s\n");
        assert_eq!(
            text(with_line(passwd, "bob", Some(b"bob:x:7:7::/:/s\n"))),
            "root:x:0:0::/:/s\nbob:x:7:7::/:/s\nbobby:x:6:6::/:/s\n"
        );
        assert_eq!(text(with_line(b"root:x", "eve", Some(b"eve:x\n"))), "root:x\neve:x\n");
        assert_eq!(text(with_field(b"bob:!:1::::::\n", "bob", EXPIRY, b"1")), "bob:!:1:::::1:\n");
        assert_eq!(field(b"bobby:a\nbob:b:c\n", "bob", 1), Some(&b"b"[..]));
        let twice = b"w:!::a\nx:!::\nw:$6$other::b";
        assert_eq!(text(with_first_field(twice, "w", PASSWORD, b"*")), "w:*::a\nx:!::\nw:$6$other::b");
    }

    #[test]
    fn memberships_of_others_stay() {
        let group = b"wheel:x:10:ann,bob,cid\nsudo:x:11:\nbob:x:5:\n";
        assert_eq!(memberships(group, "bob"), BTreeSet::from(["wheel".to_owned()]));
        let moved = with_members(group, "bob", &|group| group == "sudo");
        assert_eq!(text(moved), "wheel:x:10:ann,cid\nsudo:x:11:bob\nbob:x:5:\n");
        assert_eq!(text(with_members(group, "bob", &|group| group == "wheel")), text(group.to_vec()));
        // A group on several lines: none gets members of another one.
        let split = b"wheel:x:10:ann,bob\nsudo:x:11:\nwheel:x:10:cid\nsudo:x:11:dan\n";
        let moved = with_members(split, "bob", &|group| group == "sudo");
        assert_eq!(text(moved), "wheel:x:10:ann\nsudo:x:11:bob\nwheel:x:10:cid\nsudo:x:11:dan\n");
        assert_eq!(text(with_members(split, "bob", &|group| group == "wheel")), text(split.to_vec()));
        // A line that shadow-utils made for the member goes with it; an empty one of the host stays.
        let alone = b"wheel:x:10:ann\nwheel:x:10:bob\nwheel:x:10:\nsudo:x:11:bob\n";
        assert_eq!(text(with_members(alone, "bob", &|_| false)), "wheel:x:10:ann\nwheel:x:10:\nsudo:x:11:\n");
        assert_eq!(whole_line(split, "wheel").map(text), Some("wheel:x:10:ann,bob,cid".to_owned()));
    }

    /// A database that is a link stays one, and no file with the mode of a link comes in its place.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test: the administrator's hand")]
    fn linked_database_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for below in ["etc", "var"] {
            std::fs::create_dir(at(below)).unwrap();
        }
        std::fs::write(at("var/shadow"), "core:*:1::::::\n").unwrap();
        std::os::unix::fs::symlink("../var/shadow", at("etc/shadow")).unwrap();
        std::fs::write(at("etc/group"), "core:x:1000:\ngg:x:1001:\n").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let without = |path: &str, bytes: &[u8]| {
            if path == GROUP { with_line(bytes, "gg", None) } else { bytes.to_vec() }
        };
        edit(&root, Attempt::Again, &FailPoints::off(), &without).unwrap();
        assert!(std::fs::symlink_metadata(at("etc/shadow")).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(at("etc/group")).unwrap(), "core:x:1000:\n");
        let refused =
            edit(&root, Attempt::Again, &FailPoints::off(), &|_, bytes| with_line(bytes, "core", None));
        assert!(refused.unwrap_err().to_string().contains("/etc/shadow is a link"));
        let hash = PasswordHash::new("!".to_owned()).unwrap();
        let refused = accounts::set_password(&root, "core", &hash, Attempt::First, &FailPoints::off());
        assert!(refused.unwrap_err().to_string().contains("/etc/shadow is a link"));
        assert!(std::fs::symlink_metadata(at("etc/shadow")).unwrap().is_symlink());
    }
}
