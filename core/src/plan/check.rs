//! The invariants of a plan. Every plan passes through here before anybody sees it; a broken one is refused, with
//! the field `plan`, instead of being carried out.

use std::collections::BTreeSet;

use super::disruption::service_step;
use super::{Batch, Drain, Mode, Op, Plan, PostActions, Step, StepReason};
use crate::model::{HostSpec, PathSpec};

/// Checks a plan against the specs it leads from and to; the error is the broken invariant.
pub(super) fn check(plan: &Plan, from: &HostSpec, to: &HostSpec) -> Result<(), String> {
    ordered(&plan.steps)?;
    unique(&plan.steps)?;
    services(plan)?;
    drained(plan)?;
    os(plan, from, to)?;
    written(plan, to)
}

fn ordered(steps: &[Step]) -> Result<(), String> {
    let late = steps.iter().zip(steps.iter().skip(1)).find(|(one, next)| one.op.batch() > next.op.batch());
    late.map_or(Ok(()), |(one, next)| Err(format!("`{one}` comes before `{next}`, whose batch is earlier")))
}

fn unique(steps: &[Step]) -> Result<(), String> {
    let mut observed = BTreeSet::new();
    let twice = steps.iter().find(|step| !observed.insert((step.op.as_str(), step.op.target())));
    twice.map_or(Ok(()), |step| Err(format!("`{step}` occurs twice")))?;
    let mut paths = BTreeSet::new();
    let files = steps.iter().filter(|step| matches!(step.op.batch(), Batch::Files | Batch::Directories));
    let twice = files.filter_map(|step| step.op.path()).find(|path| !paths.insert(path.clone()));
    twice.map_or(Ok(()), |path| Err(format!("{path} is touched twice")))
}

/// A service is requested exactly if `after` names it, and never together with a reboot.
fn services(plan: &Plan) -> Result<(), String> {
    let steps: Vec<&Op> =
        plan.steps.iter().map(|step| &step.op).filter(|op| op.batch() == Batch::Services).collect();
    let desired: Vec<Step> = match &plan.after {
        PostActions::Nothing | PostActions::Reboot { .. } => Vec::new(),
        PostActions::Services { actions } if actions.is_empty() => {
            return Err("it ends in services, but in none".to_owned());
        }
        PostActions::Services { actions } => {
            actions.iter().filter_map(|action| service_step(action, StepReason::Policy)).collect()
        }
    };
    if steps.iter().copied().eq(desired.iter().map(|step| &step.op)) {
        Ok(())
    } else {
        Err("its service steps are not what follows it".to_owned())
    }
}

fn drained(plan: &Plan) -> Result<(), String> {
    match (&plan.after, plan.drain) {
        (PostActions::Reboot { because, .. }, _) if because.is_empty() => {
            Err("it reboots without a reason".to_owned())
        }
        (PostActions::Reboot { .. }, Drain::NotNeeded) => Err("it reboots without a drain".to_owned()),
        (PostActions::Nothing, Drain::Needed) if plan.steps.is_empty() => {
            Err("it drains and does nothing".to_owned())
        }
        (PostActions::Reboot { .. } | PostActions::Nothing | PostActions::Services { .. }, _) => Ok(()),
    }
}

fn os(plan: &Plan, from: &HostSpec, to: &HostSpec) -> Result<(), String> {
    let staged: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|step| if let Op::StageOs { image } = &step.op { Some(image) } else { None })
        .collect();
    if staged.iter().any(|image| from.image_after(to) != Some(*image)) {
        return Err("it stages another image than the desired one".to_owned());
    }
    let switches = !staged.is_empty();
    let fits = match plan.mode {
        Mode::Nothing => plan.steps.is_empty(),
        Mode::Image | Mode::ImageAndFiles => switches,
        Mode::Adopt => !switches,
        Mode::Files | Mode::LeaveImage => true,
    };
    if !fits {
        return Err(format!("its steps do not fit mode {}", super::explain::mode_word(plan.mode)));
    }
    let os_steps = plan
        .steps
        .iter()
        .any(|step| step.op.batch() == Batch::Os && !matches!(step.op, Op::LinkPullSecret { .. }));
    let reboots = matches!(plan.after, PostActions::Reboot { .. });
    if os_steps && !reboots { Err("it makes a deployment that nothing boots".to_owned()) } else { Ok(()) }
}

