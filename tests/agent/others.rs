//! Waits for other programs that hold the sysroot, beside those of a staging: in a roll-back, in a fallback, and when an idle
//! node gives up its previous deployment. Each names the program, ends in time, and keeps the agent alive and listening.

use std::cell::Cell;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use crate::program::make_program;
use machine_config_agent::agent::{Agent, AgentError, ExitReason, ProcessSignals, SettingsLoader};
use machine_config_agent::host::{Clock, FailPoints, Host, HostError, Root};
use machine_config_agent::model::node_settings::HealthRules;
use machine_config_agent::model::observation::ObservedOs;
use machine_config_agent::model::{ConfigName, FaultClass, NodeSettings, Target};
use machine_config_agent::report::{NodeReport, NodeState};
use machine_config_agent::update::Record;
use rustix::process::{Signal, getpid, kill_process};

const WHOSE: &str = "the rpm-ostree transaction \"upgrade\" of cli";

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    RollBack,
    FallBack,
    DropRollback,
}

const WAITS: [Wait; 3] = [Wait::RollBack, Wait::FallBack, Wait::DropRollback];

/// A node at which another program holds the sysroot.
struct Scene {
    wait: Wait,
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    systemd: UnixDatagram,
    others: Rc<Cell<bool>>,
    changes: Rc<Cell<u32>>,
    dropped: Rc<Cell<u32>>,
    seen: Rc<std::cell::RefCell<ObservedOs>>,
    hand: Arc<AtomicU64>,
}

