//! Keys and passwords of accounts, and what leaves the config. On a host without `core` nothing is done (MCD-160).
//!
//! `core` loses its keys and its password with its entry. Another account of the host gets back what it had; one that the
//! agent made is locked, and its home stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::account_lines::{self, AccountLines, SavedUser};
use crate::host::account_records::{AccountRecords, UserOriginal};
use crate::host::accounts::{self, Accounts, User};
use crate::host::durable::{self, Attempt, Change, DesiredPath};
use crate::host::keys::Moved;
use crate::host::saved::PathSnapshot;
use crate::host::{Host, HostError, keys};
use crate::journal::{Intent, Original};
use crate::model::users::{Account, CORE, PasswordHash, keys_text};
use crate::model::{FileMode, ObservedFile, UserName};
use crate::plan::{BatchOp, Step, UserOp};

use super::ApplyError;
use super::accounts::{Changed, Entries, record_original};
use super::run_steps::{keys_not_restored, left_as_it_is, moved_aside};
use super::stray_keys::{self, StrayFile};

/// The work on one account.
struct Work<'a> {
    name: &'a UserName,
    user: User,
    ops: Vec<UserOp>,
    keys: Option<Keys>,
    password: Option<PasswordHash>,
    /// The account is opened again, or nothing else is done: its old keys must not stay.
    must_remove: bool,
    /// Its old keys could not be removed.
    are_left: bool,
}

/// The keys file that an account is to have.
enum Keys {
    Text(String),
    Original { saved: PathSnapshot, attributes: Vec<(String, Vec<u8>)> },
    Absent,
}

/// Carries out the steps of one batch of accounts.
pub(super) fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let (mut works, mut groups, mut keyed) = (Vec::<Work<'_>>::new(), BTreeSet::new(), BTreeSet::new());
    let found = Accounts::load(&host.root).map_err(ApplyError::host("the accounts"))?;
    for step in steps {
        let BatchOp::User(op, name) = step.op.in_batch() else {
            return Err(ApplyError::foreign(step, intent.to().name.as_str()));
        };
        if op == UserOp::RemoveGroup {
            groups.insert(name.to_string());
            continue;
        }
        if matches!(op, UserOp::SshKeys | UserOp::Lock) {
            keyed.insert(name);
        }
        let Some(user) = found.user(name.as_str()) else { continue };
        if let Some(work) = works.iter_mut().find(|work| work.name == name) {
            work.ops.push(op);
        } else {
            let (keys, password, ops) = (None, None, vec![op]);
            let user = user.clone();
            works.push(Work { name, user, ops, keys, password, must_remove: false, are_left: false });
        }
    }
    let object = match works.as_slice() {
        [work] if groups.is_empty() => format!("the account {}", work.name),
        _ => "the accounts".to_owned(),
    };
    let failed = || ApplyError::host(object.clone());
    let strays = stray_keys::of(intent, host, &found, &keyed).map_err(failed())?;
    if works.is_empty() && groups.is_empty() && strays.is_empty() {
        return Ok(());
    }
    let records = AccountRecords::load_current(&host.root).map_err(failed())?;
    let lines = lines(host, &works, &groups, &records).map_err(failed())?;
    prepare(intent, host, &mut works).map_err(failed())?;
    let changes = works.iter().filter_map(change);
    let changes: Vec<Change<'_>> = changes.chain(strays.iter().filter_map(StrayFile::change)).collect();
    let core = works.iter().find(|work| work.name.is_core() && work.password.is_some());
    let password = core.map_or(Ok(None), |_| accounts::password(&host.root, CORE)).map_err(failed())?;
    let saved =
        intent.originals().save_with(&host.root, &changes, &BTreeMap::new(), password.as_ref(), lines);
    let run = saved.map_err(ApplyError::originals("the accounts"))?;
    host.fail_points.hit("originals-saved");
    apply_works(intent, host, &mut works, run).map_err(failed())?;
    stray_keys::apply(intent, host, &strays, run).map_err(failed())?;
    forget_originals(intent, host, &works).map_err(failed())?;
    for group in &groups {
        remove_group(host, group, run).map_err(failed())?;
    }
    Ok(())
}

