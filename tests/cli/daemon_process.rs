//! The daemon on a bare host, following a directory: its reports are waited for, never polled.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;
use serde_json::Value;

use crate::test_host::Node;

/// Longest time until a change is in the report. Far above the usual time, far below what a person waits.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Words of each start.
const WORDS: [&str; 9] = [
    "daemon",
    "--directory",
    "control",
    "--root",
    "root",
    "--os-backend",
    "none",
    "--metrics-listen",
    "127.0.0.1:0",
];

pub struct Daemon {
    pub node: Node,
    pub child: Child,
    watch: Watch,
}

impl Daemon {
    pub fn start(node: Node) -> Self {
        Self::start_with(node, &["--reboot-by", "supervisor"], &[])
    }

    /// Starts it with more flags, and variables of its environment.
    pub fn start_with(node: Node, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_by(node, flags, variables, |command| command)
    }

    /// Starts it by another program.
    pub fn start_by(
        node: Node,
        flags: &[&str],
        variables: &[(&str, &str)],
        by: impl FnOnce(Command) -> Command,
    ) -> Self {
        std::fs::create_dir_all(node.path("control")).unwrap();
        // Not the directory itself: a test may put another one there.
        let root = Root::open(node.dir.path()).unwrap();
        let watch = Watch::new(&root, ["/control/report.json"], []).unwrap();
        // A test of names gives all of them itself.
        let named = variables.iter().any(|(name, _)| *name == "NODE_NAME");
        let name = if named { &[][..] } else { &["--node-name", "worker-0"] };
        let log = std::fs::File::create(node.path("log")).unwrap();
        let words = [&WORDS[..], name, flags].concat();
        let mut command = node.command(&words);
        command.envs(variables.iter().copied());
        let mut command = by(command);
        let child = command.stderr(Stdio::from(log)).spawn().unwrap();
        Self { node, child, watch }
    }

    /// Stops it, and starts it as [`Self::start`] does. The log begins anew.
    pub fn restart(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        self.end(TIMEOUT);
        let log = std::fs::File::create(self.node.path("log")).unwrap();
        let mut command = self.node.command(&WORDS);
        command.args(["--node-name", "worker-0", "--reboot-by", "supervisor"]);
        self.child = command.stderr(Stdio::from(log)).spawn().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, for as long as is given; not by looking again and again.
    pub fn end(&mut self, limit: Duration) -> std::process::ExitStatus {
        use rustix::event::{PollFd, PollFlags, poll};
        let pid = rustix::process::Pid::from_child(&self.child);
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let limit = rustix::event::Timespec { tv_sec: limit.as_secs().try_into().unwrap(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ready, 1, "it has not ended in time:\n{}", self.log());
        self.child.wait().unwrap()
    }

    /// Replaces a file of the directory atomically, as writers do.
    pub fn put(&self, path: &str, text: &str) {
        let to = format!("control/{path}");
        let staged = format!("staged-{}", path.replace('/', "-"));
        self.node.put(&staged, text);
        let to = self.node.path(&to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::rename(self.node.path(&staged), to).unwrap();
    }

    pub fn report(&self) -> Option<Value> {
        let bytes = std::fs::read(self.node.path("control/report.json")).ok()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    /// Returns the served metrics.
    pub fn metrics(&self) -> String {
        use std::io::{Read as _, Write as _};
        let log = self.log();
        let at = log.lines().find_map(|line| line.strip_prefix("Serving metrics and health on ")).unwrap();
        let mut stream = std::net::TcpStream::connect(at.trim_start_matches("http://")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.node.path("log")).unwrap()
    }

    /// Waits until the report matches.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let report = self.report();
            if let Some(report) = report.as_ref().filter(|report| holds(report)) {
                return report.clone();
            }
            let changed = tokio::time::timeout(TIMEOUT, self.watch.changed()).await;
            let late = || panic!("{what} is not reported: {report:#?}\n{}", self.log());
            drop(changed.unwrap_or_else(|_| late()).unwrap());
        }
    }

    pub async fn until_done(&mut self, config: &str) {
        let done = |report: &Value| report["state"] == "Done" && report["currentConfig"] == config;
        let report = self.until(config, done).await;
        assert_eq!((&report["reason"], &report["fault"]), (&Value::from(""), &Value::Null));
        assert_eq!(report["phase"], "Idle");
    }

    pub async fn until_fault(&mut self, reason: &str, words: &[&str]) {
        let what = format!("{reason} with {words:?}");
        let is = |report: &Value| {
            let text = report["reason"].as_str().unwrap_or_default();
            let is_told = report["fault"]["reason"] == reason && report["state"] == "Degraded";
            is_told && words.iter().all(|word| text.contains(word))
        };
        self.until(&what, is).await;
    }

    /// Waits for a line of the log that has all words, also of a report that was replaced by now.
    pub async fn until_logged(&self, words: &[&str]) {
        let root = Root::open(self.node.dir.path()).unwrap();
        let mut watch = Watch::new(&root, ["/log"], []).unwrap();
        while !self.log().lines().any(|line| words.iter().all(|word| line.contains(word))) {
            let changed = tokio::time::timeout(TIMEOUT, watch.changed()).await;
            assert!(changed.is_ok(), "no line has {words:?}:\n{}", self.log());
            changed.unwrap().unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
