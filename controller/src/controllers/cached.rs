//! Storage of objects in the cache, from a watch or from the answer to an own write.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::Resource;
use kube::api::{ObjectMeta, PartialObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::warn;

use super::cache::{Cache, Kind, RenderedConfig, Snapshot, UnreadablePolicy, UnreadablePool};
use super::node::NodeObject;
use super::stored_config::StoredConfig;
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{
    ControllerConfig, GENERATED_BY, MachineConfig, MachineConfigPool, RolloutPolicy, RolloutPolicySpec,
    RolloutPolicyStatus, is_rendered_here, rendered_for,
};
use crate::reading::Lenient;
use crate::render::Release;
use crate::rollout::Node;
use crate::watches::version::{is_older, is_outdated};

/// A kind of object that the cache holds.
pub(super) trait Cached: Resource + Clone + Debug + DeserializeOwned + Send + 'static {
    const KIND: Kind;

    /// The one object that is followed; all of them where it is `None`.
    const NAME: Option<&'static str> = None;

    /// Objects of one answer to a list. It is in memory whole, as text and as objects.
    const PAGE_SIZE: u32 = 100;

    /// Labels of those that are followed.
    const LABELS: Option<&'static str> = None;

    /// Puts the object into the cache, unless a later version is there; records changed sources of rendered configs. Returns true if the
    /// object changed.
    fn insert(self, snapshot: &mut Snapshot) -> bool;

    /// As [`Cached::insert`], of what a watch brings. A list that was asked for before does not undo it.
    fn put_watched(self, snapshot: &mut Snapshot) -> bool {
        let name = self.meta().name.clone().unwrap_or_default();
        snapshot.insert_beside_list(Self::KIND, &name, |snapshot| self.insert(snapshot))
    }

    /// The same, of what a request answers. The watch may have brought the end of the object before the answer came.
    fn put(self, snapshot: &mut Snapshot) -> bool {
        !snapshot.is_gone(self.meta()) && self.put_watched(snapshot)
    }

    /// Removes an object, and records changed sources of rendered configs; returns true if the cache had it.
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool;

    /// Names of the cached objects.
    fn names(snapshot: &Snapshot) -> BTreeSet<String>;

    /// Returns the UID of the object that the cache has by a name; `None` also where it keeps none.
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        let _ = (snapshot, name);
        None
    }

    /// Removes an object that a watch reports as deleted, unless another one of its name is here.
    fn remove_deleted(self, snapshot: &mut Snapshot) -> bool {
        snapshot.note_gone(self.meta());
        let name = self.meta().name.clone().unwrap_or_default();
        let is_other = Self::uid(snapshot, &name).is_some_and(|uid| Some(uid) != self.meta().uid.as_deref());
        !is_other && Self::remove(snapshot, &name)
    }
}

/// A kind whose objects a controller finds to be gone by itself. The cache keeps their UIDs.
pub(super) trait Identified: Cached {
    /// Returns the UID before a request that may answer that the object is gone.
    fn known(cache: &Cache, name: &str) -> Option<String> {
        Self::uid(&cache.lock(), name).map(str::to_owned)
    }

    /// Removes an object that is gone. Another one of its name stays: the watch may have brought it before the answer came, and does not
    /// bring it again.
    fn remove_gone(snapshot: &mut Snapshot, name: &str, uid: Option<&str>) -> bool {
        uid.is_some() && Self::uid(snapshot, name) == uid && Self::remove(snapshot, name)
    }
}

impl Identified for Lenient<MachineConfigPool> {}

impl Identified for Lenient<MachineConfig> {}

impl Identified for Lenient<RolloutPolicy> {}

/// Stores the API server's answer to an own write in the cache.
pub(super) fn store<K: Resource>(cache: &Cache, object: K)
where
    Lenient<K>: Cached,
{
    cache.change(|snapshot| Lenient::of(object).put(snapshot));
}

