//! The rooted file system: every path of the agent is below one directory, for any links in it.
//!
//! Reading resolves links inside the root (`openat2` with `RESOLVE_IN_ROOT`). Writing walks ([`walk`]): each directory
//! on the way is opened without following links; root or the agent's user must own it, and nobody else may write it.
//! Invariant: nothing outside the root is ever opened, and nothing is written where another user could have put a link.

mod ahead;
mod aside;
mod attributes;
mod kind;
mod laid;
mod lock;
mod look;
mod pipe;
mod read;
mod tree;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, ResolveFlags};
use rustix::io::Errno;

use super::ContainerHandles;
use super::HostError;
use super::error::{OPEN_ROOT, is_unreachable};
use super::failpoint::FailPoints;
use super::fsync::fsync;
use super::meter::Meter;

pub use ahead::{DirectoriesAhead, DirectoryAhead};
pub(in crate::host) use attributes::{
    ACCESS_LIST, AttributeList, FLAGS, READ_ATTRIBUTES, SIGNATURE, attributes, drop_access_list,
    drop_access_lists, has_access_list, has_default_list, is_trusted, not_kept, not_kept_of_link,
    set_attributes,
};
pub(in crate::host) use kind::kind_word;
pub(in crate::host) use laid::Look;
pub use laid::{LaidPath, LaidPaths};
pub use lock::{Holder, LockFile};
pub(in crate::host) use read::{Entry, read_at_most, same_inode};
pub use walk::Hands;
pub(in crate::host) use walk::{Dir, MadeDirectory, Missing};

/// `RESOLVE_IN_ROOT` gives EAGAIN when something below the root is renamed meanwhile: a few tries are enough for
/// an honest host, and this bounds the retries on a hostile one.
const RESOLVE_TRIES: u32 = 128;

/// The directory that everything is below: `/`, a sysroot, a sandbox, a test's directory.
#[derive(Debug, Clone)]
pub struct Root {
    base: PathBuf,
    fd: Arc<OwnedFd>,
    fail_points: FailPoints,
    meter: Arc<Meter>,
    entered: ContainerHandles,
    /// Paths that a look finds in place of those on the disk.
    laid: Option<Arc<laid::Laid>>,
}

impl Root {
    /// Opens a root.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| HostError::io(OPEN_ROOT, path.display().to_string(), errno))?;
        let (base, fd) = (path.to_owned(), Arc::new(fd));
        let (fail_points, entered) = (FailPoints::off(), ContainerHandles::default());
        Ok(Self { base, fd, fail_points, meter: Arc::default(), entered, laid: None })
    }

    /// Has the root's own writes pass fail points, too.
    #[must_use]
    pub fn with_fail_points(self, fail_points: &FailPoints) -> Self {
        Self { fail_points: fail_points.named("state-"), ..self }
    }

    /// Sets the handles that are kept open from before the root was entered.
    #[must_use]
    pub fn with_entered(self, entered: ContainerHandles) -> Self {
        Self { entered, ..self }
    }

    /// Returns the handles from before the root was entered.
    pub(in crate::host) fn entered(&self) -> &ContainerHandles {
        &self.entered
    }

    /// Returns the cost of the work below this root.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns the fail points of the root's own writes.
    pub(crate) fn fail_points(&self) -> &FailPoints {
        &self.fail_points
    }

    /// Makes a root of a directory below this one that is open.
    fn below(&self, directory: &str, fd: OwnedFd) -> Self {
        let base = self.base.join(relative(directory));
        Self { base, fd: Arc::new(fd), laid: None, ..self.clone() }
    }

    /// Returns the directory as it was given.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns true if this is the machine's own root.
    pub fn is_machine(&self) -> bool {
        self.base == Path::new("/")
    }

    /// Writes over the beginning of an existing file, at its place on the disk: for a reader that knows no names.
    pub(in crate::host) fn overwrite(&self, path: &str, bytes: &[u8]) -> Result<(), HostError> {
        let write = || {
            let fd = self.resolve(path, OFlags::WRONLY)?;
            let mut left = bytes;
            while !left.is_empty() {
                let written = rustix::io::write(&fd, left)?;
                left = left.get(written..).unwrap_or_default();
            }
            fsync(&fd)
        };
        write().map_err(|errno| HostError::io("write", path, errno))
    }

    /// Opens a path, links inside the root followed but for the last component if the flags forbid it.
    pub(in crate::host) fn resolve(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = relative(path);
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&*self.fd, relative, flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) if tries < RESOLVE_TRIES => tries += 1,
                done => return done,
            }
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the path as it is used below a root descriptor.
fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        relative => relative,
    }
}

