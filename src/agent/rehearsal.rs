//! The steps of a plan on units, made in memory before anything is touched.

use crate::apply::link_verbs;
use crate::host::Root;
use crate::model::{Facts, HostSpec};
use crate::observe::{ObserveError, rehearse};
use crate::plan::{Irreconcilable, Op, Plan};

/// Makes the links of a plan in memory. Returns the plan, complete, or the reasons against it; a refusal stays one.
pub(crate) fn rehearsed(
    root: &Root,
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
    let has_units = !(from.units.is_empty() && to.units.is_empty());
    // What is as it was is drift.
    let is_as_before = plan.is_empty() && from.units == to.units;
    if is_as_before || is_other_os || !has_units {
        return Ok(Ok(plan));
    }
    let rehearsal = rehearse(root, (from, to), &link_verbs(plan.steps()))?;
    Ok(plan.rehearsed((from, to), facts, &rehearsal))
}
