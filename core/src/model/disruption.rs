//! Cost of a change, in the terms of the node disruption policy.

use serde::{Deserialize, Serialize};

use super::UnitName;

/// Action that follows a change (docs/contract.md, "Disruption policy").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing.
    None,
    /// The node is drained; nothing else.
    Drain,
    /// systemd reads its unit files again.
    DaemonReload,
    /// A unit is reloaded.
    Reload(UnitName),
    /// A unit is restarted.
    Restart(UnitName),
    /// `crio.service` is reloaded, with a drain when the change of `registries.conf` is unsafe.
    Special,
    /// The node reboots.
    Reboot,
}
