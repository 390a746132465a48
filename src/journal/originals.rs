//! Originals of a batch's paths: saved in one durable file before the batch changes anything.
//!
//! Invariant: an original in a file is never written again, so a rerun after a crash can't save its own
//! work as the original; and the list covers everything that the batch changes. The one exception is a path where a rerun finds what the
//! batch can't have made, and what no config wrote: somebody put it there meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::host::account_lines::AccountLines;
use crate::host::durable::{self, Attempt, Change, DesiredPath};
use crate::host::error::ORIGINALS;
use crate::host::parents::{self, RealPaths};
use crate::host::restore::OriginalLookup;
use crate::host::saved::{self, Bytes, PREIMAGES, PathSnapshot};
use crate::host::{Hands, HostError, Root};
use crate::model::ids::{ENCAPSULATED, IMAGE_ORIGINALS, STATE_DIR};
use crate::model::obstacles::LARGEST_ORIGINALS;
use crate::model::paths::LinkTarget;
use crate::model::units::Mask;
use crate::model::users::PasswordHash;
use crate::model::{FileMode, FileSpec, HostSpec, ManagedPath, ObservedFile, PathSpec, UpdateId};

/// Ignition's record of an installation.
const IGNITION_RESULT: &str = "/etc/.ignition-result.json";

/// The version of the file's shape. 2 has content of the old config, which is not copied.
pub(super) const SCHEMA: u32 = 2;

/// File of one batch's originals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Originals {
    update: UpdateId,
    batch: usize,
}

/// One path as it was.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Original {
    /// The path.
    pub path: String,
    /// The user, besides root, whose directories it may lead through.
    pub trusted: u32,
    /// It may lead through directories of any other account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enters: bool,
    /// The original.
    pub saved: PathSnapshot,
    /// Set if the batch makes a directory there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    /// The directory that links of the host led to, where it has another name. Earlier agents wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub led: Option<String>,
}

impl Original {
    /// Makes the change that restores it. `attributes` are the original's.
    pub fn put_back<'a>(&'a self, attributes: &'a [(String, Vec<u8>)]) -> Change<'a> {
        if self.directory && self.saved == PathSnapshot::Absent {
            let change = Change::new(self.path.as_str(), self.trusted, DesiredPath::NoDirectory);
            return change.entering(self.enters);
        }
        let change = self.saved.put_back(&self.path, self.hands(), attributes);
        if self.directory { change.over_directory() } else { change }
    }
}

impl Original {
    /// Returns the accounts whose directories it may lead through.
    pub fn hands(&self) -> Hands {
        Hands { trusted: self.trusted, enters: self.enters }
    }
}

/// Originals of one batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Document {
    schema: u32,
    paths: Vec<Original>,
    password: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accounts: Option<AccountLines>,
}

/// Originals to restore.
#[derive(Debug, Clone)]
pub struct Preimages {
    /// The paths.
    pub paths: Vec<Original>,
    /// The password field of `core`, when the batch was to set it.
    pub password: Option<PasswordHash>,
    /// The lines of accounts and groups.
    pub accounts: Option<AccountLines>,
}

impl Originals {
    /// Returns the update that they are of.
    pub(super) fn update(&self) -> &UpdateId {
        &self.update
    }

    /// Names the originals of a batch, by its place in the plan of an update.
    pub fn new(update: UpdateId, batch: usize) -> Self {
        Self { update, batch }
    }

    /// Returns the name of the batch.
    pub fn batch(&self) -> String {
        format!("{}/{}", self.update, self.batch)
    }

    fn path(&self) -> String {
        format!("{PREIMAGES}/{}/{}.json", self.update, self.batch)
    }

