//! Keys and passwords of accounts, and what leaves the config. On a host without `core` nothing is done (MCD-160).
//!
//! `core` loses its keys and its password with its entry. Another account of the host gets back what it had; one that the
//! agent made is locked, and its home stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::account_lines::{self, AccountLines, SavedUser};
use crate::host::account_records::{AccountRecords, UserOriginal};
use crate::host::accounts::{self, Accounts, User};
use crate::host::durable::{self, Attempt, Change, DesiredPath};
use crate::host::saved::PathSnapshot;
use crate::host::{Host, HostError, keys};
use crate::journal::Intent;
use crate::model::users::{CORE, KEYS_FILE, PasswordHash, keys_text};
use crate::model::{FileMode, UserName};
use crate::plan::{BatchOp, Step, UserOp};

use super::ApplyError;
use super::accounts::record_original;

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
    apply_works(intent, host, &works, &changes, run).map_err(failed())?;
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
        whole.map(|work| SavedUser { name: work.name.to_string(), home: None }).collect();
    AccountLines::read(&host.root, &users, groups, records)
}

/// Decides what each account is to have, and prepares the directories of its keys.
fn prepare(intent: &Intent<'_>, host: &Host, works: &mut [Work<'_>]) -> Result<(), HostError> {
    let records = AccountRecords::load_current(&host.root)?;
    let mut prepared = false;
    for work in works.iter_mut() {
        let new = intent.to().users.accounts.get(work.name);
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
        let writes = match &work.keys {
            None => false,
            Some(Keys::Text(_)) => true,
            Some(Keys::Original { saved, .. }) => *saved != PathSnapshot::Absent,
            Some(Keys::Absent) => work.name.is_core(),
        };
        if writes {
            // Before the originals are saved: the file moved aside here is not the one that a write would replace.
            keys::prepare(&host.root, work.user.home.trim_end_matches('/'), &work.user)?;
            prepared = true;
        }
    }
    if prepared {
        host.fail_points.hit("keys-directory");
    }
    Ok(())
}

fn change<'a>(work: &'a Work<'_>) -> Option<Change<'a>> {
    let path = format!("{}/{KEYS_FILE}", work.user.home.trim_end_matches('/'));
    let (uid, gid) = (work.user.uid, work.user.gid);
    Some(match work.keys.as_ref()? {
        Keys::Text(text) => {
            let want = DesiredPath::file(text.as_bytes(), FileMode::PRIVATE.bits(), uid, gid);
            Change::new(path, uid, want)
        }
        Keys::Original { saved, attributes } => saved.put_back(&path, uid, attributes),
        Keys::Absent => Change::new(path, uid, DesiredPath::Absent),
    })
}

fn apply_works(
    intent: &Intent<'_>,
    host: &Host,
    works: &[Work<'_>],
    changes: &[Change<'_>],
    run: Attempt,
) -> Result<(), HostError> {
    let (root, fail_points) = (&host.root, &host.fail_points);
    for work in works.iter().filter(|work| !work.name.is_core() && !work.ops.contains(&UserOp::Lock)) {
        record_original(host, work.name)?;
    }
    if !changes.is_empty() {
        durable::apply_changes(root, changes, run, fail_points)?;
    }
    for work in works {
        let name = work.name.as_str();
        if let Some(hash) = &work.password {
            accounts::set_password(root, name, hash, run, fail_points)?;
        }
        if work.ops.contains(&UserOp::Lock) {
            account_lines::lock_account(root, name, run, fail_points)?;
        }
    }
    // What the config says next of an account of the host begins from the host again.
    let mut records = AccountRecords::load_current(root)?;
    for work in works.iter().filter(|work| !intent.to().users.accounts.contains_key(work.name)) {
        if !records.is_made(work.name.as_str()) {
            records.set_user(work.name.as_str(), None);
        }
    }
    records.save(root)
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
