//! bootc as a unit of a systemd that a double plays: started, found again, ended, and its output.
#![expect(clippy::disallowed_types, reason = "it makes programs and FIFOs")]

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;

use super::unit::Bootc;
use super::*;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};

use crate::host::systemd::tests::double::Double;
use crate::host::systemd::tests::peers;
use crate::model::{FaultClass, ProxySettings};
use crate::program::make_program;

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn image(name: &str) -> ImageRef {
    ImageRef::parse(&format!("registry.test/{name}@sha256:{HEX}")).unwrap()
}

/// A program that plays bootc, and a root for its files.
struct Scene {
    dir: tempfile::TempDir,
    double: Double,
    _server: zbus::Connection,
    bootc: Bootc,
}

async fn scene(version: &str, script: &str) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("bootc");
    make_program(&program, &format!("#!/bin/sh\nhere={}\n{script}\n", dir.path().display()));
    std::fs::create_dir(dir.path().join("run")).unwrap();
    let double = Double::new(version);
    let (server, systemd) = peers(&double).await;
    let root = Root::open(Path::new(dir.path())).unwrap();
    let bootc = Bootc::new(systemd, root).at(program.to_str().unwrap());
    Scene { dir, double, _server: server, bootc }
}

fn quiet(_: OsProgress) {}

/// OST-006: exit status and output of `bootc switch` are in the fault.
#[tokio::test(flavor = "current_thread")]
async fn end_and_last_words_are_captured() {
    let script = "echo \"$@\" >$here/argv; echo queued; echo warn: slow >&2; [ -z \"$(cat $here/fail)\" ] && exit 0\n\
                  echo 'error: Pulling: unauthorized' >&2; exit 1";
    let Scene { dir, double, bootc, .. } = &scene("252.39-1~deb12u2", script).await;
    std::fs::write(dir.path().join("fail"), "").unwrap();
    let ran = bootc.switch(&image("os"), NextRoot::Left, &quiet).await.unwrap();
    assert!(ran.ended.is_success(), "{ran:?}");
    assert_eq!(ran.words, "warn: slow");
    let argv = std::fs::read_to_string(dir.path().join("argv")).unwrap();
    assert_eq!(argv, format!("switch --quiet --transport registry {}\n", image("os")));

    std::fs::write(dir.path().join("fail"), "1").unwrap();
    let ran = bootc.switch(&image("os"), NextRoot::Left, &quiet).await.unwrap();
    assert_eq!(ran.ended.to_string(), "exit code 1");
    assert_eq!(ran.words, "warn: slow; error: Pulling: unauthorized");
    // Nothing is left: neither units nor files.
    assert!(double.state().units.is_empty(), "{:?}", double.state().units);
    assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
}

