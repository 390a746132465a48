//! What the agent and its worker process say to each other: one request on standard input, lines of JSON back.
//!
//! Both ends are of the same version, or nothing is done. Invariant: the last line is [`Line::Done`] or
//! [`Line::Failed`]; a worker that ends without one has failed.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::HostError;
use crate::model::observation::{Carries, OsSeen, Staged};
use crate::model::{Class, Contents, ImageRef, Karg};

/// The worker's verb for one piece of work.
pub const WORKER_VERB: &str = "os-worker";

/// The worker's verb for SELinux labels.
pub const LABELS_VERB: &str = "labels";

/// The version of this end: two files can be installed apart.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is read of a request before the rest of it is understood.
#[derive(Debug, Deserialize)]
pub(super) struct Greeting {
    /// As in [`Request`].
    pub(super) version: String,
}

/// One piece of work, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request {
    /// The version of the agent.
    pub(super) version: String,
    /// The sysroot; `/` on a host.
    pub(super) sysroot: PathBuf,
    /// What to do.
    pub(super) work: Work,
}

/// The pieces of work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Work {
    /// Look at what is booted and staged.
    See,
    /// Find out which config an image carries.
    Carries { image: ImageRef, credentials: Option<Secret> },
    /// Pull and stage.
    Stage { image: Option<ImageRef>, credentials: Option<Secret>, delete: Vec<Karg>, append: Vec<Karg> },
    /// Drop the staged deployment.
    Unstage,
    /// Check that the reboot will finalise what is staged.
    Finalise,
}

impl Work {
    /// Names the object of an error that has none of its own.
    pub(super) fn object(&self) -> String {
        match self {
            Self::See | Self::Unstage | Self::Finalise | Self::Stage { image: None, .. } => {
                SYSROOT.to_owned()
            }
            Self::Carries { image, .. } | Self::Stage { image: Some(image), .. } => image.to_string(),
        }
    }
}

/// Registry credentials on their way to the worker. They go through a pipe and a nameless file, and are never shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret(String);

impl Secret {
    /// Takes JSON, which is text.
    pub(super) fn of(json: &Contents) -> Option<Self> {
        std::str::from_utf8(json.bytes()).ok().map(|text| Self(text.to_owned()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The object of errors that are about no image.
pub(super) const SYSROOT: &str = "the libostree sysroot";

/// One line of the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    /// How far it is.
    Progress { text: String, percent: Option<u8> },
    /// The result.
    Done(Answer),
    /// The end.
    Failed(Failure),
}

/// A result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// Of [`Work::See`].
    Seen(OsSeen),
    /// Of [`Work::Carries`].
    Carries(Carries),
    /// Of [`Work::Stage`].
    Staged(Staged),
    /// Of the others.
    Nothing,
}

/// Why a piece of work ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    /// What it was about.
    pub(super) object: String,
    /// What happened.
    pub(super) cause: String,
    /// Of what kind.
    pub(super) trouble: Trouble,
}

impl Failure {
    pub(super) fn new(trouble: Trouble, object: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { object: object.into(), cause: cause.into(), trouble }
    }

    /// Says the same in the host's words.
    pub(super) fn into_error(self) -> HostError {
        let Self { object, cause, trouble } = self;
        HostError::Os {
            object,
            cause,
            class: trouble.class(),
            reason: trouble.reason(),
            next: trouble.next(),
        }
    }
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Trouble {
    /// The sysroot is not the one that is booted.
    NotBooted,
    /// Another program holds the sysroot.
    Busy,
    /// The registry is away, or the network is.
    PullFailed,
    /// The registry wants other credentials.
    Unauthorized,
    /// No such image.
    ImageNotFound,
    /// Something else than what was asked for.
    DigestMismatch,
    /// The image is not one that boots.
    NotBootable,
    /// The disk is full.
    NoSpace,
    /// A program is not installed.
    MissingTool,
    /// The deployment is locked: the reboot would drop it.
    Locked,
    /// libostree failed.
    Libostree,
    /// The worker's file is not there, or is another version's.
    NotInstalled,
    /// The worker ended without an answer, or in silence.
    Worker,
}

impl Trouble {
    fn class(self) -> Class {
        match self {
            Self::Busy
            | Self::PullFailed
            | Self::Unauthorized
            | Self::NoSpace
            | Self::MissingTool
            | Self::NotInstalled
            | Self::Locked
            | Self::Worker => Class::Retry,
            Self::NotBooted
            | Self::ImageNotFound
            | Self::DigestMismatch
            | Self::NotBootable
            | Self::Libostree => Class::Degraded,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::NotBooted => "NotBooted",
            Self::Busy => "SysrootBusy",
            Self::PullFailed => "ImagePullFailed",
            Self::Unauthorized => "ImagePullUnauthorized",
            Self::ImageNotFound => "ImageNotFound",
            Self::DigestMismatch => "ImageDigestMismatch",
            Self::NotBootable => "ImageNotBootable",
            Self::NoSpace => "DiskFull",
            Self::MissingTool => "ToolMissing",
            Self::Locked => "DeploymentLocked",
            Self::Libostree => "LibostreeFailed",
            Self::NotInstalled => "OsWorkerNotInstalled",
            Self::Worker => "OsWorkerFailed",
        }
    }

    fn next(self) -> &'static str {
        match self {
            Self::NotBooted => {
                "Run the agent on the host that booted this sysroot (as root, in the host's mount namespace)."
            }
            Self::Busy => {
                "Wait for the other program, or end it (rpm-ostree status; ostree admin status); it is tried again."
            }
            Self::PullFailed => {
                "Check that the node reaches the registry (skopeo inspect docker://IMAGE); it is tried again."
            }
            Self::Unauthorized => {
                "Check the registry credentials in /etc/ostree/auth.json, or the cluster's pull secret; it is tried again."
            }
            Self::ImageNotFound => "Check that the image was pushed, or set another image on the pool.",
            Self::DigestMismatch => {
                "Push the image again, or set another image on the pool; nothing was staged."
            }
            Self::NotBootable => {
                "Build the image from a bootable base (its config needs the labels of an ostree or bootc image)."
            }
            Self::NoSpace => {
                "Free space in /sysroot (df -h /sysroot; ostree admin cleanup); it is tried again."
            }
            Self::MissingTool => "Install the package skopeo in the OS image, or on this machine.",
            Self::Locked => {
                "Unlock it (rm /run/ostree/staged-deployment-locked, or bootc upgrade --from-downloaded) or reset the target."
            }
            Self::NotInstalled => {
                "Install machine-config-agent-ostree of the agent's own build beside it, or in \
                 /usr/libexec/machine-config-agent; it is tried again."
            }
            Self::Libostree => "Look at the host's deployments (ostree admin status; journalctl -b).",
            Self::Worker => {
                "Look at the agent's messages (journalctl -u machine-config-agent); it is tried again."
            }
        }
    }
}
