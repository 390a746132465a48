//! Files, unit files, drop-ins, directories and links: written, removed, restored, all in one durable batch.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::accounts::Accounts;
use crate::host::durable::{self, Attempt, Change, DesiredPath};
use crate::host::error::ORIGINALS;
use crate::host::restore;
use crate::host::saved::{self, PathSnapshot};
use crate::host::{Hands, Host, HostError, parents};
use crate::journal::Intent;
use crate::model::paths::LinkTarget;
use crate::model::{FileMode, FileSpec, HostSpec, ManagedPath, ObservedFile, Owner, PathSpec, Principal};
use crate::plan::{BatchOp, FileOp, Op, Step};

use super::ApplyError;
use super::foreign::{self, Checked, DisplacedDirectories};
use super::run_steps::directory_stays;

/// The extended attributes of a file.
type Attributes = Vec<(String, Vec<u8>)>;

/// Outcome of one path.
enum Outcome<'a> {
    Write { file: &'a FileSpec, gid: u32, hands: Hands },
    Link { target: &'a str, gid: u32, hands: Hands },
    HardLink { target: &'a ManagedPath, hands: Hands },
    Directory { mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, hands: Hands },
    Restore { saved: PathSnapshot, attributes: Attributes, hands: Hands },
    Remove { hands: Hands },
    RemoveDirectory { hands: Hands },
}

impl Outcome<'_> {
    /// Returns true if nothing is to be at the path.
    fn is_removal(&self) -> bool {
        matches!(self, Self::Remove { .. } | Self::RemoveDirectory { .. })
    }
}

/// Carries out the steps of one batch of files.
pub(super) fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let made = parents::made(&host.root, intent.from()).map_err(ApplyError::host("the directories"))?;
    let specs = Entries { old: intent.from().entries(), new: intent.to().entries(), made };
    let accounts = Accounts::load(&host.root).map_err(ApplyError::host("the files"))?;
    let outcomes = outcomes(intent, host, (&specs, &accounts), steps)?;
    let mut changes: Vec<Change<'_>> =
        outcomes.iter().map(|(path, outcome)| specs.told(path, change(path, outcome))).collect();
    let failed = || ApplyError::host("the files");
    let displaced = displaced(intent, host, &specs, &outcomes).map_err(failed())?;
    let leaving = outcomes.iter().filter(|(_, outcome)| outcome.is_removal());
    let leaving = leaving.map(|(path, _)| (path, specs.old.get(path)));
    let stays = foreign::left(intent, host, &displaced, leaving).map_err(failed())?;
    changes.retain(|change| !stays.contains(change.path()));
    check_led(intent, host, &specs, &changes).map_err(failed())?;
    leave_settled(intent, host, &outcomes, &mut changes).map_err(failed())?;
    let run = intent
        .originals()
        .save(&host.root, &changes, &intent.from().written(), None)
        .map_err(ApplyError::originals("the files"))?;
    host.fail_points.hit("originals-saved");
    // The plan may be of an earlier process, and somebody may have put something there since.
    check_foreign(host, (&specs, intent.from()), &displaced, &changes).map_err(failed())?;
    if run != Attempt::First {
        let is_removed = |path: &ManagedPath| matches!(outcomes.get(path), Some(Outcome::Remove { .. }));
        let stays = foreign::put_meanwhile(intent, host, is_removed).map_err(failed())?;
        changes.retain(|change| !stays.contains(change.path()));
    }
    let done = durable::apply_changes(&host.root, &changes, run, &host.fail_points);
    for path in &done.map_err(failed())?.left {
        directory_stays(intent, path);
    }
    Ok(())
}

/// Returns what becomes of each path.
fn outcomes<'a>(
    intent: &Intent<'_>,
    host: &Host,
    (specs, accounts): (&'a Entries, &Accounts),
    steps: &[Step],
) -> Result<BTreeMap<ManagedPath, Outcome<'a>>, ApplyError> {
    let mut outcomes = BTreeMap::new();
    for step in steps {
        let not_in = || ApplyError::foreign(step, intent.to().name.as_str());
        let (BatchOp::File(op), Some(path)) = (step.op.in_batch(), step.op.path()) else {
            return Err(not_in());
        };
        let entry = specs.new.get(&path);
        let failed = || ApplyError::host(step.to_string());
        if matches!(op, FileOp::Remove | FileOp::Restore | FileOp::LeaveDirectory)
            || (op == FileOp::OpenDirectory && entry.is_none())
        {
            check_original(host, intent.from(), &path).map_err(failed())?;
        }
        let outcome = match (op, entry) {
            (FileOp::Write | FileOp::Directory | FileOp::Link | FileOp::OpenDirectory, Some(entry)) => {
                let kept = kept_attributes(host, specs, &path, entry).map_err(failed())?;
                written(accounts, step, entry, kept).map_err(failed())?
            }
            (FileOp::Write | FileOp::Directory | FileOp::Link, None) => return Err(not_in()),
            (FileOp::Remove, _) => {
                let hands = specs.hands(accounts, step, &path);
                if specs.makes_way(&path) {
                    Outcome::Directory { mode: None, uid: None, gid: None, hands }
                } else {
                    Outcome::Remove { hands }
                }
            }
            (FileOp::Restore, _) => {
                let hands = specs.hands(accounts, step, &path);
                let original = restore::original(&host.root, &path).map_err(failed())?;
                original.map_or(Outcome::Remove { hands }, |saved| restored(saved, hands))
            }
            (FileOp::LeaveDirectory, _) | (FileOp::OpenDirectory, None) => {
                let hands = specs.hands(accounts, step, &path);
                left_directory(host, specs, &path, hands).map_err(failed())?
            }
        };
        outcomes.insert(path, outcome);
    }
    Ok(outcomes)
}

