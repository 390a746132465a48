//! Repairing drift: a plan from the committed spec to itself, of nothing but the drifted paths that are to be repaired.
//!
//! The disruption policy's actions are requested here as well. A reboot or a drain is not taken for a repair: such a
//! path is left, with the reason.

use super::differences::{Difference, DifferenceKind, Kind};
use super::disruption;
use super::foreign;
use super::in_the_way::in_the_way;
use super::input::PlanInput;
use super::reason::Unreachable;
use super::warnings::warnings;
use super::{Batch, Drain, Mode, Op, Plan, PostActions, Step, StepReason, check};
use crate::model::disruption::Action;
use crate::model::observation::{EmbeddedConfig, ObservedFips};
use crate::model::units::{Enablement, Mask};
use crate::model::{DisruptionPolicy, Facts, HostSpec, ManagedPath, Observation, Obstacles, UnitName};

/// Outcome of drift that is to be repaired.
#[derive(Debug)]
pub struct Repair {
    /// The plan of the repair; `None` if nothing can be repaired.
    pub plan: Option<Plan>,
    /// Of each difference, in order, why it is left.
    pub left: Vec<Option<String>>,
}

/// Decides the repair of the given differences.
pub fn repair(
    spec: &HostSpec,
    observed: &Observation,
    drift: &[Difference],
    policy: &DisruptionPolicy,
) -> Repair {
    let facts = facts(spec, observed);
    let input = PlanInput::new(spec, spec, &facts, Mode::Files);
    let (mut steps, mut left): (Vec<Step>, Vec<_>) = (Vec::new(), Vec::new());
    for difference in drift {
        let step = op(spec, difference).map(|op| Step { op, because: StepReason::Changed });
        let why = match &step {
            None => Some("no step puts it right".to_owned()),
            Some(step) => {
                let why = in_the_way(&input, &step.op).or_else(|| behind(&input, &step.op, drift, policy));
                let why = why.map(|reason| reason.message);
                why.or_else(|| disrupts(&input, step, policy).map(str::to_owned))
            }
        };
        if let (Some(step), None) = (step, &why) {
            steps.extend(with_links(spec, step));
        }
        left.push(why);
    }
    let mut known = Vec::new();
    steps.retain(|step| {
        let new = !known.contains(&step.op);
        known.push(step.op.clone());
        new
    });
    if steps.is_empty() {
        return Repair { plan: None, left };
    }
    steps.sort_by_key(|step| step.op.batch());
    let cost = disruption::judge(&input, &steps, policy);
    steps.extend(cost.services);
    let (from, to) = (Some(spec.target()), spec.target());
    let warnings = warnings(&input, &steps);
    let plan = Plan {
        from,
        to,
        mode: Mode::Files,
        steps,
        drain: cost.drain,
        after: cost.after,
        not_applied: Vec::new(),
        warnings,
    };
    match check::check(&plan, spec, spec) {
        Ok(()) => Repair { plan: Some(plan), left },
        Err(broken) => Repair { plan: None, left: drift.iter().map(|_| Some(broken.clone())).collect() },
    }
}

/// Returns why a path is not reached: a link is in the place of a directory above it, which this repair does not make again.
fn behind(
    input: &PlanInput<'_>,
    op: &Op,
    drift: &[Difference],
    policy: &DisruptionPolicy,
) -> Option<Unreachable> {
    let path = op.path()?;
    let above = drift.iter().filter(|found| found.kind == Kind::Directory).filter_map(Difference::path);
    let mut above = above.filter(|above| path.is_below(above.as_str()));
    let is_made = |path: ManagedPath| {
        let step = Step { op: Op::MakeDirectory { path }, because: StepReason::Changed };
        in_the_way(input, &step.op).is_none() && disrupts(input, &step, policy).is_none()
    };
    if above.any(is_made) { None } else { foreign::behind(input, op) }
}

