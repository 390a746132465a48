//! Links against those of `systemctl --root`; jobs against a peer that plays systemd.
#![expect(clippy::disallowed_types, reason = "it starts a bus of its own")]

use std::collections::BTreeMap;
use std::path::Path;

use zbus::Connection;

use super::*;
use crate::host::durable::{Attempt, apply_changes};
use crate::host::failpoint::FailPoints;
use crate::host::root::Root;
use crate::model::UnitName;
use crate::model::observation::{UnitFilePreset, UnitFileState};
use crate::model::units::Mask;

#[path = "../../../tests/doubles/systemd/mod.rs"]
pub(crate) mod double;
use double::Double;

mod soft_reboots;
mod trust;

fn unit(name: &str) -> UnitName {
    UnitName::new(name).unwrap()
}

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The links below `/etc/systemd/system`, path to target.
fn links(dir: &Path) -> BTreeMap<String, String> {
    let base = dir.join("etc/systemd/system");
    let mut found = BTreeMap::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let at = path.strip_prefix(&base).unwrap().display().to_string();
            match std::fs::read_link(&path) {
                Ok(target) => drop(found.insert(at, target.display().to_string())),
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => {}
            }
        }
    }
    found
}

fn edit_links(root: &Root, change: impl FnOnce(&mut UnitLinks<'_>)) -> usize {
    let mut units = UnitLinks::load(root).unwrap();
    change(&mut units);
    apply_changes(root, &units.changes(&[]), Attempt::First, &FailPoints::off()).unwrap().changed
}

fn host() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let vendor = "usr/lib/systemd/system";
    write(dir.path(), &format!("{vendor}/crio.service"), "[Install]\nWantedBy=multi-user.target\n");
    write(
        dir.path(),
        &format!("{vendor}/getty@.service"),
        "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
    );
    write(
        dir.path(),
        &format!("{vendor}/sshd.service"),
        "[Install]\nWantedBy=multi-user.target\nAlias=ssh.service\n",
    );
    write(dir.path(), &format!("{vendor}/pod.socket"), "[Install]\nWantedBy=sockets.target\n");
    write(dir.path(), &format!("{vendor}/pod.service"), "[Install]\nAlso=pod.socket\n");
    write(dir.path(), &format!("{vendor}/plain.service"), "[Service]\nExecStart=/bin/true\n");
    write(dir.path(), "usr/lib/systemd/system-preset/99-disable.preset", "enable crio.service\ndisable *\n");
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

#[test]
fn enabling_makes_install_links_and_disabling_removes_them() {
    const VENDOR: &str = "/usr/lib/systemd/system";
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("crio.service", &[("multi-user.target.wants/crio.service", "crio.service")]),
        ("getty@.service", &[("getty.target.wants/getty@tty1.service", "getty@.service")]),
        ("getty@tty5.service", &[("getty.target.wants/getty@tty5.service", "getty@.service")]),
        (
            "sshd.service",
            &[("multi-user.target.wants/sshd.service", "sshd.service"), ("ssh.service", "sshd.service")],
        ),
        ("pod.service", &[("sockets.target.wants/pod.socket", "pod.socket")]),
    ];
    for (name, expected) in cases {
        let (dir, root) = host();
        let name = unit(name);
        assert_eq!(
            UnitLinks::load(&root).unwrap().observe(&name).unwrap().enabled,
            UnitFileState::Disabled,
            "{name}"
        );
        edit_links(&root, |units| units.enable(&name).unwrap());
        let expected = expected.iter().map(|(at, to)| ((*at).to_owned(), format!("{VENDOR}/{to}"))).collect();
        assert_eq!(links(dir.path()), expected, "{name}");
        if name.as_str() != "getty@.service" {
            assert_eq!(
                UnitLinks::load(&root).unwrap().observe(&name).unwrap().enabled,
                UnitFileState::Enabled,
                "{name}"
            );
        }
        assert_eq!(
            edit_links(&root, |units| units.enable(&name).unwrap()),
            0,
            "{name}: a second run writes nothing"
        );
        edit_links(&root, |units| assert!(units.disable(&name).unwrap()));
        assert_eq!(links(dir.path()), BTreeMap::new(), "{name}");
        assert_eq!(edit_links(&root, |units| assert!(units.disable(&name).unwrap())), 0);
    }
}

