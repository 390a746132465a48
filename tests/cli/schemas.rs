//! What the verbs print as JSON fits the schemas in `docs/schemas/agent`. Those of stateroots and seeds are held in tests/os.

use serde_json::{Value, json};

use crate::schema_files::{check, validate};
use crate::test_host::{Node, Ran, config, files, ignition};

fn verb(node: &Node, words: &[&str]) -> Ran {
    node.run(&[words, &["--root", "root", "--os-backend", "none", "--output", "json"]].concat())
}

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
}

fn checked(verb: &str, ran: &Ran, code: i32) -> Value {
    assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
    let document = document(ran);
    check("agent", verb, &document);
    document
}

/// A config with an entry that no node takes.
fn refused() -> Value {
    let mut spec = ignition(json!({}));
    spec["config"]["storage"]["disks"] = json!([{ "device": "/dev/vdb" }]);
    spec
}

#[test]
fn documents_of_verbs_fit_their_schemas() {
    let node = Node::new();
    checked("status", &verb(&node, &["status"]), 0);
    let history = || node.run(&["history", "--root", "root", "--output", "json"]);
    checked("history", &history(), 0);
    node.commit("rendered-a.json", &files(&[("/etc/motd", "a"), ("/etc/issue", "a")]));
    let idle = checked("status", &verb(&node, &["status"]), 0);
    assert_eq!(idle["state"], "Done", "{idle:#}");
    let past = checked("history", &history(), 0);
    assert_eq!(past["updates"].as_array().map(Vec::len), Some(1), "{past:#}");
    node.put(
        "b.json",
        config("rendered-b", &files(&[("/etc/motd", "b"), ("/etc/issue", "a"), ("/usr/x", "b")])),
    );
    let plan = checked("plan", &verb(&node, &["plan", "--to", "b.json"]), 0);
    assert!(!plan["steps"].as_array().unwrap().is_empty(), "{plan:#}");
    checked("verify", &verb(&node, &["verify"]), 0);
    checked("verify", &verb(&node, &["verify", "--config", "b.json"]), 1);
    node.put("refused.json", config("rendered-c", &refused()));
    checked("plan", &verb(&node, &["plan", "--to", "refused.json"]), 3);
    checked("verify", &verb(&node, &["verify", "--config", "refused.json"]), 3);
    // A drift, an update that waits for its reboot, and a command line, a file and a document that are refused.
    node.put("root/etc/issue", "drifted");
    let drifted = checked("status", &verb(&node, &["status"]), 0);
    assert_eq!(drifted["fault"]["reason"], "ConfigDrift", "{drifted:#}");
    checked("plan", &verb(&node, &["plan", "--to", "b.json"]), 4);
    node.put("root/etc/issue", "a");
    let apply = ["apply", "--to", "b.json", "--root", "root", "--os-backend", "none", "--yes", "--no-reboot"];
    assert_eq!(node.run(&apply).code, 0);
    let open = checked("status", &verb(&node, &["status"]), 0);
    assert_eq!(open["phase"], "Rebooting", "{open:#}");
    checked("plan", &verb(&node, &["plan", "--to", "b.json"]), 0);
    node.put("broken.json", "{");
    for (words, code) in [
        (&["plan", "--to", "absent.json"][..], 2),
        (&["plan", "--nonsense"], 2),
        (&["verify", "--config", "broken.json"], 4),
    ] {
        checked("refused", &verb(&node, words), code);
    }
}

/// A schema that takes everything would prove nothing.
#[test]
fn schema_refuses_document_of_another_shape() {
    let node = Node::new();
    let document = checked("history", &node.run(&["history", "--root", "root", "--output", "json"]), 0);
    for (other, what) in [
        (json!([]), "an array"),
        (json!({ "updates": [] }), "no version"),
        (json!({ "schemaVersion": "1", "updates": [] }), "a text for a number"),
        (json!({ "schemaVersion": 1, "updates": [], "more": 1 }), "a key of no type"),
        (json!({ "schemaVersion": 1, "updates": [{ "id": "1" }] }), "an update without its fields"),
    ] {
        assert!(validate("agent", "history", &other).is_err(), "{what} fits");
    }
    assert!(validate("agent", "status", &document).is_err());
}