impl Cached for PartialObjectMeta<CustomResourceDefinition> {
    const KIND: Kind = Kind::Definitions;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let version = format!(
            "{}/{}",
            self.metadata.uid.as_deref().unwrap_or_default(),
            self.metadata.generation.unwrap_or_default()
        );
        let old = snapshot.definitions.insert(self.metadata.name.unwrap_or_default(), version.clone());
        old != Some(version)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.definitions.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.definitions.keys().cloned().collect()
    }
}

impl Cached for NodeObject {
    const KIND: Kind = Kind::Nodes;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let node = Node::from(self);
        let is_older = |old: &Arc<Node>| is_older(&node.resource_version, &old.resource_version);
        let is_older = snapshot.nodes.get(&node.name).is_some_and(is_older);
        if snapshot.refuses(is_older) {
            return false;
        }
        let old = snapshot.nodes.get(&node.name);
        let news = old.is_none_or(|old| !old.is_same(&node));
        let is_report = old.is_some_and(|old| {
            (&old.labels, &old.current, &old.desired) == (&node.labels, &node.current, &node.desired)
        });
        let name = node.name.clone();
        snapshot.nodes.insert(name.clone(), Arc::new(node));
        snapshot.node_changed(&name, is_report);
        news
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        let there = snapshot.nodes.remove(name).is_some();
        if there {
            snapshot.node_changed(name, false);
        }
        there
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.nodes.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        Some(&snapshot.nodes.get(name)?.uid)
    }
}

impl Cached for Lenient<MachineConfigPool> {
    const KIND: Kind = Kind::Pools;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let ObjectMeta { name, uid, .. } = self.metadata;
        let name = name.unwrap_or_default();
        let is_older = match (snapshot.pools.get(&name), &self.object) {
            (Some(Ok(old)), Ok(new)) => is_outdated(&new.metadata, &old.metadata),
            _ => false,
        };
        if snapshot.refuses(is_older) {
            return false;
        }
        let new = self.object.map_err(|cause| UnreadablePool { uid, cause });
        let old = snapshot.pools.insert(name.clone(), new);
        let new = snapshot.pools.get(&name);
        let news = old.as_ref() != new;
        // No condition can be written onto it.
        if news && let Some(Err(unreadable)) = new {
            warn!("MachineConfigPool {name} can't be read: {}; correct it", unreadable.cause);
        }
        let respecified = old.as_ref().map(identity) != new.map(identity);
        let moved = respecified && old.as_ref().map(selection) != new.map(selection);
        snapshot.inputs_changed(respecified);
        snapshot.membership_changed(moved);
        if news {
            snapshot.pool_changed(&name);
        }
        news
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        let there = snapshot.pools.remove(name).is_some();
        snapshot.membership_changed(there);
        if there {
            snapshot.pool_changed(name);
        }
        there
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.pools.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        match snapshot.pools.get(name)? {
            Ok(pool) => pool.metadata.uid.as_deref(),
            Err(unreadable) => unreadable.uid.as_deref(),
        }
    }
}

/// Returns the fields of a pool that change with its spec.
fn identity(
    pool: &Result<MachineConfigPool, UnreadablePool>,
) -> Option<(Option<&String>, Option<i64>, Option<&Time>)> {
    let metadata = &pool.as_ref().ok()?.metadata;
    Some((metadata.uid.as_ref(), metadata.generation, metadata.deletion_timestamp.as_ref()))
}

/// Returns the fields of a pool that decide which nodes are in it.
fn selection(
    pool: &Result<MachineConfigPool, UnreadablePool>,
) -> Option<(Option<&String>, Option<&Time>, Option<&LabelSelector>)> {
    let pool = pool.as_ref().ok()?;
    let metadata = &pool.metadata;
    Some((metadata.uid.as_ref(), metadata.deletion_timestamp.as_ref(), pool.spec.node_selector.as_ref()))
}

