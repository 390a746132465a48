//! A managed systemd unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Contents, DropinName};

/// Enablement of a unit in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enablement {
    /// Nothing: the host's presets decide (MCD-150).
    Preset,
    /// Enabled.
    Enabled,
    /// Disabled.
    Disabled,
}

/// Mask of a unit in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// Nothing: a mask found on the host stays.
    Unset,
    /// Masked: a link to `/dev/null` (MCD-146).
    Masked,
    /// Not masked: such a link is removed (MCD-147).
    Unmasked,
}

/// A unit as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSpec {
    /// The unit file; `None` for a unit that the OS brings.
    pub contents: Option<Contents>,
    /// The drop-ins with contents; an empty one in the config means absent (MCD-145).
    pub dropins: BTreeMap<DropinName, Contents>,
    /// Enablement.
    pub enablement: Enablement,
    /// Masking.
    pub mask: Mask,
}

impl UnitSpec {
    /// Returns a unit of which a config says nothing.
    pub const fn empty() -> Self {
        Self { contents: None, dropins: BTreeMap::new(), enablement: Enablement::Preset, mask: Mask::Unset }
    }
}
