//! Pinned images, with a container runtime that a test plays behind the real protocol.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::cri::{CONTAINERD, CRIO, Runtime, id};
use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use machine_config_agent::agent::Agent;
use machine_config_agent::control::link::link;
use machine_config_agent::control::pins::{DesiredPins, PinReport};
use machine_config_agent::decide::pinned::PinProgress;
use machine_config_agent::host::{FailPoints, Host, Root};
use machine_config_agent::model::pinned::{PinnedSet, Pins};
use tokio::sync::watch::{Receiver, Sender};

const DROP_IN: &str = "etc/crio/crio.conf.d/50-pinned-images";
const MARK: &str = "var/lib/machine-config-agent/pinned-images";

/// No step of a test takes longer.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Node {
    dir: tempfile::TempDir,
    agent: Agent<FakeControlPlane>,
    control: FakeControlPlane,
    desired: Sender<DesiredPins>,
    report: Receiver<PinReport>,
}

impl Node {
    /// With a runtime that is played.
    fn new(socket: &str) -> (Self, Runtime) {
        let node = Self::bare();
        let runtime = Runtime::listen(node.root(), socket);
        (node, runtime)
    }

    /// Without a runtime.
    pub(crate) fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let control = FakeControlPlane::wanting("rendered-a", Some(image("a")));
        let (source, link) = link();
        *control.pins.borrow_mut() = Some(link);
        let root = Root::open(dir.path()).unwrap();
        let os = Box::new(Played::running(image("a")));
        let agent = control.agent(Host { os, ..Host::in_directory(root, FailPoints::off()) });
        Self { dir, agent, control, desired: source.desired, report: source.report }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn desire(&self, pins: Pins) {
        self.desired.send_replace(Some(Arc::new(pins)));
    }

    fn want(&self, generation: i64, names: &[&str]) {
        self.desire(pins(generation, names));
    }

    pub(crate) fn want_nothing(&self) {
        self.desired.send_replace(Some(Arc::default()));
    }

    /// Lets the agent live until it reports this of what is desired now.
    async fn until(&mut self, what: &str, is_it: impl Fn(&PinProgress) -> bool) -> PinProgress {
        let Self { agent, report, desired, .. } = self;
        let (wanted, last) = (desired.borrow().clone().unwrap(), report.clone());
        let reported = async {
            let is_it = |report: &PinReport| {
                report.as_ref().is_some_and(|(pins, progress)| **pins == *wanted && is_it(progress))
            };
            report.wait_for(is_it).await.unwrap().clone().unwrap().1
        };
        tokio::select! {
            _ = Box::pin(agent.run()) => panic!("the agent ended"),
            progress = reported => progress,
            () = tokio::time::sleep(LIMIT) => panic!("not reported: {what}, but {:?}", last.borrow()),
        }
    }

    pub(crate) async fn until_empty(&mut self) {
        self.until_pinned().await;
        assert!(!self.path(MARK).exists());
    }

    pub(crate) async fn until_pinned(&mut self) {
        self.until("pinned", |progress| *progress == PinProgress::Pinned).await;
    }

    /// Lets the agent live until this holds.
    async fn live_until(&mut self, is_it: impl Fn() -> bool) {
        let holds = async {
            while !is_it() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = Box::pin(self.agent.run()) => panic!("the agent ended"),
            () = holds => {}
            () = tokio::time::sleep(LIMIT) => panic!("not so"),
        }
    }

