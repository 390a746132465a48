//! The MachineConfigNode's conditions: the table of all, and those that a phase has reached.
//!
//! Level-triggered: each is read off the record as it is now, so an agent that comes late reports no less. With a record
//! the list is complete; without one it holds the conditions known then, and the rest keeps its last reported value.
//! The fine form is projected, with `AppliedFiles` and `AppliedOSImage` apart; a control plane that has one condition
//! for both joins them.

use serde::{Deserialize, Serialize};

use super::{LoopState, MAX_REASON_LENGTH, NodeState, reason};
use crate::model::NotApplied;
use crate::model::text::listed;
use crate::plan::{Batch, Drain, Plan, PostActions, ServiceVerb, Undo};
use crate::update::{Fault, Phase, Record};

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Reached.
    True,
    /// Not reached, or not needed.
    False,
    /// Under way, or broken off.
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
    /// Reason, never empty.
    pub reason: String,
    /// Message for people, never empty.
    pub message: String,
}

/// Occasions on which a MachineConfigNode's condition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionGroup {
    /// Each update passes it, and its end resets it.
    Update,
    /// As `Update`, in CRDs that have files and OS in one condition.
    Joint,
    /// As `Update`, in CRDs that have files, OS and pull apart.
    Split,
    /// The cordon, which the drain controller or the agent reports.
    Cordon,
    /// The node, with and without an update.
    Node,
    /// Pinned images, beside the updates.
    Pinned,
}

/// All conditions of a MachineConfigNode. A condition of a new group needs its rule in the control plane.
pub const CONDITIONS: [(&str, ConditionGroup); 18] = [
    ("UpdatePrepared", ConditionGroup::Update),
    ("UpdateExecuted", ConditionGroup::Update),
    ("UpdatePostActionComplete", ConditionGroup::Update),
    ("UpdateComplete", ConditionGroup::Update),
    ("Resumed", ConditionGroup::Update),
    ("Drained", ConditionGroup::Update),
    ("RebootedNode", ConditionGroup::Update),
    ("AppliedFilesAndOS", ConditionGroup::Joint),
    ("AppliedFiles", ConditionGroup::Split),
    ("AppliedOSImage", ConditionGroup::Split),
    ("ImagePulledFromRegistry", ConditionGroup::Split),
    ("Cordoned", ConditionGroup::Cordon),
    ("Uncordoned", ConditionGroup::Cordon),
    ("Updated", ConditionGroup::Node),
    ("NodeDegraded", ConditionGroup::Node),
    ("FieldsNotApplied", ConditionGroup::Node),
    ("PinnedImageSetsProgressing", ConditionGroup::Pinned),
    ("PinnedImageSetsDegraded", ConditionGroup::Pinned),
];

/// The reason of a stage that has not been reached, as MCD's.
pub const NOT_YET: &str = "NotYetOccurred";

/// Returns the condition of a phase that was not entered yet, as MCD's.
pub fn not_yet(kind: &str) -> Condition {
    let message = format!("This node has not yet entered the {kind} phase");
    condition(kind, Status::False, NOT_YET, &message)
}

/// Stage of an update, in this order.
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

    /// A child's reason names its parent too; a parent's names the child it stands at.
    fn reason(self, plan: &Plan) -> String {
        match self {
            Self::Prepared => self.kind().to_owned(),
            Self::ImagePulled | Self::Drained | Self::Files | Self::OsImage => {
                format!("UpdateExecuted{}", self.kind())
            }
            Self::Rebooted => format!("UpdatePostActionComplete{}", self.kind()),
            Self::PostAction => match plan.after() {
                PostActions::Reboot { .. } => Self::Rebooted.kind().to_owned(),
                PostActions::Services { .. } => self.kind().to_owned(),
                PostActions::Nothing => "None".to_owned(),
            },
        }
    }

    /// Returns true if a plan has such work at all. Every update passes its parents, and all but the OS counts as
    /// files.
    fn in_plan(self, plan: &Plan) -> bool {
        let has = |desired: fn(Batch) -> bool| plan.steps().iter().any(|step| desired(step.op.batch()));
        match self {
            Self::Prepared | Self::PostAction => true,
            Self::ImagePulled | Self::OsImage => has(is_os),
            Self::Drained => plan.drain() == Drain::Needed,
            Self::Files => has(is_content) || !has(is_os),
            Self::Rebooted => matches!(plan.after(), PostActions::Reboot { .. }),
        }
    }
}

fn is_os(batch: Batch) -> bool {
    batch == Batch::Os
}

fn is_content(batch: Batch) -> bool {
    match batch {
        Batch::Accounts | Batch::Files | Batch::Users | Batch::Links | Batch::Directories => true,
        Batch::Os | Batch::Services => false,
    }
}

