//! Fields of the OS over rpm-ostree, which layers packages: a double of its daemon on a real bus keeps the deployments, and tells
//! what each of them has. Extensions and kernels are applied here, while libostree alone refuses them (`os`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use machine_config_agent::model::Contents;
use serde_json::{Value, json};

use super::draw::one;
use super::refusals;
use crate::sweep;
use crate::sweep::host::{AGENT, REBOOT};
use crate::sweep::play::Chance;

const WORKER: &str = env!("CARGO_BIN_EXE_machine-config-agent-ostree");
const OWN: &str = "rw console=ttyS0";
/// Extensions, each with one of its packages.
const EXTENSIONS: [(&str, &str); 3] =
    [("usbguard", "usbguard"), ("sandboxed-containers", "kata-containers"), ("ipsec", "libreswan")];
const ARGUMENTS: [&str; 3] = ["nosmt", "a=1", "b=\"x y\""];
const MOST_BOOTS: usize = 4;

/// A host in a directory, with a bus and the daemon.
struct Machine<'a> {
    dir: &'a Path,
    boots: u32,
    bus: Child,
    daemon: Child,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.bus] {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts a program and waits until it prints a line.
fn started(command: &mut Command) -> std::io::Result<Child> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line)?;
    assert!(!line.is_empty(), "{command:?} ended at once");
    Ok(child)
}

fn address(dir: &Path) -> String {
    format!("unix:path={}", dir.join("root/run/dbus/system_bus_socket").display())
}

fn daemon(dir: &Path, deployments: &Value) -> Child {
    let program = Path::new(WORKER).with_file_name("examples").join("rpm-ostreed");
    let mut command = Command::new(program);
    command.args(["--bus", &address(dir), "--deployments", &deployments.to_string()]);
    started(command.arg("--root").arg(dir.join("root"))).unwrap()
}

impl<'a> Machine<'a> {
    fn new(dir: &'a Path) -> std::io::Result<Self> {
        let root = dir.join("root");
        for below in ["etc", "run/dbus", "proc/sys/kernel/random", "proc/sys/crypto", "usr/lib", "var/lib"] {
            fs::create_dir_all(root.join(below))?;
        }
        let database = |name: &str, text: &str| fs::write(root.join("etc").join(name), text);
        database("passwd", "root:x:0:0::/root:/bin/sh\n")?;
        database("group", "root:x:0:\n")?;
        fs::write(root.join("proc/sys/crypto/fips_enabled"), "0\n")?;
        // Where a config names no image of packages, they come from a repository of the host's.
        fs::create_dir_all(root.join("etc/yum.repos.d"))?;
        fs::write(root.join("etc/yum.repos.d/own.repo"), "[own]\n")?;
        let config = format!(
            "<busconfig><listen>{}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>",
            address(dir)
        );
        fs::write(dir.join("bus.conf"), config)?;
        let mut bus = Command::new("dbus-daemon");
        let flag = format!("--config-file={}", dir.join("bus.conf").display());
        let bus = started(bus.args(["--nofork", "--print-address", &flag]).stderr(Stdio::null()))?;
        let image = format!("r.test/os@sha256:{}", "1".repeat(64));
        let first = json!({"checksum": "1".repeat(64), "booted": true, "kargs": OWN,
            "reference": format!("ostree-unverified-registry:{image}"), "digest": format!("sha256:{}", "1".repeat(64))});
        let daemon = daemon(dir, &json!([first]));
        let mut machine = Self { dir, boots: 0, bus, daemon };
        machine.boot(OWN);
        Ok(machine)
    }

    fn boot(&mut self, line: &str) {
        self.boots += 1;
        let root = self.dir.join("root");
        let id = format!("00000000-0000-4000-8000-{:012}\n", self.boots);
        fs::write(root.join("proc/sys/kernel/random/boot_id"), id).unwrap();
        fs::write(root.join("proc/cmdline"), format!("{line}\n")).unwrap();
    }

