//! Only the second executable is linked to libostree; its requests arrive, and without it nothing is changed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::plain_host::PlainHost;
use crate::ran;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, XattrFlags, getxattr, mkfifoat, setxattr};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

const AGENT: &str = env!("CARGO_BIN_EXE_machine-config-agent");
const WORKER: &str = env!("CARGO_BIN_EXE_machine-config-agent-ostree");
const LABEL: &str = "security.selinux";

/// Returns true if an executable names a library: the loader finds it by this string.
fn names(executable: &str, library: &str) -> bool {
    let bytes = fs::read(executable).unwrap();
    bytes.windows(library.len()).any(|window| window == library.as_bytes())
}

#[test]
fn agent_is_not_linked_to_libostree() {
    for library in ["libostree-1.so", "libglib-2.0.so", "libgio-2.0.so", "libgobject-2.0.so"] {
        // GNU ld keeps what only dropped functions named, unless the build is optimised as a whole; rust-lld does not.
        assert!(!names(AGENT, library), "the agent loads {library}; was it linked by rust-lld?");
        assert!(names(WORKER, library), "{library}");
    }
}

/// A host with a small policy of its own, as libostree reads it.
fn labelled() -> PlainHost {
    let host = PlainHost::below(&std::env::temp_dir());
    let selinux = host.at("host/etc/selinux");
    fs::create_dir_all(selinux.join("test/contexts/files")).unwrap();
    fs::create_dir_all(selinux.join("test/policy")).unwrap();
    fs::write(selinux.join("config"), "SELINUX=permissive\nSELINUXTYPE=test\n").unwrap();
    fs::write(selinux.join("test/policy/policy.33"), "only its digest is asked for").unwrap();
    let contexts = "/.* system_u:object_r:default_t:s0\n\
                    /etc/mca-plain(/.*)? -d system_u:object_r:made_t:s0\n\
                    /etc/mca-plain/[0-9]+/0 -- system_u:object_r:first_t:s0\n";
    fs::write(selinux.join("test/contexts/files/file_contexts"), contexts).unwrap();
    host
}

/// Returns true if this user may set such labels here: only root, and not under another policy.
fn can_label(host: &PlainHost) -> bool {
    let probe = host.at("probe");
    fs::write(&probe, "").unwrap();
    setxattr(&probe, LABEL, b"system_u:object_r:made_t:s0\0", XattrFlags::empty()).is_ok()
}

fn label(path: &Path) -> String {
    let mut bytes = [0; 100];
    let size = getxattr(path, LABEL, &mut bytes[..]).unwrap_or_default();
    String::from_utf8_lossy(bytes.get(..size).unwrap()).into_owned()
}

fn apply(agent: &Path, host: &PlainHost, backend: &str) -> Output {
    let to = host.config("rendered-a", 2, 10).display().to_string();
    let arguments = host.arguments("apply", &["--yes", "--to", &to]);
    // Theirs is `none`.
    let arguments = arguments.iter().map(|word| if word == "none" { backend } else { word });
    PlainHost::command(agent.to_str().unwrap()).args(arguments).output().unwrap()
}

/// FIL-001: the label of a new file is the policy's.
#[test]
fn new_files_get_labels_of_hosts_policy() {
    let host = labelled();
    if !can_label(&host) {
        ran::not_run("new_files_get_labels_of_hosts_policy", "to set labels (CAP_SYS_ADMIN)");
        return;
    }
    let output = apply(Path::new(AGENT), &host, "none");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let at = |path: &str| label(&host.at("host/etc/mca-plain").join(path));
    assert_eq!(at(""), "system_u:object_r:made_t:s0\0");
    assert_eq!(at("0"), "system_u:object_r:made_t:s0\0");
    assert_eq!(at("0/0"), "system_u:object_r:first_t:s0\0");
    assert_eq!(at("1/1"), "system_u:object_r:default_t:s0\0");
}

/// The agent alone in a directory, for a test; `None` where the second executable is installed on this machine.
fn alone(test: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    if Path::new("/usr/libexec/machine-config-agent/machine-config-agent-ostree").exists() {
        ran::not_run(test, "a machine where it is not installed");
        return None;
    }
    // In the same file system: the file is linked, not copied.
    let dir = tempfile::tempdir_in(Path::new(AGENT).parent().unwrap()).unwrap();
    let agent = dir.path().join("machine-config-agent");
    fs::hard_link(AGENT, &agent).unwrap();
    Some((dir, agent))
}

fn refused(output: &Output, code: i32, dir: &Path) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    for part in [
        &*dir.join("machine-config-agent-ostree").display().to_string(),
        "/usr/libexec/machine-config-agent/machine-config-agent-ostree",
        "nstall machine-config-agent-ostree",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Every path with what a write would change.
fn traces(at: &Path, found: &mut Vec<(PathBuf, u64, i64)>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        found.push((path.clone(), stat.ino(), stat.size().cast_signed()));
        if stat.is_dir() {
            traces(&path, found);
        }
    }
}

