//! No drain without a write, by the history of each host that an agent of the tests worked on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::seen_before::is_seen_before;

/// Returns the host's root of an agent's command line.
pub fn root(command: &Command) -> Option<PathBuf> {
    let words: Vec<&OsStr> = command.get_args().collect();
    let at = words.iter().position(|word| *word == "--root" || *word == "--root-mount")?;
    words.get(at + 1).map(PathBuf::from)
}

/// Returns the past updates of a host for which its node was drained, or was to be, and nothing was written. Where the test changed the
/// host after a plan, that plan saw nothing of it.
pub fn without_write(root: &Path, is_changed_meanwhile: bool) -> Vec<String> {
    let history = root.join("var/lib/machine-config-agent/history");
    let files = std::fs::read_dir(history).into_iter().flatten().flatten();
    let entries = files.filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok());
    let wrong = entries.filter(|entry| is_without_write(entry, is_changed_meanwhile));
    wrong.map(|entry: Value| entry.to_string()).collect()
}

/// An update that was superseded before its write, or whose drain itself failed, ends without one. A first step that failed is no
/// write, where a plan could have seen that.
fn is_without_write(entry: &Value, is_changed_meanwhile: bool) -> bool {
    let was_in = |phase: &str| entry["durations"].get(phase).is_some();
    let is_drained = entry["drained"] == true || was_in("draining");
    let is_of_drain = entry["outcome"] == "superseded" || entry["fault"]["reason"] == "FailedToDrain";
    let is_all_written = was_in("rebooting") || was_in("verifying");
    let of_fault = |key: &str| entry["fault"][key].as_str().unwrap_or_default();
    let is_seen = is_seen_before(of_fault("reason"), of_fault("message"));
    let is_undone = entry["outcome"] == "rolled-back";
    let is_refused = is_undone && !is_all_written && is_seen;
    let is_excused = is_of_drain || (is_changed_meanwhile && is_undone);
    is_drained && !is_excused && (!was_in("applying") || entry["steps"] == 0 || is_refused)
}

#[test]
fn drain_without_write_is_found_in_history() {
    let host = tempfile::tempdir().unwrap();
    let history = host.path().join("var/lib/machine-config-agent/history");
    std::fs::create_dir_all(&history).unwrap();
    let entry = |drained, phases: &[&str], outcome: &str, fault: Option<&str>| {
        let durations: serde_json::Map<_, _> =
            phases.iter().map(|phase| ((*phase).to_owned(), 1.into())).collect();
        let fault = fault.map(|fault| {
            let (reason, message) = fault.split_once(": ").unwrap_or((fault, ""));
            serde_json::json!({ "reason": reason, "message": message })
        });
        serde_json::json!({ "drained": drained, "durations": durations, "outcome": outcome, "fault": fault, "steps": 1 })
    };
    let rows = [
        (entry(true, &["draining", "applying"], "committed", None), false),
        (entry(true, &["draining"], "committed", None), true),
        (entry(true, &["draining"], "rolled-back", Some("PathInTheWay")), true),
        (entry(false, &["draining"], "rolled-back", Some("PathInTheWay")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("UnexpectedKind")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("DiskFull")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("CommandFailed: useradd failed")), true),
        (entry(true, &["draining", "applying"], "rolled-back", Some("CommandFailed: skopeo failed")), false),
        (entry(true, &["draining", "applying"], "rolled-back", Some("Io: Input/output error")), false),
        (entry(true, &["draining", "applying"], "rolled-back", Some("Io: Operation not permitted")), true),
        (entry(true, &["draining", "applying", "verifying"], "rolled-back", Some("UnexpectedKind")), false),
        (entry(true, &["draining"], "superseded", None), false),
        (entry(false, &["draining"], "rolled-back", Some("FailedToDrain")), false),
        (entry(false, &["planned"], "rolled-back", Some("PathInTheWay")), false),
    ];
    for (entry, is_wrong) in rows {
        std::fs::write(history.join("entry-0000000001.json"), entry.to_string()).unwrap();
        assert_eq!(!without_write(host.path(), false).is_empty(), is_wrong, "{entry}");
        let is_committed = entry["outcome"] == "committed";
        assert_eq!(!without_write(host.path(), true).is_empty(), is_wrong && is_committed, "{entry}");
    }
    let mut command = Command::new("agent");
    command.args(["daemon", "--root", "/a"]);
    assert_eq!(root(&command), Some(PathBuf::from("/a")));
}
