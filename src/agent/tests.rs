//! The loop beside the doubles of systemd, OS and control plane: requests to services, and reports.
#![expect(clippy::disallowed_methods, reason = "a test looks at the host from outside")]

#[path = "../../tests/support/fake_control_plane/mod.rs"]
mod fake_control_plane;
#[path = "../../tests/support/plain_host.rs"]
mod plain_host;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use self::fake_control_plane::FakeControlPlane;
use self::fake_control_plane::os::{Played, image};
use super::{Agent, ExitReason, SettingsLoader};
use crate::control::{DrainStatus, trust_channel};
use crate::host::systemd::tests::double::{Double, Unit};
use crate::host::systemd::tests::peers;
use crate::host::{FailPoints, Host, HostError, Root};
use crate::log_lines::Lines;
use crate::model::certificates::{Registries, ServerCaRotation};
use crate::model::observation::{Booted, EmbeddedConfig, LocalPackages, ObservedOs};
use crate::model::{
    ClusterTrust, ConfigName, Contents, FaultClass, ManagedPath, NodeSettings, Target, message,
};
use crate::report::{NodeReport, NodeState};

/// Far longer than any of this takes.
const LIMIT: Duration = Duration::from_secs(90);

const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[
    {"path":"/etc/none","actions":[{"type":"None"}]},
    {"path":"/etc/daemon","actions":[{"type":"DaemonReload"}]},
    {"path":"/etc/reload","actions":[{"type":"Reload","reload":{"serviceName":"crio.service"}}]},
    {"path":"/etc/restart","actions":[{"type":"Restart","restart":{"serviceName":"kubelet.service"}}]}]}}}"#;

fn target(config: &str) -> Target {
    Target::new(ConfigName::new(config).unwrap(), None)
}

/// Lets the agent run until it has made the expected report.
async fn until(
    plane: &FakeControlPlane,
    agent: &mut Agent<FakeControlPlane>,
    what: &str,
    meant: impl Fn(&NodeReport) -> bool,
) {
    let observed = async {
        loop {
            plane.published.notified().await;
            if plane.reports.borrow().iter().any(&meant) {
                return;
            }
        }
    };
    let lived = async {
        tokio::select! {
            end = Box::pin(agent.run()) => panic!("{what}: it ended: {end:?}"),
            () = observed => {}
        }
    };
    let in_time = tokio::time::timeout(LIMIT, lived).await;
    assert!(in_time.is_ok(), "{what} is not reported: {:#?}", plane.reports.borrow().last());
    plane.reports.take();
}

fn is_done(config: &'static str) -> impl Fn(&NodeReport) -> bool {
    move |report| {
        report.state == NodeState::Done
            && report.current_config.as_ref().is_some_and(|name| name.as_str() == config)
    }
}

/// A host with `rendered-a`, on which `rendered-b` brings one file.
struct Scene {
    dir: tempfile::TempDir,
    plane: FakeControlPlane,
    double: Double,
    agent: Agent<FakeControlPlane>,
    _server: zbus::Connection,
}

impl Scene {
    async fn set(path: &str) -> Self {
        Self::with_units(path, &["crio.service", "kubelet.service"]).await
    }

    async fn with_units(path: &str, units: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        plain_host::bare(dir.path());
        let double = Double::new("252");
        for unit in units {
            double.state().units.insert((*unit).to_owned(), Unit::default());
        }
        let mut plane = FakeControlPlane::wanting("rendered-a", None);
        plane.policy(POLICY);
        // A service that failed works again once that is reported.
        let (reports, mended) = (Rc::clone(&plane.reports), double.clone());
        plane.at_report = Rc::new(move || {
            if reports.borrow().last().is_some_and(|last| last.state == NodeState::Degraded) {
                mended.state().jobs.result = "done";
            }
        });
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"rendered-b"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
            "storage":{{"files":[{{"path":"{path}","contents":{{"source":"data:,b"}}}}]}}}}}}}}"#
        );
        plane.config("rendered-b", &text);
        let (server, systemd) = peers(&double).await;
        let host = Host { systemd, ..Host::in_directory(Root::open(dir.path()).unwrap(), FailPoints::off()) };
        let mut agent = plane.agent(host);
        until(&plane, &mut agent, "the first config", is_done("rendered-a")).await;
        assert_eq!(double.state().asked, Vec::<String>::new());
        plane.events.take();
        *plane.desired.borrow_mut() = target("rendered-b");
        plane.nudge.notify_one();
        Self { dir, plane, double, agent, _server: server }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// Returns the events of services and reboots.
    fn events(&self) -> Vec<(&'static str, String)> {
        let events = self.plane.events.take();
        let events = events.iter().map(|one| (one.reason(), one.message()));
        events.filter(|(reason, _)| reason.contains("Service") || reason.contains("Reboot")).collect()
    }
}

