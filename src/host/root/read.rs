//! Reading: the entry at a path, its bytes, its digest, the names in a directory. Nothing here writes.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir as Listing, FileType, MemfdFlags, Mode, OFlags, Stat, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;
use sha2::Digest as _;

use super::kind::kind_word;
use super::laid::{LaidPath, Look};
use super::{
    Dir, Hands, HostError, Missing, READ_ATTRIBUTES, Root, has_access_list, has_default_list, is_absent,
    is_unreachable, no_name, split,
};
use crate::model::{ObservedFile, Sha256};

/// As much as is read at once while a digest is taken.
const CHUNK: usize = 64 * 1024;
/// The largest file that is read whole: twice the largest that the agent writes itself, the originals of one batch.
const LARGEST: u64 = 64 * 1024 * 1024;
/// The largest text: a passwd file of a hundred thousand users.
const LARGEST_TEXT: u64 = 16 * 1024 * 1024;
/// A digest is of so many bytes at most. No config has a larger file, so one that is larger differs by its length; to read
/// all of it would hold the agent as long as its maker likes.
const LARGEST_DIGEST: u64 = LARGEST;
/// Flags to open a path for inspection only: no side effect of a device or a pipe.
const INSPECT: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);
/// Regular files are opened without waiting, should they be swapped for a pipe in between.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// An entry of a directory, links not followed.
#[derive(Debug)]
pub(in crate::host) enum Entry {
    /// Nothing.
    Absent,
    /// A regular file, open for reading.
    File {
        /// The file.
        file: std::fs::File,
        /// Its metadata.
        stat: Stat,
    },
    /// A link.
    Link {
        /// Text of the link.
        target: String,
        /// Owner and group.
        owner: (u32, u32),
    },
    /// A directory.
    Directory {
        /// Its metadata.
        stat: Stat,
    },
    /// An entry that no config can own: the word is its kind.
    Other(&'static str),
}

impl Entry {
    /// Opens an entry by its path, links inside the root followed but for the last component: for looking only.
    pub(in crate::host) fn at(root: &Root, path: &str) -> Result<Self, HostError> {
        let path = &*match root.look(path)? {
            Look::Laid(path, laid) => return Self::from_laid(laid, &path),
            Look::Disk(path) => path,
        };
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        match root.resolve(directory, OFlags::PATH | OFlags::DIRECTORY) {
            Err(errno) if is_absent(errno) => Ok(Self::Absent),
            Err(errno) => Err(HostError::io("inspect", path, errno)),
            Ok(dir) => Self::open(dir, name, path),
        }
    }

    /// Makes the entry that is laid at a path. A file is one of the memory.
    fn from_laid(laid: &LaidPath, path: &str) -> Result<Self, HostError> {
        let made = |bytes: &[u8]| -> std::io::Result<(std::fs::File, Stat)> {
            let mut file = std::fs::File::from(rustix::fs::memfd_create("laid", MemfdFlags::CLOEXEC)?);
            file.write_all(bytes)?;
            file.rewind()?;
            let stat = rustix::fs::fstat(&file)?;
            Ok((file, stat))
        };
        let failed = |source: std::io::Error| HostError::io("read", path, source);
        Ok(match laid {
            LaidPath::Absent => Self::Absent,
            LaidPath::Link { target, uid, gid } => Self::Link { target: target.clone(), owner: (*uid, *gid) },
            LaidPath::File { bytes, mode, uid, gid } => {
                let (file, mut stat) = made(bytes).map_err(failed)?;
                let mode = FileType::RegularFile.as_raw_mode() | mode;
                (stat.st_mode, stat.st_uid, stat.st_gid) = (mode, *uid, *gid);
                Self::File { file, stat }
            }
            LaidPath::Directory { mode, uid, gid } => {
                let (_, mut stat) = made(&[]).map_err(failed)?;
                let mode = FileType::Directory.as_raw_mode() | mode;
                (stat.st_mode, stat.st_uid, stat.st_gid) = (mode, *uid, *gid);
                Self::Directory { stat }
            }
        })
    }

