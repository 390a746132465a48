//! Refusals of the update on this host: looked for before the plan, so that no node is drained in vain.
//!
//! Paths whose entry is the same in both configs and whose file is right are left out: no step goes there.
//!
//! Errors of the batches of files, accounts and links (`ApplyError::Host` and `Originals`, by their `HostError`):
//!
//! | error | seen before |
//! |---|---|
//! | `Io` | read-only, immutable, no space, a name that is too long: yes (`durable::examine`); others: only a write tells |
//! | `UnsafeDirectory`, `Kind` | yes |
//! | `TooLarge` | yes: of originals by the plan, of extended attributes here |
//! | `UnknownAccount` | yes, by the plan |
//! | `Unit` | yes: the links are made in memory; a mask by the plan |
//! | `Malformed` | of accounts: this observation fails; of the agent's originals: no, they are made by the batch |
//! | `Timeout` | another program holds `/etc/.pwd.lock`: yes; systemd does not answer: no |
//! | `Command` | of useradd, usermod and groupadd: closed databases, lock files, ids, groups and homes (`account_obstacles`); others: no |
//! | `Bus`, `Job` | no: only the request to systemd tells |
//! | `UnsafeFile`, `NotStopped`, `NoBackend`, `Os` | not of these batches |
//!
//! `ApplyError::NotInConfig` is a broken plan (`plan::check`); `Stage`, `WrongImage` and `Late` are of the OS, which is staged before
//! the drain.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::accounts::Accounts;
use crate::host::durable::{Change, DesiredPath, Examined, examine};
use crate::host::systemd::{LinkVerb, UnitLinks};
use crate::host::{HostError, Root, account_obstacles, account_programs, keys};
use crate::model::ids::STATE_DIR;
use crate::model::observation::UnitFileState;
use crate::model::obstacles::Space;
use crate::model::paths::LinkTarget;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{
    HostSpec, ManagedPath, Observation, ObservedFile, Obstacle, Obstacles, PathSpec, Principal, UnitName,
    UserName,
};

use super::ObserveError;

/// Entries of the old and of the new config.
type Entries<'a> = (&'a BTreeMap<ManagedPath, PathSpec>, &'a BTreeMap<ManagedPath, PathSpec>);

/// Looks for the obstacles of an update.
pub(super) fn obstacles(
    root: &Root,
    from: &HostSpec,
    to: &HostSpec,
    observed: &Observation,
    restorable: &BTreeSet<ManagedPath>,
    links: &UnitLinks<'_>,
) -> Result<Obstacles, ObserveError> {
    let mut found = Obstacles::default();
    let entries = (&from.entries(), &to.entries());
    files(root, (from, to), entries, observed, restorable, &mut found)
        .map_err(ObserveError::wrap("the files"))?;
    two_names(root, entries, &mut found).map_err(ObserveError::wrap("the files"))?;
    units(root, (from, to), observed, links, &mut found).map_err(ObserveError::wrap("the units"))?;
    let has_users = |spec: &HostSpec| !spec.users.accounts.is_empty() || !spec.users.groups.is_empty();
    if has_users(from) || has_users(to) {
        let known = Accounts::load(root).map_err(ObserveError::wrap("the accounts"))?;
        accounts(root, &known, (from, to), &mut found).map_err(ObserveError::wrap("the accounts"))?;
        made(root, &known, to, &mut found).map_err(ObserveError::wrap("the accounts"))?;
    }
    let state = Change::new(format!("{STATE_DIR}/record.json"), 0, DesiredPath::Absent);
    // A state that can't be reached is an error of its own.
    if let Examined { space: Some((device, space)), .. } =
        examine(root, &state).map_err(ObserveError::wrap("the agent's state"))?
    {
        found.state = Some(device);
        found.spaces.insert(device, space);
    }
    Ok(found)
}

