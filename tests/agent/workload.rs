//! An answer that does not come: the drain and its end, with a control plane that a test plays and a clock it sets.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::plain_host;
use machine_config_agent::control::{DrainStatus, UncordonStatus};
use machine_config_agent::host::{Clock, FailPoints, Host, Root};
use machine_config_agent::report::{NodeReport, NodeState};
use tokio::sync::Notify;

/// In the clock's unit.
const MINUTE: u64 = 60_000_000;

const CONFIG: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":
    {"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/drained","contents":{"source":"data:,b"}}]}}}}"#;

const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc/drained","actions":[{"type":"Drain"}]}]}}}"#;

/// Input of a process of the agent.
#[derive(Clone)]
struct Day {
    /// Minutes since the boot, which was with the epoch.
    minutes: u64,
    /// So many minutes the wall clock is ahead.
    ahead: u64,
    drained: Vec<DrainStatus>,
    released: UncordonStatus,
    /// Minutes of each wait, last first.
    waits: Vec<u64>,
    /// Minutes by which the wall clock is set in each wait, last first.
    sets: Vec<u64>,
}

impl Default for Day {
    fn default() -> Self {
        let (drained, released) = (vec![DrainStatus::Yes], UncordonStatus::Yes);
        Self { minutes: 0, ahead: 0, drained, released, waits: Vec::new(), sets: Vec::new() }
    }
}