#[test]
fn without_second_executable_nothing_is_changed() {
    let Some((dir, agent)) = alone("without_second_executable_nothing_is_changed") else { return };
    let etc = |host: &PlainHost| {
        let mut found = Vec::new();
        traces(&host.at("host/etc"), &mut found);
        found.sort();
        found
    };
    // The OS can't be looked at.
    let host = PlainHost::below(&std::env::temp_dir());
    let before = etc(&host);
    refused(&apply(&agent, &host, "ostree"), 4, dir.path());
    assert_eq!(etc(&host), before);
    // The labels of new files can't be known, which the plan sees.
    let host = labelled();
    let before = etc(&host);
    refused(&apply(&agent, &host, "none"), 3, dir.path());
    assert_eq!(etc(&host), before);
    // Neither is needed: it works.
    let host = PlainHost::below(&std::env::temp_dir());
    let output = apply(&agent, &host, "none");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns true if a process ends within two minutes.
fn ends(process: Pid) -> bool {
    let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let limit = Timespec { tv_sec: 120, tv_nsec: 0 };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

/// A daemon whose worker waits for a pipe: the sysroot's configuration. The writer learns that a worker has come to read it.
struct Silent {
    host: PlainHost,
    agent: std::process::Child,
    held: fs::File,
}

impl Silent {
    fn start() -> Self {
        let host = PlainHost::below(&std::env::temp_dir());
        let repo = host.at("host/ostree/repo");
        fs::create_dir_all(repo.join("objects")).unwrap();
        fs::create_dir_all(host.at("host/run")).unwrap();
        fs::write(host.at("host/run/ostree-booted"), "").unwrap();
        mkfifoat(CWD, repo.join("config"), Mode::RWXU).unwrap();
        host.config("rendered-a", 2, 10);
        host.want("rendered-a");
        let log = fs::File::create(host.at("log")).unwrap();
        let arguments = host.arguments("daemon", &["--metrics-listen", "127.0.0.1:0"]);
        let arguments = arguments.iter().map(|word| if word == "none" { "ostree" } else { word });
        let agent = PlainHost::command(AGENT).args(arguments).stderr(log).spawn().unwrap();
        let held = fs::OpenOptions::new().write(true).open(repo.join("config")).unwrap();
        Self { host, agent, held }
    }

    /// The worker that is waiting.
    fn worker(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.agent.id());
        Pid::from_raw(fs::read_to_string(children).unwrap().trim().parse().unwrap()).unwrap()
    }

    /// Returns the log of an agent that is stopped.
    fn stop(mut self) -> String {
        let agent = Pid::from_child(&self.agent);
        kill_process(agent, Signal::TERM).unwrap();
        if !ends(agent) {
            self.agent.kill().unwrap();
            panic!("the agent does not stop");
        }
        let ended = self.agent.wait().unwrap();
        drop(self.held);
        let told = fs::read_to_string(self.host.at("log")).unwrap();
        assert!(ended.success(), "{told}");
        told
    }
}

/// CRA-006: systemd ends a service's processes together. That the worker's end is an answer too few is no fault then.
#[test]
fn worker_ended_with_agent_is_no_fault() {
    let silent = Silent::start();
    let worker = silent.worker();
    kill_process(Pid::from_child(&silent.agent), Signal::TERM).unwrap();
    kill_process(worker, Signal::TERM).unwrap();
    let told = silent.stop();
    assert!(told.contains("Stopped by a signal") && !told.contains("OsWorkerFailed"), "{told}");
}

/// A stop does not wait for the limit of an answer.
#[test]
fn agent_stops_although_worker_never_answers() {
    let silent = Silent::start();
    let began = std::time::Instant::now();
    let told = silent.stop();
    assert!(began.elapsed().as_secs() < 20, "{told}");
    assert!(told.contains("Stopped by a signal") && !told.contains("OsWorkerFailed"), "{told}");
}

/// A worker that never answers is ended after its limit, told, and asked again.
#[test]
fn worker_that_never_answers_is_ended_and_told() {
    let mut silent = Silent::start();
    assert!(ends(silent.worker()), "the worker is not ended");
    // The next one comes to read.
    silent.held = fs::OpenOptions::new().write(true).open(silent.host.at("host/ostree/repo/config")).unwrap();
    let told = silent.stop();
    assert!(told.contains("OsWorkerFailed") && told.contains("did not answer within 30 s"), "{told}");
}

#[test]
fn sandbox_names_missing_programs() {
    let Some((dir, agent)) = alone("sandbox_names_missing_programs") else { return };
    let output = PlainHost::command(agent.to_str().unwrap()).arg("sandbox").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{told}");
    let place = dir.path().join("machine-config-agent-ostree").display().to_string();
    // A machine without ostree or skopeo reports that first.
    assert!(told.contains(&place) || told.contains("apt install"), "{told}");
}

#[test]
fn worker_of_another_version_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let request = dir.path().join("request");
    fs::write(&request, r#"{"version": "0.0.0", "whatever": "it had to say"}"#).unwrap();
    let stdin = fs::File::open(request).unwrap();
    let output = PlainHost::command(WORKER).arg("os-worker").stdin(stdin).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("not-installed") && told.contains("the agent of version 0.0.0"), "{told}");
}