/// MCD-105, MCD-106, MCD-108, MCD-110: each action of the policy is one request to systemd and one event; no action is none,
/// and `SkipReboot`.
#[tokio::test(flavor = "current_thread")]
async fn each_action_is_requested_from_systemd_and_reported() {
    const PLAIN: &str = "Config changes do not require reboot.";
    for (path, asked, reason, text) in [
        ("/etc/none", None, "SkipReboot", ""),
        ("/etc/daemon", Some("reload"), "ServiceReload", " Service daemon-reload was reloaded."),
        (
            "/etc/reload",
            Some("reload crio.service replace"),
            "ServiceReload",
            " Service crio.service was reloaded.",
        ),
        (
            "/etc/restart",
            Some("restart kubelet.service replace"),
            "ServiceRestart",
            " Service kubelet.service was restarted.",
        ),
    ] {
        let mut scene = Scene::set(path).await;
        until(&scene.plane, &mut scene.agent, path, is_done("rendered-b")).await;
        assert_eq!(scene.double.state().asked, asked.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(scene.events(), [(reason, format!("{PLAIN}{text}"))], "{path}");
        assert_eq!(std::fs::read_to_string(scene.at(path)).unwrap(), "b");
    }
}

/// A service that systemd would refuse at the end of the update is refused before it begins.
#[tokio::test(flavor = "current_thread")]
async fn service_that_host_lacks_is_refused_before_anything_is_written() {
    for (path, unit, step) in [
        ("/etc/reload", "crio.service", "reload-unit crio.service"),
        ("/etc/restart", "kubelet.service", "restart-unit kubelet.service"),
    ] {
        let mut scene = Scene::with_units(path, &[]).await;
        let words = format!("{unit}, which is not on this host");
        let refused = |report: &NodeReport| {
            let fault = report.fault.as_ref().map(ToString::to_string).unwrap_or_default();
            report.state == NodeState::Unreconcilable && fault.contains(&words) && fault.contains(step)
        };
        until(&scene.plane, &mut scene.agent, path, refused).await;
        assert!(!scene.at(path).exists(), "{path}");
        assert_eq!(scene.double.state().asked, Vec::<String>::new());
        // Once it is installed, another try goes on.
        scene.double.state().units.insert(unit.to_owned(), Unit::default());
        for name in ["rendered-a", "rendered-b"] {
            *scene.plane.desired.borrow_mut() = target(name);
            scene.plane.nudge.notify_one();
            scene.plane.reports.take();
            until(&scene.plane, &mut scene.agent, name, is_done(name)).await;
        }
        assert_eq!(std::fs::read_to_string(scene.at(path)).unwrap(), "b");
    }
}

/// MCD-111: the event, the roll-back and the state of a service that does not reload or restart.
#[tokio::test(flavor = "current_thread")]
async fn failed_service_undoes_update() {
    for (path, job, reason) in [
        ("/etc/reload", "reload of crio.service", "FailedServiceReload"),
        ("/etc/restart", "restart of kubelet.service", "FailedServiceRestart"),
    ] {
        let mut scene = Scene::set(path).await;
        scene.double.state().jobs.result = "failed";
        let cause = format!("{job} ended with \"failed\"");
        let failed =
            |report: &NodeReport| report.state == NodeState::Degraded && report.reason.contains(&cause);
        let at = scene.at(path);
        let back = |report: &NodeReport| failed(report) && report.phase == "Idle" && !at.exists();
        until(&scene.plane, &mut scene.agent, "the old config", back).await;
        let events = scene.events();
        assert!(events.len() == 1 && events[0].0 == reason && events[0].1.contains(&cause), "{events:?}");
        assert_eq!(scene.agent.journal().current(), Some(&target("rendered-a")));
        // Nothing is left in the way of a corrected target.
        *scene.plane.desired.borrow_mut() = target("rendered-a");
        scene.plane.nudge.notify_one();
        until(&scene.plane, &mut scene.agent, "the way back", is_done("rendered-a")).await;
    }
}

/// A target that came up wrong is left by setting the old one again: its files go, and only then the node is
/// Done.
#[tokio::test(flavor = "current_thread")]
async fn old_target_after_held_update_is_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let file = dir.path().join("etc/reboots");
    let plane = FakeControlPlane::wanting("rendered-a", None);
    let text = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":{"ignition":{"version":"3.4.0"},
        "storage":{"files":[{"path":"/etc/reboots","contents":{"source":"data:,b"}}]}}}}"#;
    plane.config("rendered-b", text);
    let agent = || plane.agent(Host::in_directory(Root::open(dir.path()).unwrap(), FailPoints::off()));
    let rebooted = async |boot| {
        let mut agent = agent();
        let end = tokio::time::timeout(LIMIT, Box::pin(agent.run())).await.unwrap().unwrap();
        assert_eq!(end, ExitReason::Reboot, "before boot {boot}");
        drop(agent);
        plain_host::boot(dir.path(), boot);
    };
    until(&plane, &mut agent(), "the first config", is_done("rendered-a")).await;
    *plane.desired.borrow_mut() = target("rendered-b");
    for boot in [2, 3] {
        rebooted(boot).await;
        std::fs::write(&file, "x").unwrap();
    }
    let held = |report: &NodeReport| {
        report.phase == "Idle"
            && report.fault.as_ref().is_some_and(|fault| fault.reason == "VerificationFailed")
    };
    until(&plane, &mut agent(), "the held update", held).await;
    *plane.desired.borrow_mut() = target("rendered-a");
    rebooted(4).await;
    until(&plane, &mut agent(), "the old config", is_done("rendered-a")).await;
    assert!(!file.exists());
}

