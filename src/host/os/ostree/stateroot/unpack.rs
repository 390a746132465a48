//! Entries of an archive become files below one directory.
//!
//! Each directory on the way is opened from the one above it, and no link is followed: an entry can't be written outside, by
//! whatever order of links and names. That is stricter than [`crate::host::root`]'s walk, which resolves links inside a root
//! and trusts directories by their owner: here the owners are the archive's, and a link on the way is an error.
//!
//! Nothing is synced: libostree syncs the file system before it writes the boot entry by which all this can be reached.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fsetxattr, fstat, fstatvfs, futimens, linkat, lremovexattr, lsetxattr, makedev, mkdirat,
    mknodat, openat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::archive::{Entry, Kind, damaged, named};
use super::tree;
use crate::host::root::{ACCESS_LIST, drop_access_lists};

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 128 << 10;

/// Bytes after which the free space is looked at again.
const LOOK_BYTES: u64 = 16 << 20;

/// Bytes that a name takes, at most a few of these.
const NAME_BYTES: u64 = 4096;

/// Writes, and leaves the bytes free that libostree keeps.
#[derive(Debug)]
pub(super) struct Disk {
    reserve: u64,
    /// Written since the free space was looked at.
    written: u64,
    buffer: Vec<u8>,
}

impl Disk {
    /// Takes the bytes that stay free.
    pub(super) fn new(reserve: u64) -> Self {
        Self { reserve, written: 0, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Copies the contents of a file.
    pub(super) fn copy(&mut self, contents: &mut dyn Read, file: &mut File) -> io::Result<u64> {
        let mut copied = 0;
        loop {
            let read = match contents.read(&mut self.buffer) {
                Ok(0) => return Ok(copied),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            file.write_all(self.buffer.get(..read).unwrap_or_default())?;
            let read = u64::try_from(read).unwrap_or(u64::MAX);
            copied += read;
            self.count(read, &*file)?;
        }
    }

    /// Counts what was written, and fails when too little is free.
    fn count(&mut self, bytes: u64, on: impl AsFd) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes);
        if self.written < LOOK_BYTES {
            return Ok(());
        }
        self.written = 0;
        let space = fstatvfs(on)?;
        if space.f_bfree.saturating_mul(space.f_frsize) >= self.reserve {
            return Ok(());
        }
        let cause = format!("no space left beside the {} bytes that libostree keeps free", self.reserve);
        Err(io::Error::new(io::ErrorKind::StorageFull, cause))
    }
}

/// Attributes that a process may lack the capability for: the kernel wants that of mounts for them.
const PRIVILEGED: [&[u8]; 2] = [b"security.", b"trusted."];

/// An attribute of a path, and its value.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attribute {
    path: Vec<u8>,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Attribute {
    /// Returns it as one of a directory above.
    pub(super) fn below(self, directory: &str) -> Self {
        Self { path: [directory.as_bytes(), &self.path].join(&b'/'), ..self }
    }

    /// Returns true if its path is below a directory.
    pub(super) fn is_below(&self, directory: &str) -> bool {
        Path::new(OsStr::from_bytes(&self.path)).starts_with(directory)
    }
}

/// Attributes of one entry.
type Attributes = Vec<(OsString, Vec<u8>)>;

/// A directory that entries are put below.
#[derive(Debug)]
pub(super) struct Unpacker {
    top: OwnedFd,
    /// Owner of directories that no entry stands for.
    owner: (Uid, Gid),
    /// Attributes that this process may not set.
    refused: BTreeMap<PathBuf, Attributes>,
    /// The directories that are open, from the top; their times are set when they are left.
    way: Vec<Open>,
    times: Option<Timestamps>,
    disk: Disk,
}

#[derive(Debug)]
struct Open {
    name: OsString,
    fd: OwnedFd,
    times: Option<Timestamps>,
}

impl Unpacker {
    /// Opens the directory; `reserve` are the bytes that stay free.
    pub(super) fn new(top: &Path, reserve: u64) -> io::Result<Self> {
        let top = openat(CWD, top, directory_flags(), Mode::empty())?;
        let stat = fstat(&top)?;
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let (refused, disk) = (BTreeMap::new(), Disk::new(reserve));
        Ok(Self { top, owner, refused, way: Vec::new(), times: None, disk })
    }

    /// Puts one entry there, in place of what has its name.
    pub(super) fn put(&mut self, entry: &Entry, contents: &mut dyn Read) -> io::Result<()> {
        let with_name = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", named(entry.path.as_os_str())))
        };
        let put = self.disk.count(NAME_BYTES, &self.top).and_then(|()| self.put_unnamed(entry, contents));
        let refused = put.map_err(with_name)?;
        self.forget(entry);
        if !refused.is_empty() {
            self.refused.insert(entry.path.clone(), refused);
        }
        Ok(())
    }

