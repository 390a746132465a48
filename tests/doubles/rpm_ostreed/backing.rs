//! The deployments: in memory, or of a real sysroot by way of the agent's own worker.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;

use machine_config_agent::host::ContainerHandles;
use machine_config_agent::host::os::ostree::OstreeBackend;
use machine_config_agent::host::os::worker::Worker;
use machine_config_agent::host::os::{OsBackend as _, StageRequest};
use machine_config_agent::model::observation::{EmbeddedConfig, ObservedOs, Staged};
use machine_config_agent::model::{ImageRef, Karg};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

/// One deployment.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Deployment {
    /// Its stateroot; the sandbox's where nothing is said.
    pub(crate) osname: String,
    pub(crate) checksum: String,
    pub(crate) serial: i32,
    pub(crate) reference: String,
    pub(crate) digest: String,
    pub(crate) label: String,
    pub(crate) booted: bool,
    pub(crate) staged: bool,
    pub(crate) packages: BTreeSet<String>,
    /// `SHA256:NEVRA` of packages that were installed from files.
    pub(crate) local_packages: BTreeSet<String>,
    pub(crate) removals: BTreeSet<String>,
    /// The packages of the image itself, as far as they matter.
    pub(crate) contains: BTreeSet<String>,
    pub(crate) kargs: String,
}

impl Deployment {
    pub(crate) fn osname(&self) -> &str {
        if self.osname.is_empty() { "sandbox" } else { &self.osname }
    }

    /// Returns its id, in the words of the daemon and of libostree.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}.{}", self.osname(), self.checksum, self.serial)
    }
}

/// Sources of a transaction's packages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// True if `/etc/yum.repos.d` has a repository.
    pub(crate) repositories: bool,
    /// The packages that images hold, by reference.
    pub(crate) images: BTreeMap<String, BTreeSet<String>>,
}

/// A piece of work.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    Update {
        refspec: Option<String>,
        install: Vec<String>,
        uninstall: Vec<String>,
        remove: Vec<String>,
        reset: Vec<String>,
    },
    Kargs(String),
    Rollback,
    Cleanup {
        pending: bool,
        rollback: bool,
    },
}

/// Storage of the deployments.
pub(crate) enum Backing {
    Memory(Mutex<Vec<Deployment>>),
    /// What was read last, and the marks of the sysroot from before: the real one reads it again when it was written.
    Sysroot(Mutex<Option<(Marks, Vec<Deployment>)>>),
}

/// The times and inodes of what libostree writes with each change, as the real one compares them.
type Marks = Vec<Option<(u64, i64, i64)>>;

fn marks() -> Marks {
    let all = ["/ostree/deploy", "/run/ostree/staged-deployment", "/run/ostree/staged-deployment-locked"];
    all.iter().map(|path| path_mark(path)).collect()
}

fn path_mark(path: &str) -> Option<(u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

impl Backing {
    pub(crate) fn memory(json: &str) -> Self {
        Self::Memory(Mutex::new(serde_json::from_str(json).unwrap()))
    }

    pub(crate) fn sysroot() -> Self {
        Self::Sysroot(Mutex::default())
    }

    /// Lists them, the next boot's first.
    pub(crate) async fn list(&self) -> Vec<Deployment> {
        match self {
            Self::Memory(all) => all.lock().unwrap().clone(),
            Self::Sysroot(last) => {
                let now = marks();
                let known = last.lock().unwrap().clone().filter(|(marks, _)| *marks == now);
                if let Some((_, all)) = known {
                    return all;
                }
                let all = alone(|| async { list().await }).await;
                *last.lock().unwrap() = Some((now, all.clone()));
                all
            }
        }
    }

    /// Leaves the mark of a write, as libostree does; where there is no sysroot, none.
    pub(crate) fn mark(&self, root: &std::path::Path) {
        if let (Self::Memory(_), true) = (self, root.join("ostree/deploy").is_dir()) {
            let staged = root.join("run/ostree/staged-deployment");
            std::fs::create_dir_all(staged.parent().unwrap()).unwrap();
            // A new file beside the old one: another inode.
            std::fs::write(staged.with_extension("new"), "").unwrap();
            std::fs::rename(staged.with_extension("new"), staged).unwrap();
        }
    }

    /// Does the work. Dropping the future ends it.
    pub(crate) async fn work(
        &self,
        job: Job,
        sources: &Sources,
        progress: UnboundedSender<String>,
    ) -> Result<(), String> {
        match self {
            Self::Memory(all) => remember(&mut all.lock().unwrap(), job, sources),
            Self::Sysroot(_) => {
                let all = self.list().await;
                let done = alone(move || async move { work(job, &all, progress).await }).await;
                // As in the real one: by the time that a transaction ends the daemon has read its result.
                self.list().await;
                done
            }
        }
    }
}

/// Runs what is bound to one thread on a thread of its own; it ends with the future that waits for it.
async fn alone<T, F>(work: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut done = done;
            tokio::select! {
                value = work() => { done.send(value).unwrap_or_default_on_drop(); }
                () = done.closed() => {}
            }
        });
    });
    result.await.unwrap()
}

