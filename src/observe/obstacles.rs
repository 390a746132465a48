//! Refusals of the update on this host: looked for before the plan, so that no node is drained in vain.
//!
//! Paths whose entry is the same in both configs and whose file is right are left out: no step goes there.
//!
//! Errors of the batches of files, accounts and links (`ApplyError::Host` and `Originals`, by their `HostError`). The checkers of the
//! tests know the cases of the second column (`tests/support/seen_before.rs`): with `;` between them, each before its `:`.
//!
//! | error | seen before | only a run tells |
//! |---|---|---|
//! | `Io` | read-only; immutable; no space; a name that is too long: by `durable::examine` | others |
//! | `UnsafeDirectory`, `Kind` | each | |
//! | `TooLarge` | each: of originals by the plan, of extended attributes here | |
//! | `UnknownAccount` | each: by the plan | |
//! | `Unit` | each: the links are made in memory (`unit_sources`), a mask by the plan | |
//! | `Malformed` | of accounts: this observation fails | of the agent's originals, made by the batch |
//! | `Timeout` | another program holds `/etc/.pwd.lock` | systemd does not answer |
//! | `Command` | of useradd, usermod and groupadd: closed databases, lock files, backups, settings, ids, groups, homes (`account_obstacles`, `account_ids`), names of name services (`users`) | others of them |
//! | `Bus`, `Job` | | each |
//! | `UnsafeFile`, `NotStopped`, `NoBackend`, `Os` | | not of these batches |
//!
//! `ApplyError::NotInConfig` is a broken plan (`plan::check`); `Stage`, `WrongImage` and `Late` are of the OS, which is staged before
//! the drain.

use std::collections::BTreeSet;

use crate::host::account_records::AccountRecords;
use crate::host::accounts::Accounts;
use crate::host::durable::{Change, DesiredPath, Examined, examine};
use crate::host::error::ANOTHER_PATH;
use crate::host::saved::PathSnapshot;
use crate::host::systemd::UnitLinks;
use crate::host::{
    HostError, Root, account_ids, account_obstacles, account_programs, keys, restore, selinux,
};
use crate::model::ids::{MCD_CONFIG, STATE_DIR};
use crate::model::obstacles::Space;
use crate::model::paths::{DirectorySpec, LinkTarget};
use crate::model::text::shell_word;
use crate::model::walk::opens;
use crate::model::{
    FileMode, HostSpec, ManagedPath, Observation, ObservedFile, Obstacle, Obstacles, PathSpec, Principal,
    UserName,
};

use super::parents::Parents;
use super::replaced::{Entries, ReplacedPaths};
use super::{ObserveError, ahead, names, unit_sources};

/// Looks for the obstacles of an update.
pub(super) fn obstacles(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    observed: &Observation,
    (restorable, parents): (&BTreeSet<ManagedPath>, &Parents),
    after: &UnitLinks<'_>,
) -> Result<Obstacles, ObserveError> {
    let mut found = Obstacles::default();
    let entries = (&from.entries(), &to.entries());
    let failed = || ObserveError::wrap("the files");
    let replaced = ReplacedPaths::load(root, entries, observed, restorable).map_err(failed())?;
    let paths =
        Paths { root, specs: (from, to), entries, observed, restorable, parents, replaced: &replaced };
    paths.files(&mut found).map_err(failed())?;
    names::obstacles(root, entries, &replaced, &mut found).map_err(failed())?;
    found.led = names::led_elsewhere(root, from).map_err(failed())?;
    ahead::obstacles(root, (from, to), entries, observed, &mut found).map_err(failed())?;
    unit_sources::obstacles(root, (from, to), observed, after, &mut found)
        .map_err(ObserveError::wrap("the units"))?;
    let has_users = |spec: &HostSpec| !spec.users.accounts.is_empty() || !spec.users.groups.is_empty();
    if has_users(from) || has_users(to) {
        let known = Accounts::load(root).map_err(ObserveError::wrap("the accounts"))?;
        accounts(root, &known, (from, to), &mut found).map_err(ObserveError::wrap("the accounts"))?;
        made(root, &known, to, &mut found).map_err(ObserveError::wrap("the accounts"))?;
    }
    let is_brought = to.files.keys().any(|path| path.as_str() == selinux::CONFIG);
    found.labels = selinux::obstacle(root, is_brought).map_err(ObserveError::wrap("the SELinux policy"))?;
    found.state = own_space(root, &format!("{STATE_DIR}/record.json"), &mut found)?;
    found.mcd = own_space(root, MCD_CONFIG, &mut found)?;
    Ok(found)
}

