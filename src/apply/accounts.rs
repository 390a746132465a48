//! Groups and accounts, before the files that may belong to them.
//!
//! An account is in the record, as begun, before it is made. A kill in between leaves it begun: it is then made again from
//! the lines that were there before, so that half an account does not stay.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::account_lines::{self, AccountLines, SavedUser};
use crate::host::account_records::{AccountRecords, GroupRecord, UserOriginal, UserRecord};
use crate::host::accounts::{self, Accounts, User};
use crate::host::durable::{Attempt, Change, DesiredPath};
use crate::host::saved::{Bytes, PathSnapshot};
use crate::host::{Host, HostError, Root, account_programs, image_groups, keys};
use crate::journal::Intent;
use crate::model::users::{Account, PasswordHash, SshKey};
use crate::model::{HostSpec, UserName};
use crate::plan::start::Start;
use crate::plan::{AccountOp, BatchOp, Step};

use super::ApplyError;

/// Carries out the steps of one batch of accounts.
pub(super) async fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let failed = || ApplyError::host("the accounts");
    let saved = originals(intent, host, steps).map_err(failed())?;
    let run = intent.originals().save_with(&host.root, &[], &BTreeMap::new(), None, saved);
    let run = run.map_err(ApplyError::originals("the accounts"))?;
    host.fail_points.hit("originals-saved");
    let cut_off = AccountRecords::load(&host.root).map_err(failed())?.has_begun();
    if run == Attempt::Again && cut_off {
        let loaded = intent
            .originals()
            .load(&host.root, &BTreeMap::new())
            .map_err(ApplyError::originals("the accounts"))?;
        if let Some(lines) = loaded.and_then(|originals| originals.accounts) {
            lines
                .put_back(&host.root, (&intent.from().users, &intent.to().users), &host.fail_points)
                .map_err(failed())?;
        }
    }
    for step in steps {
        let BatchOp::Account(op, name) = step.op.in_batch() else {
            return Err(ApplyError::foreign(step, intent.to().name.as_str()));
        };
        let done = apply_step(intent, host, op, name, run).await;
        done.map_err(ApplyError::host(step.to_string()))?;
    }
    Ok(())
}

/// Reads what the batch changes.
fn originals(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<AccountLines, HostError> {
    let (mut users, mut groups) = (Vec::new(), BTreeSet::new());
    let known = Accounts::load(&host.root)?;
    let records = AccountRecords::load_current(&host.root)?;
    for step in steps {
        match step.op.in_batch() {
            BatchOp::Account(AccountOp::CreateGroup | AccountOp::ModifyGroup, name) => {
                groups.insert(name.to_string());
            }
            BatchOp::Account(AccountOp::CreateUser, name) => {
                let account = intent.to().users.accounts.get(name);
                let home =
                    account.map(|account| account_programs::home_of(&host.root, name.as_str(), account));
                let joins = account.map(|account| account.groups.clone()).unwrap_or_default();
                let home = home.transpose()?.flatten();
                users.push(SavedUser { name: name.to_string(), home, groups: joins });
                // Its own group comes with it.
                groups.insert(name.to_string());
                groups.extend(image_groups::alone(&known, &needed(&host.root, account)));
            }
            BatchOp::Account(AccountOp::ModifyUser, name) => {
                let new = desired(intent, name).map(|account| &account.groups);
                let old = intent.from().users.accounts.get(name).map(|account| &account.groups);
                let changed = new.into_iter().chain(old).flatten().cloned().collect();
                users.push(SavedUser { name: name.to_string(), home: None, groups: changed });
                groups.extend(new.iter().flat_map(|groups| image_groups::alone(&known, groups)));
                let left = old.into_iter().flatten().filter(|group| records.is_group_copied(group));
                groups.extend(left.cloned());
            }
            BatchOp::Os(_)
            | BatchOp::File(_)
            | BatchOp::User(..)
            | BatchOp::Link(..)
            | BatchOp::Service(_) => {}
        }
    }
    AccountLines::read(&host.root, &users, &groups, &records)
}

/// Returns the account of the new config. One that must not exist is as one that it does not list.
fn desired<'a>(intent: &Intent<'a>, name: &UserName) -> Option<&'a Account> {
    intent.to().users.accounts.get(name).filter(|account| account.should_exist)
}

