//! Refusals and warnings by the outcome of a plan's link steps: units that would not be as the config has them, and units of the host
//! that presets turn.
//!
//! The links of one unit may be those of another one (`Alias=`, `DefaultInstance=`, `Also=`), or entries of storage. The steps alone do
//! not tell, so they are made in memory first.

use std::collections::BTreeSet;

use super::differences::{instance_of, strays_of, unit_state_difference};
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::reconcilable::Irreconcilable;
use super::warnings::Warning;
use super::{Batch, Op, Plan, not_applied, not_enabled, shared, unit_links};
use crate::model::observation::{ObservedUnit, UnitFileState};
use crate::model::text::escaped;
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::{Facts, HostSpec, ManagedPath, Rehearsal, UnitName};

impl Plan {
    /// Takes the outcome of the steps: refuses the plan, or completes it.
    pub fn rehearsed(
        mut self,
        (from, to): (&HostSpec, &HostSpec),
        facts: &Facts,
        rehearsal: &Rehearsal,
    ) -> Result<Self, Irreconcilable> {
        let reasons = refused(&self, (from, to), facts, rehearsal);
        if !reasons.is_empty() {
            return Err(Irreconcilable { reasons, is_of_host: true });
        }
        self.not_applied = not_applied::known((from, to), facts, &rehearsal.units);
        self.warnings.extend(turned(&self, facts, rehearsal));
        self.warnings.extend(turned_along(&self, to, facts, rehearsal));
        self.warnings.extend(taken_links((from, to), facts, rehearsal));
        Ok(self)
    }
}

fn refused(
    plan: &Plan,
    (from, to): (&HostSpec, &HostSpec),
    facts: &Facts,
    rehearsal: &Rehearsal,
) -> Vec<Unreachable> {
    let mut reasons: Vec<Unreachable> = Vec::new();
    let of_unit = |name: &UnitName, message: String| {
        unreachable(ReasonKind::UnitLinks, not_enabled::unit_field(name), message)
    };
    for (name, obstacle) in &rehearsal.obstacles {
        reasons.push(of_unit(name, obstacle.to_string()));
    }
    for path in &rehearsal.lost {
        reasons.push(unit_links::lost(ReasonKind::UnitLinks, path));
    }
    for one in &rehearsal.renamed {
        let message = format!(
            "{} leads to {} on this host, and would lead to {}; remove that link, or do not enable {}",
            one.link, one.from, one.to, one.to
        );
        let name = UnitName::new(&*one.to).ok();
        reasons.extend(name.map(|name| of_unit(&name, message)));
    }
    reasons.extend(through_links(to, rehearsal));
    let closed = rehearsal.links.iter().find_map(|link| shared::closed(to, &facts.observed, link));
    reasons.extend(closed.filter(|_| changes_links(plan, to)));
    reasons.extend(shared::keeps_link(facts, &rehearsal.enabled));
    reasons.extend(hidden(to, rehearsal));
    let listed = to.units.iter().filter(|(name, _)| !rehearsal.obstacles.contains_key(*name));
    for (name, unit) in listed {
        let is_kept = from.units.get(name) == Some(unit);
        let cause = otherwise(to, (name, unit), facts, (rehearsal, is_kept));
        reasons.extend(cause.map(|cause| of_unit(name, cause)));
    }
    reasons
}

/// Returns the links of the config that links of units would be made through: they would stay where those lead.
fn through_links(to: &HostSpec, rehearsal: &Rehearsal) -> Vec<Unreachable> {
    let above = to.links.keys().filter_map(|link| {
        let inside = rehearsal.links.iter().find(|path| *path != link && path.is_below(link.as_str()))?;
        Some(unit_links::through(ReasonKind::UnitLinks, link, inside))
    });
    above.collect()
}

/// Refuses a unit that the config enables, and whose own file on this host another enabled unit's name hides.
fn hidden(to: &HostSpec, rehearsal: &Rehearsal) -> Vec<Unreachable> {
    let is_enabled = |name: &UnitName| {
        let unit = to.units.get(name);
        unit.is_some_and(|unit| unit.enablement == Enablement::Enabled && unit.mask != Mask::Masked)
    };
    let both = rehearsal.hidden.iter().filter(|(name, other)| is_enabled(name) && is_enabled(other));
    let refused = both.map(|(name, other)| {
        let message = format!(
            "{name} is another name of {other} (Alias=), which hides the unit file that this host has of it; give {other} another \
             Alias=, or do not enable one of them"
        );
        unreachable(ReasonKind::UnitLinks, not_enabled::unit_field(name), message)
    });
    refused.collect()
}

/// Returns true if the plan changes links, or directories that they may be in.
fn changes_links(plan: &Plan, to: &HostSpec) -> bool {
    plan.steps.iter().any(|step| {
        let is_listed = matches!(&step.op, Op::MakeDirectory { path } | Op::OpenDirectory { path } if to.directories.contains_key(path));
        is_listed || step.op.batch() == Batch::Links
    })
}

