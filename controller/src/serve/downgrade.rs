//! Conversion of an Ignition config to an older version, where nothing is lost.
//!
//! Minors of Ignition 3 only add fields, so a config is of an older minor when it has none of the later ones. Which field
//! came with which minor is from Ignition's own specifications (`docs/configuration-v3_*.md` of github.com/coreos/ignition).

use serde_json::{Map, Value};

use super::accept::Version;

/// A field that came with a minor. `*` is any item of a list, or any field of an object.
const FIELDS: [(&str, u32); 19] = [
    ("ignition.proxy", 1),
    ("ignition.config.merge.*.compression", 1),
    ("ignition.config.merge.*.httpHeaders", 1),
    ("ignition.config.replace.compression", 1),
    ("ignition.config.replace.httpHeaders", 1),
    ("ignition.security.tls.certificateAuthorities.*.compression", 1),
    ("ignition.security.tls.certificateAuthorities.*.httpHeaders", 1),
    ("storage.files.*.contents.httpHeaders", 1),
    ("storage.files.*.append.*.httpHeaders", 1),
    ("storage.filesystems.*.mountOptions", 1),
    ("passwd.users.*.shouldExist", 2),
    ("passwd.groups.*.shouldExist", 2),
    ("storage.disks.*.partitions.*.resize", 2),
    ("storage.luks", 2),
    ("kernelArguments", 3),
    ("storage.luks.*.discard", 4),
    ("storage.luks.*.openOptions", 4),
    ("storage.luks.*.clevis.tang.*.advertisement", 4),
    ("storage.luks.*.cex", 5),
];

/// A field that the older version has no word for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.config.{field} needs Ignition config {needed}; this node reads {requested}: boot a newer image, or remove the field"
)]
pub struct Lost {
    field: String,
    needed: Version,
    requested: Version,
}

/// Writes the version into the config.
pub(super) fn downgraded(
    mut config: Map<String, Value>,
    requested: Version,
) -> Result<Map<String, Value>, Lost> {
    let tree = Value::Object(config.clone());
    let late = FIELDS.iter().filter(|(_, minor)| *minor > requested.0);
    for (path, minor) in late {
        let parts: Vec<&str> = path.split('.').collect();
        if let Some(field) = found(&tree, &parts) {
            return Err(Lost { field, needed: Version(*minor), requested });
        }
    }
    late_value(&tree, "", requested)?;
    let ignition = config.entry("ignition").or_insert_with(|| Value::Object(Map::new()));
    if let Some(ignition) = ignition.as_object_mut() {
        ignition.insert("version".to_owned(), Value::from(requested.to_string()));
    }
    Ok(config)
}

/// Returns the full name of the first field on this path that holds something.
fn found(tree: &Value, path: &[&str]) -> Option<String> {
    let Some((first, rest)) = path.split_first() else {
        return (!is_empty(tree)).then(String::new);
    };
    let joined = |name: String, rest: String| if rest.is_empty() { name } else { format!("{name}.{rest}") };
    match (*first, tree) {
        ("*", Value::Array(items)) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| found(item, rest).map(|rest| joined(at.to_string(), rest))),
        (name, Value::Object(fields)) => {
            found(fields.get(name)?, rest).map(|rest| joined(name.to_owned(), rest))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Fails at a value that came later than its field: URL schemes, digests, modes with special bits, `none` as a file system.
fn late_value(tree: &Value, path: &str, requested: Version) -> Result<(), Lost> {
    let within = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match tree {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            let needed = needed(name, value, path);
            if needed > requested {
                return Err(Lost { field: within(name), needed, requested });
            }
            late_value(value, &within(name), requested)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| late_value(item, &within(&at.to_string()), requested)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Returns the version that a value needs.
fn needed(name: &str, value: &Value, path: &str) -> Version {
    let text = value.as_str().unwrap_or_default();
    let in_storage = path.starts_with("storage.");
    let minor = match name {
        "source" if text.starts_with("arn:") => 4,
        "source" if text.starts_with("gs://") => 1,
        "hash" if text.starts_with("sha256-") => 1,
        // Setuid, setgid and sticky.
        "mode" if in_storage && value.as_u64().is_some_and(|mode| mode > 0o777) => 4,
        "format" if in_storage && text == "none" => 3,
        _ => 0,
    };
    Version(minor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(config: Value, minor: u32) -> Result<Value, String> {
        let Value::Object(config) = config else { panic!("an object") };
        downgraded(config, Version(minor)).map(Value::Object).map_err(|lost| lost.field)
    }

    #[test]
    fn older_version_is_written_without_loss() {
        let plain = json!({ "ignition": { "version": "3.5.0" }, "kernelArguments": {}, "storage": { "luks": [], "files": [
            { "path": "/etc/a", "mode": 420, "contents": { "source": "data:,a", "compression": "gzip" } }] } });
        for minor in 0..=5 {
            let mut expected = plain.clone();
            expected["ignition"]["version"] = json!(format!("3.{minor}.0"));
            assert_eq!(at(plain.clone(), minor), Ok(expected));
        }
        assert_eq!(at(json!({}), 2), Ok(json!({ "ignition": { "version": "3.2.0" } })));
    }

    /// Each row: the config, the first minor that has words for it, the field.
    #[test]
    fn lost_fields_are_named() {
        let files = |file: Value| json!({ "storage": { "files": [{ "path": "/a" }, file] } });
        let luks = |luks: Value| json!({ "storage": { "luks": [luks] } });
        let rows = [
            (json!({ "ignition": { "proxy": { "httpProxy": "http://a" } } }), 1, "ignition.proxy"),
            (
                files(json!({ "contents": { "httpHeaders": [{ "name": "a" }] } })),
                1,
                "storage.files.1.contents.httpHeaders",
            ),
            (files(json!({ "append": [{ "source": "gs://a/b" }] })), 1, "storage.files.1.append.0.source"),
            (
                files(json!({ "contents": { "verification": { "hash": "sha256-0" } } })),
                1,
                "storage.files.1.contents.verification.hash",
            ),
            (
                json!({ "passwd": { "users": [{ "name": "a", "shouldExist": false }] } }),
                2,
                "passwd.users.0.shouldExist",
            ),
            (luks(json!({ "name": "a" })), 2, "storage.luks"),
            (json!({ "kernelArguments": { "shouldExist": ["a"] } }), 3, "kernelArguments"),
            (
                json!({ "storage": { "filesystems": [{ "format": "none" }] } }),
                3,
                "storage.filesystems.0.format",
            ),
            (files(json!({ "mode": 0o4755 })), 4, "storage.files.1.mode"),
            (
                files(json!({ "contents": { "source": "arn:aws:s3:::a/b" } })),
                4,
                "storage.files.1.contents.source",
            ),
        ];
        for (config, first, field) in rows {
            for minor in 0..=5 {
                let result = at(config.clone(), minor);
                if minor >= first {
                    assert!(result.is_ok(), "{field} in 3.{minor}: {result:?}");
                } else {
                    assert_eq!(result, Err(field.to_owned()));
                }
            }
        }
        assert_eq!(at(luks(json!({ "discard": true })), 3), Err("storage.luks.0.discard".to_owned()));
        assert_eq!(at(luks(json!({ "cex": { "enabled": true } })), 4), Err("storage.luks.0.cex".to_owned()));
    }
}
