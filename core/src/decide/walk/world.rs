//! The small world: one node, its contents, and the agent's memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use super::firstboot::{File, FirstBoot};
use super::idle::KEEP_ROLLBACK;
use super::loader::Deployment;
use crate::decide::action::Action;
use crate::decide::down::Down;
use crate::decide::drift;
use crate::decide::failed::{Failed, failed};
use crate::decide::inputs::{Answers, Inputs, Memory};
use crate::decide::mode::{Reboots, RunMode};
use crate::decide::next::decide;
use crate::decide::prefetch::Prefetch;
use crate::decide::retention::Retention;
use crate::model::machineconfig::MachineConfig;
use crate::model::observation::{
    BootCount, Booted, EmbeddedConfig, Finalization, LocalPackages, ObservedOs, Staged,
};
use crate::model::policy::DisruptionPolicy;
use crate::model::{BootId, FaultClass, HostSpec, ImageRef, NodeSettings, Observation, Timestamp};
use crate::update::{Fault, Phase, Record, Transition};

/// Its name seeds the jitter of waits.
pub(super) const NODE: &str = "worker-0";

/// Contents of the host: the files of a config, and an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Content {
    pub(super) files: char,
    pub(super) image: char,
}

/// The possible desired targets.
pub(super) const TARGETS: [Content; 3] = [
    Content { files: 'a', image: '1' },
    Content { files: 'b', image: '2' },
    Content { files: 'c', image: '1' },
];

pub(super) fn image(letter: char) -> ImageRef {
    ImageRef::parse(&format!("registry.test/os@sha256:{}", letter.to_string().repeat(64))).unwrap()
}

thread_local! {
    static SPECS: RefCell<HashMap<Content, HostSpec>> = RefCell::default();
}

/// Each is parsed once.
pub(super) fn spec(content: Content) -> HostSpec {
    SPECS.with_borrow_mut(|specs| specs.entry(content).or_insert_with(|| parsed(content)).clone())
}

fn parsed(content: Content) -> HostSpec {
    let Content { files, image: letter } = content;
    let text = format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-{files}{letter}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
        "storage":{{"files":[{{"path":"/etc/motd","contents":{{"source":"data:,{files}"}}}}]}}}}}}}}"#
    );
    MachineConfig::parse(text.as_bytes(), "it").unwrap().spec(Some(image(letter))).unwrap()
}

/// Permanent misfortune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curse {
    /// The image can't be pulled.
    Pull,
    /// No step succeeds.
    Step,
    /// No step can be undone.
    Undo,
    /// Each shutdown is canceled.
    TakenBack,
    /// Each shutdown is cut short.
    CutShort,
    /// libostree finalizes nothing.
    NotFinalized,
    /// Something changes a file in each boot.
    Otherwise,
    /// No new deployment is healthy.
    Ill,
    /// No other deployment can be made the next boot's.
    NoWayBack,
    /// No new deployment comes up.
    NeverUp,
    /// Something changes a file after each repair.
    Drifts,
}

/// Run mode of the agent, and the cost of a changed file.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) mode: RunMode,
    pub(super) reboots: Reboots,
    pub(super) policy: DisruptionPolicy,
    pub(super) node_settings: NodeSettings,
    /// The boot loader counts boots.
    pub(super) counts: bool,
    pub(super) curse: Option<Curse>,
    /// The image that is to be prefetched.
    pub(super) prefetch: Option<ImageRef>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) mode: RunMode,
    /// Of a daemon it stays as it is.
    pub(super) first_boot: FirstBoot,
    pub(super) record: Option<Record>,
    pub(super) current: Content,
    /// Contents left by an update that failed.
    pub(super) left: Option<Content>,
    /// The deployment of an update that was undone runs.
    pub(super) undone_runs: bool,
    pub(super) desired: Content,
    pub(super) boot: u32,
    /// Soft reboots within this boot.
    pub(super) soft: u32,
    /// Present contents, and the running deployment.
    pub(super) there: Content,
    pub(super) deployment: u32,
    pub(super) staged: Option<char>,
    /// The first deployment of the boot loader's menu, when it is not the one that runs.
    pub(super) first: Option<Deployment>,
    /// The deployment before the one that runs.
    pub(super) before: Option<Deployment>,
    /// The number of the newest deployment.
    pub(super) newest: u32,
    /// The boot loader's count.
    pub(super) boots: BootCount,
    /// Result of the last finalization.
    pub(super) finalization: Option<Finalization>,
    pub(super) memory: Memory,
    /// The agent's memory of drift.
    pub(super) drift: drift::Memory,
    pub(super) answers: Answers,
    pub(super) now: Duration,
    /// Misfortunes and changes of the target that may still come.
    pub(super) misfortunes: u32,
    pub(super) changes: u32,
    /// Reboots that the agent requested since the target changed, and boots that ended wrong.
    pub(super) reboots: u32,
    pub(super) wrong: u32,
    /// The node was drained, and was not given back since.
    pub(super) is_cordoned: bool,
    /// The host was written, or the reboot requested, since the node was drained.
    pub(super) has_written: bool,
}

