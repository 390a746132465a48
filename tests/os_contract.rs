//! The contract of the libostree backend, against a real sysroot on a machine of the sandbox.
//!
//! Each test boots its own world; the calls are made by the agent's own executable inside it (`os-call`).

#![cfg(feature = "backend-ostree")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that looks at its own directory, and ends at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{Booted, IMAGES, LayerFile, SandboxError, World};
use serde_json::Value;

const WORKER: &str = env!("CARGO_BIN_EXE_machine-config-agent-ostree");

/// The example `os-call`, which cargo builds beside the agent: it plays the agent's executable inside.
///
/// `cargo test` builds it; `cargo test --test os_contract` does not: then `cargo build --example os-call` comes first.
fn agent() -> PathBuf {
    let agent = Path::new(WORKER).with_file_name("examples").join("os-call");
    // It looks for the worker beside itself. Another test may have been first.
    if let Err(error) =
        std::os::unix::fs::symlink(WORKER, agent.with_file_name("machine-config-agent-ostree"))
    {
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    }
    agent
}

fn labels(config: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("machineconfig".to_owned(), config.to_owned())])
}

fn file(path: &str, text: &str) -> LayerFile {
    LayerFile { path: path.to_owned(), mode: 0o644, contents: text.into() }
}

/// A world with v1 (config a) deployed and v2 (config b) built.
struct Lab {
    // The directory is removed with it.
    _dir: tempfile::TempDir,
    world: World,
    v1: ImageRef,
    v2: ImageRef,
}

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let world = World::create(dir.path(), &agent(), &labels("rendered-worker-a"), &|_| {}).unwrap();
    let v1 = world.image("v1").unwrap();
    let config = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-worker-b"}}"#;
    let files = [file("etc/motd", "version 2\n"), file("etc/machine-config-daemon/currentconfig", config)];
    let v2 = world.derive(&v1, "v2", &files, &labels("rendered-worker-b")).unwrap();
    Lab { _dir: dir, world, v1, v2 }
}