/// Leaves out the paths that are as they are to be already, and could not be changed. As a plan takes them: nothing is written there, and
/// no original is needed. What an earlier run of the batch saved, it may have written.
fn leave_settled(
    intent: &Intent<'_>,
    host: &Host,
    outcomes: &BTreeMap<ManagedPath, Outcome<'_>>,
    changes: &mut Vec<Change<'_>>,
) -> Result<(), HostError> {
    let mut settled = BTreeSet::new();
    for change in changes.iter() {
        let Ok(path) = ManagedPath::new(change.path()) else { continue };
        let Some(outcome) = outcomes.get(&path) else { continue };
        if change.is_removal()
            || durable::leads_elsewhere(&host.root, change, changes)?
            || durable::examine(&host.root, change)?.obstacle.is_none()
        {
            continue;
        }
        let is_right = match outcome {
            // A label may be another one by now.
            Outcome::Restore { saved, .. } => host.root.observe(path.as_str())? == saved.observed(),
            Outcome::Write { .. }
            | Outcome::Link { .. }
            | Outcome::HardLink { .. }
            | Outcome::Directory { .. }
            | Outcome::Remove { .. }
            | Outcome::RemoveDirectory { .. } => durable::is_in_sync(&host.root, change)?,
        };
        if is_right {
            settled.insert(path.to_string());
        }
    }
    if settled.is_empty() {
        return Ok(());
    }
    let saved = intent.originals().load(&host.root, &intent.from().written())?;
    for original in saved.into_iter().flat_map(|saved| saved.paths) {
        settled.remove(&original.path);
    }
    changes.retain(|change| !settled.contains(change.path()));
    Ok(())
}

/// Refuses to take a path away that the host had before, and whose original went after the plan: nothing could bring it back.
fn check_original(host: &Host, from: &HostSpec, path: &ManagedPath) -> Result<(), HostError> {
    if !from.originals.contains(path) || saved::load_original(&host.root, path)?.is_some() {
        return Ok(());
    }
    let (path, cause) = (saved::original_path(path), "it was deleted after the plan was made".to_owned());
    Err(HostError::Malformed { path, format: ORIGINALS, cause })
}