    /// Returns the deployments, the next boot's first.
    fn deployments(&self) -> Value {
        let flag = format!("--address={}", address(self.dir));
        let name = "org.projectatomic.rpmostree1";
        let words = ["--json=short", "call", name, "/double", "double.Control", "Deployments"];
        let output = Command::new("busctl").arg(flag).args(words).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        serde_json::from_str(answer["data"][0].as_str().unwrap()).unwrap()
    }

    fn booted(&self) -> Value {
        let all = self.deployments();
        all.as_array().unwrap().iter().find(|one| one["booted"] == true).unwrap().clone()
    }

    /// Boots the first deployment, as libostree finalized it.
    fn reboot(&mut self) {
        let all = self.deployments();
        self.boot_first_of(all);
    }

    /// Boots the previous deployment, as `rpm-ostree rollback` and a reboot do it; false where there is none.
    fn roll_back(&mut self) -> bool {
        let mut all = self.deployments();
        let list = all.as_array_mut().unwrap();
        let Some(previous) = list.iter().position(|one| one["booted"] != true) else { return false };
        let one = list.remove(previous);
        list.insert(0, one);
        self.boot_first_of(all);
        true
    }

    fn boot_first_of(&mut self, mut all: Value) {
        for (place, one) in all.as_array_mut().unwrap().iter_mut().enumerate() {
            one["booted"] = json!(place == 0);
            one["staged"] = json!(false);
        }
        let line = all[0]["kargs"].as_str().unwrap().to_owned();
        drop(self.daemon.kill());
        drop(self.daemon.wait());
        drop(fs::remove_dir_all(self.dir.join("root/run/ostree")));
        self.daemon = daemon(self.dir, &all);
        self.boot(&line);
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(AGENT);
        command.arg(words[0]).arg("--root").arg(self.dir.join("root")).args(["--os-backend", "rpm-ostree"]);
        for name in ["JOURNAL_STREAM", "NOTIFY_SOCKET", "MCA_FAIL_POINT"] {
            command.env_remove(name);
        }
        let output = command.args(&words[1..]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    fn apply(&mut self, to: &str) -> (i32, String, String) {
        for _ in 0..MOST_BOOTS {
            let ran = self.run(&["apply", "--yes", "--reboot-by", "supervisor", "--to", to]);
            if ran.0 != REBOOT {
                return ran;
            }
            self.reboot();
        }
        panic!("reboots without end")
    }
}

/// An image of packages, as a directory of the host.
fn packages(dir: &Path) -> String {
    let (tree, blobs) = (dir.join("tree"), dir.join("root/srv/packages/blobs/sha256"));
    let repodata = tree.join("usr/share/rpm-ostree/extensions/repodata");
    fs::create_dir_all(&repodata).unwrap();
    fs::create_dir_all(&blobs).unwrap();
    fs::write(repodata.join("repomd.xml"), "<repomd/>").unwrap();
    let layer = dir.join("layer");
    let made = Command::new("tar").arg("-cf").arg(&layer).arg("-C").arg(&tree).arg("usr").status().unwrap();
    assert!(made.success());
    let put = |bytes: Vec<u8>| {
        let digest = Contents::new(bytes.clone()).sha256();
        fs::write(blobs.join(digest.to_string()), bytes).unwrap();
        digest
    };
    let layer = put(fs::read(layer).unwrap());
    let manifest = put(json!({"layers": [{"digest": format!("sha256:{layer}")}]}).to_string().into_bytes());
    format!("oci:/srv/packages@sha256:{manifest}")
}

/// The OS of a config.
#[derive(Debug)]
struct Drawn {
    arguments: Vec<&'static str>,
    extensions: Vec<(&'static str, &'static str)>,
    kernel: Option<&'static str>,
    has_source: bool,
    motd: &'static str,
}

impl Drawn {
    fn new(chance: &mut Chance) -> Self {
        Self {
            arguments: ARGUMENTS.into_iter().filter(|_| chance.draw(3) == 1).collect(),
            extensions: EXTENSIONS.into_iter().filter(|_| chance.draw(3) == 1).collect(),
            kernel: one(chance, &[None, None, Some("default"), Some("realtime"), Some("64k-pages")]),
            has_source: chance.draw(6) > 1,
            motd: one(chance, &["one", "two"]),
        }
    }

    fn document(&self, name: &str, packages: &str) -> Value {
        let file = json!({"path": "/etc/motd", "overwrite": true, "contents": {"source": format!("data:,{}", self.motd)}});
        let names: Vec<&str> = self.extensions.iter().map(|(name, _)| *name).collect();
        let mut spec = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}},
            "kernelArguments": self.arguments, "extensions": names});
        if let Some(kernel) = self.kernel {
            spec["kernelType"] = json!(kernel);
        }
        if self.has_source {
            spec["baseOSExtensionsContainerImage"] = json!(packages);
        }
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name}, "spec": spec})
    }
}

