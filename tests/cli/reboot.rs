//! The reboot, requested from logind by the real agent over a real bus: inhibitors are named and waited for, a reboot
//! that was rolled back or refused is requested again, and reported.

use crate::daemon_process::Daemon;
use crate::logind::{Comes, Logind, Row, block};
use crate::places::Flagged;
use crate::ran;
use crate::test_host::{self, Node, config, files};
use serde_json::Value;

/// The flag by which logind refuses while a block inhibitor is held, for root as well.
const CHECK_INHIBITORS: u64 = 1;

/// A node with an update that needs a reboot, and its logind.
async fn rebooting(blocks: Vec<Row>, comes: Vec<Comes>) -> (Daemon, Logind) {
    let node = Node::new();
    node.put("root/etc/lab.conf", "before\n");
    let logind = Logind::start(&node.path("root"), blocks, comes).await;
    let daemon = Daemon::start_with(node, &["--reboot-by", "logind"], &[]);
    let desired = config("rendered-worker-a", &files(&[("/etc/lab.conf", "after")]));
    daemon.put("machineconfigs/rendered-worker-a.yaml", &desired);
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    (daemon, logind)
}

fn rebooting_now(report: &Value) -> bool {
    report["phase"] == "Rebooting" && report["waiting"].is_null()
}

#[tokio::test(flavor = "current_thread")]
async fn reboot_waits_for_block_inhibitors() {
    let delay = ("shutdown".into(), "kubelet".into(), "pods".into(), "delay".into(), 0, 3);
    let sleep = ("sleep".into(), "lid".into(), "closed".into(), "block".into(), 0, 4);
    let backup = block("backup", "nightly run");
    let (mut daemon, mut logind) =
        rebooting(vec![delay.clone(), sleep.clone(), backup.clone()], vec![]).await;
    let waits = |report: &Value| report["waiting"].as_str().unwrap_or_default().contains("blocked by");
    let report = daemon.until("the block", waits).await;
    assert_eq!(report["waiting"], "the reboot, which is blocked by backup (pid 4711, uid 0): nightly run");
    assert_eq!((&report["phase"], &report["state"]), (&Value::from("Rebooting"), &Value::from("Working")));
    // Another one comes, the first one goes: nothing is asked for in between.
    let image = block("image", "being written");
    logind.block(vec![backup, image.clone()]).await;
    daemon.until("both", |report| report["waiting"].as_str().unwrap_or_default().contains("image")).await;
    logind.block(vec![image]).await;
    let other = |report: &Value| waits(report) && !report["waiting"].to_string().contains("backup");
    daemon.until("the other", other).await;
    assert_eq!(logind.requests(), [0_u64; 0]);
    logind.block(vec![delay, sleep]).await;
    assert_eq!(logind.requested_times(1).await, [CHECK_INHIBITORS]);
    let report = daemon.until("the reboot", rebooting_now).await;
    assert_eq!(report["waiting"], Value::Null);
}

/// A target that is set while the shutdown is blocked is taken: the written files are undone first.
#[tokio::test(flavor = "current_thread")]
async fn another_target_ends_wait() {
    let (mut daemon, logind) = rebooting(vec![block("backup", "nightly run")], vec![]).await;
    daemon.until("the block", |report| report["waiting"].is_string()).await;
    assert_eq!(daemon.node.read("root/etc/lab.conf"), "after");
    daemon.put("policy.yaml", test_host::QUIET);
    let desired = config("rendered-worker-b", &files(&[("/etc/other.conf", "b")]));
    daemon.put("machineconfigs/rendered-worker-b.yaml", &desired);
    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_done("rendered-worker-b").await;
    assert_eq!(daemon.node.read("root/etc/lab.conf"), "before\n");
    assert_eq!(logind.requests(), [0_u64; 0]);
}

#[tokio::test(flavor = "current_thread")]
async fn canceled_shutdown_is_requested_again() {
    let (daemon, mut logind) = rebooting(vec![], vec![Comes::TakenBack]).await;
    assert_eq!(logind.requested_times(2).await, [CHECK_INHIBITORS; 2]);
    let log = daemon.log();
    assert!(log.contains("warning: The requested reboot was cancelled: requesting it again"), "{log}");
}

/// CRA-008, MCD-213, MCD-214: a reboot that can't be requested is reported and tried again; after the third time the update
/// is taken back, the files of the old config are back, and the node reports it. The counter is in the metrics.
#[tokio::test(flavor = "current_thread")]
async fn refused_reboot_is_reported_counted_retried_and_then_undone() {
    let (mut daemon, mut logind) = rebooting(vec![], vec![Comes::Refused; 3]).await;
    daemon.until_logged(&["RebootWithFlags", "somebody else is in charge"]).await;
    assert_eq!(logind.requested_times(3).await.len(), 3);
    daemon.until_fault("RebootDidNotHappen", &["rendered-worker-a", "3 times", "in charge"]).await;
    assert!(daemon.metrics().contains("mcd_reboots_failed_total 3\n"), "{}", daemon.metrics());
    let undone = |report: &Value| report["phase"] == "Idle" && report["state"] == "Degraded";
    daemon.until("the undo", undone).await;
    assert_eq!(daemon.node.read("root/etc/lab.conf"), "before\n");
    // The next try of the update comes by itself, and this time the machine goes down.
    assert_eq!(logind.requested_times(4).await.len(), 4);
}

/// MCD-217: when the undo fails as well, both causes are reported, the first one first; it is tried again until it works.
#[tokio::test(flavor = "current_thread")]
async fn failed_undo_reports_both_causes() {
    // Nothing is asked for before the way back is blocked.
    let (mut daemon, logind) = rebooting(vec![block("backup", "nightly run")], vec![Comes::Refused; 3]).await;
    daemon.until("the block", |report| report["waiting"].is_string()).await;
    let Some(flagged) = Flagged::new(daemon.node.path("root/etc/lab.conf")) else {
        ran::not_run("failed_undo_reports_both_causes", "chattr +i");
        return;
    };
    logind.block(vec![]).await;
    let both = |report: &Value| {
        let told = report["reason"].as_str().unwrap_or_default();
        told.contains("did not happen")
            && told.contains("; undoing it failed too: ")
            && told.contains("lab.conf")
    };
    daemon.until("both causes", both).await;
    drop(flagged);
    daemon.until("the undo", |report| report["phase"] == "Idle" && report["state"] == "Degraded").await;
    assert_eq!(daemon.node.read("root/etc/lab.conf"), "before\n");
}
