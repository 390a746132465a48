//! What others do on the host while the agent works: an editor that writes once holds no target for good.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::fake_control_plane::FakeControlPlane;
use crate::plain_host;
use machine_config_agent::agent::Agent;
use machine_config_agent::host::{FailPoints, Host, Root};
use machine_config_agent::model::{ConfigName, Target};
use machine_config_agent::report::{NodeReport, NodeState};
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
    Target { config: ConfigName::new(name).unwrap(), image: None }
}

fn plane(keys: &[(&str, Option<&str>)]) -> FakeControlPlane {
    let plane = FakeControlPlane::wanting(keys[0].0, None);
    plane.policy(POLICY);
    for (name, key) in keys {
        plane.config(name, &config(name, *key));
    }
    plane
}

fn agent(at: &Path, plane: &FakeControlPlane) -> Agent<FakeControlPlane> {
    plane.agent(Host::in_directory(Root::open(at).unwrap(), FailPoints::off()))
}

/// Lets the agent live for some time; returns its last report.
async fn after(agent: &mut Agent<FakeControlPlane>, plane: &FakeControlPlane, time: Duration) -> NodeReport {
    let end = tokio::time::timeout(time, Box::pin(agent.run())).await;
    assert!(end.is_err(), "it ended: {end:?}");
    plane.reports.borrow().last().unwrap().clone()
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
    let report = after(&mut agent, &plane, LATER * 2).await;
    assert_eq!(written.get(), 1, "the update came to its verification");
    let found = plane.reports.borrow().iter().any(|report| report.reason.contains("/etc/app.conf"));
    assert!(found, "the other program's write was found");
    assert_eq!((report.state, report.reason.as_str()), (NodeState::Done, ""), "{report:#?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "rendered-b");
}