    /// Drops the attributes of what an entry has replaced, with what was below it.
    fn forget(&mut self, entry: &Entry) {
        if entry.kind == Kind::Directory {
            self.refused.remove(&entry.path);
            return;
        }
        let below = self.refused.range(entry.path.clone()..).map(|(path, _)| path);
        let gone: Vec<_> = below.take_while(|path| path.starts_with(&entry.path)).cloned().collect();
        for path in gone {
            self.refused.remove(&path);
        }
    }

    /// Returns the attributes that this process may not set.
    fn put_unnamed(&mut self, entry: &Entry, contents: &mut dyn Read) -> io::Result<Attributes> {
        let (Some(name), Some(above)) = (entry.path.file_name(), entry.path.parent()) else {
            if entry.kind != Kind::Directory {
                return Err(damaged("it stands for the directory itself and is none"));
            }
            self.leave_to(Path::new(""))?;
            self.times = Some(times(entry));
            return dress(&self.top, entry);
        };
        self.enter(above)?;
        if entry.kind == Kind::Directory {
            self.enter(&entry.path)?;
            let Some(open) = self.way.last_mut() else { return Err(Errno::NOENT.into()) };
            open.times = Some(times(entry));
            return dress(&open.fd, entry);
        }
        let linked = match &entry.kind {
            Kind::HardLink(target) => Some(reach(&self.top, target).map_err(|error| absent(target, error))?),
            Kind::File | Kind::Directory | Kind::Symlink(_) | Kind::Fifo | Kind::Device { .. } => None,
        };
        let here = self.way.last().map_or_else(|| self.top.as_fd(), |open| open.fd.as_fd());
        if let (Kind::HardLink(target), Some(directory)) = (&entry.kind, linked) {
            let target = target.file_name().ok_or_else(|| damaged("it is a second name of a directory"))?;
            if same(&directory, target, here, name).map_err(|error| absent(Path::new(target), error))? {
                return Ok(Attributes::new());
            }
            tree::remove(here, name)?;
            linkat(directory, target, here, name, AtFlags::empty())?;
            return Ok(Attributes::new());
        }
        tree::remove(here, name)?;
        make(here, name, entry, contents, &mut self.disk)
    }

    /// Sets the times of the directories that are still open; returns the attributes that this process may not set.
    pub(super) fn finish(mut self) -> io::Result<Vec<Attribute>> {
        self.leave_to(Path::new(""))?;
        if let Some(times) = self.times.take() {
            futimens(&self.top, &times)?;
        }
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        let refused = self.refused.into_iter().flat_map(|(path, attributes)| {
            let path = bytes(path.as_os_str());
            attributes.into_iter().map(move |(name, value)| Attribute {
                path: path.clone(),
                name: bytes(&name),
                value,
            })
        });
        Ok(refused.collect())
    }

