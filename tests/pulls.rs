//! A pull that fails: tried again by itself, with its cause in the report until then, and counted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it fails by panicking, and plays the host"
)]

mod plain_host;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use machine_config_agent::agent::{Agent, End, Stop};
use machine_config_agent::control::{ControlError, ControlPlane, Drained, Released};
use machine_config_agent::host::os::{OsBackend, OsProgress, Preflight, StageRequest};
use machine_config_agent::host::power::Supervised;
use machine_config_agent::host::{BoxFuture, Clock, FailPoints, Host, HostError, Root, Systemd};
use machine_config_agent::journal::Journal;
use machine_config_agent::model::machineconfig::MachineConfig;
use machine_config_agent::model::observation::{Booted, Carries, LocalPackages, OsSeen, Staged};
use machine_config_agent::model::policy::DisruptionPolicy;
use machine_config_agent::model::tuning::OsLimits;
use machine_config_agent::model::{Class, ConfigName, Contents, ImageRef, Target};
use machine_config_agent::report::{NodeReport, Occurrence};
use machine_config_agent::telemetry::Telemetry;
use machine_config_agent::telemetry::metrics::{HostLabels, Metrics};
use machine_config_agent::telemetry::readiness::Readiness;

const CONFIG: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":{"ignition":{"version":"3.4.0"}}}}"#;

fn image(digit: &str) -> ImageRef {
    ImageRef::parse(&format!("registry.example/os@sha256:{}", digit.repeat(64))).unwrap()
}

/// A host that runs image `a`, and a registry with moods: the first is the answer to the first question.
#[derive(Debug)]
struct Moody {
    preflight: RefCell<Vec<&'static str>>,
    stage: RefCell<Vec<&'static str>>,
}

/// Takes the next mood; none is left when all is well.
fn mood(moods: &RefCell<Vec<&'static str>>) -> Result<(), HostError> {
    let Some(cause) = moods.borrow_mut().pop() else { return Ok(()) };
    let (object, cause) = (image("b").to_string(), cause.to_owned());
    Err(HostError::Os { object, cause, class: Class::Retry, reason: "ImagePullFailed", next: "Wait." })
}

impl OsBackend for Moody {
    fn name(&self) -> &'static str {
        "moody"
    }

    fn seen(&self) -> BoxFuture<'_, Result<OsSeen, HostError>> {
        let booted = Booted {
            image: Some(image("a")),
            deployment: "os-1.0".to_owned(),
            carries: Carries::Unknown,
            local: LocalPackages::default(),
        };
        Box::pin(async { Ok(OsSeen::Deployments { booted, staged: None, next: None }) })
    }

    fn preflight<'a>(
        &'a self,
        _image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(async {
            mood(&self.preflight).map(|()| Preflight { carries: Carries::Unknown, download: None })
        })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async {
            mood(&self.stage)?;
            let image = request.image.clone();
            Ok(Staged { image, deployment: "os-2.0".to_owned(), kargs: Vec::new() })
        })
    }

    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    fn finalise(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A control plane that wants image `b`, and keeps what it is told, with the count of failures at that time.
#[derive(Debug)]
struct Desk {
    metrics: Metrics,
    reports: Rc<RefCell<Vec<(NodeReport, String)>>>,
}

impl ControlPlane for Desk {
    async fn changed(&mut self) -> Result<(), ControlError> {
        std::future::pending().await
    }

    async fn wanted(&mut self) -> Result<Option<Target>, ControlError> {
        Ok(Some(Target { config: ConfigName::new("rendered-b").unwrap(), image: Some(image("b")) }))
    }

    async fn machine_config(&mut self, _name: &ConfigName) -> Result<MachineConfig, ControlError> {
        Ok(MachineConfig::parse(CONFIG.as_bytes(), "the config").unwrap())
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        Ok(DisruptionPolicy::defaults())
    }

    fn drains(&self) -> bool {
        false
    }

    async fn drain(&mut self, _target: &Target) -> Result<Drained, ControlError> {
        Ok(Drained::Yes)
    }

    async fn release(&mut self, _committed: &Target) -> Result<Released, ControlError> {
        Ok(Released::Yes)
    }

    async fn tell(&mut self, _occurrence: &Occurrence) {}

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        let text = self.metrics.text();
        let count = text.lines().find_map(|line| line.strip_prefix("mcd_pivot_errors_total "));
        self.reports.borrow_mut().push((report.clone(), count.unwrap().to_owned()));
        Ok(())
    }
}

/// MCD-190, MCD-206: refused before a plan, then broken off in the pull, then well: the node goes on by itself.
#[tokio::test]
async fn a_pull_that_fails_is_tried_again_with_its_cause_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let root = Root::open(dir.path()).unwrap();
    let moody = Moody {
        preflight: RefCell::new(vec!["StatusCode: 429"]),
        stage: RefCell::new(vec!["unexpected EOF"]),
    };
    let host = Host {
        os: Box::new(moody),
        os_because: String::new(),
        limits: OsLimits::default(),
        systemd: Systemd::of(&root).unwrap(),
        clock: Clock::system(),
        power: Box::new(Supervised::new(&root)),
        points: FailPoints::off(),
        root: root.clone(),
    };
    let metrics = Metrics::new(HostLabels::default(), Vec::new());
    let reports = Rc::default();
    let desk = Desk { metrics: metrics.clone(), reports: Rc::clone(&reports) };
    let telemetry = Telemetry {
        notify: machine_config_agent::telemetry::notify::Notify::default(),
        metrics,
        readiness: Readiness::default(),
    };
    let journal = Journal::open(root, FailPoints::off()).unwrap();
    let mut agent = Agent::new(host, journal, desk, telemetry, Stop::never(), "worker-0");
    let end = tokio::time::timeout(Duration::from_secs(60), Box::pin(agent.run())).await.unwrap();
    assert_eq!(end.unwrap(), End::Reboot);

    let reports = reports.borrow();
    for (cause, count) in [("StatusCode: 429", "1"), ("unexpected EOF", "1")] {
        // The last one before the wait for the next try.
        let told = reports.iter().rfind(|(report, _)| report.reason.contains(cause));
        let (report, counted) = told.unwrap_or_else(|| panic!("{cause}: {reports:#?}"));
        assert!(
            report.reason.contains(&format!("failed to update OS to {}", image("b"))),
            "{}",
            report.reason
        );
        assert_eq!(counted, count, "{cause}");
    }
    assert_eq!(
        reports.last().unwrap().1,
        "2",
        "both are counted: an update that was begun is, when it is given up"
    );
}
