//! Which managed paths changed: told by the kernel, never polled.
//!
//! The directories of the paths are watched, or the nearest ones that exist. Invariant: a directory that is removed,
//! swapped or made again is watched again, and when the kernel lost events everything counts as changed; so a change may
//! be told twice but is never missed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::HostError;
use super::root::{Root, split};

/// Editors and package managers touch a file several times in a row: told once, after it was quiet for so long.
const QUIET: Duration = Duration::from_millis(50);
/// One that never rests is told all the same.
const PATIENCE: Duration = Duration::from_secs(2);
/// Room for some hundred events at once; one event needs at most 16 + 256 bytes.
const BUFFER: usize = 16 * 1024;

/// Watches paths below a root.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    inotify: AsyncFd<OwnedFd>,
    /// The watched paths: files, and directories whose entries matter.
    paths: BTreeSet<String>,
    directories: BTreeSet<String>,
    /// Watch descriptors and the directories, as they were asked for, that they stand for.
    watched: BTreeMap<i32, BTreeSet<String>>,
}

impl Watch {
    /// Watches files, whether they exist or not, and everything directly in some directories.
    pub fn new<'a>(
        root: &Root,
        files: impl IntoIterator<Item = &'a str>,
        directories: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, HostError> {
        let failed = |source: io::Error| HostError::io("watch", root.base().display().to_string(), source);
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| failed(errno.into()))?;
        #[expect(
            deprecated,
            reason = "it is unsound for borrowed descriptors; this one is owned (tokio#8587)"
        )]
        let inotify = AsyncFd::new(fd).map_err(failed)?;
        let mut watch = Self {
            root: root.clone(),
            inotify,
            paths: files.into_iter().map(str::to_owned).collect(),
            directories: directories.into_iter().map(|dir| dir.trim_end_matches('/').to_owned()).collect(),
            watched: BTreeMap::new(),
        };
        watch.watch_all()?;
        Ok(watch)
    }

    /// Waits until something changed and it is quiet again; returns the paths, those in directories included.
    ///
    /// Cancel-safe but for the debouncing: a cancelled call may lose what it had collected, so keep one future.
    pub async fn changed(&mut self) -> Result<Vec<String>, HostError> {
        let mut changed = BTreeSet::new();
        while changed.is_empty() {
            self.wait(&mut changed).await?;
        }
        let patience = Instant::now() + PATIENCE;
        loop {
            let quiet = (Instant::now() + QUIET).min(patience);
            match tokio::time::timeout_at(quiet, self.wait(&mut changed)).await {
                Ok(more) => more?,
                Err(_) => return Ok(changed.into_iter().collect()),
            }
        }
    }

    /// Waits for the next events and collects what they are about.
    async fn wait(&mut self, changed: &mut BTreeSet<String>) -> Result<(), HostError> {
        let failed = |source: io::Error| HostError::io("watch", "the configuration", source);
        let mut events = Vec::new();
        loop {
            let mut ready = self.inotify.readable().await.map_err(failed)?;
            match ready.try_io(|fd| read(fd.get_ref())) {
                Ok(read) => {
                    events.extend(read.map_err(failed)?);
                    break;
                }
                Err(_would_block) => {}
            }
        }
        let mut again = false;
        for event in events {
            again |= self.take(&event, changed);
        }
        if again {
            self.watch_all()?;
        }
        Ok(())
    }

    /// Notes what an event is about; says whether directories have to be watched anew.
    fn take(&mut self, event: &Event, changed: &mut BTreeSet<String>) -> bool {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            changed.extend(self.paths.iter().cloned());
            changed.extend(self.directories.iter().cloned());
            return true;
        }
        let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        let stale = event.flags.intersects(gone);
        let Some(directories) = self.watched.get(&event.watch).cloned() else { return stale };
        if event.flags.contains(ReadFlags::IGNORED) {
            self.watched.remove(&event.watch);
        }
        let mut again = stale;
        for directory in directories {
            let path = match &event.name {
                Some(name) => format!("{directory}/{name}"),
                None => directory.clone(),
            };
            if self.paths.contains(&path) || (event.name.is_some() && self.directories.contains(&directory)) {
                changed.insert(path.clone());
            }
            // A directory on the way to watched paths came or went.
            let below = format!("{path}/");
            let wanted = self.paths.iter().filter(|one| one.starts_with(&below));
            let wanted =
                wanted.chain(self.directories.iter().filter(|one| **one == path || one.starts_with(&below)));
            for one in wanted {
                changed.insert(one.clone());
                again = true;
            }
        }
        again
    }

    /// Watches the directory of each path, and the one above it: that tells when the directory itself is swapped.
    fn watch_all(&mut self) -> Result<(), HostError> {
        let parents =
            self.paths.iter().filter_map(|path| split(path)).map(|(directory, _)| format!("/{directory}"));
        let wanted: BTreeSet<String> = parents.chain(self.directories.iter().cloned()).collect();
        // Old watches are dropped: a directory that was moved away is not ours any more.
        let mut old = std::mem::take(&mut self.watched);
        for directory in wanted {
            let mut at = directory.trim_end_matches('/').trim_end_matches("/.");
            loop {
                let found = self.watch_one(at)?;
                let Some((above, _)) = at.rsplit_once('/') else { break };
                if found && at != directory.trim_end_matches('/') {
                    break;
                }
                at = above;
            }
        }
        old.retain(|watch, _| !self.watched.contains_key(watch));
        for watch in old.into_keys() {
            // One that the kernel has dropped itself gives EINVAL, which is as good.
            match inotify::remove_watch(self.inotify.get_ref(), watch) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(HostError::io("stop watching", "a directory", errno)),
            }
        }
        Ok(())
    }

    fn watch_one(&mut self, directory: &str) -> Result<bool, HostError> {
        let shown = if directory.is_empty() { "/" } else { directory };
        let Some(name) = self.root.kernel_name(shown)? else { return Ok(false) };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        let watch = inotify::add_watch(self.inotify.get_ref(), name.path(), flags)
            .map_err(|errno| HostError::io("watch", shown, errno))?;
        self.watched.entry(watch).or_default().insert(directory.to_owned());
        Ok(true)
    }
}

