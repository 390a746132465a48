//! Errors of the OS backends, in common words.

mod next;
mod pull;

use serde::{Deserialize, Serialize};

#[cfg(feature = "backend-ostree")]
pub(in crate::host::os) use pull::of_skopeo;

use crate::host::HostError;
use crate::model::FaultClass;
use crate::model::text::shown;

/// The object of errors that are about no image.
pub(super) const SYSROOT: &str = "the libostree sysroot";

/// The longest cause of a failure.
const MAX_CAUSE_CHARS: usize = 2000;

/// Failure of a backend's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::host) struct OsError {
    /// The object: an image, a deployment, the sysroot.
    pub(in crate::host) object: String,
    /// Message of the failure.
    pub(in crate::host) cause: String,
    /// Its kind.
    pub(in crate::host) trouble: OsErrorKind,
}

impl OsError {
    pub(in crate::host) fn new(
        trouble: OsErrorKind,
        object: impl Into<String>,
        cause: impl Into<String>,
    ) -> Self {
        // The tooling's own words may be of any length, and hold names of others; a report cuts them here, too.
        let cause = shown(&cause.into(), MAX_CAUSE_CHARS);
        Self { object: object.into(), cause, trouble }
    }

    /// Creates the error of a missing deployment that should boot next.
    pub(in crate::host) fn gone(deployment: &str) -> Self {
        Self::new(OsErrorKind::DeploymentGone, deployment, "it is not on this host any more")
    }

    /// Finds the kind of a failure by the words of skopeo, ostree-ext and libostree: none of them gives a code.
    pub(in crate::host) fn from_text(object: &str, text: &str, other: OsErrorKind) -> Self {
        const KNOWN: [(&str, OsErrorKind); 37] = [
            ("no space left", OsErrorKind::NoSpace),
            ("min-free-space", OsErrorKind::NoSpace),
            ("disk quota exceeded", OsErrorKind::NoSpace),
            ("skopeo spawn error", OsErrorKind::MissingTool),
            // Of any backend: they have one next step.
            ("is rejected by policy", OsErrorKind::PullFailed),
            ("source image rejected", OsErrorKind::PullFailed),
            ("x509: ", OsErrorKind::PullFailed),
            ("server gave http response", OsErrorKind::PullFailed),
            ("getting username and password", OsErrorKind::Unauthorized),
            ("unauthorized", OsErrorKind::Unauthorized),
            ("authentication required", OsErrorKind::Unauthorized),
            ("403 (forbidden)", OsErrorKind::Unauthorized),
            ("packages not found", OsErrorKind::NoPackage),
            ("no enabled repositories", OsErrorKind::NoRepositories),
            ("pinging container registry", OsErrorKind::PullFailed),
            ("connection refused", OsErrorKind::PullFailed),
            ("no such host", OsErrorKind::PullFailed),
            ("i/o timeout", OsErrorKind::PullFailed),
            ("system transaction in progress", OsErrorKind::Busy),
            ("transaction in progress", OsErrorKind::Busy),
            ("statuscode: 401", OsErrorKind::Unauthorized),
            ("statuscode: 403", OsErrorKind::Unauthorized),
            ("manifest unknown", OsErrorKind::ImageNotFound),
            ("name unknown", OsErrorKind::ImageNotFound),
            ("statuscode: 404", OsErrorKind::ImageNotFound),
            ("image has architecture", OsErrorKind::WrongArchitecture),
            ("image found in manifest list for architecture", OsErrorKind::WrongArchitecture),
            ("image found in image index for architecture", OsErrorKind::WrongArchitecture),
            ("digest did not match", OsErrorKind::DigestMismatch),
            ("does not match provided manifest digest", OsErrorKind::DigestMismatch),
            ("does not match expected sha256:", OsErrorKind::Corrupted),
            ("corrupted blob", OsErrorKind::Corrupted),
            ("not an ostree encapsulated container", OsErrorKind::NoCommit),
            ("does not have ostree.bootable", OsErrorKind::NotBootable),
            ("multiple kernels found in", OsErrorKind::Kernels),
            ("no kernel found in", OsErrorKind::Kernels),
            ("failed to find kernel in", OsErrorKind::Kernels),
        ];
        let low = text.to_lowercase();
        let trouble =
            KNOWN.iter().find(|(part, _)| low.contains(part)).map_or(other, |(_, trouble)| *trouble);
        if trouble == OsErrorKind::ImageNotFound {
            return Self::new(trouble, object, format!("the registry has no such image: {text}"));
        }
        Self::new(trouble, object, text)
    }

