//! The agent's own time in a cached image switch of a host of rpm-ostree: from the target to the reboot request, without the
//! daemon's transaction. The real binary and worker on a real sysroot of the sandbox, which boots between the switches, over a
//! real bus; the double of the daemon does the work (`tests/doubles/rpm_ostreed`), so of its time nothing is learned.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "a benchmark looks at processes from outside, and prints; the environment is that of the tests"
)]

#[path = "../tests/os/backend_env.rs"]
mod backend_env;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use backend_env::{Backend, Lab, Machine, doubles, lab_of};
use machine_config_agent::sandbox::{AGENT, CONTROL};

/// Switches there and back; the first one pulls, and is not counted.
const SWITCHES: usize = 10;
/// The agent rests by then.
const SETTLED: Duration = Duration::from_millis(500);
/// Only a miss waits so long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Lines of a process, with the time at which each was read.
struct Lines(Receiver<(Instant, String)>);

impl Lines {
    fn of(stream: ChildStderr) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                drop(sender.send((Instant::now(), line)));
            }
        });
        Self(lines)
    }

    /// Returns the time of the next line with these words.
    fn until(&self, words: &str) -> Instant {
        loop {
            let (at, line) = self.0.recv_timeout(TIMEOUT).unwrap_or_else(|e| panic!("{words}: {e}"));
            if line.contains(words) {
                return at;
            }
        }
    }
}

/// Parts of one switch.
struct Switch {
    /// From the target to the request of the transaction.
    before: Duration,
    transaction: Duration,
    /// From its end to the reboot request.
    after: Duration,
}

impl Switch {
    fn own(&self) -> Duration {
        self.before + self.after
    }
}

fn set_target(lab: &Lab, name: &str, image: &str) {
    let control = lab.world.control();
    fs::create_dir_all(control.join("machineconfigs")).unwrap();
    let config = serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": { "name": name },
        "spec": { "osImageURL": image, "config": { "ignition": { "version": "3.4.0" } } },
    });
    fs::write(control.join(format!("machineconfigs/{name}.json")), config.to_string()).unwrap();
    fs::write(control.join("target.new"), serde_json::json!({ "config": name }).to_string()).unwrap();
    fs::rename(control.join("target.new"), control.join("target.yaml")).unwrap();
}

/// Starts the bus, the double and the agent, whose lines come by one pipe.
fn start(machine: &Machine) -> (Child, Lines) {
    doubles(machine, &["rpm-ostreed"], "rpm-ostreed --bus {address} --sysroot --tell");
    let words = ["daemon", "--directory", CONTROL, "--node-name", "node", "--os-backend", "rpm-ostree"];
    let with: Vec<&str> = ["bash", "/run/doubles/with", AGENT].into();
    let mut command = machine.command(with.iter().chain(&words).chain(&["--reboot-by", "supervisor"]));
    // As the unit sets them.
    command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "131072");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stderr.take().unwrap());
    (child, lines)
}

fn switch(lab: &Lab, from: (&str, &str), to: (&str, &str)) -> Switch {
    let machine = lab.boot();
    set_target(lab, from.0, from.1);
    let (mut agent, lines) = start(&machine);
    lines.until(&format!("watching against {}", from.0));
    // What it does before it rests is not of the switch.
    std::thread::sleep(SETTLED);
    let began = Instant::now();
    set_target(lab, to.0, to.1);
    let requested = lines.until("begun UpdateDeployment");
    let done = lines.until("done UpdateDeployment");
    let status = agent.wait().unwrap();
    let ended = Instant::now();
    assert_eq!(status.code(), Some(133), "it requests the reboot");
    machine.shutdown();
    Switch { before: requested - began, transaction: done - requested, after: ended - done }
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let agent = |_: &Path| Path::new(backend_env::WORKER).with_file_name("machine-config-agent");
    let lab = lab_of(Backend::Ostree, &agent);
    let (first, second) = (lab.v1.to_string(), lab.v2.to_string());
    let (a, b) = (("rendered-worker-a", &*first), ("rendered-worker-b", &*second));
    let mut switches: Vec<Switch> = (0..SWITCHES)
        .map(|number| if number % 2 == 0 { switch(&lab, a, b) } else { switch(&lab, b, a) })
        .skip(1)
        .collect();
    let mut median = |what: fn(&Switch) -> Duration| {
        switches.sort_by_key(what);
        what(&switches[switches.len() / 2]).as_secs_f64() * 1000.0
    };
    let (own, before, after) = (median(Switch::own), median(|one| one.before), median(|one| one.after));
    let transaction = median(|one| one.transaction);
    println!("\n`cargo bench --bench switch`: cached image switch, median of {}", switches.len());
    println!("| own time | until the transaction | after it | the double's transaction | fastest own time |");
    println!("|---|---|---|---|---|");
    let fastest = switches.iter().map(Switch::own).min().unwrap_or_default().as_secs_f64() * 1000.0;
    println!("| {own:.0} ms | {before:.0} ms | {after:.0} ms | {transaction:.0} ms | {fastest:.0} ms |");
}
