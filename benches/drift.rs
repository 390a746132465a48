//! Time from a write to a managed file until the report has it, and from its undoing: the real binary on a bare host in a
//! directory, its report awaited by inotify. And the cost of writes to other files beside it.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark looks at a process from outside, and prints"
)]

#[path = "../tests/support/plain_host.rs"]
mod plain_host;

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use plain_host::PlainHost;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::mount::{MountFlags, UnmountFlags};

/// A worker's rendered config: files, and bytes of each.
const CONFIG: (usize, usize) = (500, 2000);
/// Enough for a p99.
const MUTATIONS: usize = 400;
/// Writes to unmanaged files.
const UNRELATED: usize = 10_000;
/// Generous: only a miss waits so long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A directory in memory, as `/run` is on each node.
struct MemoryDir(PathBuf);

impl MemoryDir {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), c"mode=0755").ok()?;
        Some(Self(at.to_owned()))
    }
}

impl Drop for MemoryDir {
    fn drop(&mut self) {
        // A remaining mount is removed with its namespace.
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap_or_default();
    }
}

struct Daemon {
    child: Child,
    /// Signals when the report is replaced.
    inotify: OwnedFd,
}

impl Daemon {
    fn start(host: &PlainHost, program: &str) -> Self {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
        let moved = inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&inotify, host.at("control"), moved).expect("a watch");
        let mut command = PlainHost::command(program);
        // As the unit sets them.
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_TRIM_THRESHOLD_", "131072");
        command.args(host.arguments("daemon", &[])).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().expect("the agent starts"), inotify }
    }

    /// Waits until the report has this of the node.
    fn until(&self, host: &PlainHost, state: &str) {
        loop {
            let report = fs::read_to_string(host.at("control/report.json")).unwrap_or_default();
            let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
            if report.get("state").and_then(serde_json::Value::as_str) == Some(state) {
                return;
            }
            let patience = TIMEOUT.try_into().expect("it fits");
            let ready = poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&patience));
            assert!(ready.expect("poll") > 0, "{state} is not reported");
            let mut buffer = [MaybeUninit::uninit(); 4096];
            inotify::Reader::new(&self.inotify, &mut buffer).next().expect("an event");
        }
    }

    fn wakeups(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Changes a file as people and programs do; putting its bytes and mode back undoes each.
fn mutate(at: &Path, number: usize) {
    match number % 4 {
        0 => fs::write(at, "by hand").expect("a write"),
        1 => fs::set_permissions(at, fs::Permissions::from_mode(0o600)).expect("a mode"),
        2 => fs::remove_file(at).expect("a removal"),
        _ => {
            let draft = at.with_extension("draft");
            fs::write(&draft, "by an editor").expect("a write");
            fs::rename(&draft, at).expect("a rename");
        }
    }
}

fn put_back(at: &Path, bytes: &[u8]) {
    let draft = at.with_extension("draft");
    fs::write(&draft, bytes).expect("a write");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o644)).expect("a mode");
    fs::rename(&draft, at).expect("a rename");
}

fn line(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |percent: usize| {
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    println!("| {what} | {:.0} ms | {:.0} ms | {:.0} ms |", at(50), at(99), at(100));
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let dir = tempfile::tempdir_in("target").expect("target/ can be written");
    let host = PlainHost::below(dir.path());
    let run = MemoryDir::mount(&host.at("host/run"));
    if run.is_none() {
        println!(
            "/run of the host is on disk here, which costs a sync or two (as root it is in memory, as on a node)"
        );
    }
    host.config("rendered-a", CONFIG.0, CONFIG.1);
    host.want("rendered-a");
    let daemon = Daemon::start(&host, env!("CARGO_BIN_EXE_machine-config-agent"));
    daemon.until(&host, "Done");
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for number in 0..MUTATIONS {
        let file = number % CONFIG.0;
        let at = host.at(&format!("host/etc/mca-plain/{}/{file}", file % 30));
        let bytes = fs::read(&at).expect("the file is there");
        let since = Instant::now();
        mutate(&at, number);
        daemon.until(&host, "Degraded");
        found.push(since.elapsed());
        let since = Instant::now();
        put_back(&at, &bytes);
        daemon.until(&host, "Done");
        gone.push(since.elapsed());
    }
    println!("\n`cargo bench --bench drift`, {} files, {MUTATIONS} mutations", CONFIG.0);
    println!("| | median | p99 | worst |");
    println!("|---|---|---|---|");
    line("from a change to the report", &mut found);
    line("from its undoing to the report", &mut gone);
    let before = daemon.wakeups();
    let other = host.at("host/etc/mca-plain/0/other");
    fs::write(&other, "").expect("a write");
    for number in 0..UNRELATED {
        fs::write(&other, number.to_string()).expect("a write");
    }
    println!(
        "\nwake-ups for {UNRELATED} writes to a file beside managed ones: {}",
        daemon.wakeups() - before
    );
}
