//! A lock file: one process at a time.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::{HostError, Missing, Root, is_absent, kind_word, no_name, split};

/// A lock that is held as long as this value lives; the kernel lets go of it when the process dies.
#[derive(Debug)]
pub struct LockFile {
    fd: OwnedFd,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A process that is being started has the file open until it is another program: closing gives nothing back then.
        let _gone_when_closed = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

/// The process that holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its id; `None` if it is in another namespace.
    pub pid: Option<i32>,
}

impl Root {
    /// Takes the lock of a file, which is made when it is missing; `None` when another process holds it.
    pub fn lock(&self, path: &str) -> Result<Option<LockFile>, HostError> {
        let failed = |errno: Errno| HostError::io("lock", path, errno);
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let trusted = rustix::process::geteuid().as_raw();
        let parent =
            self.walk(directory, trusted, Missing::Make, &mut Vec::new())?.ok_or_else(|| no_name(path))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        check_kind(&fd, path)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // The second kind of lock can be requested without being taken. It decides nothing, so a file system
                // that has none of it is fine.
                let _informs = rustix::fs::fcntl_lock(&fd, FlockOperation::NonBlockingLockExclusive);
                Ok(Some(LockFile { fd }))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Refuses the file of a lock that can't be opened as the lock wants it; returns false if there is none. Takes no lock.
    pub fn check_lock(&self, path: &str) -> Result<bool, HostError> {
        match self.resolve(path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(errno) if is_absent(errno) => Ok(false),
            opened => opened.map(|_| true).map_err(|errno| HostError::io("lock", path, errno)),
        }
    }

    /// Returns the process that holds the lock of a file. The lock is not touched: another process can take it
    /// meanwhile.
    pub fn lock_holder(&self, path: &str) -> Result<Option<Holder>, HostError> {
        let failed = |errno: Errno| HostError::io("inspect the lock", path, errno);
        // A pipe has no writer to wait for.
        let fd = match self.resolve(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(errno) if is_absent(errno) => return Ok(None),
            other => other.map_err(failed)?,
        };
        check_kind(&fd, path)?;
        let held = fcntl_getlk(&fd, &Flock::from(FlockType::WriteLock)).map_err(failed)?;
        Ok(held.map(|held| Holder { pid: held.pid.map(rustix::process::Pid::as_raw_pid) }))
    }
}

/// Refuses a lock that is no file.
fn check_kind(fd: &OwnedFd, path: &str) -> Result<(), HostError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| HostError::io("inspect", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        return Ok(());
    }
    Err(HostError::Kind { path: path.to_owned(), expected: "a regular file", found: kind_word(&stat) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_lock_is_free_whoever_has_its_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let lock = root.lock("/lock").unwrap().unwrap();
        let of_started_process = lock.fd.try_clone().unwrap();
        assert!(root.lock("/lock").unwrap().is_none());
        drop(lock);
        assert!(root.lock("/lock").unwrap().is_some());
        drop(of_started_process);
    }
}
