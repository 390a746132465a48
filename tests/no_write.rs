//! A batch that is right already costs no write: no rename, no sync, no new file, no process. The kernel is asked,
//! through strace, without which this fails: `. ./setup` installs it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test looks at the machine from outside"
)]

use std::path::Path;
use std::process::Command;

use machine_config_agent::host::durable::{Change, Done, Run, Want, carry_out};
use machine_config_agent::host::systemd::{LinkVerb, UnitLinks};
use machine_config_agent::host::{FailPoints, Root};
use machine_config_agent::model::UnitName;

const DIRECTORY: &str = "MCA_TEST_DIRECTORY";
const FILES: usize = 300;
/// What a write could look like.
const CALLS: &str = "trace=rename,renameat,renameat2,fsync,fdatasync,sync,syncfs,sync_file_range,unlink,unlinkat,mkdir,\
                     mkdirat,symlink,symlinkat,link,linkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,setxattr,\
                     fsetxattr,truncate,ftruncate,pwrite64,pwritev,execve,openat,openat2";

fn batch(root: &Root, run: Run) -> Done {
    let paths: Vec<String> =
        (0..FILES).map(|number| format!("/etc/dir{}/file{number}", number % 7)).collect();
    let mut changes: Vec<Change<'_>> = paths
        .iter()
        .map(|path| Change::new(path.as_str(), 0, Want::file(path.as_bytes(), 0o644, 0, 0)))
        .collect();
    changes.push(Change::new("/etc/link", 0, Want::Link { target: "/dev/null".to_owned() }));
    changes.push(Change::new("/etc/absent", 0, Want::Absent));
    let done = carry_out(root, &changes, run, &FailPoints::off()).unwrap();
    let mut links = UnitLinks::load(root).unwrap();
    links.make(LinkVerb::Enable, &UnitName::new("crio.service").unwrap()).unwrap();
    carry_out(root, &links.changes(&[]), run, &FailPoints::off()).unwrap();
    done
}

#[test]
#[ignore = "a child of `an_unchanged_batch_writes_nothing`"]
fn child() {
    let root = Root::open(Path::new(&std::env::var(DIRECTORY).unwrap())).unwrap();
    assert_eq!(batch(&root, Run::First).changed, 0);
}

/// Says whether a line of strace is about something that writes.
fn writes(line: &str) -> bool {
    let opens = line.contains("openat(") || line.contains("openat2(");
    let to_write = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| line.contains(flag));
    // `<... resumed>` and signals carry no call.
    line.contains('(') && (!opens || to_write) && !line.contains("+++") && !line.contains("---")
}

#[test]
fn an_unchanged_batch_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let units = dir.path().join("usr/lib/systemd/system");
    std::fs::create_dir_all(&units).unwrap();
    std::fs::write(units.join("crio.service"), "[Install]\nWantedBy=multi-user.target\n").unwrap();
    let root = Root::open(dir.path()).unwrap();
    assert_eq!(batch(&root, Run::First).changed, FILES + 1);
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", CALLS, "-o"])
        .args([log.path(), &std::env::current_exe().unwrap()])
        .args(["--exact", "child", "--ignored", "--quiet", "--test-threads=1"])
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
