//! Taking back: originals are put back exactly, the staged deployment is dropped, services see their old files again.
//!
//! A path that can't be reached any more (a directory on the way became another user's, or no directory) does not keep
//! the others from being put back. One that is as it was saved was never changed, or is back. One that is not, in
//! directories of another user, is left and reported: a user who moves his own directory must not hold the node. So is
//! one whose original is behind a link that is not back. In directories of root all else is an error, and tried again.

use std::collections::BTreeMap;

use crate::host::durable::{self, Attempt, Change};
use crate::host::os::OsChange;
use crate::host::saved::PathSnapshot;
use crate::host::systemd::DEV_NULL;
use crate::host::{
    Host, HostError, OsProgress, account_kept, accounts, etc_merge, keys_kept, next_root, parents, restore,
};
use crate::journal::Intent;
use crate::journal::originals::{Original, Preimages};
use crate::model::ids::{UNIT_DIR, is_below};
use crate::model::paths::LinkTarget;
use crate::model::units::Mask;
use crate::model::users::CORE;
use crate::model::{HostSpec, ManagedPath, ObservedFile, PathSpec, UnitName};
use crate::plan::{Step, Undo};

use super::error::ApplyError;
use super::foreign::{self, DisplacedDirectories};
use super::run_steps::{
    ApplyContext, account_stays, changed_meanwhile, directory_stays, left_as_it_is, run_step, together,
};
use super::{services, users};

/// Carries out one undo step; each may be repeated.
pub(super) async fn apply_batch(
    intent: &Intent<'_>,
    host: &Host,
    undo: &Undo,
    steps: &[Step],
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    match undo {
        Undo::UnstageOs => {
            let failed = || ApplyError::host("the old deployment");
            let dropped = async {
                // Before the mount goes: `systemctl reboot` takes that way by itself.
                next_root::drop(&host.root, &host.systemd).await.map_err(failed())?;
                host.change_deployments(OsChange::Unstage, progress).await.map_err(failed())?;
                etc_merge::forget(&host.root).map_err(failed())
            };
            together(intent, steps, "taking back ", dropped).await
        }
        Undo::RestoreOriginals { .. } => {
            together(intent, steps, "taking back ", async { put_back(intent, host, steps) }).await
        }
        Undo::RepeatServices { .. } => {
            for (index, step) in steps.iter().enumerate() {
                // The files are back, which matters most; a service that fails now also failed on the way, and its
                // error is in the log.
                let place = ApplyContext::new(intent, index, steps);
                drop(run_step(step, place, services::apply_batch(host, step)).await);
                host.fail_points.hit("service");
            }
            Ok(())
        }
    }
}

/// Returns true if nobody but root leads a path elsewhere.
fn is_of_root(host: &Host, change: &Change<'_>) -> bool {
    change.trusted() == 0 && !durable::is_of_account(&host.root, change).unwrap_or(false)
}

