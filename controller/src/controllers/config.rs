//! A MachineConfig on its way into the cache. Of a rendered one the metadata and the image are kept: its Ignition config, a megabyte, is
//! skipped while it is read.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use kube::api::ObjectMeta;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::cache::{Kind, Snapshot};
use super::cached::Cached;
use crate::api::{MachineConfig, rendered_for};
use crate::reading::{Lenient, is_resource_of_its_kind};

/// A MachineConfig as a watch brings it.
pub(super) type WatchedConfig = Watched<MachineConfig>;

/// An object, without its Ignition config if it is rendered.
#[derive(Debug, Clone)]
pub(super) struct Watched<K> {
    read: Lenient<K>,
}

is_resource_of_its_kind!(Watched, read.metadata);

impl<'de> Deserialize<'de> for WatchedConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// Reads the fields of an object. The API server writes them in the order of their names: the metadata come before the spec.
struct Fields<K>(PhantomData<K>);

impl<'de> Visitor<'de> for Fields<MachineConfig> {
    type Value = WatchedConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<WatchedConfig, M::Error> {
        let mut tree = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == "spec" && tree.get("metadata").is_some_and(is_rendered) {
                let image = fields.next_value::<Image>()?.os_image_url;
                tree.insert(name, json!({ "osImageURL": image }));
            } else {
                tree.insert(name, fields.next_value()?);
            }
        }
        Lenient::of_value(&Value::Object(tree)).map(|read| Watched { read }).map_err(M::Error::custom)
    }
}

/// The part of a rendered config's spec that is read.
#[derive(Deserialize)]
struct Image {
    #[serde(default, rename = "osImageURL")]
    os_image_url: Value,
}

fn is_rendered(metadata: &Value) -> bool {
    ObjectMeta::deserialize(metadata).is_ok_and(|metadata| rendered_for(&metadata).is_some())
}

impl Cached for WatchedConfig {
    const KIND: Kind = Kind::Configs;
    // Each may have 1.5 MB, and is in memory as text and as a tree.
    const PAGE_SIZE: u32 = 2;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        self.read.insert(snapshot)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        <Lenient<MachineConfig> as Cached>::remove(snapshot, name)
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        <Lenient<MachineConfig> as Cached>::names(snapshot)
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        <Lenient<MachineConfig> as Cached>::uid(snapshot, name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IMAGE: &str =
        "registry.test/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn config(owner: &str) -> Value {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": { "name": "rendered-worker-1", "ownerReferences": [
                { "apiVersion": "machineconfiguration.openshift.io/v1", "kind": owner, "name": "worker", "uid": "u",
                  "controller": true },
            ] },
            "spec": { "kernelArguments": ["quiet"], "osImageURL": IMAGE },
        })
    }

    #[test]
    fn spec_of_rendered_config_is_skipped() {
        let read = |object: Value| -> MachineConfig {
            let watched: WatchedConfig = serde_json::from_str(&object.to_string()).unwrap();
            watched.read.object.unwrap()
        };
        let rendered = read(config("MachineConfigPool"));
        assert_eq!(rendered.spec.kernel_arguments, None);
        assert_eq!(rendered.spec.os_image_url.as_deref(), Some(IMAGE));
        assert_eq!(rendered_for(&rendered.metadata).unwrap().name, "worker");
        let source = read(config("KubeletConfig"));
        assert_eq!(source.spec.kernel_arguments.unwrap(), ["quiet"]);
    }

    #[test]
    fn rubbish_fails_alone() {
        let mut rubbish = config("KubeletConfig");
        rubbish["spec"]["kernelArguments"] = json!("top-secret");
        let read: Vec<WatchedConfig> =
            serde_json::from_value(json!([rubbish, config("KubeletConfig")])).unwrap();
        assert!(read[0].read.object.is_err() && read[1].read.object.is_ok());
        assert!(serde_json::from_value::<WatchedConfig>(json!("a")).is_err());
    }
}
