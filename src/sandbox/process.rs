//! The worker's executable as a process of the sandbox.

use std::path::Path;
use std::process::{Command, Output};

use super::MACHINE_VERB;

/// Prepares the worker's executable as a sandbox process.
pub(super) fn process(worker: &Path) -> Command {
    let mut command = Command::new(worker);
    // Deployments without the immutable flag can be removed with the directory.
    command.arg(MACHINE_VERB).env("OSTREE_SYSROOT_DEBUG", "mutable-deployments");
    command
}

/// Returns the end of a child's error output.
pub(super) fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    if text.is_empty() { output.status.to_string() } else { text.to_owned() }
}
