//! An answer that does not come: the drain and its end, with a control plane that a test plays and a clock it sets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it fails by panicking, and plays the host"
)]

mod plain_host;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machine_config_agent::agent::{Agent, Stop};
use machine_config_agent::control::{ControlError, ControlPlane, Drained, Released};
use machine_config_agent::host::os::NotImageBased;
use machine_config_agent::host::power::Supervised;
use machine_config_agent::host::{Clock, FailPoints, Host, Root, Systemd};
use machine_config_agent::journal::Journal;
use machine_config_agent::model::machineconfig::MachineConfig;
use machine_config_agent::model::policy::DisruptionPolicy;
use machine_config_agent::model::tuning::OsLimits;
use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::{NodeReport, Occurrence, State};
use machine_config_agent::telemetry::Telemetry;
use machine_config_agent::telemetry::metrics::{HostLabels, Metrics};
use machine_config_agent::telemetry::readiness::Readiness;
use tokio::sync::Notify;

/// In the clock's unit.
const MINUTE: u64 = 60_000_000;

const CONFIG: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":
    {"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/drained","contents":{"source":"data:,b"}}]}}}}"#;

const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc/drained","actions":[{"type":"Drain"}]}]}}}"#;

/// What the control plane answers, and what it was told.
#[derive(Debug)]
struct Desk {
    /// The last one is the answer from then on.
    drained: Vec<Drained>,
    released: Released,
    told: Rc<RefCell<Vec<String>>>,
    reports: Rc<RefCell<Vec<NodeReport>>>,
    /// The clock, and by how many minutes each wait moves it; a wait without one is the last.
    hand: Arc<AtomicU64>,
    waits: Vec<u64>,
    last: Arc<Notify>,
}

impl ControlPlane for Desk {
    async fn changed(&mut self) -> Result<(), ControlError> {
        let Some(minutes) = self.waits.pop() else {
            self.last.notify_one();
            return std::future::pending().await;
        };
        self.hand.fetch_add(minutes.wrapping_mul(MINUTE), Ordering::Relaxed);
        Ok(())
    }

    async fn wanted(&mut self) -> Result<Option<Target>, ControlError> {
        Ok(Some(Target { config: ConfigName::new("rendered-b").unwrap(), image: None }))
    }

    async fn machine_config(&mut self, _name: &ConfigName) -> Result<MachineConfig, ControlError> {
        Ok(MachineConfig::parse(CONFIG.as_bytes(), "the config").unwrap())
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        Ok(DisruptionPolicy::parse(POLICY.as_bytes(), "the policy").unwrap())
    }

    fn drains(&self) -> bool {
        true
    }

    async fn drain(&mut self, _target: &Target) -> Result<Drained, ControlError> {
        let last = self.drained.len() == 1;
        Ok(if last { self.drained[0].clone() } else { self.drained.remove(0) })
    }

    async fn release(&mut self, _committed: &Target) -> Result<Released, ControlError> {
        Ok(self.released.clone())
    }

    async fn tell(&mut self, occurrence: &Occurrence) {
        self.told.borrow_mut().push(occurrence.reason().to_owned());
    }

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        self.reports.borrow_mut().push(report.clone());
        Ok(())
    }
}

/// What a process of the agent is given.
struct Day {
    /// Minutes since the epoch.
    minutes: u64,
    drained: Vec<Drained>,
    released: Released,
    /// How far the clock is moved by each wait, last first.
    waits: Vec<u64>,
}

/// One process of the agent, until it waits for the last time; returns its last report and what it told.
async fn live(dir: &Path, day: Day) -> (NodeReport, Vec<String>) {
    let root = Root::open(dir).unwrap();
    let hand = Arc::new(AtomicU64::new(day.minutes * MINUTE));
    let host = Host {
        os: Box::new(NotImageBased),
        os_because: String::new(),
        limits: OsLimits::default(),
        systemd: Systemd::of(&root).unwrap(),
        clock: Clock::moved_by(Arc::clone(&hand)),
        power: Box::new(Supervised::new(&root)),
        points: FailPoints::off(),
        root: root.clone(),
    };
    let (told, reports, last) = (Rc::default(), Rc::default(), Arc::new(Notify::new()));
    let desk = Desk {
        drained: day.drained,
        released: day.released,
        told: Rc::clone(&told),
        reports: Rc::clone(&reports),
        hand,
        waits: day.waits,
        last: Arc::clone(&last),
    };
    let telemetry = Telemetry {
        notify: machine_config_agent::telemetry::notify::Notify::default(),
        metrics: Metrics::new(HostLabels::default(), Vec::new()),
        readiness: Readiness::default(),
    };
    let journal = Journal::open(root, FailPoints::off()).unwrap();
    let mut agent = Agent::new(host, journal, desk, telemetry, Stop::never(), "worker-0");
    let ended = async {
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
            // Whatever the agent does next, it does after another change.
            () = last.notified() => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    let report = reports.borrow().last().unwrap().clone();
    (report, told.take())
}

/// As [`live`], without anything happening meanwhile.
async fn run(dir: &Path, minutes: u64, drained: Drained, released: Released) -> (NodeReport, Vec<String>) {
    live(dir, Day { minutes, drained: vec![drained], released, waits: Vec::new() }).await
}

fn host() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    dir
}

