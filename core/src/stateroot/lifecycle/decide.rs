//! The next action, and the conditions that say so.

use super::super::{Job, StaterootName, TrialPhase, TrialRules, stateroot_of};
use super::condition::{ConditionReason, ConditionStatus, ConditionType, Stamp};
use super::desire::{Desire, ObservedStateroots, SeedRef, Source, Stage};
use super::stages::CleanUp;
use super::{Lifecycle, MANUAL_CLEANUP};

/// lifecycle-agent's messages, byte for byte.
const IN_PROGRESS: &str = "In progress";
const PREP_COMPLETED: &str = "Prep stage completed successfully";
const ROLLBACK_REQUESTED: &str = "Rollback requested";
const UNCONTROLLED: &str = "Uncontrolled rollback";

/// An action on the verbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleAction {
    /// The seed becomes a stateroot.
    Prepare(SeedRef),
    /// The stateroot is booted, and has to prove itself.
    Activate {
        /// The stateroot.
        stateroot: StaterootName,
        /// The rules.
        trial: TrialRules,
    },
    /// The previous stateroot is booted.
    RollBack {
        /// The stateroot.
        to: String,
    },
    /// The previous stateroot is booted, because the upgrade can't be completed in the new one.
    Return {
        /// The stateroot.
        to: String,
    },
    /// The stateroot runs to which `Upgrade` or `Rollback` led.
    Conclude(Stage),
    /// The stateroots that do not run are removed; missing ones are ignored.
    CleanUp {
        /// That of the seed, if it does not run.
        prepared: Option<StaterootName>,
        /// The seed's image: only what was prepared of it is removed.
        image: String,
        /// The one that was left.
        left: Option<String>,
    },
}

impl LifecycleAction {
    /// Returns the stage that it is of.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Prepare(_) => Stage::Prep,
            Self::Activate { .. } | Self::Return { .. } => Stage::Upgrade,
            Self::RollBack { .. } => Stage::Rollback,
            Self::Conclude(stage) => *stage,
            Self::CleanUp { .. } => Stage::Idle,
        }
    }
}

/// Decides what comes next; a desire that can't be read leaves the last one.
pub fn decide(
    state: &Lifecycle,
    desire: Option<&Desire>,
    observed: &ObservedStateroots,
    now: &str,
) -> (Lifecycle, Option<LifecycleAction>) {
    let mut next = state.clone();
    if let Some(desire) = desire {
        next.desire = desire.clone();
        next.is_copy = false;
    }
    let stamp = next.stamp(now);
    let is_after = next.is_after_pivot(&observed.running);
    let was_cleaned_up = next.desire.is_cleaned_up && !state.desire.is_cleaned_up;
    if next.is_superseded(is_after) {
        next.begin_clean_up(CleanUp::Abort, &stamp);
    } else if next.is_requested(next.desire.stage) {
        next.request(is_after, &observed.running, &stamp);
    }
    let stage = next.desire.stage;
    next.conditions.observe([stage.in_progress(), stage.completed()], stamp.generation);
    let action = next.next_action(is_after, was_cleaned_up, observed, &stamp);
    (next, action)
}

impl Lifecycle {
    /// Returns the state after an action was done.
    #[must_use]
    pub fn done(mut self, action: &LifecycleAction, now: &str) -> Self {
        let stamp = self.stamp(now);
        match action {
            LifecycleAction::Prepare(_) => {
                self.complete(Stage::Prep, "Prep completed", PREP_COMPLETED, &stamp);
            }
            LifecycleAction::Conclude(Stage::Upgrade) => {
                self.complete(Stage::Upgrade, "Upgrade completed", "Upgrade completed", &stamp);
            }
            LifecycleAction::Conclude(_) => {
                self.complete(Stage::Rollback, "Rollback completed", "Rollback completed", &stamp);
            }
            LifecycleAction::CleanUp { .. } => self.reset(&stamp),
            // The boot of the other stateroot is their end.
            LifecycleAction::Activate { .. }
            | LifecycleAction::RollBack { .. }
            | LifecycleAction::Return { .. } => {}
        }
        self
    }

