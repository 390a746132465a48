//! Watches, into the cache. An expired watch is a new list: what is not in it is gone.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::cache::{Cache, Kind, RenderedConfig, Seen, is_older};
use super::failure::Failure;
use super::layering::{OsBuild, OsConfig};
use super::lenient::Lenient;
use super::node::{Node, NodeObject};
use crate::api::{MachineConfig, MachineConfigPool, RolloutPolicy};
use crate::model::policy::DisruptionPolicy;
use crate::render::Release;

/// A kind of object that the cache keeps.
pub(super) trait Kept: Resource + Clone + Debug + DeserializeOwned + Send + 'static {
    const KIND: Kind;

    /// The one object that is followed; all of them where it is `None`.
    const NAME: Option<&'static str> = None;

    /// Labels of those that are followed.
    const LABELS: Option<&'static str> = None;

    /// Puts it into the cache; true if that is news.
    fn put(self, seen: &mut Seen) -> bool;

    /// Notes that what is rendered from changed, if that is so; returns whether there was news.
    fn rendered_from(news: bool, seen: &mut Seen) -> bool {
        let input = matches!(Self::KIND, Kind::Configs | Kind::ControllerConfig | Kind::Policy);
        seen.inputs = seen.inputs.wrapping_add(u64::from(news && input));
        news
    }

    /// Removes one; true if it was there.
    fn remove(seen: &mut Seen, name: &str) -> bool;

    /// The names of those that are there.
    fn names(seen: &Seen) -> BTreeSet<String>;
}

/// Follows a kind for as long as it is polled. One that nothing defines is waited for.
pub(super) async fn follow<K: Kept>(api: Api<K>, cache: Cache) {
    if let Some(definition) = K::KIND.definition() {
        let defined = |seen: &Seen| seen.definitions.contains(definition);
        if !defined(&cache.look()) {
            cache.until(defined).await;
        }
    }
    let mut events = pin!(watcher(api, config::<K>()).default_backoff());
    let mut listed = BTreeSet::new();
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if std::mem::take(&mut failing) {
                    info!("{:?} are watched again", K::KIND);
                    cache.change(|seen| seen.failing.remove(&K::KIND).is_some());
                }
                apply(&cache, &mut listed, event);
            }
            Err(error) => {
                let failure = Failure::new(&error);
                // Not each try: a server that is away for an hour is one line.
                if !std::mem::replace(&mut failing, true) {
                    warn!("{:?} can't be watched: {}", K::KIND, failure.cause);
                    // An expired watch is begun anew: nothing is old.
                    let is_news = failure.code != 410;
                    cache.change(|seen| is_news && seen.failing.insert(K::KIND, failure).is_none());
                }
            }
        }
    }
}

/// By name where one object is meant: RBAC grants that one.
fn config<K: Kept>() -> watcher::Config {
    let config = watcher::Config::default();
    let config = K::LABELS.into_iter().fold(config, watcher::Config::labels);
    match K::NAME {
        Some(name) => config.fields(&format!("metadata.name={name}")),
        None => config,
    }
}

fn apply<K: Kept>(cache: &Cache, listed: &mut BTreeSet<String>, event: Event<K>) {
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(name(&object));
            // Before the first list is complete nobody decides on it.
            cache.change(|seen| K::rendered_from(object.put(seen), seen) && seen.synced.contains(&K::KIND));
        }
        Event::InitDone => cache.change(|seen| {
            let gone: Vec<String> = K::names(seen).difference(listed).cloned().collect();
            let lost = gone.iter().filter(|name| K::remove(seen, name)).count();
            listed.clear();
            let lost = K::rendered_from(lost > 0, seen);
            seen.synced.insert(K::KIND) || lost
        }),
        Event::Apply(object) => cache.change(|seen| K::rendered_from(object.put(seen), seen)),
        Event::Delete(object) => cache.change(|seen| K::rendered_from(K::remove(seen, &name(&object)), seen)),
    }
}

/// Follows all kinds; those of builds in a namespace, where there is a controller of them.
pub(super) async fn all(client: Client, cache: Cache, builds_in: Option<String>) {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follow(
        Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()),
        cache.clone(),
    ));
    tasks.spawn(follow(Api::<Lenient<MachineConfigPool>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<MachineConfig>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<NodeObject>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<ControllerConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineConfiguration>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<RolloutPolicy>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsBuild>::all(client.clone()), cache.clone()));
    if let Some(namespace) = builds_in {
        tasks.spawn(follow(Api::<Job>::namespaced(client.clone(), &namespace), cache.clone()));
        tasks.spawn(follow(Api::<Secret>::namespaced(client, &namespace), cache));
    }
    // None of them ends.
    while tasks.join_next().await.is_some() {}
}

