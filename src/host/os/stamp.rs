//! Whether the sysroot is as it was: what libostree itself changes at each write, so that an idle agent need not ask
//! a worker or a service to learn that nothing happened.
//!
//! Invariant: where the marks can't be read there is no stamp, and the sysroot is looked at.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::host::HostError;
use crate::model::observation::OsSeen;

/// What was seen last, and the state of the sysroot before that look.
#[derive(Debug, Clone, Default)]
pub(super) struct LastSeen(Arc<Mutex<Option<(Stamp, OsSeen)>>>);

impl LastSeen {
    /// Returns what was seen last where nothing was written since, else looks.
    pub(super) async fn or_look(
        &self,
        sysroot: &Path,
        look: impl Future<Output = Result<OsSeen, HostError>>,
    ) -> Result<OsSeen, HostError> {
        let stamp = Stamp::read(sysroot);
        if let Some((last, seen)) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner)
            && Some(last) == stamp.as_ref()
        {
            return Ok(seen.clone());
        }
        let seen = look.await?;
        // The stamp is older than the look: a change in between is looked at again.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = stamp.map(|stamp| (stamp, seen.clone()));
        Ok(seen)
    }
}

/// The state of a sysroot, as far as it tells a change. Two that are equal mean that nothing was written in between.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    deployments: Mark,
    staged: Option<Mark>,
    locked: Option<Mark>,
}

/// The inode and both of its times: a file that is replaced or written within one tick of the clock still differs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Mark {
    fn from(found: Metadata) -> Self {
        Self {
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Stamp {
    /// Reads the marks: libostree touches `ostree/deploy` whenever it writes deployments or boot entries (its own
    /// programs notice changes by it), and keeps what is staged in a file below `/run`.
    fn read(sysroot: &Path) -> Option<Self> {
        let optional = |path: &str| match mark(&sysroot.join(path)) {
            Ok(found) => Some(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        };
        Some(Self {
            deployments: mark(&sysroot.join("ostree/deploy")).ok()?,
            staged: optional("run/ostree/staged-deployment")?,
            locked: optional("run/ostree/staged-deployment-locked")?,
        })
    }
}

fn mark(path: &Path) -> io::Result<Mark> {
    path.metadata().map(Mark::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_write_of_libostree_shows() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        assert_eq!(Stamp::read(dir.path()), None, "no sysroot, no stamp");
        fs::create_dir_all(at("ostree/deploy")).unwrap();
        fs::create_dir_all(at("run/ostree")).unwrap();
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(at("run/ostree/staged-deployment"), "1").unwrap(),
            &|| fs::write(at("run/ostree/staged-deployment-locked"), "").unwrap(),
            &|| fs::remove_file(at("run/ostree/staged-deployment")).unwrap(),
            &|| {
                let deploy = fs::File::open(at("ostree/deploy")).unwrap();
                deploy.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            },
        ];
        for change in changes {
            let before = Stamp::read(dir.path());
            assert_eq!(Stamp::read(dir.path()), before);
            change();
            assert_ne!(Stamp::read(dir.path()), before);
        }
    }
}