/// Refuses to go on where somebody put something in the place of an entry.
fn check_foreign(
    host: &Host,
    (specs, from): (&Entries, &HostSpec),
    displaced: &DisplacedDirectories,
    changes: &[Change<'_>],
) -> Result<(), HostError> {
    for change in changes {
        let Ok(path) = ManagedPath::new(change.path()) else { continue };
        if durable::leads_elsewhere(&host.root, change, changes)? {
            continue;
        }
        let (old, new) = (specs.old.get(&path), specs.new.get(&path));
        foreign::check(host, from, displaced, &Checked { path: &path, old, new, change })?;
    }
    Ok(())
}

/// Refuses to go on where links of the host lead elsewhere than when the old config, or an interrupted run of the batch, wrote there.
fn check_led(
    intent: &Intent<'_>,
    host: &Host,
    specs: &Entries,
    changes: &[Change<'_>],
) -> Result<(), HostError> {
    if let Some(saved) = intent.originals().load(&host.root, &intent.from().written())? {
        let attributes = Vec::new();
        let all: Vec<Change<'_>> =
            saved.paths.iter().map(|original| original.put_back(&attributes)).collect();
        let led = foreign::led_elsewhere(intent, host, &saved.paths, &all)?;
        return led.into_values().next().map_or(Ok(()), Err);
    }
    for path in changes.iter().filter_map(|change| ManagedPath::new(change.path()).ok()) {
        if let Some(error) = parents::left_elsewhere(&host.root, intent.from(), &path)?
            && specs.old.contains_key(&path)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Looks for the directories in whose place somebody put a link. An interrupted run of the batch may have made some.
fn displaced(
    intent: &Intent<'_>,
    host: &Host,
    specs: &Entries,
    outcomes: &BTreeMap<ManagedPath, Outcome<'_>>,
) -> Result<DisplacedDirectories, HostError> {
    let made_by_batch = intent.originals().made_directories(&host.root)?;
    // One that the batch makes is there before what is in it.
    let is_made = |path: &ManagedPath| matches!(outcomes.get(path), Some(Outcome::Directory { .. }));
    let listed = foreign::directories(&specs.old).chain(made_by_batch).filter(|path| !is_made(path));
    DisplacedDirectories::load(host, listed, &specs.made)
}

/// Every path of both configs.
struct Entries {
    old: BTreeMap<ManagedPath, PathSpec>,
    new: BTreeMap<ManagedPath, PathSpec>,
    /// Directories that the agent made for paths of the old config.
    made: BTreeSet<ManagedPath>,
}

impl Entries {
    /// Returns the user, besides root, whose directories the path of the old config may lead through. An owner that the
    /// host has forgotten can't be trusted with directories; root can.
    fn hands(&self, accounts: &Accounts, step: &Step, path: &ManagedPath) -> Hands {
        let user = self.old.get(path).and_then(|entry| entry.owners().0);
        hands(step, user.and_then(|user| user_id(accounts, user).ok()).unwrap_or(0))
    }

    /// Adds what the old config made of the path.
    fn told<'a>(&self, path: &ManagedPath, change: Change<'a>) -> Change<'a> {
        match self.old.get(path) {
            Some(PathSpec::Directory(_)) => change.over_directory(),
            Some(PathSpec::Link(link)) => match link.hard_target() {
                Some(target) => change.from_hard_link(target.as_str()),
                None => change,
            },
            None if self.made.contains(path) => change.over_directory(),
            Some(PathSpec::File(_)) | None => change,
        }
    }

    /// Returns true if a file or a link becomes a directory, for what the new config has below it.
    fn makes_way(&self, path: &ManagedPath) -> bool {
        matches!(self.old.get(path), Some(PathSpec::File(_) | PathSpec::Link(_))) && self.needs(path)
    }

    /// Returns true if the new config has something in a directory.
    fn needs(&self, directory: &ManagedPath) -> bool {
        self.new.keys().any(|path| path.is_below(directory.as_str()))
    }
}

/// Attributes of a directory where its entry sets none; `None` leaves what is there.
#[derive(Debug, Clone, Copy, Default)]
struct Unset {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Returns the attributes that a directory gets where its entry sets none: of those that it no longer sets, and of one that is
/// made again, the ones from before the first config; else those of a directory that the agent makes.
fn kept_attributes(
    host: &Host,
    specs: &Entries,
    path: &ManagedPath,
    entry: &PathSpec,
) -> Result<Unset, HostError> {
    let (Some(PathSpec::Directory(old)), PathSpec::Directory(new)) = (specs.old.get(path), entry) else {
        return Ok(Unset::default());
    };
    let is_made = !matches!(host.root.observe(path.as_str())?, ObservedFile::Directory { .. });
    if !is_made && !new.drops_attributes_of(old) {
        return Ok(Unset::default());
    }
    let (mode, uid, gid) = match restore::original(&host.root, path)? {
        Some(PathSnapshot::Directory { mode, uid, gid }) => (mode, uid, gid),
        Some(_) | None => (FileMode::DIRECTORY.bits(), 0, 0),
    };
    if is_made {
        return Ok(Unset { mode: Some(mode), uid: Some(uid), gid: Some(gid) });
    }
    Ok(Unset {
        mode: old.mode.is_some().then_some(mode),
        uid: old.user.is_some().then_some(uid),
        gid: old.group.is_some().then_some(gid),
    })
}

/// Returns what a path of the new config becomes.
fn written<'a>(
    accounts: &Accounts,
    step: &Step,
    entry: &'a PathSpec,
    unset: Unset,
) -> Result<Outcome<'a>, HostError> {
    Ok(match entry {
        PathSpec::File(file) => {
            let (uid, gid) = ids(accounts, &file.owner)?;
            Outcome::Write { file, gid, hands: hands(step, uid) }
        }
        PathSpec::Directory(directory) => {
            let uid = directory.user.as_ref().map(|user| user_id(accounts, user)).transpose()?;
            let gid = directory.group.as_ref().map(|group| group_id(accounts, group)).transpose()?;
            let hands = hands(step, uid.unwrap_or(0));
            let mode = directory.mode.map(FileMode::bits).or(unset.mode);
            Outcome::Directory { mode, uid: uid.or(unset.uid), gid: gid.or(unset.gid), hands }
        }
        PathSpec::Link(link) => match &link.target {
            LinkTarget::Soft(target) => {
                let (uid, gid) = ids(accounts, &link.owner)?;
                Outcome::Link { target, gid, hands: hands(step, uid) }
            }
            LinkTarget::Hard(target) => Outcome::HardLink { target, hands: hands(step, 0) },
        },
    })
}

fn restored<'a>(saved: PathSnapshot, hands: Hands) -> Outcome<'a> {
    Outcome::Restore { attributes: saved.attributes(), saved, hands }
}

/// Returns what becomes of a directory that leaves the config: its original, or nothing. One that the new config's files
/// are in becomes one that is made for them. What somebody put in its place stays: what was in the directory is gone.
fn left_directory<'a>(
    host: &Host,
    specs: &Entries,
    path: &ManagedPath,
    hands: Hands,
) -> Result<Outcome<'a>, HostError> {
    let original = restore::original(&host.root, path)?;
    let is_uncovered = matches!(original, Some(PathSnapshot::File { .. } | PathSnapshot::Link { .. }));
    if host.root.observe(path.as_str())?.is_other_than_directory() && (!is_uncovered || specs.needs(path)) {
        return Ok(Outcome::RemoveDirectory { hands });
    }
    Ok(match original {
        Some(saved @ PathSnapshot::Directory { .. }) => restored(saved, hands),
        _ if specs.needs(path) => {
            let mode = Some(FileMode::DIRECTORY.bits());
            Outcome::Directory { mode, uid: Some(0), gid: Some(0), hands }
        }
        // What is in its way is refused: the original is no other's.
        Some(saved) => restored(saved, hands),
        None => Outcome::RemoveDirectory { hands },
    })
}