    /// Returns the state after an action failed.
    #[must_use]
    pub fn failed(mut self, action: &LifecycleAction, message: &str, now: &str) -> Self {
        let stamp = self.stamp(now);
        if let LifecycleAction::Conclude(Stage::Upgrade) = action
            && let Some(to) = self.origin.clone().filter(|_| !self.desire.keeps_incomplete)
        {
            (self.returning, self.left_in) = (Some(message.to_owned()), None);
            let message = format!("Returning to the stateroot {to}: {message}");
            return self.progressed(&message, now);
        }
        let returning = self.returning.take().map(|why| format!("{why}; the return failed: {message}"));
        let message = returning.as_deref().unwrap_or(message);
        match (action.stage(), self.clean_up()) {
            (Stage::Idle, Some((way, _))) => {
                let message = format!(
                    "{message} Perform cleanup manually then add '{MANUAL_CLEANUP}' annotation to ibu CR to transition back to Idle"
                );
                let (kind, status) = (ConditionType::Idle, ConditionStatus::False);
                self.conditions.set(kind, status, way.failed(), &message, &stamp);
            }
            (Stage::Idle, None) => {}
            (stage @ (Stage::Prep | Stage::Upgrade | Stage::Rollback), _) => {
                self.fail(stage, message, &stamp);
            }
        }
        self
    }

    /// Returns the state with the progress of the stage under way.
    #[must_use]
    pub fn progressed(mut self, message: &str, now: &str) -> Self {
        let stamp = self.stamp(now);
        let stage = self.stage_in_progress();
        if let Some(stage @ (Stage::Prep | Stage::Upgrade | Stage::Rollback)) = stage {
            self.conditions.set(
                stage.in_progress(),
                ConditionStatus::True,
                ConditionReason::InProgress,
                message,
                &stamp,
            );
        }
        self
    }

    /// Returns true if a desire names another seed than that of the work under way, which can still be undone.
    fn is_superseded(&self, is_after: bool) -> bool {
        let Some(seed) = &self.seed else { return false };
        let is_other = !self.desire.seed.image.is_empty() && self.desire.seed != *seed;
        let is_forward = matches!(self.desire.stage, Stage::Prep | Stage::Upgrade);
        let can_undo = self.clean_up().is_none()
            && self
                .conditions
                .find(ConditionType::RollbackInProgress)
                .is_none_or(|one| one.reason == ConditionReason::InvalidTransition);
        !is_after && is_forward && is_other && can_undo
    }

    fn request(&mut self, is_after: bool, running: &str, stamp: &Stamp) {
        let stage = self.desire.stage;
        if !self.valid_next_stages(running).contains(&stage) {
            let message = self.refusal(is_after);
            self.refuse(message, stamp);
            return;
        }
        if stage == Stage::Idle && is_after && self.is_of_another_host() {
            self.refuse(
                "The file does not name the version that runs; name it to finalize the upgrade",
                stamp,
            );
            return;
        }
        self.clear_refusals(stamp);
        match stage {
            Stage::Prep => {
                let (kind, status) = (ConditionType::Idle, ConditionStatus::False);
                self.conditions.set(kind, status, ConditionReason::InProgress, IN_PROGRESS, stamp);
                self.begin(stage, stamp);
                (self.seed, self.origin) = (Some(self.desire.seed.clone()), Some(running.to_owned()));
            }
            Stage::Upgrade => self.begin(stage, stamp),
            Stage::Rollback => {
                for kind in [Stage::Upgrade.completed(), Stage::Upgrade.in_progress()] {
                    let status = ConditionStatus::False;
                    self.conditions.set(kind, status, ConditionReason::Failed, ROLLBACK_REQUESTED, stamp);
                }
                self.begin(stage, stamp);
            }
            Stage::Idle => match self.way_to_idle(is_after) {
                Some(way) => self.begin_clean_up(way, stamp),
                None if self.conditions.find(ConditionType::Idle).is_none() => self.reset(stamp),
                None => {}
            },
        }
    }

