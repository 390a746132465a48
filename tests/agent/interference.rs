//! What others do on the host while the agent works: an editor that writes once, and a user who leads his own directories
//! astray. Neither holds a target for good, nor one that has nothing to do with it.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::plain_host;
use crate::run::{after, agent};
use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::NodeState;
use machine_config_agent::update::ending::LATER;

const POLICY: &str = r#"{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{"name":"cluster"},
    "spec":{"nodeDisruptionPolicy":{"files":[{"path":"/etc","actions":[{"type":"None"}]}],
    "sshkey":{"actions":[{"type":"None"}]}}}}"#;

/// A config with a file of its own name, and a key of `core` if there is one.
fn config(name: &str, key: Option<&str>) -> String {
    let users = key.map_or(String::new(), |key| {
        format!(r#","passwd":{{"users":[{{"name":"core","sshAuthorizedKeys":["{key}"]}}]}}"#)
    });
    format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
        "storage":{{"files":[{{"path":"/etc/app.conf","contents":{{"source":"data:,{name}"}}}}]}}{users}}}}}}}"#
    )
}

fn target(name: &str) -> Target {
    Target::new(ConfigName::new(name).unwrap(), None)
}

fn plane(keys: &[(&str, Option<&str>)]) -> FakeControlPlane {
    let plane = FakeControlPlane::wanting(keys[0].0, None);
    plane.policy(POLICY);
    for (name, key) in keys {
        plane.config(name, &config(name, *key));
    }
    plane
}

/// The target is tried again by time: undoing it has repaired what was found, so no other event would come.
#[tokio::test(start_paused = true)]
async fn one_write_of_another_program_does_not_hold_target() {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let mut plane = plane(&[("rendered-b", None)]);
    let (file, written) = (dir.path().join("etc/app.conf"), Rc::new(Cell::new(0)));
    let (reports, count, at) = (Rc::clone(&plane.reports), Rc::clone(&written), file.clone());
    plane.at_report = Rc::new(move || {
        if count.get() == 0 && reports.borrow().last().is_some_and(|report| report.phase == "Verifying") {
            fs::write(&at, "of an editor").unwrap();
            count.set(1);
        }
    });
    let mut agent = agent(dir.path(), &plane);
    let mut run = Box::pin(agent.run());
    let report = after(&mut run, &plane, LATER * 2).await;
    assert_eq!(written.get(), 1, "the update came to its verification");
    let found = plane.reports.borrow().iter().any(|report| report.reason.contains("/etc/app.conf"));
    assert!(found, "the other program's write was found");
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "rendered-b");
}

/// A config that needs an account of this host waits for it: the administrator's hand ends that, not another target. The
/// waits have grown to their longest by then.
#[tokio::test(start_paused = true)]
async fn account_created_on_host_ends_refusal() {
    const NEEDY: &str = r#"{"kind":"MachineConfig","metadata":{"name":"rendered-b"},"spec":{"config":{"ignition":{"version":"3.4.0"},
        "storage":{"files":[{"path":"/etc/app.conf","user":{"name":"app"},"contents":{"source":"data:,b"}}]}}}}"#;
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    let plane = plane(&[("rendered-b", None)]);
    plane.config("rendered-b", NEEDY);
    let mut agent = agent(dir.path(), &plane);
    let mut run = Box::pin(agent.run());
    let report = after(&mut run, &plane, LATER * 6).await;
    let fault = report.fault.unwrap();
    assert_eq!((report.state, fault.reason.as_str()), (NodeState::Unreconcilable, "HostNotPrepared"));
    assert!(fault.message.contains("no user \"app\""), "{fault}");
    assert!(!dir.path().join("etc/app.conf").exists(), "nothing was changed");
    assert!(!plane.requests.borrow().contains(&"drain"), "nothing was drained for it");

    let accounts = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/:/bin/sh\n";
    fs::write(dir.path().join("etc/passwd"), accounts).unwrap();
    // Noticed, not waited for.
    let report = after(&mut run, &plane, Duration::from_secs(30)).await;
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
    assert_eq!(fs::metadata(dir.path().join("etc/app.conf")).unwrap().uid(), 1000);
}

