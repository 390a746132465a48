//! Cost of a plan: nothing, services, a drain, a reboot.
//!
//! Judged by the objects that the steps touch, so that a change that touches nothing costs nothing. Actions are unique
//! and in one order: daemon-reload, CA trust, reloads, restarts (W-27), those of one word as the policy lists them.

use std::collections::BTreeSet;

use super::input::PlanInput;
use super::reconcilable::FORCE_FILE;
use super::registries::{self, Change};
use super::{Drain, Op, PostActions, ServiceAction, ServiceVerb, Step, StepReason, soft};
use crate::model::disruption::Action;
use crate::model::ids::UNIT_DIR;
use crate::model::policy::DisruptionPolicy;
use crate::model::soft_reboot::Verdict;
use crate::model::{ManagedPath, UnitName};

/// Actions after the steps, and the drain before them.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) drain: Drain,
    pub(super) after: PostActions,
    pub(super) services: Vec<Step>,
}

/// The unit that rebuilds the CA trust: it comes before the readers of the trust.
const CA_TRUST: &str = "coreos-update-ca-trust.service";

/// The container runtime, which `Special` reloads.
const CRIO: &str = "crio.service";

/// Object that a step changes, as the policy names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    Path(ManagedPath),
    Unit(UnitName),
    Passwd,
}

impl Touched {
    fn name(&self) -> String {
        match self {
            Self::Path(path) => path.to_string(),
            Self::Unit(unit) => unit.to_string(),
            Self::Passwd => "passwd".to_owned(),
        }
    }
}

/// Units in the order in which they were first requested, with their causes (MCD runs a policy's actions in its order).
#[derive(Debug, Default)]
struct InOrder(Vec<(UnitName, BTreeSet<String>)>);

impl InOrder {
    fn add(&mut self, unit: &UnitName, mut reasons: BTreeSet<String>) {
        match self.0.iter_mut().find(|(known, _)| known == unit) {
            Some((_, known)) => known.append(&mut reasons),
            None => self.0.push((unit.clone(), reasons)),
        }
    }

    fn take(&mut self, unit: &UnitName) -> Option<BTreeSet<String>> {
        let at = self.0.iter().position(|(known, _)| known == unit)?;
        Some(self.0.remove(at).1)
    }
}

/// Reasons by action, each in order.
#[derive(Debug, Default)]
struct RequiredActions {
    reboot: Vec<String>,
    uncovered: Vec<String>,
    drain: bool,
    daemon_reload: BTreeSet<String>,
    units_changed: BTreeSet<String>,
    reload: InOrder,
    restart: InOrder,
}

/// Judges the steps.
pub(super) fn judge(input: &PlanInput<'_>, steps: &[Step], policy: &DisruptionPolicy) -> Cost {
    let mut required = RequiredActions { reboot: os_reasons(steps), ..RequiredActions::default() };
    // What was in a directory that was made for it has its own policy.
    let is_bare =
        |step: &&Step| step.op.path().is_some_and(|path| input.is_spare(&path) && !input.restorable(&path));
    // Links that a unit no longer asks for go: nothing that runs has changed.
    let is_stray =
        |step: &&Step| matches!(step.op, Op::EnableUnit { .. }) && step.because == StepReason::Drifted;
    for touched in touched(steps.iter().filter(|step| !is_bare(step) && !is_stray(step)))
        .into_iter()
        .flat_map(|touched| owners(input, touched))
        .collect::<BTreeSet<_>>()
    {
        let word = touched.name();
        let is_unit = match &touched {
            Touched::Path(path) => path.is_below(UNIT_DIR),
            Touched::Unit(_) => true,
            Touched::Passwd => false,
        };
        if is_unit {
            required.units_changed.insert(word.clone());
        }
        match actions(policy, &touched) {
            None => {
                // The administrator requests a reboot by this file; no policy is missing.
                if word != FORCE_FILE {
                    required.uncovered.push(word.clone());
                }
                required.reboot.push(word);
            }
            Some(actions) => actions.iter().for_each(|action| required.add(action, &word, input)),
        }
    }
    required.cost(soft::verdict(input, steps))
}

