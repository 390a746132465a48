//! Storage of a config that differs from the node's installation: an override lets such a change through
//! (`irreconcilableValidationOverrides`), and only nodes that are installed later have it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::spec::FixedSections;

/// Compared sections: Ignition applies them once, on an empty disk.
const SECTIONS: [&str; 4] = ["storage.disks", "storage.filesystems", "storage.luks", "storage.raid"];

/// Bounds of the MachineConfigNode.
const MAX_CHANGES: usize = 32;
const MAX_PATH: usize = 70;
const MAX_DIFF: usize = 4096;

/// Replacement for the key of an encrypted volume.
const MASK: &str = "***";

/// Parts of `storage.luks` that hold keys, or the way to them.
const SECRETS: [&str; 2] = ["keyFile", "clevis"];

/// A field of the node that differs from its config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IrreconcilableChange {
    /// Its field in the MachineConfig, such as `spec.config.storage.disks[0].wipeTable`.
    pub field_path: String,
    /// The value at the installation (`-`), and the config's value (`+`).
    pub diff: String,
}

/// Compares a node's installation with its config. Empty when both are the same. Differences too large for one object
/// are reported by whole sections.
pub fn irreconcilable_changes(
    installed: &FixedSections,
    current: &FixedSections,
) -> Vec<IrreconcilableChange> {
    let of = |sections: &FixedSections, name: &str| {
        let text = sections.sections.get(name);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
    };
    let pairs = SECTIONS.map(|name| (format!("spec.config.{name}"), of(installed, name), of(current, name)));
    let mut found = Vec::new();
    for (path, old, new) in &pairs {
        compare(path, old, new, &mut found);
    }
    if found.len() > MAX_CHANGES {
        let differ = pairs.iter().filter(|(_, old, new)| old != new);
        found = differ.map(|(path, old, new)| change(path, old, new)).collect();
    }
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<IrreconcilableChange>) {
    if old == new {
        return;
    }
    let parts = parts(path, old, new);
    if parts.is_empty() || parts.iter().any(|(path, ..)| path.chars().count() > MAX_PATH) {
        found.push(change(path, old, new));
        return;
    }
    for (path, old, new) in parts {
        compare(&path, old, new, found);
    }
}

/// Returns the parts of two values that differ; none where they have none in common.
fn parts<'a>(path: &str, old: &'a Value, new: &'a Value) -> Vec<(String, &'a Value, &'a Value)> {
    let all: Vec<_> = match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let part = |key| (format!("{path}.{key}"), old.get(key), new.get(key));
            keys.into_iter().map(part).collect()
        }
        (Value::Array(old), Value::Array(new)) => {
            let part = |index: usize| (format!("{path}[{index}]"), old.get(index), new.get(index));
            (0..old.len().max(new.len())).map(part).collect()
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => Vec::new(),
    };
    let all = all
        .into_iter()
        .map(|(path, old, new)| (path, old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null)));
    all.filter(|(_, old, new)| old != new).collect()
}

fn change(path: &str, old: &Value, new: &Value) -> IrreconcilableChange {
    let is_secret = path.split(['.', '[']).any(|part| SECRETS.contains(&part));
    let line = |sign, value: &Value| match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            let text = if is_secret { MASK.to_owned() } else { redacted(value).to_string() };
            // Each has its half, so that a long one does not hide the other.
            Some(cut(format!("{sign} {text}"), MAX_DIFF / 2 - 1))
        }
    };
    let lines: Vec<String> = [line('-', old), line('+', new)].into_iter().flatten().collect();
    IrreconcilableChange { field_path: path.to_owned(), diff: lines.join("\n") }
}