fn files(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    (old, new): Entries<'_>,
    observed: &Observation,
    restorable: &BTreeSet<ManagedPath>,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    let mut replaced: Vec<&ManagedPath> = Vec::new();
    let changed = changed_links(root, (old, new), observed)?;
    for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (was, is) = (old.get(path), new.get(path));
        // Nothing is there yet, wherever a link in place of the directory leads.
        if let Some(above) = replaced.iter().find(|above| path.is_below(above.as_str())) {
            if let Some(device) = found.devices.get(*above).copied() {
                found.devices.insert(path.clone(), device);
            }
            continue;
        }
        let is_directory = match (was, is) {
            (_, Some(PathSpec::Directory(_))) => true,
            // A link that leaves makes way for what is below it.
            (Some(PathSpec::Link(_)), None) => {
                !restorable.contains(path) && new.keys().any(|other| other.is_below(path.as_str()))
            }
            (Some(PathSpec::File(_) | PathSpec::Directory(_) | PathSpec::Link(_)) | None, _) => false,
        };
        if is_directory
            && matches!(
                observed.files.get(path),
                Some(ObservedFile::Regular { .. } | ObservedFile::Symlink { .. })
            )
        {
            replaced.push(path);
        }
        if was == is && is.is_some_and(|entry| is_right(entry, observed.files.get(path))) {
            continue;
        }
        if let Some(obstacle) = by_another_way(root, path, &changed)? {
            found.paths.insert(path.clone(), obstacle);
            continue;
        }
        let owner = is.or(was).and_then(|entry| uid(entry.owners().0?, observed)).unwrap_or_default();
        // As `apply` walks: a unit's directory is in no other hands than root's.
        let enters = [from, to].iter().any(|spec| spec.is_listed(path));
        let change = Change::new(path.as_str(), owner, desired(path, was, is, owner, restorable));
        let change = match was {
            Some(PathSpec::Directory(_)) => change.over_directory(),
            Some(PathSpec::File(_) | PathSpec::Link(_)) | None => change,
        };
        let Examined { obstacle, space } = examine(root, &change.entering(enters))?;
        if let Some((device, space)) = space {
            found.devices.insert(path.clone(), device);
            found.spaces.entry(device).or_insert(space);
        }
        found.paths.extend(obstacle.map(|obstacle| (path.clone(), obstacle)));
    }
    Ok(())
}

/// Refuses changes of a file that the configs list by two names, since a directory on the way is a link (`/opt` to `/var/opt`).
fn two_names(root: &Root, (old, new): Entries<'_>, found: &mut Obstacles) -> Result<(), HostError> {
    let mut directories: BTreeMap<&str, String> = BTreeMap::new();
    let mut names: BTreeMap<String, Vec<&ManagedPath>> = BTreeMap::new();
    let is_leaving = |path: &ManagedPath| {
        matches!(old.get(path), Some(PathSpec::Link(_))) && old.get(path) != new.get(path)
    };
    let leaving: Vec<&ManagedPath> = old.keys().filter(|path| is_leaving(path)).collect();
    for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        // Below a link that leaves it is in a directory of its own.
        if leaving.iter().any(|link| *link != path && path.is_below(link.as_str())) {
            continue;
        }
        let Some((directory, name)) = path.as_str().rsplit_once('/') else { continue };
        if !directories.contains_key(directory) {
            let probe = root.real_path(&format!("{directory}/{name}"))?;
            let real = probe.rsplit_once('/').map_or("", |(real, _)| real).to_owned();
            directories.insert(directory, real);
        }
        let real = directories.get(directory).map(String::as_str).unwrap_or_default();
        names.entry(format!("{real}/{name}")).or_default().push(path);
    }
    for (real, paths) in names.into_iter().filter(|(_, paths)| paths.len() > 1) {
        if !paths.iter().any(|path| new.contains_key(*path)) {
            continue;
        }
        for path in paths.iter().filter(|path| old.get(**path) != new.get(**path)) {
            let other =
                paths.iter().find(|other| *other != path).map_or(real.as_str(), |other| other.as_str());
            let obstacle = Obstacle {
                cause: format!("on this host it is the same file as {other} ({real})"),
                next: "List it by one name; another name takes an update without either in between."
                    .to_owned(),
            };
            found.paths.entry((*path).clone()).or_insert(obstacle);
        }
    }
    Ok(())
}

/// Returns the links on this host that this update removes or replaces, each by where it really is.
fn changed_links<'a>(
    root: &Root,
    (old, new): Entries<'a>,
    observed: &Observation,
) -> Result<BTreeMap<String, &'a ManagedPath>, HostError> {
    let mut changed = BTreeMap::new();
    for path in old.keys().chain(new.keys()) {
        let Some(ObservedFile::Symlink { target: found, .. }) = observed.files.get(path) else { continue };
        let stays = match new.get(path) {
            Some(PathSpec::Link(link)) => matches!(&link.target, LinkTarget::Soft(text) if text == found),
            Some(PathSpec::File(_) | PathSpec::Directory(_)) | None => false,
        };
        if !stays {
            changed.insert(root.real_path(path.as_str())?, path);
        }
    }
    Ok(changed)
}