impl Kept for PartialObjectMeta<CustomResourceDefinition> {
    const KIND: Kind = Kind::Definitions;

    fn put(self, seen: &mut Seen) -> bool {
        seen.definitions.insert(self.metadata.name.unwrap_or_default())
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.definitions.remove(name)
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.definitions.clone()
    }
}

impl Kept for NodeObject {
    const KIND: Kind = Kind::Nodes;

    fn put(self, seen: &mut Seen) -> bool {
        let node = Node::of(self);
        let old = seen.nodes.get(&node.name);
        if old.is_some_and(|old| old.uid == node.uid && is_older(&node.version, &old.version)) {
            return false;
        }
        let news = old.is_none_or(|old| !old.is_same(&node));
        seen.nodes.insert(node.name.clone(), node);
        news
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.nodes.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.nodes.keys().cloned().collect()
    }
}

impl Kept for Lenient<MachineConfigPool> {
    const KIND: Kind = Kind::Pools;

    fn put(self, seen: &mut Seen) -> bool {
        let name = self.metadata.name.unwrap_or_default();
        let version = self.metadata.resource_version.unwrap_or_default();
        if let (Some(Ok(old)), Ok(new)) = (seen.pools.get(&name), &self.object)
            && old.metadata.uid == new.metadata.uid
            && old.metadata.resource_version.as_deref().is_some_and(|old| is_older(&version, old))
        {
            return false;
        }
        let old = seen.pools.insert(name.clone(), self.object);
        let new = seen.pools.get(&name);
        let news = old.as_ref() != new;
        let id = |pool: &Result<MachineConfigPool, String>| {
            let metadata = pool.as_ref().ok().map(|pool| &pool.metadata);
            metadata.map(|metadata| {
                (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.clone())
            })
        };
        let respecified = old.as_ref().map(id) != new.map(id);
        seen.inputs = seen.inputs.wrapping_add(u64::from(respecified));
        news
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.pools.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.pools.keys().cloned().collect()
    }
}

impl Kept for Lenient<MachineConfig> {
    const KIND: Kind = Kind::Configs;

    fn put(self, seen: &mut Seen) -> bool {
        let name = self.metadata.name.clone().unwrap_or_default();
        let owners = self.metadata.owner_references.iter().flatten();
        let pool = owners
            .into_iter()
            .find(|owner| owner.kind == "MachineConfigPool")
            .map(|owner| owner.name.clone());
        if let Some(pool) = pool {
            let rendered = RenderedConfig {
                pool,
                uid: self.metadata.uid.unwrap_or_default(),
                version: self.metadata.resource_version.unwrap_or_default(),
                made: self.metadata.creation_timestamp.map(|time| time.0),
                generation: self.metadata.generation.unwrap_or(1),
            };
            return seen.rendered.insert(name, rendered.clone()) != Some(rendered);
        }
        match self.object {
            Ok(config) => {
                let lost = seen.unreadable.remove(&name).is_some();
                let news = seen.configs.get(&name).is_none_or(|old| {
                    (&old.spec, &old.metadata.labels, &old.metadata.annotations)
                        != (&config.spec, &config.metadata.labels, &config.metadata.annotations)
                });
                seen.configs.insert(name, config);
                news || lost
            }
            Err(why) => {
                seen.configs.remove(&name);
                let new = (self.metadata, why);
                seen.unreadable.insert(name, new.clone()) != Some(new)
            }
        }
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        let config = seen.configs.remove(name).is_some();
        let unreadable = seen.unreadable.remove(name).is_some();
        seen.rendered.remove(name).is_some() || config || unreadable
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        let all = seen.configs.keys().chain(seen.unreadable.keys()).chain(seen.rendered.keys());
        all.cloned().collect()
    }
}

impl Kept for Lenient<RolloutPolicy> {
    const KIND: Kind = Kind::RolloutPolicies;