    /// Saves the originals of the changes. When they were saved before, nothing is written: the batch is being
    /// repeated. A file whose bytes are those that the old config has `written` is written again from there: so whatever a config wrote,
    /// the next can replace.
    pub fn save(
        &self,
        root: &Root,
        changes: &[Change<'_>],
        written: &BTreeMap<ManagedPath, FileSpec>,
        password: Option<&PasswordHash>,
    ) -> Result<Attempt, HostError> {
        if self.is_saved(root)? {
            self.add_foreign(root, changes, Some(written))?;
            return Ok(Attempt::Again);
        }
        self.save_new(root, changes, written, password, AccountLines::default())
    }

    /// Saves the originals of the changes, and the lines of accounts and groups.
    pub fn save_with(
        &self,
        root: &Root,
        changes: &[Change<'_>],
        written: &BTreeMap<ManagedPath, FileSpec>,
        password: Option<&PasswordHash>,
        lines: AccountLines,
    ) -> Result<Attempt, HostError> {
        if self.is_saved(root)? {
            self.add_foreign(root, changes, None)?;
            return Ok(Attempt::Again);
        }
        self.save_new(root, changes, written, password, lines)
    }

    /// Returns true if the batch is being repeated.
    pub fn is_saved(&self, root: &Root) -> Result<bool, HostError> {
        let own = format!("{PREIMAGES}/{}", self.update);
        if root.exists(&own)? {
            // A process that made or saved something there may have died before the names were durable.
            for directory in [own.as_str(), PREIMAGES, STATE_DIR] {
                durable::sync_directory(root, directory)?;
            }
        }
        root.exists(&self.path())
    }

    fn save_new(
        &self,
        root: &Root,
        changes: &[Change<'_>],
        written: &BTreeMap<ManagedPath, FileSpec>,
        password: Option<&PasswordHash>,
        lines: AccountLines,
    ) -> Result<Attempt, HostError> {
        let path = self.path();
        let (mut paths, mut size) = (Vec::with_capacity(changes.len()), 0_u64);
        for change in changes {
            let (path, hands) = (change.path().to_owned(), change.hands());
            let own = ManagedPath::new(&*path).ok().and_then(|path| written.get(&path));
            let saved = if durable::leads_elsewhere(root, change, changes)? {
                PathSnapshot::Absent
            } else {
                match PathSnapshot::read_to_replace(root, change, own.map(|file| &file.contents)) {
                    Err(error) if change.is_of_owner() && error.is_of_names() => continue,
                    Err(error) if durable::is_gone(root, change, &error) => continue,
                    read => read?,
                }
            };
            size = size.saturating_add(u64::try_from(saved.size()).unwrap_or(u64::MAX));
            if size > LARGEST_ORIGINALS {
                let path = format!("{path}, with all else that is replaced,");
                return Err(HostError::TooLarge { path, size, limit: LARGEST_ORIGINALS });
            }
            let Hands { trusted, enters } = hands;
            let led = durable::led_by_host(root, change, changes)?;
            paths.push(Original { path, trusted, enters, saved, directory: change.makes_directory(), led });
        }
        paths.extend(made_parents(root, changes)?);
        let password = password.map(|hash| Bytes::new(hash.as_str().as_bytes()));
        let schema = if paths.iter().any(|one| one.saved.is_own()) { SCHEMA } else { 1 };
        let accounts = (!lines.is_empty()).then_some(lines);
        let document = Document { schema, paths, password, accounts };
        let json = serde_json::to_vec(&document).map_err(|error| saved::malformed(&path, &error))?;
        root.replace(&path, &json, FileMode::PRIVATE)?;
        Ok(Attempt::First)
    }

    /// Saves what somebody put where nothing was, or in the place of a file of the host, and what the batch itself does not make: an
    /// interrupted run goes on, and would replace it. Paths of the old config, which has `written` them, keep their original.
    fn add_foreign(
        &self,
        root: &Root,
        changes: &[Change<'_>],
        written: Option<&BTreeMap<ManagedPath, FileSpec>>,
    ) -> Result<(), HostError> {
        let path = self.path();
        let Some(mut document) = read(root, &path)? else { return Ok(()) };
        let mut is_changed = false;
        let of_host = |one: &Original| {
            let is_written = |written: &BTreeMap<ManagedPath, FileSpec>| {
                ManagedPath::new(&*one.path).is_ok_and(|path| written.contains_key(&path))
            };
            matches!(one.saved, PathSnapshot::File { .. })
                && written.is_some_and(|written| !is_written(written))
        };
        let is_open = |one: &&mut Original| one.saved == PathSnapshot::Absent || of_host(one);
        for original in document.paths.iter_mut().filter(is_open) {
            let Some(change) = changes.iter().find(|change| change.path() == original.path) else { continue };
            let found = root.observe(change.path())?;
            if durable::may_have_made(root, change, &found)?
                || found.has_content_of(&original.saved.observed())
                || durable::leads_elsewhere(root, change, changes)?
            {
                continue;
            }
            original.saved = PathSnapshot::read_to_replace(root, change, None)?;
            is_changed = true;
        }
        if !is_changed {
            return Ok(());
        }
        let json = serde_json::to_vec(&document).map_err(|error| saved::malformed(&path, &error))?;
        root.replace(&path, &json, FileMode::PRIVATE)
    }

    /// Adds paths that another program changed beyond the saved ones, as they were. Paths that are saved already keep
    /// their original; the file is written only when there is something to add.
    pub fn add(&self, root: &Root, found: Vec<(String, PathSnapshot)>) -> Result<(), HostError> {
        let path = self.path();
        let Some(mut document) = read(root, &path)? else { return Ok(()) };
        let known: BTreeSet<String> = document.paths.iter().map(|one| one.path.clone()).collect();
        let new = found.into_iter().filter(|(path, _)| !known.contains(path));
        let before = document.paths.len();
        document.paths.extend(new.map(|(path, saved)| Original {
            path,
            trusted: 0,
            enters: false,
            saved,
            directory: false,
            led: None,
        }));
        if document.paths.len() == before {
            return Ok(());
        }
        let json = serde_json::to_vec(&document).map_err(|error| saved::malformed(&path, &error))?;
        root.replace(&path, &json, FileMode::PRIVATE)
    }

    /// Reads the originals, to put them back; `None` when the batch never began. `own` is the old config's content.
    pub fn load(
        &self,
        root: &Root,
        own: &BTreeMap<ManagedPath, FileSpec>,
    ) -> Result<Option<Preimages>, HostError> {
        let Some(preimages) = self.read(root, own)? else { return Ok(None) };
        // As in `save`: nothing is built on a name that may be gone after a power cut.
        durable::sync_directory(root, &format!("{PREIMAGES}/{}", self.update))?;
        Ok(Some(preimages))
    }

    /// Returns the paths in whose place an interrupted run of the batch may have made a directory.
    pub fn directories(&self, root: &Root) -> Result<BTreeSet<ManagedPath>, HostError> {
        let saved = read(root, &self.path())?.map(|document| document.paths).unwrap_or_default();
        let made = saved.into_iter().filter(|original| original.directory);
        Ok(made.filter_map(|original| ManagedPath::new(original.path).ok()).collect())
    }

    /// Returns the directories that the batch makes, or an interrupted run of it has made, where nothing was.
    pub fn made_directories(&self, root: &Root) -> Result<BTreeSet<ManagedPath>, HostError> {
        let saved = read(root, &self.path())?.map(|document| document.paths).unwrap_or_default();
        let made = saved.into_iter().filter(|one| one.directory && one.saved == PathSnapshot::Absent);
        Ok(made.filter_map(|original| ManagedPath::new(original.path).ok()).collect())
    }

    /// As [`Originals::load`], for a look.
    pub(super) fn read(
        &self,
        root: &Root,
        own: &BTreeMap<ManagedPath, FileSpec>,
    ) -> Result<Option<Preimages>, HostError> {
        let path = self.path();
        let Some(mut document) = read(root, &path)? else { return Ok(None) };
        for original in &mut document.paths {
            let file = ManagedPath::new(&*original.path).ok().and_then(|path| own.get(&path));
            original.saved.fill(&original.path, file.map(|file| &file.contents))?;
        }
        let password = document.password.and_then(|bytes| PasswordHash::new(bytes.to_text()));
        Ok(Some(Preimages { paths: document.paths, password, accounts: document.accounts }))
    }
}

/// Returns the directories that changes make on the way to their paths: nothing is there yet.
fn made_parents(root: &Root, changes: &[Change<'_>]) -> Result<Vec<Original>, HostError> {
    let mut made: BTreeMap<String, Original> = BTreeMap::new();
    for change in changes {
        let missing = match durable::made_parents(root, change, changes) {
            Err(error) if change.is_of_owner() && error.is_of_names() => continue,
            found => found?,
        };
        let Hands { trusted, enters } = change.hands();
        for path in missing {
            let (saved, path) = (PathSnapshot::Absent, path);
            let led = durable::led_by_host(root, &Change::new(&*path, 0, DesiredPath::NoDirectory), changes)?;
            let original = || Original { path: path.clone(), trusted, enters, saved, directory: true, led };
            made.entry(path.clone()).or_insert_with(original);
        }
    }
    Ok(made.into_values().collect())
}

fn read(root: &Root, path: &str) -> Result<Option<Document>, HostError> {
    root.read(path)?.map(|bytes| parse(path, &bytes)).transpose()
}

/// Reads the originals of one batch.
fn parse(path: &str, bytes: &[u8]) -> Result<Document, HostError> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| saved::malformed(path, &error))?;
    if document.schema > SCHEMA {
        let cause = format!("it has schema {}, this agent knows {SCHEMA}", document.schema);
        return Err(HostError::Malformed { path: path.to_owned(), format: ORIGINALS, cause });
    }
    Ok(document)
}

/// Before a commit: keeps the originals of paths that are managed from now on. It may be repeated. `update` brought the host
/// there; `None` when nothing was to be done. [`drop_left`] follows the commit.
pub fn promote(
    root: &Root,
    update: Option<&UpdateId>,
    from: &HostSpec,
    to: &HostSpec,
) -> Result<(), HostError> {
    drop_stale(root, from.managed().union(&parents::made(root, from)?))?;
    let kept = promoted(root, update, from, to)?;
    let (user, group) = root.dress_of("/")?.map_or((0, 0), |(_, user, group)| (user, group));
    let private = FileMode::PRIVATE.bits();
    let changes: Vec<Change<'_>> = kept
        .iter()
        .map(|(at, json)| Change::new(at.as_str(), user, DesiredPath::file(json, private, user, group)))
        .collect();
    durable::apply_changes(root, &changes, Attempt::Again, root.fail_points()).map(|_| ())
}

/// Returns the documents of the originals that are kept from a commit on, each with its path.
pub(super) fn promoted(
    root: &Root,
    update: Option<&UpdateId>,
    from: &HostSpec,
    to: &HostSpec,
) -> Result<Vec<(String, Vec<u8>)>, HostError> {
    let (before, after) = (from.managed(), to.managed());
    let (made, parents) = (parents::made(root, from)?, RealPaths::load(root, &after)?.parents());
    let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
    let mut observed = BTreeSet::new();
    let lookup = OriginalLookup::new(root);
    for original in update.map_or_else(|| Ok(Vec::new()), |update| saved_by(root, update))? {
        let Ok(path) = ManagedPath::new(original.path) else { continue };
        // What the host has where a config only wants no mask is the host's, whatever it had before that.
        let is_hosts = || {
            let is_there = original.saved != PathSnapshot::Absent;
            Ok::<_, HostError>(
                is_left(from, &path) && (is_there || saved::load_original(root, &path)?.is_none()),
            )
        };
        let fresh = !before.contains(&path) || is_hosts()?;
        let fresh = fresh && !made.contains(&path);
        let is_parent = original.directory && parents.contains(&path);
        // The first batch that touched a path saw its original.
        let is_own = original.saved.is_own() || lookup.is_carried(&path, &original.saved)?;
        if observed.insert(path.clone()) && (after.contains(&path) || is_parent) && fresh && !is_own {
            let other = made_by_other_name(root, &path, &original.saved, &made)?;
            kept.push(document(&path, other.as_ref().unwrap_or(&original.saved))?);
        }
    }
    kept.extend(left_parents(root, &before, &after, &parents)?);
    kept.extend(found_before(root, from, to, &observed)?);
    for path in own_masks(root, from, to)?.into_iter().filter(|path| !observed.contains(path)) {
        kept.push(document(&path, &PathSnapshot::mask())?);
    }
    Ok(kept)
}

/// Returns the original of a directory that the agent made, and that a config lists by another name, over a link.
fn made_by_other_name(
    root: &Root,
    path: &ManagedPath,
    found: &PathSnapshot,
    made: &BTreeSet<ManagedPath>,
) -> Result<Option<PathSnapshot>, HostError> {
    if made.is_empty() || !matches!(found, PathSnapshot::Directory { .. }) {
        return Ok(None);
    }
    let real = ManagedPath::new(root.real_path(path.as_str())?).ok();
    real.filter(|real| made.contains(real)).map_or(Ok(None), |real| saved::load_original(root, &real))
}

/// Returns the kept originals of directories that leave the config, and that paths of the new one are in: those without one are the
/// config's, and leave with these paths.
fn left_parents(
    root: &Root,
    before: &BTreeSet<ManagedPath>,
    after: &BTreeSet<ManagedPath>,
    parents: &BTreeSet<ManagedPath>,
) -> Result<Vec<(String, Vec<u8>)>, HostError> {
    let is_parent = |path: &ManagedPath| parents.contains(path) && !after.contains(path);
    let mut kept = Vec::new();
    for path in before.difference(after) {
        let original = saved::load_original(root, path)?;
        if is_parent(path) && original.is_none() && saved::of_image(root, path)? == PathSnapshot::Absent {
            kept.push(document(path, &PathSnapshot::Absent)?);
        }
        // Paths are in it by another name, over a link.
        let real = ManagedPath::new(root.real_path(path.as_str())?).ok();
        if let (Some(original), Some(real)) = (original, real.filter(|real| real != path && is_parent(real)))
            && !matches!(original, PathSnapshot::Directory { .. })
            && saved::load_original(root, &real)?.is_none()
        {
            kept.push(document(&real, &original)?);
        }
    }
    Ok(kept)
}

/// After a commit: drops the originals of paths that are no longer managed. Before it, a crash and another target would bring
/// the old config back, and its originals are needed once more. It may be repeated.
pub fn drop_left(root: &Root, from: &HostSpec, to: &HostSpec) -> Result<(), HostError> {
    let (mut left, mut held) = (from.managed(), to.managed());
    left.extend(parents::made(root, from)?);
    held.extend(parents::made(root, to)?);
    drop_originals(root, left.difference(&held).map(saved::original_path).collect())
}

/// Drops what a process left that died after a commit, or before one that never came.
fn drop_stale<'a>(root: &Root, held: impl Iterator<Item = &'a ManagedPath>) -> Result<(), HostError> {
    let known: BTreeSet<String> = held.map(saved::original_path).collect();
    let directory = format!("{PREIMAGES}/{}", saved::SAVED_DIRECTORY);
    let names = root.list(&directory)?.into_iter().filter(|name| name.strip_suffix(".json").is_some());
    let paths = names.map(|name| format!("{directory}/{name}"));
    drop_originals(root, paths.filter(|path| !known.contains(path)).collect())
}

fn drop_originals(root: &Root, paths: Vec<String>) -> Result<(), HostError> {
    let (user, _) = root.dress_of("/")?.map_or((0, 0), |(_, user, group)| (user, group));
    let changes: Vec<Change<'_>> =
        paths.into_iter().map(|path| Change::new(path, user, DesiredPath::Absent)).collect();
    if changes.is_empty() {
        return Ok(());
    }
    durable::apply_changes(root, &changes, Attempt::Again, root.fail_points()).map(|_| ())
}

/// Returns the kept originals of entries that the new config manages from now on and no step of the update had to touch: the
/// host had them before. What Ignition made of the first config is no original, and neither is what the booted image has.
fn found_before(
    root: &Root,
    from: &HostSpec,
    to: &HostSpec,
    observed: &BTreeSet<ManagedPath>,
) -> Result<Vec<(String, Vec<u8>)>, HostError> {
    let (mut kept, before) = (Vec::new(), from.managed());
    let mut new = to
        .entries()
        .into_iter()
        .filter(|(path, _)| !before.contains(path) && !observed.contains(path))
        .peekable();
    if new.peek().is_none() {
        return Ok(kept);
    }
    let installed = if from.is_unmanaged() { Installed::load(root)? } else { Installed::Otherwise };
    for (path, entry) in new {
        let is_of_ignition = match entry {
            PathSpec::Directory(_) => installed == Installed::WithConfig,
            PathSpec::File(_) | PathSpec::Link(_) => installed != Installed::Otherwise,
        };
        if is_of_ignition
            || saved::load_original(root, &path)?.is_some()
            || saved::of_image(root, &path)? != PathSnapshot::Absent
        {
            continue;
        }
        // A directory may be of another account: the walk of a write is taken.
        let change = Change::new(path.as_str(), 0, DesiredPath::Absent).entering(true).over_directory();
        match PathSnapshot::read_to_replace(root, &change, None) {
            Ok(PathSnapshot::Absent) => {}
            Ok(found) => kept.push(document(&path, &found)?),
            // The host is as the entry, which tells what was there.
            Err(HostError::UnsafeDirectory { .. }) => {
                if let Some(found) = as_listed(root, &path, &entry)? {
                    kept.push(document(&path, &found)?);
                }
            }
            // What can't be kept, such as a file that is too large, is the config's.
            Err(error) if error.is_lasting() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Returns the original of an entry that the host had before, in a directory in which nothing is read for it: as the entry has it.
fn as_listed(root: &Root, path: &ManagedPath, entry: &PathSpec) -> Result<Option<PathSnapshot>, HostError> {
    Ok(match (entry, root.observe(path.as_str())?) {
        (PathSpec::File(file), ObservedFile::Regular { sha256, mode, uid, gid, .. })
            if sha256 == file.contents.sha256() && mode == file.mode.bits() =>
        {
            let bytes = Bytes::new(file.contents.bytes());
            Some(PathSnapshot::File { bytes, mode, uid, gid, attributes: Vec::new(), flags: None })
        }
        (PathSpec::Link(link), ObservedFile::Symlink { target, uid, gid })
            if link.target == LinkTarget::Soft(target.clone()) =>
        {
            Some(PathSnapshot::Link { target, uid, gid })
        }
        (PathSpec::Directory(_), ObservedFile::Directory { mode, uid, gid }) => {
            Some(PathSnapshot::Directory { mode, uid, gid })
        }
        (PathSpec::File(_) | PathSpec::Link(_) | PathSpec::Directory(_), _) => None,
    })
}

/// Origin of a host, for what it has in common with its first config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Installed {
    /// Ignition installed it with the config of its pool, which came with an encapsulated MachineConfig.
    WithConfig,
    /// Ignition installed it, with whatever config.
    ByIgnition,
    /// It was installed by something else.
    Otherwise,
}

impl Installed {
    fn load(root: &Root) -> Result<Self, HostError> {
        let put_away = format!("{ENCAPSULATED}.bak");
        Ok(if root.exists(ENCAPSULATED)? || root.exists(&put_away)? {
            Self::WithConfig
        } else if root.exists(IGNITION_RESULT)? {
            Self::ByIgnition
        } else {
            Self::Otherwise
        })
    }
}

/// Returns true if a config only wants no mask there: it may have left an existing file.
fn is_left(spec: &HostSpec, path: &ManagedPath) -> bool {
    let mut unmasked = spec.units.iter().filter(|(_, unit)| unit.mask == Mask::Unmasked);
    unmasked.any(|(name, unit)| unit.contents.is_none() && name.path() == *path)
}

/// Returns all that the batches of an update have saved, in their order.
fn saved_by(root: &Root, update: &UpdateId) -> Result<Vec<Original>, HostError> {
    let names = root.list(&format!("{PREIMAGES}/{update}"))?;
    // A draft of a process that died has no number.
    let number = |name: &String| name.strip_suffix(".json")?.parse::<usize>().ok();
    let batches: BTreeSet<usize> = names.iter().filter_map(number).collect();
    let mut all = Vec::new();
    for batch in batches {
        let document = read(root, &Originals::new(update.clone(), batch).path())?;
        all.extend(document.into_iter().flat_map(|document| document.paths));
    }
    Ok(all)
}

/// Returns the document and the path of a kept original.
fn document(path: &ManagedPath, original: &PathSnapshot) -> Result<(String, Vec<u8>), HostError> {
    let at = saved::original_path(path);
    let json = serde_json::to_vec(original).map_err(|error| saved::malformed(&at, &error))?;
    Ok((at, json))
}

/// Returns the units that the new config masks and the old one did not, and that are masked: if no step did that, they were
/// before. What Ignition made of the first config is taken for the config's, as a file is.
fn own_masks(root: &Root, from: &HostSpec, to: &HostSpec) -> Result<Vec<ManagedPath>, HostError> {
    let mut found = Vec::new();
    if from.is_unmanaged() && Installed::load(root)? != Installed::Otherwise {
        return Ok(found);
    }
    let before = from.managed();
    let masked = to.units.iter().filter(|(_, unit)| unit.mask == Mask::Masked);
    for path in masked.map(|(name, _)| name.path()).filter(|path| !before.contains(path)) {
        let is_masked = match PathSnapshot::read(root, path.as_str()) {
            // Somebody put there what is no mask.
            Err(error) if error.is_lasting() => false,
            read => read?.is_mask(),
        };
        // A path of the image is restored from there.
        if is_masked && !saved::of_image(root, &path)?.is_mask() {
            found.push(path);
        }
    }
    Ok(found)
}

/// Copies the kept originals into the image whose root this is. The same originals give the same bytes: a label of the builder's is
/// none of the base's.
pub fn keep_in_image(root: &Root) -> Result<(), HostError> {
    let directory = format!("{PREIMAGES}/{}", saved::SAVED_DIRECTORY);
    let mut names = root.list(&directory)?;
    names.retain(|name| name.strip_suffix(".json").is_some());
    if names.is_empty() {
        return Ok(());
    }
    root.create_dir(IMAGE_ORIGINALS, FileMode::PRIVATE_DIRECTORY)?;
    for name in names {
        let at = format!("{directory}/{name}");
        let Some(original) = saved::load_document(root, &at)? else { continue };
        let json =
            serde_json::to_vec(&original.without_label()).map_err(|error| saved::malformed(&at, &error))?;
        root.write_if_changed(&format!("{IMAGE_ORIGINALS}/{name}"), &json, FileMode::PRIVATE)?;
    }
    Ok(())
}

/// Removes the originals of every update: none is open. Kept originals of managed paths stay. It may be repeated.
pub fn discard_all(root: &Root) -> Result<(), HostError> {
    for name in root.list(PREIMAGES)?.into_iter().filter(|name| name != saved::SAVED_DIRECTORY) {
        root.remove_tree(&format!("{PREIMAGES}/{name}"))?;
    }
    discard_drafts(root)
}

/// Removes the drafts of a process that died as it kept an original.
fn discard_drafts(root: &Root) -> Result<(), HostError> {
    let directory = format!("{PREIMAGES}/{}", saved::SAVED_DIRECTORY);
    for name in root.list(&directory)?.into_iter().filter(|name| name.ends_with(durable::DRAFT_SUFFIX)) {
        root.remove(&format!("{directory}/{name}"))?;
    }
    Ok(())
}
