//! An object that may be rubbish: one that can't be read fails alone, and not the list that it came in.

use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{Object, of_tree};
use crate::model::NotApplied;

/// An object, or why it can't be read.
#[derive(Debug, Clone)]
pub struct Lenient<K> {
    /// Its metadata, which can be read of each.
    pub metadata: ObjectMeta,
    /// The object, or the field and the cause.
    pub object: Result<K, String>,
    /// Fields that nobody knows.
    pub unknown: Vec<NotApplied>,
    /// Its `spec.poolRef` and `status` alone: what a report on it needs.
    pub excerpt: Value,
}

impl<K: Resource> Lenient<K> {
    /// Takes an object that was read, or is written.
    pub fn of(object: K) -> Self {
        Self {
            metadata: object.meta().clone(),
            object: Ok(object),
            unknown: Vec::new(),
            excerpt: Value::Null,
        }
    }
}

/// For writes: only an object is written.
impl<K: Serialize> Serialize for Lenient<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.object {
            Ok(object) => object.serialize(serializer),
            Err(cause) => Err(S::Error::custom(cause)),
        }
    }
}

impl<K: Object> Lenient<K> {
    /// Reads an object; fails where its metadata can't be read.
    pub(crate) fn of_value(value: &Value) -> Result<Self, serde_json::Error> {
        let metadata = ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))?;
        let excerpt = json!({
            "spec": { "poolRef": value.pointer("/spec/poolRef") },
            "status": value.get("status"),
        });
        let (object, unknown) = match of_tree::<K>(value) {
            Ok(found) => (Ok(found.value), found.unknown),
            // Without the object's name and the value: an object holds secrets.
            Err(error) => (Err(error.without_object()), Vec::new()),
        };
        Ok(Self { metadata, object, unknown, excerpt })
    }
}

impl<'de, K: Object> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of_value(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Gives a wrapper of a kind the kind's name, group and scope; the metadata is that of a field.
macro_rules! is_resource_of_its_kind {
    ($wrapper:ident, $($metadata:ident).+) => {
        impl<K: kube::Resource<DynamicType = ()>> kube::Resource for $wrapper<K> {
            type DynamicType = ();
            type Scope = K::Scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                K::kind(&())
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                K::group(&())
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                K::version(&())
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                K::plural(&())
            }
            fn meta(&self) -> &kube::api::ObjectMeta {
                &self.$($metadata).+
            }
            fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
                &mut self.$($metadata).+
            }
        }
    };
}
pub(crate) use is_resource_of_its_kind;

is_resource_of_its_kind!(Lenient, metadata);

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
        assert!(!error.contains("top-secret") && error.contains("must be a list"), "{error}");
        assert_eq!(read[1].metadata.name.as_deref(), Some("a"));
    }
}
