//! The content of a config as a digest: what tells an edited document from one that was only written again.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Sha256;

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    spec: Value,
}

/// Digests the spec of an object in JSON. Metadata, the order of fields, nulls and empty parts do not count.
pub(super) fn digest(json: &str) -> Sha256 {
    // One that is nested too deeply to be a tree is its text.
    let text = || Sha256::digest(json.as_bytes());
    let Ok(Object { spec }) = serde_json::from_str(json) else { return text() };
    Sha256::digest_json(&canonical(spec)).unwrap_or_else(|_| text())
}

/// Sorts the fields and drops what sets nothing; `None` if nothing is left.
fn canonical(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) => Some(value),
        Value::String(ref text) => (!text.is_empty()).then_some(value),
        // The place in a list counts, so nothing is dropped of one.
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => {
            Some(Value::Array(list.into_iter().map(|one| canonical(one).unwrap_or_default()).collect()))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.into_iter().filter_map(|(name, value)| Some((name, canonical(value)?))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            (!fields.is_empty()).then(|| Value::Object(Map::from_iter(fields)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"metadata":{"name":"a"},"spec":{"kernelArguments":["a","b"],"config":{"ignition":{"version":"3.4.0"},
        "storage":{"files":[{"path":"/etc/a","mode":420}]}}}}"#;

    #[test]
    fn content_is_independent_of_form_and_metadata() {
        for same in [
            r#"{"spec":{"config":{"storage":{"files":[{"mode":420,"path":"/etc/a"}]},"ignition":{"version":"3.4.0"}},
                "kernelArguments":["a","b"]},"metadata":{"resourceVersion":"7","name":"a"},"status":{}}"#,
            r#"{"metadata":{"name":"b"},"spec":{"kernelArguments":["a","b"],"kernelType":"","extensions":[],"fips":null,
                "config":{"ignition":{"version":"3.4.0","config":{"replace":{"source":null}}},
                "storage":{"files":[{"path":"/etc/a","mode":420,"user":{}}],"links":null}}}}"#,
        ] {
            assert_eq!(digest(same), digest(CONFIG), "{same}");
        }
    }

    #[test]
    fn changed_value_or_order_is_other_content() {
        for (old, new) in
            [("420", "384"), ("/etc/a", "/etc/b"), (r#""a","b""#, r#""b","a""#), (r#""b"]"#, r#""b",""]"#)]
        {
            let other = CONFIG.replacen(old, new, 1);
            assert_ne!(digest(&other), digest(CONFIG), "{other}");
        }
        assert_eq!(digest("{}"), digest(r#"{"spec":{}}"#));
    }

    #[test]
    fn nesting_beyond_any_tree_is_digested() {
        let deep = format!(r#"{{"spec":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
        assert_ne!(digest(&deep), digest(&deep.replace('1', "2")));
    }
}
