//! Entries of an archive become files below one directory.
//!
//! Each directory on the way is opened from the one above it, and no link is followed: an entry can't be written outside, by
//! whatever order of links and names. That is stricter than [`crate::host::root`]'s walk, which resolves links inside a root
//! and trusts directories by their owner: here the owners are the archive's, and a link on the way is an error.
//!
//! Nothing is synced: libostree syncs the file system before it writes the boot entry by which all this can be reached.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fsetxattr, futimens, linkat, lsetxattr, makedev, mkdirat, mknodat, openat, statat,
    symlinkat, utimensat,
};
use rustix::io::Errno;

use super::archive::{Entry, Kind, damaged};
use super::tree;

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 128 << 10;

/// A directory that entries are put below.
#[derive(Debug)]
pub(super) struct Unpacker {
    top: OwnedFd,
    /// The directories that are open, from the top; their times are set when they are left.
    way: Vec<Open>,
    times: Option<Timestamps>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    name: OsString,
    fd: OwnedFd,
    times: Option<Timestamps>,
}

impl Unpacker {
    /// Opens the directory.
    pub(super) fn new(top: &Path) -> io::Result<Self> {
        let top = openat(CWD, top, directory_flags(), Mode::empty())?;
        Ok(Self { top, way: Vec::new(), times: None, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Puts one entry there, in place of what has its name.
    pub(super) fn put(&mut self, entry: &Entry, contents: &mut dyn Read) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", entry.path.display()));
        self.put_unnamed(entry, contents).map_err(named)
    }

    fn put_unnamed(&mut self, entry: &Entry, contents: &mut dyn Read) -> io::Result<()> {
        let (Some(name), Some(above)) = (entry.path.file_name(), entry.path.parent()) else {
            if entry.kind != Kind::Directory {
                return Err(damaged("it stands for the directory itself and is none"));
            }
            self.leave_to(Path::new(""))?;
            dress(&self.top, entry)?;
            self.times = Some(times(entry));
            return Ok(());
        };
        self.enter(above)?;
        if entry.kind == Kind::Directory {
            self.enter(&entry.path)?;
            let Some(open) = self.way.last_mut() else { return Err(Errno::NOENT.into()) };
            dress(&open.fd, entry)?;
            open.times = Some(times(entry));
            return Ok(());
        }
        let linked = match &entry.kind {
            Kind::HardLink(target) => Some(self.reach(target)?),
            Kind::File | Kind::Directory | Kind::Symlink(_) | Kind::Fifo | Kind::Device { .. } => None,
        };
        let here = self.way.last().map_or_else(|| self.top.as_fd(), |open| open.fd.as_fd());
        if let (Kind::HardLink(target), Some(directory)) = (&entry.kind, linked) {
            let target = target.file_name().ok_or_else(|| damaged("it is a second name of a directory"))?;
            if same(&directory, target, here, name)? {
                return Ok(());
            }
            tree::remove(here, name)?;
            return Ok(linkat(directory, target, here, name, AtFlags::empty())?);
        }
        tree::remove(here, name)?;
        make(here, name, entry, contents, &mut self.buffer)
    }

    /// Sets the times of the directories that are still open.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.leave_to(Path::new(""))?;
        match self.times.take() {
            Some(times) => Ok(futimens(&self.top, &times)?),
            None => Ok(()),
        }
    }

    /// Opens the directories down to a path; missing ones are made.
    fn enter(&mut self, directory: &Path) -> io::Result<()> {
        self.leave_to(directory)?;
        for name in names(directory).skip(self.way.len()).map(OsStr::to_owned).collect::<Vec<_>>() {
            let above = self.way.last().map_or_else(|| self.top.as_fd(), |open| open.fd.as_fd());
            let fd = open_or_make(above, &name)?;
            self.way.push(Open { name, fd, times: None });
        }
        Ok(())
    }

    /// Closes the directories that are not on the way to a path.
    fn leave_to(&mut self, directory: &Path) -> io::Result<()> {
        let shared =
            self.way.iter().zip(names(directory)).take_while(|(open, name)| open.name == **name).count();
        while self.way.len() > shared {
            let Some(open) = self.way.pop() else { break };
            if let Some(times) = open.times {
                futimens(&open.fd, &times)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of a path that is there already.
    fn reach(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut fd = rustix::io::dup(&self.top)?;
        for name in names(path.parent().unwrap_or(Path::new(""))) {
            fd = openat(&fd, name, directory_flags(), Mode::empty())?;
        }
        Ok(fd)
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        Component::RootDir | Component::CurDir | Component::ParentDir | Component::Prefix(_) => None,
    })
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens a directory. A file or a link in its place goes: as an entry of the archive it would, too.
fn open_or_make(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    match openat(above, name, directory_flags(), Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP | Errno::NOTDIR) => tree::remove(above, name)?,
        other => return Ok(other?),
    }
    mkdirat(above, name, Mode::from_raw_mode(0o755))?;
    Ok(openat(above, name, directory_flags(), Mode::empty())?)
}

/// Returns true if two names are of one file.
fn same(directory: &OwnedFd, target: &OsStr, here: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let one = statat(directory, target, AtFlags::SYMLINK_NOFOLLOW)?;
    match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(two) => Ok((one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes what is no directory and no second name.
fn make(
    here: BorrowedFd<'_>,
    name: &OsStr,
    entry: &Entry,
    contents: &mut dyn Read,
    buffer: &mut [u8],
) -> io::Result<()> {
    let private = Mode::RUSR | Mode::WUSR;
    match &entry.kind {
        Kind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(here, name, flags, private)?);
            copy(contents, &mut file, buffer)?;
            dress(&OwnedFd::from(file.try_clone()?), entry)?;
            return Ok(futimens(&file, &times(entry))?);
        }
        Kind::Symlink(target) => symlinkat(target, here, name)?,
        Kind::Fifo => mknodat(here, name, FileType::Fifo, private, 0)?,
        Kind::Device { block, major, minor } => {
            let kind = if *block { FileType::BlockDevice } else { FileType::CharacterDevice };
            mknodat(here, name, kind, private, makedev(*major, *minor))?;
        }
        Kind::Directory | Kind::HardLink(_) => return Err(damaged("it is made elsewhere")),
    }
    let (user, group) = (Uid::from_raw(entry.user), Gid::from_raw(entry.group));
    chownat(here, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    // There is no call that takes a descriptor of a link: the kernel's name of the directory stands for it.
    let path = [format!("/proc/self/fd/{}/", here.as_raw_fd()).as_bytes(), name.as_bytes()].concat();
    for (attribute, value) in &entry.attributes {
        lsetxattr(&*path, attribute.as_os_str(), value, XattrFlags::empty())
            .map_err(|errno| attribute_error(attribute, errno))?;
    }
    if !matches!(entry.kind, Kind::Symlink(_)) {
        rustix::fs::chmodat(here, name, Mode::from_raw_mode(RawMode::from(entry.mode)), AtFlags::empty())?;
    }
    Ok(utimensat(here, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn copy(contents: &mut dyn Read, file: &mut File, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let read = match contents.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        file.write_all(buffer.get(..read).unwrap_or_default())?;
    }
}

/// Sets owner, attributes and mode, in this order: a new owner takes capabilities and set-user-id away.
fn dress(fd: &OwnedFd, entry: &Entry) -> io::Result<()> {
    fchown(fd, Some(Uid::from_raw(entry.user)), Some(Gid::from_raw(entry.group)))?;
    fchmod(fd, Mode::from_raw_mode(RawMode::from(entry.mode)))?;
    for (attribute, value) in &entry.attributes {
        let set = fsetxattr(fd, attribute.as_os_str(), value, XattrFlags::empty());
        set.map_err(|errno| attribute_error(attribute, errno))?;
    }
    Ok(())
}

fn attribute_error(attribute: &OsStr, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("the attribute {} can't be set: {error}", attribute.display()))
}

fn times(entry: &Entry) -> Timestamps {
    let (seconds, nanoseconds) = entry.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps { last_access: time, last_modification: time }
}

/// Removes a name below the directory, with what is in it; a missing one is ignored, a link on the way is none.
pub(super) fn delete(top: &Path, path: &str) -> io::Result<()> {
    let mut fd = openat(CWD, top, directory_flags(), Mode::empty())?;
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in above.split('/').filter(|part| !part.is_empty()) {
        fd = match openat(&fd, part, directory_flags(), Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
    }
    tree::remove(fd.as_fd(), OsStr::new(name))
}
