//! Conditions as lifecycle-agent writes them: the one that changed last is the last of the list, because `kubectl get` shows
//! that one.

use serde::{Deserialize, Serialize};

/// Type of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionType {
    /// Nothing is under way, and no second stateroot is kept.
    Idle,
    /// The stateroot is prepared.
    PrepInProgress,
    /// It was, or could not be.
    PrepCompleted,
    /// The stateroot is activated.
    UpgradeInProgress,
    /// It was, or could not be.
    UpgradeCompleted,
    /// The previous stateroot is activated.
    RollbackInProgress,
    /// It was, or could not be.
    RollbackCompleted,
    /// A seed is made.
    SeedGenInProgress,
    /// It was, or could not be.
    SeedGenCompleted,
}

/// Reason of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are lifecycle-agent's, and say it")]
pub enum ConditionReason {
    Idle,
    Completed,
    Failed,
    InProgress,
    Aborting,
    AbortFailed,
    Finalizing,
    FinalizeFailed,
    InvalidTransition,
    // Written by lifecycle-agent alone; its objects are read.
    ConfigurationInProgress,
    TimedOut,
    AbortCompleted,
    FinalizeCompleted,
    Blocked,
}

/// Status of a condition; one that is unknown is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Kubernetes's")]
pub enum ConditionStatus {
    True,
    False,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Its status.
    pub status: ConditionStatus,
    /// Its reason.
    pub reason: ConditionReason,
    /// Its message.
    #[serde(default)]
    pub message: String,
    /// The generation of the object that it is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of its status.
    pub last_transition_time: String,
}

/// Generation of the object and time of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The generation; 0 where there is no object.
    pub generation: i64,
    /// The time, in RFC 3339.
    pub now: String,
}

/// Longest message; the API takes 32 KiB.
const MAX_MESSAGE_CHARS: usize = 4096;

/// Conditions, the last change last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Takes conditions in their order.
    pub fn new(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }

    /// Returns them in their order.
    pub fn as_slice(&self) -> &[Condition] {
        &self.0
    }

    /// Returns the condition of a type.
    pub fn find(&self, kind: ConditionType) -> Option<&Condition> {
        self.0.iter().find(|one| one.kind == kind)
    }

    /// Returns true if the condition of a type is there and true.
    pub fn is_true(&self, kind: ConditionType) -> bool {
        self.find(kind).is_some_and(|one| one.status == ConditionStatus::True)
    }

    /// Returns true if the condition of a type is there and false.
    pub fn is_false(&self, kind: ConditionType) -> bool {
        self.find(kind).is_some_and(|one| one.status == ConditionStatus::False)
    }

    /// Removes the condition of a type.
    pub fn remove(&mut self, kind: ConditionType) {
        self.0.retain(|one| one.kind != kind);
    }

    /// Sets a condition. One whose status changes goes to the end, as does `Idle` always.
    pub fn set(
        &mut self,
        kind: ConditionType,
        status: ConditionStatus,
        reason: ConditionReason,
        message: &str,
        stamp: &Stamp,
    ) {
        let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
        let moves = self.find(kind).is_some_and(|old| old.status != status || kind == ConditionType::Idle);
        if moves && self.0.last().is_some_and(|last| last.kind != kind) {
            self.remove(kind);
        }
        if let Some(old) = self.0.iter_mut().find(|one| one.kind == kind) {
            if old.status != status {
                old.last_transition_time.clone_from(&stamp.now);
            }
            (old.status, old.reason, old.message) = (status, reason, message);
            old.observed_generation = stamp.generation;
            return;
        }
        self.0.push(Condition {
            kind,
            status,
            reason,
            message,
            observed_generation: stamp.generation,
            last_transition_time: stamp.now.clone(),
        });
    }

    /// Notes that the conditions of these types are about this generation.
    pub fn observe(&mut self, kinds: [ConditionType; 2], generation: i64) {
        for one in self.0.iter_mut().filter(|one| kinds.contains(&one.kind)) {
            one.observed_generation = generation;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(now: &str) -> Stamp {
        Stamp { generation: 1, now: now.to_owned() }
    }

    #[test]
    fn changed_condition_is_last() {
        use ConditionStatus::{False, True};
        let mut all = Conditions::default();
        let kinds = |all: &Conditions| all.as_slice().iter().map(|one| one.kind).collect::<Vec<_>>();
        all.set(ConditionType::Idle, False, ConditionReason::InProgress, "In progress", &stamp("a"));
        all.set(ConditionType::PrepInProgress, True, ConditionReason::InProgress, "In progress", &stamp("b"));
        all.set(ConditionType::PrepInProgress, True, ConditionReason::InProgress, "other", &stamp("c"));
        assert_eq!(all.as_slice()[1].last_transition_time, "b");
        all.set(ConditionType::Idle, False, ConditionReason::Aborting, "Aborting", &stamp("d"));
        assert_eq!(kinds(&all), [ConditionType::PrepInProgress, ConditionType::Idle]);
        let before = all.clone();
        all.set(ConditionType::Idle, False, ConditionReason::Aborting, "Aborting", &stamp("e"));
        assert_eq!(all, before, "the same again changes nothing");
        all.set(ConditionType::PrepInProgress, False, ConditionReason::Failed, "x", &stamp("f"));
        assert_eq!(kinds(&all), [ConditionType::Idle, ConditionType::PrepInProgress]);
    }

    #[test]
    fn json_is_that_of_kubernetes() {
        let mut all = Conditions::default();
        let (kind, status) = (ConditionType::Idle, ConditionStatus::True);
        all.set(kind, status, ConditionReason::Idle, "Idle", &stamp("2026-11-24T09:00:00Z"));
        let json = serde_json::json!([{"type": "Idle", "status": "True", "reason": "Idle", "message": "Idle",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-24T09:00:00Z"}]);
        assert_eq!(serde_json::to_value(&all).unwrap(), json);
        assert_eq!(serde_json::from_value::<Conditions>(json).unwrap(), all);
    }
}
