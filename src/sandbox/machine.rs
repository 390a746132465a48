//! The machine: a boot, processes in it, and its shutdown with libostree's own finalization.
//!
//! Invariant: `/run` and the boot id live exactly as long as the boot, whatever the processes in it do; a
//! staged deployment is lost if the boot ends without [`Booted::shutdown`], as after a power cut.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::{complaint, process};
use super::{CONTROL, IMAGES, SandboxError, SandboxHost, WORKER, inside};
use crate::host::etc_merge::BRING_OVER_VERB;
use crate::model::BootId;

pub use inside::main;

/// View of `/sysroot` and `/boot` in a process: of a running host, or of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sysroot {
    /// Read-only.
    Running,
    /// Writable.
    Finalizing,
}

impl Sysroot {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finalizing => "finalizing",
        }
    }
}

/// One boot of the machine.
#[derive(Debug)]
pub struct Booted {
    host: SandboxHost,
    id: BootId,
    deployment: String,
    kargs: String,
}

impl SandboxHost {
    /// Boots the deployment of the boot entries.
    pub fn boot(&self) -> Result<Booted, SandboxError> {
        Booted::new(self)
    }
}

impl Booted {
    /// Reads the boot entries as a boot loader does, and takes the first.
    pub(super) fn new(host: &SandboxHost) -> Result<Self, SandboxError> {
        let sysroot = host.dir().join("sysroot");
        let kargs = default_entry(&sysroot.join("boot/loader/entries"))?;
        let deployment = deployment(&sysroot, &kargs)?;
        let text = "/proc/sys/kernel/random/uuid";
        let uuid = fs::read_to_string(text).map_err(|e| SandboxError::io("read", text, e))?;
        let id = BootId::new(uuid.trim())
            .map_err(|e| SandboxError::Damaged { path: text.into(), cause: e.to_string() })?;
        let booted = Self { host: host.clone(), id, deployment, kargs };
        booted.write_run()?;
        Ok(booted)
    }

    fn write_run(&self) -> Result<(), SandboxError> {
        let dir = self.dir();
        let run = dir.join("run");
        for place in ["host/usr", "host/bin", "ostree", "lock", strip(IMAGES), strip(CONTROL)] {
            let place = run.join(place);
            fs::create_dir_all(&place).map_err(|e| SandboxError::io("make", place, e))?;
        }
        let files = [
            ("run/ostree-booted", String::new()),
            ("run/host/bin/machine-config-agent", String::new()),
            ("run/host/bin/machine-config-agent-ostree", String::new()),
            ("agent", text_of(self.host.agent())?.to_owned()),
            ("worker", text_of(self.host.worker())?.to_owned()),
            ("deployment", self.deployment.clone()),
            ("cmdline", format!("{}\n", self.kargs)),
            ("boot_id", format!("{}\n", self.id)),
        ];
        for (name, text) in files {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| SandboxError::io("write", path, e))?;
        }
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.host.dir().join("run").join(self.id.as_str())
    }

    /// Returns the boot id.
    pub fn id(&self) -> &BootId {
        &self.id
    }

    /// Returns the kernel command line.
    pub fn kargs(&self) -> &str {
        &self.kargs
    }

    /// Returns the booted deployment's directory, as seen from outside.
    pub fn root(&self) -> PathBuf {
        self.host.dir().join("sysroot").join(&self.deployment)
    }

    /// Returns the boot's `/run`, as seen from outside.
    pub fn run_dir(&self) -> PathBuf {
        self.dir().join("run")
    }

    /// Prepares a program to run inside, with the given arguments. It ends when the thread that started it ends, and
    /// SIGTERM is passed on to it; its exit code is passed out (128 and the number for a signal).
    pub fn command<S: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = S>) -> Command {
        self.prepare(Sysroot::Running, argv)
    }

    fn prepare<S: AsRef<OsStr>>(&self, sysroot: Sysroot, argv: impl IntoIterator<Item = S>) -> Command {
        let mut command = process(self.host.worker());
        command.arg("run").arg(self.host.dir()).args([self.id.as_str(), sysroot.as_str()]).args(argv);
        command
    }

    /// Shuts down as systemd would: libostree finalizes the staged deployment, then the boot is over.
    pub fn shutdown(self) -> Result<(), SandboxError> {
        if self.run_dir().join("ostree/staged-deployment").exists() {
            let output = self
                .prepare(Sysroot::Finalizing, ["ostree", "admin", "finalize-staged"])
                .stdin(Stdio::null())
                .output()
                .map_err(|e| SandboxError::io("start", self.host.worker(), e))?;
            if !output.status.success() {
                return Err(SandboxError::Child {
                    what: "ostree admin finalize-staged",
                    cause: complaint(&output),
                });
            }
            self.bring_over()?;
        }
        self.power_cut()
    }

    /// Plays the unit that the agent has the shutdown stop after the finalization. It does nothing if it was not
    /// requested.
    fn bring_over(&self) -> Result<(), SandboxError> {
        let output = self
            .prepare(Sysroot::Finalizing, [WORKER, BRING_OVER_VERB])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| SandboxError::io("start", self.host.worker(), e))?;
        if output.status.success() {
            return Ok(());
        }
        Err(SandboxError::Child { what: BRING_OVER_VERB, cause: complaint(&output) })
    }

    /// Ends the boot at once: the staged deployment is lost.
    pub fn power_cut(self) -> Result<(), SandboxError> {
        let dir = self.dir();
        fs::remove_dir_all(&dir).map_err(|e| SandboxError::io("remove", dir, e))
    }
}

