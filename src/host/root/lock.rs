//! A lock file: one process at a time.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{HostError, Missing, Root, no_name, split};

/// A lock that is held as long as this value lives; the kernel lets go of it when the process dies.
#[derive(Debug)]
pub struct LockFile {
    _fd: OwnedFd,
}

impl Root {
    /// Takes the lock of a file, which is made when it is missing; `None` when another process holds it.
    pub fn lock(&self, path: &str) -> Result<Option<LockFile>, HostError> {
        let failed = |errno: Errno| HostError::io("lock", path, errno);
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let trusted = rustix::process::geteuid().as_raw();
        let parent =
            self.walk(directory, trusted, Missing::Make, &mut Vec::new())?.ok_or_else(|| no_name(path))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(LockFile { _fd: fd })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }
}