/// Looks at the space for a file of the agent's own. One that can't be reached is an error of its own.
fn own_space(root: &Root, path: &str, found: &mut Obstacles) -> Result<Option<u64>, ObserveError> {
    let change = Change::new(path, 0, DesiredPath::Absent);
    let examined = examine(root, &change).map_err(ObserveError::wrap("the agent's state"))?;
    Ok(examined.space.map(|(device, space)| {
        found.spaces.entry(device).or_insert(space);
        device
    }))
}

/// The paths of both configs.
struct Paths<'a> {
    root: &'a Root,
    specs: (&'a HostSpec, &'a HostSpec),
    entries: Entries<'a>,
    observed: &'a Observation,
    restorable: &'a BTreeSet<ManagedPath>,
    parents: &'a Parents,
    replaced: &'a ReplacedPaths<'a>,
}

impl Paths<'_> {
    fn files(&self, found: &mut Obstacles) -> Result<(), HostError> {
        let (old, new) = self.entries;
        for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let (was, is) = (old.get(path), new.get(path));
            // Nothing is there yet, wherever a link in place of the directory leads.
            if let Some(above) = self.replaced.directory_above(path) {
                if let Some(device) = found.devices.get(above).copied() {
                    found.devices.insert(path.clone(), device);
                }
                continue;
            }
            if was == is && is.is_some_and(|entry| is_right(path, entry, self.observed)) {
                continue;
            }
            if let Some(obstacle) = self.replaced.by_another_way(self.root, path)? {
                found.paths.insert(path.clone(), obstacle);
                continue;
            }
            self.examine(path, found)?;
        }
        for path in &self.parents.spare {
            let change = Change::new(path.as_str(), 0, DesiredPath::NoDirectory).entering(true);
            let obstacle = examine(self.root, &change)?.obstacle;
            found.paths.extend(obstacle.map(|obstacle| (path.clone(), obstacle)));
        }
        for (link, obstacle) in self.replaced.left_behind(self.root)? {
            found.paths.entry(link.clone()).or_insert(obstacle);
        }
        Ok(())
    }

    fn examine(&self, path: &ManagedPath, found: &mut Obstacles) -> Result<(), HostError> {
        let (was, is) = (self.entries.0.get(path), self.entries.1.get(path));
        let owner = is.or(was).and_then(|entry| uid(entry.owners().0?, self.observed)).unwrap_or_default();
        // As `apply` walks: a unit's directory is in no other hands than root's.
        let enters = [self.specs.0, self.specs.1].iter().any(|spec| spec.is_listed(path));
        let desired = match (was, is) {
            (Some(PathSpec::Directory(_)), None) => self.left_directory(path)?,
            (Some(_) | None, _) => desired(path, is, owner, self.restorable),
        };
        let change = Change::new(path.as_str(), owner, desired);
        let change = match was {
            Some(PathSpec::Directory(_)) => change.over_directory(),
            None if self.parents.made.contains(path) => change.over_directory(),
            Some(PathSpec::File(_) | PathSpec::Link(_)) | None => change,
        };
        let change = change.linked(self.is_linked(path)).entering(enters);
        let Examined { obstacle, space, not_kept } = examine(self.root, &change)?;
        found.not_kept.extend(not_kept.map(|lost| (path.clone(), lost)));
        if let Some((device, space)) = space {
            found.devices.insert(path.clone(), device);
            found.spaces.entry(device).or_insert(space);
        }
        let next = |next: String| match (was, is) {
            // What leaves has no other path.
            (_, None) => next.replace(ANOTHER_PATH, "keep the entry in the MachineConfig"),
            (Some(_), Some(_)) => next,
            (None, Some(_)) => or_removed(path, next),
        };
        let Some(obstacle) = obstacle else { return Ok(()) };
        let next = match self.closing(path) {
            // Originals are read, and names changed, in directories that are closed before the update begins.
            Some((directory, listed)) if self.is_changed(directory, listed) => format!(
                "Close {directory} in a separate update first: a config with its new entry, and with {path} as it is now."
            ),
            // An update of its own would change nothing there.
            Some((directory, listed)) => self.restoring(directory, listed)?,
            None => next(obstacle.next),
        };
        found.paths.insert(path.clone(), Obstacle { next, ..obstacle });
        Ok(())
    }

    /// Returns true if an update sets a directory's attributes.
    fn is_changed(&self, directory: &ManagedPath, listed: &DirectorySpec) -> bool {
        match self.entries.0.get(directory) {
            Some(PathSpec::Directory(old)) => (old.mode, &old.user) != (listed.mode, &listed.user),
            Some(PathSpec::File(_) | PathSpec::Link(_)) | None => true,
        }
    }

    /// Returns the commands that give a directory back what its entry sets. Where it has an access list, its mode shows the mask of that:
    /// chmod(1) alone would leave the list, and another mode.
    fn restoring(&self, directory: &ManagedPath, listed: &DirectorySpec) -> Result<String, HostError> {
        let quoted = shell_word(directory.as_str());
        let mut commands = Vec::new();
        if self.root.has_access_list(directory.as_str())? {
            commands.push(format!("setfacl -b {quoted}"));
        }
        let found = self.observed.files.get(directory).and_then(ObservedFile::directory);
        let is_other = |user: &&Principal| uid(user, self.observed) != found.map(|(_, owner)| owner);
        let user = listed.user.as_ref().filter(is_other);
        commands.extend(user.map(|user| format!("chown {user} {quoted}")));
        let mode = listed.mode.map_or("go-w".to_owned(), |mode| mode.to_string());
        commands.push(format!("chmod {mode} {quoted}"));
        Ok(format!("Check what it holds, and make it again as the config has it: {}", commands.join("; ")))
    }
}

