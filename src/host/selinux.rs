//! SELinux labels for new files, from the host's own policy.
//!
//! With the libostree backend the policy is asked through libostree; without it, and on hosts without SELinux, a new
//! file keeps the label that the kernel derives from its directory. Files that are replaced keep theirs anyway.

use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::HostError;
use super::root::Root;

/// Where a host with SELinux says so.
#[cfg(feature = "backend-ostree")]
const CONFIG: &str = "/etc/selinux/config";

/// The labels of one policy.
#[derive(Debug)]
pub(in crate::host) struct Labels {
    #[cfg(feature = "backend-ostree")]
    policy: Option<ostree::SePolicy>,
}

impl Labels {
    /// Loads the policy below the root; none is no error.
    #[cfg(feature = "backend-ostree")]
    pub(in crate::host) fn load(root: &Root) -> Self {
        use ostree::gio;
        let has_policy = matches!(root.exists(CONFIG), Ok(true));
        // A broken policy must not keep the node from being configured: the kernel's default label is used.
        let load = || ostree::SePolicy::new(&gio::File::for_path(root.base()), gio::Cancellable::NONE).ok();
        Self { policy: if has_policy { load() } else { None } }
    }

    /// Loads nothing: this build can't read a policy.
    #[cfg(not(feature = "backend-ostree"))]
    pub(in crate::host) fn load(_root: &Root) -> Self {
        Self {}
    }

    /// Returns the label of a new regular file, as the kernel stores it.
    pub(in crate::host) fn of_file(&self, path: &str, mode: u32) -> Option<Vec<u8>> {
        const REGULAR: u32 = 0o100_000;
        self.of(path, REGULAR | mode)
    }

    /// Labels a directory that was made.
    pub(in crate::host) fn apply_to_directory(&self, fd: impl AsFd, path: &str) -> Result<(), HostError> {
        const DIRECTORY: u32 = 0o040_000;
        let Some(label) = self.of(path, DIRECTORY | 0o755) else { return Ok(()) };
        match rustix::fs::fsetxattr(fd, "security.selinux", &label, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(HostError::io("label", path, errno)),
        }
    }

    #[cfg(feature = "backend-ostree")]
    fn of(&self, path: &str, mode: u32) -> Option<Vec<u8>> {
        use ostree::gio;
        let label = self.policy.as_ref()?.label(path, mode, gio::Cancellable::NONE).ok()??;
        // The kernel stores the terminating NUL with it.
        Some([label.as_bytes(), b"\0"].concat())
    }

    #[cfg(not(feature = "backend-ostree"))]
    #[expect(clippy::unused_self, reason = "the same shape in both builds")]
    fn of(&self, _path: &str, _mode: u32) -> Option<Vec<u8>> {
        None
    }
}
