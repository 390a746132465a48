//! CRI-O's list beside the double of systemd: a list counts once CRI-O has read it.
#![expect(clippy::disallowed_methods, reason = "the double of CRI-O makes its socket")]

#[path = "../../../tests/support/cri.rs"]
mod cri;

use super::*;
use crate::control::link::link;
use crate::control::pins::PinSource;
use crate::host::FailPoints;
use crate::host::systemd::tests::double::Double;
use crate::host::systemd::tests::peers;
use crate::model::ProxySettings;
use crate::model::pinned::PinnedSet;

/// A node whose runtime is CRI-O.
struct Scene {
    _dir: tempfile::TempDir,
    _server: zbus::Connection,
    double: Double,
    pinner: Pinner,
    _source: PinSource,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap().with_fail_points(&FailPoints::off());
        let _runtime = cri::Runtime::listen(dir.path(), cri::CRIO);
        let double = Double::new("252");
        let (server, systemd) = peers(&double).await;
        let (source, link) = link();
        let proxies = Proxies::new(root.clone(), ProxySettings::default());
        let pinner = Pinner { link, root, systemd, proxies, retry: PinRetry::new("node") };
        Self { _dir: dir, _server: server, double, pinner, _source: source }
    }

    /// Reconciles while a reload ends so; returns the success and the calls of systemd.
    async fn reconciled(&self, pins: &Pins, result: &'static str) -> (Option<bool>, usize) {
        self.double.state().jobs.result = result;
        self.double.state().asked.clear();
        let done = self.pinner.reconcile(&Arc::new(pins.clone())).await.ok();
        let asked = self.double.state().asked.clone();
        assert!(asked.iter().all(|call| call.contains("crio.service")), "{asked:?}");
        (done, asked.len())
    }
}

/// MCD-243, MCD-245: a list that CRI-O failed to read is read at the next try, although the file is right; so is its end.
#[tokio::test(flavor = "current_thread")]
async fn failed_reload_of_crio_is_tried_again() {
    let scene = Scene::new().await;
    let image = format!("registry.test/a@sha256:{}", "a".repeat(64));
    let set = PinnedSet { name: "set".to_owned(), generation: 1, images: vec![image], unread: None };
    let (some, none) = (Pins { sets: vec![set], ..Pins::default() }, Pins::default());
    assert_eq!(scene.reconciled(&some, "failed").await, (None, 1));
    assert_eq!(scene.reconciled(&some, "done").await, (Some(true), 1));
    assert_eq!(scene.reconciled(&some, "done").await, (Some(true), 0));
    assert_eq!(scene.reconciled(&none, "failed").await, (None, 1));
    assert_eq!(scene.reconciled(&none, "done").await, (Some(true), 1));
    assert_eq!(scene.reconciled(&none, "done").await, (Some(false), 0));
    // MCD's list, without a mark of the agent.
    scene.pinner.root.replace(DROP_IN_PATH, b"[crio]\n", FileMode::DEFAULT).unwrap();
    assert_eq!(scene.reconciled(&none, "failed").await, (None, 1));
    assert_eq!(scene.reconciled(&none, "done").await, (Some(true), 1));
    assert_eq!(scene.reconciled(&none, "done").await, (Some(false), 0));
}