/// Splits a path into its directory and its name. A name that is no name gives `None`.
pub(in crate::host) fn split(path: &str) -> Option<(&str, &str)> {
    let relative = relative(path);
    let (directory, name) = relative.rsplit_once('/').unwrap_or((".", relative));
    (!matches!(name, "" | "." | "..")).then_some((directory, name))
}

/// Returns the error of a path without a file name.
pub(in crate::host) fn no_name(path: &str) -> HostError {
    HostError::Kind { path: path.to_owned(), expected: "the path of a file", found: "a directory's path" }
}

/// Makes the permission bits of a mode.
pub(in crate::host) fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(RawMode::from(mode))
}

/// Returns true if the error means that there is nothing at the path.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}

/// Removes a name; a missing one is ignored.
pub(in crate::host) fn unlink(dir: impl AsFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A directory under a name that only this process understands, for calls that take no descriptor.
#[derive(Debug)]
pub(in crate::host) struct KernelName {
    path: String,
    /// The name holds as long as this is open.
    _fd: OwnedFd,
}

impl KernelName {
    /// Returns the name.
    pub(in crate::host) fn path(&self) -> &str {
        &self.path
    }
}

impl Root {
    /// Returns a kernel's name of a directory; `None` when there is none.
    pub(in crate::host) fn kernel_name(&self, directory: &str) -> Result<Option<KernelName>, HostError> {
        use std::os::fd::AsRawFd as _;
        match self.resolve(directory, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some(KernelName { path: format!("/proc/self/fd/{}", fd.as_raw_fd()), _fd: fd })),
            Err(errno) if is_absent(errno) => Ok(None),
            Err(errno) => Err(HostError::io("open", directory, errno)),
        }
    }
}

/// The inode at a path, as the kernel can watch it.
#[derive(Debug)]
pub(in crate::host) struct Standing {
    /// Its name.
    pub(in crate::host) name: KernelName,
    /// Its kind.
    pub(in crate::host) kind: FileType,
    /// Text of the link, if it is one.
    pub(in crate::host) target: Option<String>,
}

impl Root {
    /// Returns the inode at a path, not following a link at its end; `None` when there is none.
    pub(in crate::host) fn standing(&self, path: &str) -> Result<Option<Standing>, HostError> {
        use std::os::fd::AsRawFd as _;
        let failed = |errno: Errno| HostError::io("inspect", path, errno);
        let fd = match self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(errno) if is_absent(errno) || is_unreachable(errno) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let kind = match rustix::fs::fstat(&fd) {
            Err(errno) if is_unreachable(errno) => return Ok(None),
            other => FileType::from_raw_mode(other.map_err(failed)?.st_mode),
        };
        let target = match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&fd, "", Vec::new()).map_err(failed)?;
                Some(target.to_string_lossy().into_owned())
            }
            FileType::RegularFile
            | FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        };
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(Some(Standing { name: KernelName { path, _fd: fd }, kind, target }))
    }

    /// Returns the root's path in this process's view of the file systems.
    pub(in crate::host) fn base_path(&self) -> Result<PathBuf, HostError> {
        use std::os::fd::AsRawFd as _;
        let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let failed = |errno: Errno| HostError::io("inspect", self.base.display().to_string(), errno);
        let place = rustix::fs::readlink(own, Vec::new()).map_err(failed)?;
        Ok(PathBuf::from(place.to_string_lossy().into_owned()))
    }
}
