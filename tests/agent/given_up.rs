//! An update that is given up after its own deployment booted, under the daemon's real loop, with an OS that a test plays: a
//! person reboots while the update stages, and its tooling may have staged a half of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::os::{Played, image};
use crate::plain_host;
use machine_config_agent::agent::{Agent, ExitReason, Reboots, RunMode};
use machine_config_agent::host::{FailPoints, Host, Root};
use machine_config_agent::model::observation::ObservedOs;
use machine_config_agent::model::{ConfigName, Karg, Target};
use machine_config_agent::plan::Op;
use machine_config_agent::report::NodeState;
use machine_config_agent::update::Record;
use tokio::sync::Notify;

/// Name, kernel arguments and image.
type Wanted = (&'static str, &'static str, &'static str);

const A: Wanted = ("rendered-a", "a=1", "a");
const B: Wanted = ("rendered-b", "b=1", "b");
const C: Wanted = ("rendered-c", "c=1", "a");

struct Story {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    seen: Rc<RefCell<ObservedOs>>,
    /// A staging began.
    staging: Rc<Notify>,
    /// True if it does not end.
    hangs: Rc<Cell<bool>>,
}

impl Story {
    /// A host in config A.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let plane = FakeControlPlane::wanting(A.0, Some(image(A.2)));
        for (name, karg, _) in [A, B, C] {
            let text = format!(
                r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"kernelArguments":["{karg}"],
                    "config":{{"ignition":{{"version":"3.4.0"}}}}}}}}"#
            );
            plane.config(name, &text);
        }
        let seen = Played::running(image("a")).seen;
        let mut story = Self { dir, plane, seen, staging: Rc::default(), hangs: Rc::default() };
        story.boot(9, "a", "os-0.9", "rw");
        story.asks_for_reboot().await;
        story.staging = Rc::default();
        story.boot(1, "a", "os-1.0", "rw a=1");
        story.comes_to_rest().await;
        story
    }

    fn boot(&self, number: u32, runs: &str, deployment: &str, line: &str) {
        plain_host::boot(self.dir.path(), number);
        std::fs::write(self.dir.path().join("proc/cmdline"), format!("{line}\n")).unwrap();
        let ObservedOs::Deployments { booted, .. } = &mut *self.seen.borrow_mut() else {
            panic!("image-based")
        };
        (booted.image, booted.deployment) = (Some(image(runs)), deployment.to_owned());
    }

    fn desire(&self, (name, _, runs): Wanted) {
        *self.plane.desired.borrow_mut() = Target::new(ConfigName::new(name).unwrap(), Some(image(runs)));
    }

    fn agent(&self) -> Agent<FakeControlPlane> {
        let (staging, hangs) = (Rc::clone(&self.staging), Rc::clone(&self.hangs));
        let os = Played {
            seen: Rc::clone(&self.seen),
            pulled: Box::new(move || {
                staging.notify_one();
                let hangs = hangs.get();
                Box::pin(async move { if hangs { std::future::pending().await } else { Ok(()) } })
            }),
            ..Played::running(image("a"))
        };
        let root = Root::open(self.dir.path()).unwrap();
        let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
        self.plane.agent(host).with(RunMode::Daemon, Reboots::Requested)
    }

    fn record(&self) -> Option<Record> {
        let text = std::fs::read(self.dir.path().join("var/lib/machine-config-agent/record.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    /// Runs a daemon that is killed while it stages.
    async fn dies_staging(&self) {
        self.hangs.set(true);
        let mut agent = self.agent();
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
            () = self.staging.notified() => {}
        }
        self.hangs.set(false);
    }

    /// Runs a daemon until it asks for the reboot.
    async fn asks_for_reboot(&self) {
        let mut agent = self.agent();
        let ended = tokio::time::timeout(Duration::from_secs(60), Box::pin(agent.run())).await;
        let reports = self.plane.reports.borrow();
        let ended = ended.unwrap_or_else(|_| panic!("it does not reboot: {:#?}", reports.last()));
        assert_eq!(ended.unwrap(), ExitReason::Reboot);
    }

    /// Runs a daemon until the node is as desired.
    async fn comes_to_rest(&self) {
        self.plane.reports.borrow_mut().clear();
        let mut agent = self.agent();
        let is_done = || self.plane.reports.borrow().last().is_some_and(|last| last.state == NodeState::Done);
        let done = async {
            while !is_done() {
                self.plane.published.notified().await;
            }
        };
        let ended = async {
            tokio::select! {
                end = Box::pin(agent.run()) => panic!("it ended: {end:?}"),
                () = done => {}
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.unwrap_or_else(|_| panic!("it does not rest: {:#?}", self.plane.reports.borrow().last()));
    }

    /// The line and the image after the next reboot.
    fn next(&self, line: &str) -> (String, Option<String>) {
        let (mut line, mut staged) = (Karg::split(line), None);
        for step in self.record().unwrap().plan.steps() {
            if let Op::SetKargs { delete, append } = &step.op {
                line = Karg::changed(line, delete, append);
            }
            if let Op::StageOs { image } = &step.op {
                staged = Some(image.to_string());
            }
        }
        (line.iter().map(Karg::as_str).collect::<Vec<_>>().join(" "), staged)
    }
}

/// The daemon leads the node from what runs to the target, also where that is the committed one: the whole deployment of the
/// update ran, or its image without its arguments.
#[tokio::test]
async fn daemon_leads_back_from_deployment_of_update_that_was_given_up() {
    for (early, line) in [("whole", "rw b=1"), ("half", "rw a=1")] {
        for target in [A, C] {
            let story = Story::new().await;
            story.desire(B);
            story.dies_staging().await;
            story.boot(2, "b", "os-2.0", line);
            story.desire(target);
            story.asks_for_reboot().await;
            let (next, staged) = story.next(line);
            assert_eq!(next, format!("rw {}", target.1), "{early}");
            assert_eq!(staged, Some(image("a").to_string()), "{early}");
            story.boot(3, "a", "os-3.0", &next);
            story.comes_to_rest().await;
            assert!(story.record().is_none(), "{early}");
        }
    }
}
