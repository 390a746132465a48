//! Directories as an update leaves them, and the paths that a write, a removal or an undo would not reach through them.
//!
//! The host has directories between those of the config: a home, `/tmp`. The walk of a write is asked, and sees what the update
//! makes of them.

use std::collections::BTreeMap;

use crate::host::accounts::Accounts;
use crate::host::error::Unsafe;
use crate::host::saved::PathSnapshot;
use crate::host::{
    DirectoriesAhead, DirectoryAhead, Hands, HostError, Root, account_programs, keys, restore,
};
use crate::model::paths::DirectorySpec;
use crate::model::walk::{Access, opens};
use crate::model::{
    FileMode, HostSpec, ManagedPath, Observation, ObservedFile, Obstacle, Obstacles, PathSpec, Principal,
    UserName,
};

use super::replaced::Entries;

/// Mode of a home that is made.
const HOME_MODE: u32 = 0o700;

/// Looks for the paths that are closed.
pub(super) fn obstacles(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    entries: Entries<'_>,
    observed: &Observation,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    let accounts = Accounts::load(root)?;
    let (directories, meanwhile) = <(DirectoriesAhead, DirectoriesAhead)>::default();
    let opened = BTreeMap::new();
    let mut ahead = Ahead { root, specs: (from, to), entries, observed, directories, meanwhile, opened };
    ahead.load()?;
    ahead.homes(&accounts)?;
    if ahead.directories.is_empty() {
        return Ok(());
    }
    found.opened.clone_from(&ahead.opened);
    let (old, new) = entries;
    for path in old.keys().chain(new.keys().filter(|path| !old.contains_key(*path))) {
        let obstacle = ahead.closed(path)?;
        found.closed.extend(obstacle.map(|obstacle| (path.clone(), obstacle)));
    }
    for (name, account) in to.users.accounts.iter().filter(|(name, one)| one.desired_keys(name).is_some()) {
        let (home, uid) = match accounts.user(name.as_str()) {
            Some(user) => (user.home.clone(), user.uid),
            None if account.is_made(name) => {
                let home = account_programs::default_home(root, name.as_str(), account)?;
                (home, to.users.id_ahead(name.as_str()))
            }
            None => continue,
        };
        let directory = keys::directory(&home);
        let keys = format!("the keys of {name}");
        if let Some(obstacle) = ahead.walk(&keys, &directory, uid.into(), &ahead.directories)? {
            found.keys.entry(name.to_string()).or_insert(obstacle);
        }
    }
    Ok(())
}

struct Ahead<'a> {
    root: &'a Root,
    specs: (&'a HostSpec, &'a HostSpec),
    entries: Entries<'a>,
    observed: &'a Observation,
    /// As they will be.
    directories: DirectoriesAhead,
    /// As they are when what leaves goes: before those that are opened to others.
    meanwhile: DirectoriesAhead,
    opened: BTreeMap<ManagedPath, Access>,
}