/// Reads the lines that the batch changes; the password of `core` is an original of its own.
fn lines(
    host: &Host,
    works: &[Work<'_>],
    groups: &BTreeSet<String>,
    records: &AccountRecords,
) -> Result<AccountLines, HostError> {
    let whole = works.iter().filter(|work| !work.name.is_core() || work.ops.contains(&UserOp::Lock));
    let users: Vec<SavedUser> =
        whole.map(|work| SavedUser { name: work.name.to_string(), ..SavedUser::default() }).collect();
    AccountLines::read(&host.root, &users, groups, records)
}

/// Decides what each account is to have, and prepares the directories of its keys.
fn prepare(intent: &Intent<'_>, host: &Host, works: &mut [Work<'_>]) -> Result<(), HostError> {
    let records = AccountRecords::load_current(&host.root)?;
    let mut prepared = false;
    for work in works.iter_mut() {
        let entries = Entries::new(intent, work.name);
        let (old, new) = (entries.applied(), intent.to().users.accounts.get(work.name));
        let is_own = work.name.is_core() || records.is_made(work.name.as_str());
        let is_opened = is_own && !work.locks() && old.is_none() && new.is_some();
        // Keys that could not leave before are removed outside of any update: what else is in the file stays.
        let is_late = intent.from().target() == intent.to().target();
        work.must_remove = is_opened || is_late;
        let original = records.original(work.name.as_str()).filter(|_| !is_own);
        let original = original.map(|original| entries.without_given(original.clone(), &records));
        if work.locks() || work.ops.contains(&UserOp::SshKeys) {
            let set =
                new.filter(|_| !work.locks()).and_then(|new| new.desired_keys(work.name)).map(keys_text);
            work.keys = match set {
                Some(text) => Some(Keys::Text(text)),
                None if is_own && !is_late => Some(Keys::Absent),
                None => keys_before(host, work, original.as_ref(), entries, &records)?,
            };
        }
        if work.ops.contains(&UserOp::Password) {
            let new = new.and_then(|new| new.password.clone());
            work.password = match new {
                Some(hash) => {
                    keep_lock(host, work.name, &hash)?;
                    Some(hash)
                }
                None if is_own => Some(PasswordHash::locked()),
                None => password_before(host, work.name, old, original.as_ref())?,
            };
        }
        // Before the originals are saved: the file moved aside here is not the one that a write would replace.
        prepared |= work.writes_keys();
        match make_way(intent, host, work) {
            Err(error) if work.may_leave_keys(&error) => {
                left_as_it_is(intent, &work.keys_path(), &error);
                (work.keys, work.are_left) = (None, true);
            }
            done => done?,
        }
    }
    if prepared {
        host.fail_points.hit("keys-directory");
    }
    Ok(())
}

/// Refuses to open a lock of an administrator, as a plan does: he may have set it since.
fn keep_lock(host: &Host, name: &UserName, new: &PasswordHash) -> Result<(), HostError> {
    let found = accounts::password(&host.root, name.as_str())?;
    if found.is_some_and(|found| found.is_lock_that_opens(new)) {
        return Err(accounts::locked_by_hand(name.as_str()));
    }
    Ok(())
}

/// Returns the password that an account of the host gets back, behind the lock of an administrator who has locked it meanwhile.
fn password_before(
    host: &Host,
    name: &UserName,
    old: Option<&Account>,
    original: Option<&UserOriginal>,
) -> Result<Option<PasswordHash>, HostError> {
    let (found, given) =
        (accounts::password(&host.root, name.as_str())?, old.and_then(|old| old.password.as_ref()));
    let Some(original) = original else {
        // A run that was cut off may have put back what the host had, and spent that.
        let hash = found.as_ref().and_then(PasswordHash::behind_lock).or(found);
        return Ok((hash.is_some() && hash.as_ref() == given).then(PasswordHash::locked));
    };
    // A user that is no longer listed is locked; an empty password would let everyone in (W-36).
    let before = original.password().unwrap_or_else(PasswordHash::locked);
    let set = original.set.password();
    // What the config of an image gave is known to its build alone.
    let is_of_image = given.is_none() && set.is_none();
    let is_given = found.is_some() && (is_of_image || found.as_ref() == given || found == set);
    let is_hidden = given.is_some() && found.as_ref().and_then(PasswordHash::behind_lock).as_ref() == given;
    match found {
        Some(found) if is_hidden || (found.is_locked() && !is_given) => Ok(Some(before.kept_locked())),
        // A person has set it since.
        Some(found) if !is_given => Ok(Some(found)),
        Some(_) | None => Ok(Some(before)),
    }
}

