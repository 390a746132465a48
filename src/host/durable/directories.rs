//! Directories and hard links of a batch: what has to be in place before files are, and what goes after them.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::change::{Attempt, Change, DesiredPath};
use super::target::Comparison;
use super::temp_file::temporary;
use super::{Batch, clear, is_in_sync, labels, leads_elsewhere, named, sync};
use crate::host::HostError;
use crate::host::failpoint::FailPoints;
use crate::host::root::{
    Dir, Entry, Hands, MadeDirectory, Missing, Root, drop_access_lists, mode_bits, no_name, same_inode,
    split, unlink,
};
use crate::model::walk;

/// Permission bits and owner of a directory that is made, where nothing is set.
const MADE: (u32, u32, u32) = (0o755, 0, 0);

impl Batch<'_> {
    /// Removes the directories that files and links take the place of, with what goes from them. Returns how many went.
    ///
    /// Only one that is a directory still: after the switch, the path of what was in it leads elsewhere.
    pub(super) fn make_way(
        &mut self,
        changes: &[Change<'_>],
        fail_points: &FailPoints,
    ) -> Result<usize, HostError> {
        let mut gone = 0;
        let over = changes.iter().filter(|change| change.over_directory && !change.is_directory());
        for change in over {
            if !matches!(self.entry(change)?, Entry::Directory { .. }) {
                continue;
            }
            let mut below: Vec<_> =
                changes.iter().filter(|other| other.is_removal() && other.is_below(change)).collect();
            below.sort_by(|one, other| other.path.cmp(&one.path));
            for other in below {
                self.take_away(other)?;
                fail_points.hit("removed");
            }
            self.remove_between(change, changes)?;
            // What was in it must not come back under the new name's target.
            self.sync_directories()?;
            if !self.remove_directory(change)? {
                let (path, expected) = (change.path.clone(), "an empty directory");
                return Err(HostError::Kind { path, expected, found: "a directory that holds something" });
            }
            gone += 1;
            fail_points.hit("directory-removed");
        }
        if gone > 0 {
            self.known.clear();
        }
        Ok(gone)
    }

    /// Removes the directories between one that makes way and what was in it, if they are empty by now: they were made for it.
    fn remove_between(&mut self, way: &Change<'_>, changes: &[Change<'_>]) -> Result<(), HostError> {
        let mut between = BTreeSet::new();
        for gone in changes.iter().filter(|other| other.is_removal() && other.is_below(way)) {
            let mut path = gone.path.as_str();
            between.extend(gone.is_directory().then_some(path));
            while let Some((above, _)) = path.rsplit_once('/')
                && above.len() > way.path.len()
            {
                between.insert(above);
                path = above;
            }
        }
        for path in between.into_iter().rev() {
            let directory = Change::new(path, way.trusted(), DesiredPath::NoDirectory);
            let directory = directory.entering(way.hands().enters);
            if matches!(self.entry(&directory)?, Entry::Directory { .. }) {
                // One that holds something keeps those above it, which is reported there.
                let _is_gone = self.remove_directory(&directory)?;
            }
        }
        Ok(())
    }

    /// Makes directories, parents first, or gives them their mode and owner: those that are opened to others last, children first, as
    /// nothing is reached through them from then on. Returns how many were not right.
    pub(super) fn directories(
        &mut self,
        changes: &[Change<'_>],
        fail_points: &FailPoints,
    ) -> Result<usize, HostError> {
        let mut desired: Vec<_> =
            changes.iter().filter(|change| matches!(change.want, DesiredPath::Directory { .. })).collect();
        desired.sort_by(|one, other| one.path.cmp(&other.path));
        let mut opened = Vec::new();
        for change in &desired {
            if opens(self.root, change)? {
                opened.push(*change);
            }
        }
        desired.retain(|change| !opened.iter().any(|other| other.path == change.path));
        let mut changed = 0;
        for change in desired.into_iter().chain(opened.into_iter().rev()) {
            let comparison = match self.compare(change) {
                // The one above it was opened after it was right.
                Err(HostError::UnsafeDirectory { .. })
                    if self.run != Attempt::First && is_in_sync(self.root, change)? =>
                {
                    continue;
                }
                compared => compared?,
            };
            if matches!(comparison, Comparison::Equal) {
                if self.run != Attempt::First {
                    self.set_directory(change)?;
                }
                continue;
            }
            match self.entry(change)? {
                Entry::Directory { .. } => self.set_directory(change)?,
                Entry::Absent | Entry::File { .. } | Entry::Link { .. } | Entry::Other(_) => {
                    self.make_directory(change)?;
                    // A link in its place led elsewhere.
                    self.known.clear();
                }
            }
            changed += 1;
            fail_points.hit("directory-made");
        }
        Ok(changed)
    }

    /// Makes the hard links that are not right; their targets are. Returns how many.
    pub(super) fn hard_links(
        &mut self,
        changes: &[Change<'_>],
        fail_points: &FailPoints,
    ) -> Result<usize, HostError> {
        let mut made = 0;
        for change in after_targets(changes) {
            let Some(target) = change.hard_target() else { continue };
            if self.hard_link(change, target)? {
                made += 1;
                fail_points.hit("linked");
            }
        }
        Ok(made)
    }

    fn hard_link(&mut self, change: &Change<'_>, target: &str) -> Result<bool, HostError> {
        let failed = |errno: Errno| HostError::io("make the link", &*change.path, errno);
        let (above, file) = linked_file(self.root, target, change.hands())?;
        let Entry::File { stat: desired, .. } = Entry::open(&above, file, target)? else {
            return Err(super::no_file(target));
        };
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let anew = self.run == Attempt::Anew;
        let Some(index) = self.locate(change, Missing::Make)? else { return Ok(false) };
        self.label_directories()?;
        let Some(place) = self.places.get_mut(index) else { return Ok(false) };
        let temporary = temporary(name);
        clear(&place.dir, &temporary, false)
            .map_err(|source| HostError::io("make the link", &*change.path, source))?;
        match Entry::open(&place.dir, name, &change.path)? {
            Entry::File { stat, .. } if same_inode(&stat, &desired) && !anew => return Ok(false),
            Entry::Absent | Entry::File { .. } | Entry::Link { .. } => {}
            Entry::Directory { .. } => return Err(super::in_the_way(change, "a directory")),
            Entry::Other(found) => return Err(super::in_the_way(change, found)),
        }
        rustix::fs::linkat(&above, file, &place.dir, temporary.as_str(), AtFlags::empty()).map_err(failed)?;
        rustix::fs::renameat(&place.dir, temporary.as_str(), &place.dir, name).map_err(failed)?;
        // To rename a file to another name of its own does nothing.
        unlink(&place.dir, &temporary)
            .map_err(|source| HostError::io("make the link", &*change.path, source))?;
        place.touched = true;
        Ok(true)
    }

    /// Removes the directories that are to go and are empty, children first. Returns how many went, and those that stay.
    pub(super) fn remove_directories(
        &mut self,
        changes: &[Change<'_>],
        fail_points: &FailPoints,
    ) -> Result<(usize, Vec<String>), HostError> {
        let mut going: Vec<_> =
            changes.iter().filter(|change| matches!(change.want, DesiredPath::NoDirectory)).collect();
        going.sort_by(|one, other| other.path.cmp(&one.path));
        let mut gone = 0;
        loop {
            let (mut left, before) = (Vec::new(), gone);
            for change in going {
                match self.remove_empty(change, changes)? {
                    None => {}
                    Some(true) => {
                        gone += 1;
                        fail_points.hit("directory-removed");
                    }
                    Some(false) => left.push(change),
                }
            }
            // One may hold another one that has the name of a link on the way.
            if left.is_empty() || gone == before {
                return Ok((gone, left.into_iter().map(|change| change.path.clone()).collect()));
            }
            going = left;
        }
    }

    /// Removes a directory that is to go, if nothing is in it; `None` where none is.
    fn remove_empty(&mut self, change: &Change<'_>, all: &[Change<'_>]) -> Result<Option<bool>, HostError> {
        if leads_elsewhere(self.root, change, all)? {
            return Ok(None);
        }
        if self.run != Attempt::First {
            self.clear_leftover(change)?;
        }
        if !matches!(self.entry(change)?, Entry::Directory { .. }) {
            return Ok(None);
        }
        self.remove_directory(change).map(Some)
    }

    fn take_away(&mut self, change: &Change<'_>) -> Result<(), HostError> {
        if self.run != Attempt::First {
            self.clear_leftover(change)?;
        }
        match self.entry(change)? {
            Entry::Directory { .. } if change.is_directory() => self.remove_directory(change).map(drop),
            Entry::File { .. } | Entry::Link { .. } if !change.is_directory() => self.remove(change),
            Entry::Absent
            | Entry::Directory { .. }
            | Entry::File { .. }
            | Entry::Link { .. }
            | Entry::Other(_) => Ok(()),
        }
    }

    /// Removes the leftover of a run that died as it made a new version.
    fn clear_leftover(&mut self, change: &Change<'_>) -> Result<(), HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        let Some(place) = place.and_then(|place| self.places.get(place)) else { return Ok(()) };
        clear(&place.dir, &temporary(name), change.may_be_directory())
            .map_err(|source| HostError::io("clear the leftover of", &*change.path, source))
    }

    /// Removes a directory if nothing is in it; returns false if something is.
    fn remove_directory(&mut self, change: &Change<'_>) -> Result<bool, HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        let Some(place) = place.and_then(|place| self.places.get_mut(place)) else { return Ok(true) };
        match rustix::fs::unlinkat(&place.dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => place.touched = true,
            Err(Errno::NOENT) => {}
            // A mount keeps it, too.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => return Ok(false),
            Err(errno) => return Err(HostError::io("remove", &*change.path, errno)),
        }
        Ok(true)
    }

    /// Opens what is at the place of a change.
    fn entry(&mut self, change: &Change<'_>) -> Result<Entry, HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        match place.and_then(|place| self.places.get(place)) {
            Some(place) => Entry::open(&place.dir, name, &change.path),
            None => Ok(Entry::Absent),
        }
    }

    /// Gives an existing directory its mode and owner, durably.
    fn set_directory(&mut self, change: &Change<'_>) -> Result<(), HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let place = self.locate(change, Missing::Leave)?;
        let Some(place) = place.and_then(|place| self.places.get(place)) else { return Ok(()) };
        let failed = |errno: Errno| HostError::io("prepare", &*change.path, errno);
        let fd = open(&place.dir, name).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        dress(&fd, &change.want, (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)).map_err(failed)?;
        sync::sync(fd.as_fd(), &change.path)
    }

    /// Makes a directory beside its place, complete, and puts it there. A file or a link in its place goes.
    fn make_directory(&mut self, change: &Change<'_>) -> Result<(), HostError> {
        let (_, name) = split(&change.path).ok_or_else(|| no_name(&change.path))?;
        let Some(index) = self.locate(change, Missing::Make)? else { return Ok(()) };
        self.label_directories()?;
        let failed = |errno: Errno| HostError::io("make", &*change.path, errno);
        let Some(place) = self.places.get_mut(index) else { return Ok(()) };
        let temporary = temporary(name);
        clear(&place.dir, &temporary, true).map_err(|source| HostError::io("make", &*change.path, source))?;
        rustix::fs::mkdirat(&place.dir, temporary.as_str(), Mode::RWXU).map_err(failed)?;
        let fd = open(&place.dir, &temporary).map_err(failed)?;
        drop_access_lists(&fd).map_err(failed)?;
        let path = format!("{}/{name}", place.dir.path());
        labels(&mut self.labels, self.root)?.apply_to_directory(&fd, &path)?;
        dress(&fd, &change.want, MADE).map_err(failed)?;
        sync::sync(fd.as_fd(), &change.path)?;
        match rustix::fs::renameat(&place.dir, temporary.as_str(), &place.dir, name) {
            // The journal has what is there: its original is restored if this ends here.
            Err(Errno::NOTDIR) => {
                unlink(&place.dir, name).map_err(|source| HostError::io("replace", &*change.path, source))?;
                rustix::fs::renameat(&place.dir, temporary.as_str(), &place.dir, name).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        place.touched = true;
        let parent = rustix::io::dup(place.dir.as_fd()).map_err(failed)?;
        let is_foreign = place.dir.account().is_some();
        self.made.push(MadeDirectory { parent, name: name.to_owned(), fd, path, is_foreign });
        Ok(())
    }
}

/// Returns true if a change opens a directory to others.
fn opens(root: &Root, change: &Change<'_>) -> Result<bool, HostError> {
    let DesiredPath::Directory { mode, uid, .. } = &change.want else { return Ok(false) };
    let found = root.observe(&change.path)?.directory();
    Ok(found.is_some_and(|found| walk::opens(found, (mode.unwrap_or(found.0), uid.unwrap_or(found.1)))))
}

/// Returns the hard links of a batch; one that leads to another one comes after it.
pub fn after_targets<'c, 'a>(changes: &'c [Change<'a>]) -> Vec<&'c Change<'a>> {
    let links: BTreeMap<&str, &str> =
        changes.iter().filter_map(|change| Some((change.path(), change.hard_target()?))).collect();
    let depth = |change: &&Change<'a>| {
        let way = std::iter::successors(change.hard_target(), |target| links.get(target).copied());
        way.take(links.len() + 1).count()
    };
    let mut hard: Vec<_> = changes.iter().filter(|change| change.is_hard_link()).collect();
    hard.sort_by_key(depth);
    hard
}

/// Opens the directory of a hard link's file, and returns the file's name there.
fn linked_file<'a>(root: &Root, target: &'a str, hands: Hands) -> Result<(Dir, &'a str), HostError> {
    let (directory, name) = split(target).ok_or_else(|| no_name(target))?;
    let walked = root.walk(directory, hands, Missing::Leave, &mut Vec::new());
    let dir = walked.map_err(|error| named(error, target))?;
    dir.map(|dir| (dir, name)).ok_or_else(|| super::no_file(target))
}

fn open(dir: &Dir, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Sets owner and mode, where they are not right; `before` is for what is not set.
fn dress(fd: &OwnedFd, want: &DesiredPath<'_>, (bits, user, group): (u32, u32, u32)) -> Result<(), Errno> {
    let DesiredPath::Directory { mode, uid, gid } = want else { return Ok(()) };
    let desired = (mode.unwrap_or(bits), uid.unwrap_or(user), gid.unwrap_or(group));
    let stat = rustix::fs::fstat(fd)?;
    if (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid) == desired {
        return Ok(());
    }
    let (mode, uid, gid) = desired;
    if (stat.st_uid, stat.st_gid) != (uid, gid) {
        rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    rustix::fs::fchmod(fd, mode_bits(mode))
}
