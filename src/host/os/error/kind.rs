//! Kinds of failure of the OS backends: one row for each, with its class, its reason and the next step.

use serde::{Deserialize, Serialize};

use super::next;
use crate::model::FaultClass::{self, Degraded, Retry, Unreconcilable};

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
    /// Returns class, reason and next step.
    const fn row(self) -> (FaultClass, &'static str, &'static str) {
        match self {
            Self::NotBooted => (Degraded, "NotBooted", next::NOT_BOOTED),
            Self::Busy => (Retry, "SysrootBusy", next::BUSY),
            Self::PullFailed => (Retry, "ImagePullFailed", next::PULL_FAILED),
            Self::Unauthorized => (Retry, "ImagePullUnauthorized", next::UNAUTHORIZED),
            Self::ImageNotFound => (Degraded, "ImageNotFound", next::IMAGE_NOT_FOUND),
            Self::DigestMismatch => (Degraded, "ImageDigestMismatch", next::DIGEST_MISMATCH),
            // Another program may have staged in between.
            Self::WrongStaged => (Retry, "WrongImageStaged", next::WRONG_STAGED),
            Self::Corrupted => (Retry, "ImageCorrupted", next::CORRUPTED),
            Self::NotBootable => (Degraded, "ImageNotBootable", next::NOT_BOOTABLE),
            Self::Kernels => (Degraded, "ImageNotBootable", next::KERNELS),
            Self::NoCommit => (Degraded, "ImageNotBootable", next::NO_COMMIT),
            Self::WrongArchitecture => (Degraded, "ImageWrongArchitecture", next::WRONG_ARCHITECTURE),
            Self::NoSpace => (Retry, "DiskFull", next::NO_SPACE),
            Self::SysrootFull => (Retry, "SysrootFull", next::NO_SPACE),
            Self::BootFull => (Retry, "BootFull", next::BOOT_FULL),
            Self::MissingTool => (Retry, "ToolMissing", next::MISSING_TOOL),
            Self::Locked => (Retry, "DeploymentLocked", next::LOCKED),
            Self::DeploymentGone => (Degraded, "DeploymentGone", next::DEPLOYMENT_GONE),
            Self::CannotLayer => (Degraded, "UnsupportedByBackend", next::CANNOT_LAYER),
            Self::CannotPrefetch => (Degraded, "UnsupportedByBackend", next::CANNOT_PREFETCH),
            Self::LocalPackages => (Degraded, "LocalPackages", next::LOCAL_PACKAGES),
            Self::Composefs => (Degraded, "ComposefsHost", next::COMPOSEFS),
            Self::Bootc => (Retry, "BootcFailed", next::BOOTC),
            Self::WrongLayers => (Degraded, "InvalidConfig", next::WRONG_LAYERS),
            Self::NoPackage => (Degraded, "PackageNotStaged", next::NO_PACKAGE),
            Self::NoRepositories => (Retry, "NoRepositories", next::NO_REPOSITORIES),
            Self::SeedDamaged => (Unreconcilable, "SeedDamaged", next::SEED_DAMAGED),
            Self::SeedUnfit => (Degraded, "SeedNotMade", next::SEED_UNFIT),
            Self::PushFailed => (Retry, "ImagePushFailed", next::PUSH_FAILED),
            Self::StaterootInUse => (Degraded, "StaterootInUse", next::STATEROOT_IN_USE),
            Self::NoStateroot => (Degraded, "NoStateroot", next::NO_STATEROOT),
            Self::StaterootBlocked => (Degraded, "StaterootBlocked", next::STATEROOT_BLOCKED),
            Self::Libostree => (Degraded, "LibostreeFailed", next::LIBOSTREE),
            Self::RpmOstree => (Retry, "RpmOstreeFailed", next::RPM_OSTREE),
            Self::DaemonLost => (Retry, "RpmOstreeDaemonLost", next::DAEMON_LOST),
            // An administrator's hand ends it, and tells the agent nothing.
            Self::DaemonMasked => (Retry, "RpmOstreeMasked", next::DAEMON_MASKED),
            Self::NotInstalled => (Retry, "OsWorkerNotInstalled", next::NOT_INSTALLED),
            Self::Worker => (Retry, "OsWorkerFailed", next::WORKER),
        }
    }

    pub(super) const fn class(self) -> FaultClass {
        self.row().0
    }

    pub(in crate::host) const fn reason(self) -> &'static str {
        self.row().1
    }

    pub(super) const fn next(self) -> &'static str {
        self.row().2
    }
}