/// Returns the keys that an account of the host has without the configs': those of before, or what is in the file beside theirs. `None` if
/// the file is not theirs.
fn keys_before(
    host: &Host,
    work: &Work<'_>,
    original: Option<&UserOriginal>,
    entries: Entries<'_>,
    records: &AccountRecords,
) -> Result<Option<Keys>, HostError> {
    let root = &host.root;
    let (path, home) = (work.keys_path(), keys::real_home(root, &work.user.home)?);
    let change = Change::new(path, work.user.uid, DesiredPath::Absent);
    let now = match PathSnapshot::read_to_replace(root, &change, None) {
        Err(error) if error.is_of_names() => None,
        read => Some(read?),
    };
    let without = now.clone().map(|now| entries.keys_without_given(now, records));
    let has_given = without != now;
    // What is in a home that no config's keys were written into is the owner's.
    if !has_given && records.is_written_elsewhere(root, work.name.as_str(), &home)? {
        return Ok(None);
    }
    let is_here = match original.and_then(|original| original.home.as_ref()) {
        None => true,
        // The home may have moved with all that was in it.
        Some(before) => {
            let is_moved = || root.observe(&keys::path_in(before)).map(|found| found == ObservedFile::Absent);
            *before == home || (has_given && is_moved()?)
        }
    };
    let original = original.filter(|_| is_here).map(|original| original.keys.clone());
    let saved = original.or(without).unwrap_or(PathSnapshot::Absent);
    if saved == PathSnapshot::Absent {
        return Ok(Some(Keys::Absent));
    }
    Ok(Some(Keys::Original { attributes: saved.attributes(), saved }))
}

/// Prepares the directories of keys, or moves aside what keeps the keys from going.
fn make_way(intent: &Intent<'_>, host: &Host, work: &Work<'_>) -> Result<(), HostError> {
    let home = work.user.home.trim_end_matches('/');
    let tell = |moved: Vec<Moved>| {
        for entry in &moved {
            moved_aside(intent, entry);
        }
        AccountRecords::note_moved(&host.root, &moved)
    };
    if work.keys.is_some() && !work.sets_keys() {
        tell(keys::clear(&host.root, home, &work.user)?)?;
    }
    if work.writes_keys() {
        tell(keys::prepare(&host.root, home, &work.user)?)?;
    }
    Ok(())
}

impl Work<'_> {
    fn keys_path(&self) -> String {
        keys::path(&self.user)
    }

    fn locks(&self) -> bool {
        self.ops.contains(&UserOp::Lock)
    }

    /// Returns true if the account gets keys of the config.
    fn sets_keys(&self) -> bool {
        matches!(self.keys, Some(Keys::Text(_)))
    }

    /// Returns true if the directories of the keys have to be there.
    fn writes_keys(&self) -> bool {
        match &self.keys {
            None => false,
            Some(Keys::Text(_)) => true,
            Some(Keys::Original { saved, .. }) => *saved != PathSnapshot::Absent,
            Some(Keys::Absent) => self.name.is_core(),
        }
    }

    /// Returns true if keys that are to go may stay after an error: they open no account that is locked, and what the owner of a
    /// home does there, or a home that can't be written, must not hold the update. They are on record until they are gone.
    fn may_leave_keys(&self, error: &HostError) -> bool {
        let is_left = self.locks() || error.is_of_names() || error.is_closed();
        !self.sets_keys() && !self.must_remove && is_left
    }
}

/// Names the keys of the old config that are not back after a roll-back: there was no original of them.
pub(super) fn name_missing_keys(
    intent: &Intent<'_>,
    host: &Host,
    steps: &[Step],
    saved: &[Original],
) -> Result<(), HostError> {
    let accounts = Accounts::load(&host.root)?;
    for step in steps {
        let BatchOp::User(UserOp::SshKeys | UserOp::Lock, name) = step.op.in_batch() else { continue };
        let old = intent.from().users.accounts.get(name).and_then(|old| old.desired_keys(name));
        let (Some(old), Some(user)) = (old, accounts.user(name.as_str())) else { continue };
        let path = keys::path(user);
        let has_original = saved.iter().any(|one| one.path == path && one.saved != PathSnapshot::Absent);
        let text = keys_text(old);
        let want = DesiredPath::file(text.as_bytes(), FileMode::PRIVATE.bits(), user.uid, user.gid);
        let change = Change::new(&*path, user.uid, want);
        if !has_original && !durable::is_in_sync(&host.root, &change).unwrap_or(false) {
            keys_not_restored(intent, name, &path);
        }
    }
    Ok(())
}

fn change<'a>(work: &'a Work<'_>) -> Option<Change<'a>> {
    let path = work.keys_path();
    let (uid, gid) = (work.user.uid, work.user.gid);
    Some(match work.keys.as_ref()? {
        Keys::Text(text) => {
            let want = DesiredPath::file(text.as_bytes(), FileMode::PRIVATE.bits(), uid, gid);
            Change::new(path, uid, want)
        }
        Keys::Original { saved, attributes } => saved.put_back(&path, uid, attributes).of_owner(),
        Keys::Absent => Change::new(path, uid, DesiredPath::Absent).of_owner(),
    })
}