    /// Converts it to an error of the host.
    pub(in crate::host) fn into_error(self) -> HostError {
        let Self { object, cause, trouble } = self;
        let of_pull = (trouble == OsErrorKind::PullFailed).then(|| pull::next(&cause));
        let next = next::about(of_pull.as_deref().unwrap_or(trouble.next()), &object);
        HostError::Os { object, cause, class: trouble.class(), reason: trouble.reason(), next }
    }
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::host) enum OsErrorKind {
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
    /// Another image than the requested one.
    DigestMismatch,
    /// Another deployment than the desired one is staged, although the tooling reported success.
    WrongStaged,
    /// A part of the image does not match its digest: a cache or a line that breaks it.
    Corrupted,
    /// The image is not one that boots.
    NotBootable,
    /// The image has no kernel, or several.
    Kernels,
    /// The image has the marks of one that boots, but no ostree commit in it.
    NoCommit,
    /// The image is for other machines.
    WrongArchitecture,
    /// The disk is full.
    NoSpace,
    /// The image would not fit into the repository.
    SysrootFull,
    /// The kernel of the image would not fit into `/boot`.
    BootFull,
    /// A program is not installed.
    MissingTool,
    /// The deployment is locked: the reboot would drop it.
    Locked,
    /// A deployment that is to boot next is not there.
    DeploymentGone,
    /// The backend can't change packages.
    CannotLayer,
    /// The backend can't download an image without staging it.
    CannotPrefetch,
    /// Packages were changed on this host, and the backend would drop that.
    LocalPackages,
    /// bootc keeps the OS where libostree does not see it.
    Composefs,
    /// bootc failed.
    Bootc,
    /// The kernel or an extension is none that packages stand for.
    WrongLayers,
    /// Packages that were requested are not in the staged deployment, or nowhere to be had.
    NoPackage,
    /// Packages are requested of the deployment, and the host has no repository of packages.
    NoRepositories,
    /// A seed lacks a file, or one of its files can't be read.
    SeedDamaged,
    /// A part of this host can't be in a seed.
    SeedUnfit,
    /// An image can't be pushed.
    PushFailed,
    /// The stateroot runs, boots next, or is there already.
    StaterootInUse,
    /// There is no such stateroot.
    NoStateroot,
    /// Something on the host, or in the new system, keeps a stateroot from being made or activated.
    StaterootBlocked,
    /// libostree failed.
    Libostree,
    /// rpm-ostree failed.
    RpmOstree,
    /// The daemon of rpm-ostree ended in the middle.
    DaemonLost,
    /// The unit of the daemon of rpm-ostree is masked.
    DaemonMasked,
    /// The worker's file is not there, or is another version's.
    NotInstalled,
    /// The worker ended without an answer.
    Worker,
}

impl OsErrorKind {
    fn class(self) -> FaultClass {
        match self {
            Self::Busy
            | Self::PushFailed
            | Self::PullFailed
            | Self::Unauthorized
            | Self::Corrupted
            | Self::NoSpace
            | Self::SysrootFull
            | Self::BootFull
            | Self::MissingTool
            | Self::NotInstalled
            | Self::Locked
            | Self::Bootc
            | Self::RpmOstree
            | Self::DaemonLost
            // An administrator's hand ends both, and tells the agent nothing.
            | Self::DaemonMasked
            | Self::NoRepositories
            // Another program may have staged in between.
            | Self::WrongStaged
            | Self::Worker => FaultClass::Retry,
            Self::NotBooted
            | Self::ImageNotFound
            | Self::DigestMismatch
            | Self::NotBootable
            | Self::Kernels
            | Self::NoCommit
            | Self::WrongArchitecture
            | Self::DeploymentGone
            | Self::CannotLayer
            | Self::CannotPrefetch
            | Self::LocalPackages
            | Self::Composefs
            | Self::WrongLayers
            | Self::NoPackage
            | Self::SeedUnfit
            | Self::StaterootInUse
            | Self::NoStateroot
            | Self::StaterootBlocked
            | Self::Libostree => FaultClass::Degraded,
            Self::SeedDamaged => FaultClass::Unreconcilable,
        }
    }