fn os_reasons(steps: &[Step]) -> Vec<String> {
    let reason = |step: &Step| match &step.op {
        Op::StageOs { .. } => Some("osImageURL"),
        Op::SetKargs { .. } => Some("kernelArguments"),
        // It rides along with the step that makes the deployment.
        Op::SwitchKernel { .. } | Op::InstallExtensions { .. } if step.because == StepReason::InImage => None,
        Op::SwitchKernel { .. } => Some("kernelType"),
        Op::InstallExtensions { .. } => Some("extensions"),
        Op::LinkPullSecret { .. }
        | Op::WriteFile { .. }
        | Op::RemoveFile { .. }
        | Op::RestoreFile { .. }
        | Op::MakeDirectory { .. }
        | Op::RemoveDirectory { .. }
        | Op::RestoreDirectory { .. }
        | Op::OpenDirectory { .. }
        | Op::WriteLink { .. }
        | Op::RemoveLink { .. }
        | Op::RestoreLink { .. }
        | Op::WriteUnit { .. }
        | Op::RemoveUnit { .. }
        | Op::WriteDropin { .. }
        | Op::RemoveDropin { .. }
        | Op::CreateGroup { .. }
        | Op::ModifyGroup { .. }
        | Op::RemoveGroup { .. }
        | Op::CreateUser { .. }
        | Op::ModifyUser { .. }
        | Op::LockUser { .. }
        | Op::SetSshKeys { .. }
        | Op::SetPassword { .. }
        | Op::MaskUnit { .. }
        | Op::UnmaskUnit { .. }
        | Op::EnableUnit { .. }
        | Op::DisableUnit { .. }
        | Op::PresetUnit { .. }
        | Op::DaemonReload
        | Op::ReloadUnit { .. }
        | Op::RestartUnit { .. } => None,
    };
    steps.iter().filter_map(reason).map(str::to_owned).collect()
}

fn touched<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeSet<Touched> {
    let touched = |step: &Step| match &step.op {
        Op::WriteFile { path }
        | Op::RemoveFile { path }
        | Op::RestoreFile { path }
        | Op::MakeDirectory { path }
        | Op::RemoveDirectory { path }
        | Op::RestoreDirectory { path }
        | Op::OpenDirectory { path }
        | Op::WriteLink { path }
        | Op::RemoveLink { path }
        | Op::RestoreLink { path } => Some(Touched::Path(path.clone())),
        Op::WriteUnit { unit }
        | Op::RemoveUnit { unit }
        | Op::WriteDropin { unit, .. }
        | Op::RemoveDropin { unit, .. }
        | Op::MaskUnit { unit }
        | Op::UnmaskUnit { unit }
        | Op::EnableUnit { unit }
        | Op::DisableUnit { unit }
        | Op::PresetUnit { unit } => Some(Touched::Unit(unit.clone())),
        // MCD's policy for SSH keys is about core, the one account that it changes.
        Op::SetSshKeys { user } | Op::SetPassword { user } if user.is_core() => Some(Touched::Passwd),
        Op::SetSshKeys { .. }
        | Op::SetPassword { .. }
        | Op::CreateGroup { .. }
        | Op::ModifyGroup { .. }
        | Op::RemoveGroup { .. }
        | Op::CreateUser { .. }
        | Op::ModifyUser { .. }
        | Op::LockUser { .. }
        | Op::LinkPullSecret { .. }
        | Op::StageOs { .. }
        | Op::SetKargs { .. }
        | Op::InstallExtensions { .. }
        | Op::SwitchKernel { .. }
        | Op::DaemonReload
        | Op::ReloadUnit { .. }
        | Op::RestartUnit { .. } => None,
    };
    steps.filter_map(touched).collect()
}

/// A companion of units, which no config names, is judged as those that let it go.
fn owners(input: &PlanInput<'_>, touched: Touched) -> Vec<Touched> {
    let Touched::Unit(unit) = &touched else { return vec![touched] };
    if input.to.units.contains_key(unit) || input.from.units.contains_key(unit) {
        return vec![touched];
    }
    let owned = input.facts.companions.iter().filter(|(_, companions)| companions.contains_key(unit));
    owned.map(|(owner, _)| Touched::Unit(owner.clone())).filter(|owner| *owner != touched).collect()
}

