//! A pull that fails, and services that end with the machine: tried again by itself, with its cause in the report until then, and counted.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, StageResult, image};
use crate::plain_host;
use machine_config_agent::agent::ExitReason;
use machine_config_agent::control::DrainStatus;
use machine_config_agent::host::power::{RebootKind, Rebooting, ShutdownMonitor, Supervised};
use machine_config_agent::host::{BoxFuture, FailPoints, Host, HostError, Power, Root};
use machine_config_agent::model::observation::ObservedOs;
use machine_config_agent::model::{BootId, FaultClass};
use machine_config_agent::report::NodeState;

/// Fails for this cause, and for none after it.
fn once(cause: &'static str) -> impl Fn() -> StageResult {
    let left = RefCell::new(Some(cause));
    move || {
        let Some(cause) = left.take() else { return Ok(()) };
        let (object, cause) = (image("b").to_string(), cause.to_owned());
        Err(HostError::Os {
            object,
            cause,
            class: FaultClass::Retry,
            reason: "ImagePullFailed",
            next: "Wait.".to_owned(),
        })
    }
}

/// MCD-190, MCD-206: refused before a plan, then broken off in the pull, then well: the node goes on by itself.
#[tokio::test]
async fn failed_pull_is_retried_with_its_cause_in_report() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let pull = Rc::new(once("unexpected EOF"));
    let os = Played {
        asked: Box::new(once("StatusCode: 429")),
        pulled: Box::new(move || {
            let pull = Rc::clone(&pull);
            Box::pin(async move { pull() })
        }),
        ..Played::running(image("a"))
    };
    let root = Root::open(dir.path()).unwrap();
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
    // The count of failures at the time of each report.
    let counts: Rc<RefCell<Vec<String>>> = Rc::default();
    let (metrics, counted) = (plane.metrics.clone(), Rc::clone(&counts));
    let at_report = Rc::new(move || {
        let text = metrics.text();
        let count = text.lines().find_map(|line| line.strip_prefix("mcd_pivot_errors_total "));
        counted.borrow_mut().push(count.unwrap().to_owned());
    });
    let plane = FakeControlPlane { at_report, ..plane };
    let mut agent = plane.agent(host);
    let end = tokio::time::timeout(Duration::from_secs(120), Box::pin(agent.run())).await.unwrap();
    assert_eq!(end.unwrap(), ExitReason::Reboot);

    let (reports, counts) = (plane.reports.borrow(), counts.borrow());
    for (cause, count) in [("StatusCode: 429", "1"), ("unexpected EOF", "1")] {
        // The last one before the wait for the next try.
        let found = reports.iter().zip(counts.iter()).rfind(|(report, _)| report.reason.contains(cause));
        let (report, counted) = found.unwrap_or_else(|| panic!("{cause}: {reports:#?}"));
        assert!(
            report.reason.contains(&format!("failed to update OS to {}", image("b"))),
            "{}",
            report.reason
        );
        assert_eq!(counted, count, "{cause}");
    }
    assert_eq!(
        counts.last().unwrap(),
        "2",
        "both are counted: an update that was begun is, when it is given up"
    );
}

/// An OS whose pulls go well, and their number.
fn counting() -> (Played, Rc<Cell<i32>>) {
    let pulled = Rc::new(Cell::new(0));
    let counted = Rc::clone(&pulled);
    let os = Played {
        pulled: Box::new(move || {
            counted.set(counted.get() + 1);
            Box::pin(async { Ok(()) })
        }),
        ..Played::running(image("a"))
    };
    (os, pulled)
}