    /// Opens the directories down to a path; missing ones are made.
    fn enter(&mut self, directory: &Path) -> io::Result<()> {
        self.leave_to(directory)?;
        for name in names(directory).skip(self.way.len()).map(OsStr::to_owned).collect::<Vec<_>>() {
            let above = self.way.last().map_or_else(|| self.top.as_fd(), |open| open.fd.as_fd());
            let fd = open_or_make(above, &name, self.owner)?;
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
}

/// Opens the directory of a path that is there already.
fn reach(top: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut fd = rustix::io::dup(top)?;
    for name in names(path.parent().unwrap_or(Path::new(""))) {
        fd = openat(&fd, name, directory_flags(), Mode::empty())?;
    }
    Ok(fd)
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
fn open_or_make(above: BorrowedFd<'_>, name: &OsStr, (user, group): (Uid, Gid)) -> io::Result<OwnedFd> {
    match openat(above, name, directory_flags(), Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP | Errno::NOTDIR) => tree::remove(above, name)?,
        other => return Ok(other?),
    }
    mkdirat(above, name, Mode::from_raw_mode(0o755))?;
    let made = openat(above, name, directory_flags(), Mode::empty())?;
    fchown(&made, Some(user), Some(group))?;
    Ok(made)
}

/// Returns the error of a second name whose file is not below the directory: it is missing, or a link is on the way.
fn absent(target: &Path, error: io::Error) -> io::Error {
    let missing = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR];
    if missing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
        return damaged(format!(
            "{}, of which it is a second name, is not in the archive",
            named(target.as_os_str())
        ));
    }
    error
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

/// Makes what is no directory and no second name; returns the attributes that this process may not set.
fn make(
    here: BorrowedFd<'_>,
    name: &OsStr,
    entry: &Entry,
    contents: &mut dyn Read,
    disk: &mut Disk,
) -> io::Result<Attributes> {
    let private = Mode::RUSR | Mode::WUSR;
    match &entry.kind {
        Kind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(here, name, flags, private)?);
            disk.copy(contents, &mut file)?;
            let refused = dress(&file, entry)?;
            futimens(&file, &times(entry))?;
            return Ok(refused);
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
    drop_list_by_name(here, name)?;
    let refused = set_all(entry, |attribute, value| set_by_name(here, name, attribute, value))?;
    if !matches!(entry.kind, Kind::Symlink(_)) {
        rustix::fs::chmodat(here, name, Mode::from_raw_mode(RawMode::from(entry.mode)), AtFlags::empty())?;
    }
    utimensat(here, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(refused)
}

/// Sets owner, mode and attributes, in this order: a new owner takes capabilities and set-user-id away. Access lists are those of
/// the archive, and none that a directory of it passes on. Returns the attributes that this process may not set.
fn dress(fd: impl AsFd, entry: &Entry) -> io::Result<Attributes> {
    drop_access_lists(&fd)?;
    fchown(&fd, Some(Uid::from_raw(entry.user)), Some(Gid::from_raw(entry.group)))?;
    fchmod(&fd, Mode::from_raw_mode(RawMode::from(entry.mode)))?;
    set_all(entry, |attribute, value| fsetxattr(&fd, attribute, value, XattrFlags::empty()))
}

/// Sets the attributes of an entry; returns those that this process may not set.
fn set_all(entry: &Entry, set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>) -> io::Result<Attributes> {
    let mut refused = Attributes::new();
    for (attribute, value) in &entry.attributes {
        let is_privileged = || PRIVILEGED.iter().any(|start| attribute.as_bytes().starts_with(start));
        match set(attribute, value) {
            Err(Errno::PERM) if is_privileged() => refused.push((attribute.clone(), value.clone())),
            other => other.map_err(|errno| attribute_error(attribute, errno))?,
        }
    }
    Ok(refused)
}

/// Sets an attribute by the name of a file.
fn set_by_name(here: impl AsFd, name: &OsStr, attribute: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
    lsetxattr(by_name(here, name), attribute, value, XattrFlags::empty())
}

/// Takes the access list from what is no file and no directory, as [`drop_access_lists`].
fn drop_list_by_name(here: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    match lremovexattr(by_name(here, name), ACCESS_LIST) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        removed => removed,
    }
}

/// There is no call that takes a descriptor of a link: the kernel's name of the directory stands for it.
fn by_name(here: impl AsFd, name: &OsStr) -> Vec<u8> {
    let here = format!("/proc/self/fd/{}/", here.as_fd().as_raw_fd());
    [here.as_bytes(), name.as_bytes()].concat()
}

/// Sets an attribute that an unpacker was refused, below the same directory. No link is followed on the way.
pub(super) fn set_refused(top: &Path, Attribute { path, name, value }: &Attribute) -> io::Result<()> {
    let (path, attribute) = (Path::new(OsStr::from_bytes(path)), OsStr::from_bytes(name));
    if !PRIVILEGED.iter().any(|start| name.starts_with(start)) {
        return Err(damaged(format!("the attribute {} may not be set by the worker", named(attribute))));
    }
    let top = openat(CWD, top, directory_flags(), Mode::empty())?;
    let set = match path.file_name() {
        None => fsetxattr(&top, attribute, value, XattrFlags::empty()),
        Some(file) => set_by_name(reach(&top, path)?, file, attribute, value),
    };
    set.map_err(|errno| attribute_error(attribute, errno))
}

fn attribute_error(attribute: &OsStr, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    // A name or a value that no file system has, or that this one has no room for beside a file.
    let of_archive =
        [Errno::TOOBIG, Errno::RANGE, Errno::NOTSUP, Errno::INVAL, Errno::NOSPC].contains(&errno);
    let kind = if of_archive { io::ErrorKind::InvalidData } else { error.kind() };
    io::Error::new(kind, format!("the attribute {} can't be set: {error}", named(attribute)))
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(name: &str) -> Entry {
        let kind = Kind::File;
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Entry { path: name.into(), kind, mode: 0o600, user, group, modified: (0, 0), attributes: Vec::new() }
    }

    /// An archive of one large file leaves the reserve free, and so does one of many names.
    #[test]
    fn reserve_holds_while_unpacking() {
        let directory = tempfile::tempdir().unwrap();
        for (reserve, fits) in [(0, true), (u64::MAX, false)] {
            let mut unpacker = Unpacker::new(directory.path(), reserve).unwrap();
            let put = unpacker.put(&file("large"), &mut io::repeat(0).take(LOOK_BYTES + 1));
            assert_eq!(
                put.map_err(|error| error.kind()).err(),
                (!fits).then_some(io::ErrorKind::StorageFull)
            );
            let mut unpacker = Unpacker::new(directory.path(), reserve).unwrap();
            let names = LOOK_BYTES / NAME_BYTES + 1;
            let put =
                (0..names).try_for_each(|name| unpacker.put(&file(&name.to_string()), &mut io::empty()));
            assert_eq!(put.is_ok(), fits);
        }
    }

    fn linked(name: &str, target: &str) -> Entry {
        Entry { kind: Kind::HardLink(target.into()), ..file(name) }
    }

    fn put(top: &Path, entry: &Entry) -> io::Result<()> {
        Unpacker::new(top, 0).unwrap().put(entry, &mut &b"new"[..])
    }

    /// A directory to unpack into, and one outside of it with a file.
    fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let [top, outside] = ["top", "outside"].map(|name| directory.path().join(name));
        fs::create_dir(&top).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        (directory, top, outside)
    }

