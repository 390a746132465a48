//! The life of one piece of work on a stateroot: its steps, its record, and what comes next.
//!
//! It is a record of its own beside that of an update: a stateroot that is prepared changes nothing of the committed config,
//! and an update may begin meanwhile. Work that was cut short goes on when it is requested again; when something else is
//! requested, it is undone first. A removal is not undone but ended.

use serde::{Deserialize, Serialize};

use super::{Job, StaterootStep};
use crate::model::{BootId, Timestamp, UpdateId};
use crate::update::Fault;

/// The version this agent writes.
pub const STATEROOT_SCHEMA: u32 = 1;

/// Phase of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum StaterootPhase {
    /// The step `next` is being carried out, or is the next to be; at the end of the steps all is done.
    Applying {
        /// The step, by its place.
        next: usize,
    },
    /// The steps are being undone.
    RollingBack,
    /// All of it was taken back.
    Undone,
}

/// Findings of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The images to have before the new system runs.
    #[serde(default)]
    pub containers: Vec<String>,
    /// The new deployment.
    #[serde(default)]
    pub deployment: Option<String>,
}

/// A piece of work in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaterootRecord {
    /// The version of this shape.
    pub schema: u32,
    /// Its id.
    pub id: UpdateId,
    /// The requested work.
    pub job: Job,
    /// Its phase.
    pub phase: StaterootPhase,
    /// Findings of its steps.
    #[serde(default)]
    pub findings: Findings,
    /// The last failure.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// The boot in which it was last worked on: what is fetched is good for one.
    pub boot_id: BootId,
    /// When it began.
    pub started: Timestamp,
}

/// Next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaterootAction {
    /// The record is opened.
    Begin,
    /// The first step is the next one again, in this boot.
    Restart,
    /// The step is carried out.
    Step(StaterootStep),
    /// The steps are to be undone.
    RollBack,
    /// The record is closed; with `ours` that was the requested one.
    Close {
        /// The requested work ends with it.
        ours: bool,
    },
}

impl StaterootRecord {
    /// Opens a record.
    pub fn new(id: UpdateId, job: Job, boot_id: BootId, now: Timestamp) -> Self {
        Self {
            schema: STATEROOT_SCHEMA,
            id,
            job,
            phase: StaterootPhase::Applying { next: 0 },
            findings: Findings::default(),
            fault: None,
            boot_id,
            started: now,
        }
    }

    /// Returns the step that is under way, or is the next to be.
    pub fn step(&self) -> Option<StaterootStep> {
        match self.phase {
            StaterootPhase::Applying { next } => self.job.steps().get(next).copied(),
            StaterootPhase::RollingBack => self.job.undo(),
            StaterootPhase::Undone => None,
        }
    }

    /// Returns true if it is an activation of an earlier boot, and this stateroot runs again.
    pub fn came_back(&self, boot_id: &BootId) -> bool {
        let is_on = matches!(self.phase, StaterootPhase::Applying { .. });
        is_on && matches!(self.job, Job::Activate { .. }) && self.boot_id != *boot_id
    }

    /// Returns true if this activation has made its deployment the next one to boot; `next` is the one that boots next now. One
    /// that has not was cut short, and is resumed by whoever requests it again.
    pub fn has_left(&self, next: &str) -> bool {
        match (&self.job, self.step()) {
            (Job::Activate { deployment, .. }, Some(StaterootStep::ArmTrial | StaterootStep::SetDefault)) => {
                deployment == next
            }
            (Job::Activate { .. } | Job::Prepare { .. } | Job::Remove { .. }, _) => true,
        }
    }

    /// Returns true if it can still be taken back.
    pub fn can_roll_back(&self) -> bool {
        self.job.undo().is_some() && matches!(self.phase, StaterootPhase::Applying { .. })
    }

    /// Returns true if all of it was taken back.
    pub fn is_undone(&self) -> bool {
        self.phase == StaterootPhase::Undone
    }

    /// Returns the record after its step was done.
    #[must_use]
    pub fn stepped(mut self, found: Findings) -> Self {
        self.phase = match self.phase {
            StaterootPhase::Applying { next } => StaterootPhase::Applying { next: next + 1 },
            StaterootPhase::RollingBack | StaterootPhase::Undone => StaterootPhase::Undone,
        };
        if !found.containers.is_empty() {
            self.findings.containers = found.containers;
        }
        self.findings.deployment = found.deployment.or(self.findings.deployment);
        self
    }

    /// Returns the record on its way back. A removal has none.
    #[must_use]
    pub fn rolled_back(mut self, fault: Option<Fault>) -> Self {
        if self.can_roll_back() {
            self.phase = StaterootPhase::RollingBack;
        }
        self.fault = fault.or(self.fault);
        self
    }