/// OCL-030: the image is staged when the drain is requested.
#[tokio::test]
async fn image_is_staged_before_drain_is_requested() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let (os, pulled) = counting();
    let root = Root::open(dir.path()).unwrap();
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
    let why = "the drain controller".to_owned();
    *plane.drained.borrow_mut() = vec![DrainStatus::Waiting { why }, DrainStatus::Yes];
    // At each report: whether a drain was requested, and the number of pulls.
    let seen: Rc<RefCell<Vec<(bool, i32)>>> = Rc::default();
    let (drained, noted, count) = (Rc::clone(&plane.drained), Rc::clone(&seen), Rc::clone(&pulled));
    let at_report = Rc::new(move || noted.borrow_mut().push((drained.borrow().len() < 2, count.get())));
    let plane = FakeControlPlane { at_report, waited_for: Rc::new(|| true), ..plane };
    let mut agent = plane.agent(host);
    let end = tokio::time::timeout(Duration::from_secs(120), Box::pin(agent.run())).await.unwrap();
    assert_eq!((end.unwrap(), pulled.get()), (ExitReason::Reboot, 1));
    let seen = seen.borrow();
    assert!(seen.contains(&(false, 0)) && seen.contains(&(true, 1)), "{seen:?}");
    assert!(!seen.contains(&(true, 0)), "{seen:?}");
}

/// Issue 33: another program drops the staged deployment while the drain is waited for. It is staged again before the reboot, and
/// the node is drained once.
#[tokio::test]
async fn dropped_deployment_is_staged_again_before_reboot() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let (os, pulled) = counting();
    let seen = Rc::clone(&os.seen);
    let root = Root::open(dir.path()).unwrap();
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
    let why = "the drain controller".to_owned();
    *plane.drained.borrow_mut() = vec![DrainStatus::Waiting { why }, DrainStatus::Yes];
    let (drops, is_dropped) = (Rc::clone(&seen), Cell::new(false));
    let waited_for = Rc::new(move || {
        let ObservedOs::Deployments { staged, .. } = &mut *drops.borrow_mut() else { panic!() };
        // Once, and only what is staged.
        let drops = !is_dropped.get() && staged.take().is_some();
        is_dropped.set(is_dropped.get() || drops);
        drops
    });
    let plane = FakeControlPlane { waited_for, ..plane };
    let mut agent = plane.agent(host);
    let end = tokio::time::timeout(Duration::from_secs(120), Box::pin(agent.run())).await.unwrap();
    assert_eq!((end.unwrap(), pulled.get()), (ExitReason::Reboot, 2));
    assert_eq!(seen.borrow().staged().unwrap().image, Some(image("b")));
    let record = agent.journal().record().unwrap();
    assert_eq!((record.dropped, record.reboots), (1, 1));
    // Requested again after the second staging, and answered at once: the node was never given back.
    assert!(plane.requests.borrow().iter().all(|request| *request == "drain"), "{:?}", plane.requests);
}

/// A machine that goes down when it is asked to, and takes its services along at once.
#[derive(Debug)]
struct GoesDown {
    boot: Supervised,
    gone: Rc<Cell<bool>>,
}

impl Power for GoesDown {
    fn boot_id(&self) -> Result<BootId, HostError> {
        self.boot.boot_id()
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<ShutdownMonitor>, HostError>> {
        self.boot.listen()
    }

    fn reboot<'a>(&'a self, _kind: RebootKind, _why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>> {
        self.gone.set(true);
        Box::pin(async { Ok(Rebooting::Requested) })
    }
}

/// Services that stop while the machine shuts down on the agent's own request are no fault of the node; after the time
/// that a shutdown may take they are.
#[tokio::test(start_paused = true)]
async fn services_ended_by_own_shutdown_are_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let os = Played::running(image("a"));
    let gone = Rc::clone(&os.gone);
    let root = Root::open(dir.path()).unwrap();
    let power = GoesDown { boot: Supervised::new(&root), gone: Rc::clone(&gone) };
    let host =
        Host { os: Box::new(os), power: Box::new(power), ..Host::in_directory(root, FailPoints::off()) };
    let plane = FakeControlPlane::wanting("rendered-b", Some(image("b")));
    let mut agent = plane.agent(host);
    let mut run = Box::pin(agent.run());
    let ended = tokio::time::timeout(Duration::from_secs(300), &mut run).await;
    assert!(ended.is_err() && gone.get(), "it waits for the end: {ended:?}");
    {
        let reports = plane.reports.borrow();
        assert_eq!(reports.last().unwrap().phase, "Rebooting");
        let faulty = reports.iter().find(|report| report.state != NodeState::Working);
        assert!(faulty.is_none(), "{faulty:#?}");
    }
    let ended = tokio::time::timeout(Duration::from_secs(600), &mut run).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(plane.reports.borrow().iter().any(|report| report.state == NodeState::Degraded));
}
