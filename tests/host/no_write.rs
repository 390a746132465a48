//! System calls as strace lists them: a batch that is right already costs no write (no rename, no sync, no new
//! file, no process), and whatever is written is synced before anything is built on it. Without strace this
//! fails: `. ./setup` installs it.

use std::path::Path;
use std::process::Command;

use machine_config_agent::host::durable::{Attempt, Change, DesiredPath, Done, apply_changes};
use machine_config_agent::host::systemd::{LinkVerb, UnitLinks};
use machine_config_agent::host::{FailPoints, Root};
use machine_config_agent::model::UnitName;
use serde_json::{Value, json};

use crate::test_host::{self, BINARY, Node, STATE};
use crate::trace::{self, Did, calls, faults, unnoticed};

const DIRECTORY: &str = "MCA_TEST_DIRECTORY";
const FILES: usize = 300;
/// Calls of a possible write.
const CALLS: &str = "trace=rename,renameat,renameat2,fsync,fdatasync,sync,syncfs,sync_file_range,unlink,unlinkat,mkdir,\
                     mkdirat,symlink,symlinkat,link,linkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,setxattr,\
                     fsetxattr,removexattr,fremovexattr,truncate,ftruncate,pwrite64,pwritev,execve,openat,openat2";

fn batch(root: &Root, run: Attempt) -> Done {
    let paths: Vec<String> =
        (0..FILES).map(|number| format!("/etc/dir{}/file{number}", number % 7)).collect();
    let mut changes: Vec<Change<'_>> = paths
        .iter()
        .map(|path| Change::new(path.as_str(), 0, DesiredPath::file(path.as_bytes(), 0o644, 0, 0)))
        .collect();
    changes.push(Change::new("/etc/link", 0, DesiredPath::link("/dev/null")));
    changes.push(Change::new("/etc/absent", 0, DesiredPath::Absent));
    let done = apply_changes(root, &changes, run, &FailPoints::off()).unwrap();
    let mut links = UnitLinks::load(root).unwrap();
    links.make(LinkVerb::Enable, &UnitName::new("crio.service").unwrap()).unwrap();
    apply_changes(root, &links.changes(&[]), run, &FailPoints::off()).unwrap();
    done
}

#[test]
#[ignore = "a child of `unchanged_batch_writes_nothing`"]
fn child() {
    let root = Root::open(Path::new(&std::env::var(DIRECTORY).unwrap())).unwrap();
    assert_eq!(batch(&root, Attempt::First).changed, 0);
}

/// Returns true if a line of strace is about something that writes.
fn writes(line: &str) -> bool {
    let opens = line.contains("openat(") || line.contains("openat2(");
    let to_write = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| line.contains(flag));
    // `<... resumed>` and signals carry no call.
    line.contains('(') && (!opens || to_write) && !line.contains("+++") && !line.contains("---")
}

#[test]
fn unchanged_batch_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let units = dir.path().join("usr/lib/systemd/system");
    std::fs::create_dir_all(&units).unwrap();
    std::fs::write(units.join("crio.service"), "[Install]\nWantedBy=multi-user.target\n").unwrap();
    let root = Root::open(dir.path()).unwrap();
    assert_eq!(batch(&root, Attempt::First).changed, FILES + 1);
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", CALLS, "-o"])
        .args([log.path(), &std::env::current_exe().unwrap()])
        .args(["--exact", "no_write::child", "--ignored", "--quiet", "--test-threads=1"])
        .env(DIRECTORY, dir.path())
        .output()
        .expect("strace is needed: . ./setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = std::fs::read_to_string(log.path()).unwrap();
    // The child has looked at the files; the first exec is its own start.
    assert!(log.matches("\"file299\"").count() > 0, "the trace does not show the child's work");
    let writes: Vec<&str> = log.lines().filter(|line| writes(line)).skip(1).collect();
    assert!(writes.is_empty(), "{writes:#?}");
}

/// A host that is followed by strace from its first update on.
struct Traced {
    node: Node,
    /// One for each death, and one.
    logs: Vec<String>,
    boots: u32,
}

impl Traced {
    fn new() -> Self {
        let node = Node::new();
        node.put("root/etc/motd", "of the distribution\n");
        std::fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
        let home = node.path("root/home/core");
        std::os::unix::fs::chown(home, Some(1000), Some(1000)).unwrap();
        Self { node, logs: vec![String::new()], boots: 0 }
    }

    /// One process; returns its exit code, or `None` where it was killed.
    fn run(&mut self, config: &str, fail_point: Option<&str>) -> Option<i32> {
        let log = self.node.path("strace.log");
        let plain = self.node.command(&test_host::apply(config));
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-qq", "-s", "0", "-e", trace::CALLS, "-o"]).arg(&log).arg(BINARY);
        traced.args(plain.get_args()).current_dir(self.node.dir.path());
        if let Some(point) = fail_point {
            traced.env("MCA_FAIL_POINT", point);
        }
        let output = traced.output().unwrap();
        *self.logs.last_mut().unwrap() += &std::fs::read_to_string(&log).unwrap();
        if output.status.code().is_none() {
            self.logs.push(String::new());
        }
        output.status.code()
    }