pub(super) fn fault(class: FaultClass, reason: &str) -> Fault {
    Fault { class, reason: reason.to_owned(), message: "m".to_owned(), next: "n".to_owned() }
}

fn counts(record: &Record) -> [u32; 6] {
    let (failed, interrupted) = (record.failed_finalizations, record.interrupted_finalizations);
    [record.reboots, record.fallbacks, record.attempts, failed, interrupted, record.dropped]
}

/// Returns the relation of a boot to the running one: equal, of the same kernel, or another.
fn relation(boot: &BootId, runs: &BootId) -> u32 {
    u32::from(boot == runs) + 2 * u32::from(runs.is_soft_from(boot))
}

/// Names a deployment.
pub(super) fn name(number: u32) -> String {
    format!("deployment-{number}")
}

impl World {
    pub(super) fn new(mode: RunMode, misfortunes: u32, changes: u32) -> Self {
        let [a, b, _] = TARGETS;
        Self {
            mode,
            first_boot: FirstBoot::default(),
            record: None,
            current: a,
            left: None,
            undone_runs: false,
            desired: b,
            boot: 0,
            soft: 0,
            there: a,
            deployment: 0,
            staged: None,
            first: None,
            before: None,
            newest: 0,
            boots: BootCount::Off,
            finalization: None,
            memory: Memory::new(mode, NODE),
            drift: drift::Memory::default(),
            answers: Answers::default(),
            now: Duration::from_secs(100),
            misfortunes,
            changes,
            reboots: 0,
            wrong: 0,
            is_cordoned: false,
            has_written: false,
        }
    }

    pub(super) fn boot_id(&self) -> BootId {
        let kernel = BootId::new(format!("boot-{}", self.boot)).unwrap();
        BootId::after_soft_reboots(kernel, self.soft).unwrap()
    }

    pub(super) fn observe(&self) -> Observation {
        let mut observed = Observation::as_specified(&spec(self.there)).unwrap();
        observed.boot_id = self.boot_id();
        observed.boots = self.boots;
        let next_boot = |letter: char, name: &str| Staged {
            image: Some(image(letter)),
            deployment: name.to_owned(),
            kargs: Vec::new(),
        };
        let staged = self.staged.map(|letter| next_boot(letter, "staged"));
        let next = self.first.map(|first| next_boot(first.image, &name(first.number)));
        let booted = Booted {
            image: Some(image(self.there.image)),
            deployment: name(self.deployment),
            carries: EmbeddedConfig::Unknown,
            local: LocalPackages::default(),
        };
        observed.os = ObservedOs::Deployments { booted, staged, next };
        observed
    }

    pub(super) fn decide(&mut self, rules: &Rules) -> Action {
        let observed = self.observe();
        let first = &mut self.first_boot;
        let is_first = rules.mode == RunMode::FirstBoot;
        let current = if is_first { first.provisioned } else { Some(self.current) };
        first.is_read |= is_first && first.file == File::Good;
        let desired = self.desired_content();
        let (current, desired) = (current.map(|it| spec(it).target()), desired.map(|it| spec(it).target()));
        let inputs = Inputs {
            mode: rules.mode,
            reboots: rules.reboots,
            record: self.record.as_ref(),
            current: current.as_ref(),
            desired: desired.as_ref(),
            observed: &observed,
            is_forced: self.record.is_none()
                && (self.undone_runs || self.left.is_some_and(|left| left != self.current)),
            is_refused: self.first_boot.file == File::Broken,
            unreadable: None,
            is_unwatched: false,
            can_drain: !is_first,
            node_settings: &rules.node_settings,
            answers: &self.answers,
            prefetch: rules.prefetch.as_ref(),
            now: self.now,
        };
        decide(&inputs, &mut self.memory)
    }

    pub(super) fn moved(&mut self, event: &Transition) {
        let record = self.record.as_ref().unwrap();
        self.record = Some(record.moved(event, Timestamp::default()).unwrap());
    }

