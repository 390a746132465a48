//! A config that is committed costs nothing when it is desired again: no write, no rename, no process, and one sync of
//! the journal's directory at the start. The kernel is asked, through strace; where it is not installed the test says so.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::plain_host::PlainHost;
use crate::ran;

const AGENT: &str = env!("CARGO_BIN_EXE_machine-config-agent");
/// Calls that change a file system, and that start a process.
const CALLS: &str = "trace=rename,renameat,renameat2,fsync,fdatasync,sync,syncfs,sync_file_range,unlink,unlinkat,\
                     mkdir,mkdirat,symlink,symlinkat,link,linkat,chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat,\
                     setxattr,fsetxattr,removexattr,fremovexattr,truncate,ftruncate,utimensat,execve,openat,openat2,creat";

/// Every path with what a write would change.
fn traces(at: &Path) -> Vec<(String, u64, i64, i64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        // This directory is of this boot, and for `status`.
        if path.ends_with("host/run") {
            continue;
        }
        let stat = fs::symlink_metadata(&path).unwrap();
        found.push((path.display().to_string(), stat.ino(), stat.mtime_nsec(), stat.ctime_nsec()));
        if stat.is_dir() {
            found.extend(traces(&path));
        }
    }
    found.sort();
    found
}

/// The lines of a trace that write or start something. Opening the lock file to lock it makes nothing.
fn deeds(log: &Path) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap();
    let to_write = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];
    let harmless = |line: &str| {
        let opens = line.contains("open");
        opens && (line.contains("/dev/null") || line.contains("\"lock\"")) && !line.contains("O_TRUNC")
    };
    let deed = |line: &&str| {
        let opens = line.contains("openat(") || line.contains("openat2(");
        line.contains('(')
            && !line.contains("resumed>")
            && !line.contains(" +++")
            && !line.contains(" ---")
            && (!opens || to_write.iter().any(|flag| line.contains(flag)))
            && !harmless(line)
    };
    // The first is the program's own start.
    let deeds: Vec<String> = log.lines().filter(deed).map(str::to_owned).collect();
    assert!(deeds.first().is_some_and(|first| first.contains("execve(")), "{deeds:#?}");
    deeds.into_iter().skip(1).collect()
}

/// A host with `rendered-a` committed, for a test; `None` where strace is missing.
fn committed(test: &str) -> Option<(PlainHost, Vec<String>)> {
    if PlainHost::command("strace").arg("-V").output().is_err() {
        ran::not_run(test, "strace");
        return None;
    }
    let host = PlainHost::below(&std::env::temp_dir());
    let config = host.config("rendered-a", 40, 300);
    let arguments = host.arguments("apply", &["--yes", "--to", &config.display().to_string()]);
    let output = PlainHost::command(AGENT).args(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(host.at("host/etc/mca-plain/9/39").exists());
    Some((host, arguments))
}

#[test]
fn apply_of_current_config_writes_nothing() {
    let Some((host, arguments)) = committed("apply_of_current_config_writes_nothing") else { return };
    let before = traces(&host.at("host"));
    let log = host.at("log");
    let output = PlainHost::command("strace")
        .args(["-f", "-qq", "-e", CALLS, "-o"])
        .args([&*log, Path::new(AGENT)])
        .args(&arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One sync at the start: renames of the process before are durable before they are relied on.
    let deeds = deeds(&log);
    assert!(deeds.len() == 1 && deeds.iter().all(|line| line.contains("fsync(")), "{deeds:#?}");
    assert_eq!(traces(&host.at("host")), before);
}

#[test]
fn daemon_answers_equal_target_by_reads_only() {
    let Some((host, _)) = committed("daemon_answers_equal_target_by_reads_only") else { return };
    host.want("rendered-a");
    let log = host.at("log");
    let mut daemon = PlainHost::command("strace")
        .args(["-f", "-qq", "-e", CALLS, "-o"])
        .args([&*log, Path::new(AGENT)])
        .args(host.arguments("daemon", &[]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(daemon.stderr.take().unwrap()).lines();
    told.find(|line| line.as_ref().is_ok_and(|line| line.contains("desired: rendered-a"))).unwrap().unwrap();
    let looks = || fs::read_to_string(&log).unwrap_or_default().matches("target.yaml\"").count();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        let since = std::time::Instant::now();
        while !reached() {
            // Generous: only a miss waits so long.
            assert!(since.elapsed().as_secs() < 60, "{what}");
            std::thread::yield_now();
        }
    };
    until("no report", &|| host.at("control/report.json").exists());
    let (state, first) = (traces(&host.at("host")), looks());
    let report = fs::metadata(host.at("control/report.json")).unwrap().mtime_nsec();
    host.want("rendered-a");
    until("the daemon did not look again", &|| looks() > first);
    // The end of the pass: SIGTERM waits for it.
    let children = format!("/proc/{0}/task/{0}/children", daemon.id());
    let agent: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let agent = rustix::process::Pid::from_raw(agent).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    assert_eq!(traces(&host.at("host")), state);
    assert_eq!(fs::metadata(host.at("control/report.json")).unwrap().mtime_nsec(), report);
    // The first report, in the directory and in /run, and the mark at its end are all that this daemon wrote.
    let deeds = deeds(&log);
    let report = |line: &&String| {
        ["report.json", "fchmod(", "fsync(", "mkdirat("].iter().any(|call| line.contains(call))
    };
    assert!(deeds.iter().all(|line| report(&line)), "{deeds:#?}");
    assert_eq!(deeds.iter().filter(|line| line.contains("rename")).count(), 3, "{deeds:#?}");
    assert!(!deeds.iter().any(|line| line.contains("execve(")), "{deeds:#?}");
}
