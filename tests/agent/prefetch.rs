//! An image is downloaded before it is desired: when the node is otherwise idle, bounded, and given up for an update.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use machine_config_agent::agent::Agent;
use machine_config_agent::host::os::{PrefetchRequest, Prefetched};
use machine_config_agent::host::{BoxFuture, FailPoints, Host, HostError, Root};
use machine_config_agent::model::{ConfigName, FaultClass, ImageRef, Target};
use machine_config_agent::report::{NodeState, PrefetchState, PrefetchStatus};

type Download = BoxFuture<'static, Result<Prefetched, HostError>>;

/// A node that runs the image `a`, whose downloads are played.
struct Node {
    dir: tempfile::TempDir,
    control: FakeControlPlane,
    /// Requested images.
    asked: Rc<RefCell<Vec<Option<ImageRef>>>>,
}

/// Counts the downloads that run.
struct Running(Rc<Cell<u32>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Node {
    fn new(requested: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let control = FakeControlPlane::wanting("rendered-a", Some(image("a")));
        *control.prefetch.borrow_mut() = Some(requested.to_owned());
        Self { dir, control, asked: Rc::default() }
    }

    fn agent(&self, played: Played, download: impl Fn() -> Download + 'static) -> Agent<FakeControlPlane> {
        let asked = Rc::clone(&self.asked);
        let prefetched = move |request: PrefetchRequest| {
            asked.borrow_mut().push(request.image);
            download()
        };
        let os = Played { prefetched: Box::new(prefetched), ..played };
        let root = Root::open(self.dir.path()).unwrap();
        self.control.agent(Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) })
    }

    /// Lets the agent go on for some time, which passes at once.
    async fn live(run: &mut (impl Future + Unpin), time: Duration) {
        assert!(tokio::time::timeout(time, run).await.is_err());
    }

    fn status(&self) -> Option<PrefetchStatus> {
        self.control.reports.borrow().last().unwrap().prefetch.clone()
    }

    fn requests(&self) -> Vec<Option<ImageRef>> {
        self.asked.borrow().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn requested_image_is_downloaded_once_and_dropped_when_withdrawn() {
    let node = Node::new(&image("b").to_string());
    let mut agent = node.agent(Played::running(image("a")), || {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(Prefetched { free: Some(5 << 30) })
        })
    });
    let mut run = Box::pin(agent.run());
    Node::live(&mut run, Duration::from_secs(60)).await;
    let downloading = PrefetchStatus::new(image("b").to_string(), PrefetchState::Downloading);
    assert_eq!(node.status(), Some(downloading));
    assert_eq!(node.control.reports.borrow().last().unwrap().state, NodeState::Done);
    Node::live(&mut run, Duration::from_secs(3600)).await;
    let done = PrefetchStatus::new(image("b").to_string(), PrefetchState::Done);
    assert_eq!(node.status(), Some(PrefetchStatus { free_bytes: Some(5 << 30), ..done }));
    assert_eq!(node.requests(), [Some(image("b"))]);
    node.control.prefetch.take();
    node.control.nudge.notify_one();
    Node::live(&mut run, Duration::from_secs(3600)).await;
    assert_eq!(node.status(), None);
    assert_eq!(node.requests(), [Some(image("b")), None]);
}

#[tokio::test(start_paused = true)]
async fn failed_download_is_reported_and_tried_again_at_bounded_rate() {
    let node = Node::new(&image("b").to_string());
    let failed = || HostError::Os {
        object: image("b").to_string(),
        cause: "it is a test".to_owned(),
        class: FaultClass::Retry,
        reason: "ImagePullFailed",
        next: "Wait.".to_owned(),
    };
    let mut agent = node.agent(Played::running(image("a")), move || Box::pin(async move { Err(failed()) }));
    let mut run = Box::pin(agent.run());
    Node::live(&mut run, Duration::from_secs(24 * 3600)).await;
    let status = node.status().unwrap();
    assert_eq!(
        (status.state, status.fault.unwrap().reason.as_str()),
        (PrefetchState::Failed, "ImagePullFailed")
    );
    let tries = node.requests().len();
    assert!((24..=32).contains(&tries), "{tries}");
    // Nothing depends on it.
    assert_eq!(node.control.reports.borrow().last().unwrap().state, NodeState::Done);
}

#[tokio::test(start_paused = true)]
async fn download_without_progress_is_given_up() {
    let node = Node::new(&image("b").to_string());
    let mut agent = node.agent(Played::running(image("a")), || Box::pin(std::future::pending()));
    let mut run = Box::pin(agent.run());
    Node::live(&mut run, Duration::from_secs(15 * 60 + 30)).await;
    let status = node.status().unwrap();
    assert_eq!((status.state, status.fault.unwrap().reason.as_str()), (PrefetchState::Failed, "OsStalled"));
}

/// The update wins at once: no download runs while it stages.
#[tokio::test(start_paused = true)]
async fn another_target_ends_download() {
    let node = Node::new(&image("b").to_string());
    let running: Rc<Cell<u32>> = Rc::default();
    let (counted, beside) = (Rc::clone(&running), Rc::clone(&running));
    let staged: Rc<RefCell<Vec<u32>>> = Rc::default();
    let stages = Rc::clone(&staged);
    let played = Played {
        pulled: Box::new(move || {
            stages.borrow_mut().push(beside.get());
            Box::pin(async { Ok(()) })
        }),
        ..Played::running(image("a"))
    };
    let mut agent = node.agent(played, move || {
        counted.set(counted.get() + 1);
        let guard = Running(Rc::clone(&counted));
        Box::pin(async move {
            let _running = guard;
            std::future::pending().await
        })
    });
    let mut run = Box::pin(agent.run());
    Node::live(&mut run, Duration::from_secs(60)).await;
    assert_eq!(running.get(), 1);
    node.control.config("rendered-c", &FakeControlPlane::empty("rendered-c"));
    let target = Target::new(ConfigName::new("rendered-c").unwrap(), Some(image("c")));
    *node.control.desired.borrow_mut() = target;
    node.control.nudge.notify_one();
    let end = tokio::time::timeout(Duration::from_secs(60), &mut run).await;
    assert!(end.is_ok(), "it reboots");
    assert_eq!((running.get(), &*staged.borrow()), (0, &vec![0]));
}

#[tokio::test(start_paused = true)]
async fn image_by_tag_is_refused() {
    let node = Node::new("registry.test/os:latest");
    let mut agent = node.agent(Played::running(image("a")), || Box::pin(std::future::pending()));
    let mut run = Box::pin(agent.run());
    Node::live(&mut run, Duration::from_secs(60)).await;
    let status = node.status().unwrap();
    assert_eq!((status.state, status.image.as_str()), (PrefetchState::Failed, "registry.test/os:latest"));
    assert_eq!(status.fault.unwrap().reason, "InvalidImage");
    assert_eq!(node.requests(), []);
}
