//! A target is told as soon as it is read: a pass that prepares it may take minutes, and the cause of an earlier one hides no
//! later one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use machine_config_agent::agent::{Agent, AgentError, ExitReason};
use machine_config_agent::host::clock::Clock;
use machine_config_agent::host::{FailPoints, Host, HostError, Root};
use machine_config_agent::model::{ConfigName, FaultClass, Target, Timestamp};
use machine_config_agent::report::{NodeReport, NodeState};
use machine_config_agent::update::ending::LATER;
use tokio::time::timeout;

/// Far less than the limit of a silent registry, far more than a pass.
const SOON: Duration = Duration::from_secs(2);
/// Longer than any wait for a next try.
const LONG: Duration = Duration::from_secs(3600);
const TAG: &str = "registry.test/os:latest";

type Ended = Result<ExitReason, AgentError>;

/// A node in rendered-a, whose registry may be silent, or not have an image.
struct Scene {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    mute: Rc<Cell<bool>>,
    lacks: Rc<Cell<bool>>,
    pull: Rc<Cell<Pull>>,
    pulls: Rc<Cell<u32>>,
}

#[derive(Clone, Copy, Default)]
enum Pull {
    #[default]
    Works,
    Fails,
    Hangs,
}

fn failed() -> Result<(), HostError> {
    let (object, cause, next) = (image("b").to_string(), "it is a test".to_owned(), "n".to_owned());
    Err(HostError::Os { object, cause, class: FaultClass::Degraded, reason: "ImageNotFound", next })
}

impl Scene {
    async fn at_rest() -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let plane = FakeControlPlane::wanting("rendered-a", None);
        for config in ["rendered-b", "rendered-c"] {
            plane.config(config, &FakeControlPlane::empty(config));
        }
        let (mute, lacks, pull, pulls) = Default::default();
        let scene = Self { dir, plane, mute, lacks, pull, pulls };
        let mut agent = scene.agent();
        let mut run = Box::pin(agent.run());
        scene.until(&mut run, SOON, |report| report.state == NodeState::Done).await;
        scene
    }

    fn agent(&self) -> Agent<FakeControlPlane> {
        let lacks = Rc::clone(&self.lacks);
        let (pull, pulls) = (Rc::clone(&self.pull), Rc::clone(&self.pulls));
        let os = Played {
            mute: Rc::clone(&self.mute),
            asked: Box::new(move || if lacks.get() { failed() } else { Ok(()) }),
            pulled: Box::new(move || {
                pulls.set(pulls.get() + 1);
                let pull = pull.get();
                Box::pin(async move {
                    match pull {
                        Pull::Works => Ok(()),
                        Pull::Fails => failed(),
                        Pull::Hangs => std::future::pending().await,
                    }
                })
            }),
            ..Played::running(image("a"))
        };
        let root = Root::open(self.dir.path()).unwrap();
        self.plane.agent(Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) })
    }

    fn desire(&self, config: &str, digit: &str) {
        *self.plane.invalid.borrow_mut() = None;
        *self.plane.desired.borrow_mut() = Target::new(ConfigName::new(config).unwrap(), Some(image(digit)));
        self.plane.nudge.notify_one();
    }

    fn desire_tag(&self) {
        *self.plane.invalid.borrow_mut() = Some(TAG.to_owned());
        self.plane.nudge.notify_one();
    }

    /// A new process tells soon what it is to do.
    async fn tells_at_start(&self, config: &'static str) {
        self.live(&mut Box::pin(self.agent().run()), SOON).await;
        let last = self.last();
        assert_eq!((last.state, of(config)(&last)), (NodeState::Working, true), "{last:#?}");
    }

    /// The last report, for the cluster and for `status`.
    fn last(&self) -> NodeReport {
        let last = self.plane.reports.borrow().last().unwrap().clone();
        assert_eq!(self.plane.kept.borrow().as_ref().unwrap(), &last, "`status` reads another one");
        last
    }

    async fn until(
        &self,
        run: &mut (impl Future<Output = Ended> + Unpin),
        limit: Duration,
        is_it: impl Fn(&NodeReport) -> bool,
    ) {
        let met = async {
            loop {
                self.plane.published.notified().await;
                if self.plane.reports.borrow().last().is_some_and(&is_it) {
                    return;
                }
            }
        };
        let ended = timeout(limit, async {
            tokio::select! {
                end = &mut *run => panic!("it ended: {end:?}"),
                () = met => {}
            }
        });
        assert!(ended.await.is_ok(), "not within {limit:?}: {:#?}", self.plane.reports.borrow().last());
    }

    /// Lets the agent live for some time.
    async fn live(&self, run: &mut (impl Future<Output = Ended> + Unpin), time: Duration) {
        let end = timeout(time, run).await;
        assert!(end.is_err(), "it ended: {end:?}");
    }
}

