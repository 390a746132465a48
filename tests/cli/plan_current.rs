//! `plan` from the current config promises what `apply` does: the same steps, or the same drift in the way of them.

use serde_json::Value;

use crate::test_host::{Node, Ran, config, files};

/// A host with a committed config, whose message somebody changed.
fn drifted() -> Node {
    let node = Node::new();
    let spec = files(&[("/etc/motd", "a"), ("/etc/kept", "kept")]);
    node.commit("rendered-a.json", &spec);
    node.put("root/etc/motd", "of-somebody");
    node
}

fn plan(node: &Node, to: &str) -> (Ran, Value) {
    let words = |output| {
        let host = ["--root", "root", "--os-backend", "none", "--policy", "policy.json", "--exit-code"];
        [["plan", "--to", to, "--output", output].as_slice(), &host].concat()
    };
    let json = node.run(&words("json"));
    let text = node.run(&words("text"));
    assert_eq!(json.code, text.code, "{}{}", json.err, text.err);
    (text, serde_json::from_str(&json.out).unwrap())
}

const HEAD: &str =
    "\nDrift: the update starts when this is restored\n  content mismatch for file \"/etc/motd\"";

#[test]
fn drift_of_same_config_is_in_plan() {
    let node = drifted();
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 1 && text.out.contains(HEAD), "{}: {}", text.code, text.out);
    assert!(!text.out.contains("nothing differs"), "{}", text.out);
    assert_eq!((&json["drift"][0]["target"], &json["drift"][1]), (&"/etc/motd".into(), &Value::Null));
    let ran = node.apply("rendered-a.json");
    assert!(ran.code == 4 && ran.err.contains("/etc/motd"), "{}: {}", ran.code, ran.err);
    node.put("root/etc/motd", "a");
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 0 && json["drift"] == serde_json::json!([]), "{}: {}", text.code, text.out);
}

/// The update neither mends it nor does it want it so.
#[test]
fn drift_that_holds_update_is_in_its_plan() {
    let node = drifted();
    node.put("b.json", config("rendered-b", &files(&[("/etc/motd", "a"), ("/etc/new", "b")])));
    let (text, _) = plan(&node, "b.json");
    assert!(text.code == 1 && text.out.contains(HEAD), "{}: {}", text.code, text.out);
    let ran = node.apply("b.json");
    assert!(
        ran.code == 4 && ran.err.contains("/etc/motd") && !node.path("root/etc/new").exists(),
        "{}",
        ran.err
    );
}

#[test]
fn drift_that_update_mends_is_not_in_its_plan() {
    let node = drifted();
    node.put("c.json", config("rendered-c", &files(&[("/etc/motd", "c")])));
    let (text, json) = plan(&node, "c.json");
    assert!(text.code == 1 && json["drift"] == serde_json::json!([]), "{}", text.out);
    assert!(!text.out.contains("Drift: "), "{}", text.out);
    let ran = node.apply("c.json");
    assert_eq!((ran.code, node.read("root/etc/motd").as_str()), (0, "c"), "{}", ran.err);
}

/// Forced, the update goes on from what is observed: the plan has its steps, the removal of the force file, and its price.
#[test]
fn forced_update_is_planned_as_it_is_applied() {
    let node = drifted();
    node.put("root/run/machine-config-daemon-force", "");
    let (text, json) = plan(&node, "rendered-a.json");
    assert!(text.code == 1 && json["drift"] == serde_json::json!([]), "{}", text.out);
    let steps: Vec<&str> =
        json["steps"].as_array().unwrap().iter().filter_map(|step| step["target"].as_str()).collect();
    assert!(
        steps.contains(&"/etc/motd") && steps.contains(&"/run/machine-config-daemon-force"),
        "{}",
        text.out
    );
    assert_eq!((&json["after"]["kind"], &json["drain"]), (&"reboot".into(), &true.into()), "{}", text.out);
}