async fn apply_step(
    intent: &Intent<'_>,
    host: &Host,
    op: AccountOp,
    name: &UserName,
    run: Attempt,
) -> Result<(), HostError> {
    let new = desired(intent, name);
    match op {
        AccountOp::CreateGroup => create_group(intent, host, name, run).await,
        AccountOp::ModifyGroup => modify_group(intent, host, name, run),
        AccountOp::CreateUser => match new {
            Some(account) => create_user(host, name, account, run).await,
            None => Ok(()),
        },
        AccountOp::ModifyUser => modify_user(intent, host, name, run).await,
    }
}

async fn create_group(
    intent: &Intent<'_>,
    host: &Host,
    name: &UserName,
    run: Attempt,
) -> Result<(), HostError> {
    let (root, name_text) = (&host.root, name.as_str());
    let Some(group) = intent.to().users.groups.get(name) else { return Ok(()) };
    let mut records = AccountRecords::load_current(root)?;
    let is_made = matches!(records.groups.get(name_text), Some(GroupRecord::Agent { .. }));
    if !is_made || Accounts::load(root)?.group(name_text).is_none() {
        records.set_group(name_text, Some(GroupRecord::Begun));
        records.save(root)?;
        host.fail_points.hit("group-recorded");
        account_programs::create_group(root, name_text, group).await?;
        host.fail_points.hit("group-created");
        let gid = Accounts::load(root)?.group(name_text);
        records.set_group(name_text, Some(GroupRecord::Agent { gid, marks: Vec::new() }));
        records.save(root)?;
    }
    account_lines::set_marked_password(root, name_text, group.password.as_ref(), run, &host.fail_points)
}

fn modify_group(intent: &Intent<'_>, host: &Host, name: &UserName, run: Attempt) -> Result<(), HostError> {
    let (root, text) = (&host.root, name.as_str());
    let mut records = AccountRecords::load_current(root)?;
    let new = intent.to().users.groups.get(name).and_then(|group| group.password.clone());
    // One that a config first sets now is as the host has it now, whatever it was before an earlier config.
    let is_changed = || Ok(run == Attempt::Again && account_lines::group_password(root, text)? == new);
    let is_first = intent.from().users.groups.get(name).is_none_or(|old| old.password.is_none())
        && records.group_original(text).is_some()
        && !is_changed()?;
    if is_first || !records.groups.contains_key(text) {
        // The record may be lost: what a config gave is no original.
        let specs = [intent.from(), intent.to()];
        let given = |field: &String| {
            let mut groups = specs.iter().filter_map(|spec| spec.users.groups.get(name)?.password.as_ref());
            groups.any(|hash| hash.as_str() == field && !hash.is_locked())
        };
        let password = account_lines::group_field(root, text)?.filter(|field| !given(field));
        let password = password.map(|field| Bytes::new(field.as_bytes()));
        records.set_group(text, Some(GroupRecord::Host { password }));
        records.save(root)?;
    }
    if records.is_group_made(text) {
        return account_lines::set_marked_password(root, text, new.as_ref(), run, &host.fail_points);
    }
    let password = new.or_else(|| records.group_original(text).flatten());
    account_lines::set_group_password(root, text, password.as_ref(), run, &host.fail_points)?;
    // Whatever the config says of it next begins from the host again.
    if !intent.to().users.groups.contains_key(name) {
        records.set_group(text, None);
        records.save(root)?;
    }
    Ok(())
}

/// Returns the groups that useradd has to find in `/etc/group`. With a prefix it asks no NSS.
fn needed(root: &Root, account: Option<&Account>) -> BTreeSet<String> {
    let primary = account.and_then(|account| account.primary_group.clone()).filter(|_| !root.is_machine());
    account.iter().flat_map(|account| account.groups.clone()).chain(primary).collect()
}

async fn create_user(host: &Host, name: &UserName, account: &Account, run: Attempt) -> Result<(), HostError> {
    let (root, text) = (&host.root, name.as_str());
    let records = AccountRecords::load_current(root)?;
    let is_made = matches!(records.users.get(text), Some(UserRecord::Agent { .. }));
    if is_made && Accounts::load(root)?.user(text).is_some() {
        return Ok(());
    }
    image_groups::copy(root, &needed(root, Some(account)), run, &host.fail_points)?;
    let mut records = AccountRecords::load_current(root)?;
    records.set_user(text, Some(UserRecord::Begun));
    records.save(root)?;
    host.fail_points.hit("user-recorded");
    account_programs::create_user(root, text, account).await?;
    host.fail_points.hit("user-created");
    let uid = Accounts::load(root)?.user(text).map(|user| user.uid);
    if let Some(uid) = uid {
        account_lines::set_mark(root, text, uid, &host.fail_points)?;
    }
    // A host without /etc/shadow has no mark.
    let uid = uid.filter(|uid| accounts::mark(root, text).is_ok_and(|mark| mark == Some(Some(*uid))));
    records.set_user(text, Some(UserRecord::Agent { uid }));
    records.save(root)?;
    host.fail_points.hit("user-made");
    Ok(())
}

