//! The part of a spec that the host already has: the complement of [`super::differences()`] finds.

use std::collections::BTreeSet;

use super::differences::{Difference, differences};
use crate::model::{HostSpec, ManagedPath, Observation, UnitName};

/// The part of the host that is in sync with the spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InSync {
    /// Files, unit files, drop-ins, directories and links.
    pub paths: BTreeSet<ManagedPath>,
    /// Units, with their enablement and mask.
    pub units: BTreeSet<UnitName>,
}

/// Returns the part of the spec that the host is in sync with.
pub fn in_sync(spec: &HostSpec, observed: &Observation) -> InSync {
    let wrong: BTreeSet<ManagedPath> =
        differences(spec, observed).iter().filter_map(Difference::path).collect();
    let units = spec.units.keys().filter(|unit| !wrong.contains(&unit.path()));
    InSync {
        paths: spec.entries().into_keys().filter(|path| !wrong.contains(path)).collect(),
        units: units.cloned().collect(),
    }
}
