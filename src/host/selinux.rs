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
use crate::model::obstacles::Obstacle;
use crate::model::text::chain;

/// SELinux's configuration file.
pub const CONFIG: &str = "/etc/selinux/config";

/// The directory of the policies.
const POLICIES: &str = "/etc/selinux";

/// Returns true if a policy below the root names labels: the configuration file alone has none.
fn has_policy(root: &Root) -> Result<bool, HostError> {
    for name in root.list(POLICIES)? {
        if root.exists(&format!("{POLICIES}/{name}/contexts/files/file_contexts"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns why new files can't have the labels of the host's policy; `is_brought` if an update brings the configuration file.
pub fn obstacle(root: &Root, is_brought: bool) -> Result<Option<Obstacle>, HostError> {
    if !(is_brought || root.exists(CONFIG)?) || !has_policy(root)? {
        return Ok(None);
    }
    Ok(root.entered().worker().err().map(|error| Obstacle {
        cause: format!(
            "new files, also of the agent's state, need labels of this host's SELinux policy: {}",
            chain(&error)
        ),
        next: error.next(),
    }))
}

/// The labels of one policy.
#[derive(Debug)]
pub(in crate::host) struct Labels {
    labeller: Option<Labeller>,
}

impl Labels {
    /// Opens the policy below the root; a missing one is ignored.
    pub(in crate::host) fn load(root: &Root) -> Result<Self, HostError> {
        let is_used = matches!(root.exists(CONFIG), Ok(true)) && has_policy(root)?;
        Ok(Self { labeller: if is_used { Some(Labeller::start(root)?) } else { None } })
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
