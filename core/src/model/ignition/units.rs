//! `systemd.units`: contents, drop-ins, enablement and mask of each unit. An empty text is none (MCD-145).

use std::collections::BTreeMap;

use ignition_config::v3_6::{Dropin, Unit};

use super::super::text::short;
use super::super::units::{Enablement, Mask, UnitSpec};
use super::super::{Contents, DropinName, ManagedPath, NotApplied, NotAppliedReason, UnitName};
use super::within::Entries;

/// `.d` follows the name in that of the directory of drop-ins, and names of files have at most 255 bytes.
const LONGEST_WITH_DROPINS: usize = 253;

/// Paths of empty contents, by their fields.
type Unwritten = BTreeMap<ManagedPath, String>;

/// Reads all units, and the paths of those contents that are empty.
pub(super) fn read(entries: &mut Entries<'_>, units: Vec<Unit>) -> (BTreeMap<UnitName, UnitSpec>, Unwritten) {
    let (mut read, mut unwritten) = (BTreeMap::new(), Unwritten::new());
    for unit in units {
        let field = format!("systemd.units {:?}", short(&unit.name, 100));
        let within = entries.within;
        let name = UnitName::new(unit.name).map_err(|error| within.error(field.clone(), error.to_string()));
        let name = entries.faults.take(name);
        if let Some(name) =
            name.as_ref().filter(|_| is_blank(unit.contents.as_ref()) && unit.mask != Some(true))
        {
            unwritten.insert(name.path(), format!("{field} contents"));
        }
        let dropins = unit.dropins.unwrap_or_default();
        let dropins = self::dropins(entries, (&field, name.as_ref()), dropins, &mut unwritten);
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
    (read, unwritten)
}

fn dropins(
    entries: &mut Entries<'_>,
    (field, unit): (&str, Option<&UnitName>),
    dropins: Vec<Dropin>,
    unwritten: &mut Unwritten,
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
        // Templates end in an empty text where they have nothing to set (`10-mco-default-env.conf`): a host that has nothing there is
        // as it should be.
        if dropin.contents.is_none() {
            let message =
                "it has no contents, so no drop-in is written; give it contents, or remove the entry";
            entries.remarks.push(NotApplied::new(field.as_str(), NotAppliedReason::NoEffect, message));
        }
        if let (Some(unit), Some(name), true) = (unit, &name, is_blank(dropin.contents.as_ref())) {
            unwritten.insert(unit.dropin_path(name), format!("{field} contents"));
        }
        let contents = filled(dropin.contents);
        if name.is_some_and(|name| read.insert(name, contents).is_some()) {
            entries.faults.add(within.unreachable(field, "the drop-in is listed twice; keep one entry"));
        }
    }
    read.into_iter().filter_map(|(name, contents)| Some((name, contents?))).collect()
}

fn is_blank(text: Option<&String>) -> bool {
    text.is_some_and(String::is_empty)
}

fn filled(text: Option<String>) -> Option<Contents> {
    text.filter(|text| !text.is_empty()).map(|text| Contents::new(text.into_bytes()))
}
