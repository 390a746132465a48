//! Workers that never answer, answer late, or die in the middle: by a double that speaks the worker's protocol
//! (`doubles/worker`), for `apply`, `firstboot` and the daemon, with and without a stop.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};

use crate::plain_host::PlainHost;

const AGENT: &str = env!("CARGO_BIN_EXE_machine-config-agent");
const OBSERVES: &str = "os-worker";
const LABELS: &str = "labels";

/// The limit of an answer, and as much again for a machine under load.
const LIMIT: Duration = Duration::from_secs(60);

/// Below this nobody has waited for that limit.
const AT_ONCE: Duration = Duration::from_secs(25);

/// A host, and an agent whose worker is the double.
struct Played {
    host: PlainHost,
    programs: tempfile::TempDir,
}

struct Ran {
    status: ExitStatus,
    told: String,
    took: Duration,
}

impl Played {
    /// The first starts of a verb are played by these words.
    fn new(verb: &str, plays: &[&str]) -> Self {
        let target = Path::new(AGENT).parent().unwrap();
        // In the same file system: files are linked, not copied.
        let programs = tempfile::tempdir_in(target).unwrap();
        fs::hard_link(AGENT, programs.path().join("machine-config-agent")).unwrap();
        let double = target.join("examples/worker-double");
        fs::hard_link(double, programs.path().join("machine-config-agent-ostree")).unwrap();
        let words = format!("{}\n", plays.join("\n"));
        fs::write(programs.path().join(format!("plays-{verb}")), words).unwrap();
        let host = PlainHost::below(&std::env::temp_dir());
        host.config("rendered-a", 2, 10);
        host.want("rendered-a");
        Self { host, programs }
    }

