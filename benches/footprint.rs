//! What the real binary costs on a machine: from its start to the first report, its memory when idle and while a config
//! of 1.5 MB is applied, and how often it wakes up when nothing happens. `CARGO_BIN_EXE` of this profile is measured.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark looks at a process from outside, and prints"
)]

#[path = "../tests/support/plain_host.rs"]
mod plain_host;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use plain_host::PlainHost;

const STARTS: usize = 7;
/// Long enough to tell a daemon that polls.
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
}
