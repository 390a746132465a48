//! The daemon beside damaged files of stateroots and seeds, which `apply` does not read: it carries the target out, and reports the file
//! and a step that leads out; or it ends with both.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::daemon_process::Daemon;
use crate::state_files::{DAMAGES, FILES, follow, host, motd, place};
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

const BELOW: &str = "var/lib/machine-config-agent/";

/// Starts the daemon beside a spoiled file and follows what it says, until it has the target; returns what is wrong, and
/// whether the first one named it.
async fn play(mut node: Node, file: &str, damage: &str) -> (Vec<String>, bool) {
    let mut faults = Vec::new();
    node.put("control/policy.yaml", QUIET);
    node.put("control/machineconfigs/rendered-worker-b.json", motd("rendered-worker-b", "b"));
    node.put("control/target.yaml", "config: rendered-worker-b\n");
    let name = file.rsplit('/').next().unwrap();
    // One step may uncover the next.
    let mut is_told = false;
    for _ in 0..3 {
        let (mut daemon, end) = started(node).await;
        let log = daemon.log();
        is_told |=
            log.lines().any(|line| line.contains(&format!("{name} ")) || line.contains(&format!("{name}: ")));
        let case = format!("{file} {damage}: {end:?}: {log}");
        if log.contains("hunter2") || log.contains("panicked") {
            faults.push(format!("tells contents: {case}"));
        }
        node = std::mem::replace(&mut daemon.node, Node::new());
        let told = match &end {
            Started::Reached(reason) if reason.is_empty() => return (faults, is_told),
            Started::Reached(reason) => reason,
            Started::Ended(_) => &log,
        };
        let is_named = told.contains(name) && told.contains("Next: ");
        if matches!(end, Started::Ended(code) if ![Some(104), Some(105)].contains(&code)) || !is_named {
            faults.push(case.clone());
        }
        drop(daemon);
        if !follow(&node, told) {
            faults.push(format!("no step to follow: {case}"));
            return (faults, is_told);
        }
    }
    faults.push(format!("{file} {damage}: no step leads out"));
    (faults, is_told)
}

#[tokio::test(flavor = "current_thread")]
async fn daemon_starts_beside_damaged_work_or_names_it() {
    let files = FILES.iter().filter_map(|file| file.strip_prefix(BELOW));
    let files: Vec<&str> =
        files.filter(|file| file.starts_with("stateroot") || file.starts_with("seed")).collect();
    assert!(files.len() >= 7);
    let mut faults = Vec::new();
    for file in files {
        for (damage, spoil) in DAMAGES {
            let node = host(false);
            spoil(&node, &format!("root/{BELOW}{file}"));
            faults.extend(play(node, file, damage).await.0);
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}

/// What the daemon reads of its own: damaged, of a later version, or one of MCD's under its name.
#[tokio::test(flavor = "current_thread")]
async fn daemon_starts_beside_damaged_state_or_names_it() {
    let files = FILES.iter().filter_map(|file| file.strip_prefix(BELOW));
    let is_other = |file: &&str| {
        ["stateroot", "seed", "pinned-images", "cache/"].iter().all(|other| !file.starts_with(other))
    };
    let files: Vec<&str> = files.filter(is_other).collect();
    assert!(files.len() >= 10, "{files:?}");
    let newer = r#"{"schema":99,"schemaVersion":99,"of":"tomorrow"}"#;
    let of_mcd = motd("rendered-worker-mcd", "hunter2");
    let mut faults = Vec::new();
    for file in files {
        let is_of_update = ["record", "target", "from", "UPDATE"].iter().any(|name| file.contains(name));
        for (damage, text) in [("truncated", "{\"schema\":1,\"a\":"), ("newer", newer), ("of MCD", &of_mcd)] {
            let node = host(is_of_update);
            if file == "machine.json" {
                node.put("root/etc/machine-id", format!("{}\n", "0a".repeat(16)));
            }
            let path = place(&node, &format!("{BELOW}{file}"));
            node.put(&path, text);
            let (mut found, told) = play(node, file, damage).await;
            // The way out of a newer one is the newer agent.
            let name = file.rsplit('/').next().unwrap();
            found.retain(|fault| {
                let words = [name, "schema version 99", "Install the newer agent again"];
                let is_newer =
                    fault.starts_with("no step to follow: ") && words.iter().all(|word| fault.contains(word));
                damage != "newer" || !is_newer
            });
            if !told {
                faults.push(format!("{file} {damage}: no start names it"));
            }
            faults.extend(found);
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n---\n"));
}
