//! The MachineConfigNode's conditions: which ones a phase has reached. One table (`model-codebases.md` D5).

use serde::{Deserialize, Serialize};

use super::State;
use crate::plan::{Batch, Drain, Plan};
use crate::update::{Fault, Phase, Record};

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Reached.
    True,
    /// Not reached, or not needed.
    False,
    /// Under way.
    Unknown,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its type, as in the MachineConfigNode API.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: Status,
    /// A bounded word, never empty.
    pub reason: String,
    /// What a person reads, never empty.
    pub message: String,
}

/// The conditions in the order an update reaches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Prepared,
    ImagePulled,
    Drained,
    Files,
    OsImage,
    PostAction,
    Rebooted,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Prepared,
        Self::ImagePulled,
        Self::Drained,
        Self::Files,
        Self::OsImage,
        Self::PostAction,
        Self::Rebooted,
    ];

    fn kind(self) -> &'static str {
        match self {
            Self::Prepared => "UpdatePrepared",
            Self::ImagePulled => "ImagePulledFromRegistry",
            Self::Drained => "Drained",
            Self::Files => "AppliedFiles",
            Self::OsImage => "AppliedOSImage",
            Self::PostAction => "UpdatePostActionComplete",
            Self::Rebooted => "RebootedNode",
        }
    }

    /// Says whether a plan has such work at all.
    fn in_plan(self, plan: &Plan) -> bool {
        let has = |batch: Batch| plan.steps().iter().any(|step| step.op.batch() == batch);
        match self {
            Self::Prepared => true,
            Self::ImagePulled | Self::OsImage => has(Batch::Os),
            Self::Drained => plan.drain() == Drain::Needed,
            Self::Files => has(Batch::Files) || has(Batch::Users) || has(Batch::Links),
            Self::PostAction => has(Batch::Services),
            Self::Rebooted => matches!(plan.after(), crate::plan::After::Reboot { .. }),
        }
    }
}

/// Returns the conditions of the node's state and phase.
pub(super) fn conditions(record: Option<&Record>, fault: Option<&Fault>, state: State) -> Vec<Condition> {
    let mut list: Vec<Condition> = record.map(in_update).unwrap_or_default();
    let updated = if record.is_none() && state == State::Done { Status::True } else { Status::False };
    list.push(condition("Updated", updated, "Updated", &format!("the node is {state:?}")));
    list.push(match fault {
        Some(fault) => condition("NodeDegraded", Status::True, &fault.reason, &fault.message),
        None => condition("NodeDegraded", Status::False, "AsExpected", "nothing is wrong"),
    });
    list
}

fn in_update(record: &Record) -> Vec<Condition> {
    let applied = record.first_applied();
    let (reached, under_way) = match &record.phase {
        Phase::Planned => (None, Stage::Prepared),
        Phase::Staging => (Some(Stage::Prepared), Stage::ImagePulled),
        Phase::Draining => (Some(Stage::ImagePulled), Stage::Drained),
        Phase::Applying { next } if services(record, *next) => (Some(Stage::OsImage), Stage::PostAction),
        Phase::Applying { next } if *next <= applied => (Some(Stage::Drained), Stage::Files),
        Phase::Applying { .. } => (Some(Stage::Drained), Stage::OsImage),
        Phase::Rebooting { .. } => (Some(Stage::PostAction), Stage::Rebooted),
        Phase::Verifying | Phase::RollingBack { .. } => (Some(Stage::Rebooted), Stage::Rebooted),
    };
    Stage::ALL
        .into_iter()
        .filter(|stage| stage.in_plan(&record.plan))
        .map(|stage| {
            let status = if Some(stage) <= reached {
                Status::True
            } else if stage == under_way {
                Status::Unknown
            } else {
                Status::False
            };
            let message = format!("update to {}: {}", record.to.config, words(status));
            condition(stage.kind(), status, stage.kind(), &message)
        })
        .collect()
}

fn services(record: &Record, next: usize) -> bool {
    record.plan.batch(next).and_then(<[_]>::first).is_some_and(|step| step.op.batch() == Batch::Services)
}

fn words(status: Status) -> &'static str {
    match status {
        Status::True => "done",
        Status::False => "not yet",
        Status::Unknown => "under way",
    }
}

fn condition(kind: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.to_owned() }
}