fn put_back(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let loaded = intent
        .originals()
        .load(&host.root, &intent.from().written())
        .map_err(ApplyError::originals("a batch"))?;
    // A batch that saved nothing changed nothing.
    let Some(mut preimages) = loaded else { return Ok(()) };
    keep_keys(intent, host, &mut preimages);
    let attributes: Vec<_> = preimages.paths.iter().map(|original| original.saved.attributes()).collect();
    let both = preimages.paths.iter().zip(&attributes);
    let failed = || ApplyError::host("the originals");
    let all: Vec<Change<'_>> = both.map(|(original, attributes)| original.put_back(attributes)).collect();
    let displaced = displaced(intent, host, &all).map_err(failed())?;
    let led = foreign::led_elsewhere(intent, host, &preimages.paths, &all).map_err(failed())?;
    let reached = all.iter().filter(|change| !led.contains_key(change.path()));
    let reached = reached.filter(|change| is_reached(intent, &displaced, change));
    // An original behind a link of the batch was read through it: it goes back there, after the link.
    let (behind, first): (Vec<_>, Vec<_>) =
        reached.cloned().partition(|change| all.iter().any(|other| change.goes_through(other)));
    let is_out_of_reach = |path: &str| led.contains_key(path) || displaced.above(path).is_some();
    set_aside(intent, host, (&preimages.paths, &all), &is_out_of_reach).map_err(failed())?;
    let mut refused = refused_of(intent, host, led, &all);
    for part in [first, behind] {
        refused = put_back_paths(intent, host, &part, &all).map_err(failed())?.or(refused);
    }
    if let Some(hash) = &preimages.password
        && accounts::password(&host.root, CORE).map_err(failed())?.is_some()
    {
        let users = &intent.to().users;
        let (hash, stays) = account_kept::password_of_core(&host.root, users, hash).map_err(failed())?;
        if stays {
            account_stays(intent, &format!("account {CORE}"), "password");
        }
        accounts::set_password(&host.root, CORE, &hash, Attempt::Again, &host.fail_points)
            .map_err(failed())?;
    }
    if let Some(accounts) = &preimages.accounts {
        let kept = accounts
            .put_back(&host.root, (&intent.from().users, &intent.to().users), &host.fail_points)
            .map_err(failed())?;
        for (name, parts) in kept {
            account_stays(intent, &name, &parts.into_iter().collect::<Vec<_>>().join(", "));
        }
    }
    users::name_missing_keys(intent, host, steps, &preimages.paths).map_err(failed())?;
    refused.map_or(Ok(()), |obstacle| Err(failed()(obstacle)))
}

/// Keeps what persons have changed of keys files since the update. One that can't be read goes back as it was saved: a home that is away keeps
/// no other original from coming back.
fn keep_keys(intent: &Intent<'_>, host: &Host, preimages: &mut Preimages) {
    let (users, lines) = (&intent.to().users, preimages.accounts.as_ref());
    for original in &mut preimages.paths {
        let merged = keys_kept::merged(&host.root, users, lines, (&original.path, &original.saved));
        match merged {
            Ok(Some((name, file))) => {
                account_stays(intent, &format!("account {name}"), "keys");
                original.saved = file;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("{}: lines that were added since are not looked for: {error}", original.path);
            }
        }
    }
}

