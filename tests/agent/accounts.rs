//! Accounts and groups of a config on a host that the agent watches: made, drifted, left, and appeared later.

use std::fs;
use std::path::Path;
use std::time::Duration;

use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::{NodeReport, NodeState};

use crate::fake_control_plane::FakeControlPlane;
use crate::plain_host;
use crate::run::{after, agent};

const MINUTE: Duration = Duration::from_secs(60);
const RECORDS: &str = "var/lib/machine-config-agent/accounts.json";

fn config(name: &str, passwd: &str) -> String {
    format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
        "passwd":{passwd}}}}}}}"#
    )
}

fn plane(configs: &[(&str, &str)]) -> FakeControlPlane {
    let plane = FakeControlPlane::wanting(configs[0].0, None);
    for (name, passwd) in configs {
        plane.config(name, &config(name, passwd));
    }
    plane
}

fn done(report: &NodeReport) {
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
}

/// The fields that this host does not get, with the reason.
fn not_applied(report: &NodeReport) -> Vec<String> {
    let mut named: Vec<String> =
        report.not_applied.iter().map(|one| format!("{} {}", one.because.as_str(), one.field)).collect();
    named.sort();
    named
}

fn add(at: &Path, file: &str, line: &str) {
    let path = at.join(file);
    let text = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, format!("{text}{line}\n")).unwrap();
}

fn want(plane: &FakeControlPlane, name: &str) {
    *plane.desired.borrow_mut() = Target::new(ConfigName::new(name).unwrap(), None);
    plane.nudge.notify_one();
}