/// Returns the conditions of the node's state and phase. The first fault is the obstacle of the target, the
/// second one the node's, which a reconciler may have, too.
pub(super) fn conditions(
    record: Option<&Record>,
    health: &LoopState,
    [own, fault]: [Option<&Fault>; 2],
    state: NodeState,
) -> Vec<Condition> {
    let mut list = match record {
        Some(record) => in_update(record, health, own),
        None => at_rest(health, own),
    };
    let updated = if record.is_none() && state == NodeState::Done { Status::True } else { Status::False };
    list.push(condition("Updated", updated, "Updated", &format!("the node is {state:?}")));
    list.push(match fault {
        Some(fault) => condition("NodeDegraded", Status::True, &fault.reason, &reason(fault)),
        None => condition("NodeDegraded", Status::False, "NodeDegraded", "no fault"),
    });
    list.push(fields_not_applied(&health.not_applied_now(record)));
    list
}

/// Names the fields of the config that the host does not get.
fn fields_not_applied(list: &[NotApplied]) -> Condition {
    let kind = "FieldsNotApplied";
    let Some(first) = list.first() else {
        return condition(kind, Status::False, kind, "every field of the config is applied");
    };
    let message = listed(list, MAX_REASON_LENGTH);
    condition(kind, Status::True, first.because.condition_reason(), &message)
}

/// Without an update: why none was begun, or the progress of the uncordon.
fn at_rest(health: &LoopState, fault: Option<&Fault>) -> Vec<Condition> {
    let Some(desired) = &health.desired else { return Vec::new() };
    let config = &desired.config;
    if health.current.as_ref() != Some(desired) {
        let unprepared =
            |fault| condition("UpdatePrepared", Status::Unknown, "UpdatePrepared", &reason(fault));
        return fault.map(unprepared).into_iter().collect();
    }
    let Some(waiting) = &health.waiting else { return Vec::new() };
    vec![
        condition("Resumed", Status::True, "Resumed", &format!("the node runs {config}")),
        condition("UpdateComplete", Status::Unknown, "Uncordoned", &format!("update to {config}: {waiting}")),
    ]
}

/// Progress of a record.
struct Reached<'a> {
    record: &'a Record,
    /// Obstacle to the present stage.
    why: Option<String>,
    /// All up to this stage is done.
    done: Stage,
    /// These are under way, or were broken off.
    open: Vec<Stage>,
}

fn in_update(record: &Record, health: &LoopState, fault: Option<&Fault>) -> Vec<Condition> {
    let (done, open) = reached(record);
    let draining = health.waiting.as_ref().filter(|_| record.phase == Phase::Draining);
    let why = fault.map(reason).or_else(|| draining.cloned());
    let reached = Reached { record, why, done, open };
    let mut list = Vec::new();
    for stage in Stage::ALL {
        list.push(reached.condition(stage));
        if stage == Stage::ImagePulled {
            list.push(reached.executed());
        }
    }
    list.extend(["Resumed", "UpdateComplete"].map(not_yet));
    list
}

/// The table: finished and open stages.
fn reached(record: &Record) -> (Stage, Vec<Stage>) {
    let left = |desired: fn(Batch) -> bool, from: usize| {
        let left = record.plan.batches().into_iter().skip(from).filter_map(<[_]>::first);
        left.map(|step| step.op.batch()).any(desired)
    };
    match &record.phase {
        Phase::Planned | Phase::Staging => (Stage::Prepared, next_of(Stage::Prepared, &record.plan)),
        Phase::Draining => (Stage::ImagePulled, vec![Stage::Drained]),
        Phase::Applying { next } if left(is_content, *next) || left(is_os, *next) => {
            (Stage::Drained, vec![Stage::Files, Stage::OsImage])
        }
        Phase::Applying { next } => match record.plan.after() {
            PostActions::Services { .. } if record.plan.batch(*next).is_some() => {
                (Stage::OsImage, vec![Stage::PostAction])
            }
            PostActions::Reboot { .. } => (Stage::OsImage, vec![Stage::PostAction]),
            PostActions::Services { .. } | PostActions::Nothing => (Stage::PostAction, Vec::new()),
        },
        // Back into the previous deployment: it comes up again.
        Phase::Rebooting { .. } | Phase::FallingBack { .. } => {
            (Stage::OsImage, vec![Stage::PostAction, Stage::Rebooted])
        }
        Phase::Verifying => (Stage::Rebooted, Vec::new()),
        Phase::RollingBack { .. } => broken_off(record),
    }
}

