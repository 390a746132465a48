//! `seed create` that is killed inside a long step: while the worker fetches or archives, and while skopeo pushes. The verb and the
//! daemon restore the host.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use machine_config_agent::host::Root;
use machine_config_agent::host::watch::Watch;
use machine_config_agent::sandbox::CONTROL;
use rustix::fs::{FileType, Mode};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::backend_env::{Lab, Machine};
use crate::seed::{OWN, as_it_was, boot, command, host, host_of, put, ran, states};
use crate::stateroot::{running, unchanged};

/// Far more than any of these waits takes; a test that reaches it has failed.
const LIMIT: Duration = Duration::from_secs(120);

/// Size of a file that no disk has: archiving its zeros takes longer than the way of a signal.
pub const LARGE_BYTES: u64 = 7 << 30;

/// The layer in the making, in the agent's directory.
pub const LAYER: &str = "machine-config-agent-seed/layer.tar";

/// A process of the agent in a boot.
pub struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    /// Its verb, and a word that no other process has.
    verb: &'static str,
    mark: String,
}

impl Running {
    pub fn start(mut command: Command, verb: &'static str, mark: &str) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log, verb, mark: mark.to_owned() }
    }

    fn create(boot: &Machine, image: &str, more: &[&str]) -> Self {
        let args = ["create", "--image", image, "--version", "1", "--yes"];
        Self::start(command(boot, &[&args[..], more].concat()), "seed", image)
    }

    /// Reads the log until a line has these words.
    pub fn wait_line(&mut self, words: &str) {
        let mut seen = String::new();
        while !seen.contains(words) {
            let read = self.log.read_line(&mut seen).unwrap();
            assert!(read > 0, "no {words:?} in {seen}");
        }
    }

    /// Kills the agent itself, not what it was started by.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        // What it started may hold the pipe: it is not waited for.
        drop(self.log);
        assert!(!self.child.wait().unwrap().success());
    }

    /// Stops the agent as systemd does, and waits for its end.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }

    /// Stops the agent, and returns what it has logged since the last line that was waited for.
    pub fn stop_and_read(mut self) -> String {
        self.signal(Signal::TERM);
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }

    /// Waits for its end by itself.
    pub fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn signal(&self, signal: Signal) {
        let is_it = |directory: &Path| {
            let line = fs::read(directory.join("cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let (is_agent, has_verb) = (
                words[0].ends_with("machine-config-agent"),
                words.get(1).is_some_and(|word| word == self.verb),
            );
            is_agent && has_verb && words.iter().any(|word| *word == self.mark)
        };
        let parent = |directory: &Path| {
            let line = fs::read_to_string(directory.join("stat")).unwrap_or_default();
            line.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok())
        };
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let found = entries.filter(|path| is_it(path));
        let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse::<i32>().unwrap();
        let found: Vec<_> = found.map(|path| (number(&path), parent(&path))).collect();
        // A process that it starts has its words until it is another program.
        let is_child = |(_, parent): &&(i32, Option<i32>)| found.iter().any(|(one, _)| Some(*one) == *parent);
        let first: Vec<_> = found.iter().filter(|one| !is_child(one)).collect();
        let [(number, _)] = first[..] else { panic!("{}: {found:?}", self.mark) };
        let number = *number;
        rustix::process::kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
    }
}

/// The step that the record on the disk names.
fn step(lab: &Lab) -> String {
    let record: Value =
        serde_json::from_slice(&fs::read(host(lab, "var/lib/machine-config-agent/seed.json")).unwrap())
            .unwrap();
    record["step"].as_str().unwrap().to_owned()
}

/// Waits until a file in the agent's directory of the host has bytes.
fn wait_bytes(lab: &Lab, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(bytes_in(lab, name));
}

pub async fn bytes_in(lab: &Lab, name: &str) {
    let state = host(lab, "var/lib/machine-config-agent");
    let mut watch = Watch::new(&Root::open(&state).unwrap(), [&*format!("/{name}")], []).unwrap();
    while fs::metadata(state.join(name)).map_or(0, |found| found.len()) == 0 {
        tokio::time::timeout(LIMIT, watch.changed()).await.unwrap().unwrap();
    }
}

/// The host as it was before.
type Before = [BTreeMap<String, String>];

