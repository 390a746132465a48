//! The record of an update: everything the next process needs to know.
//!
//! Invariant: `phase` moves only through [`Record::moved`], along an edge of [`super::phase::next`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::phase::{IllegalTransition, Phase, Transition, next};
use super::reason;
use crate::model::observation::Finalization;
use crate::model::text::chain;
use crate::model::{BootId, FaultClass, ImageRef, Target, Timestamp, UpdateId};
use crate::plan::{Batch, Op, Plan, PostActions, Step, Undo};

/// The newest version that this agent reads and writes. Older ones are read for ever; newer ones are refused.
pub const SCHEMA: u32 = 2;

/// The version of a record without a field that an older agent must not ignore.
const FIRST_SCHEMA: u32 = 1;

/// Fault and its place: kept in the record, so that "where did it break" is never lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Consequence for the node.
    pub class: FaultClass,
    /// The reason, one of a bounded set, for conditions, events and metric labels.
    #[serde(deserialize_with = "reason::read")]
    pub reason: String,
    /// Object and cause. Never a content.
    pub message: String,
    /// The next step.
    pub next: String,
}

impl Fault {
    /// Creates a fault from an error: its text names every cause once.
    pub fn from_error(class: FaultClass, reason: &str, error: &dyn std::error::Error, next: &str) -> Self {
        Self { class, reason: reason.to_owned(), message: chain(error), next: next.to_owned() }
    }
}

impl std::fmt::Display for Fault {
    /// Writes the whole fault for people, in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}. Next: {}", self.reason, self.message, self.next)
    }
}

/// An update in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version that it was read with; it is written with [`Record::needed_schema`].
    pub schema: u32,
    /// The update's id.
    pub id: UpdateId,
    /// The current target when it began; `None` on a host that was never managed.
    pub from: Option<Target>,
    /// Its target.
    pub to: Target,
    /// The decision.
    pub plan: Plan,
    /// Its phase.
    pub phase: Phase,
    /// Batches to undo, once a roll-back began; last batch first.
    #[serde(default)]
    pub undo: Vec<Undo>,
    /// Its fault.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulted: Option<Timestamp>,
    /// The deployment that ran when it began: a failed switch falls back to it.
    #[serde(default)]
    pub origin: Option<String>,
    /// The image of that deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_image: Option<ImageRef>,
    /// The boot in which it was last worked on.
    pub boot_id: BootId,
    /// The boot whose end was left to a person (`apply --no-reboot`): the agent does not end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_left: Option<BootId>,
    /// Requests of the reboot so far.
    #[serde(default)]
    pub reboots: u32,
    /// Requests of the reboot into the previous deployment, of all reboots.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub fallbacks: u32,
    /// The trial of the new deployment, in the boot in which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The staging of its deployment, in the boot in which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Begun>,
    /// The wait for the drain's answer, in the boot in which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<Begun>,
    /// Boots of the new deployment that failed the verification: the loop breaker counts these.
    #[serde(default)]
    pub attempts: u32,
    /// Boots of the old deployment because libostree failed to finalize the new one.
    #[serde(rename = "unfinalised", default, skip_serializing_if = "is_none_yet")]
    pub failed_finalizations: u32,
    /// Boots of the old deployment because a shutdown interrupted the finalization.
    #[serde(rename = "cuts", default, skip_serializing_if = "is_none_yet")]
    pub interrupted_finalizations: u32,
    /// Stagings that another program undid before the reboot.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub dropped: u32,
    /// Set if the node was drained for it.
    #[serde(default)]
    pub drained: bool,
    /// Set if its target is current already, and it runs all the same: an administrator forced it, or it
    /// leads back from an update that ended wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Set if it completes a first boot: its target is only the part of the config that Ignition can't write, so it
    /// is not committed as the whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisioning: bool,
    /// Its awaited object: the drain, and the obstacle to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Its start.
    pub started: Timestamp,
    /// Start of the phase.
    pub since: Timestamp,
    /// Microseconds spent by phase word.
    #[serde(default)]
    pub durations: BTreeMap<String, u64>,
}

