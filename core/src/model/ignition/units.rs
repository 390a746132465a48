//! `systemd.units`: contents, drop-ins, enablement and mask of each unit. An empty text is none (MCD-145).

use std::collections::BTreeMap;

use ignition_config::v3_6::{Dropin, Unit};

use super::super::text::short;
use super::super::units::{Enablement, Mask, UnitSpec};
use super::super::{Contents, DropinName, NotApplied, NotAppliedReason, UnitName};
use super::within::Entries;

/// `.d` follows the name in that of the directory of drop-ins, and names of files have at most 255 bytes.
const LONGEST_WITH_DROPINS: usize = 253;

/// Reads all units.
pub(super) fn read(entries: &mut Entries<'_>, units: Vec<Unit>) -> BTreeMap<UnitName, UnitSpec> {
    let mut read = BTreeMap::new();
    for unit in units {
        let field = format!("systemd.units {:?}", short(&unit.name, 100));
        let within = entries.within;
        let name = UnitName::new(unit.name).map_err(|error| within.error(field.clone(), error.to_string()));
        let name = entries.faults.take(name);
        let dropins = dropins(entries, (&field, name.as_ref()), unit.dropins.unwrap_or_default());
        let spec = UnitSpec {
            contents: filled(unit.contents),
            dropins,
            enablement: unit.enabled.map_or(Enablement::Preset, |enabled| {
                if enabled { Enablement::Enabled } else { Enablement::Disabled }
            }),
            mask: unit.mask.map_or(Mask::Unset, |mask| if mask { Mask::Masked } else { Mask::Unmasked }),
        };
        if spec.mask == Mask::Masked && spec.enablement == Enablement::Enabled {
            let cause = "it is masked and enabled; a masked unit can't be enabled, drop one of the two";
            entries.faults.add(within.error(field.clone(), cause));
        }
        if name.is_some_and(|name| read.insert(name, spec).is_some()) {
            entries.faults.add(within.unreachable(field, "the unit is listed twice; keep one entry"));
        }
    }
    read
}

fn dropins(
    entries: &mut Entries<'_>,
    (field, unit): (&str, Option<&UnitName>),
    dropins: Vec<Dropin>,
) -> BTreeMap<DropinName, Contents> {
    let within = entries.within;
    let mut read: BTreeMap<DropinName, Option<Contents>> = BTreeMap::new();
    if !dropins.is_empty() && unit.is_some_and(|unit| unit.as_str().len() > LONGEST_WITH_DROPINS) {
        let cause = "the directory of its drop-ins would have a name of more than 255 bytes; give the unit a shorter name";
        entries.faults.add(within.unreachable(format!("{field} dropins"), cause));
    }
    for dropin in dropins {
        let field = format!("{field} dropins {:?}", short(&dropin.name, 100));
        let name =
            DropinName::new(dropin.name).map_err(|error| within.error(field.clone(), error.to_string()));
        let name = entries.faults.take(name);
        // An empty text says so: templates end in one where they have nothing to set (`10-mco-default-env.conf`).
        if dropin.contents.is_none() {
            let message =
                "it has no contents, so no drop-in is written; give it contents, or remove the entry";
            entries.remarks.push(NotApplied::new(field.as_str(), NotAppliedReason::NoEffect, message));
        }
        let contents = filled(dropin.contents);
        if name.is_some_and(|name| read.insert(name, contents).is_some()) {
            entries.faults.add(within.unreachable(field, "the drop-in is listed twice; keep one entry"));
        }
    }
    read.into_iter().filter_map(|(name, contents)| Some((name, contents?))).collect()
}

fn filled(text: Option<String>) -> Option<Contents> {
    text.filter(|text| !text.is_empty()).map(|text| Contents::new(text.into_bytes()))
}
