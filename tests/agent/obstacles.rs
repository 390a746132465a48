//! An update that this host does not let be written: refused before the drain, begun by itself when the host is mended; and one
//! that turns out so after the drain, whose node takes its workload back.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::fake_control_plane::seen_before::{SEEN_BEFORE, is_seen_before};
use crate::plain_host;
use crate::run::{after, agent};
use machine_config_agent::control::DrainStatus;
use machine_config_agent::host::HostError;
use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::NodeState;
use machine_config_agent::update::Fault;
use machine_config_agent::update::ending::LATER;
use rustix::fs::{FileType, IFlags, Mode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// Drains for its file, and needs no reboot.
const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc","actions":[{"type":"Drain"}]}],
    "units":[{"name":"a.service","actions":[{"type":"Drain"}]}],"sshkey":{"actions":[{"type":"Drain"}]}}}}"#;

const PATH: &str = "etc/way/file";

fn config(name: &str, more: &str) -> String {
    format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
        "storage":{{"files":[{{"path":"/{PATH}","contents":{{"source":"data:,{name}"}}}}]}}{more}}}}}}}"#
    )
}

fn plane(more: &str) -> FakeControlPlane {
    let plane = FakeControlPlane::wanting("rendered-a", None);
    plane.policy(POLICY);
    plane.config("rendered-b", &config("rendered-b", more));
    plane.drained.borrow_mut().push(DrainStatus::Yes);
    plane
}

fn want(plane: &FakeControlPlane, name: &str) {
    *plane.desired.borrow_mut() = Target::new(ConfigName::new(name).unwrap(), None);
    plane.nudge.notify_one();
}

type Act = fn(&Path);

/// Name, words of the refusal, the obstacle, and its end; each on a host with the account `core` and the unit `a.service`.
const OBSTACLES: [(&str, &str, Act, Act); 11] = [
    (
        "a directory in its place",
        "a directory is there, which no config made",
        |at| fs::create_dir_all(at.join("etc/way/file/in")).unwrap(),
        |at| fs::remove_dir_all(at.join("etc/way/file")).unwrap(),
    ),
    (
        "a pipe in its place",
        "/etc/way/file is a pipe",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, at.join(PATH), FileType::Fifo, Mode::RWXU, 0).unwrap();
        },
        |at| fs::remove_file(at.join(PATH)).unwrap(),
    ),
    (
        "a file in place of its directory",
        "not a directory",
        |at| fs::write(at.join("etc/way"), "").unwrap(),
        |at| fs::remove_file(at.join("etc/way")).unwrap(),
    ),
    (
        "a directory that all may write to",
        "can be written by others",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            fs::set_permissions(at.join("etc/way"), fs::Permissions::from_mode(0o777)).unwrap();
        },
        |at| fs::set_permissions(at.join("etc/way"), fs::Permissions::from_mode(0o755)).unwrap(),
    ),
    (
        "a file that is too large to be kept",
        "original of at most",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            fs::File::create(at.join(PATH)).unwrap().set_len(17 << 20).unwrap();
        },
        |at| fs::remove_file(at.join(PATH)).unwrap(),
    ),
    (
        "an immutable file",
        "is immutable",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            fs::write(at.join(PATH), "of an administrator").unwrap();
            flags(&at.join(PATH), IFlags::IMMUTABLE);
        },
        |at| flags(&at.join(PATH), IFlags::empty()),
    ),
    (
        "an immutable directory",
        "is immutable",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            flags(&at.join("etc/way"), IFlags::IMMUTABLE);
        },
        |at| flags(&at.join("etc/way"), IFlags::empty()),
    ),
    (
        "a directory in place of a link of the unit",
        "a.service exists and is not a link",
        |at| fs::create_dir_all(at.join("etc/systemd/system/multi-user.target.wants/a.service/in")).unwrap(),
        |at| fs::remove_dir_all(at.join("etc/systemd/system/multi-user.target.wants/a.service")).unwrap(),
    ),
    (
        "a mount over it",
        "is a mount point",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            fs::write(at.join(PATH), "").unwrap();
            fs::write(at.join("etc/over"), "").unwrap();
            rustix::mount::mount_bind(at.join("etc/over"), at.join(PATH)).unwrap();
        },
        |at| rustix::mount::unmount(at.join(PATH), UnmountFlags::DETACH).unwrap(),
    ),
    (
        "a file system without space",
        "KiB free",
        |at| {
            fs::create_dir(at.join("etc/way")).unwrap();
            let size = Some(c"size=16k");
            rustix::mount::mount("x", at.join("etc/way"), "tmpfs", MountFlags::empty(), size).unwrap();
            let full = fs::write(at.join("etc/way/full"), [b'x'; 32 << 10]);
            assert!(full.is_err(), "it is not full");
        },
        |at| rustix::mount::unmount(at.join("etc/way"), UnmountFlags::DETACH).unwrap(),
    ),
    (
        "a mask of the unit",
        "it is masked on this host",
        |at| symlink("/dev/null", at.join("etc/systemd/system/a.service")).unwrap(),
        |at| fs::remove_file(at.join("etc/systemd/system/a.service")).unwrap(),
    ),
];