impl Paths<'_> {
    /// Returns true for a hard link of a config, or the file that it is one of.
    fn is_linked(&self, path: &ManagedPath) -> bool {
        let mut links = self.specs.0.hard_targets().chain(self.specs.1.hard_targets());
        links.any(|(link, target)| link == path || target == path)
    }

    /// Returns what becomes of a directory that leaves, as `apply` has it.
    fn left_directory(&self, path: &ManagedPath) -> Result<DesiredPath<'static>, HostError> {
        let original =
            if self.restorable.contains(path) { restore::original(self.root, path)? } else { None };
        let is_back = matches!(original, None | Some(PathSnapshot::Directory { .. }));
        // It stays.
        if is_back && self.observed.files.get(path).is_some_and(ObservedFile::is_other_than_directory) {
            return Ok(DesiredPath::NoDirectory);
        }
        let (mode, uid, gid) = match original {
            Some(PathSnapshot::Directory { mode, uid, gid }) => (mode, uid, gid),
            _ if self.entries.1.keys().any(|other| other.is_below(path.as_str())) => {
                (FileMode::DIRECTORY.bits(), 0, 0)
            }
            Some(_) | None => return Ok(DesiredPath::NoDirectory),
        };
        Ok(DesiredPath::Directory { mode: Some(mode), uid: Some(uid), gid: Some(gid) })
    }

    /// Returns the directory above a path that others can change, and that the new config closes to them.
    fn closing(&self, path: &ManagedPath) -> Option<(&ManagedPath, &DirectorySpec)> {
        let is_closed = |(directory, listed): &(&ManagedPath, &DirectorySpec)| {
            let found = self.observed.files.get(*directory).and_then(ObservedFile::directory);
            found.is_some_and(|found| {
                let mode = listed.mode.map_or(found.0, FileMode::bits);
                let owner = listed.user.as_ref().map_or(Some(found.1), |user| uid(user, self.observed));
                path.is_below(directory.as_str())
                    && *directory != path
                    && owner.is_some_and(|owner| opens((mode, owner), found))
            })
        };
        let mut directories = self.entries.1.iter().filter_map(|(path, entry)| match entry {
            PathSpec::Directory(listed) => Some((path, listed)),
            PathSpec::File(_) | PathSpec::Link(_) => None,
        });
        directories.find(is_closed)
    }
}

/// Adds the other way out of an entry that is new: without it nothing is to be done there. One of the old config would leave.
fn or_removed(path: &ManagedPath, next: String) -> String {
    let is_of_kind = |begin: &str| next.starts_with(&format!("{begin} {path} "));
    match next.strip_suffix('.') {
        Some(text) if is_of_kind("Move") || is_of_kind("Unmount") => {
            format!("{text}, or remove it from the MachineConfig.")
        }
        Some(_) | None => next,
    }
}

/// Returns what a path becomes, as far as an obstacle depends on it.
fn desired<'a>(
    path: &ManagedPath,
    is: Option<&'a PathSpec>,
    owner: u32,
    restorable: &BTreeSet<ManagedPath>,
) -> DesiredPath<'a> {
    match is {
        Some(PathSpec::File(file)) => {
            DesiredPath::file(file.contents.bytes(), file.mode.bits(), owner, owner)
        }
        Some(PathSpec::Directory(_)) => DesiredPath::Directory { mode: None, uid: None, gid: None },
        Some(PathSpec::Link(link)) => match &link.target {
            LinkTarget::Soft(target) => DesiredPath::Link { target: target.clone(), owner: None },
            LinkTarget::Hard(target) => DesiredPath::HardLink { target: target.to_string() },
        },
        None if restorable.contains(path) => DesiredPath::file(&[], 0, owner, owner),
        None => DesiredPath::Absent,
    }
}