/// Sets the attributes of the config. What it lets go is as it was before, of an account of the host.
async fn modify_user(
    intent: &Intent<'_>,
    host: &Host,
    name: &UserName,
    run: Attempt,
) -> Result<(), HostError> {
    let (entries, new) = (Entries::new(intent, name), desired(intent, name));
    let (root, text, old) = (&host.root, name.as_str(), entries.old);
    let records = record_original(intent, host, name, (Changed::Attributes, run))?;
    let accounts = Accounts::load(root)?;
    let Some(user) = accounts.user(text) else { return Ok(()) };
    let original = records.original(text).cloned();
    let original = original.as_ref();
    let nothing = Account::default();
    let is_gone = new.is_none() && old.is_none_or(|old| old.keys.is_empty() && old.password.is_none());
    let is_listed = new.is_some();
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    let (mut gecos, mut shell) = (new.gecos.clone(), new.shell.clone());
    // Another value than a config's is of a person who changed it since.
    let is_given = |old: &Option<String>, set: Option<&String>, found: &String| {
        old.as_ref().is_some_and(|old| old == found || set == Some(found))
    };
    let (is_gecos_given, is_shell_given) = (
        is_given(&old.gecos, original.and_then(|original| original.set.gecos.as_ref()), &user.gecos),
        is_given(&old.shell, original.and_then(|original| original.set.shell.as_ref()), &user.shell),
    );
    if let Some(original) = original {
        gecos = gecos.or_else(|| is_gecos_given.then(|| original.gecos.clone()));
        shell = shell.or_else(|| is_shell_given.then(|| original.shell.clone()));
    } else if records.is_made(text) && is_listed {
        // One that was locked is as one that is made now.
        let is_opened = account_lines::is_expired(root, text)?;
        gecos = gecos.or_else(|| (is_opened || is_gecos_given).then(String::new));
        if shell.is_none() && (is_opened || is_shell_given) {
            shell = Some(account_programs::default_shell(root).await?);
        }
    }
    let now = accounts.groups_of(text);
    let primary = accounts.group_name(user.gid);
    let joins = new.groups.iter().filter(|group| !now.contains(*group) && primary != Some(group.as_str()));
    let joins: BTreeSet<String> = joins.cloned().collect();
    let (gecos, shell) =
        (gecos.filter(|gecos| *gecos != user.gecos), shell.filter(|shell| *shell != user.shell));
    image_groups::copy(root, &joins, run, &host.fail_points)?;
    account_programs::modify_user(root, text, gecos.as_deref(), shell.as_deref(), &joins).await?;
    host.fail_points.hit("user-modified");
    let stays = |group: &&String| {
        new.groups.contains(*group) || original.is_some_and(|original| original.groups.contains(*group))
    };
    let leaves = old.groups.iter().filter(|group| !stays(group)).cloned().collect();
    account_lines::release(root, text, records.is_made(text), &leaves, run, &host.fail_points)?;
    image_groups::remove_unused(root, &leaves, run, &host.fail_points)?;
    let mut records = AccountRecords::load_current(root)?;
    if is_gone && original.is_some() {
        // Keys and password would follow in a later batch; there are none.
        records.set_user(text, None);
        records.save(root)?;
    }
    Ok(())
}

/// The part of an account that a batch changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// Comment, shell and groups.
    Attributes,
    /// Keys and password.
    Secrets,
}

impl Changed {
    fn as_str(self) -> &'static str {
        match self {
            Self::Attributes => "attributes",
            Self::Secrets => "secrets",
        }
    }
}