/// Looks a change up: the longest path decides (MCD-099), units by exact name (MCD-100); `None` without an entry.
fn actions<'a>(policy: &'a DisruptionPolicy, touched: &Touched) -> Option<&'a [Action]> {
    match touched {
        Touched::Path(path) => {
            let above = policy.files.iter().filter(|(entry, _)| path.is_below(entry));
            above.max_by_key(|(entry, _)| entry.len()).map(|(_, actions)| actions.as_slice())
        }
        Touched::Unit(unit) => policy.units.get(unit).map(Vec::as_slice),
        Touched::Passwd => Some(&policy.sshkey),
    }
}

/// Returns the policy's actions for one step.
pub(super) fn policy_actions<'a>(policy: &'a DisruptionPolicy, step: &Step) -> &'a [Action] {
    let touched = touched(std::iter::once(step));
    touched.first().and_then(|touched| actions(policy, touched)).unwrap_or_default()
}

impl RequiredActions {
    fn add(&mut self, action: &Action, word: &str, input: &PlanInput<'_>) {
        let word = word.to_owned();
        match action {
            Action::None => {}
            Action::Drain => self.drain = true,
            Action::DaemonReload => {
                self.daemon_reload.insert(word);
            }
            Action::Reload(unit) => {
                self.reload.add(unit, BTreeSet::from([word]));
            }
            Action::Restart(unit) => {
                self.restart.add(unit, BTreeSet::from([word]));
            }
            Action::Special => {
                self.drain |= registries::change(input.from, input.to) == Change::Unsafe;
                if let Ok(crio) = UnitName::new(CRIO) {
                    self.reload.add(&crio, BTreeSet::from([word]));
                }
            }
            Action::Reboot => self.reboot.push(word),
        }
    }

    fn cost(mut self, verdict: Verdict) -> Cost {
        if !self.reboot.is_empty() {
            let after = PostActions::Reboot { because: self.reboot, uncovered: self.uncovered, verdict };
            return Cost { drain: Drain::Needed, after, services: Vec::new() };
        }
        let drain = if self.drain { Drain::Needed } else { Drain::NotNeeded };
        let by_policy =
            if self.daemon_reload.is_empty() { StepReason::UnitsChanged } else { StepReason::Policy };
        self.daemon_reload.append(&mut self.units_changed);
        // A unit that is restarted needs no reload.
        for (unit, reasons) in &mut self.restart.0 {
            reasons.append(&mut self.reload.take(unit).unwrap_or_default());
        }
        let (trust, restart): (Vec<_>, Vec<_>) =
            self.restart.0.into_iter().partition(|(unit, _)| unit.as_str() == CA_TRUST);
        let action = |action, unit, because: BTreeSet<String>| ServiceAction {
            action,
            unit,
            because: because.into_iter().collect(),
        };
        let mut actions = Vec::new();
        if !self.daemon_reload.is_empty() {
            actions.push(action(ServiceVerb::DaemonReload, None, self.daemon_reload));
        }
        actions.extend(trust.into_iter().map(|(unit, why)| action(ServiceVerb::Restart, Some(unit), why)));
        actions.extend(
            self.reload.0.into_iter().map(|(unit, why)| action(ServiceVerb::Reload, Some(unit), why)),
        );
        actions.extend(restart.into_iter().map(|(unit, why)| action(ServiceVerb::Restart, Some(unit), why)));
        let services = actions.iter().filter_map(|action| service_step(action, by_policy)).collect();
        let after = if actions.is_empty() { PostActions::Nothing } else { PostActions::Services { actions } };
        Cost { drain, after, services }
    }
}

/// Returns the step that carries an action out.
pub(super) fn service_step(action: &ServiceAction, reload_because: StepReason) -> Option<Step> {
    let (op, because) = match action.action {
        ServiceVerb::DaemonReload => (Op::DaemonReload, reload_because),
        ServiceVerb::Reload => (Op::ReloadUnit { unit: action.unit.clone()? }, StepReason::Policy),
        ServiceVerb::Restart => (Op::RestartUnit { unit: action.unit.clone()? }, StepReason::Policy),
    };
    Some(Step { op, because })
}
