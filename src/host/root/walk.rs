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
//! a sticky one: in `/tmp`, whoever comes first owns the name.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{HostError, Root, relative};
use crate::host::error::{MOUNT_POINT, OTHERS_MAY_WRITE, Unsafe};

/// As many links as the kernel follows in one path.
const MAX_LINKS: u32 = 40;
const STICKY: u32 = 0o1000;

/// Handling of a missing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Missing {
    /// Make it, 0755.
    Make,
    /// Report it as absent.
    Leave,
}

/// Accounts, besides root and the agent's own, whose directories a walk may lead through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hands {
    /// This user.
    pub trusted: u32,
    /// Any other one as well. See the module's rules.
    pub enters: bool,
}

impl Hands {
    /// Trusts a user, and enters directories of any other.
    pub fn entering(trusted: u32) -> Self {
        Self { trusted, enters: true }
    }
}

impl From<u32> for Hands {
    fn from(trusted: u32) -> Self {
        Self { trusted, enters: false }
    }
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
        let found = rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }
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
    stack: Vec<Passed>,
    links: u32,
    missing: Missing,
}

/// A directory on the way.
struct Passed {
    fd: OwnedFd,
    name: String,
    account: Option<u32>,
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
        way.check(self.as_fd())?;
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
    /// Opens a regular file that only root and the agent's user may change or redirect;
    /// `None` when there is none. Unlike [`Root::walk`], the directory that holds it may not even be sticky.
    pub(super) fn walk_to_file(&self, path: &str) -> Result<Option<(OwnedFd, Stat)>, HostError> {
        let own = rustix::process::geteuid().as_raw();
        let mut way = Way::new(self, path, own.into(), Missing::Leave);
        way.check(self.as_fd())?;
        let mut rest = components(path);
        rest.retain(|name| !matches!(name.as_str(), "" | "."));
        while let Some(name) = rest.pop() {
            if !rest.is_empty() || name == ".." {
                if way.step(&name, &mut rest, &mut Vec::new())?.is_none() {
                    return Ok(None);
                }
                continue;
            }
            way.check_strictly(way.here())?;
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
        Way::new(self, directory, trusted.into(), Missing::Leave).check_strictly(dir.as_fd())?;
        Ok(Some(self.below(directory, dir.fd)))
    }
}

impl<'a> Way<'a> {
    fn new(root: &'a Root, requested: &'a str, hands: Hands, missing: Missing) -> Self {
        Self { root, requested, hands, stack: Vec::new(), links: 0, missing }
    }
}

impl Way<'_> {
    /// Walks; returns false where a directory is missing.
    fn go(&mut self, made: &mut Vec<MadeDirectory>) -> Result<bool, HostError> {
        self.check(self.root.as_fd())?;
        let mut rest = components(self.requested);
        while let Some(name) = rest.pop() {
            if self.step(&name, &mut rest, made)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the directory that was reached.
    fn end(mut self) -> Result<Dir, HostError> {
        let path = self.path();
        Ok(match self.stack.pop() {
            Some(Passed { fd, account, .. }) => Dir { fd, path, account },
            None => Dir { fd: self.error("open", rustix::io::dup(self.root.as_fd()))?, path, account: None },
        })
    }

    fn checked_file(&self, fd: OwnedFd) -> Result<(OwnedFd, Stat), HostError> {
        let stat = self.error("inspect", rustix::fs::fstat(&fd))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.not_a_file(super::kind_word(&stat)));
        }
        match unsafe_because(&stat, self.hands.trusted, false) {
            Some(rule) => {
                let path = real_path(fd.as_fd(), self.root).unwrap_or_else(|| self.requested.to_owned());
                Err(HostError::UnsafeFile { path, rule })
            }
            None => Ok((fd, stat)),
        }
    }

    fn not_a_file(&self, found: &'static str) -> HostError {
        HostError::Kind { path: self.requested.to_owned(), expected: "a regular file", found }
    }

    fn check_strictly(&self, fd: BorrowedFd<'_>) -> Result<(), HostError> {
        self.check_as(fd, false).map(drop)
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.stack.last().map_or_else(|| self.root.as_fd(), |passed| passed.fd.as_fd())
    }

    fn path(&self) -> String {
        self.stack.iter().fold(String::new(), |path, passed| path + "/" + &passed.name)
    }

    /// Returns the account, other than root and the agent's user, in whose directory the way is.
    fn account(&self) -> Option<u32> {
        self.stack.last().and_then(|passed| passed.account)
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
        let account = self.check(fd.as_fd())?;
        self.stack.push(Passed { fd, name: name.to_owned(), account });
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
            return Err(HostError::Kind {
                path: format!("{}/{name}", self.path()),
                expected: "a directory",
                found: super::kind_word(&link),
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
            return self.error("resolve", Err(Errno::LOOP));
        }
        let target = self.error("read the link to", rustix::fs::readlinkat(self.here(), name, Vec::new()))?;
        let target = target.into_string().map_err(|_| self.unsafe_link(name, Unsafe::LinkText))?;
        if target.starts_with('/') {
            self.stack.clear();
        }
        rest.extend(components(&target));
        Ok(())
    }

    fn check(&self, fd: BorrowedFd<'_>) -> Result<Option<u32>, HostError> {
        self.check_as(fd, true)
    }

    /// Checks a directory that the way would lead to; returns the account in whose directory it is then.
    fn check_as(&self, fd: BorrowedFd<'_>, may_be_sticky: bool) -> Result<Option<u32>, HostError> {
        let stat = self.error("inspect the directory of", rustix::fs::fstat(fd))?;
        let sticky = may_be_sticky && stat.st_mode & STICKY != 0;
        let (owner, account) = (stat.st_uid, self.account());
        let entered = self.hands.enters
            && !own_hands(owner)
            && account.is_none_or(|account| account == owner)
            && !self.is_shared()?;
        let trusted = if entered { owner } else { self.hands.trusted };
        let Some(rule) = unsafe_because(&stat, trusted, sticky) else {
            return Ok(account.or((!own_hands(owner)).then_some(owner)));
        };
        // The directory itself is not on the stack yet: the one requested is named as far as the walk got.
        let directory = real_path(fd, self.root).unwrap_or_else(|| self.path());
        Err(self.unsafe_directory(directory, rule))
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

    /// Returns true if others may make names here, as in `/tmp`.
    fn is_shared(&self) -> Result<bool, HostError> {
        let here = self.error("inspect the directory of", rustix::fs::fstat(self.here()))?;
        Ok(here.st_mode & OTHERS_MAY_WRITE != 0)
    }

    fn unsafe_link(&self, name: &str, rule: Unsafe) -> HostError {
        self.unsafe_directory(format!("{}/{name}", self.path()), rule)
    }
}

fn own_hands(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Returns why others than root, the agent's user and a trusted one may change something. In a sticky directory
/// everybody may write, but only change their own files.
fn unsafe_because(stat: &Stat, trusted: u32, sticky: bool) -> Option<Unsafe> {
    let (uid, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    if !own_hands(uid) && uid != trusted {
        return Some(Unsafe::Owner { uid, mode });
    }
    (mode & OTHERS_MAY_WRITE != 0 && !sticky).then_some(Unsafe::Writable { uid, mode })
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
