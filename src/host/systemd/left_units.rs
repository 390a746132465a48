//! Units that leave with a config: their presets decide about what is left of them.

use std::collections::BTreeSet;

use crate::model::units::{Enablement, Mask};
use crate::model::{HostSpec, UnitName};

/// Units that leave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftUnits {
    /// All of them.
    pub all: BTreeSet<UnitName>,
    /// Those whose name was a file or a mask of the config, and is the host's again.
    pub replaced: BTreeSet<UnitName>,
}

impl LeftUnits {
    /// Returns the units that leave on the way from one config to another.
    pub fn new(from: &HostSpec, to: &HostSpec) -> Self {
        let is_own = |spec: &HostSpec, name: &UnitName| {
            let unit = spec.units.get(name);
            unit.is_some_and(|unit| unit.contents.is_some() || unit.mask == Mask::Masked)
                || !spec.unit_sources(name).is_empty()
        };
        let left = from.units.keys().filter(|name| !to.units.contains_key(*name));
        let asks = |name: &UnitName| {
            to.units.get(name).is_none_or(|unit| unit.enablement == Enablement::Preset) && !is_own(to, name)
        };
        let replaced = from.units.keys().filter(|name| is_own(from, name) && asks(name));
        Self { all: left.cloned().collect(), replaced: replaced.cloned().collect() }
    }
}