impl Ahead<'_> {
    /// Takes the directories that the update makes or changes.
    fn load(&mut self) -> Result<(), HostError> {
        let (old, new) = self.entries;
        let mut planned = BTreeMap::new();
        for (path, entry) in new {
            if let PathSpec::Directory(directory) = entry
                && old.get(path) != Some(entry)
            {
                planned.insert(path, self.listed(path, directory)?);
            }
        }
        let stays = |path: &ManagedPath, entry: &PathSpec| {
            let found = self.observed.files.get(path);
            let is_other = found.is_some_and(ObservedFile::is_other_than_directory);
            self.specs.0.unapplied.contains(path) || (is_other && matches!(entry, PathSpec::Directory(_)))
        };
        let left = old.iter().filter(|(path, entry)| !new.contains_key(*path) && !stays(path, entry));
        for (path, entry) in left {
            let is_needed = || new.keys().any(|other| other.is_below(path.as_str()));
            let original = restore::original(self.root, path)?;
            let ahead = match (entry, original) {
                (PathSpec::Directory(_), Some(PathSnapshot::Directory { mode, uid, .. })) => {
                    Some(DirectoryAhead { mode, uid })
                }
                (PathSpec::Directory(_), _) | (_, None) if is_needed() => Some(DirectoryAhead::MADE),
                (PathSpec::Directory(_) | PathSpec::File(_) | PathSpec::Link(_), _) => None,
            };
            planned.extend(ahead.map(|ahead| (path, ahead)));
        }
        for (path, ahead) in planned {
            let real = self.root.real_path(path.as_str())?;
            let found = self.observed.files.get(path).and_then(ObservedFile::directory);
            if found.is_some_and(|found| opens(found, (ahead.mode, ahead.uid))) {
                self.opened.insert(path.clone(), (ahead.mode, ahead.uid));
            } else {
                self.meanwhile.insert(real.clone(), ahead);
            }
            self.directories.insert(real, ahead);
        }
        Ok(())
    }

    /// Returns a listed directory as it will be: what its entry does not set stays, or is as before the first config.
    fn listed(&self, path: &ManagedPath, directory: &DirectorySpec) -> Result<DirectoryAhead, HostError> {
        let found = self.observed.files.get(path).and_then(ObservedFile::directory);
        let found = found.map(|(mode, uid)| DirectoryAhead { mode, uid });
        let mut unset = found.unwrap_or(DirectoryAhead::MADE);
        if let Some(PathSpec::Directory(old)) = self.entries.0.get(path) {
            let before = match restore::original(self.root, path)? {
                Some(PathSnapshot::Directory { mode, uid, .. }) => DirectoryAhead { mode, uid },
                Some(_) | None => DirectoryAhead::MADE,
            };
            unset.mode = if found.is_none() || old.mode.is_some() { before.mode } else { unset.mode };
            unset.uid = if found.is_none() || old.user.is_some() { before.uid } else { unset.uid };
        }
        Ok(DirectoryAhead {
            mode: directory.mode.map_or(unset.mode, FileMode::bits),
            uid: directory.user.as_ref().map_or(unset.uid, |user| self.uid(user)),
        })
    }

    /// Adds the homes that useradd makes.
    fn homes(&mut self, accounts: &Accounts) -> Result<(), HostError> {
        let (from, to) = self.specs;
        for (name, account) in &to.users.accounts {
            if !to.makes_user(from, name.as_str()) || accounts.user(name.as_str()).is_some() {
                continue;
            }
            let home = account_programs::home_of(self.root, name.as_str(), account)?;
            let Some(home) = home.map(|home| home.trim_end_matches('/').to_owned()) else { continue };
            let real = self.root.real_path(&home)?;
            if self.root.observe(&home)? == ObservedFile::Absent && self.directories.get(&real).is_none() {
                let uid = self.specs.1.users.id_ahead(name.as_str());
                let home = DirectoryAhead { mode: HOME_MODE, uid };
                self.meanwhile.insert(real.clone(), home);
                self.directories.insert(real, home);
            }
        }
        Ok(())
    }

    fn uid(&self, user: &Principal) -> u32 {
        match user {
            Principal::Id(uid) => *uid,
            Principal::Name(name) => {
                let found = self.observed.user_ids.get(name).copied();
                found.unwrap_or_else(|| self.specs.1.users.id_ahead(name))
            }
        }
    }

    /// Returns the obstacle of a managed path.
    fn closed(&self, path: &ManagedPath) -> Result<Option<Obstacle>, HostError> {
        let (old, new) = self.entries;
        let Some(entry) = new.get(path).or_else(|| old.get(path)) else { return Ok(None) };
        let Some((directory, _)) = path.as_str().rsplit_once('/') else { return Ok(None) };
        let trusted = entry.owners().0.map_or(0, |user| self.uid(user));
        let enters = [self.specs.0, self.specs.1].iter().any(|spec| spec.is_listed(path));
        let hands = Hands { trusted, enters };
        let target = match entry {
            PathSpec::Link(link) if new.contains_key(path) => link.hard_target(),
            PathSpec::Link(_) | PathSpec::File(_) | PathSpec::Directory(_) => None,
        };
        let above = target.and_then(|target| target.as_str().rsplit_once('/'));
        let ahead = if new.contains_key(path) { &self.directories } else { &self.meanwhile };
        match (self.walk(path.as_str(), directory, hands, ahead)?, target, above) {
            (None, Some(target), Some((above, _))) => self.walk(target.as_str(), above, hands, ahead),
            (obstacle, ..) => Ok(obstacle),
        }
    }

    fn walk(
        &self,
        object: &str,
        directory: &str,
        hands: Hands,
        ahead: &DirectoriesAhead,
    ) -> Result<Option<Obstacle>, HostError> {
        match self.root.walk_ahead(directory, hands, ahead) {
            Ok(()) => Ok(None),
            Err(HostError::UnsafeDirectory { directory, rule, .. }) => {
                Ok(Some(self.refusal(object, &directory, rule)))
            }
            Err(error @ HostError::Kind { .. }) if error.is_mount() => Ok(Some((&error).into())),
            // What is there now is looked at by itself.
            Err(error) if error.is_lasting() || error.is_of_names() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn refusal(&self, object: &str, directory: &str, rule: Unsafe) -> Obstacle {
        let name = |uid: u32| {
            let named =
                self.observed.user_ids.iter().find(|(_, one)| **one == uid).map(|(name, _)| name.as_str());
            let made = self.specs.1.users.name_ahead(uid).map(UserName::as_str);
            named.or(made).map_or_else(|| format!("uid {uid}"), str::to_owned)
        };
        let (cause, next) = match rule {
            Unsafe::Owner { uid, .. } | Unsafe::Account { uid, .. } => (
                format!(
                    "{directory} belongs to {}, in a directory of another account or one that others can write to",
                    name(uid)
                ),
                "give the listed directories above it to root, or to the owner of what is written there",
            ),
            Unsafe::Writable { mode, .. } | Unsafe::Shared { mode, .. } => (
                format!("others than its owner can write to {directory} (mode {mode:04o})"),
                "remove the write permission of group and others, or set the sticky bit (01000)",
            ),
            Unsafe::Link { uid } | Unsafe::LinkOfAccount { uid } => (
                format!("the link {directory} is in a directory of {}", name(uid)),
                "name the path that it leads to",
            ),
            Unsafe::LinkText => (format!("the link {directory} is not UTF-8"), "replace it"),
        };
        let cause = format!("{object} is out of reach once the directories are as in this config: {cause}");
        let next = if self.is_left(object) {
            format!("remove {object} in a separate update first")
        } else {
            format!("{next}, or use another path")
        };
        Obstacle { cause, next }
    }

    /// Returns true for a path of the old config alone.
    fn is_left(&self, object: &str) -> bool {
        let is =
            |entries: &BTreeMap<ManagedPath, PathSpec>| entries.keys().any(|path| path.as_str() == object);
        is(self.entries.0) && !is(self.entries.1)
    }
}
