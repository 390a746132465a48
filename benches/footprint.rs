//! Cost of the real binary on a machine: from its start to the first report, its memory when idle and while a config
//! of 1.5 MB is applied, how often it wakes up when nothing happens, and its own time in a first boot. `CARGO_BIN_EXE` of this
//! profile is measured.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark looks at a process from outside, and prints"
)]

#[path = "../tests/support/plain_host.rs"]
mod plain_host;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use machine_config_agent::sandbox::{AGENT, LayerFile, SandboxHost};
use plain_host::PlainHost;
use serde_json::json;

const STARTS: usize = 7;
/// Long enough to detect a daemon that polls.
const IDLE: Duration = Duration::from_secs(5);
/// Files and bytes of a config of 1.5 MB, after its blanks are escaped.
const LARGE: (usize, usize) = (180, 7000);

struct Daemon(Child);

impl Daemon {
    fn start(host: &PlainHost, program: &str) -> Self {
        let mut command = PlainHost::command(program);
        // As the unit sets them.
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "131072");
        command.args(host.arguments("daemon", &[])).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the agent starts"))
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default()
    }

    /// A number of a file of `/proc`: kilobytes, or a count.
    fn number(&self, name: &str, field: &str) -> u32 {
        let text = self.file(name);
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
    }

    fn megabytes(&self, name: &str, field: &str) -> f64 {
        f64::from(self.number(name, field)) / 1024.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let since = Instant::now();
    while !reached() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn reported(host: &PlainHost, config: &str) -> bool {
    let report = fs::read_to_string(host.at("control/report.json")).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    let committed = report.get("currentConfig");
    committed.and_then(serde_json::Value::as_str) == Some(config)
}

fn measure(program: &str, at: &Path) {
    let host = PlainHost::below(at);
    host.config("rendered-a", 20, 300);
    host.want("rendered-a");
    let mut starts: Vec<Duration> = (0..STARTS)
        .map(|_| {
            drop(fs::remove_file(host.at("control/report.json")));
            let since = Instant::now();
            let daemon = Daemon::start(&host, program);
            until("no report", || host.at("control/report.json").exists());
            let took = since.elapsed();
            until("not committed", || reported(&host, "rendered-a"));
            drop(daemon);
            took
        })
        .collect();
    starts.sort();
    let daemon = Daemon::start(&host, program);
    until("not committed", || reported(&host, "rendered-a"));
    // The report may be the last daemon's: this one has looked when it rests.
    std::thread::sleep(Duration::from_secs(1));
    let [rss, pss, anonymous] =
        ["Rss:", "Pss:", "Anonymous:"].map(|field| daemon.megabytes("smaps_rollup", field));
    let switches = |daemon: &Daemon| daemon.number("status", "voluntary_ctxt_switches:");
    let before = switches(&daemon);
    std::thread::sleep(IDLE);
    let woken = switches(&daemon) - before;
    host.config("rendered-b", LARGE.0, LARGE.1);
    host.want("rendered-b");
    until("not committed", || reported(&host, "rendered-b"));
    std::thread::sleep(Duration::from_secs(1));
    let start = starts.get(STARTS / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    println!(
        "| {start:.0} ms | {:.1} / {:.1} / {:.1} MiB | {woken} in {} s | {:.1} MiB | {:.1} / {:.1} MiB |",
        rss,
        pss,
        anonymous,
        IDLE.as_secs(),
        daemon.megabytes("status", "VmHWM:"),
        daemon.megabytes("smaps_rollup", "Rss:"),
        daemon.megabytes("smaps_rollup", "Anonymous:"),
    );
}

/// Runs `firstboot` on a host that Ignition has left; returns how long it took, and its exit code.
fn first_boot(host: &PlainHost, program: &str) -> (Duration, Option<i32>) {
    let (root, mut command) = (host.at("host"), PlainHost::command(program));
    command.args(["firstboot", "--os-backend", "none", "--reboot-by", "supervisor", "--root"]).arg(root);
    let since = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the agent starts");
    (since.elapsed(), status.code())
}

/// The agent's own time for a first boot: where 20 files differ, before and after the one reboot; and where all is right.
fn measure_first_boots(program: &str, at: &Path) {
    let times: Vec<[Duration; 2]> = (0..STARTS)
        .map(|_| {
            let host = PlainHost::below(at);
            let file = host.at("host/etc/ignition-machine-config-encapsulated.json");
            let config = host.config("rendered-a", 20, 300);
            fs::copy(&config, &file).expect("the config");
            let (before, code) = first_boot(&host, program);
            assert_eq!(code, Some(133), "it asks for a reboot");
            plain_host::boot(&host.at("host"), 2);
            let (after, code) = first_boot(&host, program);
            assert_eq!((code, file.exists()), (Some(0), false), "it is complete");
            // A host whose installation brought all of it.
            fs::remove_dir_all(host.at("host/var/lib/machine-config-agent")).expect("the agent's state");
            fs::copy(&config, &file).expect("the config");
            let (right, code) = first_boot(&host, program);
            assert_eq!((code, file.exists()), (Some(0), false), "nothing is to be done");
            [before + after, right]
        })
        .collect();
    let median = |what: fn(&[Duration; 2]) -> Duration| {
        let mut all: Vec<Duration> = times.iter().map(what).collect();
        all.sort();
        all.get(STARTS / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    println!("\n| first boot, 20 files | all right already |\n|---|---|");
    println!("| {:.0} ms | {:.0} ms |", median(|[differs, _]| *differs), median(|[_, right]| *right));
}

/// A first boot in the sandbox: its exit code, its time without the staging, and the time of the staging.
fn sandboxed_first_boot(command: &mut std::process::Command) -> (Option<i32>, Duration, Duration) {
    let since = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the sandbox starts");
    let (mut began, mut staging) = (None, Duration::ZERO);
    let stderr = child.stderr.take().expect("its standard error");
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let phase = line.strip_prefix("Update ").and_then(|line| line.rsplit_once(": "));
        match phase.map(|(_, phase)| phase) {
            Some("staging") => began = Some(Instant::now()),
            Some(_) => staging += began.take().map_or(Duration::ZERO, |began: Instant| began.elapsed()),
            None => {}
        }
    }
    let status = child.wait().expect("it ends");
    (status.code(), since.elapsed().saturating_sub(staging), staging)
}

/// The agent's own time for a first boot with another image and a kernel argument, on a real libostree host: before and after
/// the one reboot, without the staging, without the shutdown, and without the way into the sandbox.
fn measure_image_switch(program: &str, at: &Path) {
    let host = match SandboxHost::create(&at.join("sandbox"), Path::new(program), &BTreeMap::new(), &|_| {}) {
        Ok(host) => host,
        Err(error) => return println!("\nFirst boot with an image switch: not measured: {error}"),
    };
    let mut booted = host.boot().expect("the sandbox boots");
    let mut times: Vec<[Duration; 2]> = Vec::new();
    for number in 0..STARTS {
        let layer =
            LayerFile { path: "usr/share/version".to_owned(), mode: 0o644, contents: vec![b'x'; number] };
        let first = host.image("v1").expect("the first image");
        let image = host.derive(&first, &format!("n{number}"), &[layer], &BTreeMap::new()).expect("an image");
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": { "name": "rendered-a" },
            "spec": { "osImageURL": image.to_string(), "kernelArguments": [format!("lab.number={number}")],
                      "config": { "ignition": { "version": "3.4.0" } } },
        });
        let file = "etc/ignition-machine-config-encapsulated.json";
        fs::write(booted.root().join(file), config.to_string()).expect("the config");
        let words = [AGENT, "firstboot", "--os-backend", "ostree", "--reboot-by", "supervisor"];
        let (_, entering, _) = sandboxed_first_boot(&mut booted.command([AGENT, "--version"]));
        let (code, before, staging) = sandboxed_first_boot(&mut booted.command(words));
        assert_eq!(code, Some(133), "it asks for a reboot");
        booted.shutdown().expect("the shutdown");
        booted = host.boot().expect("the sandbox boots");
        let (code, after, none) = sandboxed_first_boot(&mut booted.command(words));
        assert!(
            code == Some(0) && none.is_zero() && !booted.root().join(file).exists(),
            "it is complete: {code:?}"
        );
        times.push([(before + after).saturating_sub(2 * entering), staging]);
    }
    let median = |index: usize| {
        let mut all: Vec<Duration> = times.iter().filter_map(|time| time.get(index).copied()).collect();
        all.sort();
        all.get(STARTS / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    println!(
        "\n| first boot with another image and a kernel argument, own time | staging, not counted |\n|---|---|"
    );
    println!("| {:.0} ms | {:.0} ms |", median(0), median(1));
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("\n`cargo bench --bench footprint`, starts: median of {STARTS}");
    println!(
        "| start to first report | idle RSS / PSS / anonymous | wake-ups | peak, 1.5 MB applied | idle after that, RSS / anonymous |"
    );
    println!("|---|---|---|---|---|");
    let dir = tempfile::tempdir_in("target").expect("target/ can be written");
    measure(env!("CARGO_BIN_EXE_machine-config-agent"), dir.path());
    measure_first_boots(env!("CARGO_BIN_EXE_machine-config-agent"), dir.path());
    measure_image_switch(env!("CARGO_BIN_EXE_machine-config-agent"), dir.path());
}
