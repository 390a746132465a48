//! A named pipe: the output of another program, without a file that could grow.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{HostError, Missing, Root, no_name, split, unlink};

impl Root {
    /// Makes a named pipe of the agent's own in place of any file at a path, and opens it for reading without waiting.
    /// It is open for writing, too, so that a writer that ends does not end it.
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

    /// Removes a pipe of the agent's own; an absent one is ignored. It is of this boot, so nothing is synced.
    pub(in crate::host) fn remove_pipe(&self, path: &str) -> Result<(), HostError> {
        let (directory, name) = split(path).ok_or_else(|| no_name(path))?;
        let trusted = rustix::process::geteuid().as_raw();
        let Some(parent) = self.walk(directory, trusted, Missing::Leave, &mut Vec::new())? else {
            return Ok(());
        };
        unlink(&parent, name).map_err(|source| HostError::io("remove", path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_removed_and_absent_one_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.remove_pipe("/run/a.pipe").unwrap();
        let _pipe = root.make_pipe("/run/a.pipe").unwrap();
        assert!(dir.path().join("run/a.pipe").exists());
        root.remove_pipe("/run/a.pipe").unwrap();
        root.remove_pipe("/run/a.pipe").unwrap();
        assert!(!dir.path().join("run/a.pipe").exists());
    }
}