impl Record {
    /// Opens the record of a plan.
    pub fn new(id: UpdateId, plan: Plan, boot_id: BootId, origin: Option<String>, now: Timestamp) -> Self {
        Self {
            schema: FIRST_SCHEMA,
            id,
            from: plan.from().cloned(),
            to: plan.to().clone(),
            plan,
            phase: Phase::Planned,
            undo: Vec::new(),
            fault: None,
            faulted: None,
            origin,
            origin_image: None,
            boot_id,
            reboot_left: None,
            reboots: 0,
            fallbacks: 0,
            trial: None,
            staging: None,
            draining: None,
            attempts: 0,
            failed_finalizations: 0,
            interrupted_finalizations: 0,
            dropped: 0,
            drained: false,
            forced: false,
            provisioning: false,
            waiting: None,
            started: now,
            since: now,
            durations: BTreeMap::new(),
        }
    }

    /// Returns the oldest version whose readers know each field that they must not ignore: without these an agent would commit a
    /// part as the whole, end a boot that a person keeps, or drop what was forced.
    pub fn needed_schema(&self) -> u32 {
        let is_more = self.provisioning || self.forced || self.reboot_left.is_some();
        if is_more { SCHEMA } else { FIRST_SCHEMA }
    }

    /// Returns it as it is written.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let schema = self.needed_schema();
        if self.schema == schema {
            return serde_json::to_vec(self);
        }
        serde_json::to_vec(&Self { schema, ..self.clone() })
    }

    /// Sets the contents of its configs: a plan has their names.
    pub fn tell_contents(&mut self, current: Option<&Target>, target: &Target) {
        let current = current.filter(|current| self.from.as_ref() == Some(current));
        let from = self.from.take();
        self.from = from.map(|from| from.with_content(current.and_then(|current| current.content)));
        self.to.content = target.content;
    }

    /// Moves the phase along an edge, and keeps the duration of the old one.
    pub fn moved(&self, event: &Transition, now: Timestamp) -> Result<Self, IllegalTransition> {
        let mut record = self.clone();
        record.phase = next(&self.phase, event)?;
        let spent = u64::try_from(now.since(self.since).as_micros()).unwrap_or(u64::MAX);
        *record.durations.entry(self.phase.as_str().to_owned()).or_default() += spent;
        record.since = now;
        match event {
            Transition::RollBack => {
                record.undo = self.reached().map_or_else(Vec::new, |last| self.plan.undo(last));
            }
            Transition::Reboot { .. } => {
                record.reboots += 1;
                record.fallbacks += u32::from(matches!(self.phase, Phase::FallingBack { .. }));
            }
            Transition::Drain => record.drained = true,
            Transition::Stage
            | Transition::Apply { .. }
            | Transition::BatchDone
            | Transition::Verify
            | Transition::FallBack { .. }
            | Transition::UndoDone => {}
        }
        Ok(record)
    }

    /// Takes a fault, with its time. The same one again is no news.
    pub fn blame(&mut self, fault: Fault, now: Timestamp) {
        if self.fault.as_ref() != Some(&fault) {
            self.fault = Some(fault);
            self.faulted = Some(now);
        }
    }

    /// Counts a boot in which the node came up in its old deployment, once.
    pub fn came_back(&mut self, ended: &Finalization, boot_id: &BootId) {
        if self.boot_id == *boot_id {
            return;
        }
        self.boot_id = boot_id.clone();
        match ended {
            Finalization::Failed { .. } | Finalization::Untold { .. } => self.failed_finalizations += 1,
            Finalization::CutShort => self.interrupted_finalizations += 1,
        }
    }

    /// Returns true if it repairs drift: its config is the one it comes from.
    pub fn is_repair(&self) -> bool {
        self.from.as_ref() == Some(&self.to)
    }

    /// Returns true if everything that was done is undone.
    pub fn is_undone(&self) -> bool {
        matches!(self.phase, Phase::RollingBack { next } if next >= self.undo.len())
    }

    /// Returns true if all is applied, and the reboot was not requested yet.
    pub fn awaits_reboot(&self) -> bool {
        let is_applied = matches!(self.phase, Phase::Applying { next } if self.plan.batch(next).is_none());
        is_applied && matches!(self.plan.after(), PostActions::Reboot { .. })
    }

    /// Returns whether the update stages a deployment, and the image that it should boot.
    pub fn staged_os(&self) -> StagedOs<'_> {
        let os = |op: &&Op| op.batch() == Batch::Os;
        let ops = || self.plan.steps().iter().map(|step| &step.op).filter(os);
        let image = ops().find_map(|op| if let Op::StageOs { image } = op { Some(image) } else { None });
        match image {
            Some(image) => StagedOs::Image(image),
            None if ops().next().is_some() => StagedOs::SameImage,
            None => StagedOs::None,
        }
    }

    /// Returns the number of leading batches of the plan that are staged before the drain: one, or none.
    pub fn first_applied(&self) -> usize {
        usize::from(
            self.plan.batch(0).and_then(<[_]>::first).is_some_and(|step| step.op.batch() == Batch::Os),
        )
    }

    /// Returns the step that is under way, and its place in the plan: the first of its batch.
    pub fn under_way(&self) -> Option<(usize, &Step)> {
        let batch = match self.phase {
            Phase::Staging => 0,
            Phase::Applying { next } => next,
            Phase::Planned
            | Phase::Draining
            | Phase::Rebooting { .. }
            | Phase::Verifying
            | Phase::FallingBack { .. }
            | Phase::RollingBack { .. } => return None,
        };
        let before: usize = self.plan.batches().iter().take(batch).map(|batch| batch.len()).sum();
        self.plan.steps().get(before).map(|step| (before, step))
    }

    /// Returns true if the staged deployment is being dropped.
    pub fn is_unstaging(&self) -> bool {
        matches!(self.phase, Phase::RollingBack { next } if self.undo.get(next) == Some(&Undo::UnstageOs))
    }

    /// Returns the batch that is carried out next or is under way; `None` once all are done.
    pub fn next_batch(&self) -> Option<usize> {
        match &self.phase {
            Phase::Planned | Phase::Staging | Phase::Draining => Some(0),
            Phase::Applying { next } => Some(*next),
            Phase::Rebooting { .. }
            | Phase::Verifying
            | Phase::FallingBack { .. }
            | Phase::RollingBack { .. } => None,
        }
    }

    /// Returns the last batch that may have touched the host; the one under way counts.
    pub fn reached(&self) -> Option<usize> {
        let last = self.plan.batches().len().checked_sub(1)?;
        match &self.phase {
            Phase::Planned => None,
            Phase::Staging | Phase::Draining => self.first_applied().checked_sub(1),
            Phase::Applying { next } => Some(last.min(*next)),
            Phase::Rebooting { .. }
            | Phase::Verifying
            | Phase::FallingBack { .. }
            | Phase::RollingBack { .. } => Some(last),
        }
    }
}