    fn start(&self, verb: &str, more: &[&str]) -> Child {
        let arguments = self.host.arguments(verb, more);
        let arguments = arguments.iter().map(|word| if word == "none" { "ostree" } else { word });
        let log = fs::File::options().append(true).create(true).open(self.host.at("log")).unwrap();
        let agent = self.programs.path().join("machine-config-agent");
        let mut command = PlainHost::command(agent.to_str().unwrap());
        command.args(arguments).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn apply(&self) -> Child {
        let to = self.host.at("control/machineconfigs/rendered-a.json");
        self.start("apply", &["--yes", "--to", to.to_str().unwrap()])
    }

    /// Puts an encapsulated config on the host: one without files.
    fn first_boot(&self) -> Child {
        let file = self.host.at("host/etc/ignition-machine-config-encapsulated.json");
        fs::write(file, crate::plain_host::config("rendered-a", 0, 0)).unwrap();
        let root = self.host.at("host").display().to_string();
        let log = fs::File::options().append(true).create(true).open(self.host.at("log")).unwrap();
        let agent = self.programs.path().join("machine-config-agent");
        let words = ["firstboot", "--root", &root, "--os-backend", "ostree", "--reboot-by", "supervisor"];
        PlainHost::command(agent.to_str().unwrap())
            .args(words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn daemon(&self) -> Child {
        self.start("daemon", &["--metrics-listen", "127.0.0.1:0"])
    }

    fn end(&self, mut agent: Child, began: Instant) -> Ran {
        if !ends(Pid::from_child(&agent), 2 * LIMIT) {
            agent.kill().unwrap();
            agent.wait().unwrap();
            panic!("the agent does not end: {}", self.told());
        }
        let status = agent.wait().unwrap();
        let told = self.told();
        fs::write(self.host.at("log"), "").unwrap();
        Ran { status, told, took: began.elapsed() }
    }

    fn told(&self) -> String {
        fs::read_to_string(self.host.at("log")).unwrap_or_default()
    }

    fn workers(&self, verb: &str) -> Vec<Pid> {
        let text =
            fs::read_to_string(self.programs.path().join(format!("starts-{verb}"))).unwrap_or_default();
        text.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
    }

    /// None of the workers runs, not even as one that nobody has waited for.
    fn no_worker_is_left(&self, verb: &str) {
        none_is_left(&self.workers(verb));
    }

    /// The pipe by which a worker says that it has come so far.
    fn started(&self) -> PathBuf {
        let path = self.programs.path().join("started");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        path
    }
}

fn none_is_left(workers: &[Pid]) {
    for &worker in workers {
        assert_eq!(test_kill_process(worker), Err(Errno::SRCH), "{worker:?}");
    }
}

/// Returns true if a process ends within a time.
fn ends(process: Pid, within: Duration) -> bool {
    let process = match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return true,
        process => process.unwrap(),
    };
    let limit = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

/// The run has failed with object, cause and next step; the next one starts a new worker.
fn failed_and_goes_on(played: &Played, play: &str, ran: &Ran, words: &[&str]) {
    assert_eq!(ran.status.code(), Some(4), "{play}: {}", ran.told);
    for part in words.iter().chain(&["Next: "]) {
        assert!(ran.told.contains(part), "{play}, {part}: {}", ran.told);
    }
    let again = played.end(played.apply(), Instant::now());
    assert!(again.status.success(), "{play}: {}", again.told);
}

/// A worker that keeps silent, in whatever way, is ended and told after the limit; the next one is asked. What is answered counts,
/// however late, and whoever holds a pipe.
#[test]
fn apply_ends_whatever_a_worker_does() {
    let cases: [(&str, bool, &str); 7] = [
        ("silent", true, "did not answer within 30 s and was killed"),
        ("deaf", true, "did not answer within 30 s and was killed"),
        ("half", true, "did not answer within 30 s and was killed"),
        ("chatter", true, "did not answer within 30 s and was killed"),
        ("closed", false, "ended without an answer (signal: 9"),
        ("dies", false, "ended without an answer (signal: 6"),
        ("late", false, ""),
    ];
    std::thread::scope(|scope| {
        for (play, waits, words) in cases {
            scope.spawn(move || {
                let played = Played::new(OBSERVES, &[play]);
                let began = Instant::now();
                let ran = played.end(played.apply(), began);
                assert!(!ran.told.contains("panicked"), "{play}: {}", ran.told);
                assert!(ran.took < LIMIT && (waits || ran.took < AT_ONCE), "{play}: {:?}", ran.took);
                played.no_worker_is_left(OBSERVES);
                if words.is_empty() {
                    assert!(ran.status.success(), "{play}: {}", ran.told);
                } else {
                    failed_and_goes_on(&played, play, &ran, &["the libostree sysroot", words]);
                }
                if play == "dies" {
                    assert!(ran.told.contains("the double dies here"), "{}", ran.told);
                }
            });
        }
    });
}

/// The pipe of messages is inherited by whatever a worker starts: an answer does not wait for it.
#[test]
fn answer_counts_although_a_child_holds_a_pipe() {
    let played = Played::new(OBSERVES, &["held", "held", "held"]);
    let began = Instant::now();
    let ran = played.end(played.apply(), began);
    assert!(ran.status.success() && ran.took < AT_ONCE, "{:?}: {}", ran.took, ran.told);
    assert!(played.workers(OBSERVES).len() >= 2, "{}", ran.told);
}

/// A stop does not wait for an answer, and takes the worker with it.
#[test]
fn stop_ends_verb_and_its_silent_worker() {
    type Start = fn(&Played) -> Child;
    let verbs: [(&str, Start, ExitStatus); 3] = [
        ("apply", Played::apply, ExitStatus::from_raw(15)),
        ("firstboot", Played::first_boot, ExitStatus::from_raw(104 << 8)),
        ("daemon", Played::daemon, ExitStatus::from_raw(0)),
    ];
    for (verb, start, expected) in verbs {
        let played = Played::new(OBSERVES, &["silent"]);
        let started = played.started();
        let agent = start(&played);
        drop(fs::File::open(started).unwrap());
        let [worker] = played.workers(OBSERVES)[..] else { panic!("{verb}: {}", played.told()) };
        let began = Instant::now();
        kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
        let ran = played.end(agent, began);
        assert_eq!(ran.status, expected, "{verb}: {}", ran.told);
        assert!(ran.took < AT_ONCE && !ran.told.contains("OsWorkerFailed"), "{verb}: {}", ran.told);
        assert!(ends(worker, AT_ONCE), "{verb}: the worker outlives it");
    }
}

/// The first boot and the daemon tell what hangs, and go on with the next worker.
#[test]
fn services_go_on_after_a_silent_worker() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let played = Played::new(OBSERVES, &["silent", "dies", "late"]);
            let began = Instant::now();
            let ran = played.end(played.first_boot(), began);
            assert!(ran.status.success() && ran.took < 2 * LIMIT, "{}", ran.told);
            let words = ["OsWorkerFailed", "did not answer within 30 s", "the double dies here"];
            assert!(words.iter().all(|word| ran.told.contains(word)), "{}", ran.told);
            played.no_worker_is_left(OBSERVES);
        });
        scope.spawn(|| {
            let played = Played::new(OBSERVES, &["silent", "half", "dies"]);
            let (began, agent) = (Instant::now(), played.daemon());
            let applied = played.host.at("host/etc/mca-plain/1/1");
            while !applied.exists() && began.elapsed() < 3 * LIMIT {
                std::thread::sleep(Duration::from_millis(100));
            }
            let workers = played.workers(OBSERVES);
            none_is_left(&workers[..workers.len().min(3)]);
            kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
            let ran = played.end(agent, began);
            assert!(ran.status.success() && applied.exists(), "{}", ran.told);
            assert!(ran.told.matches("did not answer within 30 s").count() >= 2, "{}", ran.told);
            // A worker that the stop interrupts is left to the init process, which takes its time.
            for worker in played.workers(OBSERVES) {
                assert!(ends(worker, AT_ONCE), "{worker:?} outlives the daemon");
            }
        });
    });
}

/// Labels are asked for in the middle of a batch, where no event is heard.
#[test]
fn labels_without_answer_end_batch() {
    let cases =
        [("silent", "did not answer within 30 s and was killed"), ("dies", "gave none for"), ("late", "")];
    std::thread::scope(|scope| {
        for (play, words) in cases {
            scope.spawn(move || {
                let played = Played::new(LABELS, &[play]);
                let contexts = played.host.at("host/etc/selinux/test/contexts/files");
                fs::create_dir_all(&contexts).unwrap();
                fs::write(contexts.join("file_contexts"), "/.* system_u:object_r:etc_t:s0\n").unwrap();
                let settings = "SELINUX=permissive\nSELINUXTYPE=test\n";
                fs::write(played.host.at("host/etc/selinux/config"), settings).unwrap();
                let ran = played.end(played.apply(), Instant::now());
                played.no_worker_is_left(LABELS);
                if words.is_empty() {
                    assert!(ran.status.success(), "{play}: {}", ran.told);
                } else {
                    failed_and_goes_on(&played, play, &ran, &[words]);
                    assert!(ran.took < LIMIT, "{play}: {:?}", ran.took);
                }
            });
        }
    });
}