    fn begin(&mut self, stage: Stage, stamp: &Stamp) {
        (self.left_in, self.returning) = (None, None);
        self.conditions.set(
            stage.in_progress(),
            ConditionStatus::True,
            ConditionReason::InProgress,
            IN_PROGRESS,
            stamp,
        );
    }

    fn begin_clean_up(&mut self, way: CleanUp, stamp: &Stamp) {
        let (reason, message) = way.under_way();
        self.conditions.set(ConditionType::Idle, ConditionStatus::False, reason, message, stamp);
    }

    fn is_of_another_host(&self) -> bool {
        let runs = self.seed.as_ref().map(|seed| &seed.version);
        self.desire.source == Source::File && runs != Some(&self.desire.seed.version)
    }

    fn way_to_idle(&self, is_after: bool) -> Option<CleanUp> {
        if self.has_completed(Stage::Upgrade) || self.has_completed(Stage::Rollback) {
            return Some(CleanUp::Finalize);
        }
        let rolls_back = self
            .conditions
            .find(ConditionType::RollbackInProgress)
            .is_some_and(|one| one.reason != ConditionReason::InvalidTransition);
        let is_busy = self.conditions.is_false(ConditionType::Idle);
        (is_busy && !is_after && !rolls_back).then_some(CleanUp::Abort)
    }