#[derive(Debug, Default)]
struct Counts {
    rolled_back: u32,
    left_over: u32,
    left_packages: u32,
    refused: u32,
    extensions: u32,
    kernels: u32,
    arguments: u32,
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// Compares a deployment with the config.
fn confirm(booted: &Value, drawn: &Drawn, counts: &mut Counts) -> Result<(), String> {
    let (requested, removed) = (names(&booted["packages"]), names(&booted["removals"]));
    for (extension, package) in EXTENSIONS {
        let is_drawn = drawn.extensions.iter().any(|(name, _)| *name == extension);
        counts.extensions += u32::from(is_drawn);
        if requested.contains(package) != is_drawn {
            return Err(format!("{package}: {requested:?}"));
        }
    }
    let kernels = [("realtime", "kernel-rt-core"), ("64k-pages", "kernel-64k-core")];
    for (kernel, package) in kernels {
        let is_drawn = drawn.kernel == Some(kernel);
        counts.kernels += u32::from(is_drawn);
        if requested.contains(package) != is_drawn {
            return Err(format!("{package}: {requested:?}"));
        }
    }
    let is_other = kernels.iter().any(|(kernel, _)| drawn.kernel == Some(kernel));
    if removed.contains("kernel-core") != is_other {
        return Err(format!("kernel-core: {removed:?}"));
    }
    counts.arguments += u32::try_from(drawn.arguments.len()).unwrap();
    let line = booted["kargs"].as_str().unwrap();
    let expected = [&[OWN], &drawn.arguments[..]].concat().join(" ");
    if sorted(line) == sorted(&expected) { Ok(()) } else { Err(format!("{line}, not {expected}")) }
}

fn sorted(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.sort_unstable();
    words
}

fn play(
    machine: &mut Machine<'_>,
    name: &str,
    (drawn, document): (&Drawn, &Value),
    counts: &mut Counts,
) -> Result<(), String> {
    let file = machine.dir.join(format!("{name}.json"));
    fs::write(&file, document.to_string()).unwrap();
    let to = file.to_str().unwrap();
    let before = machine.deployments();
    let (code, out, err) = machine.run(&["plan", "--output", "json", "--to", to]);
    let plan: Value = serde_json::from_str(&out).map_err(|_| format!("no JSON: {code} {out}{err}"))?;
    let refusals = refusals(&plan);
    let ran = machine.apply(to);
    if ran.0 != code || (code != 0 && code != 3) {
        return Err(format!("planned with {code}, but apply ended with {}: {out}{}", ran.0, ran.2));
    }
    if code == 3 {
        counts.refused += 1;
        let is_known = |field: &str| ["spec.extensions", "spec.kernelType"].contains(&field);
        if refusals.is_empty() || !refusals.iter().all(|(field, _)| is_known(field)) {
            return Err(format!("refused for {refusals:?}"));
        }
        return if machine.deployments() == before { Ok(()) } else { Err("refused, and touched".to_owned()) };
    }
    confirm(&machine.booted(), drawn, counts)?;
    let motd = fs::read_to_string(machine.dir.join("root/etc/motd")).unwrap();
    if motd != drawn.motd || plan["notApplied"] != json!([]) {
        return Err(format!("{motd}, not applied: {}", plan["notApplied"]));
    }
    let (code, out, err) = machine.run(&["verify"]);
    if code == 0 { Ok(()) } else { Err(format!("verify finds a difference: {out}{err}")) }
}

/// Boots the previous deployment: what it has on its line of an earlier config is a left-over, until the next config is applied.
fn roll_back(machine: &mut Machine<'_>, drawn: &Drawn, counts: &mut Counts) -> Result<(), String> {
    let current = machine.booted();
    if !machine.roll_back() {
        return Ok(());
    }
    counts.rolled_back += 1;
    let previous = machine.booted();
    let line = previous["kargs"].as_str().unwrap();
    let own = |argument: &&str| !drawn.arguments.contains(argument);
    let left: Vec<&str> = ARGUMENTS.into_iter().filter(own).filter(|one| line.contains(one)).collect();
    let (code, out, err) = machine.run(&["verify"]);
    if code > 1 || (code == 0 && sorted(line) != sorted(current["kargs"].as_str().unwrap())) {
        return Err(format!("booted {previous}, not {current}: verify ends with {code}: {out}{err}"));
    }
    let differ = names(&previous["packages"]) != names(&current["packages"]);
    if code == 0 && differ {
        return Err(format!("booted {previous}, not {current}: verify finds nothing"));
    }
    let (before, now) = (names(&previous["packages"]), names(&current["packages"]));
    let packages: Vec<&&str> = before.difference(&now).collect();
    let is_named_package = |package: &&&str| {
        out.lines().any(|line| line.contains(&format!("package {package} ")) && line.contains("a left-over"))
    };
    if let Some(package) = packages.iter().find(|package| !is_named_package(package)) {
        return Err(format!("{package} is not named as a left-over: {out}{err}"));
    }
    counts.left_over += u32::try_from(left.len()).unwrap();
    counts.left_packages += u32::try_from(packages.len()).unwrap();
    let is_named = |argument: &&&str| {
        out.lines().any(|line| {
            line.contains(&format!("kernel argument {argument} ")) && line.contains("a left-over")
        })
    };
    match left.iter().find(|argument| !is_named(argument)) {
        Some(argument) => Err(format!("{argument} is not named as a left-over: {out}{err}")),
        None => Ok(()),
    }
}

/// Extensions, kernels and kernel arguments: each is applied or refused, and rpm-ostree's own deployments confirm it. `OS_CONFIGS` and
/// `MODEL_SEED` set length and seed.
#[test]
fn every_layer_is_applied_or_refused() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut machine = match Machine::new(home.path()) {
        Ok(machine) => machine,
        Err(why) if std::env::var_os("CI").is_none() => {
            return crate::ran::not_run("every_layer_is_applied_or_refused", &why.to_string());
        }
        Err(why) => panic!("no bus runs here: {why}"),
    };
    let source = packages(home.path());
    let mut chance = Chance(number("MODEL_SEED", 1));
    let mut counts = Counts::default();
    let (mut course, mut current) = (Vec::new(), None);
    for at in 0..number("OS_CONFIGS", 18) {
        let (drawn, name) = (Drawn::new(&mut chance), format!("config-{at}"));
        let document = drawn.document(&name, &source);
        course.push(document.to_string());
        let refused = counts.refused;
        if let Err(why) = play(&mut machine, &name, (&drawn, &document), &mut counts) {
            panic!("{counts:?}: {why}\nthe configs so far:\n{}", course.join("\n"));
        }
        if counts.refused == refused {
            current = Some(drawn);
        }
        if let Some(drawn) = current.as_ref().filter(|_| chance.draw(4) == 1) {
            course.push("roll back by hand".to_owned());
            if let Err(why) = roll_back(&mut machine, drawn, &mut counts) {
                panic!("{counts:?}: {why}\nthe configs so far:\n{}", course.join("\n"));
            }
        }
    }
    assert!(counts.extensions > 0 && counts.kernels > 0 && counts.arguments > 0, "{counts:?}");
    assert!(counts.rolled_back > 0 && counts.left_over > 0 && counts.left_packages > 0, "{counts:?}");
}