#[test]
fn new_install_links_replace_old_ones() {
    let (dir, root) = host();
    edit_links(&root, |units| units.enable(&unit("crio.service")).unwrap());
    write(dir.path(), "etc/systemd/system/crio.service", "[Install]\nWantedBy=kubelet.service\n");
    assert_eq!(
        UnitLinks::load(&root).unwrap().observe(&unit("crio.service")).unwrap().enabled,
        UnitFileState::Disabled
    );
    edit_links(&root, |units| units.enable(&unit("crio.service")).unwrap());
    let expected = BTreeMap::from(
        [("kubelet.service.wants/crio.service", "/etc/systemd/system/crio.service")]
            .map(|(a, b)| (a.to_owned(), b.to_owned())),
    );
    assert_eq!(links(dir.path()), expected);
    write(
        dir.path(),
        "etc/systemd/system/crio.service.d/10-x.conf",
        "[Install]\nWantedBy=\nRequiredBy=a.target\n",
    );
    edit_links(&root, |units| units.enable(&unit("crio.service")).unwrap());
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["a.target.requires/crio.service"]);
}

#[test]
fn masks_hide_unit_and_come_off() {
    let (dir, root) = host();
    let crio = unit("crio.service");
    edit_links(&root, |units| units.mask(&crio));
    assert_eq!(links(dir.path()), BTreeMap::from([("crio.service".to_owned(), "/dev/null".to_owned())]));
    let mut units = UnitLinks::load(&root).unwrap();
    let observed = units.observe(&crio).unwrap();
    assert_eq!((observed.enabled, observed.mask), (UnitFileState::Masked, Mask::Masked));
    assert!(units.enable(&crio).unwrap_err().to_string().contains("it is masked"));
    edit_links(&root, |units| {
        units.disable(&crio).unwrap();
        units.unmask(&crio);
        units.enable(&crio).unwrap();
    });
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["multi-user.target.wants/crio.service"]);
}

#[test]
fn presets_decide_and_unknown_units_are_unchanged() {
    let (dir, root) = host();
    let mut units = UnitLinks::load(&root).unwrap();
    let observed = |units: &UnitLinks<'_>, name: &str| units.observe(&unit(name)).unwrap();
    assert_eq!(observed(&units, "crio.service").preset, UnitFilePreset::Enable);
    assert_eq!(observed(&units, "sshd.service").preset, UnitFilePreset::Disable);
    assert_eq!(observed(&units, "plain.service").enabled, UnitFileState::Static);
    assert_eq!(observed(&units, "no-such.service").enabled, UnitFileState::NotFound);
    units.enable(&unit("no-such.service")).unwrap();
    units.enable(&unit("plain.service")).unwrap();
    assert!(units.changes(&[]).is_empty());
    edit_links(&root, |units| {
        units.enable(&unit("sshd.service")).unwrap();
        assert!(units.preset(&unit("crio.service")).unwrap() && units.preset(&unit("sshd.service")).unwrap());
    });
    assert_eq!(links(dir.path()).keys().collect::<Vec<_>>(), ["multi-user.target.wants/crio.service"]);
    // The unit file is gone (MCD-154): its links go with it.
    std::fs::remove_file(dir.path().join("usr/lib/systemd/system/crio.service")).unwrap();
    edit_links(&root, |units| assert!(units.preset(&unit("crio.service")).unwrap()));
    assert_eq!(links(dir.path()), BTreeMap::new());
}

/// A connection to a double that speaks to this test alone.
pub(crate) async fn peers(double: &Double) -> (Connection, Systemd) {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let guid = zbus::Guid::generate();
    let server = zbus::connection::Builder::unix_stream(theirs)
        .server(guid)
        .unwrap()
        .p2p()
        .serve_at(double::OBJECT, double.clone())
        .unwrap();
    let client = zbus::connection::Builder::unix_stream(ours).p2p();
    let (server, client) = tokio::join!(server.build(), client.build());
    (server.unwrap(), Systemd::given(client.unwrap()))
}

