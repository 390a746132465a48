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
use crate::model::users::{CORE, KEYS_FILE, PasswordHash, keys_text};
use crate::model::{FileMode, UserName};
use crate::plan::{BatchOp, Step, UserOp};

use super::ApplyError;
use super::accounts::{Changed, record_original};
use super::run_steps::{keys_not_restored, left_as_it_is, moved_aside};

/// The work on one account.
struct Work<'a> {
    name: &'a UserName,
    user: User,
    ops: Vec<UserOp>,
    keys: Option<Keys>,
    password: Option<PasswordHash>,
}

/// The keys file that an account is to have.
enum Keys {
    Text(String),
    Original { saved: PathSnapshot, attributes: Vec<(String, Vec<u8>)> },
    Absent,
}

/// Carries out the steps of one batch of accounts.
pub(super) fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let (mut works, mut groups) = (Vec::<Work<'_>>::new(), BTreeSet::new());
    let found = Accounts::load(&host.root).map_err(ApplyError::host("the accounts"))?;
    for step in steps {
        let BatchOp::User(op, name) = step.op.in_batch() else {
            return Err(ApplyError::foreign(step, intent.to().name.as_str()));
        };
        if op == UserOp::RemoveGroup {
            groups.insert(name.to_string());
            continue;
        }
        let Some(user) = found.user(name.as_str()) else { continue };
        match works.iter_mut().find(|work| work.name == name) {
            Some(work) => work.ops.push(op),
            None => {
                works.push(Work { name, user: user.clone(), ops: vec![op], keys: None, password: None });
            }
        }
    }
    if works.is_empty() && groups.is_empty() {
        return Ok(());
    }
    let object = match works.as_slice() {
        [work] if groups.is_empty() => format!("the account {}", work.name),
        _ => "the accounts".to_owned(),
    };
    let failed = || ApplyError::host(object.clone());
    let records = AccountRecords::load_current(&host.root).map_err(failed())?;
    let lines = lines(host, &works, &groups, &records).map_err(failed())?;
    prepare(intent, host, &mut works).map_err(failed())?;
    let changes: Vec<Change<'_>> = works.iter().filter_map(change).collect();
    let core = works.iter().find(|work| work.name.is_core() && work.password.is_some());
    let password = core.map_or(Ok(None), |_| accounts::password(&host.root, CORE)).map_err(failed())?;
    let saved =
        intent.originals().save_with(&host.root, &changes, &BTreeMap::new(), password.as_ref(), lines);
    let run = saved.map_err(ApplyError::originals("the accounts"))?;
    host.fail_points.hit("originals-saved");
    apply_works(intent, host, &works, run).map_err(failed())?;
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
    let is_repeated = intent.originals().is_saved(&host.root)?;
    for work in works.iter_mut() {
        let new = intent.to().users.accounts.get(work.name);
        if is_repeated && new.is_none() && !work.name.is_core() && !records.knows(work.name.as_str()) {
            // The run that was cut off has put back what the host had, and spent that.
            continue;
        }
        let original = records.original(work.name.as_str()).filter(|_| !work.name.is_core());
        let locks = work.ops.contains(&UserOp::Lock);
        if locks || work.ops.contains(&UserOp::SshKeys) {
            let text = new.filter(|_| !locks).and_then(|new| new.desired_keys(work.name)).map(keys_text);
            work.keys = Some(match (text, original) {
                (Some(text), _) => Keys::Text(text),
                (None, Some(original)) => {
                    Keys::Original { attributes: original.keys.attributes(), saved: original.keys.clone() }
                }
                (None, None) => Keys::Absent,
            });
        }
        if work.ops.contains(&UserOp::Password) {
            // A user that is no longer listed is locked; an empty password would let everyone in (W-36).
            let new = new.and_then(|new| new.password.clone());
            let password = new.or_else(|| original.and_then(UserOriginal::password));
            work.password = Some(password.unwrap_or_else(PasswordHash::locked));
        }
        // Before the originals are saved: the file moved aside here is not the one that a write would replace.
        prepared |= work.writes_keys();
        match make_way(intent, host, work) {
            Err(error) if work.may_leave_keys(&error) => {
                left_as_it_is(intent, &work.keys_path(), &error);
                work.keys = None;
            }
            done => done?,
        }
    }
    if prepared {
        host.fail_points.hit("keys-directory");
    }
    Ok(())
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
        format!("{}/{KEYS_FILE}", self.user.home.trim_end_matches('/'))
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
    /// home does there must not hold the update.
    fn may_leave_keys(&self, error: &HostError) -> bool {
        !self.sets_keys() && (self.locks() || error.is_of_names())
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
        let path = format!("{}/{KEYS_FILE}", user.home.trim_end_matches('/'));
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

fn apply_works(intent: &Intent<'_>, host: &Host, works: &[Work<'_>], run: Attempt) -> Result<(), HostError> {
    let (root, fail_points) = (&host.root, &host.fail_points);
    for work in works.iter().filter(|work| !work.name.is_core() && !work.locks()) {
        let old = intent.from().users.accounts.get(work.name);
        record_original(host, work.name, Changed::Secrets, old, run)?;
    }
    // No account waits for its keys to be locked.
    for work in works {
        let name = work.name.as_str();
        if let Some(hash) = &work.password {
            accounts::set_password(root, name, hash, run, fail_points)?;
        }
        if work.locks() {
            account_lines::lock_account(root, name, run, fail_points)?;
        }
    }
    apply_keys(intent, host, works, run)?;
    // What the config says next of an account of the host begins from the host again.
    let mut records = AccountRecords::load_current(root)?;
    for work in works.iter().filter(|work| !intent.to().users.accounts.contains_key(work.name)) {
        if !records.is_made(work.name.as_str()) {
            records.set_user(work.name.as_str(), None);
        }
    }
    records.save(root)
}

/// Sets the keys of the config together; those that go, one by one.
fn apply_keys(intent: &Intent<'_>, host: &Host, works: &[Work<'_>], run: Attempt) -> Result<(), HostError> {
    let apply = |changes: &[Change<'_>]| {
        durable::apply_changes(&host.root, changes, run, &host.fail_points).map(drop)
    };
    let set: Vec<Change<'_>> = works.iter().filter(|work| work.sets_keys()).filter_map(change).collect();
    if !set.is_empty() {
        apply(&set)?;
    }
    for work in works.iter().filter(|work| !work.sets_keys()) {
        let Some(change) = change(work) else { continue };
        match apply(std::slice::from_ref(&change)) {
            Err(error) if work.may_leave_keys(&error) => left_as_it_is(intent, change.path(), &error),
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
