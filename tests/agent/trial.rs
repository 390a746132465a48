//! The trial of a new deployment, under the agent's real loop: with an OS backend and a control plane that a test plays,
//! and checks that are real programs.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use crate::program::make_program;
use machine_config_agent::agent::{Agent, ExitReason, Reboots, RunMode, SettingsLoader};
use machine_config_agent::host::{FailPoints, Host, HostError, Root};
use machine_config_agent::model::node_settings::{HealthRules, RollBack};
use machine_config_agent::model::observation::{ObservedOs, Staged};
use machine_config_agent::model::{ConfigName, NodeSettings, Target};
use machine_config_agent::report::{Event, NodeReport, NodeState};
use machine_config_agent::update::{Phase, Record};

const CHECK: &str = "/etc/machine-config-agent/health.d/10-app";
/// The check ends well as soon as this is there.
const UP: &str = "/run/app-is-up";
const ORIGIN: &str = "os-1.0";

/// A node in its first deployment, about to be switched to another image.
struct Story {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    os: Rc<RefCell<ObservedOs>>,
    rules: HealthRules,
    /// Deployments that were made the next boot's.
    back: Rc<RefCell<Vec<String>>>,
    /// True if an administrator removed the deployment before.
    gone: Rc<Cell<bool>>,
}

impl Story {
    fn new(within: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let story = Self {
            plane: FakeControlPlane::wanting("rendered-b", Some(image("b"))),
            os: Played::running(image("a")).seen,
            rules: HealthRules { within, ..HealthRules::default() },
            back: Rc::default(),
            gone: Rc::default(),
            dir,
        };
        let up = story.at(UP).display().to_string();
        let check = format!("#!/bin/sh\n[ -e {up} ] || {{ echo 'the app does not answer' >&2; exit 7; }}\n");
        make_program(&story.at(CHECK), &check);
        story
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    fn agent(&self) -> Agent<FakeControlPlane> {
        let (back, gone) = (Rc::clone(&self.back), Rc::clone(&self.gone));
        let os = Played {
            seen: Rc::clone(&self.os),
            back: Box::new(move |deployment| {
                if gone.get() {
                    return Err(HostError::NoBackend { object: deployment.to_owned() });
                }
                back.borrow_mut().push(deployment.to_owned());
                Ok(())
            }),
            ..Played::running(image("a"))
        };
        let root = Root::open(self.dir.path()).unwrap();
        let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
        let node_settings = NodeSettings { health: self.rules.clone(), ..NodeSettings::default() };
        let settings_loader = SettingsLoader::new(move || Ok(node_settings.clone().into()));
        self.plane.agent(host).with(RunMode::OneShot, Reboots::Requested).with_settings(settings_loader)
    }

    /// Runs a process of the agent to its end.
    async fn run(&self) -> ExitReason {
        let mut agent = self.agent();
        let ended = tokio::time::timeout(Duration::from_secs(120), Box::pin(agent.run())).await;
        ended.unwrap().unwrap()
    }

    /// Runs a process of the agent that is killed as soon as it reports this wait.
    async fn until_waiting_for(&self, what: &str) {
        self.plane.reports.borrow_mut().clear();
        let mut agent = self.agent();
        let waits = async {
            while self.plane.reports.borrow().iter().all(|report| report.waiting.as_deref() != Some(what)) {
                self.plane.published.notified().await;
            }
        };
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
            () = waits => {}
        }
    }

    /// Plays a boot of one of the two images.
    fn boot(&self, number: u32, name: &str, deployment: &str) {
        let ObservedOs::Deployments { booted, .. } = &mut *self.os.borrow_mut() else {
            panic!("image-based")
        };
        (booted.image, booted.deployment) = (Some(image(name)), deployment.to_owned());
        self.put("/proc/sys/kernel/random/boot_id", &format!("00000000-0000-4000-8000-{number:012}\n"));
    }

    /// Switches to the other image, up to the first observation in it.
    async fn switch(&self) {
        assert_eq!(self.run().await, ExitReason::Reboot);
        self.boot(2, "b", "os-2.0");
    }