impl Cached for Lenient<MachineConfig> {
    const KIND: Kind = Kind::Configs;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let name = self.metadata.name.clone().unwrap_or_default();
        if let Some(pool) = rendered_for(&self.metadata).cloned() {
            let image = self.object.ok().and_then(|config| config.spec.os_image_url);
            let rendered = RenderedConfig {
                image: image.filter(|image| !image.is_empty()),
                is_own: is_rendered_here(&self.metadata),
                made_by: self.metadata.annotations.and_then(|mut all| all.remove(GENERATED_BY)),
                pool: pool.name,
                pool_uid: pool.uid,
                uid: self.metadata.uid.unwrap_or_default(),
                version: self.metadata.resource_version.unwrap_or_default(),
                made: self.metadata.creation_timestamp.map(|time| time.0),
                generation: self.metadata.generation.unwrap_or(1),
            };
            let is_older =
                snapshot.rendered.get(&name).is_some_and(|old| is_older(&rendered.version, &old.version));
            if snapshot.refuses(is_older) {
                return false;
            }
            // A config that was just made is no input; an edited or deleted one is restored.
            let edited = rendered.generation != 1;
            let was_source = remove_config(&name, snapshot);
            let old = snapshot.rendered.insert(name, rendered.clone());
            // A node that was provisioned with it waits for the labels of its pool.
            snapshot.membership_changed(old.is_none());
            let news = old != Some(rendered);
            return snapshot.inputs_changed((news && edited) || was_source) || news;
        }
        let was_rendered = snapshot.rendered.remove(&name).is_some();
        let news = put_config(name, self, snapshot) || was_rendered;
        snapshot.inputs_changed(news)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        let was_source = remove_config(name, snapshot);
        let was_rendered = snapshot.rendered.remove(name).is_some();
        snapshot.membership_changed(was_rendered);
        let there = was_rendered || was_source;
        snapshot.inputs_changed(there)
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        let all = snapshot.configs.keys().chain(snapshot.unreadable.keys()).chain(snapshot.rendered.keys());
        all.cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        let rendered = snapshot.rendered.get(name).map(|rendered| &*rendered.uid);
        let source = || snapshot.configs.get(name)?.object.metadata.uid.as_deref();
        let unreadable = || snapshot.unreadable.get(name)?.0.uid.as_deref();
        rendered.or_else(source).or_else(unreadable)
    }
}

/// Removes a MachineConfig that was rendered from; returns true if the cache had it.
fn remove_config(name: &str, snapshot: &mut Snapshot) -> bool {
    snapshot.unknown_fields.remove(name);
    let unreadable = snapshot.unreadable.remove(name).is_some();
    snapshot.configs.remove(name).is_some() || unreadable
}

/// Puts a MachineConfig that is rendered from.
fn put_config(name: String, new: Lenient<MachineConfig>, snapshot: &mut Snapshot) -> bool {
    let config = match new.object {
        Ok(config) => config,
        Err(why) => {
            snapshot.configs.remove(&name);
            snapshot.unknown_fields.remove(&name);
            let new = (new.metadata, why);
            return snapshot.unreadable.insert(name, new.clone()) != Some(new);
        }
    };
    let old = snapshot.configs.get(&name);
    let is_older = old.is_some_and(|old| is_outdated(&config.metadata, &old.object.metadata));
    if snapshot.refuses(is_older) {
        return false;
    }
    let old = snapshot.configs.get(&name);
    let config = StoredConfig::new(config);
    let news = old.is_none_or(|old| !old.is_same(&config));
    let lost = snapshot.unreadable.remove(&name).is_some();
    let known = if new.unknown.is_empty() {
        snapshot.unknown_fields.remove(&name).is_none()
    } else {
        let old = snapshot.unknown_fields.insert(name.clone(), new.unknown);
        old.as_ref() == snapshot.unknown_fields.get(&name)
    };
    snapshot.configs.insert(name, config);
    news || lost || !known
}

