//! Kinds that are read as they are, and reduced: a part that can't be read does not hide the others.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use kube::api::DynamicObject;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cache::{Kind, Snapshot};
use super::cached::{Cached, Identified};
use super::layering::{OsBuild, OsConfig};
use crate::api::{MachineConfiguration, MachineOSBuild, MachineOSConfig};
use crate::model::document::{self, Kind as DocumentKind};
use crate::model::policy::DisruptionPolicy;
use crate::reading::is_resource_of_its_kind;

const OBJECT: &str = "MachineConfiguration cluster";

const POLICY: DocumentKind = DocumentKind::POLICY;

/// An object of a kind as it is.
#[derive(Debug, Clone)]
pub(super) struct Untyped<K> {
    pub(super) object: DynamicObject,
    kind: PhantomData<K>,
}

/// A pool in image mode.
pub(super) type MachineOsConfig = Untyped<MachineOSConfig>;

/// The build of an image.
pub(super) type MachineOsBuild = Untyped<MachineOSBuild>;

impl<K> From<DynamicObject> for Untyped<K> {
    fn from(object: DynamicObject) -> Self {
        Self { object, kind: PhantomData }
    }
}

impl Cached for MachineOsConfig {
    const KIND: Kind = Kind::OsConfigs;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let new = OsConfig::of(&self.object);
        let old = snapshot.os_configs.get(&new.seed.name);
        let is_older = old.is_some_and(|old| new.is_older(old));
        if snapshot.refuses(is_older) {
            return false;
        }
        let old = snapshot.os_configs.insert(new.seed.name.clone(), new.clone());
        // A pool is rendered with the image that was built before.
        let is_input = old.as_ref().map_or(new.seed.image.is_some(), |old| old.seed != new.seed);
        snapshot.inputs_changed(is_input);
        old != Some(new)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        // Its component is removed as well, also one that upstream made.
        let there = snapshot.os_configs.remove(name).is_some();
        snapshot.inputs_changed(there)
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.os_configs.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        Some(&snapshot.os_configs.get(name)?.build.uid)
    }
}

impl Cached for MachineOsBuild {
    const KIND: Kind = Kind::OsBuilds;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let (name, new) = (self.object.metadata.name.clone().unwrap_or_default(), OsBuild::of(&self.object));
        let old = snapshot.os_builds.get(&name);
        let is_older = old.is_some_and(|old| new.is_older(old));
        if snapshot.refuses(is_older) {
            return false;
        }
        snapshot.os_builds.insert(name, new.clone()) != Some(new)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.os_builds.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.os_builds.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        Some(&snapshot.os_builds.get(name)?.build.uid)
    }
}

impl Identified for MachineOsConfig {}

impl Identified for MachineOsBuild {}

impl Cached for Untyped<MachineConfiguration> {
    const KIND: Kind = Kind::Policy;
    const NAME: Option<&'static str> = Some("cluster");

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        if self.object.metadata.name.as_deref() != Some("cluster") {
            return false;
        }
        let bytes = serde_json::to_vec(&self.object).map_err(|error| error.to_string());
        let read = |bytes: Vec<u8>| DisruptionPolicy::of_document(&document::one(&bytes, OBJECT, POLICY)?);
        let found = bytes.and_then(|bytes| read(bytes).map_err(|error| error.to_string()));
        let (policy, unknown) = match found {
            Ok(found) => (Ok(found.value), found.unknown),
            Err(cause) => (Err(cause), Vec::new()),
        };
        let is_told_anew = snapshot.put_unknown(Kind::Policy, self.object.metadata.uid, unknown);
        let news = snapshot.policy.as_ref() != Some(&policy);
        snapshot.policy = Some(policy);
        snapshot.inputs_changed(news || is_told_anew)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        let there = name == "cluster" && snapshot.policy.take().is_some();
        if there {
            snapshot.put_unknown(Kind::Policy, None, Vec::new());
        }
        snapshot.inputs_changed(there)
    }
    fn names(_: &Snapshot) -> BTreeSet<String> {
        BTreeSet::from(["cluster".to_owned()])
    }
}

impl<'de, K> Deserialize<'de> for Untyped<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DynamicObject::deserialize(deserializer).map(Self::from)
    }
}

impl<K> Serialize for Untyped<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

is_resource_of_its_kind!(Untyped, object.metadata);
