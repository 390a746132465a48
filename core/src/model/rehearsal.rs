//! The units and links of a host as the steps of a plan leave them: made in memory, before anything is touched.

use std::collections::{BTreeMap, BTreeSet};

use super::observation::ObservedUnit;
use super::obstacles::Obstacle;
use super::{ManagedPath, UnitName};

/// Outcome of the link steps of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehearsal {
    /// Units of both configs and of the steps, after them.
    pub units: BTreeMap<UnitName, ObservedUnit>,
    /// The first link of those that decide whether a unit is enabled.
    pub decisive: BTreeMap<UnitName, ManagedPath>,
    /// Links to units that their `[Install]` sections do not make; of a template also those of its instances.
    pub stray: BTreeMap<UnitName, Vec<ManagedPath>>,
    /// Steps that can't be taken, by their unit.
    pub obstacles: BTreeMap<UnitName, Obstacle>,
    /// Links that are made, changed or removed, and those that enabled units of the new config have.
    pub links: BTreeSet<ManagedPath>,
    /// Those of them that enabled units of the new config have.
    pub enabled: BTreeSet<ManagedPath>,
    /// Links of the new config that are not as listed afterwards.
    pub lost: BTreeSet<ManagedPath>,
    /// Units whose own file another unit's name hides (`Alias=`), and that one.
    pub hidden: BTreeMap<UnitName, UnitName>,
    /// Names in the directory of units that lead to another unit than before.
    pub renamed: Vec<Renamed>,
}

/// A name of a unit that becomes another unit's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The link.
    pub link: ManagedPath,
    /// The unit that it leads to now, or the target of a mask.
    pub from: String,
    /// The unit that it would lead to.
    pub to: String,
}
