//! A Node, as much of it as is read. What the cache holds of 5,000 of them has to fit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{self as core, NodeCondition, Taint};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

/// A Node as the API server sends it, without unused fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeObject {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: NodeSpec,
    pub(super) status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) unschedulable: bool,
    pub(super) taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub(super) conditions: Vec<NodeCondition>,
}

impl Resource for NodeObject {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Cached fields of a Node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    /// Its version: each write names it, so that no write is based on an older Node.
    pub(super) version: String,
    /// Those of the contract and of our own.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) unschedulable: bool,
    /// Input of the rollout's decisions.
    pub(super) rollout: crate::rollout::Node,
}

/// Annotations that are cached.
const PREFIXES: [&str; 2] = ["machineconfiguration.openshift.io/", "machine-config-agent.io/"];

impl Node {
    /// Takes the needed fields of the object.
    pub(super) fn of(object: NodeObject) -> Self {
        let spec = core::NodeSpec {
            unschedulable: Some(object.spec.unschedulable),
            taints: Some(object.spec.taints),
            ..core::NodeSpec::default()
        };
        let status =
            core::NodeStatus { conditions: Some(object.status.conditions), ..core::NodeStatus::default() };
        let whole = core::Node { metadata: object.metadata.clone(), spec: Some(spec), status: Some(status) };
        let is_cached = |key: &str| PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let mut annotations = object.metadata.annotations.unwrap_or_default();
        annotations.retain(|key, _| is_cached(key));
        Self {
            name: object.metadata.name.unwrap_or_default(),
            uid: object.metadata.uid.unwrap_or_default(),
            version: object.metadata.resource_version.unwrap_or_default(),
            annotations,
            rollout: crate::rollout::Node::from_node(&whole),
            unschedulable: object.spec.unschedulable,
        }
    }

    /// Returns true if nothing differs but the version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let other = other.clone();
        let (version, resource_version) = (self.version.clone(), self.version.clone());
        let rollout = crate::rollout::Node { resource_version, ..other.rollout };
        *self == Self { version, rollout, ..other }
    }
}