/// Only the observation counts: nothing is pulled, removed or restored.
fn facts(spec: &HostSpec, observed: &Observation) -> Facts {
    Facts {
        observed: observed.clone(),
        carries: EmbeddedConfig::Unknown,
        pull_secret: None,
        local: std::collections::BTreeSet::new(),
        under_var: std::collections::BTreeSet::new(),
        restorable: std::collections::BTreeSet::new(),
        lost: std::collections::BTreeSet::new(),
        occupied: std::collections::BTreeSet::new(),
        made: std::collections::BTreeSet::new(),
        spare: std::collections::BTreeSet::new(),
        holding: std::collections::BTreeSet::new(),
        covering: std::collections::BTreeSet::new(),
        displaced: spec.displaced(observed),
        own_masks: std::collections::BTreeSet::new(),
        not_files: std::collections::BTreeSet::new(),
        restored: std::collections::BTreeSet::new(),
        is_live: false,
        accounts: crate::model::observation::AccountFacts::default(),
        soft_reboot: None,
        obstacles: Obstacles::default(),
        companions: std::collections::BTreeMap::new(),
        stored_units: std::collections::BTreeMap::new(),
        fips: ObservedFips::Unknown,
    }
}

/// Returns the disruption of a step beyond a service.
fn disrupts(input: &PlanInput<'_>, step: &Step, policy: &DisruptionPolicy) -> Option<&'static str> {
    // The need of a drain for the registries is judged by two configs; here one side is unknown.
    if disruption::policy_actions(policy, step).contains(&Action::Special) {
        return Some("its change may need a drain");
    }
    let cost = disruption::judge(input, std::slice::from_ref(step), policy);
    match (cost.after, cost.drain) {
        (PostActions::Reboot { uncovered, .. }, _) if uncovered.is_empty() => {
            Some("the disruption policy requires a reboot")
        }
        (PostActions::Reboot { .. }, _) => Some("no disruption policy covers it, so it needs a reboot"),
        (PostActions::Nothing | PostActions::Services { .. }, Drain::Needed) => {
            Some("the disruption policy requires a drain")
        }
        (PostActions::Nothing | PostActions::Services { .. }, Drain::NotNeeded) => None,
    }
}

/// Returns the step that puts a difference right.
fn op(spec: &HostSpec, difference: &Difference) -> Option<Op> {
    let path = difference.path()?;
    match difference.kind {
        Kind::Image | Kind::Karg | Kind::Package | Kind::User | Kind::Group => None,
        Kind::File if spec.files.contains_key(&path) => Some(Op::WriteFile { path }),
        // The image's own config brought it: the base's own comes back, or nothing.
        Kind::File => Some(Op::RestoreFile { path }),
        Kind::Directory => Some(Op::MakeDirectory { path }),
        Kind::Link => Some(Op::WriteLink { path }),
        Kind::Dropin => spec.units.iter().find_map(|(unit, desired)| {
            let name = desired.dropins.keys().find(|name| unit.dropin_path(name) == path)?;
            Some(Op::WriteDropin { unit: unit.clone(), name: name.clone() })
        }),
        Kind::Unit if difference.target.starts_with('/') => {
            let unit = spec.units.keys().find(|unit| unit.path() == path)?.clone();
            Some(Op::WriteUnit { unit })
        }
        Kind::Unit => links(spec, difference),
    }
}

/// Links follow the unit: they are made again when its file is written, as in every plan.
fn with_links(spec: &HostSpec, step: Step) -> Vec<Step> {
    let because = step.because;
    // A hard link to what is written anew is left behind.
    let hard = step.op.path().into_iter().flat_map(|written| {
        let links = spec.hard_targets().filter(move |(_, target)| **target == written);
        links.map(|(path, _)| path.clone()).collect::<Vec<_>>()
    });
    let hard: Vec<Step> = hard.map(|path| Step { op: Op::WriteLink { path }, because }).collect();
    let Op::WriteUnit { unit } = &step.op else { return std::iter::once(step).chain(hard).collect() };
    let op = spec.units.get(unit).and_then(|desired| match desired.enablement {
        Enablement::Enabled => Some(Op::EnableUnit { unit: unit.clone() }),
        Enablement::Disabled => Some(Op::DisableUnit { unit: unit.clone() }),
        Enablement::Preset => None,
    });
    let op = op.map(|op| Step { op, because });
    std::iter::once(step).chain(hard).chain(op).collect()
}

fn links(spec: &HostSpec, difference: &Difference) -> Option<Op> {
    let unit = UnitName::new(&*difference.target).ok()?;
    let desired = spec.units.get(&unit)?;
    match difference.what {
        DifferenceKind::Mask if desired.mask == Mask::Masked => Some(Op::MaskUnit { unit }),
        DifferenceKind::Mask => Some(Op::UnmaskUnit { unit }),
        DifferenceKind::Enablement => match desired.enablement {
            Enablement::Enabled => Some(Op::EnableUnit { unit }),
            Enablement::Disabled => Some(Op::DisableUnit { unit }),
            Enablement::Preset => None,
        },
        DifferenceKind::Missing
        | DifferenceKind::Unexpected
        | DifferenceKind::Content
        | DifferenceKind::Mode
        | DifferenceKind::Owner
        | DifferenceKind::Value
        | DifferenceKind::Attributes => None,
    }
}

impl Op {
    /// Returns the path that repairs of it are counted by: a unit's own for its links.
    pub fn own_path(&self) -> Option<ManagedPath> {
        match self {
            Self::EnableUnit { unit } | Self::DisableUnit { unit } | Self::PresetUnit { unit } => {
                Some(unit.path())
            }
            Self::LinkPullSecret { .. }
            | Self::StageOs { .. }
            | Self::SetKargs { .. }
            | Self::InstallExtensions { .. }
            | Self::SwitchKernel { .. }
            | Self::WriteFile { .. }
            | Self::RemoveFile { .. }
            | Self::RestoreFile { .. }
            | Self::MakeDirectory { .. }
            | Self::RemoveDirectory { .. }
            | Self::RestoreDirectory { .. }
            | Self::OpenDirectory { .. }
            | Self::WriteLink { .. }
            | Self::RemoveLink { .. }
            | Self::RestoreLink { .. }
            | Self::WriteUnit { .. }
            | Self::RemoveUnit { .. }
            | Self::WriteDropin { .. }
            | Self::RemoveDropin { .. }
            | Self::CreateGroup { .. }
            | Self::ModifyGroup { .. }
            | Self::RemoveGroup { .. }
            | Self::CreateUser { .. }
            | Self::ModifyUser { .. }
            | Self::LockUser { .. }
            | Self::SetSshKeys { .. }
            | Self::SetPassword { .. }
            | Self::MaskUnit { .. }
            | Self::UnmaskUnit { .. }
            | Self::DaemonReload
            | Self::ReloadUnit { .. }
            | Self::RestartUnit { .. } => self.path(),
        }
    }
}

impl Plan {
    /// Returns true if one of the steps removes the difference.
    pub fn mends(&self, difference: &Difference) -> bool {
        self.steps.iter().any(|step| mends(&step.op, difference))
    }
}

/// Returns true if a step sets right in what the host differs.
pub(super) fn mends(op: &Op, difference: &Difference) -> bool {
    match (difference.kind, op) {
        (Kind::Image, Op::StageOs { .. })
        | (Kind::Package, Op::InstallExtensions { .. } | Op::SwitchKernel { .. }) => true,
        (Kind::Karg, Op::SetKargs { delete, append }) => {
            let list = if difference.what == DifferenceKind::Unexpected { delete } else { append };
            list.iter().any(|karg| karg.as_str() == difference.target)
        }
        (Kind::User | Kind::Group, _) => {
            let does = match difference.what {
                DifferenceKind::Content => matches!(op, Op::SetSshKeys { .. }),
                DifferenceKind::Value => matches!(op, Op::SetPassword { .. } | Op::ModifyGroup { .. }),
                DifferenceKind::Attributes => matches!(op, Op::ModifyUser { .. }),
                DifferenceKind::Missing => matches!(op, Op::CreateUser { .. } | Op::CreateGroup { .. }),
                DifferenceKind::Unexpected => matches!(op, Op::LockUser { .. } | Op::RemoveGroup { .. }),
                DifferenceKind::Mode
                | DifferenceKind::Owner
                | DifferenceKind::Enablement
                | DifferenceKind::Mask => false,
            };
            does && op.is_of_group() == (difference.kind == Kind::Group) && op.target() == difference.target
        }
        (Kind::Image | Kind::Karg | Kind::Package, _) => false,
        (Kind::File | Kind::Directory | Kind::Link | Kind::Dropin | Kind::Unit, _) => {
            let path = op.path().is_some_and(|path| path.as_str() == difference.target);
            // To reload or restart a unit changes nothing of its links.
            path || (op.batch() != Batch::Services && op.target() == difference.target)
        }
    }
}
