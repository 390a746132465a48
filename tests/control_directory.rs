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

mod node;

use std::process::{Child, Stdio};
use std::time::Duration;

use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;
use node::{Node, QUIET, config, files};
use serde_json::Value;

/// How long a change may take to be in the report. Far above what it takes, far below what a person waits.
const PATIENCE: Duration = Duration::from_secs(30);

struct Daemon {
    node: Node,
    child: Child,
    watch: Watch,
}

impl Daemon {
    fn start(node: Node) -> Self {
        std::fs::create_dir(node.path("control")).unwrap();
        let root = Root::open(&node.path("control")).unwrap();
        let watch = Watch::new(&root, ["/report.json"], []).unwrap();
        let words = [
            "daemon",
            "--directory",
            "control",
            "--root",
            "root",
            "--os-backend",
            "none",
            "--reboot-by",
            "supervisor",
            "--node-name",
            "worker-0",
        ];
        let log = std::fs::File::create(node.path("log")).unwrap();
        let child = node.command(&words).stderr(Stdio::from(log)).spawn().unwrap();
        Self { node, child, watch }
    }

    /// Replaces a file of the directory atomically, as writers do.
    fn put(&self, path: &str, text: &str) {
        let to = format!("control/{path}");
        let staged = format!("staged-{}", path.replace('/', "-"));
        self.node.put(&staged, text);
        let to = self.node.path(&to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::rename(self.node.path(&staged), to).unwrap();
    }

    fn report(&self) -> Option<Value> {
        let bytes = std::fs::read(self.node.path("control/report.json")).ok()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.node.path("log")).unwrap()
    }

    /// Waits until the report says what is asked for.
    async fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let report = self.report();
            if let Some(report) = report.as_ref().filter(|report| holds(report)) {
                return report.clone();
            }
            let changed = tokio::time::timeout(PATIENCE, self.watch.changed()).await;
            let late = || panic!("{what} is not reported: {report:#?}\n{}", self.log());
            drop(changed.unwrap_or_else(|_| late()).unwrap());
        }
    }

    async fn until_done(&mut self, config: &str) {
        let done = |report: &Value| report["state"] == "Done" && report["currentConfig"] == config;
        let report = self.until(config, done).await;
        assert_eq!((&report["reason"], &report["fault"]), (&Value::from(""), &Value::Null));
        assert_eq!(report["phase"], "Idle");
    }

    async fn until_fault(&mut self, reason: &str, words: &[&str]) {
        let report = self.until(reason, |report| report["fault"]["reason"] == reason).await;
        for word in words {
            assert!(report["reason"].as_str().unwrap().contains(word), "{word}: {report:#?}");
        }
        assert_eq!(report["state"], "Degraded");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn motd(name: &str, text: &str) -> String {
    config(name, &files(&[("/etc/motd", text)]))
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
    let report = daemon.report().unwrap();
    assert_eq!(report["desiredConfig"], "rendered-worker-a", "the old target stays");
    assert_eq!(std::fs::read(daemon.node.path("root/etc/motd")).unwrap(), b"a");

    daemon.put("target.yaml", "config: rendered-worker-b\n");
    daemon.until_fault("ConfigNotFound", &["rendered-worker-b", "machineconfigs", "Next: Put"]).await;
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
    assert!(daemon.child.try_wait().unwrap().is_none(), "the daemon has ended: {}", daemon.log());
}

#[tokio::test(flavor = "current_thread")]
async fn drift_is_told_and_its_end_too() {
    let mut daemon = Daemon::start(Node::new());
    daemon.put("policy.yaml", QUIET);
    daemon.put("machineconfigs/rendered-worker-a.json", &motd("rendered-worker-a", "a"));
    daemon.put("target.yaml", "config: rendered-worker-a\n");
    daemon.until_done("rendered-worker-a").await;
    daemon.node.put("root/etc/motd", "by hand");
    daemon.until_fault("ConfigDrift", &["/etc/motd", "another content", "Next: See"]).await;
    daemon.node.put("root/etc/motd", "a");
    daemon.until_done("rendered-worker-a").await;
    let log = daemon.log();
    assert!(log.contains("warning: drift: file /etc/motd has another content"), "{log}");
    assert!(!log.contains("INFO"), "lines for people begin with their message: {log}");
}
