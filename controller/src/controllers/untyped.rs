//! Kinds without a type of their own: they are read as they are, and reduced.

use std::collections::BTreeSet;

use kube::Resource;
use kube::api::DynamicObject;
use serde_json::Value;

use super::cache::{Kind, Snapshot};
use super::cached::Cached;
use super::layering::{OsBuild, OsConfig};
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::model::policy::DisruptionPolicy;
use crate::render::Release;

/// A pool in image mode.
#[derive(Debug, Clone)]
pub(super) struct MachineOsConfig(pub(super) DynamicObject);

/// The build of an image.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct MachineOsBuild(pub(super) DynamicObject);

impl Cached for MachineOsConfig {
    const KIND: Kind = Kind::OsConfigs;

    fn put(self, snapshot: &mut Snapshot) -> bool {
        let new = OsConfig::of(&self.0);
        if snapshot.os_configs.get(&new.seed.name).is_some_and(|old| new.is_older(old)) {
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
}

impl Cached for MachineOsBuild {
    const KIND: Kind = Kind::OsBuilds;

    fn put(self, snapshot: &mut Snapshot) -> bool {
        let (name, new) = (self.0.metadata.name.clone().unwrap_or_default(), OsBuild::of(&self.0));
        if snapshot.os_builds.get(&name).is_some_and(|old| new.is_older(old)) {
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
}

/// The cluster's images, as far as they are read.
#[derive(Debug, Clone)]
pub(super) struct ControllerConfig(DynamicObject);

/// The disruption policy.
#[derive(Debug, Clone)]
pub(super) struct MachineConfiguration(DynamicObject);

impl Cached for ControllerConfig {
    const KIND: Kind = Kind::ControllerConfig;
    const NAME: Option<&'static str> = Some(CONTROLLER_CONFIG);

    fn put(self, snapshot: &mut Snapshot) -> bool {
        if self.0.metadata.name.as_deref() != Some(CONTROLLER_CONFIG) {
            return false;
        }
        let release = self.0.data.get("spec").map(Release::from_controller_config).unwrap_or_default();
        let news = snapshot.release != release;
        snapshot.release = release;
        let topology = self.0.data.pointer("/spec/infra/status/controlPlaneTopology");
        let topology = topology.and_then(Value::as_str).map(str::to_owned);
        let is_other_topology = snapshot.topology != topology;
        snapshot.topology = topology;
        snapshot.inputs_changed(news) || is_other_topology
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        if name != CONTROLLER_CONFIG {
            return false;
        }
        let had_topology = snapshot.topology.take().is_some();
        let there = std::mem::take(&mut snapshot.release) != Release::default();
        snapshot.inputs_changed(there) || had_topology
    }
    fn names(_: &Snapshot) -> BTreeSet<String> {
        BTreeSet::from([CONTROLLER_CONFIG.to_owned()])
    }
}

impl Cached for MachineConfiguration {
    const KIND: Kind = Kind::Policy;
    const NAME: Option<&'static str> = Some("cluster");

    fn put(self, snapshot: &mut Snapshot) -> bool {
        if self.0.metadata.name.as_deref() != Some("cluster") {
            return false;
        }
        let bytes = serde_json::to_vec(&self.0).map_err(|error| error.to_string());
        let policy = bytes.and_then(|bytes| {
            DisruptionPolicy::parse(&bytes, "MachineConfiguration cluster").map_err(|error| error.to_string())
        });
        let news = snapshot.policy.as_ref() != Some(&policy);
        snapshot.policy = Some(policy);
        snapshot.inputs_changed(news)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        let there = name == "cluster" && snapshot.policy.take().is_some();
        snapshot.inputs_changed(there)
    }
    fn names(_: &Snapshot) -> BTreeSet<String> {
        BTreeSet::from(["cluster".to_owned()])
    }
}

/// A kind without a type of its own, read as it is.
macro_rules! untyped {
    ($name:ident, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                DynamicObject::deserialize(deserializer).map(Self)
            }
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::api::ObjectMeta {
                &self.0.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
                &mut self.0.metadata
            }
        }
    };
}

untyped!(
    ControllerConfig,
    "machineconfiguration.openshift.io",
    "v1",
    "ControllerConfig",
    "controllerconfigs"
);
untyped!(
    MachineConfiguration,
    "operator.openshift.io",
    "v1",
    "MachineConfiguration",
    "machineconfigurations"
);
untyped!(MachineOsConfig, "machineconfiguration.openshift.io", "v1", "MachineOSConfig", "machineosconfigs");
untyped!(MachineOsBuild, "machineconfiguration.openshift.io", "v1", "MachineOSBuild", "machineosbuilds");