/// Looks for directories in whose place somebody put a link during the update, and that the undo does not make again.
fn displaced(
    intent: &Intent<'_>,
    host: &Host,
    all: &[Change<'_>],
) -> Result<DisplacedDirectories, HostError> {
    let (old, new) = (intent.from().entries(), intent.to().entries());
    let comes_back =
        |path: &ManagedPath| all.iter().any(|change| change.path() == path.as_str() && !change.is_removal());
    let gone = all.iter().filter(|change| change.is_directory() && change.is_removal());
    let gone = gone.filter_map(|change| ManagedPath::new(change.path()).ok());
    let listed = foreign::directories(&old).chain(foreign::directories(&new)).chain(gone);
    let made = parents::made(&host.root, intent.from())?;
    let made = made.into_iter().filter(|path| !comes_back(path)).collect();
    DisplacedDirectories::load(host, listed.filter(|path| !comes_back(path)), &made)
}

/// Names the paths that are led elsewhere, and returns the error of one that an administrator has to lead back.
fn refused_of(
    intent: &Intent<'_>,
    host: &Host,
    led: BTreeMap<String, HostError>,
    all: &[Change<'_>],
) -> Option<HostError> {
    let mut refused = None;
    for (path, error) in led {
        let change = all.iter().find(|change| change.path() == path);
        let is_held = change.is_some_and(|change| !change.is_directory() && is_of_root(host, change));
        if is_held && refused.is_none() {
            refused = Some(error);
        } else {
            left_as_it_is(intent, &path, &error);
        }
    }
    refused
}

/// Returns false for a path behind such a link: what is there is not of the update.
fn is_reached(intent: &Intent<'_>, displaced: &DisplacedDirectories, change: &Change<'_>) -> bool {
    let Some((directory, _)) = displaced.above(change.path()) else { return true };
    left_as_it_is(intent, change.path(), &DisplacedDirectories::error(directory));
    false
}

/// Moves files, links and directories aside that somebody put in the place of an entry, or changed, during the update: only what was
/// there before is saved.
fn set_aside(
    intent: &Intent<'_>,
    host: &Host,
    (saved, all): (&[Original], &[Change<'_>]),
    is_out_of_reach: &dyn Fn(&str) -> bool,
) -> Result<(), HostError> {
    let (old, new) = (intent.from().entries(), intent.to().entries());
    for (Original { path, saved, directory, .. }, change) in saved.iter().zip(all) {
        if is_out_of_reach(path) {
            continue;
        }
        if is_directory_instead(host, change, all)? {
            // A mount stays; what it is in the way of is reported.
            if let Ok(Some(aside)) = host.root.move_aside_there(path) {
                changed_meanwhile(intent, path, &aside);
            }
            continue;
        }
        let Ok(listed) = ManagedPath::new(path.as_str()) else { continue };
        let entry = new.get(&listed);
        let found = host.root.observe(path)?;
        let is_hard = is_second_name(intent, host, (path, &found), (saved, entry))?;
        // Links of units are in no entry. A directory that the batch makes never takes the place of anything.
        let is_of_unit = !*directory && is_below(path, UNIT_DIR);
        let is_listed = entry.is_some() || old.contains_key(&listed) || is_of_unit;
        // A file in the place of a directory that the batch makes stays there.
        let stays = matches!(entry, Some(PathSpec::Directory(_))) && *saved == PathSnapshot::Absent;
        if is_hard
            || stays
            || !is_listed
            || !is_of_root(host, change)
            || durable::leads_elsewhere(&host.root, change, all)?
        {
            continue;
        }
        if !may_be_foreign(intent.to(), &listed, &found) {
            continue;
        }
        // The batch puts back what the host had before the old config.
        let back = restore::original(&host.root, &listed)?;
        let is_kept = back.into_iter().any(|kept| is_same_entry(&found, &kept.observed()));
        if is_written(entry, &found) || is_kept || is_same_entry(&found, &saved.observed()) {
            continue;
        }
        match host.root.move_aside_there(path) {
            Ok(Some(aside)) => changed_meanwhile(intent, path, &aside),
            // Out of reach: nothing is put back there either.
            Err(error) if error.is_lasting() => {}
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true if what is found is as the new config's entry has it.
fn is_written(entry: Option<&PathSpec>, found: &ObservedFile) -> bool {
    match entry {
        Some(PathSpec::File(file)) => file.has_content_of(found),
        Some(PathSpec::Link(link)) => {
            matches!(found, ObservedFile::Symlink { target, .. } if link.target == LinkTarget::Soft(target.clone()))
        }
        Some(PathSpec::Directory(_)) | None => false,
    }
}

/// Returns true for a file, and for a link that the update can't have made for a unit: its mask, another name of a unit, or a link that
/// starts it. One that brings a unit file, as `systemctl link` makes it, is a person's.
fn may_be_foreign(to: &HostSpec, path: &ManagedPath, found: &ObservedFile) -> bool {
    let ObservedFile::Symlink { target, .. } = found else {
        return matches!(found, ObservedFile::Regular { .. });
    };
    let Some((directory, name)) = path.as_str().rsplit_once('/').filter(|_| path.is_below(UNIT_DIR)) else {
        return true;
    };
    if target == DEV_NULL {
        let unit = UnitName::new(name).ok();
        return unit.and_then(|unit| to.units.get(&unit)).is_none_or(|unit| unit.mask != Mask::Masked);
    }
    directory == UNIT_DIR && target.rsplit('/').next() == Some(name)
}

/// Returns true if what is found may be the hard link that the update made, or took away.
fn is_second_name(
    intent: &Intent<'_>,
    host: &Host,
    (path, found): (&str, &ObservedFile),
    (saved, entry): (&PathSnapshot, Option<&PathSpec>),
) -> Result<bool, HostError> {
    if let PathSnapshot::HardLink { target } = saved
        && let Ok(target) = ManagedPath::new(target.as_str())
        && foreign::is_name(host, intent.from(), (path, found), &target)?
    {
        return Ok(true);
    }
    let target = match entry {
        Some(PathSpec::Link(link)) => link.hard_target(),
        Some(PathSpec::File(_) | PathSpec::Directory(_)) | None => None,
    };
    target.map_or(Ok(false), |target| foreign::is_name(host, intent.to(), (path, found), target))
}

/// Returns true if a directory, which no batch makes there, is in the place of what is put back.
fn is_directory_instead(host: &Host, change: &Change<'_>, all: &[Change<'_>]) -> Result<bool, HostError> {
    Ok(!change.may_be_directory()
        && is_of_root(host, change)
        && !durable::leads_elsewhere(&host.root, change, all)?
        && matches!(host.root.observe(change.path())?, ObservedFile::Directory { .. }))
}

/// Returns true if both are files of the same bytes, or links of the same text.
fn is_same_entry(one: &ObservedFile, other: &ObservedFile) -> bool {
    let is_same_link = matches!((one, other),
        (ObservedFile::Symlink { target: one, .. }, ObservedFile::Symlink { target: other, .. }) if one == other);
    is_same_link || one.has_content_of(other)
}

/// Returns the error of a path whose original is behind a link that is not back.
fn lost_link(host: &Host, change: &Change<'_>, all: &[Change<'_>]) -> Option<HostError> {
    let mut links = all.iter().filter(|other| change.goes_through(other));
    let lost = links.find(|link| !durable::is_in_sync(&host.root, link).unwrap_or(false))?;
    let (path, expected) = (lost.path().to_owned(), "a symbolic link");
    Some(HostError::Kind { path, expected, found: "something else, or nothing" })
}

/// Puts back what nothing is in the way of. Returns what is to be tried again.
fn put_back_paths(
    intent: &Intent<'_>,
    host: &Host,
    part: &[Change<'_>],
    all: &[Change<'_>],
) -> Result<Option<HostError>, HostError> {
    let (mut changes, mut refused): (Vec<Change<'_>>, _) = (Vec::new(), None);
    // Files before the hard links to them.
    let others = part.iter().filter(|change| !change.is_hard_link());
    for change in others.chain(durable::after_targets(part)) {
        let lost = lost_link(host, change, all);
        let is_left = change.is_hard_link() || lost.is_some();
        let obstacle = if durable::leads_elsewhere(&host.root, change, all)? {
            None
        } else if lost.is_some() {
            lost
        } else {
            durable::obstacle(&host.root, change, &changes)?
        };
        match obstacle {
            None => changes.push(change.clone()),
            Some(_) if durable::is_in_sync(&host.root, change).unwrap_or(false) => {}
            // Its link is no config's, or the file of a hard link is gone: nothing would bring that back.
            Some(obstacle) if is_left => left_as_it_is(intent, change.path(), &obstacle),
            Some(obstacle) if is_of_root(host, change) => refused = Some(obstacle),
            Some(obstacle) => left_as_it_is(intent, change.path(), &obstacle),
        }
    }
    let full: Vec<Change<'_>> =
        changes.iter().filter(|change| is_full(host, change, &changes)).cloned().collect();
    changes.retain(|change| !full.iter().any(|full| full.path() == change.path()));
    apply_each(intent, host, changes)?;
    apply_each(intent, host, cleared(intent, host, full)?)?;
    Ok(refused)
}

/// Moves the directories aside that hold what is not of the batch, once that is gone. Returns the changes in whose way nothing is then.
fn cleared<'a>(
    intent: &Intent<'_>,
    host: &Host,
    full: Vec<Change<'a>>,
) -> Result<Vec<Change<'a>>, HostError> {
    let mut cleared = Vec::new();
    for change in full {
        let path = change.path();
        let aside = match change.is_removal() {
            // Nothing comes back in its place.
            true => Ok(None),
            false if is_of_root(host, &change) => host.root.move_aside_there(path),
            // The owner may do this again and again: once the names are taken, it stays.
            false => host.root.move_aside_by(path, change.hands()),
        };
        match aside {
            Ok(Some(aside)) => {
                changed_meanwhile(intent, path, &aside);
                cleared.push(change);
            }
            Ok(None) => directory_stays(intent, path),
            // A mount stays.
            Err(error) if error.is_lasting() || error.is_of_names() => directory_stays(intent, path),
            Err(error) => return Err(error),
        }
    }
    Ok(cleared)
}

/// Applies the changes: those in directories of root together; the others one by one, since the owner of one directory must not
/// keep the others from being put back. What goes from a directory goes before it, and what comes into one after it.
fn apply_each(intent: &Intent<'_>, host: &Host, changes: Vec<Change<'_>>) -> Result<(), HostError> {
    let (others, roots): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| durable::is_of_account(&host.root, change).unwrap_or(false));
    let (mut gone, back): (Vec<_>, Vec<_>) = others.into_iter().partition(Change::is_removal);
    let together = |changes: &[Change<'_>]| -> Result<(), HostError> {
        let done = durable::apply_changes(&host.root, changes, Attempt::Again, &host.fail_points)?;
        done.left.iter().for_each(|path| directory_stays(intent, path));
        Ok(())
    };
    let alone = |changes: &[Change<'_>], is_left: fn(&HostError) -> bool| {
        for change in changes {
            match together(std::slice::from_ref(change)) {
                Err(error) if is_left(&error) => left_as_it_is(intent, change.path(), &error),
                done => done?,
            }
        }
        Ok(())
    };
    let (hard, back): (Vec<_>, Vec<_>) = back.into_iter().partition(Change::is_hard_link);
    let waits = |change: &Change<'_>| {
        change.hard_target().is_some_and(|target| back.iter().any(|file| file.path() == target))
    };
    let (late, roots): (Vec<_>, Vec<_>) = roots.into_iter().partition(waits);
    // The deepest first.
    gone.sort_by(|one, other| other.path().cmp(one.path()));
    alone(&gone, HostError::is_of_names)?;
    // A path that came to be of another kind meanwhile is left out of the next try, which puts the others back.
    together(&roots)?;
    alone(&back, HostError::is_of_names)?;
    alone(&hard, HostError::is_of_names)?;
    alone(&late, HostError::is_of_kind)
}

/// Returns true if a directory that the batch made holds what is not of the batch: nothing takes its place.
fn is_full(host: &Host, change: &Change<'_>, all: &[Change<'_>]) -> bool {
    change.replaces_directory() && holds_others(host, change.path(), all)
}

/// Returns true if something in a directory is not of the batch, as deep as it goes.
fn holds_others(host: &Host, directory: &str, all: &[Change<'_>]) -> bool {
    let is_directory = |path: &str| matches!(host.root.observe(path), Ok(ObservedFile::Directory { .. }));
    if !is_directory(directory) {
        return false;
    }
    let gone = |path: &str| all.iter().any(|other| other.path() == path && other.is_removal());
    // A directory that was made for what goes.
    let between = |path: &str| {
        let is_made = host.root.observe(path).is_ok_and(|found| found == ObservedFile::MADE_DIRECTORY);
        is_made && all.iter().any(|other| other.is_removal() && is_below(other.path(), path))
    };
    let is_other = |name: &String| {
        let path = format!("{directory}/{name}");
        let is_ours = name.ends_with(durable::DRAFT_SUFFIX) || gone(&path) || between(&path);
        !is_ours || holds_others(host, &path, all)
    };
    host.root.list(directory).is_ok_and(|names| names.iter().any(is_other))
}
