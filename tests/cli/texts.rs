//! Texts of verbs: each names the object, its cause and the next step, and each of them once.

use serde_json::json;

use crate::test_host::{Node, apply, config, files, ignition};

/// Counts a text in what a verb writes.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn refused_apply_names_cause_and_step_once() {
    let node = Node::new();
    node.put("root/etc/one.conf/x", "");
    node.put("root/etc/two.conf/x", "");
    let entries = json!([{"path": "/etc/one.conf"}, {"path": "/etc/two.conf"}]);
    node.put("b.json", config("rendered-b", &ignition(json!({"storage": {"files": entries}}))));
    let ran = node.apply("b.json");
    assert_eq!(ran.code, 3, "{}", ran.err);
    // One for each path.
    for part in ["a directory is there, which no config made", "move it away"] {
        assert_eq!(count(&ran.err, part), 2, "{part}: {}", ran.err);
    }
    assert_eq!(count(&ran.err, "the node can't reach its new config"), 1, "{}", ran.err);
    assert!(ran.err.contains("error: HostNotPrepared: the node can't"), "{}", ran.err);
    let next = "\nNext: For storage.files \"/etc/one.conf\": move it away, or choose another path. For storage.files";
    assert!(ran.err.contains(next), "{}", ran.err);
    // For a program likewise.
    let words =
        ["plan", "--to", "b.json", "--policy", "policy.json", "--root", "root", "--os-backend", "none"];
    let plan = node.run(&[&words[..], &["--output", "json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&plan.out).unwrap();
    let refused = &document["refused"][0];
    assert_eq!(refused["message"], "a directory is there, which no config made", "{}", plan.out);
    let step = "For storage.files \"/etc/one.conf\": move it away, or choose another path.";
    assert_eq!(refused["next"], step, "{}", plan.out);
}

/// A control directory is named by its path, and its fault once.
#[test]
fn control_directory_of_others_is_told_once() {
    let node = Node::new();
    node.put("control/target.yaml", "config: rendered-b\n");
    node.mode("control", 0o777);
    let at = node.text("control");
    let words = ["plan", "--directory", "control", "--root", "root", "--os-backend", "none"];
    let ran = node.run(&words);
    let begin =
        format!("error: {at}/policy.yaml is not touched: its directory {at} can be written by others");
    assert!(ran.err.starts_with(&begin), "{}", ran.err);
    assert!(ran.err.contains("\nNext: Check what it holds, then: chmod go-w "), "{}", ran.err);
}

/// A directory that is none, or not there, is the fault of the flag, not of a MachineConfig.
#[test]
fn control_directory_that_is_none_is_named() {
    let node = Node::new();
    node.put("b.yaml", "");
    for (name, cause) in [("b.yaml", "it is not a directory"), ("nonesuch", "there is no such directory")] {
        let at = node.text(name);
        let on_root = ["--root", "root", "--os-backend", "none"];
        let told = format!("{name} can't be used as the control directory: {cause}");
        let next = "Name the directory that has target.yaml and machineconfigs/.";
        let verbs: [&[&str]; 2] = [&["plan"], &["daemon"]];
        for verb in verbs {
            let ran = node.run(&[verb, &["--directory", name], &on_root].concat());
            assert!(ran.err.contains(&told) && ran.err.contains(next), "{verb:?} {at}: {}", ran.err);
            assert!(!ran.err.contains("MachineConfig") && !ran.err.contains("entity"), "{}", ran.err);
        }
    }
}

/// Drift shows path and all that differs, with what is found below its own line.
#[test]
fn drift_shows_each_attribute_and_its_object() {
    let node = Node::new();
    node.commit("rendered-a.json", &files(&[("/etc/app.conf", "a"), ("/etc/other.conf", "o")]));
    node.put("root/etc/app.conf", "secret22");
    node.mode("root/etc/app.conf", 0o600);
    let on_root = ["--root", "root", "--os-backend", "none"];
    let status = node.run(&[&["status"][..], &on_root].concat());
    let told = "  differs  file /etc/app.conf has another content; mode 0600 in place of 0644\n    secret, not shown: 1 byte expected, 8 \
                bytes found\n";
    assert!(status.out.contains(told), "{}", status.out);
    assert!(status.out.trim_end().lines().last().unwrap().starts_with("  next "), "{}", status.out);
    let verify = node.run(&[&["verify"][..], &on_root].concat());
    assert!(verify.out.contains("); mode 0600 in place of 0644\n"), "{}", verify.out);
    let verify = node.run(&[&["verify", "--output", "json"][..], &on_root].concat());
    let document: serde_json::Value = serde_json::from_str(&verify.out).unwrap();
    assert_eq!(document["differences"][0]["also"], "mode 0600 in place of 0644", "{}", verify.out);
    // `apply` of what is committed names it once, and what to do.
    let ran = node.run(&apply("rendered-a.json"));
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert_eq!(count(&ran.err, "content mismatch for file"), 1, "{}", ran.err);
    assert!(
        ran.err.contains("error: the host does not match rendered-a: 1 difference\nNext: "),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("\n    secret, not shown: "), "{}", ran.err);
}