/// The same of accounts that the config makes.
const OF_ACCOUNTS: [(&str, &str, Act, Act); 6] = [
    (
        "a home that is another account's and not there",
        "/home/app is the home of other",
        |at| {
            let text = fs::read_to_string(at.join("etc/passwd")).unwrap();
            fs::write(at.join("etc/passwd"), text + "other:x:1501:1501::/home/app:/bin/sh\n").unwrap();
        },
        |at| {
            let text = fs::read_to_string(at.join("etc/passwd")).unwrap();
            let line = "other:x:1501:1501::/home/app:/bin/sh\n";
            fs::write(at.join("etc/passwd"), text.replace(line, "")).unwrap();
        },
    ),
    (
        "an immutable database",
        "/etc/passwd is immutable",
        |at| flags(&at.join("etc/passwd"), IFlags::IMMUTABLE),
        |at| flags(&at.join("etc/passwd"), IFlags::empty()),
    ),
    (
        "a lock file of no process",
        "/etc/group.lock names no process",
        |at| fs::write(at.join("etc/group.lock"), "").unwrap(),
        |at| fs::remove_file(at.join("etc/group.lock")).unwrap(),
    ),
    (
        "a home that is a file",
        "/home/app is a file",
        |at| fs::write(at.join("home/app"), "").unwrap(),
        |at| fs::remove_file(at.join("home/app")).unwrap(),
    ),
    (
        "a home of another account",
        "/home/app exists and belongs to core",
        |at| {
            fs::create_dir(at.join("home/app")).unwrap();
            chown(at.join("home/app"), Some(1000), Some(1000)).unwrap();
        },
        |at| fs::remove_dir(at.join("home/app")).unwrap(),
    ),
    (
        "an id of another account",
        "uid 1500 belongs to other",
        |at| {
            let text = fs::read_to_string(at.join("etc/passwd")).unwrap();
            fs::write(at.join("etc/passwd"), text + "other:x:1500:1500::/:/bin/sh\n").unwrap();
        },
        |at| {
            let text = fs::read_to_string(at.join("etc/passwd")).unwrap();
            fs::write(at.join("etc/passwd"), text.replace("other:x:1500:1500::/:/bin/sh\n", "")).unwrap();
        },
    ),
];

const ACCOUNT: &str =
    r#","passwd":{"users":[{"name":"app","uid":1500,"sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}"#;

const MORE: &str = r#","systemd":{"units":[{"name":"a.service","enabled":true}]},
    "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}"#;

fn flags(path: &Path, flags: IFlags) {
    let file = fs::File::open(path).unwrap();
    let kept = rustix::fs::ioctl_getflags(&file).unwrap() - IFlags::IMMUTABLE;
    rustix::fs::ioctl_setflags(&file, kept | flags).unwrap();
}

fn can_mount(at: &Path) -> bool {
    rustix::mount::mount_bind(at, at).and_then(|()| rustix::mount::unmount(at, UnmountFlags::DETACH)).is_ok()
}

