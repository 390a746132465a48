//! The daemon with a directory as its control plane: what is wrong with the directory is in the report, the old
//! target stays, and a correction is noticed without a restart.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test: it fails by panicking, and looks at the machine from outside"
)]

mod followed;
mod node;

use followed::Daemon;
use node::{Node, QUIET, config, files};
use serde_json::{Value, json};

fn motd(name: &str, text: &str) -> String {
    config(name, &files(&[("/etc/motd", text)]))
}

fn status(daemon: &Daemon) -> Value {
    let words = ["status", "--output", "json", "--root", "root", "--os-backend", "none"];
    serde_json::from_str(&daemon.node.run(&words).out).unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_wrong_is_reported_and_mended_by_itself() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.yaml", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;

    // Not by rename: the agent sees the half of it.
    daemon.node.put("control/target.yaml", "config: [rendered-");
    daemon.until_fault("InvalidDocument", &["target.yaml", "Next: Correct"]).await;
    assert!(daemon.log().contains("InvalidDocument: "), "it is in the journal too: {}", daemon.log());
    let report = daemon.report().unwrap();
    assert_eq!(report["desiredConfig"], "rendered-worker-a", "the old target stays");
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"a");
    assert_eq!(status(&daemon)["fault"], report["fault"], "no record tells it, `status` does");

    // What a power cut leaves of a file that nobody synced.
    daemon.put("target.yaml", "\n");
    let words = "/target.yaml is not valid: it can't be read: it is empty. Next: ";
    daemon.until(words, |report| report["reason"].as_str().unwrap().contains(words)).await;

    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-b", "machineconfigs", "Next: Put"]).await;
    let told = status(&daemon);
    assert_eq!(told["desired"]["config"], "rendered-worker-b");
    assert_eq!(
        (&told["state"], &told["current"]["config"]),
        (&json!("Degraded"), &json!("rendered-worker-a"))
    );
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-x", "b"));
    daemon
        .until_fault("ConfigMisnamed", &["rendered-worker-b.yaml", "rendered-worker-x", "Next: Correct"])
        .await;
    daemon.put("policy.yaml", "kind: [");
    daemon.put("machineconfigs/rendered-worker-b.yaml", &motd("rendered-worker-b", "b"));
    daemon.until_fault("InvalidDocument", &["policy.yaml", "Next: Correct"]).await;
    daemon.put("policy.yaml", QUIET);
    daemon.until_done("rendered-worker-b").await;
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"b");

    let old = motd("rendered-worker-c", "c").replace("3.5.0", "2.2.0");
    daemon.put("machineconfigs/rendered-worker-c.yaml", &old);
    daemon.put("target.yaml", "config: rendered-worker-c\n");
    daemon.until_fault("InvalidConfig", &["rendered-worker-c", "2.2.0", "convert", "Next: Correct"]).await;
    daemon.put("machineconfigs/rendered-worker-c.yaml", &motd("rendered-worker-c", "c"));
    daemon.until_done("rendered-worker-c").await;
    assert!(status(&daemon)["fault"].is_null());
    assert!(daemon.child.try_wait().unwrap().is_none(), "the daemon has ended: {}", daemon.log());

    // An agent that stops holds nothing: what it refused is for the next one to tell.
    daemon.put("target.yaml", "config: rendered-worker-d\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-d"]).await;
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.end(std::time::Duration::from_secs(60)).success());
    assert!(status(&daemon)["fault"].is_null());
}

#[tokio::test(flavor = "current_thread")]
async fn drift_is_told_and_its_end_too() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.json", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.node.put("root/etc/motd", "by hand");
    daemon.until_fault("ConfigDrift", &["content mismatch for file \"/etc/motd\"", "Next: See"]).await;
    daemon.node.put("root/etc/motd", "a");
    daemon.until_done("rendered-worker-a").await;
    let log = daemon.log();
    assert!(log.contains("warning: drift: content mismatch for file \"/etc/motd\""), "{log}");
    assert!(log.contains("\n-a\n") && log.contains("\n+by hand\n"), "{log}");
    // What e2e tests of MCD wait for (MCD-185).
    let [started, over] = ["Config Drift Monitor started", "Config Drift Monitor has shut down"];
    assert!(log.contains(started) && !log.contains(over), "{log}");
    assert!(!log.contains("INFO"), "lines for people begin with their message: {log}");
}