/// A name that no other process has: tests run side by side.
pub fn node_name() -> String {
    static DAEMONS: AtomicU32 = AtomicU32::new(0);
    format!("seed-cut-{}-{}", std::process::id(), DAEMONS.fetch_add(1, Ordering::Relaxed))
}

/// Has the daemon restore the host, as at its start. It goes on with its own work: its files are not compared.
fn daemon_restores(_: &Lab, boot: &Machine, _: &Before) {
    let mut daemon = daemon(boot);
    daemon.wait_line("Restored the host after an interrupted seed");
    daemon.kill();
}

fn daemon(boot: &Machine) -> Running {
    let node = node_name();
    let daemon = [
        "bash",
        "/run/doubles/with",
        "machine-config-agent",
        "daemon",
        "--directory",
        CONTROL,
        "--node-name",
        &node,
    ];
    let rest = ["--os-backend", "ostree", "--reboot-by", "supervisor", "--log-format", "json"];
    Running::start(boot.command(daemon.iter().chain(&rest)), "daemon", &node)
}

fn verb_restores(lab: &Lab, boot: &Machine, before: &Before) {
    let run = ran(command(boot, &["restore"]));
    assert!(run.code == 0 && run.out.contains("The host is restored"), "{run:?}");
    unchanged(lab, before, "after `seed restore`");
}

/// A change of one name in a directory, which is taken back with the time of the directory.
pub struct Aside {
    path: PathBuf,
    original: Option<PathBuf>,
    modified: SystemTime,
}

impl Aside {
    /// Puts a pipe in the place of a file: who opens it stands still.
    fn pipe(path: PathBuf) -> Self {
        let mut made = Self::new(path);
        let aside = made.path.with_extension("aside");
        fs::rename(&made.path, &aside).unwrap();
        made.original = Some(aside);
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &made.path, FileType::Fifo, mode, 0).unwrap();
        made
    }

    /// Makes a file that takes no room.
    pub fn sparse(path: PathBuf, bytes: u64) -> Self {
        let made = Self::new(path);
        File::create_new(&made.path).unwrap().set_len(bytes).unwrap();
        made
    }

    fn new(path: PathBuf) -> Self {
        let modified = fs::metadata(path.parent().unwrap()).unwrap().modified().unwrap();
        Self { path, original: None, modified }
    }

    /// Waits until somebody opens the pipe to read it.
    fn opened(&self) -> File {
        let (path, (sender, opened)) = (self.path.clone(), channel());
        // It ends with the reader's open, or with the test.
        std::thread::spawn(move || sender.send(OpenOptions::new().write(true).open(path)));
        opened.recv_timeout(LIMIT).unwrap().unwrap()
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        match &self.original {
            Some(original) => fs::rename(original, &self.path).unwrap(),
            None => fs::remove_file(&self.path).unwrap(),
        }
        File::open(self.path.parent().unwrap()).unwrap().set_modified(self.modified).unwrap();
    }
}

/// The first layer of the booted image.
fn base_layer(lab: &Lab) -> PathBuf {
    let blobs = lab.world.dir().join("images/blobs/sha256");
    let manifest = fs::read(blobs.join(lab.v1.digest().to_string())).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    blobs.join(manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap())
}

/// What libostree says of the running deployment, in its file.
fn origin(lab: &Lab) -> PathBuf {
    let mut path = host(lab, "etc").parent().unwrap().to_owned().into_os_string();
    path.push(".origin");
    path.into()
}

/// Waits until somebody connects.
fn connected(listener: TcpListener) -> TcpStream {
    let (sender, accepted) = channel();
    // It ends with the connection, or with the test.
    std::thread::spawn(move || sender.send(listener.accept()));
    accepted.recv_timeout(LIMIT).unwrap().unwrap().0
}

const ACTIVE: [&str; 2] = ["active", "active"];
pub const INACTIVE: [&str; 2] = ["inactive", "inactive"];

/// Killed while the booted image is fetched: no service was stopped yet.
#[test]
fn create_killed_while_it_fetches_is_restored() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let before = running(&lab);
    for restore in [verb_restores, daemon_restores] {
        let layer = Aside::pipe(base_layer(&lab));
        let create = Running::create(&boot, "registry.test/cut-fetch:1", &["--form", "bootc"]);
        let reader = layer.opened();
        assert_eq!((&*step(&lab), states(&boot)), ("fetch-base", ACTIVE.map(str::to_owned)));
        create.kill();
        assert!(host(&lab, OWN).exists());
        drop((reader, layer));
        restore(&lab, &boot, &before);
        as_it_was(&lab, &boot, "after a fetch");
    }
}

