//! `systemd.units`: contents, drop-ins, enablement and mask of each unit. An empty text is none (MCD-145).

use std::collections::BTreeMap;

use ignition_config::v3_6::{Dropin, Unit};

use super::super::error::ModelError;
use super::super::text::short;
use super::super::units::{Enablement, Mask, UnitSpec};
use super::super::{Contents, DropinName, UnitName};
use super::within::Within;

/// Reads all units.
pub(super) fn read(within: Within<'_>, units: Vec<Unit>) -> Result<BTreeMap<UnitName, UnitSpec>, ModelError> {
    let mut read = BTreeMap::new();
    for unit in units {
        let field = format!("systemd.units {:?}", short(&unit.name, 100));
        let fail = |cause: String| within.error(field.clone(), cause);
        let name = UnitName::new(unit.name).map_err(|error| fail(error.to_string()))?;
        let spec = UnitSpec {
            contents: filled(unit.contents),
            dropins: dropins(within, &field, unit.dropins.unwrap_or_default())?,
            enablement: unit.enabled.map_or(Enablement::Preset, |enabled| {
                if enabled { Enablement::Enabled } else { Enablement::Disabled }
            }),
            mask: unit.mask.map_or(Mask::Unset, |mask| if mask { Mask::Masked } else { Mask::Unmasked }),
        };
        if spec.mask == Mask::Masked && spec.enablement == Enablement::Enabled {
            return Err(fail(
                "it is masked and enabled; a masked unit can't be enabled, drop one of the two".to_owned(),
            ));
        }
        if read.insert(name, spec).is_some() {
            return Err(within.unreachable(field, "the unit is listed twice; keep one entry"));
        }
    }
    Ok(read)
}

fn dropins(
    within: Within<'_>,
    field: &str,
    dropins: Vec<Dropin>,
) -> Result<BTreeMap<DropinName, Contents>, ModelError> {
    let mut read: BTreeMap<DropinName, Option<Contents>> = BTreeMap::new();
    for dropin in dropins {
        let field = format!("{field} dropins {:?}", short(&dropin.name, 100));
        let name =
            DropinName::new(dropin.name).map_err(|error| within.error(field.clone(), error.to_string()))?;
        if read.insert(name, filled(dropin.contents)).is_some() {
            return Err(within.unreachable(field, "the drop-in is listed twice; keep one entry"));
        }
    }
    Ok(read.into_iter().filter_map(|(name, contents)| Some((name, contents?))).collect())
}

fn filled(text: Option<String>) -> Option<Contents> {
    text.filter(|text| !text.is_empty()).map(|text| Contents::new(text.into_bytes()))
}