fn of(config: &'static str) -> impl Fn(&NodeReport) -> bool {
    move |report| report.desired_config.as_ref().is_some_and(|desired| desired.as_str() == config)
}

/// Issue 33: with a silent registry a new target left Done with the old target for minutes. So did its correction.
#[tokio::test(start_paused = true)]
async fn new_target_is_told_while_registry_is_silent() {
    let scene = Scene::at_rest().await;
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.state == NodeState::Done).await;
    scene.mute.set(true);
    for (config, digit) in [("rendered-b", "b"), ("rendered-c", "c")] {
        scene.desire(config, digit);
        scene.live(&mut run, SOON).await;
        let last = scene.last();
        assert_eq!((last.state, of(config)(&last)), (NodeState::Working, true), "{last:#?}");
        assert_eq!(last.desired_image, Some(image(digit)));
        let doing = format!("inspects image {} for {config}", image(digit));
        assert_eq!(last.doing.as_deref(), Some(&*doing));
    }
}

/// Issue 33: before there is an update nothing but the metric of the phase lets `UpdateStuck` fire (tests/monitoring).
#[tokio::test(start_paused = true)]
async fn phase_metric_shows_target_without_update() {
    let scene = Scene::at_rest().await;
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.state == NodeState::Done).await;
    let phase = || {
        let text = scene.plane.metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("machine_config_agent_phase{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(phase(), ["machine_config_agent_phase{phase=\"Idle\"} 1"]);
    scene.mute.set(true);
    scene.desire("rendered-b", "b");
    scene.live(&mut run, SOON).await;
    assert_eq!(phase(), ["machine_config_agent_phase{phase=\"Preparing\"} 1"]);
    // Its image is there, and the update stages.
    scene.mute.set(false);
    scene.pull.set(Pull::Hangs);
    scene.live(&mut run, SOON).await;
    assert_eq!(phase(), ["machine_config_agent_phase{phase=\"Staging\"} 1"]);
}

/// `nextTry` is the time of the next try by itself: there between two tries of a fault, not during one, and gone with the fault.
#[tokio::test(start_paused = true)]
async fn time_of_next_try_is_told_between_tries() {
    let scene = Scene::at_rest().await;
    scene.lacks.set(true);
    scene.desire("rendered-b", "b");
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.next_try.is_some()).await;
    let now = || Clock::system().now();
    let at = |report: &NodeReport| Timestamp::read(report.next_try.as_ref().unwrap()).unwrap();
    let first = at(&scene.last());
    assert!(first > now() && first.since(now()) <= LATER, "{first}");
    scene.plane.reports.borrow_mut().clear();
    scene.live(&mut run, LONG).await;
    let tries: Vec<NodeReport> =
        scene.plane.reports.borrow().iter().filter(|report| report.doing.is_some()).cloned().collect();
    assert!(tries.len() > 3, "no try was told");
    assert!(tries.iter().all(|report| report.next_try.is_none()), "a try is under way: {tries:#?}");
    assert!(scene.last().next_try.is_some(), "{:#?}", scene.last());
    scene.lacks.set(false);
    scene.pull.set(Pull::Hangs);
    scene.until(&mut run, LONG, |report| report.phase == "Staging").await;
    assert_eq!(scene.last().next_try, None, "{:#?}", scene.last());
}

/// A process that is new knows of no target before: what it finds is told as soon.
#[tokio::test(start_paused = true)]
async fn target_found_at_start_is_told_while_registry_is_silent() {
    let scene = Scene::at_rest().await;
    scene.mute.set(true);
    scene.desire("rendered-b", "b");
    scene.plane.reports.borrow_mut().clear();
    scene.tells_at_start("rendered-b").await;
}