/// A unit's directory is not to be in other hands than root's: what is in it runs as root.
fn hands(step: &Step, uid: u32) -> Hands {
    let is_file = !matches!(
        step.op,
        Op::WriteUnit { .. } | Op::RemoveUnit { .. } | Op::WriteDropin { .. } | Op::RemoveDropin { .. }
    );
    Hands { trusted: uid, enters: is_file }
}

fn change<'a>(path: &ManagedPath, outcome: &'a Outcome<'_>) -> Change<'a> {
    match outcome {
        Outcome::Write { file, gid, hands: Hands { trusted, enters } } => {
            let want = DesiredPath::file(file.contents.bytes(), file.mode.bits(), *trusted, *gid);
            Change::new(path.as_str(), *trusted, want).entering(*enters)
        }
        Outcome::Link { target, gid, hands: Hands { trusted, enters } } => {
            let want = DesiredPath::Link { target: (*target).to_owned(), owner: Some((*trusted, *gid)) };
            Change::new(path.as_str(), *trusted, want).entering(*enters)
        }
        Outcome::HardLink { target, hands: Hands { trusted, enters } } => {
            let want = DesiredPath::HardLink { target: target.to_string() };
            Change::new(path.as_str(), *trusted, want).entering(*enters)
        }
        Outcome::Directory { mode, uid, gid, hands: Hands { trusted, enters } } => {
            let want = DesiredPath::Directory { mode: *mode, uid: *uid, gid: *gid };
            Change::new(path.as_str(), *trusted, want).entering(*enters)
        }
        Outcome::RemoveDirectory { hands: Hands { trusted, enters } } => {
            Change::new(path.as_str(), *trusted, DesiredPath::NoDirectory).entering(*enters)
        }
        Outcome::Restore { saved, attributes, hands } => saved.put_back(path.as_str(), *hands, attributes),
        Outcome::Remove { hands: Hands { trusted, enters } } => {
            Change::new(path.as_str(), *trusted, DesiredPath::Absent).entering(*enters)
        }
    }
}

fn ids(accounts: &Accounts, owner: &Owner) -> Result<(u32, u32), HostError> {
    Ok((user_id(accounts, &owner.user)?, group_id(accounts, &owner.group)?))
}

fn user_id(accounts: &Accounts, user: &Principal) -> Result<u32, HostError> {
    match user {
        Principal::Id(uid) => Ok(*uid),
        Principal::Name(name) => Ok(accounts.user(name).ok_or_else(|| unknown("user", name))?.uid),
    }
}

fn group_id(accounts: &Accounts, group: &Principal) -> Result<u32, HostError> {
    match group {
        Principal::Id(gid) => Ok(*gid),
        Principal::Name(name) => accounts.group(name).ok_or_else(|| unknown("group", name)),
    }
}

fn unknown(kind: &'static str, name: &str) -> HostError {
    HostError::UnknownAccount { kind, name: name.to_owned() }
}
