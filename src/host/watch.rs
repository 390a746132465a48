//! Changes of watched paths: reported by the kernel, never polled.
//!
//! A file is watched by its inode, so that a write through a hard link or by a name elsewhere is seen; each directory on
//! the way to it by its names, so that everything that leads the path elsewhere is seen: names that are renamed,
//! replaced, linked or made at last; and the mount table, since a mount over it touches nothing. Changes of other files
//! in a watched directory wake no one, but for names that come and go.
//!
//! Invariant: a path is watched before it is read, and when the kernel lost events everything counts as
//! changed; so a change may be reported twice but is never missed. One exception: a write through a mapping is reported
//! when the mapping ends. Mounts are compared, not signaled: a caller that looks announces it ([`Watch::begin_observation`]),
//! so that a mount which it saw counts, even if it's gone before the comparison.

mod budget;
mod kernel;
mod mounts;
mod route;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::HostError;
use super::root::Root;
use budget::Budget;
use kernel::{Event, add, events};
use mounts::{Mounts, Table};
use route::{Finder, Last};

/// Editors and package managers touch a file several times in a row: reported once, after it was quiet for so long. A
/// quarter of the time that a person calls at once (100 ms): the rest is for observing and reporting.
const QUIET: Duration = Duration::from_millis(25);
/// One that never rests is still reported, so often that a full observation each time stays within a percent of one core.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// Events of a directory on the way: names that come and go.
const NAMES: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::DELETE).union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO);
/// Events of a directory all of whose files count.
const CONTENTS: WatchFlags = NAMES.union(WatchFlags::CLOSE_WRITE).union(WatchFlags::EXCL_UNLINK);
/// Events of a file.
const BYTES: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::CLOSE_WRITE).union(WatchFlags::ATTRIB);

/// Events of a directory for its own sake. A new time of change alone counts as a write.
const TOUCHED: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::MODIFY);

/// Paths to watch. None of them needs to exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchSet {
    /// Files: their bytes, their mode and owner. Of a directory only the latter, and its times.
    pub paths: BTreeSet<String>,
    /// Directories: every file directly in them.
    pub directories: BTreeSet<String>,
    /// Directories: the names in them and in their own directories, as links of units are.
    pub trees: BTreeSet<String>,
}

/// Continuation of a path at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Through,
    End,
}

/// Paths that one watched inode stands for.
#[derive(Debug, Default)]
struct InodeWatch {
    /// Real paths, when it is a directory; `""` is the root.
    directories: BTreeSet<String>,
    /// Watched paths that end here.
    paths: BTreeSet<String>,
}

/// Watches paths below a root.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    inotify: AsyncFd<OwnedFd>,
    mounts: Option<Mounts>,
    watched: WatchSet,
    /// By watch descriptor.
    held: BTreeMap<i32, InodeWatch>,
    /// The descriptor of each path's inode.
    inodes: BTreeMap<String, i32>,
    /// Real paths of names, and the watched paths whose way goes by them.
    ways: BTreeMap<String, Vec<(String, Way)>>,
    /// Real directories all names in which count, and their given paths.
    inside: BTreeMap<String, String>,
    /// Those of them in which new directories are to be watched, too.
    tops: BTreeSet<String>,
    changed: BTreeSet<String>,
    /// A file was created or written and not closed since: its contents may be a part.
    unfinished: bool,
    /// Set if a change is returned at once.
    budget: Option<Budget>,
}

/// Event of the kernel.
enum KernelEvent {
    Events(Vec<Event>),
    Mounts,
}

/// Work left after events.
#[derive(Default)]
struct Due {
    /// An event is about a watched path.
    ours: bool,
    /// The ways may lead elsewhere now.
    survey: bool,
    /// Names at which another file may stand now: watched path and real path.
    renewed: BTreeMap<String, String>,
}

