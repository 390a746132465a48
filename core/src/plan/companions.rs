//! The units that the `Also=` of another unit names: they are enabled and disabled with it, whatever their own presets say.
//!
//! When the unit is turned otherwise or leaves, nothing enables them any more: their own presets decide again. Those
//! that a config enables or disables by name are its matter, and so are those of another unit that stays.

use std::collections::BTreeMap;

use super::input::PlanInput;
use super::{Op, Step, StepReason};
use crate::model::UnitName;
use crate::model::observation::{UnitFilePreset, UnitFileState};
use crate::model::units::{Enablement, Mask, UnitSpec};

/// Returns the presets of the companions that the changed and the leaving units let go. `remade` returns true if a
/// unit's links change.
pub(super) fn let_go(input: &PlanInput<'_>, remade: impl Fn(&UnitName) -> bool) -> Vec<Step> {
    let mut steps = BTreeMap::new();
    for (name, companions) in &input.facts.companions {
        let (old, new) = (input.from.units.get(name), input.to.units.get(name));
        let remade = remade(name);
        if old == new || !(remade || turns(input, name, old) && !turns(input, name, new)) {
            continue;
        }
        // Its preset brings them along.
        let kept = !remade && new.is_none_or(asks_presets) && preset(input, name) == UnitFilePreset::Enable;
        let because = if new.is_some() { StepReason::Changed } else { StepReason::Removed };
        let others = companions.iter().filter(|(unit, observed)| {
            !kept && observed.is_against_preset() && !is_requested(input, name, unit)
        });
        for (unit, _) in others {
            steps.entry(unit.clone()).or_insert(because);
        }
    }
    let step = |(unit, because)| Step { op: Op::PresetUnit { unit }, because };
    steps.into_iter().map(step).collect()
}

/// Returns the steps that disable the companions which the new config disables and the steps of other units enable: those come before,
/// as machine-config-daemon enables all units before it disables others.
pub(super) fn disabled_again(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Step> {
    let planned = |op: &Op| steps.iter().any(|step| step.op == *op);
    let mut again = BTreeMap::new();
    for step in steps {
        let (Op::EnableUnit { unit } | Op::PresetUnit { unit }) = &step.op else { continue };
        for (companion, observed) in input.facts.companions.get(unit).into_iter().flatten() {
            let is_disabled =
                input.to.units.get(companion).is_some_and(|entry| {
                    entry.enablement == Enablement::Disabled && entry.mask != Mask::Masked
                });
            let op = Op::DisableUnit { unit: companion.clone() };
            if is_disabled && observed.enabled == UnitFileState::Disabled && !planned(&op) {
                again.insert(companion.clone(), Step { op, because: step.because });
            }
        }
    }
    again.into_values().collect()
}

/// Returns true if a unit, as a config has it, decides about its companions.
fn turns(input: &PlanInput<'_>, name: &UnitName, unit: Option<&UnitSpec>) -> bool {
    let enablement = unit.map_or(Enablement::Preset, |unit| unit.enablement);
    let asks = enablement != Enablement::Preset || preset(input, name) == UnitFilePreset::Enable;
    asks && unit.is_none_or(|unit| unit.mask != Mask::Masked)
}

fn asks_presets(unit: &UnitSpec) -> bool {
    unit.enablement == Enablement::Preset && unit.mask != Mask::Masked
}

fn preset(input: &PlanInput<'_>, unit: &UnitName) -> UnitFilePreset {
    input.facts.observed.units.get(unit).map_or(UnitFilePreset::Disable, |observed| observed.preset)
}

/// Returns true if the new config itself decides about a companion, by its name or by another unit's.
fn is_requested(input: &PlanInput<'_>, of: &UnitName, companion: &UnitName) -> bool {
    let named = |unit: &UnitSpec| unit.mask == Mask::Masked || unit.enablement != Enablement::Preset;
    let brings = |name: &UnitName| {
        input.facts.companions.get(name).is_some_and(|companions| companions.contains_key(companion))
    };
    let mut others = input.to.units.iter().filter(|(name, _)| *name != of && brings(name));
    input.to.units.get(companion).is_some_and(named)
        || others.any(|(name, unit)| turns(input, name, Some(unit)))
}
