//! The difference of two objects, as a patch.

use serde_json::Value;

/// Returns the merge patch from one object to another: removed fields are null. Fields that neither has stay as they are.
pub(super) fn merge(old: &Value, new: &Value) -> Value {
    let (Some(before), Value::Object(after)) = (old.as_object(), new) else { return new.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let differing = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let changed =
        differing.map(|(key, value)| (key.clone(), merge(before.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(changed).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patch_has_changes_and_removals() {
        let old = json!({ "a": 1, "b": { "c": 1, "d": 2 }, "e": [1], "f": 1 });
        let new = json!({ "a": 1, "b": { "c": 2 }, "e": [1, 2] });
        assert_eq!(merge(&old, &new), json!({ "b": { "c": 2, "d": null }, "e": [1, 2], "f": null }));
        assert_eq!(merge(&Value::Null, &new), new);
    }
}