impl Watch {
    /// Watches files, whether they exist or not, and everything directly in some directories.
    pub fn new<'a>(
        root: &Root,
        files: impl IntoIterator<Item = &'a str>,
        directories: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, HostError> {
        let paths = files.into_iter().map(str::to_owned).collect();
        let directories = directories.into_iter().map(str::to_owned).collect();
        Self::from_set(root, WatchSet { paths, directories, trees: BTreeSet::new() })
    }

    /// Watches a set of paths.
    pub fn from_set(root: &Root, watched: WatchSet) -> Result<Self, HostError> {
        let failed = |source: io::Error| HostError::io("watch", root.base().display().to_string(), source);
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| failed(errno.into()))?;
        #[expect(
            deprecated,
            reason = "it is unsound for borrowed descriptors; this one is owned (tokio#8587)"
        )]
        let inotify = AsyncFd::new(fd).map_err(failed)?;
        let mut watch = Self {
            root: root.clone(),
            inotify,
            mounts: Mounts::open(root),
            watched,
            held: BTreeMap::new(),
            inodes: BTreeMap::new(),
            ways: BTreeMap::new(),
            inside: BTreeMap::new(),
            tops: BTreeSet::new(),
            changed: BTreeSet::new(),
            unfinished: false,
            budget: None,
        };
        watch.survey()?;
        watch.changed.clear();
        Ok(watch)
    }

    /// Makes the watch return a change as soon as its file is closed, as long as there are not too many: for a caller
    /// that prefers one observation too many to a late one.
    #[must_use]
    pub fn prompt(self) -> Self {
        Self { budget: Some(Budget::new(Instant::now())), ..self }
    }

    /// Returns the watched paths.
    pub fn watch_set(&self) -> &WatchSet {
        &self.watched
    }

    /// Notes that the caller observes the watched paths now; the observation ends with the next wait.
    pub fn begin_observation(&mut self) -> Result<(), HostError> {
        let Some(mounts) = &mut self.mounts else { return Ok(()) };
        let table = mounts.begin_observation();
        if self.moved(&table).is_some() { self.survey() } else { Ok(()) }
    }

    /// Waits until something changed and it is quiet again (see [`Watch::prompt`]); returns the paths, those in
    /// directories included.
    ///
    /// Cancel-safe: changes found so far stay for the next call.
    pub async fn changed(&mut self) -> Result<Vec<String>, HostError> {
        while self.changed.is_empty() {
            self.wait().await?;
        }
        let settled = Instant::now() + SETTLE_TIME;
        let mut quiet = Instant::now() + QUIET;
        loop {
            let now = Instant::now();
            // Events without end are always ready, so that the time would never be checked.
            if now >= settled || (!self.unfinished && self.may_return_at_once(now)) {
                return Ok(self.take_changed());
            }
            match tokio::time::timeout_at(quiet.min(settled), self.wait()).await {
                Ok(ours) => {
                    if ours? {
                        quiet = Instant::now() + QUIET;
                    }
                }
                Err(_) => return Ok(self.take_changed()),
            }
        }
    }

    fn may_return_at_once(&mut self, now: Instant) -> bool {
        self.budget.as_mut().is_some_and(|budget| budget.take(now))
    }

    fn take_changed(&mut self) -> Vec<String> {
        self.unfinished = false;
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Waits for the next events and collects their paths; returns true if any is of a watched path.
    async fn wait(&mut self) -> Result<bool, HostError> {
        let mounted = async {
            match &mut self.mounts {
                Some(mounts) => mounts.changed().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            // Both only wait, and take an event in the step that ends them: losing one loses nothing.
            events = events(&self.inotify) => KernelEvent::Events(events?),
            mounted = mounted => { mounted?; KernelEvent::Mounts }
        };
        let mut due = Due::default();
        match event {
            KernelEvent::Events(events) => {
                for event in events {
                    self.take(&event, &mut due);
                }
            }
            KernelEvent::Mounts => due.survey = self.take_mounts(),
        }
        if due.survey {
            self.survey()?;
        } else {
            for (path, real) in due.renewed {
                self.hold_path(&path, &real)?;
            }
        }
        Ok(due.ours || due.survey)
    }

    /// Notes the paths of an event.
    fn take(&mut self, event: &Event, due: &mut Due) {
        if event.flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
            self.take_all();
            (due.ours, due.survey) = (true, true);
            return;
        }
        // Not there: it was let go of meanwhile.
        let Some(held) = self.held.get(&event.watch) else { return };
        let about_file = !event.flags.contains(ReadFlags::ISDIR);
        if let Some(name) = &event.name {
            let made = about_file && event.flags.contains(ReadFlags::CREATE);
            for directory in &held.directories {
                let real = format!("{directory}/{name}");
                for (path, way) in self.ways.get(&real).into_iter().flatten() {
                    due.ours = true;
                    self.changed.insert(path.clone());
                    match way {
                        Way::Through => due.survey = true,
                        Way::End => {
                            self.unfinished |= made;
                            due.renewed.insert(path.clone(), real.clone());
                        }
                    }
                }
                if let Some(shown) = self.inside.get(directory) {
                    due.ours = true;
                    self.changed.insert(format!("{shown}/{name}"));
                    due.survey |= self.tops.contains(directory) && event.flags.contains(ReadFlags::ISDIR);
                }
            }
        } else if event.flags.contains(ReadFlags::IGNORED) {
            // Its inode is gone; its directory reported the new entry of its name.
            self.held.remove(&event.watch);
        } else {
            due.ours |= !held.paths.is_empty();
            self.changed.extend(held.paths.iter().cloned());
            if event.flags.contains(ReadFlags::CLOSE_WRITE) {
                self.unfinished = false;
            } else if about_file && event.flags.contains(ReadFlags::MODIFY) {
                self.unfinished = true;
            }
        }
    }

    /// Counts everything as changed.
    fn take_all(&mut self) {
        let WatchSet { paths, directories, trees } = &self.watched;
        self.changed.extend(paths.iter().chain(directories).chain(trees).cloned());
    }

    /// Notes the paths of a change of the mount table; returns true if the ways may lead elsewhere now.
    fn take_mounts(&mut self) -> bool {
        let Some(mounts) = &mut self.mounts else { return false };
        let (changed_meanwhile, table) = (mounts.take_changed_meanwhile(), mounts.read());
        if changed_meanwhile {
            self.take_all();
        }
        self.moved(&table).is_some() || changed_meanwhile
    }

    /// Compares the mount table with the one that was kept; `None` when nothing on the ways has moved.
    fn moved(&mut self, table: &Table) -> Option<()> {
        let mounts = self.mounts.as_ref()?;
        let matters = |point: &str| self.ways.contains_key(point) || self.inside.contains_key(point);
        let moved = mounts.moved(table, matters);
        for point in &moved {
            let paths = self.ways.get(point).into_iter().flatten().map(|(path, _)| path);
            self.changed.extend(paths.chain(self.inside.get(point)).cloned());
        }
        (!moved.is_empty()).then_some(())
    }

    /// Finds the ways to everything in the set, and watches them. Inodes on no way any more are dropped.
    fn survey(&mut self) -> Result<(), HostError> {
        // First the mounts: one that comes while the ways are found differs from this and is reported.
        let table = self.mounts.as_ref().map(Mounts::read);
        if let Some(table) = &table {
            self.moved(table);
        }
        let old = std::mem::take(&mut self.held);
        self.inodes.clear();
        self.ways.clear();
        self.inside.clear();
        self.tops.clear();
        let Self { root, inotify, held, watched, .. } = &mut *self;
        let enter = |directory: &str| hold_directory(root, inotify, held, directory, NAMES);
        let mut finder = Finder::new(root, enter);
        let mut routes = Vec::new();
        for (paths, last) in [
            (&watched.paths, Last::Kept),
            (&watched.directories, Last::Followed),
            (&watched.trees, Last::Followed),
        ] {
            for path in paths {
                routes.push((path.clone(), last, finder.find(path, last)?));
            }
        }
        for (path, last, route) in routes {
            for real in route.through {
                self.ways.entry(real).or_default().push((path.clone(), Way::Through));
            }
            match (route.end, last) {
                (None, _) => {}
                (Some(real), Last::Kept) => {
                    self.hold_path(&path, &real)?;
                    self.ways.entry(real).or_default().push((path, Way::End));
                }
                (Some(real), Last::Followed) => self.hold_inside(&path, real)?,
            }
        }
        if let (Some(mounts), Some(table)) = (&mut self.mounts, table) {
            mounts.keep(table, |point| self.ways.contains_key(point) || self.inside.contains_key(point));
        }
        for watch in old.into_keys().filter(|watch| !self.held.contains_key(watch)) {
            self.let_go(watch)?;
        }
        Ok(())
    }

    /// Watches the inode that stands at a path, in place of the one that stood there.
    fn hold_path(&mut self, path: &str, real: &str) -> Result<(), HostError> {
        let flags = |kind| match kind {
            FileType::RegularFile => Some(BYTES),
            FileType::Directory => Some(TOUCHED),
            // Its owner; its text never changes.
            FileType::Symlink => Some(WatchFlags::ATTRIB),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        };
        let standing = self.root.standing(real)?;
        let watched = standing.and_then(|standing| Some((flags(standing.kind)?, standing.name)));
        let now = watched.map(|(flags, name)| add(&self.inotify, path, &name, flags)).transpose()?;
        let before = match now {
            Some(watch) => self.inodes.insert(path.to_owned(), watch),
            None => self.inodes.remove(path),
        };
        if let Some(watch) = now {
            self.held.entry(watch).or_default().paths.insert(path.to_owned());
        }
        let Some(before) = before.filter(|before| Some(*before) != now) else { return Ok(()) };
        let Some(held) = self.held.get_mut(&before) else { return Ok(()) };
        held.paths.remove(path);
        if held.paths.is_empty() && held.directories.is_empty() {
            self.held.remove(&before);
            self.let_go(before)?;
        }
        Ok(())
    }

    /// Watches the files of a directory.
    fn hold_inside(&mut self, path: &str, real: String) -> Result<(), HostError> {
        let shown = path.trim_end_matches('/');
        let tree = self.watched.trees.contains(path);
        let flags = if tree { NAMES } else { CONTENTS };
        hold_directory(&self.root, &self.inotify, &mut self.held, &real, flags)?;
        if tree {
            for name in self.root.list(&real)? {
                let below = format!("{real}/{name}");
                let standing = self.root.standing(&below)?;
                if standing.is_some_and(|standing| standing.kind == FileType::Directory) {
                    hold_directory(&self.root, &self.inotify, &mut self.held, &below, NAMES)?;
                    self.inside.insert(below, format!("{shown}/{name}"));
                }
            }
            self.tops.insert(real.clone());
        }
        self.inside.insert(real, shown.to_owned());
        Ok(())
    }

    fn let_go(&self, watch: i32) -> Result<(), HostError> {
        // One that the kernel has dropped itself gives EINVAL, which is as good.
        match inotify::remove_watch(self.inotify.get_ref(), watch) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(HostError::io("stop watching", "a directory", errno)),
        }
    }
}

/// Watches a real directory; the directory above reports one that is gone again.
fn hold_directory(
    root: &Root,
    inotify: &AsyncFd<OwnedFd>,
    held: &mut BTreeMap<i32, InodeWatch>,
    directory: &str,
    flags: WatchFlags,
) -> Result<(), HostError> {
    let shown = if directory.is_empty() { "/" } else { directory };
    let Some(name) = root.kernel_name(shown)? else { return Ok(()) };
    let watch = add(inotify, shown, &name, flags | WatchFlags::ONLYDIR)?;
    held.entry(watch).or_default().directories.insert(directory.to_owned());
    Ok(())
}
