//! The contract of every OS backend, against a real sysroot on a machine of the sandbox.
//!
//! Each test boots its own world (`oslab`). Real backends are asked on a throwaway machine that has
//! them: see `real_host` below.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::backend_env::{
    self, Backend, Lab, Machine, WORKER, call, file, lab, lab_of, labels, ok, progress, staged,
};
use crate::ran;
use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::IMAGES;
use serde_json::Value;

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
    /// OST-004, OST-009: the staged deployment has the desired image, by digest, and boots with its arguments (MCD-192).
    #[test]
    update_is_staged_finalized_and_booted;
    #[test]
    unchanged_host_is_observed_once;
    /// CRA-003: an image is not pulled again once pulled or staged.
    #[test]
    nothing_is_pulled_twice;
    #[test]
    arguments_alone_keep_the_booted_image;
    /// Image and arguments are one deployment: the checkout of a second one takes as long as that of the first.
    #[test]
    image_and_arguments_are_one_deployment;
    #[test]
    unstaging_leaves_the_old_system;
    #[test]
    a_locked_deployment_is_not_rebooted_into;
    #[test]
    wrong_images_are_refused_and_nothing_is_staged;
    /// OST-012: the old deployment is kept until it is given up.
    #[test]
    the_rollback_goes_when_it_is_dropped;
    /// The way back: the other deployment boots next, and nothing is dropped.
    #[test]
    falling_back_boots_the_deployment_before;
    /// The same by hand: what the older line has too much goes with the next update, and nothing is there twice.
    #[test]
    arguments_are_exact_from_the_deployment_before;
    #[test]
    all_of_it_can_be_dropped_again;
    /// OST-007: another deployment of an earlier attempt makes room.
    #[test]
    another_pending_deployment_makes_room;
}