fn waiting() -> String {
    "the controller's answer".to_owned()
}

/// MCD-051, MCD-058, DRN-006: a drain that another process asked for is waited for; after an hour the node says so, and
/// goes on when the answer is there.
#[tokio::test]
async fn a_drain_that_is_not_answered_is_told_after_an_hour() {
    let dir = host();
    let still = || Drained::Waiting { why: waiting() };
    let (report, told) = run(dir.path(), 10, still(), Released::Yes).await;
    assert_eq!((report.state, report.phase.as_str()), (State::Working, "Draining"));
    assert_eq!(report.waiting, Some(waiting()));
    assert_eq!(told, ["Cordon", "Drain"]);
    let (report, told) = run(dir.path(), 69, still(), Released::Yes).await;
    assert_eq!((report.state, report.reason.as_str()), (State::Working, ""));
    assert!(told.is_empty(), "{told:?}");
    let (report, told) = run(dir.path(), 71, still(), Released::Yes).await;
    assert_eq!(report.state, State::Degraded);
    assert!(
        report.reason.starts_with("FailedToDrain") && report.reason.contains(&waiting()),
        "{}",
        report.reason
    );
    assert_eq!(told, ["FailedToDrain"]);
    assert!(!dir.path().join("etc/drained").exists());
    let (report, told) = run(dir.path(), 72, Drained::Yes, Released::Yes).await;
    assert_eq!((report.state, report.reason.as_str(), report.waiting), (State::Done, "", None));
    assert!(told.iter().all(|reason| reason != "FailedToDrain"), "{told:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
}

/// MCD-056: the update is committed, but the node is not Done as long as it takes no workload; what was done stays.
#[tokio::test]
async fn a_node_that_is_not_uncordoned_is_not_done() {
    let dir = host();
    let still = || Released::Waiting { why: waiting() };
    let (report, _) = run(dir.path(), 10, Drained::Yes, still()).await;
    assert_eq!((report.state, report.phase.as_str()), (State::Working, "Idle"));
    assert_eq!(report.current_config.unwrap().as_str(), "rendered-b");
    let late = Day { minutes: 10, drained: vec![Drained::Yes], released: still(), waits: vec![1, 6, 4] };
    let (report, told) = live(dir.path(), late).await;
    assert_eq!(report.state, State::Degraded);
    assert!(report.reason.starts_with("FailedToUncordon") && report.reason.contains(&waiting()));
    assert_eq!(told, ["FailedToUncordon"], "told once, however long it takes");
    let (report, told) = run(dir.path(), 11, Drained::Yes, Released::Again).await;
    assert_eq!(report.state, State::Done);
    assert_eq!(told, ["Uncordon"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
}

/// MCD-051, MCD-056: a wait that was too long does not silence the next one.
#[tokio::test]
async fn each_late_answer_is_told() {
    let dir = host();
    let late = |why: &str| Drained::Waiting { why: why.to_owned() };
    let drained = vec![late("first"), late("second"), Drained::Yes];
    let released = Released::Waiting { why: waiting() };
    // An hour for the drain, then its answer, then ten minutes for the release.
    let day = Day { minutes: 10, drained, released, waits: vec![11, 1, 61] };
    let (report, told) = live(dir.path(), day).await;
    assert_eq!(report.state, State::Degraded);
    let told: Vec<&str> =
        told.iter().map(String::as_str).filter(|reason| reason.starts_with("Failed")).collect();
    assert_eq!(told, ["FailedToDrain", "FailedToUncordon"]);
}

/// CRA-011: a clock that jumps by a year, back or forth, while the drain is waited for delays nothing and breaks nothing.
#[tokio::test]
async fn a_clock_that_jumps_breaks_no_wait() {
    const YEAR: u64 = 525_600;
    for jump in [YEAR, 0_u64.wrapping_sub(YEAR)] {
        let dir = host();
        let waiting = Drained::Waiting { why: waiting() };
        let drained = vec![waiting.clone(), waiting, Drained::Yes];
        let day = Day { minutes: 56 * YEAR, drained, released: Released::Yes, waits: vec![1, jump] };
        let (report, told) = live(dir.path(), day).await;
        assert_eq!((report.state, report.reason.as_str()), (State::Done, ""), "{told:?}");
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
    }
}