/// The entries of an account in both configs of an update.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    name: &'a UserName,
    old: Option<&'a Account>,
    new: Option<&'a Account>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(intent: &Intent<'a>, name: &'a UserName) -> Self {
        let (old, new) = (&intent.from().users, &intent.to().users);
        Self { name, old: old.accounts.get(name), new: new.accounts.get(name) }
    }

    /// Returns the keys of both.
    fn keys(self) -> impl Iterator<Item = &'a SshKey> {
        self.old.into_iter().chain(self.new).flat_map(|account| &account.keys)
    }

    /// Returns the old entry, if it was to exist.
    pub(super) fn applied(self) -> Option<&'a Account> {
        self.old.filter(|old| old.should_exist)
    }

    /// Returns the keys of the old one.
    pub(super) fn old_keys(self) -> impl Iterator<Item = &'a SshKey> {
        self.old.into_iter().flat_map(|account| &account.keys)
    }

    /// Returns a keys file without what the configs gave.
    pub(super) fn keys_without_given(self, saved: PathSnapshot, records: &AccountRecords) -> PathSnapshot {
        let given = records.given_keys(self.name.as_str());
        saved.without_keys(self.keys().chain(&given))
    }

    /// Returns true if a password is that of one of them.
    fn has_password(self, hash: &PasswordHash) -> bool {
        let mut set = self.old.into_iter().chain(self.new).filter_map(|account| account.password.as_ref());
        // An administrator may have locked it.
        let hash = hash.behind_lock().unwrap_or_else(|| hash.clone());
        set.any(|given| *given == hash && !given.is_locked())
    }

    /// Returns an original without what the configs gave: records of earlier agents have that, too.
    pub(super) fn without_given(self, original: UserOriginal, records: &AccountRecords) -> UserOriginal {
        let given = original.password().is_some_and(|hash| self.has_password(&hash));
        UserOriginal {
            password: original.password.filter(|_| !given),
            keys: self.keys_without_given(original.keys, records),
            ..original
        }
    }
}

/// Keeps what an account of the host is before a config changes it, each part when a config first sets it: an administrator may have
/// changed it since the first one did. One that the agent made has nothing to go back to, and what a config gave is no original.
pub(super) fn record_original(
    intent: &Intent<'_>,
    host: &Host,
    name: &UserName,
    (changed, run): (Changed, Attempt),
) -> Result<AccountRecords, HostError> {
    let (entries, batch) = (Entries::new(intent, name), intent.originals().batch());
    let (root, text) = (&host.root, name.as_str());
    let mut records = AccountRecords::load_current(root)?;
    let accounts = Accounts::load(root)?;
    let Some(user) = accounts.user(text) else { return Ok(records) };
    let now = || observed_original(root, text, user, accounts.groups_of(text));
    let original = match records.users.get(text) {
        // One that was listed is on record, with the groups that the host had it in.
        None => without_groups(now()?, entries.old),
        // Nothing was changed before it is on record: a repetition does what one that was cut off had not come to.
        Some(UserRecord::Host(original))
            if run == Attempt::First || original.set.recorded_by.get(changed.as_str()) != Some(&batch) =>
        {
            // Keys that could not go are not the host's.
            let keeps_keys = records.unremoved.contains_key(text);
            let (before, now) = (original.clone(), now()?);
            let of_home = now.home.as_ref().and_then(|home| records.of_home(home, text)).cloned();
            let new = renewed(before.clone(), now, changed, entries, keeps_keys);
            match before.home {
                Some(home) if new.home.as_ref() != Some(&home) => {
                    records.keep_of_home(&home, text, &before.keys);
                    UserOriginal { keys: of_home.unwrap_or(new.keys), ..new }
                }
                Some(_) | None => new,
            }
        }
        Some(UserRecord::Begun | UserRecord::Agent { .. } | UserRecord::Host(_)) => return Ok(records),
    };
    let mut original = entries.without_given(original, &records);
    original.set.recorded_by.insert(changed.as_str().to_owned(), batch);
    note_set(&mut original, changed, entries.new.filter(|new| new.should_exist));
    records.set_user(text, Some(UserRecord::Host(original)));
    records.save(root)?;
    Ok(records)
}

/// Notes what is about to be set. What a config does not set is as it was set last: a failed update may have left it.
fn note_set(original: &mut UserOriginal, changed: Changed, new: Option<&Account>) {
    let (Some(new), set) = (new, &mut original.set) else { return };
    match changed {
        Changed::Attributes => {
            set.gecos = new.gecos.clone().or(set.gecos.take());
            set.shell = new.shell.clone().or(set.shell.take());
        }
        Changed::Secrets => {
            let hash = new.password.as_ref().map(|hash| Bytes::new(hash.as_str().as_bytes()));
            set.password = hash.or(set.password.take());
        }
    }
}

fn without_groups(original: UserOriginal, old: Option<&Account>) -> UserOriginal {
    let given = old.map(|old| old.groups.clone()).unwrap_or_default();
    UserOriginal { groups: original.groups.difference(&given).cloned().collect(), ..original }
}