fn cut(text: String, most: usize) -> String {
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let is_secret = SECRETS.contains(&key.as_str());
                (key.clone(), if is_secret { Value::String(MASK.to_owned()) } else { redacted(value) })
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(redacted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MachineConfig;
    use serde_json::json;

    fn sections(storage: &Value) -> FixedSections {
        let config = json!({ "kind": "MachineConfig", "metadata": { "name": "a" },
            "spec": { "config": { "ignition": { "version": "3.5.0" }, "storage": storage } } });
        MachineConfig::parse(config.to_string().as_bytes(), "a").unwrap().committed_spec(None).unwrap().fixed
    }

    fn changes(old: &Value, new: &Value) -> Vec<(String, String)> {
        let found = irreconcilable_changes(&sections(old), &sections(new));
        found.into_iter().map(|change| (change.field_path, change.diff)).collect()
    }

    fn pair(path: &str, diff: &str) -> (String, String) {
        (path.to_owned(), diff.to_owned())
    }

    /// MCD-251: each field that differs, by its path; no field that an update can change.
    #[test]
    fn storage_differences_are_listed_by_field() {
        let disk = |wipe: bool, size: u32| {
            json!({ "device": "/dev/sda", "wipeTable": wipe,
            "partitions": [{ "number": 1, "sizeMiB": size }] })
        };
        let old = json!({ "disks": [disk(false, 100)], "files": [{ "path": "/etc/a" }] });
        assert_eq!(changes(&old, &json!({ "disks": [disk(false, 100)] })), []);
        let new = json!({ "disks": [disk(true, 200), { "device": "/dev/sdb" }],
            "raid": [{ "name": "r", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"] }] });
        let expected = [
            pair("spec.config.storage.disks[0].partitions[0].sizeMiB", "- 100\n+ 200"),
            pair("spec.config.storage.disks[0].wipeTable", "- false\n+ true"),
            pair("spec.config.storage.disks[1]", r#"+ {"device":"/dev/sdb"}"#),
            pair(
                "spec.config.storage.raid",
                r#"+ [{"devices":["/dev/sda","/dev/sdb"],"level":"raid1","name":"r"}]"#,
            ),
        ];
        assert_eq!(changes(&old, &new), expected);
    }

    #[test]
    fn changes_are_bounded_and_keys_are_redacted() {
        let luks = |key: &str, label: &str| {
            json!({ "luks": [{ "name": "data", "device": "/dev/sdb", "label": label,
            "keyFile": { "source": format!("data:,{key}") }, "clevis": { "tang": [{ "url": key, "thumbprint": "t" }] } }] })
        };
        for new in [luks("other", "b"), json!({})] {
            let found = changes(&luks("hidden", "a"), &new);
            assert!(found.iter().any(|(_, diff)| diff.contains("***")), "{found:?}");
            assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
            assert!(!format!("{found:?}").contains("data:,other"), "{found:?}");
        }
        let partitions =
            |of: u32| (1..=of).map(|number| json!({ "number": number, "sizeMiB": of })).collect::<Vec<_>>();
        let disk = |of| json!({ "disks": [{ "device": "/dev/sda", "partitions": partitions(of) }] });
        assert_eq!(changes(&disk(1), &disk(20)).len(), 20, "a size, and what is new");
        assert_eq!(changes(&disk(1), &disk(40)).len(), 1);
    }

    #[test]
    fn long_differences_are_listed_by_section() {
        let disks = |size: u32| {
            let disk = |number| {
                json!({ "device": format!("/dev/disk/by-id/{number}-{}", "x".repeat(200)),
                "partitions": [{ "number": 1, "sizeMiB": size }] })
            };
            json!({ "disks": (0..40).map(disk).collect::<Vec<_>>() })
        };
        let found = changes(&disks(1), &disks(2));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "spec.config.storage.disks");
        assert!(
            found[0].1.chars().count() <= MAX_DIFF && found[0].1.contains("\n+ "),
            "{}",
            found[0].1.len()
        );
        let long = |at: &str| json!({ "filesystems": [{ "device": "/dev/sda", "options": [at] }] });
        for (path, diff) in changes(&long("a"), &long("b")) {
            assert!(path.len() <= MAX_PATH && !diff.is_empty(), "{path} {diff}");
        }
    }
}