struct Event {
    watch: i32,
    flags: ReadFlags,
    name: Option<String>,
}

/// Reads what is there; "nothing" is the error that has the caller wait again.
fn read(fd: &OwnedFd) -> io::Result<Vec<Event>> {
    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => events.push(Event {
                watch: event.wd(),
                flags: event.events(),
                name: event.file_name().map(|name| name.to_string_lossy().into_owned()),
            }),
            Err(Errno::AGAIN) if !events.is_empty() => return Ok(events),
            Err(errno) => return Err(errno.into()),
        }
        if reader.is_buffer_empty() {
            return Ok(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn told(watch: &mut Watch, change: impl FnOnce()) -> Vec<String> {
        change();
        // Generous: only a miss waits so long.
        tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.expect("no event came").unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn tells_changes_also_after_directories_came_and_went() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("etc/a")).unwrap();
        fs::create_dir_all(at("control/machineconfigs")).unwrap();
        fs::write(at("etc/a/one"), "1").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let files = ["/etc/a/one", "/etc/b/c/two"];
        let mut watch = Watch::new(&root, files, ["/control/machineconfigs"]).unwrap();

        assert_eq!(told(&mut watch, || fs::write(at("etc/a/one"), "2").unwrap()).await, ["/etc/a/one"]);
        let names = told(&mut watch, || {
            fs::write(at("control/machineconfigs/.x"), "2").unwrap();
            fs::rename(at("control/machineconfigs/.x"), at("control/machineconfigs/x.yaml")).unwrap();
        });
        assert!(names.await.contains(&"/control/machineconfigs/x.yaml".to_owned()));
        // A parent that did not exist.
        let told_two = told(&mut watch, || fs::create_dir_all(at("etc/b/c")).unwrap()).await;
        assert_eq!(told_two, ["/etc/b/c/two"]);
        assert_eq!(told(&mut watch, || fs::write(at("etc/b/c/two"), "2").unwrap()).await, ["/etc/b/c/two"]);
        // A parent that is removed, and made again.
        assert_eq!(told(&mut watch, || fs::remove_dir_all(at("etc/a")).unwrap()).await, ["/etc/a/one"]);
        assert_eq!(told(&mut watch, || fs::create_dir(at("etc/a")).unwrap()).await, ["/etc/a/one"]);
        assert_eq!(told(&mut watch, || fs::write(at("etc/a/one"), "3").unwrap()).await, ["/etc/a/one"]);
        // A parent that is swapped.
        fs::create_dir(at("etc/other")).unwrap();
        let swapped = told(&mut watch, || {
            fs::rename(at("etc/a"), at("etc/old")).unwrap();
            fs::rename(at("etc/other"), at("etc/a")).unwrap();
        });
        assert_eq!(swapped.await, ["/etc/a/one"]);
        assert_eq!(told(&mut watch, || fs::write(at("etc/a/one"), "4").unwrap()).await, ["/etc/a/one"]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn lost_events_mean_that_everything_changed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut watch = Watch::new(&root, ["/etc/one", "/etc/two"], []).unwrap();
        let overflow = Event { watch: -1, flags: ReadFlags::QUEUE_OVERFLOW, name: None };
        let mut changed = BTreeSet::new();
        assert!(watch.take(&overflow, &mut changed));
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["/etc/one", "/etc/two"]);
    }
}
