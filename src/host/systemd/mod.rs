//! systemd: its links, which are files and work below any root; and the running one, which is called over D-Bus.

mod active;
mod at_shutdown;
pub(in crate::host) mod bus;
mod call;
mod coming;
mod config_units;
mod file_links;
mod link_verbs;
mod links;
mod preset;
mod service;
mod signals;
#[cfg(test)]
pub(crate) mod tests;
pub(in crate::host) mod transient;
mod unit_files;

use std::time::Duration;

use super::HostError;
use crate::model::UnitName;

pub use at_shutdown::ShutdownHook;
pub use bus::{CA_TRUST_UNIT, SOFT_REBOOT_TARGET, ServiceOutcome, Systemd};
pub use coming::Coming;
pub use config_units::ConfigUnits;
pub use file_links::UnitFileLinks;
pub use link_verbs::{Calls, LinkVerb};
pub use links::{DEV_NULL, UnitLinks};
pub use service::ServiceState;
pub use unit_files::Settled;

/// systemd's own limit for starting and stopping a unit is 90 s each; a restart does both, with some units after others.
const JOB_TIMEOUT: Duration = Duration::from_secs(300);
/// Reading all unit files again runs every generator: seconds, minutes on a host with many mounts.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Building the trust store takes seconds.
const CA_TRUST_TIMEOUT: Duration = Duration::from_secs(120);
/// Reading all unit files and writing a few links: seconds on a slow disk.
const LINKS_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a service that counts as started shows that it can't run: its program is executed at once, and
/// one that is missing, or that does not understand its options, ends within a few milliseconds.
const SETTLING: Duration = Duration::from_millis(100);

/// Names one of the agent's own units, or one that it knows of.
pub(in crate::host) fn known(name: &str) -> Result<UnitName, HostError> {
    let wrong = |_| HostError::Unit { unit: name.to_owned(), cause: "it is not a unit name".to_owned() };
    UnitName::new(name).map_err(wrong)
}