/// Returns true if nothing is to do for a file. Directories and links are looked at: that costs little.
fn is_right(path: &ManagedPath, entry: &PathSpec, observed: &Observation) -> bool {
    let found = observed.files.get(path);
    let (PathSpec::File(file), Some(ObservedFile::Regular { sha256, mode, .. })) = (entry, found) else {
        return false;
    };
    !observed.access_lists.contains(path) && *sha256 == file.contents.sha256() && *mode == file.mode.bits()
}

fn uid(principal: &Principal, observed: &Observation) -> Option<u32> {
    match principal {
        Principal::Id(uid) => Some(*uid),
        Principal::Name(name) => observed.user_ids.get(name).copied(),
    }
}

fn accounts(
    root: &Root,
    accounts: &Accounts,
    (from, to): (&HostSpec, &HostSpec),
    found: &mut Obstacles,
) -> Result<(), HostError> {
    found.databases = account_obstacles::databases(root)?;
    found.unreadable = account_obstacles::unreadable(root)?;
    found.links = account_obstacles::links(root)?;
    found.backups = account_obstacles::backups(root)?;
    found.defaults = account_obstacles::defaults(root)?;
    found.inherited_list = account_obstacles::inherited_list(root)?;
    // A database that is no file is one of the obstacles above.
    if found.unreadable.is_empty() {
        found.lines = account_obstacles::unfit_lines(root, &[&from.users, &to.users])?;
        found.lines.extend(account_obstacles::repeated_groups(root, accounts, &to.users)?);
        found.tabs = account_obstacles::tabs(root, accounts, &to.users)?;
        found.endless = account_obstacles::endless(root)?;
    }
    // Whoever holds a lock file holds that lock, too.
    found.password_lock = account_obstacles::password_lock(root)?;
    if found.password_lock.is_none() {
        found.locks = account_obstacles::locks(root)?;
    }
    if let Some((device, space, bytes)) = account_obstacles::databases_space(root)? {
        found.accounts.databases = Some((device, bytes));
        found.spaces.entry(device).or_insert(space);
    }
    let records = AccountRecords::load_current(root)?;
    for name in from.users.accounts.keys().chain(to.users.accounts.keys()).collect::<BTreeSet<_>>() {
        let Some(user) = accounts.user(name.as_str()) else { continue };
        let aside = keys::in_the_way(root, user)?;
        found.in_the_way.extend(aside.map(|aside| (name.to_string(), aside)));
        let keys_of = |spec: &HostSpec| {
            spec.users.accounts.get(name).is_some_and(|one| one.desired_keys(name).is_some())
        };
        // One of the agent's own that is opened again must not have old keys.
        let is_listed = |spec: &HostSpec| spec.users.accounts.get(name).is_some_and(|one| one.should_exist);
        let is_opened = records.is_made(name.as_str()) && is_listed(to) && !is_listed(from);
        let (was_written, is_written) = (keys_of(from), keys_of(to) || is_opened);
        if !was_written && !is_written {
            continue;
        }
        if !is_written {
            // Keys that go never keep an account from leaving.
            let is_elsewhere = records.is_written_elsewhere(root, name.as_str(), &user.home)?;
            let obstacle = if is_elsewhere { None } else { keys::unremovable(root, user) };
            found.leaving_keys.extend(obstacle.map(|obstacle| (name.to_string(), obstacle)));
            continue;
        }
        let Examined { obstacle, space, .. } = keys::examined(root, &user.home, user.uid)?;
        found.keys.extend(obstacle.map(|obstacle| (name.to_string(), obstacle)));
        has_home(found, name, space);
    }
    Ok(())
}

fn has_home(found: &mut Obstacles, name: &UserName, space: Option<(u64, Space)>) {
    if let Some((device, space)) = space {
        found.accounts.homes.insert(name.to_string(), device);
        found.spaces.entry(device).or_insert(space);
    }
}

/// Looks at the homes of the accounts that are made.
fn made(root: &Root, accounts: &Accounts, to: &HostSpec, found: &mut Obstacles) -> Result<(), HostError> {
    let made = to.users.accounts.iter().filter(|(name, account)| account.is_made(name));
    let made: Vec<_> = made.filter(|(name, _)| accounts.user(name.as_str()).is_none()).collect();
    // What can't be read is an obstacle of its own.
    if found.defaults.is_none() {
        found.ids = account_ids::exhausted(root, accounts, &to.users)?;
    }
    if !made.is_empty() {
        found.accounts.skeleton = account_obstacles::skeleton(root)?;
    }
    for (name, account) in made {
        let obstacle = account_obstacles::home(root, accounts, name.as_str(), account)?;
        found.homes.extend(obstacle.map(|obstacle| (name.to_string(), obstacle)));
        let home = account_programs::default_home(root, name.as_str(), account)?;
        let space = account_obstacles::home_space(root, &home, account.uid.unwrap_or_default())?;
        has_home(found, name, space);
    }
    Ok(())
}
