//! The end of a boot, and which boot this is.
//!
//! A reboot goes through systemd: `ostree-finalize-staged.service` writes the boot entries while the machine shuts
//! down, and a reboot past it would boot the old deployment. Block inhibitors are read before it is requested:
//! logind lets root through until version 257, and refuses it since.

mod logind;
#[cfg(test)]
mod tests;

use std::fmt;

use super::error::FIND_HOST;
use super::root::Root;
use super::{BoxFuture, HostError};
use crate::model::BootId;
use crate::model::ids::STATE_DIR;

pub use logind::{Inhibitor, Logind, ShutdownMonitor};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Extent of a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootKind {
    /// All of it.
    Whole,
    /// User space only: the kernel and its boot id stay (systemd 254 or later).
    Soft,
}

/// Meaning of a requested reboot for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebooting {
    /// The machine goes down: wait for the end.
    Requested,
    /// A supervisor plays the reboot: end the process.
    Exit,
}

/// Operations of boots and reboots.
pub trait Power: fmt::Debug {
    /// Returns the id of this boot.
    fn boot_id(&self) -> Result<BootId, HostError>;

    /// Listens to shutdowns and to their inhibitors; `None` where a supervisor plays the reboot.
    fn listen(&self) -> BoxFuture<'_, Result<Option<ShutdownMonitor>, HostError>>;

    /// Requests a reboot. `why` is for readers of the journal.
    fn reboot<'a>(&'a self, kind: RebootKind, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>>;
}

/// A host in a directory: the parent process starts the agent again, as after a reboot.
#[derive(Debug)]
pub struct Supervised {
    root: Root,
}

impl Supervised {
    /// Takes the root, which holds the boot's id.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone() }
    }
}

impl Power for Supervised {
    fn boot_id(&self) -> Result<BootId, HostError> {
        read_boot_id(&self.root)
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<ShutdownMonitor>, HostError>> {
        Box::pin(async { Ok(None) })
    }

    fn reboot<'a>(&'a self, _kind: RebootKind, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>> {
        Box::pin(async move {
            tracing::info!(why, "Exiting for the supervisor to reboot the host: {why}");
            Ok(Rebooting::Exit)
        })
    }
}

fn read_boot_id(root: &Root) -> Result<BootId, HostError> {
    let malformed =
        |cause: String| HostError::Malformed { path: BOOT_ID.to_owned(), format: "a boot id", cause };
    let Some(text) = root.read_text(BOOT_ID)? else { return Err(no_host(root)) };
    BootId::new(text.trim()).map_err(|error| malformed(error.to_string()))
}

/// Checks that the root is a host's that runs: before anything is written there.
pub(crate) fn check_host(root: &Root) -> Result<(), HostError> {
    if root.exists(BOOT_ID)? { Ok(()) } else { Err(no_host(root)) }
}

/// Checks that the root is a host's, which may be down: then it still has the agent's state.
pub(crate) fn check_disk(root: &Root) -> Result<(), HostError> {
    if root.exists(STATE_DIR)? { Ok(()) } else { check_host(root) }
}

fn no_host(root: &Root) -> HostError {
    let lacks = std::io::Error::new(std::io::ErrorKind::NotFound, format!("it has no {BOOT_ID}"));
    HostError::io(FIND_HOST, root.base().display().to_string(), lacks)
}