    /// Returns the record at its beginning, in another boot.
    #[must_use]
    pub fn restarted(mut self, boot_id: BootId) -> Self {
        if let StaterootPhase::Applying { .. } = self.phase {
            self.phase = StaterootPhase::Applying { next: 0 };
        }
        self.boot_id = boot_id;
        self
    }
}

/// Decides what comes next.
pub fn next_action(record: Option<&StaterootRecord>, requested: &Job, boot_id: &BootId) -> StaterootAction {
    let Some(record) = record else { return StaterootAction::Begin };
    let ours = record.job == *requested;
    let has_begun = record.step().is_some();
    match record.phase {
        // A boot ends it: whatever is requested is requested again.
        StaterootPhase::Applying { .. } if record.came_back(boot_id) => {
            StaterootAction::Close { ours: false }
        }
        StaterootPhase::Applying { .. } if !ours && has_begun && record.can_roll_back() => {
            StaterootAction::RollBack
        }
        StaterootPhase::Applying { .. } if has_begun && record.boot_id != *boot_id => {
            StaterootAction::Restart
        }
        // One that was undone without a fault made room for something else.
        StaterootPhase::Undone => StaterootAction::Close { ours: ours && record.fault.is_some() },
        StaterootPhase::Applying { .. } | StaterootPhase::RollingBack => {
            record.step().map_or(StaterootAction::Close { ours }, StaterootAction::Step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FaultClass, ImageRef};
    use crate::stateroot::{Layout, StaterootName, TrialRules, Version};

    fn boot(text: &str) -> BootId {
        BootId::new(text).unwrap()
    }

    const ONE: &str = "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0";
    const TWO: &str = "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0";

    fn prepare(version: &str) -> Job {
        let version = Version::new(version).unwrap();
        Job::Prepare {
            stateroot: StaterootName::from_version(&version),
            image: ImageRef::parse(&format!("registry.test/seed@sha256:{}", "0".repeat(64))).unwrap(),
            layout: Layout::Classic,
            version,
            carried: Vec::new(),
        }
    }

    fn remove() -> Job {
        Job::Remove { stateroot: StaterootName::new("rhcos_1").unwrap() }
    }

    fn activate(reboot: bool) -> Job {
        Job::Activate {
            stateroot: StaterootName::new("rhcos_1").unwrap(),
            deployment: "rhcos_1-ab.0".to_owned(),
            previous: "rhcos-cd.0".to_owned(),
            trial: Some(TrialRules::default()),
            reboot,
        }
    }

    fn record(job: Job) -> StaterootRecord {
        let id = UpdateId::new("20261120-204405-123456".to_owned()).unwrap();
        StaterootRecord::new(id, job, boot(ONE), Timestamp::from_micros(1))
    }

    /// Carries the work out on paper, and returns the actions.
    fn played(mut open: Option<StaterootRecord>, requested: &Job, now: &str) -> Vec<StaterootAction> {
        let mut actions = Vec::new();
        loop {
            let action = next_action(open.as_ref(), requested, &boot(now));
            actions.push(action);
            assert!(actions.len() < 20, "{actions:?}");
            open = match (action, open) {
                (StaterootAction::Begin, _) => {
                    Some(StaterootRecord { boot_id: boot(now), ..record(requested.clone()) })
                }
                (StaterootAction::Restart, Some(open)) => Some(open.restarted(boot(now))),
                // The machine goes down with the reboot.
                (
                    StaterootAction::Step(StaterootStep::RequestReboot)
                    | StaterootAction::Close { ours: true },
                    _,
                ) => {
                    return actions;
                }
                (StaterootAction::Step(_), Some(open)) => Some(open.stepped(Findings::default())),
                (StaterootAction::RollBack, Some(open)) => Some(open.rolled_back(None)),
                (StaterootAction::Close { ours: false }, _) => None,
                (_, None) => panic!("{actions:?}"),
            };
        }
    }

    use StaterootAction::{Begin, Close, Restart, RollBack, Step};
    use StaterootStep::{
        ArmTrial, DeployStateroot, FetchSeed, RemoveStateroot, RequestReboot, RestoreDefault, SetDefault,
    };

    const PREPARED: [StaterootAction; 4] =
        [Begin, Step(FetchSeed), Step(DeployStateroot), Close { ours: true }];

    #[test]
    fn work_goes_on_where_it_was_cut() {
        assert_eq!(played(None, &prepare("1"), ONE), PREPARED);
        assert_eq!(played(None, &remove(), ONE), [Begin, Step(RemoveStateroot), Close { ours: true }]);
        let cut = record(prepare("1")).stepped(Findings::default());
        assert_eq!(played(Some(cut.clone()), &prepare("1"), ONE), PREPARED[2..]);
        // What was fetched is good for one boot.
        let again = [&[Restart][..], &PREPARED[1..]].concat();
        assert_eq!(played(Some(cut.clone()), &prepare("1"), TWO), again);
        let done = cut.stepped(Findings::default());
        assert_eq!(played(Some(done), &prepare("1"), TWO), PREPARED[3..]);
    }

    #[test]
    fn other_work_is_undone_first() {
        let back = [RollBack, Step(RemoveStateroot), Close { ours: false }];
        let cut = record(prepare("1")).stepped(Findings::default());
        assert_eq!(played(Some(cut.clone()), &prepare("2"), TWO), [&back[..], &PREPARED].concat());
        let removed = [Begin, Step(RemoveStateroot), Close { ours: true }];
        assert_eq!(played(Some(cut), &remove(), ONE), [&back[..], &removed].concat());
        // What is complete is kept; a removal is ended, not undone.
        let done = record(prepare("1")).stepped(Findings::default()).stepped(Findings::default());
        assert_eq!(
            played(Some(done), &prepare("2"), ONE),
            [&[Close { ours: false }][..], &PREPARED].concat()
        );
        let ending = [Step(RemoveStateroot), Close { ours: false }];
        assert_eq!(played(Some(record(remove())), &prepare("1"), ONE), [&ending[..], &PREPARED].concat());
    }

    /// LCA-010: the reboot ends an activation; what was cut short before it goes on, or is undone for something else.
    #[test]
    fn activation_ends_with_the_reboot() {
        let whole = [Begin, Step(ArmTrial), Step(SetDefault), Step(RequestReboot)];
        assert_eq!(played(None, &activate(true), ONE), whole);
        let left = [&whole[..3], &[Close { ours: true }]].concat();
        assert_eq!(played(None, &activate(false), ONE), left);
        let cut = record(activate(true)).stepped(Findings::default());
        assert_eq!(played(Some(cut.clone()), &activate(true), ONE), whole[2..]);
        let anew = [&[Close { ours: false }][..], &whole].concat();
        assert_eq!(played(Some(cut.clone()), &activate(true), TWO), anew);
        let removed = [Begin, Step(RemoveStateroot), Close { ours: true }];
        let back = [RollBack, Step(RestoreDefault), Close { ours: false }];
        assert_eq!(played(Some(cut.clone()), &remove(), ONE), [&back[..], &removed].concat());
        // A reboot that was requested is requested again in this boot, and over in the next one.
        let requested = cut.stepped(Findings::default());
        assert_eq!(played(Some(requested.clone()), &activate(true), ONE), whole[3..]);
        assert_eq!(played(Some(requested.clone()), &remove(), ONE), [&back[..], &removed].concat());
        assert_eq!(played(Some(requested), &activate(true), TWO), anew);
    }

    /// Before its default deployment is set, an activation that the power cut has not left the running system.
    #[test]
    fn activation_cut_before_the_default_has_not_left() {
        let begun = record(activate(true));
        let armed = begun.clone().stepped(Findings::default());
        let set = armed.clone().stepped(Findings::default());
        let left = |record: &StaterootRecord, next| record.has_left(next);
        assert_eq!([&begun, &armed, &set].map(|one| left(one, "rhcos-cd.0")), [false, false, true]);
        // The write of the record was cut, not that of the boot entries.
        assert_eq!([&begun, &armed, &set].map(|one| left(one, "rhcos_1-ab.0")), [true; 3]);
        assert!(left(
            &record(activate(false)).stepped(Findings::default()).stepped(Findings::default()),
            "x"
        ));
    }

    #[test]
    fn refused_work_is_undone_and_ends() {
        let fault = Fault {
            class: FaultClass::Degraded,
            reason: "SeedDamaged".to_owned(),
            message: "m".to_owned(),
            next: "n".to_owned(),
        };
        let back = record(prepare("1")).rolled_back(Some(fault.clone()));
        assert_eq!(played(Some(back), &prepare("1"), ONE), [Step(RemoveStateroot), Close { ours: true }]);
        let removing = record(remove()).rolled_back(Some(fault));
        assert_eq!(removing.phase, StaterootPhase::Applying { next: 0 });
    }

    #[test]
    fn record_survives_its_json() {
        let record =
            record(prepare("1")).stepped(Findings { containers: vec!["a".to_owned()], deployment: None });
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<StaterootRecord>(&json).unwrap(), record, "{json}");
    }
}