/// Returns the obstacle of a path that leads through a link that this update changes, but is not below it by its name.
fn by_another_way(
    root: &Root,
    path: &ManagedPath,
    changed: &BTreeMap<String, &ManagedPath>,
) -> Result<Option<Obstacle>, HostError> {
    if changed.is_empty() {
        return Ok(None);
    }
    let through = root.links_on_the_way(path.as_str())?;
    let link = through.iter().find_map(|real| changed.get(real));
    Ok(link.filter(|link| !path.is_below(link.as_str())).map(|link| Obstacle {
        cause: format!("{path} leads through the link {link}, which this update changes"),
        next: format!("Change {link} in an update of its own first."),
    }))
}

/// Returns what a path becomes, as far as an obstacle depends on it.
fn desired<'a>(
    path: &ManagedPath,
    was: Option<&PathSpec>,
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
        None => match was {
            Some(PathSpec::Directory(_)) => DesiredPath::NoDirectory,
            Some(PathSpec::File(_) | PathSpec::Link(_)) | None if restorable.contains(path) => {
                DesiredPath::file(&[], 0, owner, owner)
            }
            Some(PathSpec::File(_) | PathSpec::Link(_)) | None => DesiredPath::Absent,
        },
    }
}

/// Returns true if nothing is to do for a file. Directories and links are looked at: that costs little.
fn is_right(entry: &PathSpec, found: Option<&ObservedFile>) -> bool {
    let (PathSpec::File(file), Some(ObservedFile::Regular { sha256, mode, .. })) = (entry, found) else {
        return false;
    };
    *sha256 == file.contents.sha256() && *mode == file.mode.bits()
}

fn uid(principal: &Principal, observed: &Observation) -> Option<u32> {
    match principal {
        Principal::Id(uid) => Some(*uid),
        Principal::Name(name) => observed.user_ids.get(name).copied(),
    }
}

/// Tries the changes of links in memory.
fn units(
    root: &Root,
    (from, to): (&HostSpec, &HostSpec),
    observed: &Observation,
    links: &UnitLinks<'_>,
    found: &mut Obstacles,
) -> Result<(), HostError> {
    let changed = to.units.iter().filter(|(name, unit)| from.units.get(*name) != Some(*unit));
    let changed: Vec<_> = changed.collect();
    if changed.is_empty() {
        return Ok(());
    }
    let (mut links, mut seen) = (links.clone(), BTreeSet::new());
    for (name, unit) in changed {
        for verb in verbs(unit) {
            match links.make(verb, name) {
                // The plan says whether a mask stays.
                Err(HostError::Unit { .. }) if is_masked(name, observed) => {}
                Err(error @ HostError::Unit { .. }) => {
                    found.units.insert(name.clone(), (&error).into());
                }
                made => made?,
            }
        }
        for change in links.changes(&[]) {
            if seen.insert(change.path().to_owned())
                && let Some(obstacle) = examine(root, &change)?.obstacle
            {
                found.units.entry(name.clone()).or_insert(obstacle);
            }
        }
    }
    Ok(())
}

fn is_masked(name: &UnitName, observed: &Observation) -> bool {
    observed.units.get(name).is_some_and(|unit| unit.enabled == UnitFileState::Masked)
}

fn verbs(unit: &UnitSpec) -> Vec<LinkVerb> {
    let enablement = match unit.enablement {
        Enablement::Enabled => LinkVerb::Enable,
        Enablement::Disabled => LinkVerb::Disable,
        Enablement::Preset => LinkVerb::Preset,
    };
    match unit.mask {
        Mask::Masked => vec![LinkVerb::Mask],
        Mask::Unmasked => vec![LinkVerb::Unmask, enablement],
        Mask::Unset => vec![enablement],
    }
}

fn accounts(
    root: &Root,
    accounts: &Accounts,
    (from, to): (&HostSpec, &HostSpec),
    found: &mut Obstacles,
) -> Result<(), HostError> {
    found.databases = account_obstacles::databases(root)?;
    // Whoever holds a lock file holds that lock, too.
    found.password_lock = account_obstacles::password_lock(root)?;
    if found.password_lock.is_none() {
        found.locks = account_obstacles::locks(root)?;
    }
    if let Some((device, space, bytes)) = account_obstacles::databases_space(root)? {
        found.accounts.databases = Some((device, bytes));
        found.spaces.entry(device).or_insert(space);
    }
    for name in from.users.accounts.keys().chain(to.users.accounts.keys()).collect::<BTreeSet<_>>() {
        let Some(user) = accounts.user(name.as_str()) else { continue };
        let aside = keys::in_the_way(root, user)?;
        found.in_the_way.extend(aside.map(|aside| (name.to_string(), aside)));
        // Keys that go never keep an account from leaving.
        let is_written = to.users.accounts.get(name).is_some_and(|new| new.desired_keys(name).is_some());
        if !is_written {
            continue;
        }
        let Examined { obstacle, space } = keys::examined(root, &user.home, user.uid)?;
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
