//! A named pipe: what another program says, without a file that could grow.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{HostError, Missing, Root, no_name, split, unlink};

impl Root {
    /// Makes a named pipe of the agent's own in place of what is at a path, and opens it for reading without waiting. It is
    /// open for writing, too, so that a writer that ends does not end it.
    pub(in crate::host) fn make_pipe(&self, path: &str) -> Result<OwnedFd, HostError> {
        let failed = |errno: Errno| HostError::io("make the pipe", path, errno);
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let trusted = rustix::process::geteuid().as_raw();
        let parent =
            self.walk(directory, trusted, Missing::Make, &mut Vec::new())?.ok_or_else(|| no_name(path))?;
        unlink(&parent, name).map_err(|source| HostError::io("remove", path, source))?;
        rustix::fs::mkfifoat(&parent, name, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(failed)
    }
}