fn call(booted: &Booted, args: &[&str]) -> Value {
    let words = ["machine-config-agent", "os-call"].iter().chain(args);
    let output = booted.command(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

fn ok(booted: &Booted, args: &[&str]) -> Value {
    let answer = call(booted, args);
    assert!(answer.get("error").is_none(), "{args:?}: {answer:#}");
    answer["ok"].clone()
}

fn staged(booted: &Booted) -> Value {
    ok(booted, &["seen"])["deployments"]["staged"].clone()
}

/// The texts of the progress lines: whether something was pulled.
fn told(answer: &Value) -> String {
    answer["progress"].to_string()
}

#[test]
fn an_update_is_staged_finalised_and_booted() {
    let Lab { _dir, world, v1, v2, .. } = lab();
    let first = world.boot().unwrap();
    let seen = ok(&first, &["seen"]);
    let booted = &seen["deployments"]["booted"];
    assert_eq!(booted["image"], v1.to_string());
    assert_eq!(booted["carries"]["config"], "rendered-worker-a");
    assert!(booted["deployment"].as_str().unwrap().starts_with("sandbox-"), "{seen}");
    assert_eq!(seen["deployments"]["staged"], Value::Null);
    assert_eq!(ok(&first, &["carries", &v2.to_string()])["config"], "rendered-worker-b");
    assert_eq!(staged(&first), Value::Null, "looking stages nothing");

    // The file that the administrator changed survives the merge; the image's own change arrives.
    fs::write(first.root().join("etc/hostname"), "mine\n").unwrap();
    let v2_name = v2.to_string();
    let answer = call(&first, &["stage", &v2_name, "-console=ttyS0", "+a=1", "+console=tty0", "+a=1"]);
    assert!(told(&answer).contains("pulling layer 1 of 1"), "{answer:#}");
    assert!(told(&answer).contains("100"), "{answer:#}");
    assert_eq!(answer["ok"]["image"], v2_name, "{answer:#}");
    assert_eq!(answer["ok"]["kargs"], serde_json::json!(["rw", "a=1", "console=tty0", "a=1"]));
    assert_eq!(staged(&first), answer["ok"]);
    ok(&first, &["finalise"]);
    let id = first.id().clone();
    first.shutdown().unwrap();

    let second = world.boot().unwrap();
    assert_ne!(*second.id(), id);
    let seen = ok(&second, &["seen"]);
    assert_eq!(seen["deployments"]["booted"]["image"], v2_name);
    assert_eq!(seen["deployments"]["booted"]["carries"]["config"], "rendered-worker-b");
    assert_eq!(seen["deployments"]["staged"], Value::Null);
    let cmdline = second.command(["cat", "/proc/cmdline", "/etc/motd", "/etc/hostname"]).output().unwrap();
    let text = String::from_utf8(cmdline.stdout).unwrap();
    assert!(text.starts_with("rw a=1 console=tty0 a=1 ostree="), "{text}");
    assert!(text.ends_with("\nversion 2\nmine\n"), "{text}");
}

#[test]
fn an_unchanged_host_is_looked_at_once() {
    let Lab { _dir, world, v2, .. } = lab();
    let strace = std::process::Command::new("strace").arg("-V").output();
    if strace.is_err() {
        eprintln!("strace is not installed: not tested");
        return;
    }
    let boot = world.boot().unwrap();
    let log = world.dir().join("log");
    let count = |words: &[&str]| {
        let inside = boot.command(["machine-config-agent", "os-call"].iter().chain(words));
        let mut traced = std::process::Command::new("strace");
        traced.args(["-f", "-qq", "-e", "trace=execve", "-o"]).arg(&log).arg(inside.get_program());
        traced.args(inside.get_args()).envs(inside.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = traced.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer.get("error").is_none(), "{answer:#}");
        fs::read_to_string(&log).unwrap().matches("\"os-worker\"").count()
    };
    assert_eq!(count(&["seen", "3"]), 1);
    ok(&boot, &["stage", &v2.to_string()]);
    assert_eq!(count(&["seen", "3"]), 1);
}

/// CRA-003: what is staged already, or pulled already, is neither pulled nor staged again.
#[test]
fn nothing_is_pulled_twice() {
    let Lab { _dir, world, v1, v2, .. } = lab();
    let boot = world.boot().unwrap();
    let name = v2.to_string();
    let first = call(&boot, &["stage", &name]);
    assert!(told(&first).contains("pulling"), "{first:#}");

    // The source is gone: what follows can't pull.
    let (images, away) = (world.dir().join("images/index.json"), world.dir().join("images/away"));
    fs::rename(&images, &away).unwrap();
    let inode = || fs::metadata(boot.run_dir().join("ostree/staged-deployment")).unwrap().modified().unwrap();
    let before = inode();
    let again = call(&boot, &["stage", &name]);
    assert_eq!(again["ok"], first["ok"], "{again:#}");
    assert_eq!(inode(), before, "the same deployment is not staged anew");

    // Other arguments: the same image, staged anew. A crash between pull and staging looks the same.
    let other = call(&boot, &["stage", &name, "+quiet"]);
    assert_eq!(other["ok"]["kargs"], serde_json::json!(["rw", "console=ttyS0", "quiet"]), "{other:#}");
    ok(&boot, &["unstage"]);
    assert_eq!(call(&boot, &["stage", &name])["ok"]["image"], name);

    // The same image under another name: no pull either, and it stays whole when images out of use are forgotten.
    std::os::unix::fs::symlink("sandbox/images", boot.run_dir().join("other")).unwrap();
    let other = name.replace(IMAGES, "/run/other");
    assert_eq!(call(&boot, &["stage", &other])["ok"]["image"], name, "it is staged already");
    let answer = call(&boot, &["stage", &other, "+again"]);
    assert_eq!(answer["ok"]["image"], other, "{answer:#}");
    assert_eq!(ok(&boot, &["carries", &other])["config"], "rendered-worker-b");
    assert_eq!(call(&boot, &["stage", &v1.to_string()])["ok"]["image"], v1.to_string());

    // A power cut loses what is staged, not what was pulled.
    boot.power_cut().unwrap();
    let boot = world.boot().unwrap();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert_eq!(staged(&boot), Value::Null);
}

#[test]
fn arguments_alone_keep_the_booted_image() {
    let Lab { _dir, world, v1, .. } = lab();
    let boot = world.boot().unwrap();
    let answer = ok(&boot, &["stage", "-", "-rw", "-absent", "+nosmt"]);
    assert_eq!(answer["image"], v1.to_string());
    assert_eq!(answer["kargs"], serde_json::json!(["console=ttyS0", "nosmt"]));
    boot.shutdown().unwrap();
    let boot = world.boot().unwrap();
    assert!(boot.kargs().starts_with("console=ttyS0 nosmt ostree="), "{}", boot.kargs());
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["carries"]["config"], "rendered-worker-a");
}

#[test]
fn unstaging_leaves_the_old_system() {
    let Lab { _dir, world, v1, v2, .. } = lab();
    let boot = world.boot().unwrap();
    ok(&boot, &["unstage"]);
    ok(&boot, &["stage", &v2.to_string(), "+a=1"]);
    ok(&boot, &["unstage"]);
    assert_eq!(staged(&boot), Value::Null);
    boot.shutdown().unwrap();
    let boot = world.boot().unwrap();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert!(boot.kargs().starts_with("rw console=ttyS0 ostree="), "{}", boot.kargs());
}

#[test]
fn a_locked_deployment_is_not_rebooted_into() {
    let Lab { _dir, world, v2, .. } = lab();
    let boot = world.boot().unwrap();
    ok(&boot, &["finalise"]);
    ok(&boot, &["stage", &v2.to_string()]);
    fs::write(boot.run_dir().join("ostree/staged-deployment-locked"), "").unwrap();
    let answer = call(&boot, &["finalise"]);
    assert_eq!(answer["reason"], "DeploymentLocked", "{answer:#}");
    // Staging the same again unlocks it.
    ok(&boot, &["stage", &v2.to_string()]);
    ok(&boot, &["finalise"]);
}

#[test]
fn wrong_images_are_refused_and_nothing_is_staged() {
    let Lab { _dir, world, v1, v2, .. } = lab();
    let boot = world.boot().unwrap();
    let absent = format!("oci:{IMAGES}@sha256:{}", "1".repeat(64));
    let blob = |image: &ImageRef| world.dir().join("images/blobs/sha256").join(image.digest().to_string());
    // The manifest's bytes are not those of its name.
    fs::copy(blob(&v1), blob(&v2)).unwrap();
    let plain = world.derive(&v1, "plain", &[], &BTreeMap::new()).unwrap();
    fs::remove_file(blob(&plain)).unwrap();

    for (image, reason, part) in [
        // Nothing listens there.
        (format!("127.0.0.1:9/os@sha256:{}", "2".repeat(64)), "ImagePullFailed", "connection refused"),
        (v2.to_string(), "ImageDigestMismatch", "its manifest has the digest sha256:"),
        (absent.clone(), "ImageNotFound", "holds no manifest with this digest"),
        (absent.replace(IMAGES, "/run/nowhere"), "ImageNotFound", "/run/nowhere/index.json can't be read"),
        (plain.to_string(), "ImagePullFailed", "no such file"),
        (format!("oci:{IMAGES}:v1"), "Refused", "it is not named by digest"),
        ("registry.invalid/os:latest".to_owned(), "Refused", "it is not named by digest"),
    ] {
        let answer = call(&boot, &["stage", &image]);
        assert_eq!(answer["reason"], reason, "{answer:#}");
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains(part) && text.contains(&image), "{text}");
        assert_eq!(staged(&boot), Value::Null, "{image}");
    }
    boot.shutdown().unwrap();
    let boot = world.boot().unwrap();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
}

