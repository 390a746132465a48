//! What of a spec a host has already: the rest of what [`super::differences()`] finds.

use std::collections::BTreeSet;

use super::differences::{Difference, differences};
use crate::model::{HostSpec, ManagedPath, Observation, UnitName};

/// What is as the spec says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Files, unit files and drop-ins.
    pub paths: BTreeSet<ManagedPath>,
    /// Units, with their enablement and mask.
    pub units: BTreeSet<UnitName>,
}

/// Returns what is as the spec says.
pub fn held(spec: &HostSpec, seen: &Observation) -> Held {
    let wrong: BTreeSet<ManagedPath> = differences(spec, seen).iter().filter_map(Difference::path).collect();
    let units = spec.units.keys().filter(|unit| !wrong.contains(&unit.path()));
    Held {
        paths: spec.written().into_keys().filter(|path| !wrong.contains(path)).collect(),
        units: units.cloned().collect(),
    }
}
