//! systemd: its links, which are files and work below any root; and the running one, which is asked over D-Bus.

pub(in crate::host) mod bus;
mod install;
mod links;
mod preset;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use bus::{ServiceOutcome, Systemd};
pub use links::UnitLinks;

/// systemd's own limit for starting and stopping a unit is 90 s each; a restart does both, with some units after others.
const JOB_LIMIT: Duration = Duration::from_secs(300);
/// Reading all unit files again runs every generator: seconds, minutes on a host with many mounts.
const RELOAD_LIMIT: Duration = Duration::from_secs(120);
/// Building the trust store takes seconds.
const CA_TRUST_LIMIT: Duration = Duration::from_secs(120);