/// Keeps the originals of accounts of the host that a config first lists with groups which they are in already: no step changes that,
/// and nothing else would tell that no config gave them.
///
/// This is before the record of the update, as a plan without steps has none. An update that then does not begin leaves an original that
/// nothing reads: the next config that lists the account records it anew, unless the effects of a failed update stayed.
pub fn record_memberships(
    host: &Host,
    from: &HostSpec,
    to: &HostSpec,
    start: Start,
) -> Result<(), ApplyError> {
    memberships(host, from, to, start).map_err(ApplyError::host("the accounts"))
}

fn memberships(host: &Host, from: &HostSpec, to: &HostSpec, start: Start) -> Result<(), HostError> {
    let is_new = |name: &UserName| !from.users.accounts.contains_key(name);
    let listed: Vec<_> =
        to.users.accounts.iter().filter(|(name, one)| is_new(name) && !one.groups.is_empty()).collect();
    if listed.is_empty() {
        return Ok(());
    }
    let (accounts, mut records) = (Accounts::load(&host.root)?, AccountRecords::load_current(&host.root)?);
    for (name, account) in listed {
        let (text, groups) = (name.as_str(), accounts.groups_of(name.as_str()));
        let Some(user) = accounts.user(text).filter(|_| !groups.is_disjoint(&account.groups)) else {
            continue;
        };
        let now = || observed_original(&host.root, text, user, groups);
        let original = match records.users.get(text) {
            None => now()?,
            Some(UserRecord::Host(before)) if !start.recovering => {
                let now = now()?;
                let left =
                    records.unremoved.contains_key(text).then(|| (before.keys.clone(), before.home.clone()));
                let (keys, home) = left.unwrap_or((now.keys, now.home));
                UserOriginal { keys, home, ..now }
            }
            Some(UserRecord::Begun | UserRecord::Agent { .. } | UserRecord::Host(_)) => continue,
        };
        let entries = Entries { name, old: None, new: Some(account) };
        let original = entries.without_given(original, &records);
        records.set_user(text, Some(UserRecord::Host(original)));
    }
    records.save(&host.root)
}

/// Returns the original with the parts of now that the old config did not set.
fn renewed(
    before: UserOriginal,
    now: UserOriginal,
    changed: Changed,
    entries: Entries<'_>,
    keeps_keys: bool,
) -> UserOriginal {
    let nothing = Account::default();
    let old = entries.old.unwrap_or(&nothing);
    let uid = now.uid;
    match changed {
        Changed::Attributes => {
            let kept = before.groups.intersection(&old.groups);
            let groups = kept.chain(now.groups.difference(&old.groups)).cloned().collect();
            UserOriginal {
                uid,
                gecos: if old.gecos.is_none() { now.gecos } else { before.gecos },
                shell: if old.shell.is_none() { now.shell } else { before.shell },
                groups,
                ..before
            }
        }
        Changed::Secrets => {
            let is_of_host = old.desired_keys(entries.name).is_none() && !keeps_keys;
            let is_moved = before.home.is_some() && before.home != now.home;
            let sets = entries.new.is_some_and(|new| new.desired_keys(entries.name).is_some());
            let (keys, home) = if is_of_host {
                (now.keys, now.home)
            } else if is_moved && sets {
                // The keys are about to replace what is in the new home; the config's have moved with it, or not.
                let has_given = now.keys.clone().without_keys(entries.keys()) != now.keys;
                (if has_given { before.keys } else { now.keys }, now.home)
            } else {
                (before.keys, before.home)
            };
            let password = if old.password.is_none() { now.password } else { before.password };
            UserOriginal { uid, password, keys, home, ..before }
        }
    }
}

fn observed_original(
    root: &Root,
    name: &str,
    user: &User,
    groups: BTreeSet<String>,
) -> Result<UserOriginal, HostError> {
    let keys = Change::new(keys::path(user), user.uid, DesiredPath::Absent);
    let password = accounts::password(root, name)?;
    Ok(UserOriginal {
        uid: Some(user.uid),
        gecos: user.gecos.clone(),
        shell: user.shell.clone(),
        groups,
        password: password.map(|hash| Bytes::new(hash.as_str().as_bytes())),
        home: Some(keys::real_home(root, &user.home)?),
        set: Box::default(),
        keys: match PathSnapshot::read_to_replace(root, &keys, None) {
            // What its owner keeps from being read is his.
            Err(error) if error.is_of_names() => PathSnapshot::Absent,
            read => read?,
        },
    })
}
