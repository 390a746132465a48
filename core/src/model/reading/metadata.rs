//! Metadata of an object.

use std::collections::BTreeMap;
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

/// Metadata, of which the name alone is kept. The others have to be of their types: the API server takes no others.
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
            if key == "name" {
                if name.replace(map.next_value()?).is_some() {
                    return Err(A::Error::duplicate_field("name"));
                }
                continue;
            }
            match key.as_str() {
                "annotations" | "labels" => skip::<Option<BTreeMap<String, String>>, A>(&mut map)?,
                "deletionGracePeriodSeconds" | "generation" => skip::<Option<i64>, A>(&mut map)?,
                "finalizers" => skip::<Option<Vec<String>>, A>(&mut map)?,
                "managedFields" | "ownerReferences" => {
                    skip::<Option<Vec<BTreeMap<String, IgnoredAny>>>, A>(&mut map)?;
                }
                known if FIELDS.contains(&known) => skip::<Option<String>, A>(&mut map)?,
                _ => skip::<IgnoredAny, A>(&mut map)?,
            }
        }
        name.map(|name| Metadata { name }).ok_or_else(|| A::Error::missing_field("name"))
    }
}

fn skip<'de, T: Deserialize<'de>, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<T>().map(drop)
}
