//! Stages as the conditions have them: the one under way, and those that may come next.

use super::condition::{ConditionReason, ConditionStatus, ConditionType};
use super::{Lifecycle, Stage};

impl Stage {
    /// Returns the condition of the stage while it is under way.
    pub(super) fn in_progress(self) -> ConditionType {
        match self {
            Self::Idle => ConditionType::Idle,
            Self::Prep => ConditionType::PrepInProgress,
            Self::Upgrade => ConditionType::UpgradeInProgress,
            Self::Rollback => ConditionType::RollbackInProgress,
        }
    }

    /// Returns the condition of its end.
    pub(super) fn completed(self) -> ConditionType {
        match self {
            Self::Idle => ConditionType::Idle,
            Self::Prep => ConditionType::PrepCompleted,
            Self::Upgrade => ConditionType::UpgradeCompleted,
            Self::Rollback => ConditionType::RollbackCompleted,
        }
    }
}

/// The way back to one stateroot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CleanUp {
    /// Of a stage that did not come to its end.
    Abort,
    /// Of one that did.
    Finalize,
}

impl CleanUp {
    pub(super) fn under_way(self) -> (ConditionReason, &'static str) {
        match self {
            Self::Abort => (ConditionReason::Aborting, "Aborting"),
            Self::Finalize => (ConditionReason::Finalizing, "Finalizing"),
        }
    }

    pub(super) fn failed(self) -> ConditionReason {
        match self {
            Self::Abort => ConditionReason::AbortFailed,
            Self::Finalize => ConditionReason::FinalizeFailed,
        }
    }
}

impl Lifecycle {
    /// Returns the way back to one stateroot that is under way, and whether it failed.
    pub(super) fn clean_up(&self) -> Option<(CleanUp, bool)> {
        let idle = self.conditions.find(ConditionType::Idle)?;
        if idle.status == ConditionStatus::True {
            return None;
        }
        match idle.reason {
            ConditionReason::Aborting => Some((CleanUp::Abort, false)),
            ConditionReason::AbortFailed => Some((CleanUp::Abort, true)),
            ConditionReason::Finalizing => Some((CleanUp::Finalize, false)),
            ConditionReason::FinalizeFailed => Some((CleanUp::Finalize, true)),
            ConditionReason::Idle
            | ConditionReason::Completed
            | ConditionReason::Failed
            | ConditionReason::InProgress
            | ConditionReason::InvalidTransition
            | ConditionReason::ConfigurationInProgress
            | ConditionReason::TimedOut
            | ConditionReason::AbortCompleted
            | ConditionReason::FinalizeCompleted
            | ConditionReason::Blocked => None,
        }
    }

    /// Returns the stage that is under way.
    pub fn stage_in_progress(&self) -> Option<Stage> {
        if self.clean_up().is_some() {
            return Some(Stage::Idle);
        }
        let stages = [Stage::Prep, Stage::Upgrade, Stage::Rollback];
        stages.into_iter().find(|stage| self.conditions.is_true(stage.in_progress()))
    }

    pub(super) fn has_completed(&self, stage: Stage) -> bool {
        self.conditions.is_true(stage.completed())
    }

    pub(super) fn has_failed(&self, stage: Stage) -> bool {
        self.conditions.is_false(stage.completed())
    }

    /// Returns true if the desired stage is neither reached, failed nor under way.
    pub(super) fn is_requested(&self, stage: Stage) -> bool {
        let is_over = self.has_completed(stage) || (stage != Stage::Idle && self.has_failed(stage));
        let is_under_way = match stage {
            Stage::Idle => self.clean_up().is_some(),
            Stage::Prep | Stage::Upgrade | Stage::Rollback => self.conditions.is_true(stage.in_progress()),
        };
        !is_over && !is_under_way
    }

    /// Returns the stages that may be desired next (`status.validNextStages`).
    pub fn valid_next_stages(&self, running: &str) -> Vec<Stage> {
        let under_way = self.stage_in_progress();
        if matches!(under_way, Some(Stage::Idle | Stage::Rollback)) || self.has_failed(Stage::Rollback) {
            return Vec::new();
        }
        if under_way == Some(Stage::Prep) || self.has_failed(Stage::Prep) {
            return vec![Stage::Idle];
        }
        if under_way == Some(Stage::Upgrade) || self.has_failed(Stage::Upgrade) {
            return if self.is_after_pivot(running) { vec![Stage::Rollback] } else { vec![Stage::Idle] };
        }
        if self.has_completed(Stage::Rollback) {
            return vec![Stage::Idle];
        }
        if self.has_completed(Stage::Upgrade) {
            return vec![Stage::Idle, Stage::Rollback];
        }
        if self.has_completed(Stage::Prep) {
            return vec![Stage::Idle, Stage::Upgrade];
        }
        if self.has_completed(Stage::Idle) {
            return vec![Stage::Prep];
        }
        match self.conditions.find(ConditionType::Idle) {
            None => vec![Stage::Idle],
            Some(idle) if idle.reason == ConditionReason::Blocked => vec![self.desire.stage],
            Some(_) => Vec::new(),
        }
    }
}