impl Lines {
    /// Configs decoded in each pass: a pass begins with the look at the target.
    fn decoded(&self) -> Vec<Vec<String>> {
        let mut passes = vec![Vec::new()];
        for line in self.take() {
            let message = line.get("message").map_or("", String::as_str);
            if message == "asked for the target" {
                passes.push(Vec::new());
            } else if let Some(config) = message.strip_prefix("Decoded ") {
                passes.last_mut().unwrap().push(config.to_owned());
            }
        }
        passes
    }

    /// Returns the logged phases, each line with its fields for filters.
    fn phases(&self, config: &str, image: Option<&str>) -> Vec<String> {
        let lines = self.take();
        for line in
            lines.iter().filter(|line| line.contains_key("MCA_UPDATE") || line.contains_key("MCA_STEP"))
        {
            assert!(line.contains_key("MCA_UPDATE") && line.contains_key("MCA_CONFIG"), "{line:?}");
            assert_eq!(line.get("MCA_IMAGE").map(String::as_str), image, "{line:?}");
        }
        let phases =
            lines.iter().filter(|line| line.get("MESSAGE_ID").is_some_and(|id| id == message::PHASE));
        let events = |line: &BTreeMap<String, String>| {
            assert_eq!(line.get("MCA_CONFIG").map(String::as_str), Some(config), "{line:?}");
            assert_eq!(line.get("MCA_IMAGE").map(String::as_str), image, "{line:?}");
            assert!(line.get("MCA_UPDATE").is_some_and(|id| !id.is_empty()), "{line:?}");
            assert!(line["message"].contains(config), "{line:?}");
            line["MCA_PHASE"].clone()
        };
        phases.map(events).collect()
    }
}

/// OBS-001: every change of the phase is a line with the id of phases, and names update, phase, config and image.
#[tokio::test(flavor = "current_thread")]
async fn every_phase_is_logged() {
    let lines = Lines::default();
    let _guard = lines.taken();
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let desired = image("b");
    let plane = FakeControlPlane::wanting("rendered-b", Some(desired.clone()));
    plane.drained.borrow_mut().push(DrainStatus::Yes);
    let agent = |os: Played| {
        let root = Root::open(dir.path()).unwrap();
        plane.agent(Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) })
    };
    // A pull that fails leads to a roll-back.
    let failed = || {
        let (object, cause, next) = (image("b").to_string(), "it is a test".to_owned(), "Wait.".to_owned());
        Err(HostError::Os { object, cause, class: FaultClass::Degraded, reason: "ImageNotBootable", next })
    };
    let os =
        Played { pulled: Box::new(move || Box::pin(async move { failed() })), ..Played::running(image("a")) };
    let degraded = |report: &NodeReport| report.state == NodeState::Degraded && report.phase == "Idle";
    until(&plane, &mut agent(os), "the failed pull", degraded).await;
    let image_text = desired.to_string();
    assert_eq!(lines.phases("rendered-b", Some(&image_text)), ["planned", "staging", "rolling-back"]);

    // Another config with the same image goes through to its commit.
    plane.config("rendered-c", &FakeControlPlane::empty("rendered-c"));
    *plane.desired.borrow_mut() = Target { image: Some(desired.clone()), ..target("rendered-c") };
    let mut first = agent(Played::running(image("a")));
    let end = tokio::time::timeout(LIMIT, Box::pin(first.run())).await.unwrap().unwrap();
    assert_eq!(end, ExitReason::Reboot);
    drop(first);
    assert_eq!(
        lines.phases("rendered-c", Some(&image_text)),
        ["planned", "staging", "draining", "applying", "rebooting"]
    );
    plain_host::boot(dir.path(), 2);
    let os = Played::running(image("a"));
    let booted = Booted {
        image: Some(desired.clone()),
        deployment: "os-2.0".to_owned(),
        carries: EmbeddedConfig::Unknown,
        local: LocalPackages::default(),
    };
    *os.seen.borrow_mut() = ObservedOs::Deployments { booted, staged: None, next: None };
    until(&plane, &mut agent(os), "the new image", is_done("rendered-c")).await;
    assert_eq!(lines.phases("rendered-c", Some(&image_text)), ["verifying"]);
}