fn host() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    fs::write(at.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n")
        .unwrap();
    fs::write(at.join("etc/shadow"), "core:*:1\n").unwrap();
    for directory in ["home/core", "usr/lib/systemd/system", "etc/systemd/system"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    chown(at.join("home/core"), Some(1000), Some(1000)).unwrap();
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    fs::write(at.join("usr/lib/systemd/system/a.service"), unit).unwrap();
    dir
}

#[tokio::test(start_paused = true)]
async fn obstacle_is_refused_before_drain_and_its_end_begins_update() {
    for (name, words, block, clear) in OBSTACLES {
        let dir = host();
        if (name.contains("mount") || name.contains("space")) && !can_mount(dir.path()) {
            crate::ran::not_run("obstacle_is_refused_before_drain", "to mount (CAP_SYS_ADMIN)");
            continue;
        }
        let plane = plane(MORE);
        let mut agent = agent(dir.path(), &plane);
        let mut run = Box::pin(agent.run());
        assert_eq!(after(&mut run, &plane, Duration::from_secs(1)).await.state, NodeState::Done, "{name}");
        block(dir.path());
        want(&plane, "rendered-b");
        let report = after(&mut run, &plane, LATER * 6).await;
        let fault = report.fault.as_ref().unwrap_or_else(|| panic!("{name}: {report:#?}"));
        assert_eq!(
            (report.state, fault.reason.as_str()),
            (NodeState::Unreconcilable, "HostNotPrepared"),
            "{name}: {fault}"
        );
        assert!(fault.message.contains(words), "{name}: {fault}");
        assert!(!plane.requests.borrow().contains(&"drain"), "{name}: it was drained in vain");
        clear(dir.path());
        let report = after(&mut run, &plane, LATER * 2).await;
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{name}: {report:#?}");
        assert_eq!(fs::read_to_string(dir.path().join(PATH)).unwrap(), "rendered-b", "{name}");
        assert!(plane.requests.borrow().contains(&"drain"), "{name}: the update drains");
    }
}

/// What would refuse an account, or the programs that make it, is seen before the drain, too.
#[tokio::test(start_paused = true)]
async fn obstacle_of_account_is_refused_before_drain() {
    for (name, words, block, clear) in OF_ACCOUNTS {
        let dir = host();
        let plane = plane(ACCOUNT);
        plane.config("rendered-c", &config("rendered-c", ACCOUNT));
        let mut agent = agent(dir.path(), &plane);
        let mut run = Box::pin(agent.run());
        after(&mut run, &plane, Duration::from_secs(1)).await;
        block(dir.path());
        want(&plane, "rendered-b");
        let report = after(&mut run, &plane, Duration::from_secs(5)).await;
        let fault = report.fault.as_ref().unwrap_or_else(|| panic!("{name}: {report:#?}"));
        assert_eq!(
            (report.state, fault.reason.as_str()),
            (NodeState::Unreconcilable, "HostNotPrepared"),
            "{name}: {fault}"
        );
        assert!(fault.message.contains(words), "{name}: {fault}");
        assert!(!plane.requests.borrow().contains(&"drain"), "{name}: it was drained in vain");
        clear(dir.path());
        want(&plane, "rendered-c");
        let mut tries = 0;
        // The host's programs take time of the machine, not of this clock.
        while after(&mut run, &plane, Duration::from_millis(100)).await.state != NodeState::Done {
            tries += 1;
            assert!(tries < 1000, "{name}: {:#?}", plane.reports.borrow().last());
            std::thread::sleep(Duration::from_millis(10));
        }
        let keys = dir.path().join("home/app/.ssh/authorized_keys.d/ignition");
        assert_eq!(fs::read_to_string(keys).unwrap(), "ssh-ed25519 AAAA\n", "{name}");
    }
}

/// The obstacle comes with the drain: nothing is changed, and the workload comes back while the update is held. It is tried again
/// by itself, and each try that is refused by its plan costs no other drain.
#[tokio::test(start_paused = true)]
async fn node_takes_workload_back_when_obstacle_comes_after_drain() {
    let dir = host();
    let mut plane = plane("");
    plane.course.host_changes_meanwhile();
    let (reports, way) = (Rc::clone(&plane.reports), dir.path().join(PATH));
    let blocks = Rc::new(std::cell::Cell::new(true));
    let once = Rc::clone(&blocks);
    plane.at_report = Rc::new(move || {
        if reports.borrow().last().is_some_and(|report| report.phase == "Draining") && once.take() {
            fs::create_dir_all(way.join("in")).unwrap();
        }
    });
    let mut agent = agent(dir.path(), &plane);
    let mut run = Box::pin(agent.run());
    after(&mut run, &plane, Duration::from_secs(1)).await;
    want(&plane, "rendered-b");
    let report = after(&mut run, &plane, Duration::from_secs(1)).await;
    assert!(!blocks.get(), "it was drained: {report:#?}");
    assert_eq!(report.state, NodeState::Degraded, "{report:#?}");
    let drains = |plane: &FakeControlPlane| {
        plane.requests.borrow().iter().filter(|request| **request == "drain").count()
    };
    let before = drains(&plane);
    assert_eq!(plane.requests.borrow().last(), Some(&"uncordon"), "{:?}", plane.requests);
    let report = after(&mut run, &plane, LATER * 6).await;
    assert_eq!(report.fault.unwrap().reason, "HostNotPrepared");
    assert_eq!(drains(&plane), before, "a plan that is refused drains nothing");
    assert_eq!(plane.requests.borrow().last(), Some(&"uncordon"), "{:?}", plane.requests);
    fs::remove_dir_all(dir.path().join(PATH)).unwrap();
    let report = after(&mut run, &plane, LATER * 2).await;
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
    assert_eq!(plane.requests.borrow().last(), Some(&"uncordon"), "{:?}", plane.requests);
}

/// What the update could not write of the agent's own, or for machine-config-daemon, is seen before the drain.
#[tokio::test(start_paused = true)]
async fn closed_state_is_refused_before_drain() {
    for path in ["var/lib/machine-config-agent/current.json", "etc/machine-config-daemon/currentconfig"] {
        let dir = host();
        let plane = plane("");
        let mut agent = agent(dir.path(), &plane);
        let mut run = Box::pin(agent.run());
        assert_eq!(after(&mut run, &plane, Duration::from_secs(1)).await.state, NodeState::Done, "{path}");
        flags(&dir.path().join(path), IFlags::IMMUTABLE);
        want(&plane, "rendered-b");
        let report = after(&mut run, &plane, Duration::from_secs(5)).await;
        let fault = report.fault.as_ref().unwrap_or_else(|| panic!("{path}: {report:#?}"));
        assert_eq!(report.state, NodeState::Degraded, "{path}: {fault}");
        assert!(fault.message.contains(path) && fault.next.contains("lsattr -d"), "{path}: {fault}");
        assert!(!plane.requests.borrow().contains(&"drain"), "{path}: it was drained in vain");
        flags(&dir.path().join(path), IFlags::empty());
        let report = after(&mut run, &plane, LATER * 2).await;
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{path}: {report:#?}");
    }
}

/// The checkers of the tests count the cases that a plan sees; their reasons and words are those of the errors.
#[test]
fn errors_that_a_plan_sees_are_those_of_the_checkers() {
    let text = include_str!("../../src/observe/obstacles.rs");
    let mut of_table = BTreeSet::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("//! | `")) {
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{row}");
        for error in cells[0].split(", ") {
            let cases = cells[1].split("; ").filter_map(|case| case.split(": ").next());
            let cases = cases.filter(|case| !case.is_empty());
            of_table.extend(cases.map(|case| (error.trim_matches('`').to_owned(), case.to_owned())));
        }
    }
    let of_checkers: BTreeSet<_> =
        SEEN_BEFORE.iter().map(|case| (case.error.to_owned(), case.case.to_owned())).collect();
    assert_eq!(of_checkers, of_table);
    let io = |errno: Errno| HostError::io("write", "/etc/a", errno);
    let malformed = |path: &str| HostError::Malformed {
        path: path.to_owned(),
        format: "accounts",
        cause: "no name".to_owned(),
    };
    let failed = |program: &str| HostError::Command { program: program.to_owned(), cause: "1".to_owned() };
    let late = |object: &str| HostError::Timeout { object: object.to_owned(), seconds: 1 };
    let kind = HostError::Kind { path: "/etc/a".to_owned(), expected: "a file", found: "a pipe" };
    for (error, is_seen) in [
        (io(Errno::ROFS), true),
        (io(Errno::NOSPC), true),
        (io(Errno::PERM), true),
        (io(Errno::NAMETOOLONG), true),
        (io(Errno::IO), false),
        (io(Errno::BUSY), false),
        (kind, true),
        (HostError::TooLarge { path: "/etc/a".to_owned(), size: 2, limit: 1 }, true),
        (HostError::UnknownAccount { kind: "user", name: "a".to_owned() }, true),
        (HostError::Unit { unit: "a.service".to_owned(), cause: "it is masked".to_owned() }, true),
        (malformed("/etc/passwd"), true),
        (malformed("/var/lib/machine-config-agent/preimages/1/0.json"), false),
        (late("the holder of the lock /etc/.pwd.lock"), true),
        (late("systemd"), false),
        (failed("/usr/sbin/useradd"), true),
        (failed("/usr/sbin/usermod"), true),
        (failed("/usr/sbin/groupadd"), true),
        (failed("/usr/bin/podman"), false),
    ] {
        let fault = Fault::from_error(error.class(), error.reason(), &error, &error.next());
        assert_eq!(is_seen_before(&fault.reason, &fault.message), is_seen, "{fault}");
    }
}
