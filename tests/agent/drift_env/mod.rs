//! An idle host under the agent's eyes: the real loop, watch and file system in this process; the control plane and the
//! OS are the test's. Every wait is for a report.

pub mod mutations;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machine_config_agent::agent::{Agent, ExitReason, SettingsLoader};
use machine_config_agent::host::{Clock, FailPoints, Host, Root};
use machine_config_agent::model::observation::{Booted, ObservedOs, Staged};
use machine_config_agent::model::{ConfigName, ImageRef, ManagedPath, NodeSettings};
use machine_config_agent::report::{NodeReport, NodeState};
use machine_config_agent::telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::Played;
use crate::test_host::Node;

/// Generous: only a miss waits so long.
const TIMEOUT: Duration = Duration::from_secs(120);

pub const IMAGE: &str =
    "registry.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub const OTHER_IMAGE: &str =
    "registry.test/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// Removals of the deployment before the booted one.
#[derive(Debug, Default)]
pub struct Dropped {
    pub times: Cell<u32>,
    pub notify: Notify,
}

/// The host and its environment. It outlives the agents that observe it.
pub struct Scene {
    pub node: Node,
    pub os: Rc<RefCell<ObservedOs>>,
    pub metrics: Metrics,
    pub wall: Arc<AtomicU64>,
    pub monotonic: Arc<AtomicU64>,
    pub dropped: Rc<Dropped>,
    pub node_settings: NodeSettings,
    plane: FakeControlPlane,
    /// The report that was waited for last: the next wait returns that one or a later one.
    at: usize,
}

/// Nothing asks for a reboot but what is named so.
fn policy(units: &[&str]) -> String {
    let units: Vec<Value> =
        units.iter().map(|name| json!({"name": name, "actions": [{"type": "None"}]})).collect();
    let files = json!([
        {"path": "/etc", "actions": [{"type": "None"}]},
        {"path": "/etc/reboots.conf", "actions": [{"type": "Reboot"}]},
        {"path": "/etc/drains.conf", "actions": [{"type": "Drain"}]},
    ]);
    json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": files, "units": units, "sshkey": {"actions": [{"type": "None"}]}}}})
    .to_string()
}

impl Scene {
    /// A host that a config was applied to.
    pub async fn with(config: &Value, units: &[&str], repair: &[&str]) -> Self {
        let node = Node::new();
        node.put("root/proc/cmdline", "quiet audit=1\n");
        node.put("root/ostree/deploy/.keep", "");
        node.put("root/run/ostree/.keep", "");
        let plane = FakeControlPlane::wanting("rendered-a", None);
        // At first nothing at all reboots.
        plane.policy(&policy(units).replace("Reboot", "None").replace("Drain", "None"));
        let node_settings = NodeSettings {
            repair: repair.iter().map(|path| ManagedPath::new(*path).unwrap()).collect(),
            ..NodeSettings::default()
        };
        let mut scene = Self {
            node,
            os: Played::running(ImageRef::parse(IMAGE).unwrap()).seen,
            metrics: plane.metrics.clone(),
            wall: Arc::new(AtomicU64::new(1_795_205_045_000_000)),
            monotonic: Arc::new(AtomicU64::new(60_000_000)),
            dropped: Rc::default(),
            node_settings,
            plane,
            at: 0,
        };
        scene.config("rendered-a", config);
        scene.live(async |scene| scene.until_done("rendered-a").await).await;
        scene.plane.policy(&policy(units));
        scene.take_events();
        scene
    }

    /// Adds a config.
    pub fn config(&self, name: &str, spec: &Value) {
        self.plane.config(name, &crate::test_host::config(name, spec));
    }

    /// Wants a config.
    pub fn want(&self, name: &str) {
        self.plane.desired.borrow_mut().config = ConfigName::new(name).unwrap();
        self.plane.nudge.notify_one();
    }