fn apply_works(
    intent: &Intent<'_>,
    host: &Host,
    works: &mut [Work<'_>],
    run: Attempt,
) -> Result<(), HostError> {
    let (root, fail_points) = (&host.root, &host.fail_points);
    for work in works.iter().filter(|work| !work.name.is_core() && !work.locks()) {
        record_original(intent, host, work.name, (Changed::Secrets, run))?;
    }
    // No account waits for its keys to be locked.
    for work in works.iter() {
        let name = work.name.as_str();
        if let Some(hash) = &work.password {
            accounts::set_password(root, name, hash, run, fail_points)?;
        }
        if work.locks() {
            account_lines::lock_account(root, name, run, fail_points)?;
        }
    }
    note_written(intent, host, works)?;
    apply_keys(intent, host, works, run)?;
    let mut records = AccountRecords::load_current(root)?;
    for work in works.iter() {
        let name = work.name.as_str();
        if work.keys.is_some() && !work.are_left {
            records.written.remove(&keys::real_home(root, &work.user.home)?);
        }
        if work.sets_keys() {
            note(&mut records, host, intent, work)?;
        }
        if work.are_left {
            // Where the record says that they were written elsewhere, they are not here.
            if !records.is_written_elsewhere(root, name, &work.user.home)? {
                records.note_unremoved(name, Entries::new(intent, work.name).old_keys());
            }
        } else if work.keys.is_some() {
            records.unremoved.remove(name);
        }
    }
    records.save(root)
}

/// Forgets the originals of accounts of the host whose keys have gone: what a config says next of them begins from the host again.
fn forget_originals(intent: &Intent<'_>, host: &Host, works: &[Work<'_>]) -> Result<(), HostError> {
    let mut records = AccountRecords::load_current(&host.root)?;
    for work in works {
        let name = work.name.as_str();
        let is_listed = intent.to().users.accounts.contains_key(work.name);
        if !is_listed && !records.is_made(name) && records.given_keys(name).is_empty() {
            records.set_user(name, None);
        }
    }
    records.save(&host.root)
}

/// Records where keys are about to be written, before any is.
fn note_written(intent: &Intent<'_>, host: &Host, works: &[Work<'_>]) -> Result<(), HostError> {
    let mut records = AccountRecords::load_current(&host.root)?;
    for work in works.iter().filter(|work| work.sets_keys()) {
        note(&mut records, host, intent, work)?;
    }
    records.save(&host.root)
}

fn note(
    records: &mut AccountRecords,
    host: &Host,
    intent: &Intent<'_>,
    work: &Work<'_>,
) -> Result<(), HostError> {
    let entry = intent.to().users.accounts.get(work.name);
    let keys = entry.and_then(|entry| entry.desired_keys(work.name)).unwrap_or_default();
    let home = keys::real_home(&host.root, &work.user.home)?;
    records.note_written(home, work.name.as_str(), work.user.uid, keys);
    Ok(())
}

/// Sets the keys of the config together; those that go, one by one.
fn apply_keys(
    intent: &Intent<'_>,
    host: &Host,
    works: &mut [Work<'_>],
    run: Attempt,
) -> Result<(), HostError> {
    let apply = |changes: &[Change<'_>]| {
        durable::apply_changes(&host.root, changes, run, &host.fail_points).map(drop)
    };
    let set: Vec<Change<'_>> = works.iter().filter(|work| work.sets_keys()).filter_map(change).collect();
    if !set.is_empty() {
        apply(&set)?;
    }
    for work in works.iter_mut().filter(|work| !work.sets_keys()) {
        let Some(change) = change(work) else { continue };
        match apply(std::slice::from_ref(&change)) {
            Err(error) if work.may_leave_keys(&error) => {
                left_as_it_is(intent, change.path(), &error);
                drop(change);
                work.are_left = true;
            }
            done => done?,
        }
    }
    Ok(())
}

/// Removes a group, unless it has become the primary one of an account.
fn remove_group(host: &Host, group: &str, run: Attempt) -> Result<(), HostError> {
    let accounts = Accounts::load(&host.root)?;
    if accounts.group(group).is_some_and(|gid| accounts.is_primary(gid)) {
        return Ok(());
    }
    account_lines::remove_group(&host.root, group, run, &host.fail_points)?;
    let mut records = AccountRecords::load_current(&host.root)?;
    records.set_group(group, None);
    records.save(&host.root)
}
