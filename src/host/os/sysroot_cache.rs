//! Marks of the sysroot that libostree itself changes at each write, so that an idle agent learns without a worker or a
//! service that nothing happened.
//!
//! Invariant: where the marks can't be read there is no stamp, and the sysroot is observed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::worker::protocol::VERSION;
use crate::host::HostError;
use crate::model::observation::ObservedOs;

/// Cache of the last observation for other processes: `status` and the next agent of this boot start no worker.
const CACHE_PATH: &str = "run/machine-config-agent/os.json";

/// The last observation, and the state of the sysroot before it.
#[derive(Debug, Clone, Default)]
pub(super) struct SysrootCache(Arc<Mutex<Option<CachedSysroot>>>);

/// One look at the sysroot.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CachedSysroot {
    /// The version that looked: another one may write the rest in another form.
    version: String,
    stamp: Stamp,
    #[serde(rename = "seen")]
    observed: ObservedOs,
}

impl SysrootCache {
    /// Returns the last observation if nothing was written since, else observes.
    pub(super) async fn get_or_observe(
        &self,
        sysroot: &Path,
        observation: impl Future<Output = Result<ObservedOs, HostError>>,
    ) -> Result<ObservedOs, HostError> {
        let stamp = Stamp::read(sysroot);
        if let Some(observed) = stamp.as_ref().and_then(|stamp| self.known(sysroot, stamp)) {
            return Ok(observed);
        }
        let observed = observation.await?;
        self.store(sysroot, stamp, observed.clone());
        Ok(observed)
    }

    /// Stores an observation. The stamp is older than the observation: a change in between is observed again.
    pub(super) fn store(&self, sysroot: &Path, stamp: Option<Stamp>, observed: ObservedOs) {
        let observation = stamp.map(|stamp| CachedSysroot { version: VERSION.to_owned(), stamp, observed });
        if let Some(observation) = &observation {
            // Only root can store it; other users observe again next time.
            drop(observation.store(&sysroot.join(CACHE_PATH)));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = observation;
    }

    fn known(&self, sysroot: &Path, stamp: &Stamp) -> Option<ObservedOs> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none() {
            *last = CachedSysroot::load(&sysroot.join(CACHE_PATH));
        }
        last.as_ref().filter(|last| last.stamp == *stamp).map(|last| last.observed.clone())
    }
}

impl CachedSysroot {
    fn load(path: &Path) -> Option<Self> {
        let observation: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (observation.version == VERSION).then_some(observation)
    }

    /// Stores it for this boot: a reader sees the old one or the new one.
    fn store(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let draft = path.with_extension(format!("json.{}", std::process::id()));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(&draft, path)
    }
}

/// The state of a sysroot, as far as it shows a change. Two that are equal mean that nothing was written in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    deployments: Mark,
    staged: Option<Mark>,
    locked: Option<Mark>,
    /// Written by the boot, and again by a soft reboot: `/run` and its files outlive that one.
    #[serde(default)]
    booted: Option<Mark>,
}

/// The inode and both of its times: a file that is replaced or written within one tick of the clock still differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// programs notice changes by it), and keeps the staged deployment in a file below `/run`.
    pub(super) fn read(sysroot: &Path) -> Option<Self> {
        let optional = |path: &str| match mark(&sysroot.join(path)) {
            Ok(found) => Some(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        };
        Some(Self {
            deployments: mark(&sysroot.join("ostree/deploy")).ok()?,
            staged: optional("run/ostree/staged-deployment")?,
            locked: optional("run/ostree/staged-deployment-locked")?,
            booted: optional("run/ostree-booted")?,
        })
    }
}

fn mark(path: &Path) -> io::Result<Mark> {
    path.metadata().map(Mark::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process, or the next agent of this boot, needs no look of its own; another version does.
    #[tokio::test(flavor = "current_thread")]
    async fn cache_serves_every_process_until_sysroot_changes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("ostree/deploy")).unwrap();
        let looks = std::cell::Cell::new(0);
        let observation = async || {
            looks.set(looks.get() + 1);
            Ok(ObservedOs::NotImageBased)
        };
        SysrootCache::default().get_or_observe(dir.path(), observation()).await.unwrap();
        SysrootCache::default().get_or_observe(dir.path(), observation()).await.unwrap();
        assert_eq!(looks.get(), 1);
        fs::create_dir_all(dir.path().join("run/ostree")).unwrap();
        fs::write(dir.path().join("run/ostree/staged-deployment"), "1").unwrap();
        SysrootCache::default().get_or_observe(dir.path(), observation()).await.unwrap();
        assert_eq!(looks.get(), 2);
        let kept = dir.path().join(CACHE_PATH);
        let other = fs::read_to_string(&kept).unwrap().replace(VERSION, "0.0.0");
        fs::write(&kept, other).unwrap();
        SysrootCache::default().get_or_observe(dir.path(), observation()).await.unwrap();
        assert_eq!(looks.get(), 3);
        fs::write(&kept, "rubbish").unwrap();
        SysrootCache::default().get_or_observe(dir.path(), observation()).await.unwrap();
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn each_write_of_libostree_invalidates_cache() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        assert_eq!(Stamp::read(dir.path()), None, "no sysroot, no stamp");
        fs::create_dir_all(at("ostree/deploy")).unwrap();
        fs::create_dir_all(at("run/ostree")).unwrap();
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(at("run/ostree/staged-deployment"), "1").unwrap(),
            &|| fs::write(at("run/ostree/staged-deployment-locked"), "").unwrap(),
            &|| fs::remove_file(at("run/ostree/staged-deployment")).unwrap(),
            &|| {
                let deploy = fs::File::open(at("ostree/deploy")).unwrap();
                deploy.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            },
            &|| fs::write(at("run/ostree-booted"), "old").unwrap(),
            // A soft reboot: the rest is as it was where the deployment was there already.
            &|| {
                fs::write(at("run/ostree/nextroot-booted"), "new").unwrap();
                fs::rename(at("run/ostree/nextroot-booted"), at("run/ostree-booted")).unwrap();
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
