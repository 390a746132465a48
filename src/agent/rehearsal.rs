//! The steps of a plan on units, made in memory before anything is touched, and the services that it reloads or restarts.

use crate::apply::link_verbs;
use crate::host::Host;
use crate::host::systemd::CA_TRUST_UNIT;
use crate::model::{Facts, HostSpec, UnitName};
use crate::observe::{ObserveError, rehearse};
use crate::plan::{Irreconcilable, Op, Plan, ReasonKind, Unreachable};

/// Makes the links of a plan in memory. Returns the plan, complete, or the reasons against it; a refusal stays one.
pub(crate) async fn rehearsed(
    host: &Host,
    (from, to): (&HostSpec, &HostSpec),
    facts: &Facts,
    planned: Result<Plan, Irreconcilable>,
) -> Result<Result<Plan, Irreconcilable>, ObserveError> {
    let plan = match planned {
        Ok(plan) => plan,
        Err(refused) => return Ok(Err(refused)),
    };
    // Of another OS, or with other packages, the units are not known.
    let brings_units =
        |op: &Op| matches!(op, Op::StageOs { .. } | Op::InstallExtensions { .. } | Op::SwitchKernel { .. });
    let is_other_os = plan.steps().iter().any(|step| brings_units(&step.op));
    let plan = match if is_other_os { Ok(plan) } else { with_services(host, to, plan).await } {
        Ok(plan) => plan,
        Err(refused) => return Ok(Err(refused)),
    };
    let has_units = !(from.units.is_empty() && to.units.is_empty());
    // What is as it was is drift.
    let is_as_before = plan.is_empty() && from.units == to.units;
    if is_as_before || is_other_os || !has_units {
        return Ok(Ok(plan));
    }
    let rehearsal = rehearse(&host.root, (from, to), &link_verbs(plan.steps()))?;
    Ok(plan.rehearsed((from, to), facts, &rehearsal))
}

/// Refuses a plan that reloads or restarts a unit of the host which systemd does not find, or which is masked: the update would fail at
/// its end. What the config itself brings or turns is not known to systemd yet.
async fn with_services(host: &Host, to: &HostSpec, plan: Plan) -> Result<Plan, Irreconcilable> {
    let mut reasons = Vec::new();
    for step in plan.steps() {
        let (verb, unit) = if let Op::ReloadUnit { unit } = &step.op {
            ("reloads", unit)
        } else if let Op::RestartUnit { unit } = &step.op {
            ("restarts", unit)
        } else {
            continue;
        };
        // The trust store is also built without its unit.
        if unit.as_str() == CA_TRUST_UNIT || is_of_config(to, unit) {
            continue;
        }
        // What systemd does not say now it says to the step.
        let Ok(Some(state)) = host.systemd.service(unit).await else { continue };
        let is = match state.load.as_str() {
            "not-found" => "not on this host",
            "masked" => "masked on this host",
            _ => continue,
        };
        let field = format!("{} {unit}", step.op.as_str());
        let message = format!(
            "the disruption policy {verb} {unit}, which is {is} (systemctl status {unit}); install or unmask it, or correct \
             spec.nodeDisruptionPolicy of the MachineConfiguration"
        );
        reasons.push(Unreachable { field, message, kind: ReasonKind::Obstacle });
    }
    if reasons.is_empty() { Ok(plan) } else { Err(Irreconcilable { reasons, is_of_host: true }) }
}

/// Returns true if a config names a unit, or has an entry at a path of its name.
fn is_of_config(to: &HostSpec, unit: &UnitName) -> bool {
    let is_named = |path: &str| path.rsplit('/').next() == Some(unit.as_str());
    to.units.contains_key(unit) || to.managed().iter().any(|path| is_named(path.as_str()))
}
