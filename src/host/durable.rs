//! Many changes of files as one durable step.
//!
//! A path that is right already is left alone. The rest is written beside its place under a name that a rerun finds and
//! clears, gets owner, mode and attributes on the descriptor, and is synced in parallel; only then are the names
//! switched, and each directory that changed is synced once. Invariant: until the first name is switched nothing has
//! changed but directories, and a name never shows a file that is not whole. The agent never calls sync or syncfs.
//!
//! | file | does |
//! |---|---|
//! | `change` | desired state of a path |
//! | `examine` | what would refuse a change |
//! | `target` | comparison of a path with its desired state |
//! | `temp_file` | one new version beside its place, from its first byte to the switch |
//! | `sync` | many calls side by side |
//! | `directories` | directories and hard links, before and after the files |
//! | `own` | one file of the agent itself, as a method of the root |

mod change;
mod directories;
mod examine;
mod own;
mod sync;
mod target;
mod temp_file;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType};

use super::HostError;
use super::error::Unsafe;
use super::failpoint::FailPoints;
use super::root::{
    Dir, DirectoriesAhead, DirectoryAhead, Entry, Hands, MadeDirectory, Missing, Root, no_name, split, unlink,
};
use super::selinux::Labels;
use crate::model::ObservedFile;

pub use crate::model::ids::DRAFT_SUFFIX;
pub use change::{Attempt, Attributes, Change, DesiredPath, Done};
pub use directories::after_targets;
pub use examine::{
    Examined, check_writable, check_writable_directory, examine, fixed_at, is_mounted, link_of_account,
};

pub(in crate::host) use target::same_bytes;
use target::{Comparison, compare_at};
use temp_file::{TempFile, temporary};

/// So many contents are open at once: well under the usual 1024 descriptors, and enough to keep a disk's queue full.
const WINDOW: usize = 256;

