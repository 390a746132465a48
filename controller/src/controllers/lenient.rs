//! An object that may be rubbish: one that can't be read fails alone, and not the list that it came in.

use std::borrow::Cow;

use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// An object, or why it can't be read.
#[derive(Debug, Clone)]
pub(super) struct Lenient<K> {
    pub(super) metadata: ObjectMeta,
    pub(super) object: Result<K, String>,
    /// Its `spec.poolRef` and `status` alone: what a report on it needs.
    pub(super) excerpt: Value,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let metadata = value.get("metadata").cloned().unwrap_or_default();
        let metadata = serde_json::from_value(metadata).map_err(D::Error::custom)?;
        let excerpt = json!({
            "spec": { "poolRef": value.pointer("/spec/poolRef") },
            "status": value.get("status"),
        });
        let object = serde_json::from_value(value).map_err(|error| cause(&error));
        Ok(Self { metadata, object, excerpt })
    }
}

/// Returns why something can't be read, without its value: an object holds secrets.
pub(super) fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("missing field ") {
        return text;
    }
    let expected = text.split("expected ").nth(1).map(|expected| format!("a field is not {expected}"));
    expected.unwrap_or_else(|| "a field has another type".to_owned())
}

impl<K: Resource<DynamicType = ()>> Resource for Lenient<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::MachineConfig;

    #[test]
    fn rubbish_fails_alone_and_is_not_quoted() {
        let object =
            |kargs: Value| json!({ "metadata": { "name": "a" }, "spec": { "kernelArguments": kargs } });
        let list = json!([object(json!(["quiet"])), object(json!("top-secret"))]);
        let read: Vec<Lenient<MachineConfig>> = serde_json::from_value(list).unwrap();
        assert!(read[0].object.is_ok());
        let error = read[1].object.clone().unwrap_err();
        assert!(!error.contains("top-secret") && error.contains("sequence"), "{error}");
        assert_eq!(read[1].metadata.name.as_deref(), Some("a"));
    }
}