    fn record(&self) -> Option<Record> {
        let text = std::fs::read(self.at("/var/lib/machine-config-agent/record.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    fn report(&self) -> NodeReport {
        self.plane.reports.borrow().last().unwrap().clone()
    }

    /// The node is Degraded with the cause, works on nothing, and asks for nothing more.
    async fn holds(&self, words: &[&str]) {
        for _ in 0..2 {
            assert_eq!(self.run().await, ExitReason::Settled);
            let report = self.report();
            assert_eq!((report.state, report.phase.as_str()), (NodeState::Degraded, "Idle"), "{report:#?}");
            assert!(report.reason.starts_with("HealthCheckFailed: "), "{}", report.reason);
            for word in words {
                assert!(report.reason.contains(word), "{word}: {}", report.reason);
            }
        }
    }
}

const CAUSE: &str = "health check 10-app: exit code 7: the app does not answer";

#[tokio::test]
async fn healthy_deployment_is_committed() {
    let story = Story::new(Duration::from_secs(60));
    story.put(UP, "");
    story.switch().await;
    assert_eq!(story.run().await, ExitReason::Settled);
    assert_eq!(story.report().state, NodeState::Done);
    assert!(story.record().is_none() && story.back.borrow().is_empty());
}

#[tokio::test]
async fn failed_trial_falls_back() {
    let story = Story::new(Duration::from_millis(50));
    story.switch().await;
    assert_eq!(story.run().await, ExitReason::Reboot);
    assert_eq!(*story.back.borrow(), [ORIGIN]);
    let record = story.record().unwrap();
    assert!(matches!(record.phase, Phase::FallingBack { .. }) && record.fallbacks == 1);
    assert_eq!(story.report().phase, "FallingBack");
    let found: Vec<String> = story.plane.events.borrow().iter().map(Event::message).collect();
    assert!(found.iter().any(|text| text.contains("into its previous deployment")), "{found:?}");

    // Back there: undone, reported, held; a restart changes nothing.
    story.boot(3, "a", ORIGIN);
    story.holds(&[CAUSE, "os-2.0", "rendered-b"]).await;
    assert!(story.record().unwrap().is_undone());
    assert_eq!(story.back.borrow().len(), 1);

    // A corrected target is taken by itself.
    let config = ConfigName::new("rendered-b").unwrap();
    *story.plane.desired.borrow_mut() = Target::new(config, Some(image("c")));
    assert_eq!(story.run().await, ExitReason::Reboot);
    story.boot(4, "c", "os-3.0");
    story.put(UP, "");
    assert_eq!(story.run().await, ExitReason::Settled);
    assert_eq!(story.report().state, NodeState::Done);
}

#[tokio::test]
async fn restart_in_middle_continues_with_same_time() {
    let story = Story::new(Duration::from_secs(60));
    story.switch().await;
    let mut begun = Vec::new();
    for _ in 0..2 {
        story.until_waiting_for(CAUSE).await;
        assert_eq!((story.report().state, story.report().phase.as_str()), (NodeState::Working, "Verifying"));
        begun.push(story.record().unwrap().trial.unwrap());
    }
    assert_eq!(begun.first(), begun.last());
    story.put(UP, "");
    assert_eq!(story.run().await, ExitReason::Settled);
    assert!(story.plane.reports.borrow().iter().all(|report| report.fault.is_none()));
    assert_eq!(story.report().state, NodeState::Done);
}

/// A start whose time was over before the agent came up still makes one attempt; one of another boot does not count.
#[tokio::test]
async fn trial_attempts_at_least_once() {
    let story = Story::new(Duration::ZERO);
    story.put(UP, "");
    story.switch().await;
    assert_eq!(story.run().await, ExitReason::Settled);
    assert_eq!(story.report().state, NodeState::Done);
}

#[tokio::test]
async fn failed_trial_stays_with_roll_back_never() {
    let mut story = Story::new(Duration::from_millis(50));
    story.rules.roll_back = RollBack::Never;
    story.switch().await;
    story.holds(&[CAUSE]).await;
    assert!(story.back.borrow().is_empty());
    assert_eq!(story.record().unwrap().phase, Phase::Verifying);
}

#[tokio::test]
async fn fallback_without_deployment_reports_both_causes() {
    let story = Story::new(Duration::from_millis(50));
    story.gone.set(true);
    story.switch().await;
    story.holds(&[CAUSE, "falling back to os-1.0 failed too: "]).await;
    // A person boots it after all.
    story.boot(3, "a", ORIGIN);
    story.holds(&[CAUSE]).await;
    assert!(story.record().unwrap().is_undone());
}

/// The node comes up in the new deployment again and again: that ends.
#[tokio::test]
async fn failed_fall_back_holds_node() {
    let story = Story::new(Duration::from_millis(50));
    story.switch().await;
    for boot in 3..6 {
        assert_eq!(story.run().await, ExitReason::Reboot);
        story.boot(boot, "b", "os-2.0");
    }
    story.holds(&[CAUSE, "it was tried 3 times; the node did not come up in it"]).await;
}

/// An administrator, or a boot counter, ends the trial.
#[tokio::test]
async fn foreign_rollback_holds_target() {
    let story = Story::new(Duration::from_secs(60));
    story.switch().await;
    story.until_waiting_for(CAUSE).await;
    story.boot(3, "a", ORIGIN);
    story.holds(&["was on trial, and the node came up in its previous deployment"]).await;
}

/// The boot loader's own way back leaves the deployment that does not come up first in its menu: as long as that can't be
/// changed, the count is all that brings the machine up.
#[tokio::test]
async fn boots_are_counted_until_running_deployment_is_default() {
    let story = Story::new(Duration::from_secs(60));
    let block = |lines: &str| format!("{:#<1024}", format!("# GRUB Environment Block\n{lines}"));
    story.put("/boot/grub2/grub.cfg", "if [ -n \"${boot_counter}\" ]; then\n");
    story.put("/boot/grub2/grubenv", &block(""));
    let counted =
        |count: i32| block(&format!("boot_counter={count}\nboot_success=0\nmachine_config_agent=1\n"));
    let grubenv = || std::fs::read_to_string(story.at("/boot/grub2/grubenv")).unwrap();
    assert_eq!(story.run().await, ExitReason::Reboot);
    assert_eq!(grubenv(), counted(3));

    story.boot(2, "a", ORIGIN);
    story.put("/boot/grub2/grubenv", &counted(-1));
    if let ObservedOs::Deployments { next, .. } = &mut *story.os.borrow_mut() {
        *next = Some(Staged { image: Some(image("b")), deployment: "os-2.0".to_owned(), kargs: Vec::new() });
    }
    story.gone.set(true);
    for _ in 0..2 {
        assert_eq!(story.run().await, ExitReason::Settled);
        assert!(story.report().reason.starts_with("BootFailed: "), "{}", story.report().reason);
        assert_eq!(grubenv(), counted(3));
    }
    story.gone.set(false);
    assert_eq!(story.run().await, ExitReason::Settled);
    assert_eq!(
        (story.back.borrow().last().map(String::as_str), grubenv()),
        (Some(ORIGIN), block("boot_success=1\n"))
    );
}