/// Returns in what a unit would be otherwise than its entry has it. What is so already is drift.
fn otherwise(
    to: &HostSpec,
    (name, unit): (&UnitName, &UnitSpec),
    facts: &Facts,
    (rehearsal, is_kept): (&Rehearsal, bool),
) -> Option<String> {
    let after = *rehearsal.units.get(name)?;
    let before = facts.observed.units.get(name);
    if let Some(difference) = unit_state_difference(name, unit, after) {
        let before = before.and_then(|found| unit_state_difference(name, unit, *found));
        let (expected, found) = (&difference.expected, &difference.found);
        let is_drift = is_kept && before.as_ref() == Some(&difference);
        let link = rehearsal.decisive.get(name);
        return (!is_drift).then(|| unit_links::otherwise(link, found, expected));
    }
    let link = strays_of(to, name, after.enabled, rehearsal.stray.get(name)?).into_iter().next()?;
    let is_drift = is_kept && facts.observed.stray_links.get(name).is_some_and(|found| found.contains(link));
    let message = format!(
        "another entry of the config makes {link}, which is a link to this unit; {}",
        unit_links::CORRECT
    );
    (!is_drift).then_some(message)
}

/// Returns the warnings of units of the host that are turned as its presets say.
fn turned(plan: &Plan, facts: &Facts, rehearsal: &Rehearsal) -> Vec<Warning> {
    let preset = |op: &Op| if let Op::PresetUnit { unit } = op { Some(unit.clone()) } else { None };
    let warned = plan.steps.iter().filter_map(|step| preset(&step.op)).filter_map(|name| {
        use UnitFileState::{Disabled, Enabled, Partial};
        let before = found(&name, facts)?.enabled;
        let (is, does, keeps) = match (before, rehearsal.units.get(&name)?.enabled) {
            (Enabled, Disabled) => ("enabled", "disable it", "true"),
            (Partial, Disabled) => ("partly enabled", "disable it", "true"),
            (Partial, Enabled) => ("partly enabled", "enable it", "false"),
            (Disabled, Enabled) => ("disabled", "enable it", "false"),
            _ => return None,
        };
        let message = format!(
            "it is {is} on this host, and its presets {does}, since the config does not say (systemd.preset(5)); to keep it, set \
             `enabled: {keeps}`"
        );
        Some(Warning { field: not_enabled::field(&name), message: escaped(&message) })
    });
    warned.collect()
}

/// Returns the warnings of units that are enabled or disabled with another one (`Also=`), and that the config does not name.
fn turned_along(plan: &Plan, to: &HostSpec, facts: &Facts, rehearsal: &Rehearsal) -> Vec<Warning> {
    use UnitFileState::{Disabled, Enabled};
    let is_named = |unit: &UnitName| {
        let entry = to.units.get(unit);
        entry.is_some_and(|entry| entry.mask == Mask::Masked || entry.enablement != Enablement::Preset)
    };
    let is_step = |unit: &UnitName| {
        plan.steps.iter().any(|step| matches!(&step.op, Op::PresetUnit { unit: other } if other == unit))
    };
    let mut warned = Vec::new();
    for step in &plan.steps {
        let (verb, unit) = if let Op::EnableUnit { unit } = &step.op {
            ("enabling", unit)
        } else if let Op::DisableUnit { unit } = &step.op {
            ("disabling", unit)
        } else {
            continue;
        };
        for (other, before) in facts.companions.get(unit).into_iter().flatten() {
            let after = rehearsal.units.get(other).map(|after| after.enabled);
            let turns = match (before.enabled, after) {
                (Enabled, Some(Disabled)) => "disables",
                (Disabled, Some(Enabled)) => "enables",
                _ => continue,
            };
            if is_named(other) || is_step(other) {
                continue;
            }
            let message = format!(
                "{verb} it {turns} {other}, too, which its [Install] section names (Also=); to keep {other} as it is, correct Also=, or leave \
                 `enabled` of {unit} away"
            );
            warned.push(Warning { field: not_enabled::field(unit), message: escaped(&message) });
        }
    }
    warned
}

/// Returns the warnings of links to units that somebody made on the host, and that enabling or disabling takes away.
fn taken_links((from, to): (&HostSpec, &HostSpec), facts: &Facts, rehearsal: &Rehearsal) -> Vec<Warning> {
    let mut warned = Vec::new();
    for name in from.units.keys().chain(to.units.keys()).collect::<BTreeSet<_>>() {
        let kept = rehearsal.stray.get(name).map(Vec::as_slice).unwrap_or_default();
        let found = facts.observed.stray_links.get(name).into_iter().flatten();
        // One that becomes a link of the unit itself stays.
        let stays = |link: &ManagedPath| kept.contains(link) || rehearsal.enabled.contains(link);
        for link in found.filter(|link| !stays(link)) {
            if let Some(instance) = instance_of(name, link) {
                let is_listed = |spec: &HostSpec| spec.units.contains_key(&instance);
                let message = format!(
                    "{instance} of this host is disabled with its template ({link}), as systemctl does; to keep it, list it in \
                     systemd.units with `enabled: true`"
                );
                let warning = Warning { field: not_enabled::field(name), message: escaped(&message) };
                warned.extend((!is_listed(from) && !is_listed(to)).then_some(warning));
                continue;
            }
            if !to.units.contains_key(name) {
                continue;
            }
            let message = format!(
                "{link} of this host, which the unit's [Install] section does not make, is removed; to keep it, list it in storage.links \
                 and leave `enabled` away"
            );
            warned.push(Warning { field: not_enabled::field(name), message: escaped(&message) });
        }
    }
    warned
}

fn found(name: &UnitName, facts: &Facts) -> Option<ObservedUnit> {
    let companion = || facts.companions.values().find_map(|companions| companions.get(name));
    facts.observed.units.get(name).or_else(companion).copied()
}
