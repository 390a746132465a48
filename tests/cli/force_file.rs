//! MCD's force file: an administrator's file in `/run` makes the agent apply the config to the host in any state.

use std::time::Duration;

use crate::daemon_process::Daemon;
use crate::test_host::{Node, STATE, config};
use rustix::process::Signal;
use serde_json::json;

const FORCE: &str = "root/run/machine-config-daemon-force";
const REBOOT: i32 = 133;
/// Nothing of the config needs a reboot.
const POLICY: &str = r#"{"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
    "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
    "files": [{"path": "/etc", "actions": [{"type": "None"}]}],
    "units": [{"name": "lab.service", "actions": [{"type": "None"}]}]}}}"#;

fn spec() -> String {
    let file =
        |path, text| json!({"path": path, "mode": 0o644, "contents": {"source": format!("data:,{text}")}});
    config(
        "rendered-worker-a",
        &json!({"config": {"ignition": {"version": "3.4.0"},
            "storage": {"files": [file("/etc/a.conf", "a"), file("/etc/b.conf", "b")]},
            "systemd": {"units": [{"name": "lab.service", "enabled": true,
                "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}}}),
    )
}

fn next_boot(node: &Node) {
    node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f1\n");
}

/// FIL-009, MCD-071, MCD-114, MCD-143, MCD-183: a node that drifted takes its config again, files and units that differ; the
/// file goes away with it, the node drains and reboots although the policy asks for none, and is Done after it.
#[tokio::test(flavor = "current_thread")]
async fn drifted_node_is_brought_back_by_force() {
    let node = Node::new();
    let mut daemon = Daemon::start(node);
    daemon.put("policy.yaml", POLICY);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &spec());
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    let unit = "root/etc/systemd/system/lab.service";
    daemon.node.put("root/etc/a.conf", "by hand");
    daemon.node.put(unit, "[Service]\nExecStart=/bin/false\n");
    daemon.until_fault("ConfigDrift", &["/etc/a.conf", "lab.service"]).await;

    daemon.node.put(FORCE, "");
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.end(Duration::from_secs(120)).code(), Some(REBOOT), "{}", daemon.log());
    let log = daemon.log();
    for words in [
        "Forced by /run/machine-config-daemon-force",
        "Drain  yes: the node reboots",
        "After  reboot, because of /run/machine-config-daemon-force",
        "remove-file /run/machine-config-daemon-force",
        // Numbered over the whole plan, not by batch.
        "Step 3 of 4: remove-file",
        "Step 4 of 4: enable-unit lab.service: done",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(!daemon.node.path(FORCE).exists());
    assert_eq!(daemon.node.read("root/etc/a.conf"), "a");
    assert!(daemon.node.read(unit).contains("/bin/true"));
    assert_eq!(
        log.matches(": write-file /etc/b.conf: done").count(),
        1,
        "what is right is not written: {log}"
    );

    // The same process again is not another boot: nothing is committed, the reboot is still to come.
    let record = daemon.node.read(&format!("root/{STATE}/record.json"));
    assert!(record.contains("\"forced\": true") || record.contains("\"forced\":true"), "{record}");
    next_boot(&daemon.node);
    let mut daemon = Daemon::start(std::mem::replace(&mut daemon.node, Node::new()));
    daemon.until_done("rendered-worker-a").await;
    assert!(!daemon.node.path(&format!("root/{STATE}/record.json")).exists());
    assert!(daemon.log().contains("is done: 4 steps, 1 reboot"), "{}", daemon.log());
}

/// MCD-114: a node that is as it should be reboots all the same; without the file it is left alone.
#[tokio::test(flavor = "current_thread")]
async fn node_without_drift_reboots_by_force_only() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", POLICY);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &spec());
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.node.put(FORCE, "");
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.end(Duration::from_secs(120)).code(), Some(REBOOT), "{}", daemon.log());
    next_boot(&daemon.node);
    let mut daemon = Daemon::start(std::mem::replace(&mut daemon.node, Node::new()));
    daemon.until_done("rendered-worker-a").await;
    assert!(daemon.log().contains("is done: 1 step, 1 reboot"), "{}", daemon.log());
}
