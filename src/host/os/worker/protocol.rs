//! Protocol between the agent and its worker process: one request on standard input, lines of JSON back.
//!
//! Both ends are of the same version, or nothing is done. Invariant: the last line is [`Line::Done`] or
//! [`Line::Failed`]; a worker that ends without one has failed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::error::{OsError, SYSROOT};
use crate::host::os::{Preflight, SoftRebootState};
use crate::model::observation::{ObservedOs, Staged};
use crate::model::{BootId, Contents, ImageRef, Karg, Sha256};
use crate::stateroot::lifecycle::Lifecycle;
use crate::stateroot::{
    Layout, Return, SeedEntry, SeedRules, Stateroot, StaterootName, StaterootTrial, Version,
};

/// The worker's verb for one piece of work.
pub const WORKER_VERB: &str = "os-worker";

/// The version and commit of this end: two files can be installed apart, and builds between releases differ.
pub(in crate::host::os) const VERSION: &str = env!("MCA_VERSION");

/// The part of a request that is read before the rest is understood.
#[cfg(feature = "backend-ostree")]
#[derive(Debug, Deserialize)]
pub(in crate::host::os) struct Greeting {
    /// As in [`Request`].
    pub(in crate::host::os) version: String,
}

/// One piece of work, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct Request {
    /// The version of the agent.
    pub(in crate::host::os) version: String,
    /// The sysroot; `/` on a host.
    pub(in crate::host::os) sysroot: PathBuf,
    /// Command of the request.
    pub(in crate::host::os) work: WorkerCommand,
}

/// Handling of a bootable image that has no ostree commit in it, only plain layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::host::os) enum WithoutCommit {
    /// It is refused: the worker itself can't deploy it.
    Refused,
    /// It is taken: recent versions of rpm-ostree and bootc deploy it.
    Taken,
}

/// The pieces of work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(in crate::host::os) enum WorkerCommand {
    /// Read the booted and the staged deployment.
    #[serde(rename = "see")]
    Observe,
    /// Read an image's properties, at its source or in the repository; no layer is pulled.
    Preflight { image: ImageRef, credentials: Option<Secret>, without_commit: WithoutCommit },
    /// Pull and stage.
    Stage { image: Option<ImageRef>, credentials: Option<Secret>, delete: Vec<Karg>, append: Vec<Karg> },
    /// Pull without staging, at the lowest priority; `None` drops the prefetched image.
    Prefetch { image: Option<ImageRef>, credentials: Option<Secret>, bandwidth: Option<u64> },
    /// Change the kernel arguments of the staged deployment, or else of the booted one.
    Kargs { delete: Vec<Karg>, append: Vec<Karg> },
    /// Have pulls sync each object by itself.
    PerObjectFsync,
    /// Drop the staged deployment.
    Unstage,
    /// Give up the deployment that ran before the booted one.
    DropRollback,
    /// Make a deployment the next boot's.
    FallBack { deployment: String },
    /// Find out whether a soft reboot leads into a deployment; `None` is one that is yet to be staged.
    SoftReboot { deployment: Option<String> },
    /// Check that the reboot will finalize the staged deployment.
    #[serde(rename = "finalise")]
    Finalize,
    /// Look at stateroots and seed images, make and remove stateroots.
    Stateroot(StaterootCommand),
}

impl WorkerCommand {
    /// Returns true if it may reach out to a registry.
    pub(in crate::host::os) fn pulls(&self) -> bool {
        match self {
            Self::Preflight { .. } | Self::Stage { image: Some(_), .. } => true,
            Self::Stateroot(command) => command.image().is_some(),
            Self::Observe
            | Self::Stage { image: None, .. }
            | Self::Prefetch { .. }
            | Self::Kargs { .. }
            | Self::PerObjectFsync
            | Self::Unstage
            | Self::DropRollback
            | Self::FallBack { .. }
            | Self::SoftReboot { .. }
            | Self::Finalize => false,
        }
    }

    /// Returns true if it only looks at this host, or changes one line: it is answered at once when all is well.
    pub(in crate::host::os) fn is_question(&self) -> bool {
        match self {
            Self::Observe
            | Self::SoftReboot { .. }
            | Self::Finalize
            | Self::PerObjectFsync
            | Self::Stateroot(StaterootCommand::List) => true,
            // Those reach out to a registry, write deployments or wait for the sysroot's lock.
            Self::Preflight { .. }
            | Self::Stage { .. }
            | Self::Prefetch { .. }
            | Self::Kargs { .. }
            | Self::Unstage
            | Self::DropRollback
            | Self::FallBack { .. }
            | Self::Stateroot(_) => false,
        }
    }