/// Killed while the worker archives `/var`: services are stopped, and a part of the archive is there.
#[test]
fn create_killed_while_it_archives_is_restored() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let before = running(&lab);
    for restore in [verb_restores, daemon_restores] {
        let large = Aside::sparse(host(&lab, "var/lib/large"), LARGE_BYTES);
        let create = Running::create(&boot, "registry.test/cut-archive:1", &[]);
        wait_bytes(&lab, LAYER);
        assert_eq!((&*step(&lab), states(&boot)), ("archive-host", INACTIVE.map(str::to_owned)));
        create.kill();
        drop(large);
        restore(&lab, &boot, &before);
        as_it_was(&lab, &boot, "after an archive");
    }
}

/// Killed while the worker puts the image together.
#[test]
fn create_killed_while_it_assembles_is_restored() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let before = running(&lab);
    for restore in [verb_restores, daemon_restores] {
        let large = Aside::sparse(host(&lab, "var/lib/large"), LARGE_BYTES / 28);
        let create = Running::create(&boot, "registry.test/cut-assemble:1", &[]);
        // The worker that archives has read all that libostree has: the pipe is there for the next one.
        wait_bytes(&lab, LAYER);
        let origin = Aside::pipe(origin(&lab));
        let reader = origin.opened();
        assert_eq!((&*step(&lab), states(&boot)), ("assemble-image", ACTIVE.map(str::to_owned)));
        create.kill();
        drop((reader, origin, large));
        restore(&lab, &boot, &before);
        as_it_was(&lab, &boot, "after an assembly");
    }
}

/// Killed while skopeo pushes to a registry that does not answer. What skopeo does then finds no image.
#[test]
fn create_killed_while_it_pushes_is_restored() {
    let lab = host_of("A");
    let boot = boot(&lab);
    for restore in [verb_restores, daemon_restores] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let trusted = format!("[[registry]]\nlocation = \"{address}\"\ninsecure = true\n");
        put(&lab, "etc/containers/registries.conf", &trusted);
        let before = running(&lab);
        let create = Running::create(&boot, &format!("{address}/seed:1"), &["--push"]);
        let registry = connected(listener);
        assert_eq!((&*step(&lab), states(&boot)), ("push-image", ACTIVE.map(str::to_owned)));
        create.kill();
        restore(&lab, &boot, &before);
        as_it_was(&lab, &boot, "after a push");
        drop(registry);
    }
}

/// A service that does not start at the start of the daemon: the others do, the report says so, and it is tried again.
#[test]
fn service_that_does_not_start_is_reported_and_tried_again() {
    let lab = host_of("A");
    let boot = boot(&lab);
    let large = Aside::sparse(host(&lab, "var/lib/large"), LARGE_BYTES);
    let create = Running::create(&boot, "registry.test/cut-start:1", &[]);
    wait_bytes(&lab, LAYER);
    create.kill();
    drop(large);
    assert_eq!(states(&boot), INACTIVE.map(str::to_owned));
    let refused = boot.run_dir().join("units/crio.service.refused");
    fs::write(&refused, "").unwrap();
    let mut daemon = daemon(&boot);
    daemon.wait_line("Failed to restore the host after an interrupted seed");
    assert_eq!(states(&boot), ["active", "inactive"], "the kubelet does not wait for CRI-O");
    let report = lab.world.control().join("report.json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = Root::open(report.parent().unwrap()).unwrap();
        let mut watch = Watch::new(&directory, ["/report.json"], []).unwrap();
        let told = || -> Value {
            serde_json::from_slice(&fs::read(&report).unwrap_or_default()).unwrap_or_default()
        };
        // The lab has drifted from its config: that comes first.
        while told()["duty"]["reason"] != "JobFailed" {
            let changed = tokio::time::timeout(LIMIT, watch.changed()).await;
            assert!(changed.is_ok(), "{:#}", told());
        }
    });
    fs::remove_file(&refused).unwrap();
    daemon.wait_line("Restored the host after an interrupted seed");
    daemon.kill();
    as_it_was(&lab, &boot, "after the service started");
}
