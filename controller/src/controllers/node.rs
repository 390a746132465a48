//! A Node on its way into the cache, which keeps [`crate::rollout::Node`] of it.

use k8s_openapi::api::core::v1::{self as core, NodeCondition, Taint};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::rollout::Node;

/// A Node as the API server sends it, without unused fields.
#[derive(Debug, Clone, Default, Deserialize, Resource)]
#[resource(inherit = core::Node)]
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

impl From<NodeObject> for Node {
    fn from(object: NodeObject) -> Self {
        let spec = core::NodeSpec {
            unschedulable: Some(object.spec.unschedulable),
            taints: Some(object.spec.taints),
            ..core::NodeSpec::default()
        };
        let status =
            core::NodeStatus { conditions: Some(object.status.conditions), ..core::NodeStatus::default() };
        Self::from_node(core::Node { metadata: object.metadata, spec: Some(spec), status: Some(status) })
    }
}
