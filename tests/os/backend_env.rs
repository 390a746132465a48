//! A world of one OS backend, its boots, and the calls that are made inside: by the agent's own executable (`os-call`).
//!
//! For rpm-ostree a bus runs inside, and a double of its daemon that works on the real sysroot (`doubles/rpm_ostreed`);
//! for bootc a double of systemd (`doubles/systemd`), which runs one of bootc (`doubles/bootc`).

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{Booted, LayerFile, SandboxHost};
use serde_json::Value;

pub const WORKER: &str = env!("CARGO_BIN_EXE_machine-config-agent-ostree");

/// The backends that keep the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Ostree,
    RpmOstree,
    Bootc,
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ostree => "ostree",
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
        }
    }

    /// Its output while it pulls: of several lines in between any may be left out, so the layer does not matter.
    pub fn pulling(self) -> &'static str {
        match self {
            Self::Ostree | Self::Bootc => "pulling layer ",
            Self::RpmOstree => "] Fetching ostree chunk",
        }
    }
}

/// An example, which cargo builds beside the agent.
///
/// `cargo test` builds it; `cargo test --test os_contract` does not: then `cargo build --examples` comes first.
fn example(name: &str) -> PathBuf {
    Path::new(WORKER).with_file_name("examples").join(name)
}

/// Puts the example `os-call` into a directory: it plays the agent's executable inside.
pub fn agent(dir: &Path) -> PathBuf {
    let agent = dir.join("os-call");
    put(&example("os-call"), &agent);
    // It expects the worker beside itself.
    symlink(WORKER, dir.join("machine-config-agent-ostree")).unwrap();
    agent
}

/// Copies a program elsewhere, not by a symbolic link: a program that searches beside itself has to search there.
fn put(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

pub fn labels(config: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("machineconfig".to_owned(), config.to_owned())])
}

pub fn file(path: &str, text: &str) -> LayerFile {
    LayerFile { path: path.to_owned(), mode: 0o644, contents: text.into() }
}

/// A world with v1 (config a) deployed and v2 (config b) built.
pub struct Lab {
    // The directory is removed with it.
    _dir: tempfile::TempDir,
    pub world: SandboxHost,
    pub agent: PathBuf,
    backend: Backend,
    pub v1: ImageRef,
    pub v2: ImageRef,
}

pub fn lab(backend: Backend) -> Lab {
    lab_of(backend, &agent)
}

/// A lab in which this executable is the agent; it may be put into the lab's directory.
pub fn lab_of(backend: Backend, agent: &dyn Fn(&Path) -> PathBuf) -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(dir.path());
    let world = SandboxHost::create(&dir.path().join("world"), &agent, &labels("rendered-worker-a"), &|_| {})
        .unwrap();
    let v1 = world.image("v1").unwrap();
    let config = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-worker-b"}}"#;
    let files = [file("etc/motd", "version 2\n"), file("etc/machine-config-daemon/currentconfig", config)];
    let v2 = world.derive(&v1, "v2", &files, &labels("rendered-worker-b")).unwrap();
    Lab { _dir: dir, world, agent, backend, v1, v2 }
}

impl Lab {
    /// Boots, with the programs that the backend asks.
    pub fn boot(&self) -> Machine {
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
pub struct Machine {
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
    pub fn shutdown(self) {
        self.booted.shutdown().unwrap();
    }

    pub fn power_cut(self) {
        self.booted.power_cut().unwrap();
    }

    /// Prepares a call.
    pub fn os_call(&self, args: &[&str]) -> Command {
        let call = ["os-call", "--backend", self.backend.name()];
        let words: Vec<&str> = call.iter().chain(args).copied().collect();
        self.agent(&words)
    }

    /// Prepares a run of the agent. A daemon comes up for it and goes with it, as one that the bus starts when it is
    /// asked.
    pub fn agent(&self, args: &[&str]) -> Command {
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
pub fn doubles(booted: &Booted, names: &[&str], service: &str) {
    let run = booted.run_dir();
    fs::create_dir_all(run.join("dbus")).unwrap();
    fs::create_dir_all(run.join("doubles")).unwrap();
    for name in names {
        put(&example(name), &run.join("doubles").join(name));
    }
    let worker = "machine-config-agent-ostree";
    symlink(format!("/run/host/bin/{worker}"), run.join("doubles").join(worker)).unwrap();
    let address = "unix:path=/run/dbus/system_bus_socket";
    let config = format!(
        "<busconfig><listen>{address}</listen><auth>EXTERNAL</auth><policy context='default'>\
         <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>"
    );
    fs::write(run.join("doubles/bus.conf"), config).unwrap();
    // Each prints a line when it is ready.
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

pub fn call(machine: &Machine, args: &[&str]) -> Value {
    let output = machine.os_call(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

pub fn ok(machine: &Machine, args: &[&str]) -> Value {
    let answer = call(machine, args);
    assert!(answer.get("error").is_none(), "{args:?}: {answer:#}");
    answer["ok"].clone()
}

pub fn staged(machine: &Machine) -> Value {
    ok(machine, &["seen"])["deployments"]["staged"].clone()
}

/// The texts of the progress lines: they show whether something was pulled.
pub fn progress(answer: &Value) -> String {
    answer["progress"].to_string()
}
