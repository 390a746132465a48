//! Directories as a whole: made, removed, and where they really are.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir as Listing, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::attributes::drop_access_lists;
use super::laid::Look;
use super::{
    Dir, HostError, MadeDirectory, Missing, Root, is_absent, is_unreachable, mode_bits, no_name, relative,
    split,
};
use crate::host::failpoint::FailPoints;
use crate::host::fsync::fsync;
use crate::model::FileMode;

/// Deeper trees than this are not the agent's.
const MAX_DEPTH: u32 = 32;
/// Permission of everybody to list a directory and to enter it.
const OPEN: u32 = 0o005;

impl Root {
    /// Makes a directory and the ones above it, durably; one that is there keeps its mode.
    pub fn create_dir(&self, directory: &str, mode: FileMode) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("make", directory, errno);
        let mut fresh_ones = Vec::new();
        let trusted = rustix::process::geteuid().as_raw();
        self.walk(directory, trusted, Missing::Make, &mut fresh_ones)?;
        if let Some(last) = fresh_ones.last() {
            rustix::fs::fchmod(&last.fd, mode_bits(mode.bits())).map_err(failed)?;
        }
        sync_made(&fresh_ones, directory)
    }

    /// Refuses a directory, or one above it, that others than root and the agent's user may change; none there is fine.
    pub fn check_directory(&self, directory: &str) -> Result<(), HostError> {
        let trusted = rustix::process::geteuid().as_raw();
        self.walk(directory, trusted, Missing::Leave, &mut Vec::new()).map(drop)
    }

    /// Makes a directory that belongs to a user, or gives an existing one of root's to him. A link in its place is refused, and
    /// so is a directory that he could have put there to get at what is in it: one of another user, or of root that is closed to
    /// him and not empty. What is looked at is what is given: the one that was opened.
    pub(in crate::host) fn own_dir(
        &self,
        directory: &str,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("prepare", directory, errno);
        let (above, name) = split(directory).ok_or_else(|| no_name(directory))?;
        let mut fresh_ones = Vec::new();
        let parent =
            self.walk(above, uid, Missing::Make, &mut fresh_ones)?.ok_or_else(|| no_name(directory))?;
        let is_made = match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(failed(errno)),
        };
        let fd = open_own(&parent, name, directory)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let right = stat.st_uid == uid && stat.st_gid == gid && stat.st_mode & 0o7777 == mode;
        if !right && stat.st_uid != uid && !may_be_given(&fd, &stat).map_err(failed)? {
            let (path, expected) = (directory.to_owned(), "a directory of its account");
            return Err(HostError::Kind { path, expected, found: "a closed directory of another account" });
        }
        if is_made {
            drop_access_lists(&fd).map_err(failed)?;
        }
        if !right {
            let (user, group) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::fchown(&fd, Some(user), Some(group)).map_err(failed)?;
            rustix::fs::fchmod(&fd, mode_bits(mode)).map_err(failed)?;
            fsync(&fd).map_err(failed)?;
        }
        // Also when it was there: its maker may have died before this.
        fsync(&parent).map_err(failed)?;
        sync_made(&fresh_ones, directory)
    }

    /// Returns true if a directory at a path may be given to a user, as [`Root::own_dir`] decides it; one that is absent may.
    pub(in crate::host) fn may_own_dir(&self, directory: &str, uid: u32) -> Result<bool, HostError> {
        let failed = |errno: Errno| HostError::io("inspect", directory, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let fd = match self.resolve(directory, flags) {
            // Whatever else is there is refused by its kind.
            Err(errno) if is_absent(errno) || errno == Errno::LOOP => return Ok(true),
            other => other.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        Ok(stat.st_uid == uid || may_be_given(&fd, &stat).map_err(failed)?)
    }

    /// Removes a directory of the agent's own and everything in it; links are removed, never followed.
    pub fn remove_tree(&self, directory: &str) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("remove", directory, errno);
        let (above, name) = split(directory).ok_or_else(|| no_name(directory))?;
        let trusted = rustix::process::geteuid().as_raw();
        let Some(parent) = self.walk(above, trusted, Missing::Leave, &mut Vec::new())? else { return Ok(()) };
        match open_own_raw(&parent, name) {
            Ok(fd) => empty(&fd, 0, &self.fail_points).map_err(failed)?,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        }
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(failed)?;
        self.fail_points.hit("tree-removed");
        fsync(&parent).map_err(failed)
    }

    /// Removes a directory durably when nothing is in it; one that is absent or in use is ignored.
    pub fn remove_empty_dir(&self, directory: &str) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("remove", directory, errno);
        let (above, name) = split(directory).ok_or_else(|| no_name(directory))?;
        let trusted = rustix::process::geteuid().as_raw();
        let Some(parent) = self.walk(above, trusted, Missing::Leave, &mut Vec::new())? else { return Ok(()) };
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => fsync(&parent).map_err(failed),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Returns mode, user and group of a path, a link at its end not followed; `None` when it is absent.
    pub fn dress_of(&self, path: &str) -> Result<Option<(u32, u32, u32)>, HostError> {
        let path = &*match self.look(path)? {
            Look::Laid(_, laid) => return Ok(laid.dress()),
            Look::Disk(path) => path,
        };
        let failed = |errno: Errno| HostError::io("inspect", path, errno);
        match self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(errno) if is_absent(errno) => Ok(None),
            other => {
                let stat = rustix::fs::fstat(other.map_err(failed)?).map_err(failed)?;
                Ok(Some((stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)))
            }
        }
    }

    /// Returns where a path really is below the root: links of the directories on the way resolved, missing ones and
    /// those that no one can follow taken as they are written, the last component kept.
    pub fn real_path(&self, path: &str) -> Result<String, HostError> {
        self.follow(path, &mut Vec::new())
    }

    /// Returns where the links really are that the way to a path leads through, its last component not followed.
    pub fn links_on_the_way(&self, path: &str) -> Result<Vec<String>, HostError> {
        let mut links = Vec::new();
        self.follow(path, &mut links)?;
        Ok(links)
    }

    fn follow(&self, path: &str, followed: &mut Vec<String>) -> Result<String, HostError> {
        if let Some(plain) = self.plain(path) {
            return Ok(plain);
        }
        let mut real: Vec<String> = Vec::new();
        let mut rest: Vec<String> = relative(path).split('/').rev().map(str::to_owned).collect();
        let mut links = 0_u32;
        while let Some(name) = rest.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    real.pop();
                    continue;
                }
                _ => real.push(name),
            }
            if rest.is_empty() {
                break;
            }
            let Some(target) = self.link_target(&real.join("/"), path)? else { continue };
            links += 1;
            if links > MAX_DEPTH {
                return Ok(format!("/{}", relative(path)));
            }
            followed.push(format!("/{}", real.join("/")));
            real.pop();
            if target.starts_with('/') {
                real.clear();
            }
            rest.extend(relative(&target).split('/').rev().map(str::to_owned));
        }
        Ok(format!("/{}", real.join("/")))
    }

    /// Returns a path as it is written if its directory is there and no link leads to it: one question of the kernel, and not one for
    /// each part.
    fn plain(&self, path: &str) -> Option<String> {
        let parts: Vec<&str> = relative(path).split('/').collect();
        let (_, directory) = parts.split_last()?;
        let is_odd = parts.iter().any(|part| matches!(*part, "" | "." | ".."));
        if self.has_laid() || directory.is_empty() || is_odd {
            return None;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&*self.fd, directory.join("/"), flags, Mode::empty(), how).ok()?;
        Some(format!("/{}", parts.join("/")))
    }

    pub(super) fn link_target(&self, at: &str, path: &str) -> Result<Option<String>, HostError> {
        if let Some(laid) = self.laid_at(at) {
            return Ok(laid.link_target());
        }
        let failed = |errno: Errno| HostError::io("resolve", path, errno);
        let fd = match self.resolve(at, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(errno) if is_absent(errno) || is_unreachable(errno) => return Ok(None),
            other => other.map_err(failed)?,
        };
        match rustix::fs::readlinkat(fd, "", Vec::new()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            // It is not a link.
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// Returns true if a directory holds nothing that its new owner could not get at before.
fn may_be_given(fd: &OwnedFd, stat: &Stat) -> Result<bool, Errno> {
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    if stat.st_mode & OPEN == OPEN {
        return Ok(true);
    }
    let mut entries = Listing::read_from(fd)?;
    Ok(entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))))
}

fn sync_made(made: &[MadeDirectory], directory: &str) -> Result<(), HostError> {
    let failed = |errno: Errno| HostError::io("sync", directory, errno);
    for step in made {
        fsync(&step.fd).map_err(failed)?;
        fsync(&step.parent).map_err(failed)?;
    }
    Ok(())
}

fn open_own_raw(parent: &Dir, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn open_own(parent: &Dir, name: &str, path: &str) -> Result<OwnedFd, HostError> {
    open_own_raw(parent, name).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => {
            HostError::Kind { path: path.to_owned(), expected: "a directory", found: "a link or a file" }
        }
        other => HostError::io("open", path, other),
    })
}

fn empty(fd: &OwnedFd, depth: u32, fail_points: &FailPoints) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    let names = rustix::io::dup(fd)?;
    for entry in Listing::new(names)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            empty(&rustix::fs::openat(fd, name, flags, Mode::empty())?, depth + 1, fail_points)?;
            rustix::fs::unlinkat(fd, name, AtFlags::REMOVEDIR)?;
        } else {
            rustix::fs::unlinkat(fd, name, AtFlags::empty())?;
        }
        fail_points.hit("emptied");
    }
    Ok(())
}
