//! Changes of a unit's links, and the requests to systemd for them.

use std::collections::BTreeMap;

/// A change of a unit's links. A batch goes by this order: a mask goes first and comes last, because a link to
/// `/dev/null` has no `[Install]` section to go by; and disabling a unit wins over the `Also=` of another unit,
/// as in the machine-config-daemon (MCD-149).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkVerb {
    /// Take a mask away.
    Unmask,
    /// Follow the presets.
    Preset,
    /// Make the `[Install]` links.
    Enable,
    /// Remove all links.
    Disable,
    /// Hide the unit.
    Mask,
}

impl LinkVerb {
    /// Returns the verb as `systemctl` has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unmask => "unmask",
            Self::Preset => "preset",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Mask => "mask",
        }
    }
}

/// The units of the calls to systemd, by verb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls(pub(super) BTreeMap<LinkVerb, Vec<String>>);
