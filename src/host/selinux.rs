//! SELinux labels for new files, from the host's own policy.
//!
//! The policy is read by libostree, in a worker; on hosts without SELinux a new file keeps the label that the kernel
//! derives from its directory. Files that are replaced keep theirs anyway.

use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::HostError;
use super::os::worker::labels::Labeller;
use super::root::Root;

/// SELinux's configuration file.
const CONFIG: &str = "/etc/selinux/config";

/// The labels of one policy.
#[derive(Debug)]
pub(in crate::host) struct Labels {
    labeller: Option<Labeller>,
}

impl Labels {
    /// Opens the policy below the root; a missing one is ignored.
    pub(in crate::host) fn load(root: &Root) -> Result<Self, HostError> {
        let has_policy = matches!(root.exists(CONFIG), Ok(true));
        Ok(Self { labeller: if has_policy { Some(Labeller::start(root)?) } else { None } })
    }

    /// Returns the label of a new regular file, as the kernel stores it.
    pub(in crate::host) fn of_file(&mut self, path: &str, mode: u32) -> Result<Option<Vec<u8>>, HostError> {
        const REGULAR: u32 = 0o100_000;
        self.lookup(path, REGULAR | mode)
    }

    /// Labels a directory that was made.
    pub(in crate::host) fn apply_to_directory(&mut self, fd: impl AsFd, path: &str) -> Result<(), HostError> {
        const DIRECTORY: u32 = 0o040_000;
        let Some(label) = self.lookup(path, DIRECTORY | 0o755)? else { return Ok(()) };
        match rustix::fs::fsetxattr(fd, "security.selinux", &label, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(HostError::io("label", path, errno)),
        }
    }

    fn lookup(&mut self, path: &str, mode: u32) -> Result<Option<Vec<u8>>, HostError> {
        let Some(labeller) = &mut self.labeller else { return Ok(None) };
        // The kernel stores the terminating NUL with it.
        Ok(labeller.label(path, mode)?.map(|label| [label.as_bytes(), b"\0"].concat()))
    }
}
