//! Entries that are moved aside, into a bounded number of names: the owner of a directory may put a new one there again and again.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Dir, Hands, HostError, Missing, Root, no_name, split};
use crate::host::fsync::fsync;
use crate::host::keys::ASIDE;

/// Names for what is moved aside: the last one is used again.
pub(in crate::host) const MOST_ASIDE: u32 = 8;
/// Names in all: those beyond [`MOST_ASIDE`] are used only if what has the last one can't be removed.
const MOST_NAMES: u32 = 1000;
/// Entries and depth of a directory that is removed for its name.
const MOST_REMOVED: u32 = 1000;
const MAX_DEPTH: u32 = 8;

impl Root {
    /// Moves a file aside in its own directory, which is root's, and returns its new path.
    pub fn move_aside_there(&self, path: &str) -> Result<Option<String>, HostError> {
        let (directory, name) = path.rsplit_once('/').ok_or_else(|| no_name(path))?;
        self.move_aside(path, directory, &format!("{name}.{ASIDE}"), 0)
    }

    /// The same in a directory that one of these accounts may own. Nothing is removed for a name: where all are taken, it is an error.
    pub fn move_aside_by(&self, path: &str, hands: Hands) -> Result<Option<String>, HostError> {
        let (directory, name) = path.rsplit_once('/').ok_or_else(|| no_name(path))?;
        self.move_to_free(path, directory, &format!("{name}.{ASIDE}"), (hands, false))
    }

    /// Moves a directory entry aside into a directory, durably, to the first free of the names `aside`, `aside.1` and so on, and
    /// returns its new path; a missing one is ignored. Nothing is followed or read.
    pub(in crate::host) fn move_aside(
        &self,
        path: &str,
        directory: &str,
        aside: &str,
        trusted: u32,
    ) -> Result<Option<String>, HostError> {
        self.move_to_free(path, directory, aside, (trusted.into(), true))
    }

    fn move_to_free(
        &self,
        path: &str,
        directory: &str,
        aside: &str,
        (hands, may_clear): (Hands, bool),
    ) -> Result<Option<String>, HostError> {
        let failed = |errno: Errno| HostError::io("move aside", path, errno);
        let (above, name) = split(path).ok_or_else(|| no_name(path))?;
        let walk = |directory| self.walk(directory, hands, Missing::Leave, &mut Vec::new());
        let (Some(parent), Some(to)) = (walk(above)?, walk(directory)?) else { return Ok(None) };
        let entry = Entry { parent: &parent, name, to: &to };
        let names: Vec<String> = std::iter::once(aside.to_owned())
            .chain((1..MOST_ASIDE).map(|number| format!("{aside}.{number}")))
            .collect();
        let mut moved = entry.rename_to_free(names.iter().map(String::as_str)).map_err(failed)?;
        if let (Moved::NoName, Some(last), true) = (&moved, names.last(), may_clear) {
            // Should that fail, a name beyond them is taken.
            let is_free = clear(&to, last, hands.trusted).is_ok();
            let beyond: Vec<String> =
                (MOST_ASIDE..MOST_NAMES).map(|number| format!("{aside}.{number}")).collect();
            let last = is_free.then_some(last).into_iter();
            moved = entry.rename_to_free(last.chain(&beyond).map(String::as_str)).map_err(failed)?;
        }
        match moved {
            Moved::Absent => Ok(None),
            Moved::NoName => Err(failed(Errno::EXIST)),
            Moved::To(name) => {
                fsync(&to).map_err(failed)?;
                fsync(&parent).map_err(failed)?;
                Ok(Some(format!("{directory}/{name}")))
            }
        }
    }
}

/// An entry to be moved.
struct Entry<'a> {
    parent: &'a Dir,
    name: &'a str,
    to: &'a Dir,
}

enum Moved {
    Absent,
    NoName,
    To(String),
}

impl Entry<'_> {
    fn rename_to_free<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Moved, Errno> {
        for free in names {
            match rustix::fs::renameat_with(self.parent, self.name, self.to, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(Moved::Absent),
                other => {
                    other?;
                    return Ok(Moved::To(free.to_owned()));
                }
            }
        }
        Ok(Moved::NoName)
    }
}

/// Removes an entry that its owner could remove himself: of directories only his own, no more than a few, on one file system.
fn clear(directory: &Dir, name: &str, owner: u32) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
        other => other?,
    };
    let mut removal = Removal { owner, device: rustix::fs::fstat(directory)?.st_dev, removed: 0 };
    removal.empty(&fd, 0)?;
    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
}

/// The removal of what is in a directory.
struct Removal {
    owner: u32,
    device: u64,
    removed: u32,
}

impl Removal {
    fn empty(&mut self, fd: &OwnedFd, depth: u32) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(fd)?;
        if depth > MAX_DEPTH || stat.st_uid != self.owner || stat.st_dev != self.device {
            return Err(Errno::PERM);
        }
        for entry in Listing::new(rustix::io::dup(fd)?)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.removed += 1;
            if self.removed > MOST_REMOVED {
                return Err(Errno::FBIG);
            }
            let stat = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                rustix::fs::unlinkat(fd, name, AtFlags::empty())?;
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.empty(&rustix::fs::openat(fd, name, flags, Mode::empty())?, depth + 1)?;
            rustix::fs::unlinkat(fd, name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }
}
