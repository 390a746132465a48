//! A tree of files, walked from the top: links are not followed, and what goes away meanwhile is left out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, lgetxattr, llistxattr, major, minor, openat,
    readlinkat, statat,
};
use rustix::io::Errno;

use super::super::archive::{Entry, Kind, damaged, named};

/// The deepest tree: one descriptor is open for each directory, and the reader refuses deeper ones.
const MAX_DEPTH: usize = 120;

/// Longest list of names, and longest value, of extended attributes; the kernel has the same limit.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// Attributes that are good on one host only.
const OF_HOST: [&[u8]; 4] = [b"security.evm", b"security.ima", b"trusted.", b"system.nfs4_acl"];

/// Decision about one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Choice {
    /// It is left out, with all below it.
    Skip,
    /// It is left out; the entries below it are looked at.
    Enter,
    /// It is taken; the entries below it are looked at.
    Take,
}

/// One entry on the way.
#[derive(Debug)]
pub(in super::super) struct At<'a> {
    /// Its path below the top.
    pub(in super::super) path: &'a Path,
    /// Its directory.
    pub(in super::super) here: BorrowedFd<'a>,
    /// Its name.
    pub(in super::super) name: &'a OsStr,
    /// Its metadata.
    pub(in super::super) stat: &'a Stat,
}

impl At<'_> {
    /// Returns its kind.
    pub(in super::super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// The contents of an entry.
pub(in super::super) struct Contents<'a> {
    /// So many bytes, or fewer if the file was cut meanwhile.
    pub(in super::super) size: u64,
    /// Device and inode of a file that has more than one name.
    pub(in super::super) linked: Option<(u64, u64)>,
    /// The file of the bytes, at its beginning.
    pub(in super::super) file: Option<&'a File>,
    /// The bytes.
    pub(in super::super) bytes: &'a mut dyn Read,
}

/// Decides about entries, and takes them.
pub(in super::super) trait Visitor {
    /// Decides.
    fn choose(&mut self, at: &At<'_>) -> io::Result<Choice>;
    /// Returns the names in a directory that are looked at, where those are known: then it is not read.
    fn names(&mut self, _path: &Path, _here: &OwnedFd) -> io::Result<Option<Vec<OsString>>> {
        Ok(None)
    }
    /// Takes an entry.
    fn take(&mut self, entry: Entry, contents: &mut Contents<'_>) -> io::Result<()>;
}

/// Walks a tree. Other file systems that are mounted in it are not entered.
pub(in super::super) fn walk(top: &Path, visitor: &mut dyn Visitor) -> io::Result<()> {
    let fd = openat(CWD, top, directory(), Mode::empty())?;
    let device = fstat(&fd)?.st_dev;
    below(&fd, Path::new(""), device, 0, visitor)
}

fn directory() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn below(fd: &OwnedFd, path: &Path, device: u64, depth: usize, visitor: &mut dyn Visitor) -> io::Result<()> {
    let each = |name: &OsStr, visitor: &mut dyn Visitor| -> io::Result<()> {
        let path = path.join(name);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        one(fd, &path, name, device, depth, visitor)
            .map_err(|error| if depth == 0 { named(error) } else { error })
    };
    if let Some(names) = visitor.names(path, fd)? {
        return names.iter().try_for_each(|name| each(name, visitor));
    }
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            each(name, visitor)?;
        }
    }
    Ok(())
}

fn one(
    fd: &OwnedFd,
    path: &Path,
    name: &OsStr,
    device: u64,
    depth: usize,
    visitor: &mut dyn Visitor,
) -> io::Result<()> {
    let stat = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let at = At { path, here: fd.as_fd(), name, stat: &stat };
    let choice = visitor.choose(&at)?;
    if choice == Choice::Skip {
        return Ok(());
    }
    if choice == Choice::Take {
        take(&at, visitor)?;
    }
    if at.kind() != FileType::Directory || stat.st_dev != device {
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        let path = named(path.as_os_str());
        return Err(damaged(format!("{path} is deeper than {MAX_DEPTH} directories; leave it out")));
    }
    match openat(fd, name, directory(), Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        opened => below(&opened?, path, device, depth + 1, visitor),
    }
}

fn take(at: &At<'_>, visitor: &mut dyn Visitor) -> io::Result<()> {
    let (mut stat, mut size, mut file) = (*at.stat, 0, None);
    let kind = match at.kind() {
        FileType::RegularFile => {
            let Some(opened) = open(at.here, at.name)? else { return Ok(()) };
            stat = fstat(&opened)?;
            size = u64::try_from(stat.st_size).unwrap_or_default();
            file = Some(opened);
            Kind::File
        }
        FileType::Directory => Kind::Directory,
        FileType::Symlink => match readlinkat(at.here, at.name, Vec::new()) {
            Err(Errno::NOENT) => return Ok(()),
            target => Kind::Symlink(OsString::from_vec(target?.into_bytes())),
        },
        FileType::Fifo => Kind::Fifo,
        kind @ (FileType::BlockDevice | FileType::CharacterDevice) => Kind::Device {
            block: kind == FileType::BlockDevice,
            major: major(stat.st_rdev),
            minor: minor(stat.st_rdev),
        },
        // Its program makes it again.
        FileType::Socket | FileType::Unknown => return Ok(()),
    };
    let entry = Entry {
        path: at.path.to_owned(),
        kind,
        mode: stat.st_mode & 0o7777,
        user: stat.st_uid,
        group: stat.st_gid,
        modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or_default()),
        attributes: attributes(at.here, at.name)?,
    };
    let linked = (file.is_some() && stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino));
    match file {
        Some(file) => visitor
            .take(entry, &mut Contents { size, linked, file: Some(&file), bytes: &mut (&file).take(size) }),
        None => visitor.take(entry, &mut Contents { size, linked, file: None, bytes: &mut io::empty() }),
    }
}

/// Opens a regular file; `None` if it is gone, or another kind of file meanwhile.
pub(super) fn open(here: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(here, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        file => File::from(file?),
    };
    let is_regular = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
    Ok(is_regular.then_some(file))
}

/// Reads the attributes of an entry, those of the host alone left out.
pub(super) fn attributes(here: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    // There is no call that takes a descriptor of a link: the kernel's name of the directory stands for it.
    let path = PathBuf::from(format!("/proc/self/fd/{}", here.as_raw_fd())).join(name);
    let mut names = vec![0_u8; MAX_ATTRIBUTE_BYTES];
    let length = match llistxattr(&path, &mut names[..]) {
        Err(Errno::NOTSUP | Errno::NOENT) => return Ok(Vec::new()),
        length => length?,
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if OF_HOST.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        let mut value = vec![0_u8; MAX_ATTRIBUTE_BYTES];
        let length = match lgetxattr(&path, name, &mut value[..]) {
            Err(Errno::NODATA | Errno::NOENT | Errno::NOTSUP) => continue,
            length => length?,
        };
        value.truncate(length);
        found.push((OsString::from_vec(name.to_vec()), value));
    }
    found.sort();
    Ok(found)
}