    fn put(self, seen: &mut Seen) -> bool {
        let name = self.metadata.name.unwrap_or_default();
        let version = self.metadata.resource_version.unwrap_or_default();
        if let (Some(Ok(old)), Ok(new)) = (seen.policies.get(&name), &self.object)
            && old.metadata.uid == new.metadata.uid
            && old.metadata.resource_version.as_deref().is_some_and(|old| is_older(&version, old))
        {
            return false;
        }
        let old = seen.policies.insert(name.clone(), self.object);
        old.as_ref() != seen.policies.get(&name)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.policies.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.policies.keys().cloned().collect()
    }
}

/// A pool in image mode.
#[derive(Debug, Clone)]
pub(super) struct MachineOsConfig(pub(super) DynamicObject);

/// The build of an image.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct MachineOsBuild(pub(super) DynamicObject);

impl Kept for MachineOsConfig {
    const KIND: Kind = Kind::OsConfigs;

    fn put(self, seen: &mut Seen) -> bool {
        let new = OsConfig::of(&self.0);
        if seen.os_configs.get(&new.seed.name).is_some_and(|old| new.is_older(old)) {
            return false;
        }
        let old = seen.os_configs.insert(new.seed.name.clone(), new.clone());
        // A pool is rendered with the image that was built before.
        let is_input = old.as_ref().map_or(new.seed.image.is_some(), |old| old.seed != new.seed);
        seen.inputs = seen.inputs.wrapping_add(u64::from(is_input));
        old != Some(new)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        // A component goes with it, whoever made that one.
        let old = seen.os_configs.remove(name);
        seen.inputs = seen.inputs.wrapping_add(u64::from(old.is_some()));
        old.is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.os_configs.keys().cloned().collect()
    }
}

impl Kept for MachineOsBuild {
    const KIND: Kind = Kind::OsBuilds;

    fn put(self, seen: &mut Seen) -> bool {
        let (name, new) = (self.0.metadata.name.clone().unwrap_or_default(), OsBuild::of(&self.0));
        if seen.os_builds.get(&name).is_some_and(|old| new.is_older(old)) {
            return false;
        }
        seen.os_builds.insert(name, new.clone()) != Some(new)
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        seen.os_builds.remove(name).is_some()
    }
    fn names(seen: &Seen) -> BTreeSet<String> {
        seen.os_builds.keys().cloned().collect()
    }
}

/// The cluster's images, as far as they are read.
#[derive(Debug, Clone)]
pub(super) struct ControllerConfig(DynamicObject);

/// The disruption policy.
#[derive(Debug, Clone)]
pub(super) struct MachineConfiguration(DynamicObject);

impl Kept for ControllerConfig {
    const KIND: Kind = Kind::ControllerConfig;
    const NAME: Option<&'static str> = Some("machine-config-controller");

    fn put(self, seen: &mut Seen) -> bool {
        if self.0.metadata.name.as_deref() != Some("machine-config-controller") {
            return false;
        }
        let field = |name: &str| {
            let text = self.0.data.get("spec").and_then(|spec| spec.get(name)).and_then(|text| text.as_str());
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let release = Release {
            os_image: field("baseOSContainerImage").or_else(|| field("osImageURL")),
            extensions_image: field("baseOSExtensionsContainerImage"),
        };
        let news = seen.release != release;
        seen.release = release;
        news
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        name == "machine-config-controller" && std::mem::take(&mut seen.release) != Release::default()
    }
    fn names(_: &Seen) -> BTreeSet<String> {
        BTreeSet::from(["machine-config-controller".to_owned()])
    }
}

impl Kept for MachineConfiguration {
    const KIND: Kind = Kind::Policy;
    const NAME: Option<&'static str> = Some("cluster");

    fn put(self, seen: &mut Seen) -> bool {
        if self.0.metadata.name.as_deref() != Some("cluster") {
            return false;
        }
        let bytes = serde_json::to_vec(&self.0).map_err(|error| error.to_string());
        let policy = bytes.and_then(|bytes| {
            DisruptionPolicy::parse(&bytes, "MachineConfiguration cluster").map_err(|error| error.to_string())
        });
        let news = seen.policy.as_ref() != Some(&policy);
        seen.policy = Some(policy);
        news
    }
    fn remove(seen: &mut Seen, name: &str) -> bool {
        name == "cluster" && seen.policy.take().is_some()
    }
    fn names(_: &Seen) -> BTreeSet<String> {
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
