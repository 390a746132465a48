//! A fake control plane, beside the agent's real loop in this process: its answers are set beforehand or
//! meanwhile, and reports and events are recorded.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    dead_code,
    reason = "shared by tests: it fails by panicking, and each uses its own part of it"
)]

pub mod course;
pub mod os;
#[allow(clippy::duplicate_mod, reason = "the tests in a cluster have both supports")]
#[path = "../seen_before.rs"]
pub mod seen_before;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use machine_config_agent::agent::{Agent, ProcessSignals};
use machine_config_agent::control::{
    ControlError, ControlPlane, DrainStatus, PinLink, TrustReceiver, UncordonStatus,
};
use machine_config_agent::host::{FailPoints, Host, HostError};
use machine_config_agent::journal::{Journal, JournalError};
use machine_config_agent::model::machineconfig::MachineConfig;
use machine_config_agent::model::policy::DisruptionPolicy;
use machine_config_agent::model::{ConfigName, ImageRef, Target};
use machine_config_agent::report::{Event, NodeReport};
use machine_config_agent::telemetry::metrics::{HostLabels, Metrics};
use machine_config_agent::telemetry::notify::Notify as Systemds;
use machine_config_agent::telemetry::readiness::Readiness;
use machine_config_agent::telemetry::{LastReport, Telemetry};
use tokio::sync::Notify;

use crate::unlocked;

/// A clone is the same plane.
#[derive(Clone)]
pub struct FakeControlPlane {
    pub desired: Rc<RefCell<Target>>,
    /// Set if the target is not valid.
    pub invalid: Rc<RefCell<Option<String>>>,
    /// By name.
    pub configs: Rc<RefCell<BTreeMap<String, String>>>,
    pub policy: Rc<RefCell<DisruptionPolicy>>,
    pub trust: TrustReceiver,
    /// The answers to a drain, of which the last one stays; with none, no drain can be asked for.
    pub drained: Rc<RefCell<Vec<DrainStatus>>>,
    pub released: UncordonStatus,
    /// The requests to drain and to uncordon, in order.
    pub requests: Rc<RefCell<Vec<&'static str>>>,
    pub events: Rc<RefCell<Vec<Event>>>,
    pub reports: Rc<RefCell<Vec<NodeReport>>>,
    /// The last report, as it is left for `status`.
    pub kept: Rc<RefCell<Option<NodeReport>>>,
    /// Done at each report, with it.
    pub at_report: Rc<dyn Fn()>,
    /// After each report.
    pub published: Rc<Notify>,
    /// A change.
    pub nudge: Rc<Notify>,
    /// Called each time the agent waits for a change; returns true if there is one already.
    pub waited_for: Rc<dyn Fn() -> bool>,
    pub metrics: Metrics,
    /// Notification socket of systemd, and the interval of its watchdog.
    pub systemd: Option<(PathBuf, Duration)>,
    /// True if the next change writes the same values again.
    pub rewritten: Rc<Cell<bool>>,
    /// The image that is to be prefetched.
    pub prefetch: Rc<RefCell<Option<String>>>,
    /// The images that are to be kept.
    pub pins: Rc<RefCell<Option<PinLink>>>,
    /// True if waiting for changes fails.
    pub deaf: Rc<Cell<bool>>,
    /// True if the content of a config is part of the target, as it is in a file.
    pub tells_content: Rc<Cell<bool>>,
    /// Checked at the end: no drain without a write.
    pub course: Rc<course::Course>,
}

impl FakeControlPlane {
    /// Wants a config, which is empty where no other is put, and nothing else.
    pub fn wanting(config: &str, image: Option<ImageRef>) -> Self {
        let empty = Self::empty(config);
        Self {
            desired: Rc::new(RefCell::new(Target::new(ConfigName::new(config).unwrap(), image))),
            invalid: Rc::default(),
            configs: Rc::new(RefCell::new(BTreeMap::from([(config.to_owned(), empty)]))),
            policy: Rc::new(RefCell::new(DisruptionPolicy::defaults())),
            trust: TrustReceiver::default(),
            drained: Rc::default(),
            released: UncordonStatus::Yes,
            requests: Rc::default(),
            events: Rc::default(),
            reports: Rc::default(),
            kept: Rc::default(),
            at_report: Rc::new(|| {}),
            published: Rc::default(),
            nudge: Rc::default(),
            waited_for: Rc::new(|| false),
            metrics: Metrics::new(HostLabels::default(), Vec::new()),
            systemd: None,
            rewritten: Rc::default(),
            prefetch: Rc::default(),
            pins: Rc::default(),
            deaf: Rc::default(),
            tells_content: Rc::default(),
            course: Rc::default(),
        }
    }

