//! Fields that this host does not get: named by each verb, or refused before anything is touched.

use crate::test_host::{Node, config, ignition};
use serde_json::{Value, json};

const TEXT: [&str; 2] = ["--root", "root"];

fn listed(json: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(json).unwrap();
    let entries = document["notApplied"].as_array().unwrap();
    entries.iter().map(|one| format!("{} {}", one["because"], one["field"]).replace('"', "")).collect()
}

/// Storage that only an installation makes is named by plan, verify and status, and no longer once it is there.
#[test]
fn storage_that_host_lacks_is_named_by_each_verb() {
    let node = Node::new();
    let storage = json!({
        "disks": [{"device": "/dev/vda", "partitions": [{"number": 1, "label": "data"}]}],
        "luks": [{"name": "data", "device": "/dev/disk/by-partlabel/data", "keyFile": {"source": "data:,k"}}],
        "filesystems": [{"device": "/dev/mapper/data", "path": "/var/lib/data", "format": "xfs"}],
        "files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}],
    });
    let sections = json!({"storage": storage, "kernelArguments": {"shouldExist": ["mitigations=off"]}});
    node.put("a.json", config("rendered-a", &ignition(sections)));
    let fields = [
        "installation config.kernelArguments",
        "installation storage.disks \\/dev/vda\\",
        "installation storage.filesystems \\/var/lib/data\\",
        "installation storage.luks \\data\\",
    ];
    let json = |words: &[&str]| {
        let ran = node.run(&[words, &TEXT, &["--output", "json"]].concat());
        assert_eq!(ran.code, if words[0] == "status" { 0 } else { ran.code }, "{}", ran.err);
        listed(&ran.out)
    };
    assert_eq!(json(&["plan", "--to", "a.json"]), fields);
    let plan = node.run(&[&["plan", "--to", "a.json"], &TEXT[..]].concat());
    assert!(plan.out.contains("Not applied\n  config.kernelArguments: "), "{}", plan.out);
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert_eq!(json(&["verify"]), fields);
    assert_eq!(json(&["verify", "--config", "a.json"]), fields);
    assert_eq!(json(&["status"]), fields);
    let verify = node.run(&[&["verify"], &TEXT[..]].concat());
    assert!(verify.out.contains("the host matches rendered-a\nNot applied\n"), "{}", verify.out);
    let status = node.run(&[&["status"], &TEXT[..]].concat());
    assert!(status.out.contains("  not applied  storage.luks \"data\": "), "{}", status.out);
    // The secret of the volume is in none of them.
    assert!(!(verify.out + &status.out + &plan.out).contains("data:,k"));

    node.put("root/dev/disk/by-partlabel/data", "");
    node.put("root/dev/mapper/data", "");
    node.put("root/proc/cmdline", "quiet mitigations=off\n");
    assert_eq!(json(&["verify"]), ["installation storage.filesystems \\/var/lib/data\\"]);
    // What the host was installed with is there, wherever it shows.
    node.put("root/etc/mcs-machine-config-content.json", node.read("a.json"));
    assert_eq!(json(&["verify"]), [""; 0]);
}

/// A host without an OS backend gets no OS: such a config is refused by its fields, and nothing is touched.
#[test]
fn os_fields_are_refused_without_os_backend() {
    let node = Node::new();
    let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
    let fields = [
        ("kernelArguments", json!(["nosmt"])),
        ("kernelType", json!("realtime")),
        ("extensions", json!(["usbguard"])),
        ("osImageURL", json!(image)),
    ];
    for (field, value) in fields {
        let mut spec = ignition(json!({"storage": {"files": [{"path": "/etc/a"}]}}));
        spec[field] = value;
        node.put("b.json", config("rendered-b", &spec));
        let before = node.listing("root");
        let refused = node.apply("b.json");
        assert_eq!(refused.code, 3, "{field}: {}", refused.err);
        let named = format!("spec.{field}: this host has no OS backend");
        assert!((refused.out + &refused.err).contains(&named), "{field}: {named}");
        assert_eq!(node.listing("root"), before, "{field}");
        let plan = node.plan("b.json");
        assert!(plan.code == 3 && plan.out.contains(&named), "{field}: {}", plan.out);
    }
}