    /// Names the object of an error that has none of its own.
    pub(in crate::host::os) fn object(&self) -> String {
        match self {
            Self::Observe
            | Self::Kargs { .. }
            | Self::PerObjectFsync
            | Self::Unstage
            | Self::DropRollback
            | Self::Finalize
            | Self::SoftReboot { deployment: None }
            | Self::Prefetch { image: None, .. }
            | Self::Stage { image: None, .. } => SYSROOT.to_owned(),
            Self::FallBack { deployment } | Self::SoftReboot { deployment: Some(deployment) } => {
                deployment.clone()
            }
            Self::Stateroot(command) => command.object(),
            Self::Preflight { image, .. }
            | Self::Prefetch { image: Some(image), .. }
            | Self::Stage { image: Some(image), .. } => image.to_string(),
        }
    }
}

/// Registry credentials on their way to the worker. They go through a pipe and a nameless file, and are never shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::host::os) struct Secret(String);

impl Secret {
    /// Takes JSON, which is text.
    pub(in crate::host::os) fn from_json(json: &Contents) -> Option<Self> {
        std::str::from_utf8(json.bytes()).ok().map(|text| Self(text.to_owned()))
    }

    #[cfg(feature = "backend-ostree")]
    pub(in crate::host::os) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// One line of the worker.
#[expect(clippy::large_enum_variant, reason = "one at a time: a box would save nothing")]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::host::os) enum Line {
    /// Progress of the work.
    Progress { text: String, percent: Option<u8> },
    /// The result.
    Done(WorkerReply),
    /// The end.
    Failed(OsError),
}

/// Writes one line of a process to its standard output; returns false if the reader is gone.
#[cfg(feature = "backend-ostree")]
pub(in crate::host::os) fn write_line(line: &impl Serialize) -> bool {
    use std::io::Write as _;
    let Ok(mut bytes) = serde_json::to_vec(line) else { return false };
    bytes.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes).and_then(|()| out.flush()).is_ok()
}

/// A result.
#[expect(clippy::large_enum_variant, reason = "one at a time: a box would save nothing")]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::host::os) enum WorkerReply {
    /// Of [`WorkerCommand::Observe`].
    #[serde(rename = "seen")]
    Observed(ObservedOs),
    /// Of [`WorkerCommand::Preflight`].
    Preflight(Preflight),
    /// Of [`WorkerCommand::Stage`] and [`WorkerCommand::Kargs`].
    Staged(Staged),
    /// Of [`WorkerCommand::Prefetch`]: the bytes that are free.
    Prefetched(u64),
    /// Of [`WorkerCommand::Stateroot`].
    Stateroot(StaterootReply),
    /// Of [`WorkerCommand::SoftReboot`].
    SoftReboot(SoftRebootState),
    /// Of the others.
    Nothing,
}

/// The pieces of work on stateroots.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "stateroot", rename_all = "kebab-case")]
pub(in crate::host::os) enum StaterootCommand {
    /// List the stateroots.
    List,
    /// Read the labels of an image; no layer is pulled.
    Inspect { image: ImageRef, credentials: Option<Secret> },
    /// Pull, unpack and check a seed beside the repository.
    Fetch(SeedRequest),
    /// Make a stateroot of it, whose deployment does not boot by itself.
    Deploy(DeployRequest),
    /// Remove a stateroot with all that is its own, and its image: its deployment names it, unless it is gone already.
    Remove { name: StaterootName, image: Option<ImageRef> },
    /// Write down in the `/var` of a deployment's stateroot what it has to show; `None` is one that ran before.
    Arm { deployment: String, trial: Option<StaterootTrial> },
    /// Make a deployment of any stateroot the next boot's; what is staged would boot instead, and is dropped or refused.
    SetDefault { deployment: String, drop_staged: bool },
    /// Make the one that ran before the next boot's, and disarm the other.
    Restore { deployment: String, previous: String },
    /// Record in the stateroot of a deployment why the other one was left.
    #[serde(rename = "tell")]
    RecordReturn { deployment: String, left: Return },
    /// Hand the state of the stages to the stateroot of a deployment.
    HandOver { deployment: String, state: Lifecycle },
    /// Fetch the image on which a seed is built.
    FetchBase { image: ImageRef, credentials: Option<Secret>, directory: PathBuf },
    /// List what a seed of this host has and leaves out, or only what refuses it.
    ListFiles { rules: SeedRules, refusals_only: bool },
    /// Archive `/etc` and `/var` of this host.
    Archive(ArchiveRequest),
    /// Put the image of a seed together.
    Assemble(AssembleRequest),
}

/// `/etc` and `/var`, as they go into a seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct ArchiveRequest {
    /// The directory of the seed in the making.
    pub(in crate::host::os) directory: PathBuf,
    /// Its layout.
    pub(in crate::host::os) layout: Layout,
    /// The rules by which paths are taken.
    pub(in crate::host::os) rules: SeedRules,
    /// The config that takes the place of the host's own.
    pub(in crate::host::os) config: String,
}