/// The ways of a user to make a path below his home one that root can't follow.
fn ways_astray() -> [(&'static str, String); 3] {
    [
        ("a link to itself", ".ssh".to_owned()),
        ("a magic link", "/proc/self/cwd".to_owned()),
        ("a name that is too long", "x".repeat(300)),
    ]
}

/// A host with the account `core`, and its home.
fn host_of_core() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    plain_host::bare(dir.path());
    fs::write(
        dir.path().join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
    )
    .unwrap();
    fs::write(dir.path().join("etc/shadow"), "core:*:1\n").unwrap();
    let home = dir.path().join("home/core");
    fs::create_dir_all(&home).unwrap();
    fs::create_dir_all(dir.path().join("proc/self")).unwrap();
    lchown(&home, Some(1000), Some(1000)).unwrap();
    (dir, home)
}

/// Item 2: `core` leads `.ssh` where no one can follow it. A target that has nothing to do with it arrives, one that is being
/// verified is not held, and when the link is gone the node is Done.
#[tokio::test(start_paused = true)]
async fn unreachable_home_of_user_holds_no_other_target() {
    for (way, link) in ways_astray() {
        let (dir, home) = host_of_core();
        let mut plane = plane(&[("rendered-a", None), ("rendered-b", None), ("rendered-c", None)]);
        let (reports, astray) = (Rc::clone(&plane.reports), home.join(".ssh"));
        plane.at_report = Rc::new(move || {
            let verifies = reports.borrow().last().is_some_and(|report| report.phase == "Verifying");
            if verifies && astray.symlink_metadata().is_err() {
                symlink(&link, &astray).unwrap();
                lchown(&astray, Some(1000), Some(1000)).unwrap();
            }
        });
        let mut agent = agent(dir.path(), &plane);
        let mut run = Box::pin(agent.run());
        for name in ["rendered-a", "rendered-b", "rendered-c"] {
            *plane.desired.borrow_mut() = target(name);
            plane.nudge.notify_one();
            let report = after(&mut run, &plane, LATER * 2).await;
            assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{way}: {report:#?}");
            assert_eq!(report.current_config.unwrap().as_str(), name, "{way}");
            assert_eq!(fs::read_to_string(dir.path().join("etc/app.conf")).unwrap(), name, "{way}");
        }
        assert!(home.join(".ssh").symlink_metadata().is_ok(), "{way}: the link was there all the time");
    }
}

/// The same where the config has keys of `core`: the path is named, and the next target has its keys in a directory of their own.
#[tokio::test(start_paused = true)]
async fn link_in_place_of_keys_is_named_and_moved_aside() {
    for (way, link) in ways_astray() {
        let (dir, home) = host_of_core();
        let plane = plane(&[("rendered-a", Some("ssh-ed25519 k1")), ("rendered-b", Some("ssh-ed25519 k2"))]);
        let mut agent = agent(dir.path(), &plane);
        let mut run = Box::pin(agent.run());
        let report = after(&mut run, &plane, LATER).await;
        assert_eq!(report.state, NodeState::Done, "{way}: {report:#?}");

        fs::rename(home.join(".ssh"), home.join(".x")).unwrap();
        symlink(&link, home.join(".ssh")).unwrap();
        lchown(home.join(".ssh"), Some(1000), Some(1000)).unwrap();
        let report = after(&mut run, &plane, LATER).await;
        assert!(report.state == NodeState::Degraded && report.reason.contains(".ssh"), "{way}: {report:#?}");
        assert_eq!(report.fault.unwrap().reason, "ConfigDrift", "{way}");
        *plane.desired.borrow_mut() = target("rendered-b");
        plane.nudge.notify_one();
        let report = after(&mut run, &plane, LATER).await;
        assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{way}: {report:#?}");
        assert_eq!(fs::read_to_string(dir.path().join("etc/app.conf")).unwrap(), "rendered-b", "{way}");
        assert_eq!(
            fs::read_link(home.join(".ssh.mca-foreign")).unwrap().to_str(),
            Some(link.as_str()),
            "{way}"
        );
        let keys = fs::read_to_string(home.join(".ssh/authorized_keys.d/ignition")).unwrap();
        assert!(keys.contains("k2"), "{way}: {keys}");
    }
}
