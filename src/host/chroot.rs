//! Entering the host from a container: its file system becomes the process's own.
//!
//! A container sees the host's root as a directory; bus, locks and libostree are found there only by a process whose
//! root it is. Invariant: the files that the process needs of its own file system are open before, and stay so: a
//! [`super::Root`] that was opened before still reads the container's files, also those that are mounted there again
//! later.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags};

use super::HostError;
use super::os::worker::executable::Executable;

/// The label of programs. A file that is made in `/run` has one that systemd may not execute.
const LABEL: &[u8] = b"system_u:object_r:bin_t:s0\0";

/// Handles of the file system that the process was started in; empty if the process has not left it.
#[derive(Debug, Clone, Default)]
pub struct ContainerHandles {
    worker: Option<Arc<Executable>>,
}

impl ContainerHandles {
    /// Makes a directory the root of this process, all of its threads. An error leaves it where it was.
    pub fn enter(directory: &Path) -> Result<Self, HostError> {
        let path = directory.display().to_string();
        let failed = |errno| HostError::io("enter", &*path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
        // An empty directory is a mount that was forgotten; and nothing can be written without /proc (`root::walk`).
        let (flags, how) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::IN_ROOT);
        if rustix::fs::openat2(&fd, "proc/self", flags, Mode::empty(), how).is_err() {
            let (expected, found) = ("the root of a host", "a directory without /proc");
            return Err(HostError::Kind { path, expected, found });
        }
        let entered = Self::find()?;
        rustix::process::fchdir(&fd).map_err(failed)?;
        rustix::process::chroot(".").map_err(failed)?;
        rustix::process::chdir("/").map_err(failed)?;
        Ok(entered)
    }

    /// Opens the worker, which is beside the agent and not on the host. The host's loader and libraries run it.
    fn find() -> Result<Self, HostError> {
        Ok(Self { worker: Some(Executable::find()?) })
    }

    /// Returns the worker that was opened before the host was entered, or finds it.
    pub(in crate::host) fn worker(&self) -> Result<Arc<Executable>, HostError> {
        self.worker.clone().map_or_else(Executable::find, Ok)
    }

    /// Returns a path by which the host itself, whose root is `base`, can start the worker. One that is not on the host
    /// is put into `place` first: a container's, which is gone by then, or one that a package has replaced.
    pub(in crate::host) fn worker_on_host(&self, base: &Path, place: &str) -> Result<String, HostError> {
        let executable = self.worker()?;
        let is_own = self.worker.is_none();
        if let Some(path) = is_own.then(|| executable.installed()).flatten() {
            return Ok(path);
        }
        let at = base.join(place.trim_start_matches('/'));
        let failed = |source| HostError::io("write", place, source);
        executable.copy(&at).map_err(failed)?;
        // A host without SELinux has no use for it.
        rustix::fs::setxattr(&at, "security.selinux", LABEL, XattrFlags::empty()).unwrap_or_default();
        Ok(at.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own process stays where it is.
    #[test]
    fn directory_without_host_is_not_entered() {
        let directory = tempfile::tempdir().unwrap();
        let error = ContainerHandles::enter(&directory.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("can't enter"), "{error}");
        let error = ContainerHandles::enter(directory.path()).unwrap_err().to_string();
        assert!(error.contains("without /proc"), "{error}");
        assert!(directory.path().exists());
    }
}