fn update_is_staged_finalized_and_booted(backend: Backend) {
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
    assert!(progress(&answer).contains(backend.pulling()), "{answer:#}");
    assert!(progress(&answer).contains("100") || backend != Backend::Ostree, "{answer:#}");
    assert_eq!(answer["ok"]["image"], v2_name, "{answer:#}");
    assert_eq!(answer["ok"]["kargs"], serde_json::json!(["rw", "a=1", "console=tty0", "a=1"]));
    assert_eq!(staged(&first), answer["ok"]);
    ok(&first, &["finalize"]);
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

fn unchanged_host_is_observed_once(backend: Backend) {
    let lab = lab(backend);
    let Lab { world, v2, .. } = &lab;
    let strace = std::process::Command::new("strace").arg("-V").output();
    if strace.is_err() {
        ran::not_run("unchanged_host_is_observed_once", "strace");
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
    // The next process uses the cached observation as well. Only libostree's own backend has to start a worker to observe.
    let looks = |count: usize| count > 0 || backend != Backend::Ostree;
    assert!(looks(count(&["seen", "3"])));
    assert_eq!(count(&["seen", "3"]), 0);
    ok(&boot, &["stage", &v2.to_string()]);
    assert!(looks(count(&["seen", "3"])));
    assert_eq!(count(&["seen", "3"]), 0);
}

/// CRA-003: a staged or pulled image is neither pulled nor staged again.
fn nothing_is_pulled_twice(backend: Backend) {
    let lab = lab(backend);
    let Lab { world, v1, v2, .. } = &lab;
    let boot = lab.boot();
    let name = v2.to_string();
    let first = call(&boot, &["stage", &name]);
    assert!(progress(&first).contains(backend.pulling()), "{first:#}");

    // The source is gone: the next calls can't pull.
    let (images, away) = (world.dir().join("images/index.json"), world.dir().join("images/away"));
    fs::rename(&images, &away).unwrap();
    let inode = || fs::metadata(boot.run_dir().join("ostree/staged-deployment")).unwrap().modified().unwrap();
    let before = inode();
    let again = call(&boot, &["stage", &name]);
    assert_eq!(again["ok"], first["ok"], "{again:#}");
    assert_eq!(inode(), before, "the same deployment is not staged anew");

    // Other arguments: the same image, staged again. A crash between pull and staging is the same case.
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

fn image_and_arguments_are_one_deployment(backend: Backend) {
    let lab = lab(backend);
    let v2 = lab.v2.to_string();
    let boot = lab.boot();
    let made = || {
        let all = lab.world.dir().join("sysroot/ostree/deploy/sandbox/deploy");
        let names = fs::read_dir(all).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".origin")).count()
    };
    assert_eq!(made(), 1);
    let words = ["stage", &v2, "-console=ttyS0", "+a=1", "+b=\"x y\"", "+a=1", "+=odd", "+c"];
    let staged = ok(&boot, &words);
    let kargs = serde_json::json!(["rw", "a=1", "b=\"x y\"", "a=1", "=odd", "c"]);
    assert_eq!(staged["kargs"], kargs);
    assert!(staged["deployment"].as_str().unwrap().ends_with(".0"), "{staged}: staged twice");
    // A staged deployment is removed only at the end of the boot or by a clean-up: a second one would be seen.
    assert_eq!(made(), 2);
    assert_eq!(ok(&boot, &words), staged, "the same once more changes nothing");
    boot.shutdown();
    let kargs = lab.boot().kargs().to_owned();
    assert!(kargs.starts_with("rw a=1 b=\"x y\" a=1 =odd c ostree="), "{kargs}");
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
    ok(&boot, &["finalize"]);
    ok(&boot, &["stage", &v2.to_string()]);
    fs::write(boot.run_dir().join("ostree/staged-deployment-locked"), "").unwrap();
    let answer = call(&boot, &["finalize"]);
    assert_eq!(answer["reason"], "DeploymentLocked", "{answer:#}");
    // Staging the same again unlocks it.
    ok(&boot, &["stage", &v2.to_string()]);
    ok(&boot, &["finalize"]);
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
        // rpm-ostree gives a text; of directories, which it does not know by digest, there is no more to report.
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

fn falling_back_boots_the_deployment_before(backend: Backend) {
    let lab = lab(backend);
    let booted = |machine: &Machine| ok(machine, &["seen"])["deployments"]["booted"]["deployment"].clone();
    let first = lab.boot();
    let (old, gone) = (booted(&first), "sandbox-0000.0");
    let old = old.as_str().unwrap();
    ok(&first, &["stage", &lab.v2.to_string()]);
    fs::write(first.root().join("etc/hostname"), "old\n").unwrap();
    first.shutdown();

    let second = lab.boot();
    let new = booted(&second);
    assert_ne!(new, old);
    fs::write(second.root().join("etc/hostname"), "new\n").unwrap();
    let answer = call(&second, &["fall-back", gone]);
    assert_eq!(answer["reason"], "DeploymentGone", "{answer:#}");
    assert_eq!(ok(&second, &["seen"])["deployments"]["next"], Value::Null);
    // A deployment that an administrator staged would come first.
    ok(&second, &["stage", "-", "+other"]);
    for _ in 0..2 {
        ok(&second, &["fall-back", old]);
        let seen = ok(&second, &["seen"]);
        assert_eq!(seen["deployments"]["next"]["deployment"], old, "{seen:#}");
        assert_eq!(seen["deployments"]["staged"], Value::Null);
    }
    second.shutdown();

    let third = lab.boot();
    assert_eq!(booted(&third), old);
    assert_eq!(fs::read_to_string(third.root().join("etc/hostname")).unwrap(), "old\n");
    // The other one is there, and the way goes both ways.
    ok(&third, &["fall-back", new.as_str().unwrap()]);
    third.shutdown();
    let fourth = lab.boot();
    assert_eq!(booted(&fourth), new);
    assert_eq!(fs::read_to_string(fourth.root().join("etc/hostname")).unwrap(), "new\n");
    // What is finalized, and has not booted, is dropped as what is staged.
    ok(&fourth, &["fall-back", old]);
    ok(&fourth, &["unstage"]);
    assert_eq!(ok(&fourth, &["seen"])["deployments"]["next"], Value::Null);
    fourth.shutdown();
    assert_eq!(booted(&lab.boot()), new);
}

fn arguments_are_exact_from_the_deployment_before(backend: Backend) {
    let lab = lab(backend);
    let first = lab.boot();
    ok(&first, &["stage", &lab.v2.to_string(), "+a=1", "+both=1"]);
    first.shutdown();
    let second = lab.boot();
    assert!(second.kargs().starts_with("rw console=ttyS0 a=1 both=1 ostree="), "{}", second.kargs());
    let older = ok(&second, &["seen"])["deployments"]["booted"]["deployment"].clone();
    ok(&second, &["stage", "-", "-a=1"]);
    second.shutdown();
    let third = lab.boot();
    assert!(third.kargs().starts_with("rw console=ttyS0 both=1 ostree="), "{}", third.kargs());
    ok(&third, &["fall-back", older.as_str().unwrap()]);
    third.shutdown();
    let fourth = lab.boot();
    assert!(fourth.kargs().starts_with("rw console=ttyS0 a=1 both=1 ostree="), "{}", fourth.kargs());
    let staged = ok(&fourth, &["stage", "-", "-a=1", "+c=1"]);
    assert_eq!(staged["kargs"], serde_json::json!(["rw", "console=ttyS0", "both=1", "c=1"]));
    fourth.shutdown();
    let fifth = lab.boot();
    assert!(fifth.kargs().starts_with("rw console=ttyS0 both=1 c=1 ostree="), "{}", fifth.kargs());
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

#[test]
fn boot_outlives_its_processes_and_ends_with_them_inside() {
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
    let desired = ["stage", image, "+mca.contract=1", "+mca.contract=\"a b\"", "+mca.contract=1"];
    let staged = ok(&desired);
    assert_eq!(ok(&["seen"])["deployments"]["staged"], staged);
    let kargs: Vec<_> = staged["kargs"].as_array().unwrap().iter().rev().take(3).rev().cloned().collect();
    assert_eq!(kargs, ["mca.contract=1", "mca.contract=\"a b\"", "mca.contract=1"]);
    let expected = if image == "-" { &before["deployments"]["booted"]["image"] } else { &Value::from(image) };
    assert_eq!(staged["image"], *expected);
    let again = call(&desired);
    assert_eq!(again["ok"], staged, "{again:#}");
    assert!(!progress(&again).contains("Fetching") && !progress(&again).contains("pulling"), "{again:#}");
    let line = ok(&["stage", image, "+mca.contract=2"]);
    assert_eq!(line["kargs"].as_array().unwrap().last(), Some(&Value::from("mca.contract=2")), "{line:#}");
    ok(&["finalize"]);
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

/// The agent itself applies a config to a host, over a reboot. Not with bootc: the sandbox's image has none at the path
/// that the agent uses.
#[test]
fn agent_converges_with_libostree() {
    agent_reaches_done(Backend::Ostree);
}

/// OST-001: the same by way of the daemon.
#[test]
fn agent_converges_with_rpm_ostree() {
    agent_reaches_done(Backend::RpmOstree);
}

fn agent_reaches_done(backend: Backend) {
    let lab = lab_of(backend, &|_| Path::new(WORKER).with_file_name("machine-config-agent"));
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

/// Issue 33: a person drops the staged deployment before the reboot (`ostree admin undeploy`). It is staged again, and boots.
#[test]
fn undeployed_update_is_staged_again_with_libostree() {
    undeployed_update_is_staged_again(Backend::Ostree);
}

/// The same by way of the daemon, as after `rpm-ostree cleanup -p`.
#[test]
fn undeployed_update_is_staged_again_with_rpm_ostree() {
    undeployed_update_is_staged_again(Backend::RpmOstree);
}

fn undeployed_update_is_staged_again(backend: Backend) {
    let lab = lab_of(backend, &|_| Path::new(WORKER).with_file_name("machine-config-agent"));
    let config = serde_json::json!({
        "kind": "MachineConfig", "metadata": {"name": "rendered-worker-b"},
        "spec": {"osImageURL": lab.v2.to_string()},
    });
    fs::write(lab.world.control().join("to.json"), config.to_string()).unwrap();
    let to = "/run/sandbox/control/to.json";
    let apply = ["apply", "--yes", "--to", to, "--os-backend", backend.name(), "--reboot-by", "supervisor"];
    let run = |machine: &Machine, words: &[&str]| {
        let output = machine.agent(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text, output.stdout)
    };
    let staged = |machine: &Machine| {
        let (_, text, status) = run(machine, &["status", "--output", "json", "--os-backend", backend.name()]);
        let status: Value = serde_json::from_slice(&status).unwrap_or_else(|e| panic!("{e}: {text}"));
        status["staged"].clone()
    };
    let first = lab.boot();
    let (ended, text, _) = run(&first, &apply);
    assert_eq!(ended, Some(133), "it wants the reboot: {text}");
    assert_eq!(staged(&first), lab.v2.to_string());
    // All that `undeploy` of a staged deployment does first; the tool itself may not mount /sysroot anew in this container.
    let undeploy = ["/run/host/usr/bin/rm", "/run/ostree/staged-deployment"];
    let undeployed = first.command(undeploy).output().unwrap();
    assert!(undeployed.status.success(), "{}", String::from_utf8_lossy(&undeployed.stderr));
    assert_eq!(staged(&first), Value::Null);
    let (ended, text, _) = run(&first, &apply);
    assert_eq!(ended, Some(133), "it wants the reboot: {text}");
    assert!(text.contains("staging again"), "{text}");
    assert_eq!(staged(&first), lab.v2.to_string());
    first.shutdown();
    let second = lab.boot();
    let (ended, text, _) = run(&second, &apply);
    assert_eq!(ended, Some(0), "{text}");
}

/// The contract on this machine itself, as far as it goes without a reboot: `MCA_OS_CONTRACT=NAME[,IMAGE]`.
///
/// For throwaway machines only: the staged deployment is dropped.
#[test]
fn real_host() {
    let Ok(asked) = std::env::var("MCA_OS_CONTRACT") else {
        ran::not_run("real_host", "MCA_OS_CONTRACT and a machine to throw away");
        return;
    };
    let (backend, image) = asked.split_once(',').unwrap_or((&asked, "-"));
    let dir = tempfile::tempdir().unwrap();
    let agent = backend_env::agent(dir.path());
    let call = |args: &[&str]| -> Value {
        let words = ["os-call", "--backend", backend];
        let output = Command::new(&agent).args(words).args(args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    without_reboots(&call, image);
}