/// Lets the agent go on until it has reached a config. The host's programs take time of the machine, not of this clock.
async fn settled(
    run: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    plane: &FakeControlPlane,
    name: &str,
) -> NodeReport {
    for _ in 0..1000 {
        let report = after(run, plane, Duration::from_millis(100)).await;
        let is_reached = report.current_config.as_ref().is_some_and(|one| one.as_str() == name);
        if report.state == NodeState::Done && is_reached {
            return report;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} is not reached: {:#?}", plane.reports.borrow().last())
}

/// Edits a file as an administrator does.
fn edit(at: &Path, file: &str, old: &str, new: &str) {
    let text = fs::read_to_string(at.join(file)).unwrap();
    assert!(text.contains(old), "{file}: {text}");
    fs::write(at.join(file), text.replacen(old, new, 1)).unwrap();
}

#[expect(clippy::disallowed_types, reason = "it plays an administrator")]
fn program(at: &Path, program: &str, arguments: &[&str]) {
    let output =
        std::process::Command::new(program).arg("--prefix").arg(at).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// `core` on a host that comes without it: its keys and its password follow when it appears, with no new target; a restart of
/// the agent in between changes nothing.
#[tokio::test(start_paused = true)]
async fn keys_follow_account_that_appears() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    let users = r#"{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 k1"],"passwordHash":"$6$x"}]}"#;
    let plane = plane(&[("rendered-a", users)]);
    let mut first = agent(at, &plane);
    let report = after(&mut Box::pin(first.run()), &plane, MINUTE).await;
    done(&report);
    assert_eq!(not_applied(&report), ["host-lacks passwd.users \"core\""], "{report:#?}");
    drop(first);
    let current = fs::read_to_string(at.join("var/lib/machine-config-agent/current.json")).unwrap();
    assert!(current.contains(r#""neverApplied":["passwd.users \"core\""]"#), "{current}");

    let mut second = agent(at, &plane);
    let mut run = Box::pin(second.run());
    let report = after(&mut run, &plane, MINUTE).await;
    done(&report);
    assert_eq!(not_applied(&report), ["host-lacks passwd.users \"core\""], "{report:#?}");
    fs::create_dir_all(at.join("home/core")).unwrap();
    std::os::unix::fs::lchown(at.join("home/core"), Some(1000), Some(1000)).unwrap();
    add(at, "etc/shadow", "core:!:19000:0:99999:7:::");
    add(at, "etc/passwd", "core:x:1000:1000::/home/core:/bin/sh");
    let report = after(&mut run, &plane, MINUTE).await;
    done(&report);
    assert_eq!(not_applied(&report), Vec::<String>::new(), "{report:#?}");
    let keys = fs::read_to_string(at.join("home/core/.ssh/authorized_keys.d/ignition")).unwrap();
    assert_eq!(keys, "ssh-ed25519 k1\n");
    assert!(fs::read_to_string(at.join("etc/shadow")).unwrap().contains("core:$6$x:19000"));
    let drained = plane.reports.borrow().iter().any(|report| report.phase == "Draining");
    assert!(!drained, "nothing was drained for it");
    let current = fs::read_to_string(at.join("var/lib/machine-config-agent/current.json")).unwrap();
    assert!(current.contains(r#""neverApplied":[]"#), "{current}");

    // From now on it is drift, as of any other account.
    fs::write(at.join("home/core/.ssh/authorized_keys.d/ignition"), "ssh-ed25519 other\n").unwrap();
    let report = after(&mut run, &plane, MINUTE).await;
    assert_eq!(report.state, NodeState::Degraded, "{report:#?}");
}

/// Accounts and groups are made by the host's programs, watched, and locked or removed when they leave the config.
#[tokio::test(start_paused = true)]
async fn accounts_are_made_watched_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    add(at, "etc/shadow", "root:*:19000:0:99999:7:::");
    let passwd = r#"{"groups":[{"name":"staff","gid":1600}],
        "users":[{"name":"app","uid":1500,"groups":["staff"],"sshAuthorizedKeys":["ssh-ed25519 app"]}]}"#;
    let plane = plane(&[("rendered-a", passwd), ("rendered-b", "{}")]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    let read = |path: &str| fs::read_to_string(at.join(path)).unwrap();
    done(&settled(&mut run, &plane, "rendered-a").await);
    assert!(read("etc/group").contains("staff:x:1600:app\n"), "{}", read("etc/group"));
    assert!(read("etc/passwd").contains("app:x:1500:"));
    assert!(read(RECORDS).contains(r#""app":{"maker":"agent","uid":1500}"#));
    assert!(
        read("etc/shadow").lines().any(|line| line.starts_with("app:") && line.ends_with(":1500")),
        "its mark"
    );
    assert_eq!(read("home/app/.ssh/authorized_keys.d/ignition"), "ssh-ed25519 app\n");

    let group = read("etc/group");
    fs::write(at.join("etc/group"), group.replace("staff:x:1600:app", "staff:x:1600:")).unwrap();
    let report = after(&mut run, &plane, MINUTE).await;
    assert!(report.state == NodeState::Degraded && report.reason.contains("staff"), "{report:#?}");
    fs::write(at.join("etc/group"), group).unwrap();
    done(&after(&mut run, &plane, MINUTE).await);

    want(&plane, "rendered-b");
    done(&settled(&mut run, &plane, "rendered-b").await);
    assert!(!read("etc/group").contains("staff"));
    assert!(read("etc/shadow").lines().any(|line| line.starts_with("app:*:") && line.ends_with(":1:1500")));
    assert!(at.join("home/app").is_dir() && !at.join("home/app/.ssh/authorized_keys.d/ignition").exists());
    drop(run);
    assert!(!plane.reports.borrow().iter().any(|report| report.phase == "Draining"));
}

/// The take-over of a node on which MCD had committed what it never managed: neither drift nor Degraded.
#[tokio::test(start_paused = true)]
async fn imported_accounts_are_neither_made_nor_drift() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    let passwd =
        r#"{"groups":[{"name":"staff"}],"users":[{"name":"app","sshAuthorizedKeys":["ssh-ed25519 app"]}]}"#;
    fs::create_dir_all(at.join("etc/machine-config-daemon")).unwrap();
    fs::write(at.join("etc/machine-config-daemon/currentconfig"), config("rendered-a", passwd)).unwrap();
    let plane = plane(&[("rendered-a", passwd)]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    let report = after(&mut run, &plane, MINUTE).await;
    done(&report);
    let named = ["host-lacks passwd.groups \"staff\"", "host-lacks passwd.users \"app\""];
    assert_eq!(not_applied(&report), named, "{report:#?}");
    let passwd = fs::read_to_string(at.join("etc/passwd")).unwrap();
    assert!(!passwd.contains("app"), "{passwd}");
    let current = fs::read_to_string(at.join("var/lib/machine-config-agent/current.json")).unwrap();
    assert!(
        current.contains(r#"passwd.users \"app\""#) && current.contains(r#"passwd.groups \"staff\""#),
        "{current}"
    );
}

const KEYS: &str = "home/app/.ssh/authorized_keys.d/ignition";

/// Words of the difference, and what an administrator edits: file, text, new text.
const DRIFT: [(&str, &str, &str, &str); 9] = [
    (
        "shell",
        "etc/passwd",
        "/bin/sh\napp:x:1500:1500:The app:/home/app:/bin/sh",
        "/bin/sh\napp:x:1500:1500:The app:/home/app:/bin/ash",
    ),
    ("gecos", "etc/passwd", ":The app:", ":Another:"),
    ("uid", "etc/passwd", "app:x:1500:", "app:x:1577:"),
    ("missing", "etc/passwd", "app:x:1500:1500:The app:/home/app:/bin/sh\n", ""),
    ("password", "etc/shadow", "app:$6$x:", "app:!$6$x:"),
    ("expir", "etc/shadow", ":::1500", "::1:1500"),
    ("member of staff", "etc/group", "staff:x:1600:app", "staff:x:1600:"),
    ("gid", "etc/group", "staff:x:1600:", "staff:x:1601:"),
    ("keys", KEYS, "ssh-ed25519 app", "ssh-ed25519 other"),
];

/// Each is reported as long as it lasts; accounts are never repaired, and nothing else is touched.
#[tokio::test(start_paused = true)]
async fn each_change_of_account_is_drift_until_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    add(at, "etc/shadow", "root:*:19000:0:99999:7:::");
    let passwd = r#"{"groups":[{"name":"staff","gid":1600}],
        "users":[{"name":"app","uid":1500,"groups":["staff"],"sshAuthorizedKeys":["ssh-ed25519 app"],"gecos":"The app",
        "shell":"/bin/sh","passwordHash":"$6$x"}]}"#;
    let plane = plane(&[("rendered-a", passwd)]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    settled(&mut run, &plane, "rendered-a").await;
    let databases = ["etc/passwd", "etc/shadow", "etc/group", KEYS];
    let read = || databases.map(|path| fs::read_to_string(at.join(path)).unwrap());
    for (words, path, old, new) in DRIFT {
        let before = fs::read_to_string(at.join(path)).unwrap();
        edit(at, path, old, new);
        let edited = read();
        let report = after(&mut run, &plane, MINUTE).await;
        assert_eq!(report.state, NodeState::Degraded, "{words}: {report:#?}");
        let fault = report.fault.unwrap();
        assert!(fault.reason == "ConfigDrift" && fault.message.contains(words), "{words}: {fault}");
        assert_eq!(read(), edited, "{words}: nothing is touched");
        fs::write(at.join(path), before).unwrap();
        done(&after(&mut run, &plane, MINUTE).await);
    }
}

/// An account that an administrator removed and made again is the host's: nothing of it goes with its entry but the config's keys.
#[tokio::test(start_paused = true)]
async fn account_made_again_by_administrator_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    add(at, "etc/shadow", "root:*:19000:0:99999:7:::");
    let passwd = r#"{"users":[{"name":"app","uid":1500,"sshAuthorizedKeys":["ssh-ed25519 app"]}]}"#;
    let plane = plane(&[("rendered-a", passwd), ("rendered-b", "{}")]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    settled(&mut run, &plane, "rendered-a").await;
    program(at, "userdel", &["app"]);
    program(at, "useradd", &["--uid=1500", "--comment=Mine", "--password=$6$own", "app"]);
    let line = |path: &str| {
        let text = fs::read_to_string(at.join(path)).unwrap();
        text.lines().find(|line| line.starts_with("app:")).unwrap_or_default().to_owned()
    };
    let before = ["etc/passwd", "etc/shadow"].map(line);
    want(&plane, "rendered-b");
    done(&settled(&mut run, &plane, "rendered-b").await);
    assert_eq!(["etc/passwd", "etc/shadow"].map(line), before);
    assert!(!at.join(KEYS).exists(), "the keys of the config do not stay");
}

/// `core` is deleted by hand: named, and not Done in silence. Its keys and password follow when it is back.
#[tokio::test(start_paused = true)]
async fn core_that_was_deleted_is_named_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    let (line, shadow) = ("core:x:1000:1000::/home/core:/bin/sh", "core:!:19000:0:99999:7:::");
    let appear = || {
        fs::create_dir_all(at.join("home/core")).unwrap();
        std::os::unix::fs::lchown(at.join("home/core"), Some(1000), Some(1000)).unwrap();
        add(at, "etc/shadow", shadow);
        add(at, "etc/passwd", line);
    };
    let vanish = || {
        for file in ["etc/passwd", "etc/shadow"] {
            let text = fs::read_to_string(at.join(file)).unwrap();
            let kept: String = text.split_inclusive('\n').filter(|line| !line.starts_with("core:")).collect();
            fs::write(at.join(file), kept).unwrap();
        }
        fs::remove_dir_all(at.join("home/core")).unwrap();
    };
    appear();
    let users = r#"{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 k1"],"passwordHash":"$6$x"}]}"#;
    let plane = plane(&[("rendered-a", users)]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    done(&after(&mut run, &plane, MINUTE).await);
    for _ in 0..2 {
        vanish();
        let report = after(&mut run, &plane, MINUTE).await;
        let named: Vec<&str> = report.not_applied.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(named, ["passwd.users \"core\""], "{report:#?}");
        appear();
        let report = after(&mut run, &plane, MINUTE).await;
        assert_eq!(report.not_applied, [], "{report:#?}");
        done(&report);
        let keys = fs::read_to_string(at.join("home/core/.ssh/authorized_keys.d/ignition")).unwrap();
        assert_eq!(keys, "ssh-ed25519 k1\n");
        assert!(fs::read_to_string(at.join("etc/shadow")).unwrap().contains("core:$6$x:"));
    }
}

/// A user's own edit of his keys file is drift, and holds no update of something else: that sets the keys again.
#[tokio::test(start_paused = true)]
async fn edit_of_keys_holds_no_other_update() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    add(at, "etc/shadow", "root:*:19000:0:99999:7:::");
    let app = r#"{"name":"app","uid":1500,"sshAuthorizedKeys":["ssh-ed25519 app"],"passwordHash":"$6$x"}"#;
    let (one, two) =
        (format!(r#"{{"users":[{app}]}}"#), format!(r#"{{"users":[{app}],"groups":[{{"name":"staff"}}]}}"#));
    let plane = plane(&[("rendered-a", &one), ("rendered-b", &two), ("rendered-c", &one)]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    settled(&mut run, &plane, "rendered-a").await;
    edit(at, KEYS, "ssh-ed25519 app", "ssh-ed25519 own");
    let report = after(&mut run, &plane, MINUTE).await;
    assert_eq!(report.fault.map(|fault| fault.reason).as_deref(), Some("ConfigDrift"));
    want(&plane, "rendered-b");
    done(&settled(&mut run, &plane, "rendered-b").await);
    assert_eq!(fs::read_to_string(at.join(KEYS)).unwrap(), "ssh-ed25519 app\n");
    assert!(fs::read_to_string(at.join("etc/group")).unwrap().contains("staff:"));

    // An administrator locked the account: an update does not open it.
    edit(at, "etc/shadow", "app:$6$x:", "app:!$6$x:");
    after(&mut run, &plane, MINUTE).await;
    want(&plane, "rendered-c");
    let report = after(&mut run, &plane, MINUTE).await;
    assert_eq!(report.state, NodeState::Degraded, "{report:#?}");
    assert!(report.fault.unwrap().next.contains("passwd.users"), "{:#?}", plane.reports.borrow().last());
    assert!(fs::read_to_string(at.join("etc/shadow")).unwrap().contains("app:!$6$x:"));
}

/// A group that an administrator made again under the name, with the same gid, stays when its entry leaves.
#[tokio::test(start_paused = true)]
async fn group_made_again_by_administrator_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plain_host::bare(at);
    add(at, "etc/gshadow", "root:*::");
    let groups = r#"{"groups":[{"name":"staff","gid":1600}]}"#;
    let plane = plane(&[("rendered-a", groups), ("rendered-b", "{}")]);
    let mut agent = agent(at, &plane);
    let mut run = Box::pin(agent.run());
    settled(&mut run, &plane, "rendered-a").await;
    program(at, "groupdel", &["staff"]);
    program(at, "groupadd", &["--gid=1600", "staff"]);
    want(&plane, "rendered-b");
    done(&settled(&mut run, &plane, "rendered-b").await);
    assert!(fs::read_to_string(at.join("etc/group")).unwrap().contains("staff:x:1600:"));
}
