//! Documents that every host refuses, by the agent: the controller says the same of each (`tests/goldens/refused-documents.txt`).

use serde_json::{Value, json};

use crate::refused_samples::{HEADS, LONE_IGNITION, LONE_IGNITION_WORDS, ROWS, WITH_STATUS, document};
use crate::test_host::{Node, Ran, config, ignition};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/refused-documents.txt");

/// The answers of each row.
fn expected() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(GOLDEN).unwrap();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(answer) => rows.last_mut().unwrap().push(answer.to_owned()),
            None => rows.push(Vec::new()),
        }
    }
    rows
}

/// Returns the refusals: field and message, and the next step.
fn refused(ran: &Ran, what: &str) -> Vec<(String, String)> {
    assert_eq!(ran.code, 3, "{what}: {}{}", ran.out, ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let refused = document["refused"].as_array().unwrap();
    let said = |one: &Value| format!("{}: {}", text(&one["field"]), text(&one["message"]));
    refused.iter().map(|one| (said(one), one["next"].as_str().unwrap_or_default().to_owned())).collect()
}

/// Returns true if a text is a message, or a message and its step.
fn is_said(text: &str, message: &str, next: &str) -> bool {
    let step = text.strip_prefix(message).and_then(|rest| rest.strip_prefix("; "));
    text == message || step.is_some_and(|step| next.contains(step))
}

#[test]
fn documents_that_no_host_takes_are_refused_in_the_same_words() {
    let expected = expected();
    assert_eq!(expected.len(), ROWS.len());
    for ((kind, part), expected) in ROWS.iter().zip(expected) {
        let node = Node::new();
        node.put("a.json", document(part));
        node.put("none.json", config("none", &ignition(json!({}))));
        let json = ["--output", "json"];
        let on_host = ["plan", "--to", "a.json", "--root", "root", "--os-backend", "none"];
        let between = ["plan", "--from", "none.json", "--to", "a.json"];
        for words in [&on_host[..], &between[..]] {
            let found = refused(&node.run(&[words, &json].concat()), &format!("{kind} {words:?} {part}"));
            let is_found = |one: &&String| found.iter().any(|(message, next)| is_said(one, message, next));
            let missing: Vec<&String> = expected.iter().filter(|one| !is_found(one)).collect();
            assert!(
                !expected.is_empty() && missing.is_empty(),
                "{kind} {words:?}: {missing:#?} not in {found:#?}"
            );
        }
        let before = node.listing("root");
        assert_eq!(node.apply("a.json").code, 3, "{kind} {part}");
        assert_eq!(node.listing("root"), before, "{kind}: nothing is touched");
    }
}

/// A value of another type than its field has: the document is wrong.
#[test]
fn wrong_types_end_with_4() {
    let node = Node::new();
    let parts = [
        r#"{"config":"hi"}"#,
        r#"{"config":["hi"]}"#,
        r#"{"config":{"ignition":"hi"}}"#,
        r#"{"config":{"ignition":{"version":"3.4.0"},"storage":"hi"}}"#,
        r#"{"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":["hi"]}}}"#,
        r#"{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","mode":"0644"}]}}}"#,
        r#"{"fips":"yes"}"#,
        r#""hi""#,
        "[]",
    ];
    for part in parts {
        node.put("a.json", format!(r#"{{"kind":"MachineConfig","metadata":{{"name":"a"}},"spec":{part}}}"#));
        for verb in ["plan", "verify"] {
            let to = if verb == "plan" { "--to" } else { "--config" };
            let words = [verb, to, "a.json", "--root", "root", "--os-backend", "none", "--output", "json"];
            let ran = node.run(&words);
            let found: Value = serde_json::from_str(&ran.out).unwrap();
            let one = &found["refused"][0];
            assert_eq!((ran.code, &one["reason"]), (4, &json!("InvalidDocument")), "{verb} {part}: {found}");
        }
        assert_eq!(node.apply("a.json").code, 4, "{part}");
    }
}

/// Heads of documents that the controller refuses, too (`controllers refused_documents::`).
#[test]
fn odd_heads_are_refused() {
    for (head, words) in HEADS {
        let node = Node::new();
        node.put("a.json", head);
        for verb in ["plan", "verify"] {
            let to = if verb == "plan" { "--to" } else { "--config" };
            let ran = node.run(&[verb, to, "a.json", "--root", "root", "--os-backend", "none"]);
            assert!(
                ran.code == 4 && ran.err.contains(words),
                "{verb} {head}: {} {}{}",
                ran.code,
                ran.out,
                ran.err
            );
        }
        assert_eq!(node.apply("a.json").code, 4, "{head}");
    }
}

/// The plan of a control directory whose config is this document.
fn from_directory(node: &Node, text: &str) -> Ran {
    node.put("control/machineconfigs/50-a.yaml", text);
    node.put("control/target.yaml", "config: 50-a\n");
    node.run(&["plan", "--directory", "control", "--root", "root", "--os-backend", "none"])
}

#[test]
fn documents_of_other_shapes_have_one_answer() {
    for (head, words) in
        HEADS.iter().filter(|(_, words)| words.contains("butane") || words.contains("mapping"))
    {
        let ran = from_directory(&Node::new(), head);
        assert!(ran.code == 4 && ran.err.contains(words), "{head}: {} {}{}", ran.code, ran.out, ran.err);
    }
    let node = Node::new();
    let ran = from_directory(&node, LONE_IGNITION);
    assert!(ran.code == 4 && ran.err.contains(LONE_IGNITION_WORDS), "{} {}{}", ran.code, ran.out, ran.err);
    for document in WITH_STATUS.iter().chain([&LONE_IGNITION]) {
        let node = Node::new();
        node.put("a.json", document);
        for words in [["plan", "--to", "a.json"], ["verify", "--config", "a.json"]] {
            let ran = node.run(&[&words[..], &["--root", "root", "--os-backend", "none"]].concat());
            assert_eq!(ran.code, 0, "{words:?} {document}: {}{}", ran.out, ran.err);
        }
        assert_eq!(node.apply("a.json").code, 0, "{document}");
        if *document != LONE_IGNITION {
            let ran = from_directory(&node, document);
            assert_eq!(ran.code, 0, "{document}: {}{}", ran.out, ran.err);
        }
    }
}

/// What this host is in the way of, has the form of each refusal, too.
#[test]
fn refusal_of_host_has_class_reason_field_and_path() {
    let node = Node::new();
    node.put("root/etc/a/b", "");
    let files = json!({"storage": {"files": [{"path": "/etc/a"}]}});
    node.put("a.json", config("rendered-a", &ignition(files)));
    let ran = node.run(&["plan", "--to", "a.json", "--root", "root", "--os-backend", "none", "-o", "json"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let one = &found["refused"][0];
    assert_eq!(ran.code, 3, "{found}");
    assert_eq!(
        (&one["class"], &one["reason"]),
        (&json!("unreconcilable"), &json!("HostNotPrepared")),
        "{found}"
    );
    assert_eq!(
        (&one["field"], &one["path"]),
        (&json!("storage.files \"/etc/a\""), &json!("/etc/a")),
        "{found}"
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let whole = text(&found["irreconcilable"][0]["message"]);
    assert!(is_said(&whole, &text(&one["message"]), &text(&one["next"])), "{found}");
    let ran =
        node.run(&["verify", "--config", "a.json", "--root", "root", "--os-backend", "none", "-o", "json"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &found["refused"][0]["path"]), (3, &json!("/etc/a")), "{found}");
}