/// OBS-001: a node without image mode has no image to name.
#[tokio::test(flavor = "current_thread")]
async fn phase_of_files_names_no_image() {
    let lines = Lines::default();
    let _guard = lines.taken();
    let mut scene = Scene::set("/etc/none").await;
    lines.take();
    until(&scene.plane, &mut scene.agent, "the file", is_done("rendered-b")).await;
    assert_eq!(lines.phases("rendered-b", None), ["planned", "applying", "verifying"]);
}

/// Every config that a pass needs is decoded once in it, for all its readers: a plan, a repair, certificates, drift.
#[tokio::test(flavor = "current_thread")]
async fn each_pass_decodes_config_once() {
    let lines = Lines::default();
    let _guard = lines.taken();
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let (file, ca) = (dir.path().join("etc/none"), dir.path().join("etc/kubernetes/kubelet-ca.crt"));
    let (sender, trust) = trust_channel();
    let plane = FakeControlPlane { trust, ..FakeControlPlane::wanting("rendered-a", None) };
    plane.policy(POLICY);
    for (name, contents) in [("rendered-a", "a"), ("rendered-b", "b")] {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
            "storage":{{"files":[{{"path":"/etc/none","contents":{{"source":"data:,{contents}"}}}}]}}}}}}}}"#
        );
        plane.config(name, &text);
    }
    let node_settings = || NodeSettings {
        repair: [ManagedPath::new("/etc/none").unwrap()].into(),
        ..NodeSettings::default()
    };
    let host = Host::in_directory(Root::open(dir.path()).unwrap(), FailPoints::off());
    let mut agent = plane.agent(host).with_settings(SettingsLoader::new(move || Ok(node_settings().into())));
    until(&plane, &mut agent, "the first config", is_done("rendered-a")).await;
    lines.decoded();

    *plane.desired.borrow_mut() = target("rendered-b");
    plane.nudge.notify_one();
    until(&plane, &mut agent, "the update", is_done("rendered-b")).await;
    let update = lines.decoded();
    assert!(update.contains(&vec!["rendered-b".to_owned(), "rendered-a".to_owned()]), "{update:?}");

    // Certificates, which need the paths that configs write, come with a look at the host; a drift, with its repair.
    let trust = ClusterTrust {
        version: "1".to_owned(),
        rotation: ServerCaRotation::Off,
        kubelet_ca: Some(Contents::new(b"CA".as_slice())),
        cloud_ca: None,
        registries: Registries::default(),
        pull_secret: None,
        server_ca: None,
        proxy: Ok(crate::model::ProxySettings::default()),
    };
    sender.put(Some(trust));
    until(&plane, &mut agent, "the certificate", |_| ca.exists()).await;
    std::fs::write(&file, "x").unwrap();
    let repaired = |report: &NodeReport| {
        report.state == NodeState::Done && std::fs::read_to_string(&file).unwrap() == "b"
    };
    until(&plane, &mut agent, "the repair", repaired).await;
    let rest = lines.decoded();
    assert!(rest.iter().filter(|pass| !pass.is_empty()).count() > 2, "{rest:?}");
    for pass in update.iter().chain(&rest) {
        let names: BTreeSet<&String> = pass.iter().collect();
        assert_eq!(names.len(), pass.len(), "a config was decoded twice in one pass: {pass:?}");
    }
}