/// A receiver may be gone.
trait Unsent {
    fn unwrap_or_default_on_drop(self);
}

impl<T> Unsent for Result<(), T> {
    fn unwrap_or_default_on_drop(self) {
        drop(self);
    }
}

fn remember(all: &mut Vec<Deployment>, job: Job, sources: &Sources) -> Result<(), String> {
    let booted = all.iter().position(|one| one.booted).unwrap();
    let merge = all.first().unwrap().clone();
    let mut next = Deployment { booted: false, staged: true, serial: merge.serial + 1, ..merge.clone() };
    match job {
        Job::Cleanup { pending, rollback } => {
            let before = |at: usize| (pending && at < booted) || (rollback && at > booted);
            let mut at = 0..;
            all.retain(|_| !before(at.next().unwrap()));
            return Ok(());
        }
        Job::Rollback => {
            let to = wanted_by_rollback(all)?;
            let first = all.remove(to);
            all.insert(0, first);
            return Ok(());
        }
        Job::Kargs(line) => {
            if line == merge.kargs {
                return Ok(());
            }
            // It composes the packages again, from the cache; where all of them are the image's own there is
            // nothing to compose, and the real one fails at that.
            if !merge.packages.is_empty() && merge.packages.is_subset(&merge.contains) {
                return Err("No packages in transaction".to_owned());
            }
            next.kargs = line;
        }
        Job::Update { refspec, install, uninstall, remove, reset } => {
            if let Some(refspec) = refspec {
                let (_, digest) = refspec.rsplit_once("@sha256:").unwrap();
                next.checksum = digest.chars().rev().collect();
                next.digest = format!("sha256:{digest}");
                next.label = String::new();
                next.contains = sources.images.get(&refspec).cloned().unwrap_or_default();
                next.reference = refspec;
                next.serial = 0;
            }
            if let Some(twice) = remove.iter().find(|name| merge.removals.contains(*name)) {
                return Err(format!("Override already exists for package '{twice}'"));
            }
            if let Some(none) = reset.iter().find(|name| !merge.removals.contains(*name)) {
                return Err(format!("No overrides for package '{none}'"));
            }
            next.packages.retain(|name| !uninstall.contains(name));
            next.packages.extend(install);
            next.removals.retain(|name| !reset.contains(name));
            next.removals.extend(remove);
            // A request stays in the origin, whatever the image holds.
            if !next.packages.is_subset(&next.contains) && !sources.repositories {
                return Err("No enabled repositories".to_owned());
            }
        }
    }
    // One that is staged makes room for the other.
    all.retain(|one| !one.staged);
    all.insert(0, next);
    Ok(())
}

/// The one after the booted, or, where a roll-back is queued already, the booted.
fn wanted_by_rollback(all: &[Deployment]) -> Result<usize, String> {
    let booted = all.iter().position(|one| one.booted).unwrap();
    match all.first() {
        Some(first) if first.staged => Err("Staged deployment (remove with cleanup -p)".to_owned()),
        Some(first) if !first.booted => Ok(booted),
        _ if all.len() > booted + 1 => Ok(booted + 1),
        _ => Err("No rollback deployment found".to_owned()),
    }
}

fn backend() -> (OstreeBackend, Worker) {
    let worker = Worker::new(Path::new("/"), ContainerHandles::default());
    (OstreeBackend::new(worker.clone()), worker)
}

fn of(staged: &Staged) -> Deployment {
    let (osname, checksum, serial) = parts(&staged.deployment);
    let (reference, digest) = named(staged.image.as_ref());
    let words: Vec<&str> = staged.kargs.iter().map(Karg::as_str).collect();
    Deployment {
        osname,
        checksum,
        serial,
        reference,
        digest,
        kargs: words.join(" "),
        ..Deployment::default()
    }
}

fn parts(id: &str) -> (String, String, i32) {
    let (rest, serial) = id.rsplit_once('.').unwrap();
    let (osname, checksum) = rest.rsplit_once('-').unwrap();
    (osname.to_owned(), checksum.to_owned(), serial.parse().unwrap())
}