/// BOOT-010: the unit gets the proxies by a file, and no property of it shows them.
#[tokio::test(flavor = "current_thread")]
async fn proxies_reach_bootc_by_file() {
    let Scene { dir, double, bootc, .. } = &scene("252", "echo \"$HTTPS_PROXY $NO_PROXY\" >$here/env").await;
    let url = "http://user:geheim@proxy.test:3128";
    let settings = ProxySettings::new(None, Some(url.to_owned()), Some(".svc".to_owned())).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let bootc = bootc.clone().through(Proxies::new(root, settings));
    let ran = bootc.switch(&image("os"), NextRoot::Left, &quiet).await.unwrap();
    assert!(ran.ended.is_success(), "{ran:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("env")).unwrap(), format!("{url} .svc\n"));
    assert!(!format!("{:?}", double.state()).contains("geheim"));
}

#[tokio::test(flavor = "current_thread")]
async fn progress_is_reported_with_passed_descriptors() {
    let script = r#"[ "$2" = --progress-fd ] || exit 0
        echo '{"type":"Start","version":"0.1.0"}' >&3
        echo '{"type":"ProgressBytes","task":"pulling","bytes":1,"bytesTotal":4}' >&3
        echo '{"type":"ProgressSteps","task":"staging","description":"Deploying"}' >&3"#;
    for (version, expected) in [("252", 0), ("257.1", 2)] {
        let Scene { bootc, .. } = &scene(version, script).await;
        let reported = RefCell::new(Vec::new());
        let ran = bootc
            .switch(&image("os"), NextRoot::Left, &|step| reported.borrow_mut().push(step.text))
            .await
            .unwrap();
        assert!(ran.ended.is_success(), "{ran:?}");
        assert_eq!(reported.borrow().len(), expected, "{version}: {reported:?}");
        assert_eq!(bootc.reports_progress(), expected > 0, "{version}: no silence is a stall before");
    }
}

/// A script that reports that it runs, and continues on a message: both by FIFOs, so nothing is guessed in time.
const WAITING: &str =
    "echo run >>$here/runs; echo >$here/begun; read line <$here/go; echo 'error: late' >&2; exit 1";

/// The test's ends of the two FIFOs. They are open for both directions: neither opening nor dropping them waits for the
/// other side, so a test that fails ends.
struct Fifos {
    begun: BufReader<Receiver>,
    go: Sender,
}

impl Fifos {
    fn make(dir: &Path) -> Self {
        let [begun, go] = ["begun", "go"].map(|name| dir.join(name));
        let stage_record = Command::new("mkfifo").args([&begun, &go]).status().unwrap();
        assert!(stage_record.success());
        let mut open = OpenOptions::new();
        let open = open.read_write(true);
        Self { begun: BufReader::new(open.open_receiver(begun).unwrap()), go: open.open_sender(go).unwrap() }
    }

    /// Waits until the program reports that it runs.
    async fn begun(&mut self) {
        self.begun.read_line(&mut String::new()).await.unwrap();
    }

    async fn go(&mut self) {
        self.go.write_all(b"\n").await.unwrap();
    }
}

/// OST-006: bootc outlives the agent, and its end is learnt by the next one.
#[tokio::test(flavor = "current_thread")]
async fn switch_outlives_agent_and_is_found_again() {
    let Scene { dir, double, bootc, .. } = &scene("252", WAITING).await;
    let dir = dir.path();
    let mut fifos = Fifos::make(dir);
    let target = image("os");
    {
        let mut switch = std::pin::pin!(bootc.switch(&target, NextRoot::Left, &quiet));
        tokio::select! {
            ran = &mut switch => panic!("it ended: {ran:?}"),
            () = fifos.begun() => {}
        }
        // The agent dies here: its future is dropped.
    }
    assert_eq!(double.state().units.len(), 1);
    let reported = RefCell::new(Vec::new());
    let waits = tokio::sync::Notify::new();
    let progress = |step: OsProgress| {
        reported.borrow_mut().push(step.text);
        waits.notify_one();
    };
    // Not before the next agent waits: one that has ended by then is started again.
    let end = async {
        waits.notified().await;
        fifos.go().await;
    };
    let (ran, ()) = tokio::join!(bootc.switch(&target, NextRoot::Left, &progress), end);
    let ran = ran.unwrap();
    assert_eq!((ran.ended.to_string().as_str(), ran.words.as_str()), ("exit code 1", "error: late"));
    assert_eq!(reported.take(), ["waiting for the bootc that was started before"]);
    assert_eq!(std::fs::read_to_string(dir.join("runs")).unwrap(), "run\n", "one run");
}

/// The old one takes its time: the new one begins after its end, and that end is not taken for the new one's.
#[tokio::test(flavor = "current_thread")]
async fn running_and_abandoned_switch_end_before_next() {
    let script = format!("trap 'sleep 0.1; echo end >>$here/runs; trap - TERM; kill $$' TERM\n{WAITING}");
    let Scene { dir, double, bootc, .. } = &scene("252", &script).await;
    let dir = dir.path();
    let mut fifos = Fifos::make(dir);
    for name in ["old", "new"] {
        let image = image(name);
        let mut switch = std::pin::pin!(bootc.switch(&image, NextRoot::Left, &quiet));
        tokio::select! {
            ran = &mut switch => panic!("it ended: {ran:?}"),
            () = fifos.begun() => {}
        }
    }
    let starts = || double.state().asked.iter().filter(|call| call.starts_with("start ")).count();
    assert_eq!(starts(), 2, "{:?}", double.state().asked);
    let runs = || std::fs::read_to_string(dir.join("runs")).unwrap();
    assert_eq!(runs(), "run\nend\nrun\n");
    bootc.stop().await.unwrap();
    assert_eq!(runs(), "run\nend\nrun\nend\n");
    assert!(double.state().units.is_empty());
    bootc.stop().await.unwrap();
}

/// A rollback that hangs is waited for by the next agent, and ended when it is given up: the next one is a run of its own.
#[tokio::test(flavor = "current_thread")]
async fn hung_rollback_is_ended_before_next() {
    let Scene { dir, double, bootc, .. } = &scene("252", WAITING).await;
    let mut fifos = Fifos::make(dir.path());
    for run in 1..=2 {
        let waits = tokio::sync::Notify::new();
        let progress = |step: OsProgress| {
            if step.text.starts_with("waiting for the bootc") {
                waits.notify_one();
            }
        };
        tokio::select! {
            ran = bootc.rollback("os-1.0", &progress) => panic!("it ended: {ran:?}"),
            () = fifos.begun() => {}
        }
        tokio::select! {
            ran = bootc.rollback("os-1.0", &progress) => panic!("it ended: {ran:?}"),
            () = waits.notified() => {}
        }
        bootc.stop().await.unwrap();
        assert!(double.state().units.is_empty(), "{:?}", double.state().units);
        let runs = std::fs::read_to_string(dir.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), run, "{runs}");
    }
}