    fn names(path: &Path) -> Vec<String> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The process is confined, too: here it is not.
    #[test]
    fn nothing_is_written_through_link() {
        for name in ["link", "link/file", "link/new", "link/new/file", "dir/link/file", "dir/link/sub/file"] {
            let (_directory, top, outside) = directories();
            fs::create_dir(top.join("dir")).unwrap();
            symlink(&outside, top.join("link")).unwrap();
            symlink("../../outside", top.join("dir/link")).unwrap();
            put(&top, &file(name)).unwrap();
            assert_eq!(names(&outside), ["file"], "{name}");
            assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept", "{name}");
            assert_eq!(fs::read(top.join(name)).unwrap(), b"new", "{name}");
            assert!(fs::symlink_metadata(top.join(name)).unwrap().is_file(), "{name}");
        }
    }

    /// A file with another name outside is not written either.
    #[test]
    fn file_is_made_anew() {
        let (_directory, top, outside) = directories();
        fs::hard_link(outside.join("file"), top.join("file")).unwrap();
        put(&top, &file("file")).unwrap();
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"kept");
    }

    #[test]
    fn second_name_leads_through_no_link() {
        for target in ["link/file", "dir/link/file", "dir/nothing", "file/below"] {
            let (_directory, top, outside) = directories();
            fs::create_dir(top.join("dir")).unwrap();
            fs::write(top.join("file"), "own").unwrap();
            symlink(&outside, top.join("link")).unwrap();
            symlink("../../outside", top.join("dir/link")).unwrap();
            let error = put(&top, &linked("second", target)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{target}: {error}");
            assert!(error.to_string().contains("is not in the archive"), "{target}: {error}");
            assert!(!top.join("second").exists(), "{target}");
        }
        // Of a link itself it is one of the link.
        let (_directory, top, outside) = directories();
        symlink(outside.join("file"), top.join("link")).unwrap();
        put(&top, &linked("second", "link")).unwrap();
        assert_eq!(fs::read_link(top.join("second")).unwrap(), outside.join("file"));
        put(&top, &linked("second", "second")).unwrap();
        assert!(top.join("second").is_symlink(), "its own second name stays");
    }

    #[test]
    fn attributes_of_others_are_set_through_no_link() {
        let (_directory, top, outside) = directories();
        symlink(&outside, top.join("link")).unwrap();
        let attribute = |path: &str, name: &str| Attribute {
            path: path.as_bytes().to_vec(),
            name: name.as_bytes().to_vec(),
            value: b"x".to_vec(),
        };
        for (path, name) in [("link/file", "trusted.x"), ("../outside/file", "trusted.x"), ("file", "user.x")]
        {
            set_refused(&top, &attribute(path, name)).unwrap_err();
        }
        // Only root may.
        fs::write(top.join("file"), "own").unwrap();
        let value = |path: PathBuf| {
            let mut value = [0; 8];
            rustix::fs::lgetxattr(path, "trusted.x", &mut value[..]).unwrap_or_default()
        };
        for path in ["file", "link", ""] {
            let set = set_refused(&top, &attribute(path, "trusted.x"));
            assert_eq!(value(top.join(path)), usize::from(set.is_ok()), "{path}: {set:?}");
        }
        let mut list = [0; 64];
        assert_eq!(rustix::fs::listxattr(outside.join("file"), &mut list[..]).unwrap(), 0);
        assert!(attribute("var/a", "x").is_below("var") && !attribute("variable/a", "x").is_below("var"));
        assert_eq!(attribute("a", "x").below("var"), attribute("var/a", "x"));
    }

    #[test]
    fn deletion_leads_through_no_link() {
        let (_directory, top, outside) = directories();
        symlink(&outside, top.join("link")).unwrap();
        fs::write(top.join("file"), "own").unwrap();
        for path in ["link/file", "file/below", "nothing/below", "nothing"] {
            delete(&top, path).unwrap();
        }
        assert_eq!(names(&outside), ["file"]);
        delete(&top, "link").unwrap();
        delete(&top, "file").unwrap();
        assert_eq!((names(&top).len(), names(&outside)), (0, vec!["file".to_owned()]));
    }
}
