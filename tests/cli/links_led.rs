//! A link of the host that is led elsewhere while an update is open: neither the rest of the update nor its undo writes behind it, and
//! what the message says ends it.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, STATE, apply, config, ignition};

fn spec(list: &[(&str, &str)]) -> Value {
    let file = |(name, text): &(&str, &str)| {
        json!({"path": format!("/etc/foo/{name}"), "mode": 420, "overwrite": true,
            "contents": {"source": format!("data:,{text}")}})
    };
    ignition(json!({"storage": {"files": list.iter().map(file).collect::<Vec<_>>()}}))
}

fn lead(node: &Node, to: &str) {
    let link = node.path("root/etc/foo");
    drop(fs::remove_file(&link));
    symlink(to, link).unwrap();
}

/// A host with a committed config behind a link, whose update to another one was killed at a point; `None` once it is not.
fn killed(to: &Value, point: usize) -> Option<(Node, String)> {
    let node = Node::new();
    node.put("root/var/foo/x", "admin");
    node.put("root/var/bar/x", "person");
    lead(&node, "../var/foo");
    node.put("none.json", config("rendered-none", &ignition(json!({}))));
    node.commit("rendered-a.json", &spec(&[("x", "one")]));
    node.put("b.json", config("rendered-b", to));
    let mut command = node.command(&apply("b.json"));
    let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
    let record = fs::read_to_string(node.path(&format!("root/{STATE}/record.json"))).unwrap_or_default();
    let record: Value = serde_json::from_str(&record).unwrap_or_default();
    let phase = record["phase"]["name"].as_str().unwrap_or_default().to_owned();
    (!ended.success()).then_some((node, phase))
}

fn names(node: &Node, directory: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(node.path(directory)) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    // What a killed run was about to write is no entry.
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Does what the message says of the new place: what was left moves there, or all of the directory does.
fn move_along(node: &Node, text: &str) {
    let left = node.path("root/var/foo");
    for name in names(node, "root/var/foo") {
        fs::rename(left.join(&name), node.path("root/var/bar").join(name)).unwrap();
    }
    if text.contains("remove /var/foo") {
        fs::remove_dir_all(left).unwrap();
    }
}

#[test]
fn nothing_is_written_behind_link_that_is_led_elsewhere() {
    let targets = [spec(&[("x", "two"), ("y", "new")]), spec(&[("y", "new")]), spec(&[])];
    for (number, to) in targets.iter().enumerate() {
        let mut held = 0;
        for (index, point) in (1..200).step_by(3).enumerate() {
            let Some((node, phase)) = killed(to, point) else { break };
            if phase.is_empty() {
                continue;
            }
            lead(&node, "../var/bar");
            let next = ["b.json", "none.json"][index % 2];
            let case = format!("target {number} kill:{point} {phase} {next}");
            let ran = node.apply(next);
            let text = format!("{case}: {} {}", ran.code, ran.err);
            let found = (names(&node, "root/var/bar"), node.read("root/var/bar/x"));
            assert_eq!(found, (vec!["x".to_owned()], "person".to_owned()), "{text}");
            let words = ["/etc/foo led to /var/foo", "leads to /var/bar now", "again"];
            // It was committed before: what is behind the link now is drift.
            if ran.code == 0 || ran.err.contains("the host does not match") {
                continue;
            }
            assert!(words.iter().all(|word| ran.err.contains(word)), "{text}");
            held += 1;
            let is_moved = index % 4 < 2;
            if is_moved {
                move_along(&node, &ran.err);
            } else {
                lead(&node, "../var/foo");
            }
            let (place, other) = if is_moved { ("bar", "foo") } else { ("foo", "bar") };
            let ran = node.apply("none.json");
            let text = format!("{case} {is_moved}: {} {}", ran.code, ran.err);
            assert_eq!(ran.code, 0, "{text}");
            assert_eq!(node.read(&format!("root/var/{place}/x")), "admin", "{text}");
            assert!(!names(&node, &format!("root/var/{place}")).contains(&"y".to_owned()), "{text}");
            let expected: &[&str] = if is_moved { &[] } else { &["x"] };
            assert_eq!(names(&node, &format!("root/var/{other}")), expected, "{text}");
        }
        assert!(held > 4, "{number}: {held}");
    }
}