/// rpm-ostree, ostree or another bootc holds the sysroot: the status reports the wait, and bootc runs afterwards.
#[cfg(feature = "backend-ostree")]
#[tokio::test(flavor = "current_thread")]
async fn held_sysroot_is_reported_as_wait() {
    use ostree_ext::gio::{Cancellable, File};
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let holder = format!("process {} ({}), which holds the sysroot", std::process::id(), name.trim());
    for verb in ["switch", "rollback"] {
        let Scene { dir, bootc, .. } = &scene("252", "echo run >$here/runs").await;
        let sysroot = ostree_ext::ostree::Sysroot::new(Some(&File::for_path(dir.path())));
        sysroot.ensure_initialized(Cancellable::NONE).unwrap();
        sysroot.load(Cancellable::NONE).unwrap();
        assert!(sysroot.try_lock().unwrap());
        let (reported, ran) = (RefCell::new(Vec::new()), dir.path().join("runs"));
        let progress = |step: OsProgress| {
            if let Some(holder) = step.waits_for() {
                assert!(!ran.exists(), "bootc was started");
                reported.borrow_mut().push(holder.to_owned());
                sysroot.unlock();
            }
        };
        if verb == "switch" {
            bootc.switch(&image("os"), NextRoot::Left, &progress).await.unwrap();
        } else {
            bootc.rollback("os-1.0", &progress).await.unwrap();
        }
        assert!(ran.exists(), "{verb}");
        assert_eq!(reported.take(), [holder.as_str()], "{verb}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn status_is_read_and_its_failure_is_reported() {
    let text = r#"{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","status":{"booted":null}}"#;
    let Scene { dir, bootc, .. } = &scene("252", &format!("echo '{text}'; echo note >&2")).await;
    assert_eq!(bootc.status().await.unwrap().unwrap().trim(), text);
    assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
    let Scene { bootc, .. } = &scene("252", "echo 'error: no lock' >&2; exit 3").await;
    let ran = bootc.status().await.unwrap().unwrap_err();
    assert_eq!((ran.ended.to_string().as_str(), ran.words.as_str()), ("exit code 3", "error: no lock"));
}

/// `systemctl reboot` takes a prepared next root by itself: that of a dropped deployment must not be left there. The
/// mount is the host's, so systemd undoes it.
#[tokio::test(flavor = "current_thread")]
async fn prepared_soft_reboot_goes_with_its_deployment() {
    let Scene { dir, double, bootc, .. } = &scene("257", "exit 0").await;
    bootc.drop_next_root().await.unwrap();
    assert_eq!(double.state().asked, [""; 0]);
    std::fs::create_dir_all(dir.path().join("run/nextroot/usr")).unwrap();
    bootc.drop_next_root().await.unwrap();
    let start = "start machine-config-agent-next-root.service";
    assert!(double.state().asked.iter().any(|call| call.starts_with(start)), "{:?}", double.state().asked);
}

/// Flags are passed where they are needed, and one that an agent finds running is the same with or without.
#[tokio::test(flavor = "current_thread")]
async fn desired_soft_reboot_is_prepared() {
    let Scene { dir, bootc, .. } = &scene("252", "echo \"$@\" >$here/argv").await;
    for (next_root, words) in [(NextRoot::Left, ""), (NextRoot::Prepared, "--soft-reboot=auto ")] {
        bootc.switch(&image("os"), next_root, &quiet).await.unwrap();
        let argv = std::fs::read_to_string(dir.path().join("argv")).unwrap();
        assert_eq!(argv, format!("switch {words}--quiet --transport registry {}\n", image("os")));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_systemd_bootc_cannot_run() {
    let dir = tempfile::tempdir().unwrap();
    let bootc = Bootc::new(Systemd::absent(), Root::open(dir.path()).unwrap());
    let error = bootc.switch(&image("os"), NextRoot::Left, &quiet).await.unwrap_err();
    assert!(error.to_string().contains("no systemd runs here"), "{error}");
    bootc.stop().await.unwrap();
}

#[test]
fn host_with_packages_of_its_own_is_refused_by_name() {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let mut booted = Booted {
        image: Some(image("os")),
        deployment: "os-1.0".to_owned(),
        carries: crate::model::observation::EmbeddedConfig::Unknown,
        local: crate::model::observation::LocalPackages::default(),
    };
    pure_image(&booted).unwrap();
    booted.local.requested = names(&["usbguard", "strace"]);
    booted.local.removed = names(&["nano"]);
    let error = pure_image(&booted).unwrap_err();
    assert!(error.to_string().contains("layered: strace usbguard; removed: nano"), "{error}");
    assert!(error.next().contains("rpm-ostree reset"), "{}", error.next());
    assert_eq!((error.class(), error.reason()), (FaultClass::Degraded, "LocalPackages"));
}
