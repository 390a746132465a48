//! The agent's own files below a root, one at a time.

use super::{Attempt, Change, DesiredPath, Done, apply_changes};
use crate::host::{HostError, Root};
use crate::model::FileMode;

impl Root {
    /// Writes a file durably: readers and the next boot see the old bytes or the new ones. Missing directories are
    /// made. A file that is right already is not touched.
    pub fn replace(&self, path: &str, bytes: &[u8], mode: FileMode) -> Result<(), HostError> {
        self.write_if_changed(path, bytes, mode).map(|_| ())
    }

    /// As [`Root::replace`]; returns whether the file changed.
    pub fn write_if_changed(&self, path: &str, bytes: &[u8], mode: FileMode) -> Result<Done, HostError> {
        let owner = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let want = DesiredPath::file(bytes, mode.bits(), owner, group);
        self.settle(&Change::new(path, owner, want), Attempt::First)
    }

    /// As [`Root::replace`], but always a new file: after a sync that failed the same bytes prove nothing.
    pub fn rewrite(&self, path: &str, bytes: &[u8], mode: FileMode) -> Result<(), HostError> {
        let owner = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let want = DesiredPath::file(bytes, mode.bits(), owner, group);
        self.settle(&Change::new(path, owner, want), Attempt::Anew).map(|_| ())
    }

    /// As [`Root::replace`], and removes files that are no longer needed in the same step: one sync of the directory.
    pub fn replace_and_remove(
        &self,
        (path, bytes, mode): (&str, &[u8], FileMode),
        stale: &[String],
    ) -> Result<(), HostError> {
        let owner = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let written = Change::new(path, owner, DesiredPath::file(bytes, mode.bits(), owner, group));
        let removed = stale.iter().map(|path| Change::new(path.as_str(), owner, DesiredPath::Absent));
        let changes: Vec<_> = std::iter::once(written).chain(removed).collect();
        apply_changes(self, &changes, Attempt::First, self.fail_points()).map(|_| ())
    }

    /// Removes a file or a link durably; a missing one is ignored.
    pub fn remove(&self, path: &str) -> Result<(), HostError> {
        let owner = rustix::process::geteuid().as_raw();
        self.settle(&Change::new(path, owner, DesiredPath::Absent), Attempt::First).map(|_| ())
    }

    /// As [`Root::remove`], for one that may have been cut off: the directory is synced in any case.
    pub fn remove_again(&self, path: &str) -> Result<(), HostError> {
        let owner = rustix::process::geteuid().as_raw();
        self.settle(&Change::new(path, owner, DesiredPath::Absent), Attempt::Again).map(|_| ())
    }

    fn settle(&self, change: &Change<'_>, run: Attempt) -> Result<Done, HostError> {
        apply_changes(self, std::slice::from_ref(change), run, self.fail_points())
    }
}