    /// Returns lifecycle-agent's refusal of the desired stage.
    fn refusal(&self, is_after: bool) -> &'static str {
        match self.desire.stage {
            Stage::Prep | Stage::Upgrade => "Previous stage not succeeded",
            Stage::Rollback => "Upgrade not started or already finalized",
            Stage::Idle if self.has_failed(Stage::Rollback) => {
                "Transition to Idle not allowed - Rollback failed"
            }
            Stage::Idle if is_after && self.conditions.is_true(ConditionType::RollbackInProgress) => {
                "Transition to Idle not allowed - Rollback is in progress"
            }
            Stage::Idle if is_after => "Transition to Idle not allowed - Rollback first",
            Stage::Idle => "Abort or finalize not allowed",
        }
    }

    fn refuse(&mut self, message: &str, stamp: &Stamp) {
        let (kind, status) = (self.desire.stage.in_progress(), ConditionStatus::False);
        self.conditions.set(kind, status, ConditionReason::InvalidTransition, message, stamp);
    }

    fn clear_refusals(&mut self, stamp: &Stamp) {
        for stage in [Stage::Idle, Stage::Prep, Stage::Upgrade, Stage::Rollback] {
            let kind = stage.in_progress();
            let is_refused = self
                .conditions
                .find(kind)
                .is_some_and(|one| one.reason == ConditionReason::InvalidTransition);
            if is_refused && stage == Stage::Idle {
                self.conditions.set(
                    kind,
                    ConditionStatus::False,
                    ConditionReason::InProgress,
                    IN_PROGRESS,
                    stamp,
                );
            } else if is_refused {
                self.conditions.remove(kind);
            }
        }
    }

    fn next_action(
        &mut self,
        is_after: bool,
        was_cleaned_up: bool,
        observed: &ObservedStateroots,
        stamp: &Stamp,
    ) -> Option<LifecycleAction> {
        match self.stage_in_progress()? {
            Stage::Idle => {
                let (way, has_failed) = self.clean_up()?;
                if has_failed && !was_cleaned_up {
                    return None;
                }
                self.begin_clean_up(way, stamp);
                let prepared = self.target().filter(|target| target.as_str() != observed.running);
                let left = self.origin.clone().filter(|origin| *origin != observed.running);
                let image = self.seed.as_ref().map(|seed| seed.image.clone()).unwrap_or_default();
                Some(LifecycleAction::CleanUp { prepared, image, left })
            }
            Stage::Prep => Some(LifecycleAction::Prepare(self.seed.clone()?)),
            Stage::Upgrade if is_after => self.after_pivot(observed, stamp),
            Stage::Upgrade => self.before_pivot(observed, stamp),
            Stage::Rollback if is_after => self.way_back(observed, stamp),
            Stage::Rollback => (!is_ending(observed)).then_some(LifecycleAction::Conclude(Stage::Rollback)),
        }
    }

    fn before_pivot(&mut self, observed: &ObservedStateroots, stamp: &Stamp) -> Option<LifecycleAction> {
        let target = self.target()?;
        if self.returning.is_none() && self.can_leave(target.as_str(), observed) {
            return Some(LifecycleAction::Activate { stateroot: target, trial: self.desire.trial.clone() });
        }
        if is_ending(observed) {
            return None;
        }
        let of_target = |deployment: &str| stateroot_of(deployment) == target.as_str();
        let left = observed.returned.as_ref().filter(|left| of_target(&left.deployment));
        let why = self.returning.take().or_else(|| left.map(|left| left.fault.message.clone()));
        self.fail(Stage::Upgrade, why.as_deref().unwrap_or(UNCONTROLLED), stamp);
        None
    }

    fn after_pivot(&mut self, observed: &ObservedStateroots, stamp: &Stamp) -> Option<LifecycleAction> {
        if let (Some(why), Some(to)) = (self.returning.clone(), self.origin.clone()) {
            if self.can_leave(&to, observed) {
                return Some(LifecycleAction::Return { to });
            }
            if !is_ending(observed) {
                self.returning = None;
                self.fail(Stage::Upgrade, &format!("{why}; the stateroot {to} did not boot"), stamp);
            }
            return None;
        }
        match observed.trial.as_ref().map(|trial| &trial.phase) {
            None | Some(TrialPhase::Passed) => Some(LifecycleAction::Conclude(Stage::Upgrade)),
            Some(TrialPhase::Failed { fault }) => {
                self.fail(Stage::Upgrade, &fault.message, stamp);
                None
            }
            Some(TrialPhase::Armed | TrialPhase::Running { .. } | TrialPhase::Returning { .. }) => None,
        }
    }

    fn way_back(&mut self, observed: &ObservedStateroots, stamp: &Stamp) -> Option<LifecycleAction> {
        let previous = observed.trial.as_ref().map(|trial| stateroot_of(&trial.previous).to_owned());
        let Some(to) = self.origin.clone().or(previous) else {
            self.fail(Stage::Rollback, "No stateroot is known to go back to", stamp);
            return None;
        };
        if self.can_leave(&to, observed) {
            return Some(LifecycleAction::RollBack { to });
        }
        if !is_ending(observed) {
            self.fail(Stage::Rollback, &format!("The stateroot {to} did not boot"), stamp);
        }
        None
    }

    /// Returns true if no boot has ended the way into a stateroot: it was not begun, or was cut short before that stateroot was
    /// the next to boot.
    fn can_leave(&self, to: &str, observed: &ObservedStateroots) -> bool {
        let is_open = matches!(&observed.open, Some((Job::Activate { stateroot, .. }, false)) if stateroot.as_str() == to);
        is_open || self.left_in.as_ref().is_none_or(|boot| *boot == observed.boot_id)
    }

    fn complete(&mut self, stage: Stage, message: &str, completed: &str, stamp: &Stamp) {
        let reason = ConditionReason::Completed;
        self.conditions.set(stage.in_progress(), ConditionStatus::False, reason, message, stamp);
        self.conditions.set(stage.completed(), ConditionStatus::True, reason, completed, stamp);
    }

    fn fail(&mut self, stage: Stage, message: &str, stamp: &Stamp) {
        let (reason, status) = (ConditionReason::Failed, ConditionStatus::False);
        self.conditions.set(stage.completed(), status, reason, &format!("{} failed", stage.as_str()), stamp);
        self.conditions.set(stage.in_progress(), status, reason, message, stamp);
    }
}

/// Returns true if this boot has yet to close the record of the reboot before it.
fn is_ending(observed: &ObservedStateroots) -> bool {
    observed.open.as_ref().is_some_and(|(_, has_ended)| *has_ended)
}
