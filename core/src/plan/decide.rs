//! The order in which a plan is decided: mode, unreachable configs, the steps of each noun, their cost, the check.

use super::difference::Kind;
use super::differences::Difference;
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::warnings::Warning;
use super::{
    Batch, Drain, Irreconcilable, Mode, Plan, PostActions, Step, blocked, check, differences, disruption,
    files, is_gone_with_boot, kargs, mode, not_applied, os, overwritten, own_unit, paths, reconcilable,
    repair, space, units, users, warnings,
};
use crate::model::{DisruptionPolicy, Facts, HostSpec, Observation};

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
    warnings.extend(overwritten::stays(&input));
    warnings.extend(warnings::lost(&input));
    warnings.extend(warnings::unknown_base(&input, &steps));
    warnings.extend(warnings::databases(&input));
    warnings.extend(warnings::others(&input));
    warnings.extend(warnings::not_kept(&input, &steps));
    warnings.extend(warnings::keys_that_stay(&input, &steps));
    warnings.extend(warnings::strangers(&input));
    warnings.extend(warnings::kept(&input));
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

/// Returns the plan of an open update, or in what the host would not be as planned at its end, since somebody changed what it has done
/// already; `next` is its next batch, if one is left. What a boot brings, and a repair leaves, is not known or not its matter. One that
/// plans again when it is verified sets that again, which is a warning.
pub fn unverified_ahead(
    to: &HostSpec,
    observed: &Observation,
    mut plan: Plan,
    next: Option<usize>,
    plans_again: bool,
) -> Result<Plan, Irreconcilable> {
    let has_os = plan.steps.iter().any(|step| step.op.batch() == Batch::Os);
    if has_os || plan.from.as_ref() == Some(&plan.to) {
        return Ok(plan);
    }
    let batches = plan.batches();
    let left = || batches.iter().skip(next.unwrap_or(batches.len())).copied().flatten();
    let is_known = |kind: Kind| !matches!(kind, Kind::Image | Kind::Karg | Kind::Package);
    let found = differences(to, observed).into_iter().filter(|one| {
        is_known(one.kind) && !is_gone_with_boot(one) && !left().any(|step| repair::mends(&step.op, one))
    });
    let end = if plans_again {
        "which is planned again after its reboot, and set again"
    } else {
        "so that update would fail and be undone; restore it, or go on to undo the update"
    };
    let changed: Vec<(String, String)> = found.map(|one| changed(&one, end)).collect();
    if plans_again {
        let warnings = changed.into_iter().map(|(field, message)| Warning { field, message });
        plan.warnings.extend(warnings);
        return Ok(plan);
    }
    let reason = |(field, message)| unreachable(ReasonKind::Obstacle, field, message);
    let reasons: Vec<Unreachable> = changed.into_iter().map(reason).collect();
    if reasons.is_empty() { Ok(plan) } else { Err(Irreconcilable { reasons, is_of_host: true }) }
}

/// Returns the plan of an open update that is planned again after its reboot, with the reasons why it is refused then as the host is now.
pub fn refused_after_reboot(mut plan: Plan, refused: &Irreconcilable) -> Plan {
    let warning = |reason: &Unreachable| {
        let message =
            format!("after its reboot the open update is refused as the host is now: {}", reason.message);
        Warning { field: reason.field.clone(), message }
    };
    plan.warnings.extend(refused.reasons.iter().map(warning));
    plan
}

/// Returns the field of a difference, and what it means to an open update.
fn changed(difference: &Difference, end: &str) -> (String, String) {
    let section = match difference.kind {
        Kind::Directory => "storage.directories",
        Kind::Link => "storage.links",
        Kind::Unit | Kind::Dropin => "systemd.units",
        Kind::User => "passwd.users",
        Kind::Group => "passwd.groups",
        Kind::File | Kind::Image | Kind::Karg | Kind::Package => "storage.files",
    };
    let message = format!("it was changed after the open update had set it ({difference}), {end}");
    (format!("{section} {:?}", difference.target), message)
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