/// Carries out changes of different paths. See the module's invariant.
pub fn apply_changes(
    root: &Root,
    changes: &[Change<'_>],
    run: Attempt,
    fail_points: &FailPoints,
) -> Result<Done, HostError> {
    let mut batch =
        Batch { root, run, labels: None, places: Vec::new(), known: HashMap::new(), made: Vec::new() };
    let (mut wrong, mut drafts) = (Vec::new(), Vec::new());
    let done = batch.apply_all(changes, &mut wrong, &mut drafts, fail_points);
    if done.is_err() {
        batch.withdraw(&drafts);
    }
    done
}

/// Returns the error that keeps a path from being changed permanently: a directory of another user on the way to it, or
/// something at its place that no config can own. The files that `others` bring are there for hard links.
pub fn obstacle(
    root: &Root,
    change: &Change<'_>,
    others: &[Change<'_>],
) -> Result<Option<HostError>, HostError> {
    let brought = |target: &str| {
        let is_file = |other: &Change<'_>| matches!(other.want, DesiredPath::File { .. });
        others.iter().any(|other| other.path == target && (is_file(other) || other.is_hard_link()))
    };
    let found = match split(&change.path).ok_or_else(|| no_name(&change.path)) {
        Err(error) => Err(error),
        Ok((directory, name)) => root
            .walk(directory, change.hands, Missing::Leave, &mut Vec::new())
            .map_err(|error| named(error, &change.path))
            .and_then(|dir| dir.map_or(Ok(Entry::Absent), |dir| Entry::of(&dir, name, &change.path))),
    };
    match found {
        Ok(Entry::Other(found)) => Ok(Some(in_the_way(change, found))),
        Ok(Entry::Directory { .. }) if !change.may_be_directory() => {
            Ok(Some(in_the_way(change, "a directory")))
        }
        Ok(_) => match change.hard_target() {
            Some(target) if !brought(target) && !matches!(Entry::at(root, target)?, Entry::File { .. }) => {
                Ok(Some(no_file(target)))
            }
            Some(_) | None => Ok(None),
        },
        Err(HostError::UnsafeDirectory { .. }) if is_closed_before(root, change, others)? => Ok(None),
        Err(error) if error.is_lasting() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Returns true if other changes close the directories above a path to others, before the path is changed.
fn is_closed_before(root: &Root, change: &Change<'_>, others: &[Change<'_>]) -> Result<bool, HostError> {
    let mut ahead = DirectoriesAhead::default();
    for other in others.iter().filter(|other| change.is_below(other)) {
        if let DesiredPath::Directory { mode: Some(mode), uid: Some(uid), .. } = other.want {
            ahead.insert(root.real_path(&other.path)?, DirectoryAhead { mode, uid });
        }
    }
    let Some((directory, _)) = split(&change.path).filter(|_| !ahead.is_empty()) else { return Ok(false) };
    Ok(root.walk_ahead(directory, change.hands, &ahead).is_ok())
}

/// Returns true if the way to a path leads, as far as there is one, through a directory of another account than root and the
/// agent's user, who can change names there.
pub fn is_of_account(root: &Root, change: &Change<'_>) -> Result<bool, HostError> {
    let (directory, _) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
    match root.walk_existing(directory, change.hands) {
        Ok((dir, _)) => Ok(dir.account().is_some()),
        // The walk went into one, and no further.
        Err(HostError::UnsafeDirectory { rule: Unsafe::LinkOfAccount { .. }, .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns true if an error of a path means that a removal has nothing to do: a directory on the way is none any more, or is not
/// walked, and nothing is seen at the path.
pub fn is_gone(root: &Root, change: &Change<'_>, error: &HostError) -> bool {
    let is_left = |found| match found {
        ObservedFile::Absent => false,
        ObservedFile::Directory { .. } | ObservedFile::Unreachable => true,
        ObservedFile::Regular { .. } | ObservedFile::Symlink { .. } | ObservedFile::Special => {
            !change.is_directory()
        }
    };
    change.is_removal() && error.is_lasting() && root.observe(&change.path).is_ok_and(|found| !is_left(found))
}

/// Returns true if a path leads elsewhere: it is below one of which another change makes a directory, or that takes the
/// place of one, and that is no directory now. Nothing is there for this change.
pub fn leads_elsewhere(root: &Root, change: &Change<'_>, all: &[Change<'_>]) -> Result<bool, HostError> {
    let swaps = |other: &&Change<'_>| other.makes_directory() || other.replaces_directory();
    for above in all.iter().filter(swaps).filter(|above| change.is_below(above)) {
        if !matches!(Entry::at(root, &above.path)?, Entry::Directory { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the directory that links lead a path to, where it has another name; `None` if a link of the changes is on the way.
pub fn led_by_host(
    root: &Root,
    change: &Change<'_>,
    all: &[Change<'_>],
) -> Result<Option<String>, HostError> {
    let links = root.links_on_the_way(&change.path)?;
    if links.is_empty() {
        return Ok(None);
    }
    for other in all {
        if links.contains(&root.real_path(&other.path)?) {
            return Ok(None);
        }
    }
    let real = root.real_path(&change.path)?;
    Ok(real.rsplit_once('/').map(|(directory, _)| directory.to_owned()))
}

/// Returns true if a change, carried out or not, may have left what is found where nothing was. As [`Change::may_have_made`], and a hard
/// link is another name of its file.
pub fn may_have_made(root: &Root, change: &Change<'_>, found: &ObservedFile) -> Result<bool, HostError> {
    match (change.hard_target(), found) {
        (Some(target), ObservedFile::Regular { .. }) => may_be_name(root, change.path(), target, found),
        _ => Ok(change.may_have_made(found)),
    }
}

/// Returns true if what is found at a path is a file, or has its content.
pub fn may_be_name(root: &Root, path: &str, target: &str, found: &ObservedFile) -> Result<bool, HostError> {
    Ok(root.is_hard_link(path, target)? || found.has_content_of(&root.observe(target)?))
}

/// Returns the directories that a change makes on the way to its path, but for those that other changes make.
pub fn made_parents(root: &Root, change: &Change<'_>, all: &[Change<'_>]) -> Result<Vec<String>, HostError> {
    if change.is_removal() {
        return Ok(Vec::new());
    }
    let (directory, _) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
    let mut swapped = None;
    for above in all.iter().filter(|above| above.makes_directory() && change.is_below(above)) {
        if !matches!(Entry::at(root, &above.path)?, Entry::Directory { .. })
            && swapped.is_none_or(|deepest: &Change<'_>| above.is_below(deepest))
        {
            swapped = Some(above);
        }
    }
    let missing = match swapped {
        None => root.missing_directories(directory, change.hands)?,
        // Whatever is there now leads elsewhere.
        Some(above) => {
            let names = change.path.match_indices('/').map(|(at, _)| change.path.split_at(at).0);
            names.filter(|name| name.len() > above.path.len()).map(str::to_owned).collect()
        }
    };
    let is_made = |path: &str| all.iter().any(|other| other.makes_directory() && other.path == path);
    Ok(missing.into_iter().filter(|path| !is_made(path)).collect())
}

/// Returns the error of a hard link that has no file to lead to.
fn no_file(target: &str) -> HostError {
    HostError::Kind {
        path: target.to_owned(),
        expected: "a regular file",
        found: "something else, or nothing",
    }
}

fn in_the_way(change: &Change<'_>, found: &'static str) -> HostError {
    HostError::Kind { path: change.path.clone(), expected: "a file, a link or nothing", found }
}

/// Returns true if a path is as a change requests, for readers that follow links. Writes nothing.
pub fn is_in_sync(root: &Root, change: &Change<'_>) -> Result<bool, HostError> {
    if let DesiredPath::HardLink { target } = &change.want {
        return root.is_hard_link(&change.path, target);
    }
    let found = Entry::at(root, &change.path)?;
    Ok(matches!(target::compare(found, &change.path, &change.want, Attempt::First)?, Comparison::Equal))
}

/// Syncs a directory that another program has changed; a missing one is ignored.
pub fn sync_directory(root: &Root, directory: &str) -> Result<(), HostError> {
    match root.walk(directory, 0, Missing::Leave, &mut Vec::new())? {
        Some(dir) => sync::sync(dir.as_fd(), dir.path()),
        None => Ok(()),
    }
}

/// A directory in use.
struct Location {
    dir: Dir,
    /// The accounts whom the walk trusted.
    hands: Hands,
    touched: bool,
}

/// A change that has to be made, and the entry found.
struct PendingChange<'a> {
    change: &'a Change<'a>,
    comparison: Comparison,
}

struct Batch<'a> {
    root: &'a Root,
    run: Attempt,
    /// Loaded when the first new file needs a label.
    labels: Option<Labels>,
    places: Vec<Location>,
    /// The place of a directory, as it was requested, and of the accounts whom the walk trusted.
    known: HashMap<(String, Hands), usize>,
    made: Vec<MadeDirectory>,
}

impl Batch<'_> {
    /// Makes all changes: what is in the way goes, directories come, then files and links, hard links to them, and what
    /// goes for good.
    fn apply_all<'a>(
        &mut self,
        changes: &'a [Change<'a>],
        wrong: &mut Vec<PendingChange<'a>>,
        drafts: &mut Vec<TempFile<'a>>,
        fail_points: &FailPoints,
    ) -> Result<Done, HostError> {
        // What can't be written is found before anything is.
        if changes.iter().any(Change::may_be_directory) {
            for change in changes.iter().filter(|change| !change.may_be_directory()) {
                if !leads_elsewhere(self.root, change, changes)? {
                    self.compare(change)?;
                }
            }
            self.known.clear();
        }
        let way = self.make_way(changes, fail_points)?;
        let directories = self.directories(changes, fail_points)?;
        for change in changes {
            let later = change.is_directory() || change.is_hard_link();
            // What was in a directory went with it, and must not be looked for behind a link in its place.
            let comparison = if later || leads_elsewhere(self.root, change, changes)? {
                Comparison::Equal
            } else {
                self.compare(change)?
            };
            if !matches!(comparison, Comparison::Equal) {
                wrong.push(PendingChange { change, comparison });
            }
        }
        self.apply_files(wrong, drafts, fail_points)?;
        let linked = self.hard_links(changes, fail_points)?;
        for wrong in wrong.iter().filter(|wrong| wrong.change.is_removal()) {
            self.remove(wrong.change)?;
            fail_points.hit("removed");
        }
        let (gone, left) = self.remove_directories(changes, fail_points)?;
        self.sync_directories()?;
        let changed = wrong.len() + directories + linked + gone;
        self.root.meter().changed(changed);
        if changed + way > 0 || self.run != Attempt::First {
            fail_points.hit("directories-synced");
        }
        Ok(Done { changed, right: changes.len() - changed - left.len(), left })
    }

    fn apply_files<'a>(
        &mut self,
        wrong: &[PendingChange<'a>],
        drafts: &mut Vec<TempFile<'a>>,
        fail_points: &FailPoints,
    ) -> Result<(), HostError> {
        for wrong in wrong.iter().filter(|wrong| !wrong.change.is_removal()) {
            drafts.extend(self.temp_file(wrong)?);
        }
        self.label_directories()?;
        // The worker that reads the policy is not needed any more.
        self.labels = None;
        let places = &self.places;
        let dir = |temp_file: &TempFile<'_>| places.get(temp_file.place).map(|place| &place.dir);
        for window in drafts.chunks(WINDOW) {
            sync::each(window, |temp_file| dir(temp_file).map_or(Ok(()), |dir| temp_file.write(dir)))?;
            fail_points.hit("staged");
            let began = Instant::now();
            sync::each(window, TempFile::sync)?;
            self.root.meter().synced(window.len(), began);
            fail_points.hit("synced");
        }
        let mut by_place: BTreeMap<usize, Vec<&TempFile<'_>>> = BTreeMap::new();
        for temp_file in &*drafts {
            by_place.entry(temp_file.place).or_default().push(temp_file);
        }
        // The kernel lets one rename at a time into a directory: each directory is one piece of work.
        let by_place: Vec<Vec<&TempFile<'_>>> = by_place.into_values().collect();
        sync::each(&by_place, |drafts| {
            for temp_file in drafts {
                dir(temp_file).map_or(Ok(()), |dir| temp_file.rename_into_place(dir))?;
                fail_points.hit("renamed");
            }
            Ok(())
        })
    }

    fn locate(&mut self, change: &Change<'_>, missing: Missing) -> Result<Option<usize>, HostError> {
        let (directory, _) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let key = (directory.to_owned(), change.hands);
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(*known));
        }
        let dir = match self.root.walk(directory, change.hands, missing, &mut self.made) {
            Err(error) if is_gone(self.root, change, &error) => return Ok(None),
            walked => walked.map_err(|error| named(error, &change.path))?,
        };
        let Some(dir) = dir else { return Ok(None) };
        self.places.push(Location { dir, hands: change.hands, touched: self.run != Attempt::First });
        self.known.insert(key, self.places.len() - 1);
        Ok(Some(self.places.len() - 1))
    }

    fn compare(&mut self, change: &Change<'_>) -> Result<Comparison, HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        let Some(place) = place.and_then(|place| self.places.get(place)) else {
            let absent = change.is_removal();
            return Ok(if absent { Comparison::Equal } else { Comparison::PendingChange { kept: None } });
        };
        if self.run != Attempt::First {
            clear(&place.dir, &temporary(name), change.may_be_directory())
                .map_err(|source| HostError::io("clear the leftover of", &*change.path, source))?;
        }
        compare_at(&place.dir, name, &change.path, &change.want, self.run)
    }

    /// Prepares a new version: its directory is made, its attributes are known.
    fn temp_file<'a>(&mut self, wrong: &PendingChange<'a>) -> Result<Option<TempFile<'a>>, HostError> {
        let change = wrong.change;
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let Some(index) = self.locate(change, Missing::Make)? else { return Ok(None) };
        let Some(place) = self.places.get_mut(index) else { return Ok(None) };
        place.touched = true;
        let attributes = match (&change.want, &wrong.comparison) {
            (DesiredPath::File { attributes: Attributes::Exactly(exactly), .. }, _) => exactly.to_vec(),
            (DesiredPath::File { .. }, Comparison::PendingChange { kept: Some(kept) }) => kept.clone(),
            (DesiredPath::File { mode, .. }, _) => {
                let real = format!("{}/{name}", place.dir.path());
                let label = labels(&mut self.labels, self.root)?.of_file(&real, *mode)?;
                label.into_iter().map(|label| ("security.selinux".to_owned(), label)).collect()
            }
            (
                DesiredPath::Link { .. }
                | DesiredPath::HardLink { .. }
                | DesiredPath::Directory { .. }
                | DesiredPath::Absent
                | DesiredPath::NoDirectory,
                _,
            ) => Vec::new(),
        };
        Ok(Some(TempFile::new(change, name, index, attributes)))
    }

    fn remove(&mut self, change: &Change<'_>) -> Result<(), HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        if let Some(place) = place.and_then(|place| self.places.get_mut(place)) {
            unlink(&place.dir, name).map_err(|source| HostError::io("remove", &*change.path, source))?;
            place.touched = true;
        }
        Ok(())
    }

    /// Before anything is put into them: links and sockets inherit the label.
    fn label_directories(&mut self) -> Result<(), HostError> {
        for made in self.made.iter().filter(|made| !made.is_foreign) {
            labels(&mut self.labels, self.root)?.apply_to_directory(&made.fd, &made.path)?;
        }
        Ok(())
    }

    fn sync_directories(&self) -> Result<(), HostError> {
        let touched = self.places.iter().filter(|place| place.touched);
        let mut directories: Vec<_> = touched.map(|place| (place.dir.as_fd(), place.dir.path())).collect();
        for made in &self.made {
            directories.push((made.fd.as_fd(), &made.path));
            directories.push((made.parent.as_fd(), &made.path));
        }
        let above = self.above()?;
        directories.extend(above.iter().map(|dir| (dir.as_fd(), dir.path())));
        let began = Instant::now();
        sync::each(&directories, |(fd, path)| sync::sync(*fd, path))?;
        self.root.meter().synced(directories.len(), began);
        Ok(())
    }

    /// Returns, of a repetition, the directories above those in use: the earlier run may have made some of them, and died
    /// before they were synced.
    fn above(&self) -> Result<Vec<Dir>, HostError> {
        let mut above = BTreeMap::new();
        for place in self.places.iter().filter(|_| self.run != Attempt::First) {
            let mut path = place.dir.path();
            while let Some((up, _)) = path.rsplit_once('/') {
                above.insert(up, place.hands);
                path = up;
            }
        }
        for place in &self.places {
            above.remove(place.dir.path());
        }
        let open = |(path, hands)| self.root.walk(path, hands, Missing::Leave, &mut Vec::new()).transpose();
        above.into_iter().filter_map(open).collect()
    }

    /// Removes the prepared files: drafts, then the directories that were made for them.
    fn withdraw(&mut self, drafts: &[TempFile<'_>]) {
        for temp_file in drafts {
            if let Some(place) = self.places.get(temp_file.place) {
                // The error that led here is the one to report; a rerun clears the rest.
                drop(unlink(&place.dir, &temp_file.temporary));
            }
        }
        for made in self.made.iter().rev() {
            // One that is in use by now stays, and so do those above it.
            if rustix::fs::unlinkat(&made.parent, made.name.as_str(), AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
    }
}

/// Removes a leftover. It is looked for first: to remove nothing fails on a read-only file system.
fn clear(dir: &Dir, name: &str, may_be_directory: bool) -> std::io::Result<()> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Ok(stat) if may_be_directory && FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
        }
        Ok(_) | Err(_) => unlink(dir, name),
    }
}