/// The stage that a plan goes to first.
fn next_of(done: Stage, plan: &Plan) -> Vec<Stage> {
    let next = Stage::ALL.into_iter().find(|stage| *stage > done && stage.in_plan(plan));
    next.into_iter().collect()
}

/// Returns the stages of an undone update: an undone stage is neither done nor untouched.
fn broken_off(record: &Record) -> (Stage, Vec<Stage>) {
    let touched = |desired: fn(&Undo) -> bool| record.undo.iter().any(desired);
    let mut open = Vec::new();
    if touched(|undo| matches!(undo, Undo::RestoreOriginals { .. })) {
        open.push(Stage::Files);
    }
    if touched(|undo| matches!(undo, Undo::UnstageOs)) {
        open.push(Stage::OsImage);
    }
    if touched(|undo| matches!(undo, Undo::RepeatServices { .. })) {
        open.push(Stage::PostAction);
    }
    if record.drained {
        return (Stage::Drained, open);
    }
    // Files are touched after the pull only; without any, the pull itself may have failed.
    if open == [Stage::OsImage] {
        open.insert(0, Stage::ImagePulled);
        return (Stage::Prepared, open);
    }
    (Stage::ImagePulled, open)
}

impl Reached<'_> {
    fn status(&self, stage: Stage) -> Status {
        let drained = stage != Stage::Drained || self.record.drained;
        if !stage.in_plan(&self.record.plan) {
            Status::False
        } else if self.open.contains(&stage) {
            Status::Unknown
        } else if stage <= self.done && drained {
            Status::True
        } else {
            Status::False
        }
    }

    fn condition(&self, stage: Stage) -> Condition {
        let plan = &self.record.plan;
        let status = self.status(stage);
        if status == Status::False && !(stage == Stage::Drained && self.past_drain()) {
            return not_yet(stage.kind());
        }
        condition(stage.kind(), status, &stage.reason(plan), &self.message(stage, status))
    }

    /// Returns true if the update continued without a drain.
    fn past_drain(&self) -> bool {
        self.record.plan.drain() == Drain::NotNeeded || self.done >= Stage::Drained
    }

    fn message(&self, stage: Stage, status: Status) -> String {
        let plan = &self.record.plan;
        match (stage, status) {
            (Stage::Prepared, Status::True) => format!(
                "Update Compatible. Post Cfg Actions: [{}] Drain Required: {}",
                actions(plan.after()),
                plan.drain() == Drain::Needed
            ),
            (Stage::Drained, Status::False) => format!("update to {}: not drained", self.record.to.config),
            _ => self.words(status),
        }
    }

    fn words(&self, status: Status) -> String {
        let config = &self.record.to.config;
        match (status, &self.why) {
            (Status::True, _) => format!("update to {config}: done"),
            (Status::Unknown, Some(why)) => format!("update to {config}: {why}"),
            (Status::Unknown, None) if matches!(self.record.phase, Phase::RollingBack { .. }) => {
                format!("update to {config}: undone")
            }
            (Status::Unknown, None) => format!("update to {config}: under way"),
            (Status::False, _) => format!("update to {config}: not yet"),
        }
    }

    /// The parent of the drain and of the applied parts.
    fn executed(&self) -> Condition {
        let kind = "UpdateExecuted";
        let plan = &self.record.plan;
        let children = [Stage::Drained, Stage::Files, Stage::OsImage];
        let last = children.into_iter().rfind(|stage| stage.in_plan(plan)).unwrap_or(Stage::Files);
        if self.done >= Stage::OsImage {
            return condition(kind, Status::True, last.kind(), &self.words(Status::True));
        }
        let under_way = children.into_iter().find(|stage| self.status(*stage) == Status::Unknown);
        match under_way.or((self.done == Stage::Drained).then_some(last)) {
            Some(stage) => condition(kind, Status::Unknown, stage.kind(), &self.words(Status::Unknown)),
            None => not_yet(kind),
        }
    }
}

/// Lists the actions after the steps, in the words of the disruption policy.
fn actions(after: &PostActions) -> String {
    match after {
        PostActions::Nothing => "None".to_owned(),
        PostActions::Reboot { .. } => "Reboot".to_owned(),
        PostActions::Services { actions } => {
            let word = |verb| match verb {
                ServiceVerb::DaemonReload => "DaemonReload",
                ServiceVerb::Reload => "Reload",
                ServiceVerb::Restart => "Restart",
            };
            let one = |action: &crate::plan::ServiceAction| match &action.unit {
                Some(unit) => format!("{} {unit}", word(action.action)),
                None => word(action.action).to_owned(),
            };
            actions.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

fn condition(kind: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.to_owned() }
}