    /// Opens an entry of a directory that a change is about to be made in.
    pub(in crate::host) fn of(dir: &Dir, name: &str, path: &str) -> Result<Self, HostError> {
        if dir.account().is_some() {
            // A mount of a user may answer when it likes.
            dir.check_mount(name, path)?;
        }
        Self::open(dir, name, path)
    }

    /// Opens an entry of a directory that was walked to.
    pub(in crate::host) fn open(dir: impl AsFd, name: &str, path: &str) -> Result<Self, HostError> {
        let failed = |action: &'static str| move |errno: Errno| HostError::io(action, path, errno);
        let dir = dir.as_fd();
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Self::Absent),
            other => other.map_err(failed("inspect"))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = READ | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failed("open"))?;
                let stat = rustix::fs::fstat(&fd).map_err(failed("inspect"))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    // It was swapped in between.
                    return Ok(Self::Other(kind_word(&stat)));
                }
                Ok(Self::File { file: fd.into(), stat })
            }
            FileType::Symlink => {
                let target =
                    rustix::fs::readlinkat(dir, name, Vec::new()).map_err(failed("read the link"))?;
                let owner = (stat.st_uid, stat.st_gid);
                Ok(Self::Link { target: target.to_string_lossy().into_owned(), owner })
            }
            FileType::Directory => Ok(Self::Directory { stat }),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(Self::Other(kind_word(&stat))),
        }
    }
}