    /// Runs an agent as long as the story lasts.
    pub async fn live<T>(&mut self, story: impl AsyncFnOnce(&mut Self) -> T) -> T {
        let mut agent = self.agent();
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("the agent ended: {end:?}"),
            told = Box::pin(story(self)) => told,
        }
    }

    /// Runs an agent to its end.
    pub async fn end(&mut self) -> ExitReason {
        let mut agent = self.agent();
        Box::pin(tokio::time::timeout(TIMEOUT, agent.run())).await.unwrap().unwrap()
    }

    fn agent(&self) -> Agent<FakeControlPlane> {
        let dropped = Rc::clone(&self.dropped);
        let os = Played {
            seen: Rc::clone(&self.os),
            pulled: Box::new(|| panic!("nothing is to be staged")),
            dropped: Box::new(move || {
                dropped.times.set(dropped.times.get() + 1);
                dropped.notify.notify_one();
            }),
            ..Played::running(ImageRef::parse(IMAGE).unwrap())
        };
        let host = Host {
            os: Box::new(os),
            clock: Clock::set_by(Arc::clone(&self.wall), Arc::clone(&self.monotonic)),
            ..Host::in_directory(Root::open(&self.node.path("root")).unwrap(), FailPoints::off())
        };
        let node_settings = self.node_settings.clone();
        self.plane.agent(host).with_settings(SettingsLoader::new(move || Ok(node_settings.clone().into())))
    }

    /// Moves the clock: an update's id is the time it began.
    pub fn pass_time(&self, seconds: u64) {
        self.wall.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        self.monotonic.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Sets the wall clock back, as a person or a time server may.
    pub fn set_clock_back(&self, seconds: u64) {
        self.wall.fetch_sub(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Waits for a report.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&NodeReport) -> bool) -> NodeReport {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            if let Some(report) = self.plane.reports.borrow().get(self.at) {
                if holds(report) {
                    return report.clone();
                }
                self.at += 1;
                continue;
            }
            let late = tokio::time::timeout_at(deadline, self.plane.published.notified()).await;
            assert!(late.is_ok(), "{what} is not reported: {:#?}", self.plane.reports.borrow().last());
        }
    }

    pub async fn until_done(&mut self, config: &str) {
        self.until(config, |report| {
            let current = report.current_config.as_ref().map(ConfigName::as_str);
            report.state == NodeState::Done && current == Some(config)
        })
        .await;
    }

    /// Waits for drift whose reason has all words.
    pub async fn until_drift(&mut self, what: &str, words: &[&str]) -> NodeReport {
        let report = self
            .until(what, |report| {
                report.state == NodeState::Degraded && words.iter().all(|word| report.reason.contains(word))
            })
            .await;
        assert_eq!(report.fault.as_ref().unwrap().reason, "ConfigDrift", "{what}");
        report
    }

    /// Returns the number of published reports: one for each observation.
    pub fn observations(&self) -> usize {
        self.plane.reports.borrow().len()
    }

    /// Waits for one more observation.
    pub async fn next_observation(&mut self) {
        self.at = self.observations();
        self.until("another look", |_| true).await;
    }

    /// Takes the events that were emitted.
    pub fn take_events(&self) -> Vec<(&'static str, String)> {
        self.plane.events.take().iter().map(|one| (one.reason(), one.message())).collect()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.node.path(&format!("root/{}", path.trim_start_matches('/')))
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.at(path), text).unwrap();
    }

    pub fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap()
    }

    /// Changes what is seen of the OS, and its mark, as libostree does.
    pub fn os(&self, change: impl FnOnce(&mut Booted, &mut Option<Staged>, &mut Option<Staged>)) {
        {
            let mut os = self.os.borrow_mut();
            let ObservedOs::Deployments { booted, staged, next } = &mut *os else { panic!("image-based") };
            change(booted, staged, next);
        }
        let deploy = std::fs::File::open(self.at("ostree/deploy")).unwrap();
        deploy.set_modified(std::time::SystemTime::now()).unwrap();
    }

    /// Plays a reboot.
    pub fn reboot(&self, number: u32) {
        let id = format!("00000000-0000-4000-8000-{number:012}\n");
        self.node.put("root/proc/sys/kernel/random/boot_id", id);
    }
}

/// A deployment of a next boot.
pub fn deployment(name: &str, image: &str) -> Staged {
    Staged { image: Some(ImageRef::parse(image).unwrap()), deployment: name.to_owned(), kargs: Vec::new() }
}