#[tokio::test(flavor = "current_thread")]
async fn job_ended_before_reply_is_not_missed() {
    let results = [
        ("done", true),
        ("skipped", true),
        ("failed", false),
        ("timeout", false),
        ("dependency", false),
        ("canceled", false),
    ];
    for (result, good) in results {
        let double = Double::new("252");
        double.state().jobs.result = result;
        let (_server, systemd) = peers(&double).await;
        assert_eq!(systemd.daemon_reload().await.unwrap(), ServiceOutcome::Done);
        match systemd.restart(&unit("crio.service")).await {
            Ok(outcome) => assert!(good && outcome == ServiceOutcome::Done, "{result}"),
            Err(error) => {
                assert!(!good);
                assert_eq!(error.to_string(), format!("restart of crio.service ended with {result:?}"));
            }
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn slow_activation_is_awaited() {
    let double = Double::new("252");
    double.state().jobs.takes = std::time::Duration::from_secs(80);
    let (_server, systemd) = peers(&double).await;
    let began = tokio::time::Instant::now();
    assert_eq!(systemd.restart(&unit("slow.service")).await.unwrap(), ServiceOutcome::Done);
    let took = began.elapsed().as_secs();
    assert!((80..90).contains(&took), "{took} s of the test's clock");
    // One that never ends is an error that names it.
    double.state().jobs.takes = std::time::Duration::from_secs(100_000);
    let error = systemd.restart(&unit("slow.service")).await.unwrap_err();
    assert_eq!(error.to_string(), "restart of slow.service did not answer within 300 s");
    // And so is a systemd that does not even take it.
    double.state().jobs.mute = true;
    let error = systemd.restart(&unit("slow.service")).await.unwrap_err();
    assert_eq!(error.to_string(), "systemd (RestartUnit) did not answer within 120 s");
}

#[tokio::test(flavor = "current_thread")]
async fn service_failed_after_its_job_is_named() {
    for after in [std::time::Duration::ZERO, std::time::Duration::from_millis(5)] {
        let double = Double::new("252");
        double.state().jobs.then = ("failed", "exit-code", after);
        let (_server, systemd) = peers(&double).await;
        let error = systemd.restart(&unit("crio.service")).await.unwrap_err();
        assert_eq!(error.to_string(), "restart of crio.service ended with \"exit-code\"", "after {after:?}");
        assert_eq!(error.class(), crate::model::FaultClass::Degraded);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn systemd_refusal_keeps_its_message() {
    let double = Double::new("252");
    let (_server, systemd) = peers(&double).await;
    let error = systemd.restart(&unit("no-such.service")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "restart of no-such.service ended with \"Unit no-such.service not found.\""
    );
}

/// A systemd that leaves the bus in the middle of a job: an error that names this, and no wait for a signal that can't
/// come.
#[tokio::test(flavor = "current_thread")]
async fn lost_systemd_ends_wait() {
    let Some(bus) = Bus::start("lost_systemd_ends_wait") else { return };
    let double = Double::new("252");
    double.state().jobs.leaves = true;
    let server = bus.serve(&double).await;
    let systemd = Systemd::given(bus.connect().await);
    let crio = unit("crio.service");
    let asked = tokio::time::timeout(std::time::Duration::from_secs(60), systemd.restart(&crio));
    let error = asked.await.expect("the wait has an end").unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("org.freedesktop.systemd1 left the bus"), "{cause}");
    assert_eq!(error.class(), crate::model::FaultClass::Retry);
    // Back again, it is called again.
    double.state().jobs.leaves = false;
    server.request_name("org.freedesktop.systemd1").await.unwrap();
    assert_eq!(systemd.restart(&crio).await.unwrap(), ServiceOutcome::Done);
}

/// A program's start is over long before the program, and its end decides about success.
#[tokio::test(flavor = "current_thread")]
async fn program_is_awaited_and_signal_is_no_good_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, systemd) = peers(&Double::new("252")).await;
    let units = systemd.transients().await.unwrap().unwrap();
    let unit = unit("machine-config-agent-test.service");
    for (script, expected) in [
        ("exit 0", "success"),
        ("exit 3", "exit code 3"),
        ("kill -TERM $$", "signal 15"),
        ("kill -KILL $$", "signal 9"),
    ] {
        let program = transient::Program {
            unit: &unit,
            description: "A test",
            command: &["/bin/sh", "-c", script].map(str::to_owned),
            log_name: "test",
            log_fields: &[],
            output: None,
            errors: dir.path().join("stderr"),
            environment: None,
            pipe: None,
            seconds: None,
        };
        write(dir.path(), "stderr", "");
        let ended = units.run(program).await.unwrap();
        assert_eq!((ended.to_string().as_str(), ended.is_success()), (expected, script == "exit 0"));
        units.stop(&unit).await.unwrap();
    }
    assert_eq!(units.wait(&unit).await.unwrap().to_string(), "the unit is gone");
}

/// A unit that failed may be started again: it is waited for, and its state is in the error when it is late.
#[tokio::test(flavor = "current_thread")]
async fn unit_is_awaited_by_signals_of_systemd() {
    let double = Double::new("252");
    let (server, systemd) = peers(&double).await;
    let kubelet = [unit("kubelet.service")];
    let becomes = async |active: &str, result: &str| {
        let change = |unit: &mut double::Unit| {
            (unit.active, unit.result) = (active.to_owned(), result.to_owned());
        };
        double.change(&server, "kubelet.service", change).await;
    };
    becomes("failed", "exit-code").await;
    let late = systemd.active(&kubelet, std::time::Duration::from_millis(20), &|_| {}).await.unwrap();
    assert_eq!(late, ["kubelet.service is failed (exit-code)"]);
    let notified = tokio::sync::Notify::new();
    let on_wait = |what: String| {
        assert_eq!(what, "kubelet.service, which is not active yet");
        notified.notify_one();
    };
    let waits = systemd.active(&kubelet, std::time::Duration::from_secs(60), &on_wait);
    let story = async {
        notified.notified().await;
        becomes("activating", "exit-code").await;
        becomes("active", "success").await;
    };
    let (late, ()) = tokio::join!(waits, story);
    assert!(late.unwrap().is_empty());
    // An active unit is not waited for.
    let never = |what| panic!("{what}");
    assert!(systemd.active(&kubelet, std::time::Duration::from_secs(60), &never).await.unwrap().is_empty());
}

/// A service's state is systemd's; nothing is called where none runs.
#[tokio::test(flavor = "current_thread")]
async fn service_state_is_read_without_job() {
    let double = Double::new("252");
    let (server, systemd) = peers(&double).await;
    let agent = unit("machine-config-agent.service");
    let change = |unit: &mut double::Unit| {
        (unit.active, unit.result) = ("failed".to_owned(), "exit-code".to_owned());
    };
    double.change(&server, agent.as_str(), change).await;
    let state = systemd.service(&agent).await.unwrap().unwrap();
    assert_eq!(
        (state.active.as_str(), state.result.as_str(), state.condition),
        ("failed", "exit-code", true)
    );
    assert_eq!(Systemd::absent().service(&agent).await.unwrap(), None);
}

/// A real bus of its own, ended with the test.
struct Bus {
    daemon: std::process::Child,
    dir: tempfile::TempDir,
}

impl Bus {
    /// The bus of a test; `None` where no `dbus-daemon` is installed.
    fn start(test: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "<busconfig><listen>unix:path={}/bus</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy>\
             </busconfig>",
            dir.path().display()
        );
        std::fs::write(dir.path().join("bus.conf"), config).unwrap();
        let started = std::process::Command::new("dbus-daemon")
            .arg(format!("--config-file={}/bus.conf", dir.path().display()))
            .args(["--nofork", "--nopidfile", "--print-address"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn();
        let Ok(mut daemon) = started else {
            crate::ran::not_run(test, "dbus-daemon");
            return None;
        };
        // Its address is printed when it listens.
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(daemon.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        assert!(line.starts_with("unix:"), "{line}");
        Some(Self { daemon, dir })
    }

    fn builder(&self) -> zbus::connection::Builder<'static> {
        let address = format!("unix:path={}/bus", self.dir.path().display());
        zbus::connection::Builder::address(address.as_str()).unwrap()
    }

    async fn connect(&self) -> Connection {
        self.builder().build().await.unwrap()
    }

    async fn serve(&self, double: &Double) -> Connection {
        let builder = self.builder().serve_at(double::OBJECT, double.clone()).unwrap();
        builder.name("org.freedesktop.systemd1").unwrap().build().await.unwrap()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_systemd_nothing_is_asked() {
    let (_dir, root) = host();
    let systemd = Systemd::detect(&root).unwrap();
    assert_eq!(systemd.restart(&unit("crio.service")).await.unwrap(), ServiceOutcome::NoSystemd);
    assert_eq!(systemd.daemon_reload().await.unwrap(), ServiceOutcome::NoSystemd);
}