/// Checks that every written path is in the new spec: its contents come from there.
fn written(plan: &Plan, to: &HostSpec) -> Result<(), String> {
    let contents = to.entries();
    let missing = plan.steps.iter().find(|step| {
        let entry = step.op.path().and_then(|path| contents.get(&path));
        match step.op {
            Op::WriteFile { .. } | Op::WriteUnit { .. } | Op::WriteDropin { .. } => {
                !matches!(entry, Some(PathSpec::File(_)))
            }
            Op::MakeDirectory { .. } => !matches!(entry, Some(PathSpec::Directory(_))),
            Op::OpenDirectory { .. } => !matches!(entry, Some(PathSpec::Directory(_)) | None),
            Op::WriteLink { .. } => !matches!(entry, Some(PathSpec::Link(_))),
            Op::LinkPullSecret { .. }
            | Op::StageOs { .. }
            | Op::SetKargs { .. }
            | Op::InstallExtensions { .. }
            | Op::SwitchKernel { .. }
            | Op::RemoveFile { .. }
            | Op::RestoreFile { .. }
            | Op::RemoveDirectory { .. }
            | Op::RestoreDirectory { .. }
            | Op::RemoveLink { .. }
            | Op::RestoreLink { .. }
            | Op::RemoveUnit { .. }
            | Op::RemoveDropin { .. }
            | Op::SetSshKeys { .. }
            | Op::SetPassword { .. }
            | Op::CreateUser { .. }
            | Op::ModifyUser { .. }
            | Op::LockUser { .. }
            | Op::CreateGroup { .. }
            | Op::ModifyGroup { .. }
            | Op::RemoveGroup { .. }
            | Op::MaskUnit { .. }
            | Op::UnmaskUnit { .. }
            | Op::EnableUnit { .. }
            | Op::DisableUnit { .. }
            | Op::PresetUnit { .. }
            | Op::DaemonReload
            | Op::ReloadUnit { .. }
            | Op::RestartUnit { .. } => false,
        }
    });
    missing.map_or(Ok(()), |step| Err(format!("`{step}` has no contents in the new config")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::soft_reboot::Verdict;
    use crate::model::{ConfigName, ImageRef, ManagedPath, UnitName};
    use crate::plan::{ServiceAction, ServiceVerb};

    fn plan(mode: Mode, ops: Vec<Op>, drain: Drain, after: PostActions) -> Plan {
        let to = HostSpec::empty(ConfigName::new("b").unwrap()).target();
        let steps = ops.into_iter().map(|op| Step { op, because: StepReason::Added }).collect();
        Plan { from: None, to, mode, steps, drain, after, not_applied: Vec::new(), warnings: Vec::new() }
    }

    fn reboot() -> PostActions {
        PostActions::Reboot { because: vec!["x".to_owned()], uncovered: vec![], verdict: Verdict::default() }
    }

    #[test]
    fn broken_plans_are_refused() {
        let to = HostSpec::empty(ConfigName::new("b").unwrap());
        let image = ImageRef::parse(&format!("os@sha256:{}", "a".repeat(64))).unwrap();
        let path = || ManagedPath::new("/etc/a").unwrap();
        let unit = || UnitName::new("a.service").unwrap();
        let password = || Op::SetPassword { user: crate::model::UserName::core() };
        let restart = || ServiceAction { action: ServiceVerb::Restart, unit: Some(unit()), because: vec![] };
        let services = |actions| PostActions::Services { actions };
        let (yes, no, nothing) = (Drain::Needed, Drain::NotNeeded, || PostActions::Nothing);
        let kargs = || Op::SetKargs { delete: vec![], append: vec![] };
        for (plan, word) in [
            (
                plan(Mode::Files, vec![password(), Op::RemoveFile { path: path() }], no, nothing()),
                "comes before",
            ),
            (plan(Mode::Files, vec![password(), password()], no, nothing()), "twice"),
            (
                plan(
                    Mode::Files,
                    vec![Op::RemoveFile { path: path() }, Op::RestoreFile { path: path() }],
                    no,
                    nothing(),
                ),
                "touched twice",
            ),
            (plan(Mode::Files, vec![Op::RestartUnit { unit: unit() }], yes, reboot()), "service steps"),
            (plan(Mode::Files, vec![], no, services(vec![restart()])), "service steps"),
            (plan(Mode::Files, vec![], no, services(vec![])), "in none"),
            (plan(Mode::Files, vec![kargs()], no, reboot()), "without a drain"),
            (
                plan(
                    Mode::Files,
                    vec![kargs()],
                    yes,
                    PostActions::Reboot { because: vec![], uncovered: vec![], verdict: Verdict::default() },
                ),
                "without a reason",
            ),
            (plan(Mode::Nothing, vec![], yes, nothing()), "does nothing"),
            (plan(Mode::Files, vec![kargs()], no, nothing()), "nothing boots"),
            (plan(Mode::Image, vec![kargs()], yes, reboot()), "do not fit mode image"),
            (plan(Mode::Files, vec![Op::StageOs { image }], yes, reboot()), "another image"),
            (plan(Mode::Files, vec![Op::WriteFile { path: path() }], yes, reboot()), "no contents"),
            (plan(Mode::Files, vec![Op::MakeDirectory { path: path() }], yes, reboot()), "no contents"),
            (plan(Mode::Files, vec![Op::WriteLink { path: path() }], yes, reboot()), "no contents"),
        ] {
            let broken = check(&plan, &to, &to).unwrap_err();
            assert!(broken.contains(word), "{word}: {broken}");
        }
        assert_eq!(check(&plan(Mode::Files, vec![kargs()], yes, reboot()), &to, &to), Ok(()));
    }
}
