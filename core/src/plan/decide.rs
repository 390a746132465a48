//! The order in which a plan is decided: mode, unreachable configs, the steps of each noun, their cost, the check.

use super::input::PlanInput;
use super::reason::ReasonKind;
use super::{
    Drain, Irreconcilable, Mode, Plan, PostActions, Step, blocked, check, disruption, files, kargs, mode,
    not_applied, os, overwritten, own_unit, paths, reconcilable, space, units, users, warnings,
};
use crate::model::{DisruptionPolicy, Facts, HostSpec};

/// Decides the steps from one spec to another on this host, or returns why it can't be reached.
pub fn plan(
    from: &HostSpec,
    to: &HostSpec,
    facts: &Facts,
    policy: &DisruptionPolicy,
) -> Result<Plan, Irreconcilable> {
    let (image, built) = (mode::image(from, to, &facts.observed.os), mode::built(to, facts));
    let mut input = PlanInput::new(from, to, facts, mode::decide(image, built, mode::Content::Differs));
    let reasons = reconcilable::reasons(&input, policy);
    if !reasons.is_empty() {
        return Err(Irreconcilable { reasons, is_of_host: false });
    }
    let mut steps = steps(&input);
    if steps.is_empty() {
        input.mode = mode::decide(image, built, mode::Content::Same);
    }
    let mut reasons = blocked::blocked(&input, &steps);
    reasons.extend(space::missing(&input, &steps));
    if !reasons.is_empty() {
        return Err(Irreconcilable { reasons, is_of_host: true });
    }
    let cost = disruption::judge(&input, &steps, policy);
    steps.extend(cost.services);
    let from = (!from.is_unmanaged()).then(|| from.target());
    let not_applied = not_applied::planned(&input, &steps);
    let mut warnings = warnings::warnings(&input, &steps);
    warnings.extend(own_unit::warnings(&input, &steps));
    warnings.extend(overwritten::warnings(&input, &steps));
    warnings.extend(warnings::lost(&input));
    warnings.extend(warnings::unknown_base(&input, &steps));
    warnings.extend(warnings::databases(&input));
    let (mode, to_target) = (input.mode, to.target());
    let (drain, after) = (cost.drain, cost.after);
    let plan = Plan { from, to: to_target, mode, steps, drain, after, not_applied, warnings };
    match check::check(&plan, input.from, to) {
        Ok(()) => Ok(plan),
        Err(broken) => {
            let next = "this is a bug of the planner: nothing was touched, report it with the two configs";
            Err(Irreconcilable::new(ReasonKind::Planner, "plan", format!("{broken}; {next}")))
        }
    }
}

/// Returns what came in the way of an open update, whose next batch this is: it would fail there, and be undone.
pub fn blocked_ahead(
    from: &HostSpec,
    to: &HostSpec,
    facts: &Facts,
    plan: &Plan,
    next: usize,
) -> Result<(), Irreconcilable> {
    let reasons = blocked::ahead(&PlanInput::new(from, to, facts, plan.mode), plan, next);
    if reasons.is_empty() { Ok(()) } else { Err(Irreconcilable { reasons, is_of_host: true }) }
}

/// Returns the plan to the config that is committed: nothing is done, and what the host does not get is named.
pub fn unchanged(to: &HostSpec, facts: &Facts) -> Plan {
    Plan {
        from: Some(to.target()),
        to: to.target(),
        mode: Mode::Nothing,
        steps: Vec::new(),
        drain: Drain::NotNeeded,
        after: PostActions::Nothing,
        not_applied: not_applied::not_applied(to, &facts.observed),
        warnings: Vec::new(),
    }
}

/// Returns the steps of all nouns in the order of their batches, without the actions after them.
pub(super) fn steps(input: &PlanInput<'_>) -> Vec<Step> {
    let mut steps = os::steps(input);
    steps.extend(kargs::steps(input));
    steps.extend(users::creations(input));
    steps.extend(paths::making_way(input));
    steps.extend(paths::directories(input));
    steps.extend(files::writes(input));
    steps.extend(units::writes(input));
    steps.extend(paths::links(input));
    steps.extend(files::removals(input));
    steps.extend(units::removals(input));
    steps.extend(paths::removals(input));
    steps.extend(users::steps(input));
    steps.extend(units::links(input));
    steps.extend(paths::openings(input));
    steps
}
