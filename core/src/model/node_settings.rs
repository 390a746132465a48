//! Settings of one node: the file `/etc/machine-config-agent/settings.toml`, validated.
//!
//! The defaults apply to a node without the file.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ManagedPath, UnitName};

/// The settings of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSettings {
    /// Paths whose drift is repaired instead of only reported; a directory stands for all paths below it.
    pub repair: BTreeSet<ManagedPath>,
    /// Policy of soft reboots.
    pub soft_reboot: SoftReboot,
    /// Time limits of the work on the next deployment.
    pub os: OsLimits,
    /// Time that a node has to be healthy in its new deployment before the old one is given up; `None` keeps it:
    /// an administrator may want to go back at any time.
    pub keep_rollback: Option<Duration>,
    /// Highest download rate of a prefetch, in bytes per second.
    pub prefetch_bandwidth: Option<u64>,
    /// Rules of the health trial.
    pub health: HealthRules,
    /// Paths of seeds.
    pub seed: SeedSettings,
    /// Keys of the file that are not known, and have no effect.
    pub unknown: BTreeSet<String>,
}

/// Paths that every seed of this host has, or has not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeedSettings {
    /// Those that are declared portable.
    pub include: Vec<String>,
    /// Those that are left out.
    pub exclude: Vec<String>,
}

impl SeedSettings {
    /// Returns true for a path, or a pattern of paths, below `/etc` or `/var`.
    pub fn is_path(text: &str) -> bool {
        let path = text.trim_matches('/');
        let names = path.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0'));
        text.starts_with('/') && names && (path.starts_with("etc/") || path.starts_with("var/"))
    }
}

/// Rules of the health trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthRules {
    /// The units that have to be active; `None` is the kubelet if it is enabled.
    pub units: Option<BTreeSet<UnitName>>,
    /// Time limit from the start of the trial.
    pub within: Duration,
    /// Action after a failed trial.
    pub roll_back: RollBack,
}

impl Default for HealthRules {
    /// Ten minutes: a kubelet that has to pull its first images on a slow line is up by then.
    fn default() -> Self {
        Self { units: None, within: Duration::from_secs(600), roll_back: RollBack::Automatic }
    }
}

/// Action after a failed health trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RollBack {
    /// The previous deployment boots again.
    #[default]
    Automatic,
    /// The fault is reported only.
    Never,
}

/// Policy of reboots that leave the kernel running (systemd's soft reboot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SoftReboot {
    /// Always the whole machine.
    #[default]
    Never,
    /// If the staged deployment has the same kernel, initramfs and arguments.
    WhereCapable,
}

/// Limits of the work on the next deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OsLimits {
    /// Longest time without progress: unpacking one large layer on a slow disk takes a few minutes.
    pub stall: Duration,
    /// Longest time in total: some GiB over a slow line.
    pub total: Duration,
}

impl Default for OsLimits {
    fn default() -> Self {
        Self { stall: Duration::from_secs(15 * 60), total: Duration::from_secs(2 * 3600) }
    }
}

impl NodeSettings {
    /// Returns true if drift of a path is to be repaired.
    pub fn repairs(&self, path: &ManagedPath) -> bool {
        self.repair.iter().any(|desired| {
            let below = path.as_str().strip_prefix(desired.as_str());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_covers_paths_below_it() {
        let path = |path| ManagedPath::new(path).unwrap();
        let node_settings =
            NodeSettings { repair: BTreeSet::from([path("/etc/chrony")]), ..NodeSettings::default() };
        assert!(node_settings.repairs(&path("/etc/chrony")));
        assert!(node_settings.repairs(&path("/etc/chrony/keys")));
        assert!(!node_settings.repairs(&path("/etc/chrony.conf")));
        assert!(!node_settings.repairs(&path("/etc")));
    }
}