/// A try that repeats another one is none the better before its end.
#[tokio::test(start_paused = true)]
async fn next_try_keeps_fault_of_last_one() {
    let scene = Scene::at_rest().await;
    scene.lacks.set(true);
    scene.desire("rendered-b", "b");
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.state == NodeState::Degraded).await;
    scene.plane.reports.borrow_mut().clear();
    scene.live(&mut run, LONG).await;
    let reports = scene.plane.reports.borrow();
    assert!(reports.iter().filter(|report| report.doing.is_some()).count() > 3, "no try was told");
    let since = &reports.first().unwrap().since;
    for report in reports.iter() {
        assert_eq!((report.state, &report.since), (NodeState::Degraded, since), "{report:#?}");
    }
}

/// Issue 33: the fault of an image hid that the target is not valid since, and its retry was reported for it.
#[tokio::test(start_paused = true)]
async fn refused_target_is_told_over_fault_of_one_before() {
    let scene = Scene::at_rest().await;
    scene.lacks.set(true);
    scene.desire("rendered-b", "b");
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.state == NodeState::Degraded).await;
    scene.desire_tag();
    scene.until(&mut run, SOON, |report| report.reason.contains(TAG)).await;
    scene.plane.reports.borrow_mut().clear();
    scene.live(&mut run, LONG).await;
    for report in scene.plane.reports.borrow().iter() {
        assert!(report.reason.contains(TAG), "{report:#?}");
    }
    // Corrected to the same one: its own cause is back.
    scene.desire("rendered-b", "b");
    scene.until(&mut run, SOON, |report| report.reason.contains("it is a test")).await;
    // Another one is not yet at fault.
    scene.mute.set(true);
    scene.desire("rendered-c", "c");
    scene.live(&mut run, SOON).await;
    assert_eq!(scene.last().state, NodeState::Working, "{:#?}", scene.last());
}

/// Issue 33: of an update that failed, too; and no try of it begins while another target waits for its correction.
#[tokio::test(start_paused = true)]
async fn refused_target_is_told_over_failed_update() {
    let scene = Scene::at_rest().await;
    scene.pull.set(Pull::Fails);
    scene.desire("rendered-b", "b");
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.state == NodeState::Degraded && report.phase == "Idle").await;
    let pulls = scene.pulls.get();
    scene.plane.rewritten.set(true);
    scene.desire_tag();
    scene.until(&mut run, SOON, |report| report.reason.contains(TAG)).await;
    scene.plane.reports.borrow_mut().clear();
    scene.live(&mut run, LONG).await;
    scene.plane.rewritten.set(true);
    scene.desire_tag();
    scene.live(&mut run, LONG).await;
    assert!(scene.last().reason.contains(TAG), "{:#?}", scene.last());
    assert_eq!(scene.pulls.get(), pulls, "the target before is tried again");
    // A process that is new finds both, and the newest counts.
    drop(run);
    drop(agent);
    scene.live(&mut Box::pin(scene.agent().run()), SOON).await;
    assert!(scene.last().reason.contains(TAG), "{:#?}", scene.last());
    // Another one is not yet at fault.
    scene.mute.set(true);
    scene.desire("rendered-c", "c");
    scene.tells_at_start("rendered-c").await;
}

/// Issue 33: a pull may take long, and goes on; that the target is not valid is told meanwhile.
#[tokio::test(start_paused = true)]
async fn refused_target_is_told_during_pull() {
    let scene = Scene::at_rest().await;
    scene.pull.set(Pull::Hangs);
    scene.desire("rendered-b", "b");
    let mut agent = scene.agent();
    let mut run = Box::pin(agent.run());
    scene.until(&mut run, SOON, |report| report.phase == "Staging").await;
    scene.live(&mut run, SOON).await;
    scene.desire_tag();
    scene.live(&mut run, SOON).await;
    assert!(scene.last().reason.contains(TAG), "{:#?}", scene.last());
    scene.desire("rendered-b", "b");
    scene.live(&mut run, SOON).await;
    let last = scene.last();
    assert_eq!((last.state, last.phase.as_str()), (NodeState::Working, "Staging"), "{last:#?}");
}
