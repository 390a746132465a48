//! Durable apply and verify, measured side by side in one run: the batch writer, files written one after the other
//! (write, sync, rename, sync the directory), and the machine-config-daemon's way (no sync of the directory: a power cut
//! may lose the new name).

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark plays the other ways, and prints"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use machine_config_agent::host::durable::{Attempt, Change, DesiredPath, apply_changes};
use machine_config_agent::host::{FailPoints, Root};
use machine_config_agent::model::ObservedFile;

/// As many rounds for each way, in turn; the median is shown.
const ROUNDS: usize = 7;
const SIZE: usize = 4096;

fn paths(count: usize) -> Vec<String> {
    // A rendered config of a worker spreads its files over some thirty directories.
    (0..count).map(|number| format!("etc/dir{}/file{number}", number % 30)).collect()
}

fn content(seed: usize) -> Vec<u8> {
    seed.to_string().into_bytes().into_iter().cycle().take(SIZE).collect()
}

fn ours(at: &Path, paths: &[String], bytes: &[u8]) {
    let root = Root::open(at).expect("the directory is there");
    let changes: Vec<_> = paths
        .iter()
        .map(|path| Change::new(path.as_str(), 0, DesiredPath::file(bytes, 0o644, 0, 0)))
        .collect();
    apply_changes(&root, &changes, Attempt::First, &FailPoints::off()).expect("the batch is written");
}

fn one_by_one(at: &Path, paths: &[String], bytes: &[u8], sync_directory: bool) {
    for path in paths {
        let path = at.join(path);
        let directory = path.parent().expect("a file has a directory");
        let temporary = directory.join(".new");
        let mut file = File::create(&temporary).expect("the file is made");
        file.write_all(bytes).expect("the file is written");
        file.sync_all().expect("the file is synced");
        fs::rename(&temporary, &path).expect("the file is renamed");
        if sync_directory {
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .expect("the directory is synced");
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

fn apply(base: &Path, count: usize) {
    let paths = paths(count);
    let mut times = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for (way, times) in times.iter_mut().enumerate() {
            let at = base.join(format!("{count}-{way}"));
            for number in 0..30 {
                fs::create_dir_all(at.join(format!("etc/dir{number}"))).expect("the directories are made");
            }
            let bytes = content(round);
            let since = Instant::now();
            match way {
                0 => ours(&at, &paths, &bytes),
                1 => one_by_one(&at, &paths, &bytes, true),
                _ => one_by_one(&at, &paths, &bytes, false),
            }
            times.push(since.elapsed());
        }
    }
    let [ours, safe, unsafe_way] = times.map(median);
    println!(
        "| {count:5} | {ours:9.1} | {safe:12.1} | {unsafe_way:9.1} | {:6.1}x | {:6.1}x |",
        safe / ours,
        unsafe_way / ours
    );
}

fn verify(base: &Path) {
    const COUNT: usize = 500;
    let root = Root::open(base).expect("the directory is there");
    let bytes: Vec<u8> = content(1).into_iter().cycle().take(8192).collect();
    let paths = paths(COUNT);
    let changes: Vec<_> = paths
        .iter()
        .map(|path| Change::new(path.as_str(), 0, DesiredPath::file(&bytes, 0o644, 0, 0)))
        .collect();
    apply_changes(&root, &changes, Attempt::First, &FailPoints::off()).expect("the batch is written");
    let timed = |work: &dyn Fn()| {
        let times = (0..ROUNDS * 3).map(|_| {
            let since = Instant::now();
            work();
            since.elapsed()
        });
        median(times.collect())
    };
    let seen = timed(&|| {
        let regular =
            |path: &String| matches!(root.observe(path), Ok(ObservedFile::Regular { len: 8192, .. }));
        assert!(paths.iter().all(regular));
    });
    let unchanged = timed(&|| {
        let done =
            apply_changes(&root, &changes, Attempt::First, &FailPoints::off()).expect("the batch is right");
        assert_eq!(done.changed, 0);
    });
    println!(
        "\nverify {COUNT} files of 8 KiB, warm: digests {seen:.1} ms; an unchanged batch {unchanged:.1} ms"
    );
}

/// Prints the machine's data that the figures depend on.
fn machine() {
    let line = |path: &str, start: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = line("/proc/loadavg", "");
    println!("{cores} cores, load {load}; {}", line("/proc/sys/kernel/osrelease", ""));
}

fn main() {
    // `cargo test --benches` runs this too: then it only has to compile and start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let dir = tempfile::tempdir_in("target").expect("target/ can be written");
    machine();
    println!("\n`cargo bench --bench durable`, medians of {ROUNDS} rounds in turn");
    println!("| files | batch, ms | one by one, ms | MCD's, ms | faster | than MCD's |");
    println!("|-------|-----------|----------------|-----------|--------|------------|");
    for count in [1, 100, 500, 2000] {
        apply(dir.path(), count);
    }
    verify(&dir.path().join("500-0"));
}
