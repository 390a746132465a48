//! No drain without a write, by the history of each host that an agent of the tests worked on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Faults of a write that a plan sees before, by their reasons (`src/observe/obstacles.rs`). Others only a run tells.
const SEEN_BEFORE: [&str; 6] = [
    "FileTooLarge",
    "ReadOnlyFilesystem",
    "UnexpectedKind",
    "UnitNotEnabled",
    "UnknownAccount",
    "UnsafeDirectory",
];

/// Returns the host's root of an agent's command line.
pub fn root(command: &Command) -> Option<PathBuf> {
    let words: Vec<&OsStr> = command.get_args().collect();
    let at = words.iter().position(|word| *word == "--root" || *word == "--root-mount")?;
    words.get(at + 1).map(PathBuf::from)
}

/// Returns the past updates of a host for which its node was drained, or was to be, and nothing was written.
pub fn without_write(root: &Path) -> Vec<String> {
    let history = root.join("var/lib/machine-config-agent/history");
    let files = std::fs::read_dir(history).into_iter().flatten().flatten();
    let entries = files.filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok());
    entries.filter(is_without_write).map(|entry: Value| entry.to_string()).collect()
}

/// An update that was superseded before its write, or whose drain itself failed, ends without one. A first step that failed is no
/// write, where a plan could have seen that.
fn is_without_write(entry: &Value) -> bool {
    let was_in = |phase: &str| entry["durations"].get(phase).is_some();
    let is_drained = entry["drained"] == true || was_in("draining");
    let is_of_drain = entry["outcome"] == "superseded" || entry["fault"]["reason"] == "FailedToDrain";
    let is_all_written = was_in("rebooting") || was_in("verifying");
    let reason = entry["fault"]["reason"].as_str().unwrap_or_default();
    let is_refused = entry["outcome"] == "rolled-back" && !is_all_written && SEEN_BEFORE.contains(&reason);
    is_drained && !is_of_drain && (!was_in("applying") || entry["steps"] == 0 || is_refused)
}

#[test]
fn drain_without_write_is_found_in_history() {
    let host = tempfile::tempdir().unwrap();
    let history = host.path().join("var/lib/machine-config-agent/history");
    std::fs::create_dir_all(&history).unwrap();
    let entry = |drained, phases: &[&str], outcome: &str, reason: Option<&str>| {
        let durations: serde_json::Map<_, _> =
            phases.iter().map(|phase| ((*phase).to_owned(), 1.into())).collect();
        let fault = reason.map(|reason| serde_json::json!({ "reason": reason }));
        serde_json::json!({ "drained": drained, "durations": durations, "outcome": outcome, "fault": fault, "steps": 1 })
    };
    let rows = [
        (entry(true, &["draining", "applying"], "committed", None), false),
        (entry(true, &["draining"], "committed", None), true),
        (entry(true, &["draining"], "rolled-back", Some("PathInTheWay")), true),
        (entry(false, &["draining"], "rolled-back", Some("PathInTheWay")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("UnexpectedKind")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("CommandFailed")), false),
        (entry(true, &["draining", "applying", "verifying"], "rolled-back", Some("UnexpectedKind")), false),
        (entry(true, &["draining"], "superseded", None), false),
        (entry(false, &["draining"], "rolled-back", Some("FailedToDrain")), false),
        (entry(false, &["planned"], "rolled-back", Some("PathInTheWay")), false),
    ];
    for (entry, is_wrong) in rows {
        std::fs::write(history.join("entry-0000000001.json"), entry.to_string()).unwrap();
        assert_eq!(!without_write(host.path()).is_empty(), is_wrong, "{entry}");
    }
    let mut command = Command::new("agent");
    command.args(["daemon", "--root", "/a"]);
    assert_eq!(root(&command), Some(PathBuf::from("/a")));
}