/// Returns the policy's labels, which are loaded when the first one is needed.
fn labels<'a>(known: &'a mut Option<Labels>, root: &Root) -> Result<&'a mut Labels, HostError> {
    let labels = match known.take() {
        Some(labels) => labels,
        None => Labels::load(root)?,
    };
    Ok(known.insert(labels))
}

/// Puts the file's path into an error that names only the directory that was walked to.
pub(super) fn named(error: HostError, path: &str) -> HostError {
    match error {
        HostError::Io { action, source, .. } => HostError::Io { action, path: path.to_owned(), source },
        HostError::UnsafeDirectory { directory, rule, .. } => {
            HostError::UnsafeDirectory { path: path.to_owned(), directory, rule }
        }
        other @ (HostError::UnsafeFile { .. }
        | HostError::TooLarge { .. }
        | HostError::Kind { .. }
        | HostError::Led { .. }
        | HostError::LedAway { .. }
        | HostError::Malformed { .. }
        | HostError::UnknownAccount { .. }
        | HostError::Unit { .. }
        | HostError::Command { .. }
        | HostError::Bus { .. }
        | HostError::Job { .. }
        | HostError::NotStopped { .. }
        | HostError::Timeout { .. }
        | HostError::NoBackend { .. }
        | HostError::Os { .. }) => other,
    }
}
