//! The host: the directory with the sysroot, the images and the control directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use super::images::LayerFile;
use super::process::{complaint, process};
use super::{MACHINE_VERB, STATEROOT, SandboxError, images, namespaces, tree};
use crate::host::os::ostree::install;
use crate::host::os::worker::executable;
use crate::model::ImageRef;

/// The config that the first image carries.
pub(super) const FIRST_TAG: &str = "v1";

/// Kernel arguments of the first deployment, as an installer would set them.
const FIRST_KARGS: [&str; 2] = ["rw", "console=ttyS0"];

/// The id of `core`, the first of ordinary accounts.
const CORE: u32 = 1000;

/// Way by which the sandbox gets its namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// As root: all user ids exist inside.
    Root,
    /// In a user namespace: inside there is only root, so `core` has the same id.
    UserNamespace,
}

/// A sandbox's directory.
#[derive(Debug, Clone)]
pub struct SandboxHost {
    dir: PathBuf,
    agent: PathBuf,
    worker: PathBuf,
}

impl SandboxHost {
    /// Returns the privilege of a sandbox here; the error names the missing part and how to get it.
    pub fn privilege(agent: &Path) -> Result<Privilege, SandboxError> {
        let missing: Vec<_> = ["ostree", "skopeo"]
            .into_iter()
            .filter(|program| !Path::new("/usr/bin").join(program).exists())
            .collect();
        if !missing.is_empty() {
            let names = |list: &[&str]| list.join(" ");
            return Err(SandboxError::Missing {
                missing: missing.join(" and "),
                debian: names(&missing),
                fedora: names(&missing),
            });
        }
        let worker = worker(agent)?;
        let output = Command::new(&worker)
            .args([MACHINE_VERB, "probe"])
            .output()
            .map_err(|e| SandboxError::io("start", worker, e))?;
        if !output.status.success() {
            return Err(SandboxError::NoNamespaces { cause: complaint(&output) });
        }
        Ok(if geteuid().is_root() { Privilege::Root } else { Privilege::UserNamespace })
    }

    /// Makes a host in a new or empty directory: image `v1`, deployed. `agent` is the agent's executable.
    pub fn create(
        dir: &Path,
        agent: &Path,
        labels: &BTreeMap<String, String>,
        progress: &dyn Fn(&str),
    ) -> Result<Self, SandboxError> {
        Self::privilege(agent)?;
        fs::create_dir_all(dir).map_err(|e| SandboxError::io("make", dir, e))?;
        let dir = fs::canonicalize(dir).map_err(|e| SandboxError::io("find", dir, e))?;
        if fs::read_dir(&dir).map_err(|e| SandboxError::io("list", &dir, e))?.next().is_some() {
            return Err(SandboxError::NotEmpty(dir));
        }
        progress("building the OS image v1 and deploying it with libostree");
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let worker = worker(agent)?;
        let output = process(&worker)
            .arg("create")
            .arg(&dir)
            .args(labels)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| SandboxError::io("start", &worker, e))?;
        if !output.status.success() {
            return Err(SandboxError::Child { what: "building the sandbox", cause: complaint(&output) });
        }
        Self::open(&dir, agent)
    }

    /// Takes up a host that exists.
    pub fn open(dir: &Path, agent: &Path) -> Result<Self, SandboxError> {
        let dir = fs::canonicalize(dir).map_err(|e| SandboxError::io("find", dir, e))?;
        let worker = worker(agent)?;
        let agent = fs::canonicalize(agent).map_err(|e| SandboxError::io("find", agent, e))?;
        images::find(&dir.join("images"), FIRST_TAG)?;
        Ok(Self { dir, agent, worker })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the agent's executable.
    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    /// Returns the worker's executable.
    pub(super) fn worker(&self) -> &Path {
        &self.worker
    }

    /// Returns the control directory, as seen from outside.
    pub fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// Returns the image with a tag, under the name it has inside.
    pub fn image(&self, tag: &str) -> Result<ImageRef, SandboxError> {
        images::name(images::find(&self.dir.join("images"), tag)?)
    }

    /// Makes an image from another one: one layer more, and labels.
    pub fn derive(
        &self,
        base: &ImageRef,
        tag: &str,
        files: &[LayerFile],
        labels: &BTreeMap<String, String>,
    ) -> Result<ImageRef, SandboxError> {
        images::name(images::derive(&self.dir.join("images"), base.digest(), tag, files, labels)?)
    }

    /// Removes the directory.
    pub fn remove(self) -> Result<(), SandboxError> {
        fs::remove_dir_all(&self.dir).map_err(|e| SandboxError::io("remove", &self.dir, e))
    }
}

/// Finds the worker's executable where the agent looks for it.
fn worker(agent: &Path) -> Result<PathBuf, SandboxError> {
    let places = executable::candidates(agent);
    let found = places.iter().find_map(|place| fs::canonicalize(place).ok());
    found.ok_or_else(|| {
        let places = places.each_ref().map(|place| place.display().to_string());
        SandboxError::NoWorker { places: places.join(" or ") }
    })
}

/// Builds the host; runs in namespaces of its own.
pub(super) fn build(dir: &Path, labels: BTreeMap<String, String>) -> Result<(), SandboxError> {
    namespaces::enter(namespaces::Scope::Mounts)?;
    let core = if namespaces::has_user(CORE) { CORE } else { 0 };
    let (sysroot, layout, root) = (dir.join("sysroot"), dir.join("images"), dir.join("tree"));
    for place in [&sysroot, &sysroot.join("boot"), &layout, &dir.join("control"), &dir.join("run")] {
        fs::create_dir(place).map_err(|e| SandboxError::io("make", place, e))?;
    }
    // The agent refuses a control directory that its group may write to, under any umask.
    allow(&dir.join("control"), 0o755)?;
    tree::write(&root, core)?;
    install::initialise(&sysroot, STATEROOT).map_err(SandboxError::Os)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| SandboxError::io("start an event loop in", dir, e))?;
    runtime.block_on(async {
        let digest =
            install::build(&sysroot, &root, &layout, FIRST_TAG, labels).await.map_err(SandboxError::Os)?;
        let name = images::name(digest)?;
        install::install(&sysroot, STATEROOT, &layout, FIRST_TAG, &name, &FIRST_KARGS)
            .await
            .map_err(SandboxError::Os)
    })?;
    tree::first_boot(&sysroot.join(format!("ostree/deploy/{STATEROOT}/var")), core)?;
    fs::remove_dir_all(&root).map_err(|e| SandboxError::io("remove", root, e))
}

/// Sets the permission bits of a path.
pub(super) fn allow(path: &Path, mode: u32) -> Result<(), SandboxError> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(|e| SandboxError::io("set the mode of", path, e))
}
