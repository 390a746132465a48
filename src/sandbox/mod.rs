//! A throwaway libostree host in a directory: the main job without a cluster, a virtual machine or a change to this
//! machine.
//!
//! Real: the sysroot, its repository, deployments, boot entries, the staged deployment, libostree's own finalization
//! with its merge of `/etc`, OCI images, skopeo, and the agent. Played: the kernel and its initramfs are dummy files,
//! nothing runs as PID 1 that manages services, and a "boot" is a new set of namespaces with an empty `/run`, a new
//! boot id and the kernel command line of the boot entry.
//!
//! Invariant: everything runs in mount and PID namespaces, and in a user namespace where the kernel allows one (also
//! for root): the kernel itself keeps the sandbox from changing the machine around it.
//!
//! # The directory
//!
//! ```text
//! DIR/sysroot/            the physical root: ostree/repo, ostree/deploy/sandbox/{deploy,var}, boot/loader/entries
//! DIR/images/             the OCI layout with the images, /run/sandbox/images inside
//! DIR/control/            the control plane as a directory, /run/sandbox/control inside
//! DIR/run/BOOT-ID/        one boot: run/ (its /run, shared by all processes of that boot), deployment, cmdline, boot_id
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the sandbox builds a machine out of files and processes; it is the other side of the wall"
)]

pub mod demo;
mod error;
mod host;
mod images;
mod inside;
pub mod machine;
mod namespaces;
mod process;
mod tree;

pub use error::SandboxError;
pub use host::{Privilege, SandboxHost};
pub use images::{DIRECTORY, LINK, LayerFile};
pub use machine::Booted;

/// The verb of the worker's executable that builds worlds and runs machines.
pub const MACHINE_VERB: &str = "sandbox-machine";

/// The stateroot.
const STATEROOT: &str = "sandbox";

/// Directory of the images inside.
pub const IMAGES: &str = "/run/sandbox/images";

/// The control directory inside.
pub const CONTROL: &str = "/run/sandbox/control";

/// The agent's executable inside.
pub const AGENT: &str = "/run/host/bin/machine-config-agent";

/// The worker's executable inside: beside the agent's, which looks for it there.
const WORKER: &str = "/run/host/bin/machine-config-agent-ostree";

/// Returns the directory to build in, and whether it is a temporary one that was made for it.
pub fn scratch(desired: Option<&std::path::Path>) -> Result<(std::path::PathBuf, bool), SandboxError> {
    if let Some(dir) = desired {
        return Ok((dir.to_owned(), false));
    }
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_err(|e| SandboxError::io("read", "/proc/sys/kernel/random/uuid", e))?;
    let dir = std::env::temp_dir().join(format!("machine-config-agent-sandbox-{}", uuid.trim()));
    std::fs::create_dir(&dir).map_err(|e| SandboxError::io("make", &dir, e))?;
    Ok((dir, true))
}

/// Removes a sandbox's directory.
pub fn discard(dir: &std::path::Path) -> Result<(), SandboxError> {
    std::fs::remove_dir_all(dir).map_err(|e| SandboxError::io("remove", dir, e))
}