impl Cached for Lenient<RolloutPolicy> {
    const KIND: Kind = Kind::RolloutPolicies;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let name = self.metadata.name.clone().unwrap_or_default();
        let old = snapshot.policies.get(&name).map(|old| match old {
            Ok(policy) => &policy.metadata,
            Err(unreadable) => &unreadable.policy.metadata,
        });
        let is_older = old.is_some_and(|old| is_outdated(&self.metadata, old));
        if snapshot.refuses(is_older) {
            return false;
        }
        let new = match self.object {
            Ok(policy) => Ok(policy),
            Err(cause) => Err(UnreadablePolicy { policy: excerpt(self.metadata, &self.excerpt), cause }),
        };
        let old = snapshot.policies.insert(name.clone(), new);
        old.as_ref() != snapshot.policies.get(&name)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.policies.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.policies.keys().cloned().collect()
    }
    fn uid<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a str> {
        let metadata = match snapshot.policies.get(name)? {
            Ok(policy) => &policy.metadata,
            Err(unreadable) => &unreadable.policy.metadata,
        };
        metadata.uid.as_deref()
    }
}

impl Cached for Lenient<ControllerConfig> {
    const KIND: Kind = Kind::ControllerConfig;
    const NAME: Option<&'static str> = Some(CONTROLLER_CONFIG);

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        if self.metadata.name.as_deref() != Some(CONTROLLER_CONFIG) {
            return false;
        }
        let is_told_anew = snapshot.put_unknown(Kind::ControllerConfig, self.metadata.uid, self.unknown);
        let config = match self.object {
            Ok(config) => config,
            // As in files: nothing is rendered by a part of it.
            Err(cause) => {
                let fault = format!("ControllerConfig {CONTROLLER_CONFIG}: {cause}; correct the object");
                let old = snapshot.release.replace(Err(fault));
                return snapshot.inputs_changed(old != snapshot.release);
            }
        };
        let release = Ok(Release::from_controller_config(&config.spec));
        let old = snapshot.release.replace(release);
        let news = old != snapshot.release;
        let infra = config.spec.infra.unwrap_or_default();
        let topology =
            infra.pointer("/status/controlPlaneTopology").and_then(Value::as_str).map(str::to_owned);
        let is_other_topology = snapshot.topology != topology;
        snapshot.topology = topology;
        snapshot.inputs_changed(news || is_told_anew) || is_other_topology
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        if name != CONTROLLER_CONFIG {
            return false;
        }
        snapshot.put_unknown(Kind::ControllerConfig, None, Vec::new());
        let had_topology = snapshot.topology.take().is_some();
        let there = snapshot.release.take().is_some();
        snapshot.inputs_changed(there) || had_topology
    }
    fn names(_: &Snapshot) -> BTreeSet<String> {
        BTreeSet::from([CONTROLLER_CONFIG.to_owned()])
    }
}

/// Returns what can be read of a policy that can't be read whole.
fn excerpt(metadata: ObjectMeta, excerpt: &Value) -> RolloutPolicy {
    let pool_ref = field(excerpt, "/spec/poolRef");
    let status = field(excerpt, "/status").unwrap_or_else(|| RolloutPolicyStatus {
        conditions: field(excerpt, "/status/conditions"),
        last_good: field(excerpt, "/status/lastGood"),
        target: field(excerpt, "/status/target"),
        ..RolloutPolicyStatus::default()
    });
    let spec = RolloutPolicySpec { pool_ref, ..RolloutPolicySpec::default() };
    RolloutPolicy { metadata, spec, status: Some(status) }
}

fn field<T: DeserializeOwned>(object: &Value, pointer: &str) -> Option<T> {
    object.pointer(pointer).and_then(|field| T::deserialize(field).ok())
}

#[cfg(test)]
mod tests;