impl Scene {
    async fn new(wait: Wait) -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let socket = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&socket).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let plane = FakeControlPlane {
            systemd: Some((socket, 30 * MINUTE)),
            ..FakeControlPlane::wanting("rendered-b", Some(image("b")))
        };
        let (seen, hand) = (Played::running(image("a")).seen, Arc::new(AtomicU64::new(1_000_000_000_000)));
        let (others, changes, dropped) = (Rc::default(), Rc::default(), Rc::default());
        let scene = Self { wait, dir, plane, systemd, others, changes, dropped, seen, hand };
        match wait {
            Wait::RollBack => {}
            Wait::FallBack => {
                assert_eq!(
                    scene.live(&mut scene.agent(), MINUTE).await.unwrap().unwrap(),
                    ExitReason::Reboot
                );
                plain_host::boot(scene.dir.path(), 2);
                let ObservedOs::Deployments { booted, .. } = &mut *scene.seen.borrow_mut() else { panic!() };
                (booted.image, booted.deployment) = (Some(image("b")), "os-2.0".to_owned());
            }
            Wait::DropRollback => scene.desire(image("a")),
        }
        make_program(
            &scene.dir.path().join("etc/machine-config-agent/health.d/10-app"),
            "#!/bin/sh\nexit 7\n",
        );
        scene.others.set(true);
        scene.plane.reports.borrow_mut().clear();
        scene.notifications();
        scene
    }

    fn desire(&self, image: machine_config_agent::model::ImageRef) {
        let config = ConfigName::new("rendered-b").unwrap();
        *self.plane.desired.borrow_mut() = Target::new(config, Some(image));
    }

    fn agent(&self) -> Agent<FakeControlPlane> {
        self.agent_with(ProcessSignals::never())
    }

    fn agent_with(&self, signals: ProcessSignals) -> Agent<FakeControlPlane> {
        let (dropped, fails) = (Rc::clone(&self.dropped), self.wait == Wait::RollBack);
        let failed = || HostError::Os {
            object: image("b").to_string(),
            cause: "it is a test".to_owned(),
            class: FaultClass::Degraded,
            reason: "ImageNotBootable",
            next: "Wait.".to_owned(),
        };
        let os = Played {
            seen: Rc::clone(&self.seen),
            others: Rc::clone(&self.others),
            changes: Rc::clone(&self.changes),
            pulled: Box::new(move || Box::pin(async move { if fails { Err(failed()) } else { Ok(()) } })),
            dropped: Box::new(move || dropped.set(dropped.get() + 1)),
            ..Played::running(image("a"))
        };
        let (root, clock) = (Root::open(self.dir.path()).unwrap(), Clock::moved_by(Arc::clone(&self.hand)));
        let host = Host { os: Box::new(os), clock, ..Host::in_directory(root, FailPoints::off()) };
        let health = HealthRules { within: Duration::ZERO, ..HealthRules::default() };
        let keep_rollback = (self.wait == Wait::DropRollback).then_some(Duration::ZERO);
        let node_settings = NodeSettings { health, keep_rollback, ..NodeSettings::default() };
        let settings = SettingsLoader::new(move || Ok(node_settings.clone().into()));
        self.plane.agent_with(host, signals).with_settings(settings)
    }

    /// Lets the agent live for some time, also by the monotonic clock; `None` when it is still there after it. It is ended then.
    async fn live(
        &self,
        agent: &mut Agent<FakeControlPlane>,
        time: Duration,
    ) -> Option<Result<ExitReason, AgentError>> {
        let ticks = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.hand.fetch_add(1_000_000, Ordering::Relaxed);
            }
        };
        tokio::select! {
            end = tokio::time::timeout(time, Box::pin(agent.run())) => end.ok(),
            () = ticks => None,
        }
    }

    fn report(&self) -> NodeReport {
        self.plane.reports.borrow().last().unwrap().clone()
    }

    fn record(&self) -> Record {
        let path = self.dir.path().join("var/lib/machine-config-agent/record.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// Number of signs of life since the last call.
    fn notifications(&self) -> usize {
        let (mut count, mut bytes) = (0, [0; 4096]);
        while let Ok(length) = self.systemd.recv(&mut bytes) {
            count += usize::from(String::from_utf8_lossy(&bytes[..length]).contains("WATCHDOG=1"));
        }
        count
    }
}

/// The report names the program for as long as it is waited for; systemd sees life all the while; each wait ends after the
/// limit and is begun again, however often; and when the program has ended the node goes on.
#[tokio::test(start_paused = true)]
async fn foreign_transaction_is_named_and_wait_ends_and_is_repeated() {
    for wait in WAITS {
        let scene = Scene::new(wait).await;
        let mut agent = scene.agent();
        let act = async {
            tokio::time::sleep(MINUTE).await;
            assert_eq!(scene.report().waiting.as_deref(), Some(WHOSE), "{wait:?}");
            if wait == Wait::DropRollback {
                assert_eq!(scene.report().state, NodeState::Done, "the node is none the worse for it");
            }
            for _ in 0..8 {
                tokio::time::sleep(30 * MINUTE).await;
                assert!((1..=8).contains(&scene.notifications()), "{wait:?}");
            }
            let tries = scene.changes.get();
            assert!((8..=17).contains(&tries), "{wait:?}: {tries} tries");
            let reports = scene.plane.reports.borrow().clone();
            let tells = |report: &NodeReport| {
                let told = report.waiting.clone().unwrap_or_default() + &report.reason;
                told.contains("made no progress for 900 s") && told.contains(WHOSE)
            };
            assert!(wait == Wait::DropRollback || reports.iter().any(tells), "{wait:?}: {reports:#?}");
            scene.others.set(false);
            tokio::time::sleep(5 * MINUTE).await;
        };
        let (end, ()) = tokio::join!(scene.live(&mut agent, 5 * 60 * MINUTE), act);
        match wait {
            Wait::RollBack => {
                assert!(end.is_none() && scene.record().is_undone());
                assert!(scene.report().reason.contains("ImageNotBootable"), "{:#?}", scene.report());
            }
            Wait::FallBack => assert_eq!(end.unwrap().unwrap(), ExitReason::Reboot),
            Wait::DropRollback => {
                assert!(end.is_none());
                assert_eq!((scene.dropped.get(), scene.report().waiting), (1, None));
            }
        }
    }
}

/// Nothing of ours runs meanwhile: a stop is taken at once.
#[tokio::test(start_paused = true)]
async fn stop_ends_wait_for_foreign_transaction() {
    for wait in WAITS {
        let scene = Scene::new(wait).await;
        let mut agent = scene.agent_with(ProcessSignals::register().unwrap());
        let act = async {
            tokio::time::sleep(MINUTE).await;
            assert_eq!(scene.changes.get(), 1, "{wait:?}");
            kill_process(getpid(), Signal::TERM).unwrap();
            // The clock of the test does not wait for the kernel.
            std::thread::sleep(Duration::from_millis(200));
        };
        let (end, ()) = tokio::join!(scene.live(&mut agent, MINUTE + Duration::from_secs(5)), act);
        let end = end.unwrap_or_else(|| panic!("{wait:?}: it goes on"));
        assert_eq!(end.unwrap(), ExitReason::Stopped, "{wait:?}");
        if wait == Wait::FallBack {
            assert_eq!(scene.record().fallbacks, 0, "a stop is no try");
        }
    }
}

/// An idle node that only gives up its previous deployment takes another target at once.
#[tokio::test(start_paused = true)]
async fn idle_node_hears_new_target_while_it_waits() {
    let scene = Scene::new(Wait::DropRollback).await;
    let mut agent = scene.agent();
    let act = async {
        for _ in 0..3 {
            tokio::time::sleep(MINUTE).await;
            assert_eq!(scene.changes.get(), 1, "a change that is none does not end the wait");
            scene.plane.nudge.notify_one();
        }
        tokio::time::sleep(MINUTE).await;
        scene.desire(image("b"));
        scene.plane.nudge.notify_one();
    };
    let (end, ()) = tokio::join!(scene.live(&mut agent, 6 * MINUTE), act);
    assert_eq!(end.expect("it is deaf").unwrap(), ExitReason::Reboot);
    assert_eq!(scene.dropped.get(), 0);
}