    /// Applies a config, over as many boots as it takes.
    fn apply(&mut self, config: &str) {
        for _ in 0..4 {
            match self.run(config, None) {
                Some(0) => return,
                code => assert_eq!(code, Some(133), "{config}"),
            }
            self.boots += 1;
            self.node.put("root/proc/sys/kernel/random/boot_id", format!("boot-{}\n", self.boots));
        }
        panic!("{config} takes more than three reboots");
    }

    fn calls(&self) -> Vec<trace::Call> {
        let root = self.node.path("root").canonicalize().unwrap();
        calls(&self.logs, root.to_str().unwrap())
    }
}

fn with_configs() -> Traced {
    let traced = Traced::new();
    let file = |path: &str, text: &str| json!({"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{text}")}});
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let unit = json!({"name": "a.service", "enabled": true, "contents": text});
    let core = |key: &str, hash: &str| json!({"users": [{"name": "core", "sshAuthorizedKeys": [key], "passwordHash": hash}]});
    let put = |name: &str, spec: &Value| {
        let spec = json!({"config": spec});
        traced.node.put(&format!("{name}.json"), test_host::config(name, &spec));
    };
    put(
        "a",
        &json!({"ignition": {"version": "3.4.0"}, "passwd": core("ssh-ed25519 AAAA a", "$6$a$a"),
        "storage": {"files": [file("/etc/motd", "a"), file("/etc/new/deep/a", "a"), file("/opt/a", "a")]},
        "systemd": {"units": [unit]}}),
    );
    put(
        "b",
        &json!({"ignition": {"version": "3.4.0"}, "passwd": core("ssh-ed25519 AAAA b", "$6$b$b"),
        "storage": {"files": [file("/etc/new/deep/a", "b"), file("/etc/other/b", "b")]},
        "systemd": {"units": [{"name": "crio.service", "mask": true}]}}),
    );
    traced
}

/// Every write of two updates: first the contents, then the name, then the record.
#[test]
fn writes_are_synced_before_anything_is_built_on_them() {
    let mut traced = with_configs();
    traced.apply("a.json");
    traced.apply("b.json");
    let calls = traced.calls();
    assert_eq!(faults(&calls), Vec::<String>::new());
    // The negative control: each of the syncs taken out is noticed, but for these.
    let (mut unnoticed, taken) = unnoticed(&calls);
    unnoticed.retain(|did| !stands_in(did));
    // The first originals make their directory beside the record; then its sync is one of the record, too.
    let beside =
        unnoticed.iter().position(|did| matches!(did, Did::Moved { to, .. } if to.ends_with("/record.json")));
    beside.map(|at| unnoticed.remove(at));
    assert!(taken > 80, "{taken} syncs");
    assert_eq!(unnoticed, Vec::new(), "of {taken}");
}

/// Returns true if another sync of the same directory follows before anything is built on what was done.
fn stands_in(did: &Did) -> bool {
    match did {
        // A directory that is made gets its owner and mode; then it gets its first entry.
        Did::Changed(path) => path.ends_with("machine-config-agent") || path.contains("/.ssh"),
        // The image follows; the record is still there.
        Did::Moved { to, .. } => to.ends_with("/currentconfig"),
        // The target goes right after the record; without a record it means nothing.
        // The directory of the file, or of the link, was made for it, and goes right after it.
        Did::Removed(path) => {
            let goes_alone = ["/record.json", "/target.json", "/multi-user.target.wants/a.service"];
            goes_alone.iter().any(|end| path.ends_with(end)) || path == "/opt/a"
        }
        Did::Created(_) | Did::Named(_) | Did::Synced(_) => false,
    }
}

/// Has the update to b die at one point, and another process take it on, or back; `None` where no such point is.
fn killed(point: usize) -> Option<Vec<String>> {
    let mut traced = with_configs();
    traced.apply("a.json");
    if traced.run("b.json", Some(&format!("kill:{point}"))).is_some() {
        return None;
    }
    traced.apply(if point.is_multiple_of(2) { "a.json" } else { "b.json" });
    Some(faults(&traced.calls()))
}

/// The same after a process died anywhere: the next one syncs what is there before it builds on it, forwards and back.
#[test]
fn leftovers_of_killed_process_are_synced_first() {
    const WORKERS: usize = 4;
    let worker = |first: usize| {
        let mut points = 0;
        for point in (first..).step_by(WORKERS) {
            let Some(faults) = killed(point) else { return points };
            assert_eq!(faults, Vec::<String>::new(), "killed at point {point}");
            points += 1;
        }
        points
    };
    let points: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=WORKERS).map(|first| scope.spawn(move || worker(first))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert!(points > 40, "{points}");
}
