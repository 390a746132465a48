//! The duties in the middle of a step, and before the first request to a registry: with an OS backend and a control plane
//! that a test plays.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it fails by panicking, and plays the host"
)]

mod plain_host;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use machine_config_agent::agent::{Agent, End, Stop};
use machine_config_agent::control::{
    ControlError, ControlPlane, Drained, Released, TrustFeed, TrustSender, trust_feed,
};
use machine_config_agent::host::os::Preflight;
use machine_config_agent::host::power::Supervised;
use machine_config_agent::host::watch::Watch;
use machine_config_agent::host::{
    AuthFile, BoxFuture, Clock, FailPoints, Host, HostError, OsBackend, OsProgress, Root, StageRequest,
    Systemd,
};
use machine_config_agent::journal::Journal;
use machine_config_agent::model::certificates::{Registries, ServerCaRotation};
use machine_config_agent::model::machineconfig::MachineConfig;
use machine_config_agent::model::observation::LocalPackages;
use machine_config_agent::model::observation::{Booted, Carries, OsSeen, Staged};
use machine_config_agent::model::policy::DisruptionPolicy;
use machine_config_agent::model::tuning::OsLimits;
use machine_config_agent::model::{ClusterTrust, ConfigName, Contents, ImageRef, Target};
use machine_config_agent::report::{NodeReport, Occurrence};
use machine_config_agent::telemetry::Telemetry;
use machine_config_agent::telemetry::metrics::{HostLabels, Metrics};
use machine_config_agent::telemetry::readiness::Readiness;

const CONFIG: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":
    {"ignition":{"version":"3.4.0"}}}}"#;
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const MERGED: &str = "/etc/mco/internal-registry-pull-secret.json";

fn image(digit: &str) -> ImageRef {
    ImageRef::parse(&format!("reg.test/os@sha256:{}", digit.repeat(64))).unwrap()
}

fn trust(version: &str, pull_secret: &str) -> ClusterTrust {
    ClusterTrust {
        version: version.to_owned(),
        rotation: ServerCaRotation::Off,
        kubelet_ca: Some(Contents::new(format!("CA {version}").into_bytes())),
        cloud_ca: None,
        registries: Registries::default(),
        pull_secret: Some(Contents::new(pull_secret.as_bytes())),
    }
}

/// Wants an image, and says whom to trust.
#[derive(Debug)]
struct Desk {
    trust: TrustFeed,
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

    fn trust(&self) -> TrustFeed {
        self.trust.clone()
    }

    fn drains(&self) -> bool {
        false
    }

    async fn drain(&mut self, _target: &Target) -> Result<Drained, ControlError> {
        Ok(Drained::NotAsked)
    }

    async fn release(&mut self, _committed: &Target) -> Result<Released, ControlError> {
        Ok(Released::Yes)
    }

    async fn tell(&mut self, _occurrence: &Occurrence) {}

    async fn publish(&mut self, _report: &NodeReport) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A backend whose pull lasts until the certificates that come meanwhile are on the host.
#[derive(Debug)]
struct LongPull {
    root: Root,
    place: AuthFile,
    trust: TrustSender,
    /// Where the link led at each request to the registry.
    links: Rc<RefCell<Vec<String>>>,
}

impl LongPull {
    fn look_at_the_link(&self) {
        let path = self.root.base().join(self.place.path().trim_start_matches('/'));
        let target = std::fs::read_link(path).map(|target| target.to_str().unwrap().to_owned());
        self.links.borrow_mut().push(target.unwrap_or_else(|error| error.to_string()));
    }

    async fn pull(&self) {
        let mut watch = Watch::new(&self.root, [KUBELET_CA], []).unwrap();
        self.trust.put(Some(trust("2", "{}")));
        while self.root.read(KUBELET_CA).unwrap().as_deref() != Some(b"CA 2\n") {
            watch.changed().await.unwrap();
        }
    }
}

impl OsBackend for LongPull {
    fn name(&self) -> &'static str {
        "long-pull"
    }

    fn auth_file(&self) -> Option<AuthFile> {
        Some(self.place)
    }

    fn seen(&self) -> BoxFuture<'_, Result<OsSeen, HostError>> {
        let booted = Booted {
            image: Some(image("a")),
            deployment: "os-a.0".to_owned(),
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
        self.look_at_the_link();
        Box::pin(async { Ok(Preflight { carries: Carries::Unknown, download: None }) })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async move {
            self.look_at_the_link();
            assert_eq!(self.root.read(KUBELET_CA).unwrap().as_deref(), Some(&b"CA 1\n"[..]));
            self.pull().await;
            Ok(Staged { image: request.image.clone(), deployment: "os-b.0".to_owned(), kargs: Vec::new() })
        })
    }

    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    fn finalise(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Lives until the reboot; returns where the link led at each request.
async fn live(dir: &Path, place: AuthFile, pull_secret: &str) -> Vec<String> {
    let root = Root::open(dir).unwrap();
    let (sender, feed) = trust_feed();
    sender.put(Some(trust("1", pull_secret)));
    let links = Rc::default();
    let os = LongPull { root: root.clone(), place, trust: sender, links: Rc::clone(&links) };
    let host = Host {
        os_because: String::new(),
        limits: OsLimits::default(),
        os: Box::new(os),
        systemd: Systemd::of(&root).unwrap(),
        clock: Clock::system(),
        power: Box::new(Supervised::new(&root)),
        points: FailPoints::off(),
        root: root.clone(),
    };
    let telemetry = Telemetry {
        notify: machine_config_agent::telemetry::notify::Notify::default(),
        metrics: Metrics::new(HostLabels::default(), Vec::new()),
        readiness: Readiness::default(),
    };
    let journal = Journal::open(root, FailPoints::off()).unwrap();
    let mut agent = Agent::new(host, journal, Desk { trust: feed }, telemetry, Stop::never(), "worker-0");
    let ended = tokio::time::timeout(Duration::from_secs(60), Box::pin(agent.run())).await;
    let Ok(end) = ended else { panic!("the pull waits for the certificates in vain") };
    assert_eq!(end.unwrap(), End::Reboot);
    links.take()
}

/// FIL-012, OCL-002: certificates that come in the middle of a pull are written before it ends; the pull secret is linked
/// where the backend looks before the first request to the registry, and at the attempt.
#[tokio::test]
async fn a_long_pull_keeps_no_certificate_waiting() {
    for (place, pull_secret, target) in [
        (AuthFile::Run, r#"{"auths":{}}"#, MERGED),
        (AuthFile::Etc, r#"{"auths":{}}"#, MERGED),
        (AuthFile::Run, "no json", "/var/lib/kubelet/config.json"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        std::fs::create_dir_all(dir.path().join("var/lib/kubelet")).unwrap();
        std::fs::write(dir.path().join("var/lib/kubelet/config.json"), "{}").unwrap();
        assert_eq!(live(dir.path(), place, pull_secret).await, [target, target]);
    }
}