/// Returns a path as text for a boot's files.
fn text_of(path: &Path) -> Result<&str, SandboxError> {
    let cause = || SandboxError::Damaged { path: path.to_owned(), cause: "the path is not UTF-8".to_owned() };
    path.to_str().ok_or_else(cause)
}

fn strip(path: &str) -> &str {
    path.trim_start_matches("/run/")
}

/// Returns the options of the boot entry with the highest version.
fn default_entry(entries: &Path) -> Result<String, SandboxError> {
    let damaged = |cause: String| SandboxError::Damaged { path: entries.to_owned(), cause };
    let found = fs::read_dir(entries).map_err(|e| damaged(e.to_string()))?;
    found
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            Some((value("version")?.trim().parse::<u64>().ok()?, value("options")?.trim().to_owned()))
        })
        .max_by_key(|(version, _)| *version)
        .map(|(_, options)| options)
        .ok_or_else(|| damaged("there is no boot entry".to_owned()))
}

/// Returns the stateroot that a deployment's directory is in.
pub(super) fn stateroot_of(deployment: &str) -> Option<&str> {
    let (stateroot, rest) = deployment.strip_prefix("ostree/deploy/")?.split_once('/')?;
    rest.starts_with("deploy/").then_some(stateroot)
}

/// Follows `ostree=` to the deployment's directory, relative to the sysroot.
fn deployment(sysroot: &Path, kargs: &str) -> Result<String, SandboxError> {
    let damaged = |cause: String| SandboxError::Damaged { path: sysroot.to_owned(), cause };
    let link = kargs
        .split(' ')
        .find_map(|karg| karg.strip_prefix("ostree=/"))
        .ok_or_else(|| damaged("the boot entry has no ostree= argument".to_owned()))?;
    let path = fs::canonicalize(sysroot.join(link)).map_err(|e| damaged(format!("{link}: {e}")))?;
    let base = fs::canonicalize(sysroot).map_err(|e| damaged(e.to_string()))?;
    path.strip_prefix(base)
        .ok()
        .and_then(Path::to_str)
        .filter(|path| stateroot_of(path).is_some())
        .map(str::to_owned)
        .ok_or_else(|| damaged(format!("{link} is not a deployment")))
}