    /// Another process of the agent starts.
    pub(super) fn start(&mut self) {
        self.memory = Memory::new(self.mode, NODE);
        self.drift = drift::Memory::default();
        self.answers = Answers::default();
        (self.first_boot.provisioned, self.first_boot.is_read) = (None, false);
    }

    /// The next pass begins.
    pub(super) fn without_question(mut self) -> Self {
        self.answers = Answers::default();
        self
    }

    /// Handles an error outside of a step: it is reported, and the next try waits.
    pub(super) fn handle_error(mut self) -> Self {
        let fault = fault(FaultClass::Retry, "TimedOut");
        let error = Failed {
            mode: self.mode,
            is_unwatched: false,
            shutdown: None,
            fault: Some(&fault),
            is_untouched: self.record.as_ref().is_none_or(Record::is_undone),
            uncordoned: None,
            now: self.now,
        };
        let Action::Wait(wait) = failed(&error, &mut self.memory) else { panic!("it goes down") };
        self.memory.retry.answered();
        self.now += wait.left.unwrap();
        self.answers = Answers::default();
        self
    }

    /// A batch or an undo step failed.
    pub(super) fn failed(mut self, fault: Fault) -> Self {
        self.answers.failed = Some(fault);
        self
    }

    pub(super) fn fail(&mut self, fault: Fault, way: Option<&Transition>) {
        self.record.as_mut().unwrap().blame(fault, Timestamp::default());
        if let Some(way) = way {
            self.moved(way);
        }
        self.answers = Answers::default();
    }

    /// The key of this state. Times count by their distance from now, boots by whether they are this one.
    pub(super) fn key(&self) -> String {
        let this = |boot: &BootId| *boot == self.boot_id();
        let record = self.record.as_ref().map(|record| {
            let phase = match &record.phase {
                Phase::Rebooting { boot_id } | Phase::FallingBack { boot_id } => {
                    relation(boot_id, &self.boot_id())
                }
                Phase::Applying { next } | Phase::RollingBack { next } => u32::try_from(*next).unwrap(),
                Phase::Planned | Phase::Staging | Phase::Draining | Phase::Verifying => 0,
            };
            let is_back = record.origin.as_ref() == Some(&name(self.deployment));
            let ids = (this(&record.boot_id), record.reboot_left.as_ref().is_some_and(this), is_back);
            let trial = record.trial.as_ref().is_some_and(|trial| this(&trial.boot_id));
            let counts = counts(record);
            let fault = record.fault.as_ref().map(|fault| fault.reason.clone());
            let flags = (record.drained, record.draining.is_some(), trial, record.undo.len());
            let names =
                (record.from.as_ref().map(|from| from.config.to_string()), record.to.config.to_string());
            (record.phase.as_str(), phase, ids, counts, fault, flags, names)
        });
        let Memory { retry, down, uncordon_since, backoff, prefetch, kept } = &self.memory;
        let ago = |at: &Duration| self.now.saturating_sub(*at).as_secs();
        let until = |at: &Duration| at.saturating_sub(self.now).as_secs();
        let down = match down {
            Down::Up => (0, 0),
            Down::Requested { begun, until: at } => (1 + u64::from(*begun), until(at)),
            Down::Later { at } => (3, until(at)),
        };
        let prefetch = match prefetch {
            Prefetch::Settled(image) => (u64::from(image.is_some()), 0),
            Prefetch::Running { failures, .. } => (2, u64::from(*failures)),
            Prefetch::Again { at, failures, .. } => (3 + until(at), u64::from(*failures)),
        };
        let kept = match kept {
            Retention::Unknown => None,
            Retention::HealthySince(since) => Some(ago(since).min(KEEP_ROLLBACK.as_secs())),
            Retention::Again { at, failures } => Some((1 << 40) + (u64::from(*failures) << 20) + until(at)),
            Retention::Given => Some(u64::MAX),
        };
        let times = (
            prefetch,
            retry.key(self.now),
            down,
            uncordon_since.as_ref().map(ago),
            kept,
            self.drift.key(self.now),
        );
        let menu = (
            self.first.map(|first| (first.image, first.comes_up)),
            self.before.map(|before| before.image),
            self.boots,
        );
        let left = (self.left, self.undone_runs);
        let host = (self.current, left, self.desired, self.there, self.staged, menu);
        let numbers = (self.misfortunes, self.changes, self.reboots, self.wrong);
        let rest = (numbers, backoff.is_failing(), self.is_cordoned, self.has_written);
        format!(
            "{record:?} {times:?} {host:?} {rest:?} {:?} {:?} {:?}",
            self.first_boot, self.finalization, self.answers
        )
    }
}
