//! What can be made of a unit's links, and the list of it that systemd is asked for.

use std::collections::BTreeMap;

/// What is made of a unit's links. A batch goes by this order: a mask goes first and comes last, because a link to
/// `/dev/null` has no `[Install]` section to go by; and what is to be disabled wins over the `Also=` of another unit,
/// as in the machine-config-daemon (MCD-149).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkVerb {
    /// Take a mask away.
    Unmask,
    /// Do what the presets say.
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

/// The units that systemd is to be asked about, by verb.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls(pub(super) BTreeMap<LinkVerb, Vec<String>>);