    async fn until_failed(&mut self) -> String {
        match self.until("failed", |progress| matches!(progress, PinProgress::Failed(_))).await {
            PinProgress::Failed(why) => why,
            other @ (PinProgress::Prefetching | PinProgress::Pinned) => panic!("{other:?}"),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn drop_in(&self) -> Option<String> {
        std::fs::read_to_string(self.path(DROP_IN)).ok()
    }
}

fn name(letter: &str) -> String {
    format!("registry.test/{letter}@sha256:{}", letter.repeat(64))
}

/// One set with one image.
pub(crate) fn pin(image: &str) -> Pins {
    let set =
        PinnedSet { name: "set".to_owned(), generation: 1, images: vec![image.to_owned()], unread: None };
    Pins { sets: vec![set], ..Pins::default() }
}

fn pins(generation: i64, names: &[&str]) -> Pins {
    let images = names.iter().map(|letter| name(letter)).collect();
    Pins {
        sets: vec![PinnedSet { name: "set".to_owned(), generation, images, unread: None }],
        ..Pins::default()
    }
}

/// MCD-243, MCD-245: CRI-O is given the list when all images are there, in order, and loses it with the last set.
#[tokio::test]
async fn crio_is_given_list_of_images_and_loses_it() {
    let (mut node, runtime) = Node::new(CRIO);
    runtime.gate.forget_permits(999);
    node.want(1, &["b", "a", "b"]);
    node.until("prefetching", |progress| *progress == PinProgress::Prefetching).await;
    assert_eq!(node.drop_in(), None);
    runtime.gate.add_permits(100);
    node.until_pinned().await;
    let expected =
        format!("[crio]\n  [crio.image]\n    pinned_images = [\"{}\", \"{}\"]\n", name("a"), name("b"));
    assert_eq!(node.drop_in(), Some(expected));
    let written = std::fs::metadata(node.path(DROP_IN)).unwrap();
    assert_eq!(written.mode() & 0o777, 0o644);
    // Another generation with the same images writes nothing and pulls nothing.
    node.want(2, &["a", "b"]);
    node.until_pinned().await;
    assert_eq!(std::fs::metadata(node.path(DROP_IN)).unwrap().ino(), written.ino());
    assert_eq!(runtime.state().pulled.len(), 2);
    node.want_nothing();
    node.until_empty().await;
    assert_eq!((node.drop_in(), node.path(MARK).exists()), (None, false));
}

/// The label is set on name and id, goes with the set, and that of the pause image stays.
#[tokio::test]
async fn containerd_labels_images_and_unlabels_them() {
    let (mut node, runtime) = Node::new(CONTAINERD);
    let pause = [("io.cri-containerd.pinned".to_owned(), "pinned".to_owned())];
    runtime.state().labels.insert("pause:3".to_owned(), pause.into());
    node.want(1, &["a", "b"]);
    node.until_pinned().await;
    let mut expected =
        ["a", "b"].map(name).into_iter().flat_map(|name| [id(&name), name]).collect::<Vec<_>>();
    expected.push("pause:3".to_owned());
    expected.sort();
    assert_eq!(runtime.pinned(), expected);
    node.want(2, &["b"]);
    node.until_pinned().await;
    let mut expected = vec![id(&name("b")), "pause:3".to_owned(), name("b")];
    expected.sort();
    assert_eq!(runtime.pinned(), expected);
    node.want_nothing();
    node.until_empty().await;
    assert_eq!(runtime.pinned(), ["pause:3"]);
}

/// MCD-246: five at once, and one on the control plane.
#[tokio::test]
async fn pulls_at_once_are_bounded() {
    for (is_control_plane, at_once) in [(false, 5), (true, 1)] {
        let (mut node, runtime) = Node::new(CONTAINERD);
        let pins = Pins { is_control_plane, ..pins(1, &["a", "b", "c", "d", "e", "f", "0", "1"]) };
        runtime.gate.forget_permits(1000);
        node.desire(pins);
        node.live_until(|| runtime.state().running.0 == at_once).await;
        runtime.gate.add_permits(100);
        node.until_pinned().await;
        let state = runtime.state();
        assert_eq!((state.pulled.len(), state.running.1), (8, at_once));
    }
}

/// MCD-244: what has no place is not pulled, and it is said.
#[tokio::test]
async fn images_without_place_are_not_pulled() {
    let (mut node, runtime) = Node::new(CONTAINERD);
    // A file system without a free byte.
    std::fs::create_dir_all(node.path("full")).unwrap();
    std::os::unix::fs::symlink("/proc", node.path("full/proc")).unwrap();
    runtime.state().mountpoint = "/full/proc".to_owned();
    node.want(1, &["a"]);
    let why = node.until_failed().await;
    assert!(why.contains("MiB have to stay free"), "{why}");
    assert_eq!(runtime.state().pulled, []);
}

/// Credentials are those of the image's registry: at once for containerd, and for CRI-O where its own do not do.
#[tokio::test]
async fn pull_is_given_credentials_of_its_registry() {
    for (socket, tries) in [(CONTAINERD, 1), (CRIO, 2)] {
        let (mut node, runtime) = Node::new(socket);
        runtime.state().secrets.insert(name("a"), "c2VjcmV0".to_owned());
        let secret = node.path("var/lib/kubelet/config.json");
        std::fs::create_dir_all(secret.parent().unwrap()).unwrap();
        std::fs::write(secret, r#"{"auths":{"registry.test":{"auth":"c2VjcmV0"}}}"#).unwrap();
        node.want(1, &["a"]);
        node.until_pinned().await;
        let state = runtime.state();
        assert_eq!(state.pulled.len(), tries);
        assert_eq!(state.pulled.last().unwrap(), &(name("a"), "c2VjcmV0".to_owned()));
    }
}

/// A failure names the image and is tried again; what is there by then is not pulled again.
#[tokio::test]
async fn failed_pull_is_reported_and_tried_again() {
    let (mut node, runtime) = Node::new(CONTAINERD);
    runtime.state().refuses = Some("no space left on device".to_owned());
    node.want(1, &["a"]);
    let why = node.until_failed().await;
    assert!(why.contains(&name("a")) && why.contains("refuses PullImage (2): no space left"), "{why}");
    runtime.state().refuses = None;
    node.until_pinned().await;
    assert_eq!(runtime.state().pulled.len(), 2);
}

/// What keeps no images says so, and so does a set that is not there.
#[tokio::test]
async fn runtime_that_pins_nothing_is_reported() {
    let (mut node, runtime) = Node::new(CONTAINERD);
    runtime.state().is_old = true;
    node.want(1, &["a"]);
    let why = node.until_failed().await;
    assert!(why.contains("containerd 1.7 or later"), "{why}");
    node.desired.send_replace(Some(Arc::new(Pins { missing: vec!["gone".to_owned()], ..Pins::default() })));
    let missing = |progress: &PinProgress| matches!(progress, PinProgress::Failed(why) if why.contains("PinnedImageSet gone"));
    node.until("the missing set", missing).await;
}

/// A newer wish ends the wait for an older one; without any, nothing is connected or written.
#[tokio::test]
async fn newer_set_replaces_older_and_none_costs_nothing() {
    let (mut node, runtime) = Node::new(CONTAINERD);
    node.want_nothing();
    let settled = Rc::clone(&node.control.published);
    tokio::select! {
        _ = Box::pin(node.agent.run()) => panic!("the agent ended"),
        () = settled.notified() => {}
    }
    assert_eq!((runtime.state().connections, node.path(MARK).exists()), (0, false));
    assert_eq!(*node.report.borrow(), None);
    runtime.gate.forget_permits(1000);
    node.want(1, &["a"]);
    node.until("prefetching", |progress| *progress == PinProgress::Prefetching).await;
    runtime.gate.add_permits(1);
    node.want(2, &["b"]);
    runtime.gate.add_permits(1);
    node.until_pinned().await;
    assert!(runtime.pinned().contains(&name("b")));
}