/// The small members of a seed, and its labels.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct AssembleRequest {
    /// The directory of the seed in the making.
    pub(in crate::host::os) directory: PathBuf,
    /// Its layout.
    pub(in crate::host::os) layout: Layout,
    /// The labels of the image.
    pub(in crate::host::os) labels: BTreeMap<String, String>,
    /// `rpm-ostree.json`.
    pub(in crate::host::os) status: String,
    /// `mco-currentconfig.json`.
    pub(in crate::host::os) config: String,
    /// `containers.list`.
    pub(in crate::host::os) containers: String,
    /// `manifest.json`.
    pub(in crate::host::os) manifest: String,
}

/// A seed that is to be fetched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct SeedRequest {
    /// The image.
    pub(in crate::host::os) image: ImageRef,
    /// Credentials for its pull.
    pub(in crate::host::os) credentials: Option<Secret>,
    /// Its layout.
    pub(in crate::host::os) layout: Layout,
    /// The stateroot that it is for.
    pub(in crate::host::os) name: StaterootName,
    /// The boot: what was fetched is good for one.
    pub(in crate::host::os) boot_id: BootId,
}

/// A stateroot that is to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct DeployRequest {
    /// The seed.
    pub(in crate::host::os) seed: SeedRequest,
    /// Its version.
    pub(in crate::host::os) version: Version,
    /// Kernel arguments that are carried over, beside those that always are.
    pub(in crate::host::os) carried: Vec<String>,
}

/// A seed that was fetched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::host::os) struct FetchedSeed {
    /// The commit of its system.
    pub(in crate::host::os) commit: String,
    /// The kernel arguments of its config.
    pub(in crate::host::os) kargs: Vec<Karg>,
    /// Set if it is in FIPS mode.
    pub(in crate::host::os) fips: bool,
    /// The images that its containers ran.
    pub(in crate::host::os) containers: Vec<String>,
}

impl StaterootCommand {
    /// Returns the image that is reached for.
    pub(in crate::host::os) fn image(&self) -> Option<&ImageRef> {
        match self {
            Self::List
            | Self::Remove { .. }
            | Self::Arm { .. }
            | Self::SetDefault { .. }
            | Self::Restore { .. }
            | Self::RecordReturn { .. }
            | Self::HandOver { .. }
            | Self::ListFiles { .. }
            | Self::Archive(_)
            | Self::Assemble(_) => None,
            Self::Inspect { image, .. } | Self::FetchBase { image, .. } => Some(image),
            Self::Fetch(seed) | Self::Deploy(DeployRequest { seed, .. }) => Some(&seed.image),
        }
    }

    /// Returns true if silence means that nothing moves.
    pub(in crate::host::os) fn shows_progress(&self) -> bool {
        !matches!(self, Self::ListFiles { .. } | Self::Archive(_) | Self::Assemble(_))
    }

    /// Names the object of an error that has none of its own.
    pub(in crate::host::os) fn object(&self) -> String {
        match self {
            Self::Remove { name, .. } => name.to_string(),
            Self::Arm { deployment, .. }
            | Self::SetDefault { deployment, .. }
            | Self::Restore { deployment, .. }
            | Self::RecordReturn { deployment, .. }
            | Self::HandOver { deployment, .. } => deployment.clone(),
            Self::Archive(ArchiveRequest { directory, .. })
            | Self::Assemble(AssembleRequest { directory, .. }) => directory.display().to_string(),
            Self::List
            | Self::ListFiles { .. }
            | Self::Inspect { .. }
            | Self::FetchBase { .. }
            | Self::Fetch(_)
            | Self::Deploy(_) => self.image().map_or_else(|| SYSROOT.to_owned(), ImageRef::to_string),
        }
    }
}

/// A result of work on stateroots.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::host::os) enum StaterootReply {
    /// Of [`StaterootCommand::List`].
    Listed(Vec<Stateroot>),
    /// Of [`StaterootCommand::Inspect`].
    Labels {
        /// The labels.
        labels: BTreeMap<String, String>,
        /// The size of the layers, compressed.
        download: u64,
    },
    /// Of [`StaterootCommand::ListFiles`].
    Files(Vec<SeedEntry>),
    /// Of [`StaterootCommand::Fetch`].
    Fetched(FetchedSeed),
    /// Of [`StaterootCommand::Deploy`]: the deployment.
    Deployed(String),
    /// Of [`StaterootCommand::Assemble`]: the digest of the manifest.
    Assembled(Sha256),
    /// Of the others.
    Nothing,
}
