//! A config and then an empty one: the host is as it was before.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::test_host::{Node, ignition};

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=y.target\n";

/// What is below a directory: kind, mode and contents, without the places of the agent and of account programs.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name.contains("machine-config-") || name.ends_with(".pwd.lock") || name.ends_with('-') {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            let text = if meta.is_symlink() {
                path.read_link().unwrap().display().to_string()
            } else if meta.is_dir() {
                left.push(path);
                "directory".to_owned()
            } else {
                String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
            };
            found.insert(name, format!("{:o} {text}", meta.permissions().mode()));
        }
    }
    found
}

fn unit(name: &str) -> Value {
    json!({"name": name, "enabled": true, "contents": UNIT})
}

fn units(unit: &Value) -> Value {
    ignition(json!({"systemd": {"units": [unit]}}))
}

type Prepare = fn(&Node);

/// What the host has before, and the config that replaces it.
fn cases() -> Vec<(&'static str, Prepare, Value)> {
    let unit_file: Prepare = |node| node.put("root/etc/systemd/system/crio.service", UNIT);
    let link: Prepare = |node| symlink("none", node.path("root/etc/l")).unwrap();
    vec![
        (
            "links of a unit",
            |node| node.put("root/etc/systemd/system/o.service", ""),
            units(&unit("crio.service")),
        ),
        ("an equal unit file", unit_file, units(&unit("crio.service"))),
        (
            "an equal drop-in",
            |node| node.put("root/etc/systemd/system/crio.service.d/a.conf", "[Unit]\n"),
            units(&json!({"name": "crio.service", "dropins": [{"name": "a.conf", "contents": "[Unit]\n"}]})),
        ),
        (
            "a mask of the host",
            |node| {
                std::fs::create_dir_all(node.path("root/etc/systemd/system")).unwrap();
                symlink("/dev/null", node.path("root/etc/systemd/system/crio.service")).unwrap();
            },
            units(&json!({"name": "crio.service", "mask": true})),
        ),
        (
            "the password of a group that has none",
            |node| {
                node.put("root/etc/group", "root:x:0:\ncore:x:1000:\ng:x:50:\n");
                node.put("root/etc/gshadow", "root:*::\ncore:*::\ng:*::\n");
            },
            ignition(json!({"passwd": {"groups": [{"name": "g", "passwordHash": "$6$a$b"}]}})),
        ),
        (
            "a directory below a dangling link",
            link,
            ignition(json!({"storage": {"directories": [{"path": "/etc/l/f"}]}})),
        ),
        (
            "directories below a dangling link",
            link,
            ignition(json!({"storage": {"directories": [{"path": "/etc/l/f"}, {"path": "/etc/l/f/g"}]}})),
        ),
        (
            "a file below a dangling link",
            link,
            ignition(
                json!({"storage": {"files": [{"path": "/etc/l/f/g", "contents": {"source": "data:,x"}}]}}),
            ),
        ),
    ]
}

#[test]
fn empty_config_brings_host_back() {
    let mut wrong = Vec::new();
    for (case, prepare, spec) in cases() {
        let node = Node::new();
        // The presets decide about a unit that leaves the config.
        node.put("root/usr/lib/systemd/system-preset/99.preset", "disable *\n");
        prepare(&node);
        let before = tree(&node.path("root"));
        node.commit("rendered-a.json", &spec);
        node.commit("rendered-z.json", &ignition(json!({})));
        let after = tree(&node.path("root"));
        for name in before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name)) {
            wrong.push(format!("{case}: {name} {:?} -> {:?}", before.get(name), after.get(name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A host that Ignition installed with the config has its unit files from there: they leave with it.
#[test]
fn unit_file_of_installation_leaves_with_config() {
    let node = Node::new();
    node.put("root/etc/.ignition-result.json", "{}");
    node.put("root/etc/systemd/system/crio.service", UNIT);
    node.commit("rendered-a.json", &units(&unit("crio.service")));
    node.commit("rendered-z.json", &ignition(json!({})));
    assert!(!node.path("root/etc/systemd/system/crio.service").exists());
}
