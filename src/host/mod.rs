//! THE WALL: the only module that touches the machine.
//!
//! Imports `model` only. Everything is below [`Host`]'s root; no other module opens a file, starts a program, reads
//! the clock or calls the bus.

#![expect(clippy::disallowed_methods, reason = "this is where the machine is touched")]

pub mod account_ids;
pub mod account_kept;
pub mod account_lines;
pub mod account_obstacles;
pub mod account_programs;
pub mod account_records;
pub mod accounts;
pub mod boot_counter;
pub mod boot_loader;
pub mod chroot;
pub mod clock;
pub mod command;
#[cfg(feature = "backend-ostree")]
pub(crate) mod confine;
pub mod console;
pub mod containers;
pub mod credentials;
pub mod cri;
pub mod durable;
pub mod embedded;
pub mod error;
pub mod etc_dropped;
pub mod etc_merge;
pub mod failpoint;
pub mod finalization;
pub mod given;
mod group_kept;
pub mod health;
pub mod image_accounts;
pub mod image_groups;
pub mod keys;
pub mod keys_kept;
pub mod limits;
pub mod meter;
pub mod next_root;
pub mod nics;
pub mod os;
pub mod parents;
pub mod power;
pub mod program;
pub mod proxy;
pub mod redact;
pub mod registry;
pub mod restore;
pub mod root;
pub mod saved;
pub mod systemd;
pub mod watch;

mod account_layout;
pub(crate) mod fsync;
mod future;
mod lock_holder;
pub(crate) mod mounts;
pub mod selinux;
mod stop;

use std::fmt;
use std::time::Duration;

pub use chroot::ContainerHandles;
pub use clock::Clock;
pub use credentials::{AuthFile, Credentials};
pub use error::HostError;
pub use failpoint::FailPoints;
pub use future::BoxFuture;
pub use os::{OsBackend, OsProgress, StageRequest};
pub use power::{Power, Rebooting};
pub use proxy::Proxies;
pub use root::{DirectoriesAhead, DirectoryAhead, Hands, Root};
pub use stop::stop_signal;
pub use systemd::Systemd;

use crate::model::node_settings::{OsLimits, SoftReboot};
use crate::model::soft_reboot::Requirement;
use crate::model::{BootId, ModelError, ObservedFile, ProxySettings};

use os::{NotImageBased, SoftRebootState};
use power::Supervised;
use systemd::SOFT_REBOOT_TARGET;

/// The file that masks soft reboots.
const SOFT_REBOOT_MASK: &str = "/etc/systemd/system/soft-reboot.target";

/// Returns the name that the kernel gives this machine.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns true if standard error is the stream that is named by device and inode (`DEVICE:INODE`).
pub fn is_stderr(stream: &str) -> bool {
    let stat = rustix::fs::fstat(std::io::stderr());
    stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The machine, as a struct of narrow handles. Only the OS and the power have several implementors.
pub struct Host {
    /// The rooted file system.
    pub root: Root,
    /// The wall clock.
    pub clock: Clock,
    /// The OS behind the configuration.
    pub os: Box<dyn OsBackend>,
    /// Reason for the selection of this backend.
    pub backend_reason: String,
    /// Time limits of the backend's work.
    pub limits: OsLimits,
    /// Set if pulls sync each object by itself.
    pub per_object_fsync: bool,
    /// Policy of reboots that leave the kernel running.
    pub soft_reboot: SoftReboot,
    /// Time that an earlier process has spent on the current work.
    pub spent: Duration,
    /// Boots.
    pub power: Box<dyn Power>,
    /// The running systemd.
    pub systemd: Systemd,
    /// Through which proxies others are reached.
    pub proxies: Proxies,
    /// Fail points of tests.
    pub fail_points: FailPoints,
}

impl Host {
    /// Puts together the host in a directory: no image, no systemd, and the parent process plays the reboot.
    pub fn in_directory(root: Root, fail_points: FailPoints) -> Self {
        Self {
            clock: Clock::system(),
            os: Box::new(NotImageBased),
            backend_reason: String::new(),
            limits: OsLimits::default(),
            per_object_fsync: false,
            soft_reboot: SoftReboot::default(),
            spent: Duration::ZERO,
            power: Box::new(Supervised::new(&root)),
            systemd: Systemd::absent(),
            fail_points,
            proxies: Proxies::new(root.clone(), ProxySettings::default()),
            root,
        }
    }

    /// Returns the id of this boot; a soft reboot is another one.
    pub async fn boot_id(&self) -> Result<BootId, HostError> {
        let kernel = self.power.boot_id()?;
        let malformed = |error: ModelError| HostError::Malformed {
            path: kernel.to_string(),
            format: "a boot id",
            cause: error.to_string(),
        };
        BootId::after_soft_reboots(kernel.clone(), self.systemd.soft_reboots().await).map_err(malformed)
    }

    /// Finds out whether a soft reboot leads into a deployment; `None` is one that is yet to be staged.
    pub async fn soft_reboot_into(&self, deployment: Option<&str>) -> Result<SoftRebootState, HostError> {
        let mut found = self.os.soft_reboot(deployment).await?;
        let mask = self.root.observe(SOFT_REBOOT_MASK)?;
        let is_masked = matches!(mask, ObservedFile::Symlink { target, .. } if target == "/dev/null");
        let has_target = self.root.exists(SOFT_REBOOT_TARGET)? && !is_masked;
        found.facts = found.facts.with(Requirement::Systemd, has_target);
        Ok(found)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({}, {})", self.root.base().display(), self.os.name())
    }
}