    pub(in crate::host) fn reason(self) -> &'static str {
        match self {
            Self::NotBooted => "NotBooted",
            Self::Busy => "SysrootBusy",
            Self::PullFailed => "ImagePullFailed",
            Self::Unauthorized => "ImagePullUnauthorized",
            Self::ImageNotFound => "ImageNotFound",
            Self::DigestMismatch => "ImageDigestMismatch",
            Self::WrongStaged => "WrongImageStaged",
            Self::Corrupted => "ImageCorrupted",
            Self::NotBootable | Self::Kernels | Self::NoCommit => "ImageNotBootable",
            Self::WrongArchitecture => "ImageWrongArchitecture",
            Self::NoSpace => "DiskFull",
            Self::SysrootFull => "SysrootFull",
            Self::BootFull => "BootFull",
            Self::MissingTool => "ToolMissing",
            Self::Locked => "DeploymentLocked",
            Self::DeploymentGone => "DeploymentGone",
            Self::CannotLayer | Self::CannotPrefetch => "UnsupportedByBackend",
            Self::LocalPackages => "LocalPackages",
            Self::Composefs => "ComposefsHost",
            Self::Bootc => "BootcFailed",
            Self::WrongLayers => "InvalidConfig",
            Self::NoPackage => "PackageNotStaged",
            Self::NoRepositories => "NoRepositories",
            Self::SeedDamaged => "SeedDamaged",
            Self::SeedUnfit => "SeedNotMade",
            Self::PushFailed => "ImagePushFailed",
            Self::StaterootInUse => "StaterootInUse",
            Self::NoStateroot => "NoStateroot",
            Self::StaterootBlocked => "StaterootBlocked",
            Self::Libostree => "LibostreeFailed",
            Self::RpmOstree => "RpmOstreeFailed",
            Self::DaemonLost => "RpmOstreeDaemonLost",
            Self::DaemonMasked => "RpmOstreeMasked",
            Self::NotInstalled => "OsWorkerNotInstalled",
            Self::Worker => "OsWorkerFailed",
        }
    }

    fn next(self) -> &'static str {
        match self {
            Self::NotBooted => next::NOT_BOOTED,
            Self::Busy => next::BUSY,
            Self::PullFailed => next::PULL_FAILED,
            Self::Unauthorized => next::UNAUTHORIZED,
            Self::ImageNotFound => next::IMAGE_NOT_FOUND,
            Self::DigestMismatch => next::DIGEST_MISMATCH,
            Self::WrongStaged => next::WRONG_STAGED,
            Self::Corrupted => next::CORRUPTED,
            Self::NotBootable => next::NOT_BOOTABLE,
            Self::Kernels => next::KERNELS,
            Self::NoCommit => next::NO_COMMIT,
            Self::WrongArchitecture => next::WRONG_ARCHITECTURE,
            Self::BootFull => next::BOOT_FULL,
            Self::CannotLayer => next::CANNOT_LAYER,
            Self::CannotPrefetch => next::CANNOT_PREFETCH,
            Self::LocalPackages => next::LOCAL_PACKAGES,
            Self::Composefs => next::COMPOSEFS,
            Self::Bootc => next::BOOTC,
            Self::WrongLayers => next::WRONG_LAYERS,
            Self::NoPackage => next::NO_PACKAGE,
            Self::NoRepositories => next::NO_REPOSITORIES,
            Self::RpmOstree => next::RPM_OSTREE,
            Self::DaemonLost => next::DAEMON_LOST,
            Self::DaemonMasked => next::DAEMON_MASKED,
            Self::NoSpace | Self::SysrootFull => next::NO_SPACE,
            Self::MissingTool => next::MISSING_TOOL,
            Self::Locked => next::LOCKED,
            Self::DeploymentGone => next::DEPLOYMENT_GONE,
            Self::NotInstalled => next::NOT_INSTALLED,
            Self::SeedDamaged => next::SEED_DAMAGED,
            Self::SeedUnfit => next::SEED_UNFIT,
            Self::PushFailed => next::PUSH_FAILED,
            Self::StaterootInUse => next::STATEROOT_IN_USE,
            Self::NoStateroot => next::NO_STATEROOT,
            Self::StaterootBlocked => next::STATEROOT_BLOCKED,
            Self::Libostree => next::LIBOSTREE,
            Self::Worker => next::WORKER,
        }
    }
}
