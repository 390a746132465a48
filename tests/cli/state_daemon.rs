//! The daemon beside damaged files of stateroots and seeds, which `apply` does not read: it carries the target out, and reports the file
//! and a step that leads out; or it ends with both.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::daemon_process::Daemon;
use crate::state_files::{DAMAGES, FILES, follow, host, motd};
use crate::test_host::{Node, QUIET};

/// What became of a start: the daemon ended (104, or 105 for its own state), or it has the target, with the fault that it reports.
#[derive(Debug)]
enum Started {
    Ended(Option<i32>),
    Reached(String),
}

async fn started(node: Node) -> (Daemon, Started) {
    // Of an earlier start.
    drop(std::fs::remove_file(node.path("control/report.json")));
    let mut daemon = Daemon::start(node);
    let pid = Pid::from_child(&daemon.child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let mut ended = tokio::task::spawn_blocking(move || {
        poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).unwrap();
    });
    let is_reached = |report: &Value| {
        let is_at_rest = report["phase"] == "Idle" && report["state"] != "Working";
        is_at_rest && report["currentConfig"] == "rendered-worker-b"
    };
    let report = tokio::select! {
        report = daemon.until("the target", is_reached) => Some(report),
        over = &mut ended => over.map(|()| None).unwrap(),
    };
    let started = match report {
        Some(report) => Started::Reached(report["reason"].as_str().unwrap().to_owned()),
        None => Started::Ended(daemon.end(Duration::from_secs(10)).code()),
    };
    (daemon, started)
}

#[tokio::test(flavor = "current_thread")]
async fn daemon_starts_beside_damaged_work_or_names_it() {
    let below = "var/lib/machine-config-agent/";
    let files = FILES.iter().filter_map(|file| file.strip_prefix(below));
    let files: Vec<&str> =
        files.filter(|file| file.starts_with("stateroot") || file.starts_with("seed")).collect();
    assert!(files.len() >= 7);
    let mut faults = Vec::new();
    for file in files {
        for (damage, spoil) in DAMAGES {
            let mut node = host(false);
            spoil(&node, &format!("root/{below}{file}"));
            node.put("control/policy.yaml", QUIET);
            node.put("control/machineconfigs/rendered-worker-b.json", motd("rendered-worker-b", "b"));
            node.put("control/target.yaml", "config: rendered-worker-b\n");
            let name = file.rsplit('/').next().unwrap();
            let mut is_done = false;
            // One step may uncover the next.
            for _ in 0..3 {
                let (mut daemon, end) = started(node).await;
                let log = daemon.log();
                let case = format!("{file} {damage}: {end:?}: {log}");
                if log.contains("hunter2") || log.contains("panicked") {
                    faults.push(format!("tells contents: {case}"));
                }
                node = std::mem::replace(&mut daemon.node, Node::new());
                let told = match &end {
                    Started::Reached(reason) if reason.is_empty() => {
                        is_done = true;
                        break;
                    }
                    Started::Reached(reason) => reason,
                    Started::Ended(_) => &log,
                };
                let is_named = told.contains(name) && told.contains("Next: ");
                if matches!(end, Started::Ended(code) if ![Some(104), Some(105)].contains(&code)) || !is_named
                {
                    faults.push(case.clone());
                }
                drop(daemon);
                if !follow(&node, told) {
                    faults.push(format!("no step to follow: {case}"));
                    break;
                }
            }
            if !is_done {
                faults.push(format!("{file} {damage}: no step leads out"));
            }
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}