    /// Returns the text of a config that holds nothing.
    pub fn empty(config: &str) -> String {
        format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{config}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}}}}}}}}"#
        )
    }

    /// Adds a config.
    pub fn config(&self, name: &str, text: &str) {
        self.configs.borrow_mut().insert(name.to_owned(), text.to_owned());
    }

    /// Has this policy in force from now on.
    pub fn policy(&self, text: &str) {
        *self.policy.borrow_mut() = DisruptionPolicy::parse(text.as_bytes(), "the policy").unwrap();
    }

    /// Starts a process of the agent at this plane.
    pub fn agent(&self, host: Host) -> Agent<Self> {
        self.agent_with(host, ProcessSignals::never())
    }

    /// Starts a process that hears signals.
    pub fn agent_with(&self, host: Host, signals: ProcessSignals) -> Agent<Self> {
        let kept = Rc::clone(&self.kept);
        let telemetry = Telemetry {
            notify: self.systemd.clone().map_or_else(Systemds::default, |(socket, interval)| {
                Systemds::new(Some(socket), Some(interval))
            }),
            metrics: self.metrics.clone(),
            readiness: Readiness::default(),
            last: LastReport::new(move |report| *kept.borrow_mut() = Some(report.clone())),
        };
        let journal = open(&host);
        Agent::new(host, journal, self.clone(), telemetry, signals, "worker-0")
    }
}

/// Opens the journal.
fn open(host: &Host) -> Journal {
    unlocked::open(
        || Journal::open(host.root.clone(), FailPoints::off()),
        |error| matches!(error, JournalError::Locked { .. }),
    )
}

impl ControlPlane for FakeControlPlane {
    fn rewritten(&self) -> bool {
        self.rewritten.take()
    }

    async fn changed(&mut self) -> Result<(), ControlError> {
        if self.deaf.get() {
            return Err(HostError::io("watch", "/control", std::io::Error::from_raw_os_error(28)).into());
        }
        if !(self.waited_for)() {
            self.nudge.notified().await;
        }
        Ok(())
    }

    async fn desired(&mut self) -> Result<Option<Target>, ControlError> {
        tracing::trace!("asked for the target");
        if let Some(image) = &*self.invalid.borrow() {
            let source = ImageRef::parse(image).unwrap_err();
            return Err(ControlError::Invalid { document: "the target".to_owned(), source });
        }
        let target = self.desired.borrow().clone();
        let configs = self.configs.borrow();
        let text = configs.get(target.config.as_str()).filter(|_| self.tells_content.get());
        let config = text.and_then(|text| MachineConfig::parse(text.as_bytes(), "the config").ok());
        Ok(Some(target.with_content(config.map(|config| config.content()))))
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        let configs = self.configs.borrow();
        let text = configs.get(name.as_str()).unwrap();
        MachineConfig::parse(text.as_bytes(), "the config")
            .map_err(|source| ControlError::Invalid { document: "the config".to_owned(), source })
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        Ok(self.policy.borrow().clone())
    }

    fn trust(&self) -> TrustReceiver {
        self.trust.clone()
    }

    fn take_pins(&mut self) -> Option<PinLink> {
        self.pins.borrow_mut().take()
    }

    fn prefetch(&self) -> Option<String> {
        self.prefetch.borrow().clone()
    }

    fn can_drain(&self) -> bool {
        !self.drained.borrow().is_empty()
    }

    async fn drain(&mut self, _target: &Target) -> Result<DrainStatus, ControlError> {
        self.requests.borrow_mut().push("drain");
        let mut answers = self.drained.borrow_mut();
        let answer = if answers.len() > 1 {
            answers.remove(0)
        } else {
            answers.first().cloned().unwrap_or(DrainStatus::NotRequested)
        };
        if answer == DrainStatus::Yes {
            self.course.drained();
        }
        Ok(answer)
    }

    async fn uncordon(&mut self, _committed: &Target) -> Result<UncordonStatus, ControlError> {
        self.requests.borrow_mut().push("uncordon");
        self.course.uncordoned();
        Ok(self.released.clone())
    }

    async fn emit(&mut self, event: &Event) {
        self.events.borrow_mut().push(event.clone());
    }

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        self.course.reported(report);
        self.reports.borrow_mut().push(report.clone());
        (self.at_report)();
        self.published.notify_one();
        Ok(())
    }
}