impl Root {
    /// Reads a regular file, links inside the root followed; `None` when there is none. One that is larger than anything the
    /// agent writes is an error.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, HostError> {
        self.read_at_most(path, LARGEST)
    }

    /// As [`Root::read`], of so many bytes at most.
    pub fn read_at_most(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let Some((file, len)) = self.regular(path)? else { return Ok(None) };
        read_at_most(&file, len, path, limit).map(Some)
    }

    /// Reads a regular file of a config, to show it: by the walk of a write, with no link followed that another than root could have
    /// made. `None` where that leads to no file, or to one that its directory's owner could have linked there.
    pub fn read_shown(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let walked = self.walk(directory, Hands::entering(0), Missing::Leave, &mut Vec::new())?;
        let Some(dir) = walked else { return Ok(None) };
        let Entry::File { file, stat } = Entry::of(&dir, name, path)? else { return Ok(None) };
        if dir.account().is_some_and(|account| account != stat.st_uid) {
            return Ok(None);
        }
        read_at_most(&file, u64::try_from(stat.st_size).unwrap_or_default(), path, limit).map(Some)
    }

    /// Reads a regular file that only root and the agent's user may change or redirect;
    /// `None` when there is none. One with more bytes than `limit` is an error, and is not read.
    pub fn read_trusted(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let Some((fd, stat)) = self.walk_to_file(path)? else { return Ok(None) };
        let len = u64::try_from(stat.st_size).unwrap_or_default();
        read_at_most(&std::fs::File::from(fd), len, path, limit).map(Some)
    }

    /// Checks that a regular file is one that [`Root::read_trusted`] would read; an absent one is.
    pub fn check_trusted(&self, path: &str) -> Result<(), HostError> {
        self.walk_to_file(path).map(drop)
    }

    /// Reads the last bytes of a regular file, at most `limit`; `None` where nothing is.
    pub fn read_tail(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, HostError> {
        let Some((mut file, len)) = self.regular(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(len.saturating_sub(limit)))
            .and_then(|_| file.take(limit).read_to_end(&mut bytes));
        read.map_err(|source| HostError::io("read", path, source))?;
        Ok(Some(bytes))
    }

    /// Opens a regular file and returns it with its length; `None` if it does not exist.
    fn regular(&self, path: &str) -> Result<Option<(std::fs::File, u64)>, HostError> {
        let path = &*match self.look_through(path)? {
            Look::Laid(path, laid) => return regular_laid(laid, &path),
            Look::Disk(path) => path,
        };
        let fd = match self.resolve(path, READ) {
            Err(errno) if is_absent(errno) => return Ok(None),
            Err(Errno::NXIO) => {
                let (expected, found) = ("a regular file", "a socket");
                return Err(HostError::Kind { path: path.to_owned(), expected, found });
            }
            other => other.map_err(|errno| HostError::io("open", path, errno))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| HostError::io("inspect", path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let found = kind_word(&stat);
            return Err(HostError::Kind { path: path.to_owned(), expected: "a regular file", found });
        }
        Ok(Some((std::fs::File::from(fd), u64::try_from(stat.st_size).unwrap_or_default())))
    }

    /// Reads a regular file as text.
    pub fn read_text(&self, path: &str) -> Result<Option<String>, HostError> {
        let Some(bytes) = self.read_at_most(path, LARGEST_TEXT)? else { return Ok(None) };
        String::from_utf8(bytes).map(Some).map_err(|_| HostError::Malformed {
            path: path.to_owned(),
            format: "text",
            cause: "it is not UTF-8".to_owned(),
        })
    }

    /// Observes a path, not following a link at its end; the bytes of a file are digested while they are read.
    pub fn observe(&self, path: &str) -> Result<ObservedFile, HostError> {
        let path = &*match self.look(path)? {
            Look::Laid(_, laid) => return Ok(laid.observed()),
            Look::Disk(path) => path,
        };
        let failed = |action: &'static str| move |errno: Errno| HostError::io(action, path, errno);
        let fd = match self.resolve(path, INSPECT) {
            Err(errno) if is_absent(errno) => return Ok(ObservedFile::Absent),
            Err(errno) if is_unreachable(errno) => return Ok(ObservedFile::Unreachable),
            other => other.map_err(failed("inspect"))?,
        };
        let stat = match rustix::fs::fstat(&fd) {
            Err(errno) if is_unreachable(errno) => return Ok(ObservedFile::Unreachable),
            other => other.map_err(failed("inspect"))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.digest(path),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&fd, "", Vec::new()).map_err(failed("read the link"))?;
                let target = target.to_string_lossy().into_owned();
                Ok(ObservedFile::Symlink { target, uid: stat.st_uid, gid: stat.st_gid })
            }
            FileType::Directory => Ok(ObservedFile::Directory {
                mode: stat.st_mode & 0o7777,
                uid: stat.st_uid,
                gid: stat.st_gid,
            }),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(ObservedFile::Special),
        }
    }

    /// Returns true if a path is a file with an access list, a link at its end not followed.
    pub fn has_access_list(&self, path: &str) -> Result<bool, HostError> {
        let path = &*match self.look(path)? {
            Look::Laid(..) => return Ok(false),
            Look::Disk(path) => path,
        };
        let fd = match self.resolve(path, READ | OFlags::NOFOLLOW) {
            Err(errno) if is_absent(errno) || is_unreachable(errno) => return Ok(false),
            other => other.map_err(|errno| HostError::io("open", path, errno))?,
        };
        has_access_list(&fd).map_err(|errno| HostError::io(READ_ATTRIBUTES, path, errno))
    }

    /// Returns true if a path is a directory that gives an access list to the files that other programs make in it.
    pub fn has_default_list(&self, path: &str) -> Result<bool, HostError> {
        let fd = match self.resolve(path, READ | OFlags::DIRECTORY) {
            Err(errno) if is_absent(errno) || is_unreachable(errno) => return Ok(false),
            other => other.map_err(|errno| HostError::io("open", path, errno))?,
        };
        has_default_list(&fd).map_err(|errno| HostError::io(READ_ATTRIBUTES, path, errno))
    }

    /// Returns true if two paths are one regular file, links at their ends not followed.
    pub fn is_hard_link(&self, path: &str, target: &str) -> Result<bool, HostError> {
        if let Some(is_one) = self.laid_hard_link(path, target)? {
            return Ok(is_one);
        }
        let entry = |path| match Entry::at(self, path) {
            // Such as a link to itself on the way: nothing is there.
            Err(error) if error.is_unreachable() => Ok(Entry::Absent),
            found => found,
        };
        let Entry::File { stat: one, .. } = entry(path)? else { return Ok(false) };
        let Entry::File { stat: other, .. } = entry(target)? else { return Ok(false) };
        Ok(same_inode(&one, &other))
    }

    fn digest(&self, path: &str) -> Result<ObservedFile, HostError> {
        let fd = match self.resolve(path, READ | OFlags::NOFOLLOW) {
            Err(errno) if is_absent(errno) => return Ok(ObservedFile::Absent),
            Err(errno) if is_unreachable(errno) => return Ok(ObservedFile::Unreachable),
            other => other.map_err(|errno| HostError::io("open", path, errno))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| HostError::io("inspect", path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(ObservedFile::Special);
        }
        let (sha256, read) =
            digest_of(fd, stat.st_size).map_err(|source| HostError::io("read", path, source))?;
        // The present contents count, but for a file that is too large to be read.
        let len = if read < LARGEST_DIGEST {
            read
        } else {
            u64::try_from(stat.st_size).unwrap_or(u64::MAX).max(read)
        };
        Ok(ObservedFile::Regular {
            sha256,
            len,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
        })
    }

    /// Returns the names in a directory, sorted; none when there is no directory.
    pub fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        let directory = &*match self.look_through(directory)? {
            Look::Laid(_, LaidPath::Absent | LaidPath::File { .. } | LaidPath::Link { .. }) => {
                return Ok(Vec::new());
            }
            Look::Laid(directory, LaidPath::Directory { .. }) => directory.into(),
            Look::Disk(directory) => directory,
        };
        let failed = |errno: Errno| HostError::io("list", directory, errno);
        let mut names = Vec::new();
        match self.resolve(directory, OFlags::RDONLY | OFlags::DIRECTORY) {
            // A link that leads to itself leads to no directory, and no directory has a name that is too long, such as that of
            // the drop-ins of a unit whose own name is as long as names may be.
            Err(errno) if is_absent(errno) || matches!(errno, Errno::LOOP | Errno::NAMETOOLONG) => {}
            other => {
                for entry in Listing::new(other.map_err(failed)?).map_err(failed)? {
                    let entry = entry.map_err(failed)?;
                    // A name that is not UTF-8 can't be one of ours.
                    if let (Ok(name), false) = (entry.file_name().to_str(), is_dots(entry.file_name())) {
                        names.push(name.to_owned());
                    }
                }
            }
        }
        names.sort_unstable();
        self.list_laid(directory, &mut names);
        Ok(names)
    }

    /// Refuses what is at a path where a write could not replace it: anything but a file, a link or nothing.
    pub fn check_replaceable(&self, path: &str) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("inspect", path, errno);
        let stat = match self.resolve(path, INSPECT) {
            Err(errno) if is_absent(errno) => return Ok(()),
            found => rustix::fs::fstat(&found.map_err(failed)?).map_err(failed)?,
        };
        if matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Symlink) {
            return Ok(());
        }
        let (expected, found) = ("a file, a link or nothing", kind_word(&stat));
        Err(HostError::Kind { path: path.to_owned(), expected, found })
    }

    /// Refuses what is at a path, links inside the root followed, where it is of another kind; nothing there is fine.
    pub fn check_kind(&self, path: &str, expected: &'static str) -> Result<(), HostError> {
        let failed = |errno: Errno| HostError::io("inspect", path, errno);
        let found = match self.resolve(path, OFlags::PATH) {
            Ok(fd) => kind_word(&rustix::fs::fstat(&fd).map_err(failed)?),
            Err(Errno::LOOP) => "a link that leads to itself",
            Err(errno) if is_absent(errno) => match self.resolve(path, INSPECT) {
                Err(_) => return Ok(()),
                Ok(_) => "a link that leads nowhere",
            },
            Err(errno) => return Err(failed(errno)),
        };
        if found == expected {
            return Ok(());
        }
        Err(HostError::Kind { path: path.to_owned(), expected, found })
    }

    /// Returns true if a path exists, links inside the root followed.
    pub fn exists(&self, path: &str) -> Result<bool, HostError> {
        let path = &*match self.look_through(path)? {
            Look::Laid(_, laid) => return Ok(*laid != LaidPath::Absent),
            Look::Disk(path) => path,
        };
        match self.resolve(path, OFlags::PATH) {
            Ok(_) => Ok(true),
            Err(errno) if is_absent(errno) => Ok(false),
            Err(errno) => Err(HostError::io("inspect", path, errno)),
        }
    }

    /// Returns true if a file system of its own is mounted at a path, not a directory of the root's: libostree binds `/var`. Kernels before
    /// 5.8 do not say so.
    pub fn has_own_file_system(&self, path: &str) -> Result<bool, HostError> {
        let Some(found) = self.status(path)? else { return Ok(false) };
        let device = |found: &rustix::fs::Statx| (found.stx_dev_major, found.stx_dev_minor);
        for of_root in ["/", "/sysroot"] {
            if !["/", of_root].contains(&path)
                && self.status(of_root)?.is_some_and(|root| device(&root) == device(&found))
            {
                return Ok(false);
            }
        }
        Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn status(&self, path: &str) -> Result<Option<rustix::fs::Statx>, HostError> {
        let failed = |errno: Errno| HostError::io("inspect", path, errno);
        let fd = match self.resolve(path, OFlags::PATH) {
            Err(errno) if is_absent(errno) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let flags = AtFlags::EMPTY_PATH.union(AtFlags::SYMLINK_NOFOLLOW);
        rustix::fs::statx(&fd, "", flags, StatxFlags::empty()).map(Some).map_err(failed)
    }
}

/// Opens a regular file that is laid at a path, and returns it with its length.
fn regular_laid(laid: &LaidPath, path: &str) -> Result<Option<(std::fs::File, u64)>, HostError> {
    match Entry::from_laid(laid, path)? {
        Entry::Absent => Ok(None),
        Entry::File { file, stat } => Ok(Some((file, u64::try_from(stat.st_size).unwrap_or_default()))),
        Entry::Link { .. } | Entry::Directory { .. } | Entry::Other(_) => {
            let expected = "a regular file";
            Err(HostError::Kind { path: path.to_owned(), expected, found: "a directory or a link" })
        }
    }
}

fn is_dots(name: &std::ffi::CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Digests a file of about this size: the buffer is no larger, since clearing it would take longer than reading.
fn digest_of(fd: OwnedFd, size: i64) -> std::io::Result<(Sha256, u64)> {
    let mut file = std::fs::File::from(fd).take(LARGEST_DIGEST);
    let mut buffer = vec![0_u8; usize::try_from(size).unwrap_or(CHUNK).clamp(512, CHUNK)];
    let (mut digest, mut len) = (sha2::Sha256::new(), 0_u64);
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => return Ok((Sha256::from_bytes(digest.finalize().into()), len)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        digest.update(buffer.get(..count).unwrap_or_default());
        len += u64::try_from(count).unwrap_or_default();
    }
}

/// Reads an open file whole, when it has no more bytes than `limit`.
pub(in crate::host) fn read_at_most(
    file: &std::fs::File,
    size: u64,
    path: &str,
    limit: u64,
) -> Result<Vec<u8>, HostError> {
    let too_large = |size: u64| HostError::TooLarge { path: path.to_owned(), size, limit };
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    // It may grow meanwhile.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|source| HostError::io("read", path, source))?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if read > limit { Err(too_large(read)) } else { Ok(bytes) }
}

/// Returns true if two entries are one inode.
pub(in crate::host) fn same_inode(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