/// Start of a new deployment's health trial. Another boot begins again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The boot.
    pub boot_id: BootId,
    /// The monotonic time then, in microseconds since the start of the machine.
    pub since: u64,
}

/// Start of work that has a limit of its own. Another boot begins again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The boot.
    pub boot_id: BootId,
    /// The monotonic time then, in microseconds since the start of the machine.
    pub since: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

/// Change of the deployments by an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedOs<'a> {
    /// Nothing.
    None,
    /// A new deployment of the image that runs, with other kernel arguments or packages.
    SameImage,
    /// A deployment of this image.
    Image(&'a ImageRef),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Behaviour of an agent that does not know a field.
    #[derive(Debug, PartialEq)]
    enum Older {
        /// Every version has it.
        Knows,
        /// It ignores it, with no more than this.
        Ignores(&'static str),
        /// It must not go on.
        MustNot,
    }

    use Older::{Ignores, Knows, MustNot};

    /// Each field of the record. A new one is given its row here first; [`Record::needed_schema`] follows.
    const FIELDS: [(&str, Older); 29] = [
        ("attempts", Knows),
        ("boot_id", Knows),
        ("cuts", Ignores("counts boots of the old deployment again")),
        ("drained", Knows),
        ("draining", Ignores("a wait for the drain begins again")),
        ("dropped", Ignores("counts dropped deployments again")),
        ("durations", Knows),
        ("fallbacks", Ignores("counts the reboots of a fallback again")),
        ("fault", Knows),
        ("faulted", Ignores("the time of a fault is not reported")),
        ("forced", MustNot),
        ("from", Knows),
        ("id", Knows),
        ("origin", Knows),
        ("origin_image", Ignores("a fallback is known by its deployment alone")),
        ("phase", Knows),
        ("plan", Knows),
        ("provisioning", MustNot),
        ("reboot_left", MustNot),
        ("reboots", Knows),
        ("schema", Knows),
        ("since", Knows),
        ("staging", Ignores("a time limit begins again")),
        ("started", Knows),
        ("to", Knows),
        ("trial", Ignores("a trial begins again")),
        ("undo", Knows),
        ("unfinalised", Ignores("counts failures of libostree again")),
        ("waiting", Ignores("what a drain waits for is not reported")),
    ];

    /// A record with each field.
    fn full() -> Record {
        let text = include_str!("../../../tests/fixtures/records/v1.json");
        let mut record: Record = serde_json::from_str(text).unwrap();
        let begun = Begun { boot_id: record.boot_id.clone(), since: 1 };
        record.blame(Fault::from_error(FaultClass::Retry, "StateLost", &std::fmt::Error, ""), record.since);
        record.origin_image = Some(ImageRef::parse(&format!("r.test/os@sha256:{}", "a".repeat(64))).unwrap());
        (record.reboot_left, record.waiting) = (Some(record.boot_id.clone()), Some("pod".to_owned()));
        record.trial = Some(Trial { boot_id: record.boot_id.clone(), since: 1 });
        (record.staging, record.draining) = (Some(begun.clone()), Some(begun));
        (record.fallbacks, record.failed_finalizations, record.interrupted_finalizations) = (1, 1, 1);
        (record.forced, record.provisioning, record.dropped) = (true, true, 1);
        record
    }

    #[test]
    fn every_field_says_what_an_older_agent_does() {
        let written: serde_json::Value = serde_json::from_slice(&full().to_json().unwrap()).unwrap();
        let keys: Vec<_> = written.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, FIELDS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, older) in &FIELDS {
            if let Ignores(why) = older {
                assert!(!why.is_empty(), "{name}");
            }
        }
    }

    /// A field that an older agent must not ignore raises the version, each by itself; it sinks again without them.
    #[test]
    fn fields_that_must_not_be_ignored_raise_version() {
        let plain =
            Record { forced: false, provisioning: false, reboot_left: None, schema: SCHEMA, ..full() };
        let schema =
            |record: &Record| serde_json::from_slice::<Record>(&record.to_json().unwrap()).unwrap().schema;
        assert_eq!(schema(&plain), FIRST_SCHEMA);
        for (name, _) in FIELDS.iter().filter(|(_, older)| *older == MustNot) {
            let full = full();
            let one = match *name {
                "forced" => Record { forced: true, ..plain.clone() },
                "provisioning" => Record { provisioning: true, ..plain.clone() },
                "reboot_left" => Record { reboot_left: full.reboot_left, ..plain.clone() },
                other => panic!("{other} has no case here"),
            };
            assert_eq!(schema(&one), SCHEMA, "{name}");
        }
    }
}
