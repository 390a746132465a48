//! Units of the old and the new config beyond their own links: those that leave, those that the new config turns by name, and the
//! instances of templates.

use std::collections::BTreeSet;

use crate::model::install::{self, Install};
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{HostSpec, UnitName};

/// Units of the old and of the new config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigUnits {
    /// Those that leave; their presets decide about what is left of them.
    pub left: BTreeSet<UnitName>,
    /// Those whose name was a file or a mask of the old config, and is the host's again.
    pub replaced: BTreeSet<UnitName>,
    /// Those that the new config enables.
    pub enabled: BTreeSet<UnitName>,
    /// Those that the new config disables.
    pub disabled: BTreeSet<UnitName>,
    /// Those that go by presets in the new config.
    pub preset: BTreeSet<UnitName>,
    /// Instances that the old config enabled by their template (`DefaultInstance=`), and that have no entry in the new one.
    pub former_instances: BTreeSet<String>,
}

impl ConfigUnits {
    /// Returns those of the way from one config to another.
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
        let turned = |enablement: Enablement| {
            let is = move |unit: &UnitSpec| unit.mask != Mask::Masked && unit.enablement == enablement;
            to.units.iter().filter(move |(_, unit)| is(unit)).map(|(name, _)| name.clone()).collect()
        };
        let former = from.units.iter().filter_map(|(name, unit)| default_instance(name, unit));
        let has_no_entry =
            |name: &String| UnitName::new(&**name).is_ok_and(|name| !to.units.contains_key(&name));
        Self {
            left: left.cloned().collect(),
            replaced: replaced.cloned().collect(),
            enabled: turned(Enablement::Enabled),
            disabled: turned(Enablement::Disabled),
            preset: turned(Enablement::Preset),
            former_instances: former.filter(has_no_entry).collect(),
        }
    }

    /// Returns true if an entry of the new config decides about an instance, and leaves or makes its links.
    pub(super) fn keeps_instance(&self, name: &str) -> bool {
        UnitName::new(name).is_ok_and(|name| self.enabled.contains(&name) || self.preset.contains(&name))
    }
}

/// Returns the instance that an entry of a template enables, as far as the entry itself says.
fn default_instance(name: &UnitName, unit: &UnitSpec) -> Option<String> {
    if unit.enablement != Enablement::Enabled || !install::is_template(name.as_str()) {
        return None;
    }
    let mut section = Install::default();
    for contents in unit.contents.iter().chain(unit.dropins.values()) {
        section.read(&String::from_utf8_lossy(contents.bytes()));
    }
    section.instance_of(name.as_str()).ok().filter(|instance| instance != name.as_str())
}
