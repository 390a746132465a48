//! Metadata of an object.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// Fields of the API server's `ObjectMeta`.
const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Metadata, of which the name alone is read.
#[derive(Debug)]
pub(in crate::model) struct Metadata {
    pub(in crate::model) name: String,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("ObjectMeta", FIELDS, Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata with a name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut name = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "name" {
                map.next_value::<IgnoredAny>()?;
            } else if name.replace(map.next_value()?).is_some() {
                return Err(A::Error::duplicate_field("name"));
            }
        }
        name.map(|name| Metadata { name }).ok_or_else(|| A::Error::missing_field("name"))
    }
}
