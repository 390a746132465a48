//! The walk to a directory that is to be written to: component by component, no link followed by the kernel.
//!
//! Each directory on the way must belong to root, to the agent's own user or to the user whom the file will belong to,
//! and must not be writable by others (a sticky one such as `/tmp` may be). Links are read and resolved here, inside
//! the root, and only where root or the agent alone could have made them. An opened directory stays open: a directory
//! that is swapped afterwards is not the one that is written to.
//!
//! # Directories of other accounts
//! Packages give directories to the account of their program (`/etc/polkit-1/rules.d`), and configs have files there. A
//! walk that may enter one ([`Hands::entering`]) does, and what its owner can do stays within it: he may rename, replace and
//! remove whatever is there, and root can read that as well as he. From there on
//! - no link is followed, also none that root made: its directory may have been renamed to here;
//! - no mount is crossed: his may be a FUSE file system, which answers when it likes;
//! - a directory must be his or root's; a third account in between is refused;
//! - a directory that is made keeps the mode and the label that it is made with: by its name another may be there by now.
//!
//! Directories that a group or everybody may write to have no one owner, and are refused. So is one of another account below
//! a sticky one: in `/tmp`, whoever comes first owns the name. The rule itself is [`Reached::enter`].

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::ahead::{DirectoriesAhead, DirectoryAhead};
use super::attributes::drop_access_lists;
use super::laid::LaidPath;
use super::{HostError, Root, relative};
use crate::host::error::{DIRECTORY, MOUNT_POINT, Unsafe};
pub use crate::model::walk::Hands;
use crate::model::walk::{Closed, Reached, Use};

/// As many links as the kernel follows in one path.
const MAX_LINKS: u32 = 40;

/// Handling of a missing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Missing {
    /// Make it, 0755.
    Make,
    /// Report it as absent.
    Leave,
}

/// A directory below the root, checked and open.
#[derive(Debug)]
pub(in crate::host) struct Dir {
    fd: OwnedFd,
    path: String,
    /// Its owner, or the one of a directory above it, where that is neither root nor the agent's user.
    account: Option<u32>,
}

/// A directory that the walk made: it has to be synced, and so has the one it is in.
#[derive(Debug)]
pub(in crate::host) struct MadeDirectory {
    /// The directory it is in.
    pub(in crate::host) parent: OwnedFd,
    /// Its name there.
    pub(in crate::host) name: String,
    /// Itself.
    pub(in crate::host) fd: OwnedFd,
    /// Its real path below the root.
    pub(in crate::host) path: String,
    /// It is in a directory of another account.
    pub(in crate::host) is_foreign: bool,
}

impl Dir {
    /// Returns the real path below the root, without links.
    pub(in crate::host) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the account that may change names here or above, if it is neither root nor the agent's user.
    pub(in crate::host) fn account(&self) -> Option<u32> {
        self.account
    }