/// One process of the agent, until it waits for the last time; returns its last report and its events.
async fn live(dir: &Path, day: Day) -> (NodeReport, Vec<String>) {
    let monotonic = Arc::new(AtomicU64::new(day.minutes * MINUTE));
    let wall = Arc::new(AtomicU64::new(day.minutes.wrapping_add(day.ahead).wrapping_mul(MINUTE)));
    let clock = Clock::set_by(Arc::clone(&wall), Arc::clone(&monotonic));
    let host = Host { clock, ..Host::in_directory(Root::open(dir).unwrap(), FailPoints::off()) };
    let (waits, sets, last) = (RefCell::new(day.waits), RefCell::new(day.sets), Rc::new(Notify::new()));
    let ends = Rc::clone(&last);
    let plane = FakeControlPlane {
        drained: Rc::new(RefCell::new(day.drained)),
        released: day.released,
        waited_for: Rc::new(move || {
            let Some(minutes) = waits.borrow_mut().pop() else {
                ends.notify_one();
                return false;
            };
            let set = sets.borrow_mut().pop().unwrap_or_default();
            monotonic.fetch_add(minutes * MINUTE, Ordering::Relaxed);
            wall.fetch_add(minutes.wrapping_add(set).wrapping_mul(MINUTE), Ordering::Relaxed);
            true
        }),
        ..FakeControlPlane::wanting("rendered-b", None)
    };
    plane.config("rendered-b", CONFIG);
    plane.policy(POLICY);
    let mut agent = plane.agent(host);
    let ended = async {
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
            // Whatever the agent does next, it does after another change.
            () = last.notified() => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    let report = plane.reports.borrow().last().unwrap().clone();
    let told = plane.events.take().iter().map(|one| one.reason().to_owned()).collect();
    (report, told)
}

/// As [`live`], without anything happening meanwhile.
async fn run(
    dir: &Path,
    minutes: u64,
    drained: DrainStatus,
    released: UncordonStatus,
) -> (NodeReport, Vec<String>) {
    live(dir, Day { minutes, drained: vec![drained], released, ..Day::default() }).await
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
async fn unanswered_drain_is_reported_after_hour() {
    let dir = host();
    let still = || DrainStatus::Waiting { why: waiting() };
    let (report, told) = run(dir.path(), 10, still(), UncordonStatus::Yes).await;
    assert_eq!((report.state, report.phase.as_str()), (NodeState::Working, "Draining"));
    assert_eq!(report.waiting, Some(waiting()));
    assert_eq!(told, ["Cordon", "Drain"]);
    let (report, told) = run(dir.path(), 69, still(), UncordonStatus::Yes).await;
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Working, ""));
    assert!(told.is_empty(), "{told:?}");
    let (report, told) = run(dir.path(), 71, still(), UncordonStatus::Yes).await;
    assert_eq!(report.state, NodeState::Degraded);
    assert!(
        report.reason.starts_with("FailedToDrain") && report.reason.contains(&waiting()),
        "{}",
        report.reason
    );
    assert_eq!(told, ["FailedToDrain"]);
    assert!(!dir.path().join("etc/drained").exists());
    let (report, told) = run(dir.path(), 72, DrainStatus::Yes, UncordonStatus::Yes).await;
    assert_eq!((report.state, report.reason.as_str(), report.waiting), (NodeState::Done, "", None));
    assert!(told.iter().all(|reason| reason != "FailedToDrain"), "{told:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
}

/// MCD-056: the update is committed, but the node is not Done as long as it takes no workload; the update stays.
#[tokio::test]
async fn cordoned_node_is_not_done() {
    let dir = host();
    let still = || UncordonStatus::Waiting { why: waiting() };
    let (report, _) = run(dir.path(), 10, DrainStatus::Yes, still()).await;
    assert_eq!((report.state, report.phase.as_str()), (NodeState::Working, "Idle"));
    assert_eq!(report.current_config.unwrap().as_str(), "rendered-b");
    let late = Day {
        minutes: 10,
        drained: vec![DrainStatus::Yes],
        released: still(),
        waits: vec![1, 6, 4],
        ..Day::default()
    };
    let (report, told) = live(dir.path(), late).await;
    assert_eq!(report.state, NodeState::Degraded);
    assert!(report.reason.starts_with("FailedToUncordon") && report.reason.contains(&waiting()));
    assert_eq!(told, ["FailedToUncordon"], "told once, however long it takes");
    let (report, told) = run(dir.path(), 11, DrainStatus::Yes, UncordonStatus::Again).await;
    assert_eq!(report.state, NodeState::Done);
    assert_eq!(told, ["Uncordon"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
}

/// MCD-051, MCD-056: a wait that was too long does not silence the next one.
#[tokio::test]
async fn drain_and_uncordon_timeouts_emit_events() {
    let dir = host();
    let late = |why: &str| DrainStatus::Waiting { why: why.to_owned() };
    let drained = vec![late("first"), late("second"), DrainStatus::Yes];
    let released = UncordonStatus::Waiting { why: waiting() };
    // An hour for the drain, then its answer, then ten minutes for the release.
    let day = Day { minutes: 10, drained, released, waits: vec![11, 1, 61], ..Day::default() };
    let (report, told) = live(dir.path(), day).await;
    assert_eq!(report.state, NodeState::Degraded);
    let told: Vec<&str> =
        told.iter().map(String::as_str).filter(|reason| reason.starts_with("Failed")).collect();
    assert_eq!(told, ["FailedToDrain", "FailedToUncordon"]);
}

/// In minutes.
const YEAR: u64 = 525_600;
const BACK: u64 = 0_u64.wrapping_sub(YEAR);

/// CRA-011: a clock that is set by a year, back or forth, while an answer is waited for makes none late and breaks nothing.
#[tokio::test]
async fn clock_set_causes_no_timeout() {
    for set in [YEAR, BACK] {
        let dir = host();
        let waiting = || DrainStatus::Waiting { why: waiting() };
        let day = Day { minutes: 10, ahead: 56 * YEAR, ..Day::default() };
        let drained = vec![waiting(), waiting(), waiting(), DrainStatus::Yes];
        let first = Day { drained, waits: vec![1, 1, 1], sets: vec![0, set, 0], ..day.clone() };
        let (report, told) = live(dir.path(), first).await;
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{told:?}");
        assert_eq!(told, ["Cordon", "Drain", "SkipReboot"]);
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/drained")).unwrap(), "b");
        let released = UncordonStatus::Waiting { why: self::waiting() };
        let second = Day { released, waits: vec![1, 1, 1], sets: vec![0, set, 0], ..day };
        let (report, told) = live(dir.path(), second).await;
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Working, ""), "{told:?}");
    }
}

/// CRA-011, MCD-051, MCD-056: a clock that was set back hides no answer that is late, in this process or the next one.
#[tokio::test]
async fn clock_set_back_hides_no_timeout() {
    let dir = host();
    let waiting = DrainStatus::Waiting { why: waiting() };
    let day = Day { minutes: 10, ahead: 56 * YEAR, drained: vec![waiting], ..Day::default() };
    let (report, _) = live(dir.path(), day.clone()).await;
    assert_eq!((report.state, report.phase.as_str()), (NodeState::Working, "Draining"));
    let (report, told) = live(dir.path(), Day { minutes: 71, ahead: 55 * YEAR, ..day.clone() }).await;
    assert_eq!(
        (report.state, told.as_slice()),
        (NodeState::Degraded, ["FailedToDrain".to_owned()].as_slice())
    );
    let released = UncordonStatus::Waiting { why: self::waiting() };
    let drained = vec![DrainStatus::Yes];
    let day = Day { drained, released, waits: vec![1, 11], sets: vec![0, BACK], ..day };
    let (_, told) = live(dir.path(), day).await;
    assert_eq!(told.last().unwrap(), "FailedToUncordon", "{told:?}");
}
