//! Means of the stages, beside the host that the loop owns.

use super::super::SettingsLoader;
use crate::host::clock::Clock;
use crate::host::os::stateroots::Stateroots;
use crate::host::{FailPoints, Power, Proxies, Root, Systemd};

/// The host of the stages.
#[derive(Debug)]
pub struct LifecycleHost {
    /// The host's files.
    pub root: Root,
    /// The stateroots.
    pub stateroots: Stateroots,
    /// The running systemd.
    pub systemd: Systemd,
    /// The way to registries.
    pub proxies: Proxies,
    /// The wall clock.
    pub clock: Clock,
    /// The reboot.
    pub power: Box<dyn Power>,
    /// This node's settings.
    pub settings: SettingsLoader,
    /// Fail points of tests.
    pub fail_points: FailPoints,
}