    /// Refuses a name that a mount is over.
    pub(in crate::host) fn check_mount(&self, name: &str, path: &str) -> Result<(), HostError> {
        let how = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(self, name, flags, Mode::empty(), how) {
            Err(Errno::XDEV) => Err(mounted(path.to_owned(), "a file, a link or nothing")),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Dir {
    /// Opens a directory here, for looking.
    pub(in crate::host) fn open_directory(&self, name: &str) -> Result<OwnedFd, Errno> {
        open_directory(self.as_fd(), name)
    }

    /// Returns true if a name is a directory, whatever is mounted on it.
    pub(in crate::host) fn has_directory(&self, name: &str) -> bool {
        is_directory(self.as_fd(), name)
    }
}

fn is_directory(at: BorrowedFd<'_>, name: &str) -> bool {
    let found = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Returns the error of a mount where none may be.
fn mounted(path: String, expected: &'static str) -> HostError {
    HostError::Kind { path, expected, found: MOUNT_POINT }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The way that was walked: open directories from the root to here.
struct Way<'a> {
    root: &'a Root,
    requested: &'a str,
    hands: Hands,
    /// The root itself.
    base: Reached,
    stack: Vec<Passed>,
    links: u32,
    /// The last link that was followed, and the number of names that were left behind it.
    link: Option<(String, usize)>,
    missing: Missing,
    /// Directories as they will be.
    ahead: Option<&'a DirectoriesAhead>,
}

/// A directory on the way.
struct Passed {
    fd: OwnedFd,
    name: String,
    reached: Reached,
}

impl Root {
    /// Walks to a directory. `None` when it does not exist and is not to be made.
    pub(in crate::host) fn walk(
        &self,
        directory: &str,
        hands: impl Into<Hands>,
        missing: Missing,
        made: &mut Vec<MadeDirectory>,
    ) -> Result<Option<Dir>, HostError> {
        self.note_walk(directory)?;
        let mut way = Way::new(self, directory, hands.into(), missing);
        Ok(if way.go(made)? { Some(way.end()?) } else { None })
    }

    /// Returns where the directories really are that a walk would make, parents first.
    pub(in crate::host) fn missing_directories(
        &self,
        directory: &str,
        hands: impl Into<Hands>,
    ) -> Result<Vec<String>, HostError> {
        self.note_walk(directory)?;
        let mut way = Way::new(self, directory, hands.into(), Missing::Leave);
        way.begin()?;
        let mut rest = components(directory);
        while let Some(name) = rest.pop() {
            if way.step(&name, &mut rest, &mut Vec::new())?.is_none() {
                rest.push(name);
                break;
            }
        }
        let mut path = way.path();
        let names = rest.iter().rev().filter(|name| !matches!(name.as_str(), "" | "."));
        let below = names.take_while(|name| *name != "..").map(|name| {
            path = format!("{path}/{name}");
            path.clone()
        });
        Ok(below.collect())
    }

    /// Walks to a directory as far as there is one; returns true if that is it.
    pub(in crate::host) fn walk_existing(
        &self,
        directory: &str,
        hands: impl Into<Hands>,
    ) -> Result<(Dir, bool), HostError> {
        self.note_walk(directory)?;
        let mut way = Way::new(self, directory, hands.into(), Missing::Leave);
        let is_whole = way.go(&mut Vec::new())?;
        Ok((way.end()?, is_whole))
    }
}

impl Root {
    /// Walks to a directory as it will be, and as far as that can be told: an error is the refusal of a later walk.
    pub fn walk_ahead(
        &self,
        directory: &str,
        hands: impl Into<Hands>,
        ahead: &DirectoriesAhead,
    ) -> Result<(), HostError> {
        let mut way = Way::new(self, directory, hands.into(), Missing::Leave);
        way.ahead = Some(ahead);
        way.begin()?;
        let mut rest = components(directory);
        while let Some(name) = rest.pop() {
            let path = format!("{}/{name}", way.path());
            // What an open update has made goes with its undo.
            let is_gone = matches!(self.laid_at(&path), Some(LaidPath::Absent));
            if is_gone
                || ahead.get(&path).is_some() && !is_directory(way.here(), &name)
                || way.step(&name, &mut rest, &mut Vec::new())?.is_none()
            {
                rest.push(name);
                return way.go_beyond(&rest);
            }
        }
        Ok(())
    }

    /// Opens a regular file that only root and the agent's user may change or redirect;
    /// `None` when there is none. Unlike [`Root::walk`], the directory that holds it may not even be sticky.
    pub(super) fn walk_to_file(&self, path: &str) -> Result<Option<(OwnedFd, Stat)>, HostError> {
        let own = rustix::process::geteuid().as_raw();
        let mut way = Way::new(self, path, own.into(), Missing::Leave);
        way.begin()?;
        let mut rest = components(path);
        rest.retain(|name| !matches!(name.as_str(), "" | "."));
        while let Some(name) = rest.pop() {
            if !rest.is_empty() || name == ".." {
                if way.step(&name, &mut rest, &mut Vec::new())?.is_none() {
                    return Ok(None);
                }
                continue;
            }
            way.check_strictly(way.here(), &way.path())?;
            let flags =
                OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(way.here(), &*name, flags, Mode::empty()) {
                Ok(fd) => return way.checked_file(fd).map(Some),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP) => way.follow(&name, &mut rest)?,
                // A socket, or a device without a driver.
                Err(Errno::NXIO) => return Err(way.not_a_file("a socket")),
                Err(errno) => return way.error("open", Err(errno)),
            }
        }
        Err(way.not_a_file("a directory"))
    }

    /// Opens a directory as a root of its own, if only root and the agent's user may redirect its path; `None` when
    /// there is none. Not even its own bits let others write.
    pub fn trusted_directory(&self, directory: &str) -> Result<Option<Self>, HostError> {
        let trusted = rustix::process::geteuid().as_raw();
        let Some(dir) = self.walk(directory, trusted, Missing::Leave, &mut Vec::new())? else {
            return Ok(None);
        };
        Way::new(self, directory, trusted.into(), Missing::Leave).check_strictly(dir.as_fd(), &dir.path)?;
        Ok(Some(self.below(directory, dir.fd)))
    }
}

impl<'a> Way<'a> {
    fn new(root: &'a Root, requested: &'a str, hands: Hands, missing: Missing) -> Self {
        let (base, stack, ahead) = (Reached::default(), Vec::new(), None);
        Self { root, requested, hands, base, stack, links: 0, link: None, missing, ahead }
    }
}

impl Way<'_> {
    fn begin(&mut self) -> Result<(), HostError> {
        self.base = self.check(self.root.as_fd(), String::new)?;
        Ok(())
    }

    /// Walks; returns false where a directory is missing.
    fn go(&mut self, made: &mut Vec<MadeDirectory>) -> Result<bool, HostError> {
        self.begin()?;
        let mut rest = components(self.requested);
        while let Some(name) = rest.pop() {
            if self.step(&name, &mut rest, made)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes on through directories that are not there yet.
    fn go_beyond(&self, rest: &[String]) -> Result<(), HostError> {
        let (mut path, mut reached) = (self.path(), self.reached());
        let names = rest.iter().rev().filter(|name| !matches!(name.as_str(), "" | "."));
        for name in names.take_while(|name| *name != "..") {
            path = format!("{path}/{name}");
            let ahead = self.ahead.and_then(|ahead| ahead.get(&path)).unwrap_or(DirectoryAhead::MADE);
            let DirectoryAhead { mode, uid } = ahead;
            reached = reached
                .enter(mode, other_hands(uid), self.hands, Use::Way)
                .map_err(|closed| self.unsafe_directory(path.clone(), unsafe_because(closed, uid, mode)))?;
        }
        Ok(())
    }

    /// Returns the directory that was reached.
    fn end(mut self) -> Result<Dir, HostError> {
        let path = self.path();
        Ok(match self.stack.pop() {
            Some(Passed { fd, reached, .. }) => Dir { fd, path, account: reached.account },
            None => Dir { fd: self.error("open", rustix::io::dup(self.root.as_fd()))?, path, account: None },
        })
    }

    fn checked_file(&self, fd: OwnedFd) -> Result<(OwnedFd, Stat), HostError> {
        let stat = self.error("inspect", rustix::fs::fstat(&fd))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.not_a_file(super::kind_word(&stat)));
        }
        let owner = other_hands(stat.st_uid);
        match Reached::default().enter(stat.st_mode, owner, self.hands.trusted.into(), Use::Trust) {
            Err(closed) => {
                let rule = unsafe_because(closed, stat.st_uid, stat.st_mode & 0o7777);
                let path = real_path(fd.as_fd(), self.root).unwrap_or_else(|| self.requested.to_owned());
                Err(HostError::UnsafeFile { path, rule })
            }
            Ok(_) => Ok((fd, stat)),
        }
    }

    fn not_a_file(&self, found: &'static str) -> HostError {
        HostError::Kind { path: self.requested.to_owned(), expected: "a regular file", found }
    }

    fn check_strictly(&self, fd: BorrowedFd<'_>, path: &str) -> Result<(), HostError> {
        self.check_as(fd, || path.to_owned(), Use::Trust).map(drop)
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.stack.last().map_or_else(|| self.root.as_fd(), |passed| passed.fd.as_fd())
    }

    fn path(&self) -> String {
        self.stack.iter().fold(String::new(), |path, passed| path + "/" + &passed.name)
    }

    /// Returns the account, other than root and the agent's user, in whose directory the way is.
    fn account(&self) -> Option<u32> {
        self.reached().account
    }

    fn reached(&self) -> Reached {
        self.stack.last().map_or(self.base, |passed| passed.reached)
    }

    /// Opens a directory here. In one of another account than the trusted one, no mount is crossed.
    fn open_directory(&self, name: &str) -> Result<OwnedFd, Errno> {
        if self.account().is_none_or(|account| account == self.hands.trusted) {
            return open_directory(self.here(), name);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(self.here(), name, flags, Mode::empty(), how)
    }

    fn push(&mut self, fd: OwnedFd, name: &str) -> Result<(), HostError> {
        let reached = self.check(fd.as_fd(), || format!("{}/{name}", self.path()))?;
        self.stack.push(Passed { fd, name: name.to_owned(), reached });
        Ok(())
    }

    fn error<T>(&self, action: &'static str, result: Result<T, Errno>) -> Result<T, HostError> {
        result.map_err(|errno| HostError::io(action, self.requested, errno))
    }

    /// Takes one component; `None` when it is missing.
    fn step(
        &mut self,
        name: &str,
        rest: &mut Vec<String>,
        made: &mut Vec<MadeDirectory>,
    ) -> Result<Option<()>, HostError> {
        match name {
            "" | "." => return Ok(Some(())),
            ".." => {
                self.stack.pop();
                return Ok(Some(()));
            }
            _ => {}
        }
        match self.open_directory(name) {
            Ok(fd) => self.push(fd, name)?,
            Err(Errno::XDEV) => {
                return Err(mounted(format!("{}/{name}", self.path()), "a directory of its account"));
            }
            Err(Errno::NOENT) if self.missing == Missing::Leave => return Ok(None),
            Err(Errno::NOENT) => self.make(name, made)?,
            Err(Errno::LOOP | Errno::NOTDIR) => self.follow(name, rest)?,
            Err(errno) => return self.error("open the directory of", Err(errno)),
        }
        Ok(Some(()))
    }

    fn make(&mut self, name: &str, made: &mut Vec<MadeDirectory>) -> Result<(), HostError> {
        let is_made = match rustix::fs::mkdirat(self.here(), name, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            // Someone made it meanwhile: it is checked like any other.
            Err(Errno::EXIST) => false,
            Err(errno) => return self.error("make the directory of", Err(errno)),
        };
        let parent = self.error("open the directory of", rustix::io::dup(self.here()))?;
        let is_foreign = self.account().is_some();
        let fd = self.error("open the directory of", self.open_directory(name))?;
        self.push(fd, name)?;
        if !is_made {
            return Ok(());
        }
        if !is_foreign {
            let dropped = drop_access_lists(self.here());
            self.error("drop the access list of the directory of", dropped)?;
            // The umask took bits away.
            let mode = Mode::from_raw_mode(0o755);
            self.error("set the mode of the directory of", rustix::fs::fchmod(self.here(), mode))?;
        }
        let fd = self.error("open the directory of", rustix::io::dup(self.here()))?;
        made.push(MadeDirectory { parent, name: name.to_owned(), fd, path: self.path(), is_foreign });
        Ok(())
    }

    fn follow(&mut self, name: &str, rest: &mut Vec<String>) -> Result<(), HostError> {
        let link = self.error("inspect", rustix::fs::statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW))?;
        if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
            let end = self.link.take().filter(|(_, left)| *left == rest.len());
            return Err(match end {
                // What it leads to may be anybody's, and right as it is.
                Some((path, _)) => {
                    HostError::Kind { path, expected: DIRECTORY, found: "a link that leads to none" }
                }
                None => HostError::Kind {
                    path: format!("{}/{name}", self.path()),
                    expected: DIRECTORY,
                    found: super::kind_word(&link),
                },
            });
        }
        let here = self.error("inspect", rustix::fs::fstat(self.here()))?;
        if let Some(uid) = self.account() {
            return Err(self.unsafe_link(name, Unsafe::Link { uid }));
        }
        if !own_hands(here.st_uid) || !own_hands(link.st_uid) {
            let uid = if own_hands(link.st_uid) { here.st_uid } else { link.st_uid };
            return Err(self.unsafe_link(name, Unsafe::Link { uid }));
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            let path = format!("{}/{name}", self.path());
            return Err(HostError::Kind { path, expected: DIRECTORY, found: "a link that leads to itself" });
        }
        let target = self.error("read the link to", rustix::fs::readlinkat(self.here(), name, Vec::new()))?;
        let target = target.into_string().map_err(|_| self.unsafe_link(name, Unsafe::LinkText))?;
        self.link = Some((format!("{}/{name}", self.path()), rest.len()));
        if target.starts_with('/') {
            self.stack.clear();
        }
        rest.extend(components(&target));
        Ok(())
    }

    fn check(&self, fd: BorrowedFd<'_>, path: impl Fn() -> String) -> Result<Reached, HostError> {
        self.check_as(fd, path, Use::Way)
    }

    /// Checks a directory that the way would lead to; returns where it is then. Its path is put together where it is needed: of each
    /// directory on a deep way, it would cost more than the walk.
    fn check_as(&self, fd: BorrowedFd<'_>, path: impl Fn() -> String, of: Use) -> Result<Reached, HostError> {
        let mut stat = self.error("inspect the directory of", rustix::fs::fstat(fd))?;
        // As the undo of an open update leaves it.
        if self.root.has_laid()
            && let Some(LaidPath::Directory { mode, uid, .. }) = self.root.laid_at(&path())
        {
            (stat.st_mode, stat.st_uid) = (*mode, *uid);
        }
        if let Some(ahead) = self.ahead.and_then(|ahead| ahead.get(&path())) {
            (stat.st_mode, stat.st_uid) = (ahead.mode, ahead.uid);
        }
        self.reached().enter(stat.st_mode, other_hands(stat.st_uid), self.hands, of).map_err(|closed| {
            let directory = real_path(fd, self.root).unwrap_or_else(path);
            self.unsafe_directory(directory, unsafe_because(closed, stat.st_uid, stat.st_mode & 0o7777))
        })
    }

    fn unsafe_directory(&self, directory: String, rule: Unsafe) -> HostError {
        // The way to a file of an account, such as its keys, leads through its own directories, and maybe through others' by mistake.
        let rule = match rule {
            _ if self.hands.enters => rule.of_program(),
            Unsafe::Owner { .. } if !own_hands(self.hands.trusted) => rule.of_program(),
            Unsafe::Owner { .. }
            | Unsafe::Writable { .. }
            | Unsafe::Link { .. }
            | Unsafe::Account { .. }
            | Unsafe::Shared { .. }
            | Unsafe::LinkOfAccount { .. }
            | Unsafe::LinkText => rule,
        };
        HostError::UnsafeDirectory { path: self.requested.to_owned(), directory, rule }
    }

    fn unsafe_link(&self, name: &str, rule: Unsafe) -> HostError {
        self.unsafe_directory(format!("{}/{name}", self.path()), rule)
    }
}

fn own_hands(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Returns the owner of something, if that is neither root nor the agent's user.
fn other_hands(uid: u32) -> Option<u32> {
    (!own_hands(uid)).then_some(uid)
}

fn unsafe_because(closed: Closed, uid: u32, mode: u32) -> Unsafe {
    match closed {
        Closed::Owner => Unsafe::Owner { uid, mode },
        Closed::Writable => Unsafe::Writable { uid, mode },
    }
}

fn open_directory(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Returns the components, last first.
fn components(path: &str) -> Vec<String> {
    relative(path).split('/').rev().map(str::to_owned).collect()
}

/// Returns where a descriptor is, as the kernel names it, for error texts.
fn real_path(fd: BorrowedFd<'_>, root: &Root) -> Option<String> {
    use std::os::fd::AsRawFd as _;
    let name = |fd: BorrowedFd<'_>| {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::readlink(link, Vec::new()).ok()?.into_string().ok()
    };
    let (base, path) = (name(root.as_fd())?, name(fd)?);
    match path.strip_prefix(base.trim_end_matches('/'))? {
        "" => Some("/".to_owned()),
        below => Some(below.to_owned()),
    }
}