#[test]
fn errors_name_the_cause_and_the_next_step() {
    let Lab { _dir, world, v1, .. } = lab();
    let boot = world.boot().unwrap();
    let plain = world.derive(&v1, "plain", &[], &BTreeMap::new()).unwrap();
    let script = format!(
        "rm -f /tmp/bin/skopeo; mkdir -p /tmp/bin; PATH=/tmp/bin exec {} os-call stage {plain}",
        machine_config_agent::sandbox::AGENT
    );
    let output = boot.command(["sh", "-c", &script]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["reason"], "ToolMissing", "{answer:#}");
    assert!(answer["next"].as_str().unwrap().contains("package skopeo"), "{answer:#}");

    // Another program holds the sysroot, and says so when it lets go.
    let hold = "exec 9>>/sysroot/ostree/lock 2>/dev/null || exit 3";
    assert_eq!(
        boot.command(["sh", "-c", hold]).output().unwrap().status.code(),
        Some(2),
        "/sysroot is read-only"
    );

    // The machine around is not booted by libostree from this root.
    let output = std::process::Command::new(agent()).args(["os-call", "seen"]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    if !Path::new("/run/ostree-booted").exists() {
        assert_eq!(answer["reason"], "NotBooted", "{answer:#}");
    }
    assert!(matches!(
        World::create(world.dir(), &agent(), &labels("a"), &|_| {}),
        Err(SandboxError::NotEmpty(_))
    ));
}

#[test]
fn a_boot_outlives_its_processes_and_ends_with_them_inside() {
    let Lab { _dir, world, .. } = lab();
    let boot = world.boot().unwrap();
    let run = |argv: &[&str]| boot.command(argv).output().unwrap();
    assert_eq!(run(&["sh", "-c", "echo here >/run/note; kill -KILL $$"]).status.code(), Some(137));
    assert_eq!(run(&["cat", "/run/note"]).stdout, b"here\n");
    let id = run(&["cat", "/proc/sys/kernel/random/boot_id"]).stdout;
    assert_eq!(String::from_utf8(id).unwrap().trim(), boot.id().as_str());
    for path in ["/usr/x", "/sysroot/x", "/boot/x", "/run/host/usr/x", IMAGES] {
        let output = run(&["sh", "-c", &format!("echo x >{path}")]);
        assert!(!output.status.success(), "{path} can be written");
    }
    boot.power_cut().unwrap();
    let boot = world.boot().unwrap();
    assert!(!boot.run_dir().join("note").exists());
}