fn named(image: Option<&ImageRef>) -> (String, String) {
    let Some(image) = image else { return Default::default() };
    let text = image.to_string();
    let reference = match text.strip_prefix("oci:") {
        Some(_) => format!("ostree-unverified-image:{text}"),
        None => format!("ostree-unverified-registry:{text}"),
    };
    (reference, format!("sha256:{}", image.digest()))
}

/// The agent's cache of observations is neither read nor written here: a daemon knows nothing of it.
async fn observed_os() -> ObservedOs {
    let forget = || drop(std::fs::remove_file("/run/machine-config-agent/os.json"));
    forget();
    let seen = backend().0.observe().await.unwrap();
    forget();
    seen
}

async fn list() -> Vec<Deployment> {
    let ObservedOs::Deployments { booted, staged, next } = observed_os().await else {
        return Vec::new();
    };
    let (osname, checksum, serial) = parts(&booted.deployment);
    let (reference, digest) = named(booted.image.as_ref());
    let label = match booted.carries {
        EmbeddedConfig::Config(name) => name.to_string(),
        EmbeddedConfig::Unknown => String::new(),
    };
    let kargs = std::fs::read_to_string("/proc/cmdline").unwrap().trim().to_owned();
    let own = Deployment {
        booted: true,
        label,
        kargs,
        packages: booted.local.requested,
        removals: booted.local.removed,
        ..Deployment { osname, checksum, serial, reference, digest, ..Deployment::default() }
    };
    let staged = staged.map(|staged| Deployment { staged: true, ..of(&staged) });
    let status = std::process::Command::new("ostree").args(["admin", "status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let rollback = status.lines().filter(|line| line.contains("(rollback)")).map(|line| {
        let mut words = line.split_whitespace();
        let (osname, id) = (words.next().unwrap(), words.next().unwrap());
        let (osname, checksum, serial) = parts(&format!("{osname}-{id}"));
        Deployment { osname, checksum, serial, ..Deployment::default() }
    });
    staged.into_iter().chain(next.as_ref().map(of)).chain([own]).chain(rollback).collect()
}

async fn work(job: Job, all: &[Deployment], progress: UnboundedSender<String>) -> Result<(), String> {
    let (backend, worker) = backend();
    let line = |one: Option<&Deployment>| Karg::split(one.map_or("", |one| one.kargs.as_str()));
    let plain = |line: Vec<Karg>| line.into_iter().filter(|karg| !karg.is_of_ostree()).collect::<Vec<_>>();
    let booted = plain(line(all.iter().find(|one| one.booted)));
    let merge = plain(line(all.first()));
    let told = |error: machine_config_agent::host::HostError| error.to_string();
    match job {
        Job::Cleanup { pending, rollback } => {
            if pending {
                backend.unstage(&|_| {}).await.map_err(told)?;
            }
            if rollback {
                backend.drop_rollback(&|_| {}).await.map_err(told)?;
            }
            Ok(())
        }
        Job::Rollback => {
            let wanted = all.get(wanted_by_rollback(all)?).unwrap();
            backend.set_default_deployment(&wanted.id(), &|_| {}).await.map_err(told)
        }
        Job::Kargs(line) => worker.kargs(&merge, &Karg::split(&line)).await.map(drop).map_err(told),
        Job::Update { refspec, install, .. } => {
            if !install.is_empty() {
                return Err(format!("Packages not found: {}", install.join(", ")));
            }
            let name = refspec.as_deref().map(|refspec| {
                refspec
                    .strip_prefix("ostree-unverified-registry:")
                    .or_else(|| refspec.strip_prefix("ostree-unverified-image:"))
                    .unwrap()
            });
            let image = name.map(|name| ImageRef::parse(name).unwrap());
            let request =
                StageRequest { image, delete_kargs: booted, append_kargs: merge, ..StageRequest::default() };
            let tell = |step: machine_config_agent::host::os::OsProgress| {
                progress.send(real(&step.text)).unwrap_or_default();
            };
            backend.stage(&request, &tell).await.map(drop).map_err(told)
        }
    }
}

/// Returns the text as rpm-ostree prints it.
fn real(text: &str) -> String {
    match text.strip_prefix("pulling layer ").and_then(|rest| rest.split_once(" of ")) {
        Some((layer, of)) => {
            let of = of.split(',').next().unwrap_or_default();
            format!("[{layer}/{of}] Fetching ostree chunk (1.0\u{a0}kB)")
        }
        None => text.to_owned(),
    }
}
