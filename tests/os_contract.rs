//! The contract of every OS backend, against a real sysroot on a machine of the sandbox.
//!
//! Each test boots its own world; the calls are made by the agent's own executable inside it (`os-call`). For
//! rpm-ostree a bus runs inside, and a double of its daemon that works on the real sysroot
//! (`doubles/rpm_ostreed`); for bootc a double of systemd (`doubles/systemd`), which runs one of bootc (`doubles/bootc`).
//! Real ones are asked on a throwaway machine that has them: see `real_host` below.

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
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine_config_agent::model::{ImageRef, Sha256};
use machine_config_agent::sandbox::{Booted, IMAGES, LayerFile, SandboxError, World};
use serde_json::Value;

const WORKER: &str = env!("CARGO_BIN_EXE_machine-config-agent-ostree");

/// The backends that keep the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Ostree,
    RpmOstree,
    Bootc,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Ostree => "ostree",
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
        }
    }

    /// What it says while it pulls the one layer that is missing.
    fn pulling(self) -> &'static str {
        match self {
            Self::Ostree | Self::Bootc => "pulling layer 1 of 1",
            Self::RpmOstree => "[1/1] Fetching ostree chunk",
        }
    }
}

/// Makes each test one of each backend.
macro_rules! contract {
    ($($(#[doc = $doc:literal])* #[test] $name:ident;)*) => {
        contract! { ostree Ostree $($(#[doc = $doc])* $name;)* }
        contract! { rpm_ostree RpmOstree $($(#[doc = $doc])* $name;)* }
        contract! { bootc Bootc $($(#[doc = $doc])* $name;)* }
    };
    ($module:ident $backend:ident $($(#[doc = $doc:literal])* $name:ident;)*) => {
        mod $module {
            $($(#[doc = $doc])* #[test] fn $name() { super::$name(super::Backend::$backend); })*
        }
    };
}

contract! {
    /// OST-004, OST-009: what is staged is what was asked for, by digest, and boots with its arguments (MCD-192).
    #[test]
    an_update_is_staged_finalised_and_booted;
    #[test]
    an_unchanged_host_is_looked_at_once;
    /// CRA-003: what was pulled or staged once is not pulled again.
    #[test]
    nothing_is_pulled_twice;
    #[test]
    arguments_alone_keep_the_booted_image;
    #[test]
    unstaging_leaves_the_old_system;
    #[test]
    a_locked_deployment_is_not_rebooted_into;
    #[test]
    wrong_images_are_refused_and_nothing_is_staged;
    /// OST-012: the old deployment is kept until it is given up.
    #[test]
    the_rollback_goes_when_it_is_dropped;
    #[test]
    all_of_it_can_be_dropped_again;
    /// The agent itself brings a host to a config, over a reboot.
    #[test]
    the_agent_gets_there;
    /// OST-007: another deployment of an earlier attempt makes room.
    #[test]
    another_pending_deployment_makes_room;
}

/// An example, which cargo builds beside the agent.
///
/// `cargo test` builds it; `cargo test --test os_contract` does not: then `cargo build --examples` comes first.
fn example(name: &str) -> PathBuf {
    Path::new(WORKER).with_file_name("examples").join(name)
}

/// The example `os-call`: it plays the agent's executable inside.
fn agent() -> PathBuf {
    let agent = example("os-call");
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
    backend: Backend,
    v1: ImageRef,
    v2: ImageRef,
}

fn lab(backend: Backend) -> Lab {
    lab_of(backend, &agent())
}

/// A lab in which this executable is the agent.
fn lab_of(backend: Backend, agent: &Path) -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let world = World::create(dir.path(), agent, &labels("rendered-worker-a"), &|_| {}).unwrap();
    let v1 = world.image("v1").unwrap();
    let config = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-worker-b"}}"#;
    let files = [file("etc/motd", "version 2\n"), file("etc/machine-config-daemon/currentconfig", config)];
    let v2 = world.derive(&v1, "v2", &files, &labels("rendered-worker-b")).unwrap();
    Lab { _dir: dir, world, backend, v1, v2 }
}

impl Lab {
    /// Boots, with the programs that the backend asks.
    fn boot(&self) -> Machine {
        let booted = self.world.boot().unwrap();
        match self.backend {
            Backend::Ostree => {}
            Backend::RpmOstree => doubles(&booted, &["rpm-ostreed"], "rpm-ostreed --bus {address} --sysroot"),
            Backend::Bootc => {
                fs::create_dir_all(booted.run_dir().join("systemd/system")).unwrap();
                doubles(&booted, &["systemd-double", "bootc"], "systemd-double --bus {address}");
            }
        }
        Machine { backend: self.backend, booted }
    }
}

/// A boot, and by what its OS is asked.
struct Machine {
    backend: Backend,
    booted: Booted,
}

impl Deref for Machine {
    type Target = Booted;
    fn deref(&self) -> &Booted {
        &self.booted
    }
}

impl Machine {
    fn shutdown(self) {
        self.booted.shutdown().unwrap();
    }

    fn power_cut(self) {
        self.booted.power_cut().unwrap();
    }

    /// Prepares a call.
    fn os_call(&self, args: &[&str]) -> Command {
        let call = ["os-call", "--backend", self.backend.name()];
        let words: Vec<&str> = call.iter().chain(args).copied().collect();
        self.agent(&words)
    }

    /// Prepares a run of the agent. A daemon comes up for it and goes with it, as one that the bus starts when it is
    /// asked.
    fn agent(&self, args: &[&str]) -> Command {
        let agent = ["machine-config-agent"];
        match self.backend {
            Backend::Ostree => self.command(agent.iter().chain(args)),
            Backend::RpmOstree | Backend::Bootc => {
                self.command(["bash", "/run/doubles/with"].iter().chain(&agent).chain(args))
            }
        }
    }
}

/// Puts the bus and the doubles where [`Machine::os_call`] starts them.
fn doubles(booted: &Booted, names: &[&str], service: &str) {
    let run = booted.run_dir();
    fs::create_dir_all(run.join("dbus")).unwrap();
    fs::create_dir_all(run.join("doubles")).unwrap();
    for name in names {
        let (from, to) = (example(name), run.join("doubles").join(name));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap();
        }
    }
    let worker = "machine-config-agent-ostree";
    std::os::unix::fs::symlink(format!("/run/host/bin/{worker}"), run.join("doubles").join(worker)).unwrap();
    let address = "unix:path=/run/dbus/system_bus_socket";
    let config = format!(
        "<busconfig><listen>{address}</listen><auth>EXTERNAL</auth><policy context='default'>\
         <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>"
    );
    fs::write(run.join("doubles/bus.conf"), config).unwrap();
    // Each says a line when it is ready.
    let service = service.replace("{address}", address);
    let with = format!(
        "rm -f /run/dbus/system_bus_socket\n\
         exec 3< <(exec /run/host/usr/bin/dbus-daemon --nofork --print-address --config-file=/run/doubles/bus.conf 2>/dev/null)\n\
         read -r -u 3 line || exit 3\n\
         exec 4< <(exec /run/doubles/{service})\n\
         read -r -u 4 line || exit 4\n\
         \"$@\"\n"
    );
    fs::write(run.join("doubles/with"), with).unwrap();
}

fn call(machine: &Machine, args: &[&str]) -> Value {
    let output = machine.os_call(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

fn ok(machine: &Machine, args: &[&str]) -> Value {
    let answer = call(machine, args);
    assert!(answer.get("error").is_none(), "{args:?}: {answer:#}");
    answer["ok"].clone()
}

fn staged(machine: &Machine) -> Value {
    ok(machine, &["seen"])["deployments"]["staged"].clone()
}

/// The texts of the progress lines: whether something was pulled.
fn told(answer: &Value) -> String {
    answer["progress"].to_string()
}

fn an_update_is_staged_finalised_and_booted(backend: Backend) {
    let lab = lab(backend);
    let Lab { v1, v2, .. } = &lab;
    let first = lab.boot();
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
    assert!(told(&answer).contains(backend.pulling()), "{answer:#}");
    assert!(told(&answer).contains("100") || backend != Backend::Ostree, "{answer:#}");
    assert_eq!(answer["ok"]["image"], v2_name, "{answer:#}");
    assert_eq!(answer["ok"]["kargs"], serde_json::json!(["rw", "a=1", "console=tty0", "a=1"]));
    assert_eq!(staged(&first), answer["ok"]);
    ok(&first, &["finalise"]);
    let id = first.id().clone();
    first.shutdown();

    let second = lab.boot();
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

fn an_unchanged_host_is_looked_at_once(backend: Backend) {
    let lab = lab(backend);
    let Lab { world, v2, .. } = &lab;
    let strace = std::process::Command::new("strace").arg("-V").output();
    if strace.is_err() {
        eprintln!("strace is not installed: not tested");
        return;
    }
    let boot = lab.boot();
    let log = world.dir().join("log");
    let count = |words: &[&str]| {
        let inside = boot.os_call(words);
        let mut traced = std::process::Command::new("strace");
        traced.args(["-f", "-qq", "-e", "trace=execve", "-o"]).arg(&log).arg(inside.get_program());
        traced.args(inside.get_args()).envs(inside.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = traced.output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer.get("error").is_none(), "{answer:#}");
        fs::read_to_string(&log).unwrap().matches("\"os-worker\"").count()
    };
    // What was seen serves the next process as well. Only libostree's own backend has to start a worker to look.
    let looks = |count: usize| count > 0 || backend != Backend::Ostree;
    assert!(looks(count(&["seen", "3"])));
    assert_eq!(count(&["seen", "3"]), 0);
    ok(&boot, &["stage", &v2.to_string()]);
    assert!(looks(count(&["seen", "3"])));
    assert_eq!(count(&["seen", "3"]), 0);
}

/// CRA-003: what is staged already, or pulled already, is neither pulled nor staged again.
fn nothing_is_pulled_twice(backend: Backend) {
    let lab = lab(backend);
    let Lab { world, v1, v2, .. } = &lab;
    let boot = lab.boot();
    let name = v2.to_string();
    let first = call(&boot, &["stage", &name]);
    assert!(told(&first).contains(backend.pulling()), "{first:#}");

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
    // rpm-ostree keeps the name of what is staged.
    assert_eq!(
        answer["ok"]["image"],
        if backend == Backend::RpmOstree { &name } else { &other }[..],
        "{answer:#}"
    );
    assert_eq!(ok(&boot, &["carries", &other])["config"], "rendered-worker-b");
    assert_eq!(call(&boot, &["stage", &v1.to_string()])["ok"]["image"], v1.to_string());

    // A power cut loses what is staged, not what was pulled.
    boot.power_cut();
    let boot = lab.boot();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert_eq!(staged(&boot), Value::Null);
}

/// What a pull leaves that was cut off before a layer was verified: the layer's name, and the file that says so.
#[test]
fn a_layer_that_was_not_verified_is_pulled_again() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let name = v2.to_string();
    ok(&boot, &["stage", &name]);
    let ostree = world.dir().join("sysroot/ostree");
    assert!(!ostree.join("machine-config-agent-unverified").exists(), "what was verified is not doubted");
    ok(&boot, &["unstage"]);
    let repo = format!("--repo={}", ostree.join("repo").display());
    let refs = |args: &[&str]| {
        let output = std::process::Command::new("ostree").args(["refs", &repo]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = refs(&[]);
    let of = |prefix: &str| all.lines().filter(|line| line.starts_with(prefix)).collect::<Vec<_>>();
    let digest = v2.digest().to_string();
    let image = of("ostree/container/image/").into_iter().find(|name| name.contains(&digest)).unwrap();
    refs(&["--delete", image]);

    // As it is, the layer needs no pull.
    let answer = call(&boot, &["preflight", &name]);
    assert_eq!(answer["ok"]["download"], 0, "{answer:#}");
    let layers = of("ostree/container/blob/").join("\n") + "\n";
    fs::write(ostree.join("machine-config-agent-unverified"), layers).unwrap();
    let answer = call(&boot, &["stage", &name]);
    assert!(told(&answer).contains("pulling layer 1 of "), "{answer:#}");
    assert_eq!(answer["ok"]["image"], name);
    assert!(!ostree.join("machine-config-agent-unverified").exists());
}

fn arguments_alone_keep_the_booted_image(backend: Backend) {
    let lab = lab(backend);
    let Lab { v1, .. } = &lab;
    let boot = lab.boot();
    let answer = ok(&boot, &["stage", "-", "-rw", "-absent", "+nosmt"]);
    assert_eq!(answer["image"], v1.to_string());
    assert_eq!(answer["kargs"], serde_json::json!(["console=ttyS0", "nosmt"]));
    boot.shutdown();
    let boot = lab.boot();
    assert!(boot.kargs().starts_with("console=ttyS0 nosmt ostree="), "{}", boot.kargs());
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["carries"]["config"], "rendered-worker-a");
}

fn unstaging_leaves_the_old_system(backend: Backend) {
    let lab = lab(backend);
    let Lab { v1, v2, .. } = &lab;
    let boot = lab.boot();
    ok(&boot, &["unstage"]);
    ok(&boot, &["stage", &v2.to_string(), "+a=1"]);
    ok(&boot, &["unstage"]);
    assert_eq!(staged(&boot), Value::Null);
    boot.shutdown();
    let boot = lab.boot();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
    assert!(boot.kargs().starts_with("rw console=ttyS0 ostree="), "{}", boot.kargs());
}

fn a_locked_deployment_is_not_rebooted_into(backend: Backend) {
    let lab = lab(backend);
    let Lab { v2, .. } = &lab;
    let boot = lab.boot();
    ok(&boot, &["finalise"]);
    ok(&boot, &["stage", &v2.to_string()]);
    fs::write(boot.run_dir().join("ostree/staged-deployment-locked"), "").unwrap();
    let answer = call(&boot, &["finalise"]);
    assert_eq!(answer["reason"], "DeploymentLocked", "{answer:#}");
    // Staging the same again unlocks it.
    ok(&boot, &["stage", &v2.to_string()]);
    ok(&boot, &["finalise"]);
}

fn wrong_images_are_refused_and_nothing_is_staged(backend: Backend) {
    let lab = lab(backend);
    let Lab { world, v1, v2, .. } = &lab;
    let boot = lab.boot();
    let absent = format!("oci:{IMAGES}@sha256:{}", "1".repeat(64));
    let blob = |image: &ImageRef| world.dir().join("images/blobs/sha256").join(image.digest().to_string());
    // The manifest's bytes are not those of its name.
    fs::copy(blob(v1), blob(v2)).unwrap();
    let plain = world.derive(v1, "plain", &[], &BTreeMap::new()).unwrap();
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
        // rpm-ostree gives a text; of directories, which it does not know by digest, there is no more to tell.
        if backend == Backend::Ostree || !image.starts_with("oci:/") {
            assert_eq!(answer["reason"], reason, "{answer:#}");
        }
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains(part) && text.contains(&image), "{text}");
        assert_eq!(staged(&boot), Value::Null, "{image}");
    }
    boot.shutdown();
    let boot = lab.boot();
    assert_eq!(ok(&boot, &["seen"])["deployments"]["booted"]["image"], v1.to_string());
}

fn the_rollback_goes_when_it_is_dropped(backend: Backend) {
    let lab = lab(backend);
    let first = lab.boot();
    ok(&first, &["drop-rollback"]);
    ok(&first, &["stage", &lab.v2.to_string()]);
    first.shutdown();
    let second = lab.boot();
    let deployments = || {
        let status = second.command(["ostree", "admin", "status"]).output().unwrap();
        String::from_utf8(status.stdout).unwrap().lines().filter(|line| line.contains("sandbox ")).count()
    };
    assert_eq!(deployments(), 2);
    ok(&second, &["drop-rollback"]);
    ok(&second, &["drop-rollback"]);
    assert_eq!(deployments(), 1);
    assert_eq!(ok(&second, &["seen"])["deployments"]["booted"]["image"], lab.v2.to_string());
}

fn another_pending_deployment_makes_room(backend: Backend) {
    let lab = lab(backend);
    let v3 = lab.world.derive(&lab.v1, "v3", &[file("etc/motd", "version 3\n")], &labels("c")).unwrap();
    let boot = lab.boot();
    ok(&boot, &["stage", &v3.to_string(), "+third"]);
    ok(&boot, &["abandon"]);
    ok(&boot, &["stage", &lab.v2.to_string(), "+second"]);
    let now = staged(&boot);
    assert_eq!(now["image"], lab.v2.to_string());
    assert_eq!(now["kargs"], serde_json::json!(["rw", "console=ttyS0", "second"]));
    boot.shutdown();
    assert!(lab.boot().kargs().starts_with("rw console=ttyS0 second ostree="));
}

/// Which backend works is found out from what the booted image has installed. MCD-207: none where no image is booted.
#[test]
fn the_backend_is_chosen_by_what_is_installed() {
    let lab = lab(Backend::Ostree);
    let chosen = |booted: &Booted| {
        let output = booted.command(["machine-config-agent", "os-call", "choose"]).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["ok"][0].as_str().unwrap().to_owned(), answer["ok"][1].as_str().unwrap().to_owned())
    };
    let boot = lab.boot();
    assert_eq!(chosen(&boot).0, "Ostree");
    fs::remove_file(boot.run_dir().join("ostree-booted")).unwrap();
    let (kind, because) = chosen(&boot);
    assert!(kind == "None" && because.contains("/run/ostree-booted"), "{because}");
    fs::write(boot.run_dir().join("ostree-booted"), "").unwrap();

    let service =
        file("usr/share/dbus-1/system-services/org.projectatomic.rpmostree1.service", "[D-BUS Service]\n");
    let v3 = lab.world.derive(&lab.v1, "v3", &[service], &labels("c")).unwrap();
    ok(&boot, &["stage", &v3.to_string()]);
    boot.shutdown();
    let (kind, because) = chosen(&lab.boot());
    assert!(kind == "RpmOstree" && because.contains("rpm-ostree is installed"), "{kind}: {because}");
}

/// Makes an image of another one whose config was changed.
fn reconfigured(world: &World, image: &ImageRef, change: impl FnOnce(&mut Value)) -> ImageRef {
    let layout = world.dir().join("images");
    let blobs = layout.join("blobs/sha256");
    let read = |digest: &str| -> Value {
        serde_json::from_slice(&fs::read(blobs.join(digest.trim_start_matches("sha256:"))).unwrap()).unwrap()
    };
    let write = |value: &Value| {
        let text = value.to_string();
        let digest = Sha256::of(text.as_bytes()).to_string();
        fs::write(blobs.join(&digest), &text).unwrap();
        (format!("sha256:{digest}"), text.len())
    };
    let mut manifest = read(&image.digest().to_string());
    let mut config = read(manifest["config"]["digest"].as_str().unwrap());
    change(&mut config);
    let (digest, size) = write(&config);
    (manifest["config"]["digest"], manifest["config"]["size"]) = (digest.into(), size.into());
    let (digest, size) = write(&manifest);
    let mut index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let media = "application/vnd.oci.image.manifest.v1+json";
    let entry = serde_json::json!({"mediaType": media, "digest": digest, "size": size});
    index["manifests"].as_array_mut().unwrap().push(entry);
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    ImageRef::parse(&format!("oci:{IMAGES}@{digest}")).unwrap()
}

/// What can't be booted here is told before a layer is pulled, with both architectures.
#[test]
fn an_image_that_can_not_boot_here_is_not_pulled() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let foreign = reconfigured(world, &v2, |config| config["architecture"] = "s390x".into());
    let plain = reconfigured(world, &v2, |config| {
        let labels = config.pointer_mut("/config/Labels").and_then(Value::as_object_mut).unwrap();
        labels.retain(|name, _| !["ostree.bootable", "containers.bootc"].contains(&name.as_str()));
    });
    for (image, reason, part) in [
        (foreign, "ImageWrongArchitecture", "Image has architecture s390x; expected "),
        (plain, "ImageNotBootable", "does not have ostree.bootable"),
    ] {
        for verb in ["preflight", "stage"] {
            let answer = call(&boot, &[verb, &image.to_string()]);
            assert_eq!(
                (&answer["reason"], &answer["class"]),
                (&reason.into(), &"degraded".into()),
                "{answer:#}"
            );
            let text = answer["error"].as_str().unwrap();
            assert!(text.contains(part) && text.contains(&image.to_string()), "{text}");
        }
        assert_eq!(staged(&boot), Value::Null);
    }
    let found = ok(&boot, &["preflight", &v2.to_string()]);
    assert_eq!(found["carries"]["config"], "rendered-worker-b");
    let missing = found["download"].as_u64().unwrap();
    assert!(missing > 0, "{found}");
    ok(&boot, &["stage", &v2.to_string()]);
    assert_eq!(ok(&boot, &["preflight", &v2.to_string()])["download"], 0, "what is here is not pulled");
}

/// A bootable image of plain layers is for tooling that can deploy it; what it carries is known before.
#[test]
fn an_image_without_a_commit_is_for_who_can_deploy_it() {
    for backend in [Backend::Ostree, Backend::RpmOstree, Backend::Bootc] {
        let lab = lab(backend);
        let boot = lab.boot();
        let image = reconfigured(&lab.world, &lab.v2, |config| {
            let labels = config.pointer_mut("/config/Labels").and_then(Value::as_object_mut).unwrap();
            labels.remove("ostree.final-diffid").unwrap();
        });
        let answer = call(&boot, &["preflight", &image.to_string()]);
        if backend == Backend::Ostree {
            assert_eq!(answer["reason"], "ImageNotBootable", "{answer:#}");
            assert!(answer["next"].as_str().unwrap().contains("bootc"), "{answer:#}");
        } else {
            assert_eq!(answer["ok"]["carries"]["config"], "rendered-worker-b", "{answer:#}");
            assert!(answer["ok"]["download"].as_u64() > Some(0), "{answer:#}");
        }
    }
}

/// Calls with a `/boot` of a size of its own, of which the files of the old one are copied to.
fn with_boot_of(booted: &Booted, size: &str, args: &[&str]) -> Value {
    let script = format!(
        "mkdir /tmp/boot && cp -a /boot/. /tmp/boot && /run/host/usr/bin/mount -t tmpfs -o size={size} none /boot \
         && cp -a /tmp/boot/. /boot && exec {} os-call --backend ostree \"$@\"",
        machine_config_agent::sandbox::AGENT
    );
    let output = booted.command(["sh", "-c", &script, "sh"].iter().chain(args)).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// OST-008: a kernel that does not fit into a real, small `/boot` is refused, with needed and free bytes: before the
/// pull by an estimate where the image's base is not here, and before the staging, thus before a drain, for certain.
#[test]
fn a_kernel_that_does_not_fit_into_boot_is_refused() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, v2, .. } = &lab;
    let kernel = LayerFile {
        path: "usr/lib/modules/6.0.0-sandbox/vmlinuz".to_owned(),
        mode: 0o644,
        contents: vec![b'k'; 4 << 20],
    };
    let v3 = world.derive(&v1, "v3", &[kernel], &labels("rendered-worker-c")).unwrap().to_string();
    let boot = lab.boot();
    // The base is here: the kernel most likely, too. What is known only after the pull is not guessed.
    assert_eq!(
        with_boot_of(&boot, "3m", &["preflight", &v3])["ok"]["carries"]["config"],
        "rendered-worker-c"
    );
    for verb in ["stage", "preflight", "stage"] {
        let answer = with_boot_of(&boot, "3m", &[verb, &v3]);
        assert_eq!(
            (&answer["reason"], &answer["class"]),
            (&"BootFull".into(), &"retry".into()),
            "{answer:#}"
        );
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains("5.0 MiB are needed in /boot") && text.contains("2.9 MiB are free"), "{text}");
        assert_eq!(staged(&boot), Value::Null);
    }
    // The same kernel as the booted one needs nothing, whatever is free.
    let answer = with_boot_of(&boot, "100k", &["stage", &v2.to_string()]);
    assert_eq!(answer["ok"]["image"], v2.to_string(), "{answer:#}");
    assert_eq!(with_boot_of(&boot, "8m", &["stage", &v3])["ok"]["image"], v3);

    // Another base: the estimate is the booted kernel's size, which is small here.
    let other = tempfile::tempdir().unwrap();
    World::create(other.path(), &agent(), &labels("rendered-worker-z"), &|_| {}).unwrap();
    let (from, to) = (other.path().join("images"), world.dir().join("images"));
    for blob in fs::read_dir(from.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        fs::copy(blob.path(), to.join("blobs/sha256").join(blob.file_name())).unwrap();
    }
    fs::copy(from.join("index.json"), to.join("index.json")).unwrap();
    let foreign = World::open(other.path(), &agent()).unwrap().image("v1").unwrap().to_string();
    let answer = with_boot_of(&boot, "100k", &["preflight", &foreign]);
    assert_eq!(answer["reason"], "BootFull", "{answer:#}");
    assert!(answer["error"].as_str().unwrap().contains("about 1.0 MiB are needed in /boot"), "{answer:#}");
    assert!(with_boot_of(&boot, "2m", &["preflight", &foreign])["ok"]["download"].as_u64() > Some(0));
}

/// What libostree has to keep free is not counted as free: the pull would end in the middle.
#[test]
fn an_image_that_does_not_fit_into_the_repository_is_not_pulled() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v2, .. } = &lab;
    let boot = lab.boot();
    let config = world.dir().join("sysroot/ostree/repo/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[core]\n", "[core]\nmin-free-space-size=1000TB\n")).unwrap();
    for verb in ["preflight", "stage"] {
        let answer = call(&boot, &[verb, &v2.to_string()]);
        assert_eq!(
            (&answer["reason"], &answer["class"]),
            (&"SysrootFull".into(), &"retry".into()),
            "{answer:#}"
        );
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains(" KiB are needed in /sysroot, 0 bytes are free"), "{text}");
        assert!(!told(&answer).contains("pulling"), "{answer:#}");
    }
    fs::write(&config, text).unwrap();
    ok(&boot, &["stage", &v2.to_string()]);
}

/// OST-006: how bootc ended, and its last words, are in the fault; nothing is left, and it is tried again.
#[test]
fn what_bootc_fails_with_is_told() {
    let lab = lab(Backend::Bootc);
    let v2 = lab.v2.to_string();
    let boot = lab.boot();
    let fault = boot.run_dir().join("bootc-double/fault");
    fs::create_dir_all(fault.parent().unwrap()).unwrap();
    let cases = [
        ("fail Creating importer: unauthorized", "ImagePullUnauthorized", "ended with exit code 1"),
        ("fail something new", "BootcFailed", "warning: about to fail; error: something new"),
        ("silent", "ImageDigestMismatch", "what is staged is nothing"),
    ];
    for (text, reason, part) in cases {
        fs::write(&fault, text).unwrap();
        let answer = call(&boot, &["stage", &v2]);
        assert_eq!(answer["reason"], reason, "{answer:#}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(part) && error.contains(&v2), "{error}");
        assert_eq!(staged(&boot), Value::Null);
    }
    fs::remove_file(&fault).unwrap();
    let alpha = fault.with_file_name("alpha");
    fs::write(&alpha, "").unwrap();
    ok(&boot, &["stage", &v2]);
    assert!(ok(&boot, &["soft-reboot"]).to_string().contains("does not know soft reboots"));
    fs::remove_file(&alpha).unwrap();
    assert!(ok(&boot, &["soft-reboot"]).to_string().contains("needs a whole boot"));
    fs::write(fault.with_file_name("soft"), "").unwrap();
    assert_eq!(ok(&boot, &["soft-reboot"]), "Capable");
}

#[test]
fn errors_name_the_cause_and_the_next_step() {
    let lab = lab(Backend::Ostree);
    let Lab { world, v1, .. } = &lab;
    let boot = lab.boot();
    let plain = world.derive(v1, "plain", &[], &BTreeMap::new()).unwrap();
    let script = format!(
        "rm -f /tmp/bin/skopeo; mkdir -p /tmp/bin; PATH=/tmp/bin exec {} os-call --backend ostree stage {plain}",
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
    let output = std::process::Command::new(agent())
        .args(["os-call", "--backend", "ostree", "seen"])
        .output()
        .unwrap();
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
    let lab = lab(Backend::Ostree);
    let boot = lab.boot();
    let run = |argv: &[&str]| boot.command(argv).output().unwrap();
    assert_eq!(run(&["sh", "-c", "echo here >/run/note; kill -KILL $$"]).status.code(), Some(137));
    assert_eq!(run(&["cat", "/run/note"]).stdout, b"here\n");
    let id = run(&["cat", "/proc/sys/kernel/random/boot_id"]).stdout;
    assert_eq!(String::from_utf8(id).unwrap().trim(), boot.id().as_str());
    for path in ["/usr/x", "/sysroot/x", "/boot/x", "/run/host/usr/x", IMAGES] {
        let output = run(&["sh", "-c", &format!("echo x >{path}")]);
        assert!(!output.status.success(), "{path} can be written");
    }
    boot.power_cut();
    let boot = lab.boot();
    assert!(!boot.run_dir().join("note").exists());
}

/// The part of the contract that asks for no reboot, on any host.
fn without_reboots(call: &dyn Fn(&[&str]) -> Value, image: &str) {
    let ok = |args: &[&str]| {
        let answer = call(args);
        assert!(answer.get("error").is_none(), "{args:?}: {answer:#}");
        answer["ok"].clone()
    };
    ok(&["abandon"]);
    ok(&["unstage"]);
    let before = ok(&["seen"]);
    assert_eq!(before["deployments"]["staged"], Value::Null, "{before:#}");
    let wanted = ["stage", image, "+mca.contract=1", "+mca.contract=\"a b\"", "+mca.contract=1"];
    let staged = ok(&wanted);
    assert_eq!(ok(&["seen"])["deployments"]["staged"], staged);
    let kargs: Vec<_> = staged["kargs"].as_array().unwrap().iter().rev().take(3).rev().cloned().collect();
    assert_eq!(kargs, ["mca.contract=1", "mca.contract=\"a b\"", "mca.contract=1"]);
    let expected = if image == "-" { &before["deployments"]["booted"]["image"] } else { &Value::from(image) };
    assert_eq!(staged["image"], *expected);
    let again = call(&wanted);
    assert_eq!(again["ok"], staged, "{again:#}");
    assert!(!told(&again).contains("Fetching") && !told(&again).contains("pulling"), "{again:#}");
    let line = ok(&["stage", image, "+mca.contract=2"]);
    assert_eq!(line["kargs"].as_array().unwrap().last(), Some(&Value::from("mca.contract=2")), "{line:#}");
    ok(&["finalise"]);
    let absent = call(&["stage", &format!("127.0.0.1:9/os@sha256:{}", "2".repeat(64))]);
    assert_eq!(absent["reason"], "ImagePullFailed", "{absent:#}");
    ok(&["unstage"]);
    assert_eq!(ok(&["seen"]), before);
}

fn all_of_it_can_be_dropped_again(backend: Backend) {
    let lab = lab(backend);
    let boot = lab.boot();
    without_reboots(&|args| call(&boot, args), &lab.v2.to_string());
    without_reboots(&|args| call(&boot, args), "-");
}

fn the_agent_gets_there(backend: Backend) {
    let lab = lab_of(backend, &PathBuf::from(WORKER).with_file_name("machine-config-agent"));
    let config = serde_json::json!({
        "kind": "MachineConfig", "metadata": {"name": "rendered-worker-b"},
        "spec": {"osImageURL": lab.v2.to_string(), "kernelArguments": ["nosmt", "a=\"b c\""]},
    });
    fs::write(lab.world.control().join("to.json"), config.to_string()).unwrap();
    let to = "/run/sandbox/control/to.json";
    let apply = ["apply", "--yes", "--to", to, "--os-backend", backend.name(), "--reboot-by", "supervisor"];
    let code = |machine: &Machine| {
        let output = machine.agent(&apply).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let first = lab.boot();
    let (ended, text) = code(&first);
    assert_eq!(ended, Some(133), "it wants the reboot: {text}");
    first.shutdown();
    let second = lab.boot();
    let (ended, text) = code(&second);
    assert_eq!(ended, Some(0), "{text}");
    assert!(second.kargs().starts_with("rw console=ttyS0 nosmt a=\"b c\" ostree="), "{}", second.kargs());
    let status = ["status", "--output", "json", "--os-backend", backend.name()];
    let output = second.agent(&status).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["booted"]["backend"], backend.name());
    assert_eq!(status["booted"]["backendBecause"], "set by --os-backend");
    assert_eq!(status["booted"]["image"], lab.v2.to_string(), "{status:#}");
    assert_eq!(status["state"], "Done", "{status:#}");
}

/// The contract on this machine itself, as far as it goes without a reboot: `MCA_OS_CONTRACT=NAME[,IMAGE]`.
///
/// For throwaway machines only: what is staged is dropped.
#[test]
fn real_host() {
    let Ok(asked) = std::env::var("MCA_OS_CONTRACT") else {
        eprintln!("not run: the contract on this machine needs MCA_OS_CONTRACT, and a machine to throw away");
        return;
    };
    let (backend, image) = asked.split_once(',').unwrap_or((&asked, "-"));
    let agent = agent();
    let call = |args: &[&str]| -> Value {
        let words = ["os-call", "--backend", backend];
        let output = Command::new(&agent).args(words).args(args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    without_reboots(&call, image);
}
