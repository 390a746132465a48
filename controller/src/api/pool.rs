//! `MachineConfigPool`: nodes that are one config, and how they come to it.

#![expect(clippy::duplicated_attributes, reason = "columns of one type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operator;
use super::schema::anything;

/// The pool's MachineConfigs, its nodes, and the number of nodes at a time.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigPool",
    shortname = "mcp",
    status = "MachineConfigPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Config", type_ = "string", json_path = ".status.configuration.name"),
    printcolumn(
        name = "Updated",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Updated")].status"#
    ),
    printcolumn(
        name = "Updating",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Updating")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(name = "MachineCount", type_ = "number", json_path = ".status.machineCount"),
    printcolumn(name = "ReadyMachineCount", type_ = "number", json_path = ".status.readyMachineCount"),
    printcolumn(name = "UpdatedMachineCount", type_ = "number", json_path = ".status.updatedMachineCount"),
    printcolumn(name = "DegradedMachineCount", type_ = "number", json_path = ".status.degradedMachineCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolSpec {
    /// The target: the rendered config
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// MachineConfigs of the pool
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Nodes out of service at a time: a number, or a part in percent; default 1
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// Nodes of the pool
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub node_selector: Option<LabelSelector>,
    /// As on OpenShift; not applied here
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub os_image_stream: Option<Value>,
    /// Sets of images that the pool's nodes pull ahead and keep
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "set_names")]
    pub pinned_image_sets: Option<Vec<SetName>>,
    /// Pauses rollouts
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// A PinnedImageSet by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SetName {
    /// Its name
    pub name: String,
}

/// A rendered config, and its sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Name of the rendered MachineConfig
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The MachineConfigs that were merged, in their order
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<Reference>>,
}

/// An object by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    /// `apiVersion` of its kind
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Observed state of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigPoolStatus {
    /// The config that all nodes have
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// Nodes of the pool
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_count: Option<i32>,
    /// Nodes that have the target
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_machine_count: Option<i32>,
    /// Nodes that have the target and are ready
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_machine_count: Option<i32>,
    /// Nodes out of service
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_machine_count: Option<i32>,
    /// Nodes that failed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded_machine_count: Option<i32>,
    /// Generation of the spec that this is about
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the pool
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Nodes that have what comes beside the config
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "synchronizers")]
    pub pool_synchronizers_status: Option<Vec<PoolSynchronizer>>,
    /// Cost for the remaining nodes; the operator's own CRD lacks it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PoolPlan>,
}

/// Nodes of a pool that keep its PinnedImageSets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSynchronizer {
    /// `PinnedImageSets`
    pub pool_synchronizer_type: String,
    /// Nodes of the pool
    pub machine_count: i64,
    /// Nodes that keep all images
    pub updated_machine_count: i64,
    /// Nodes that have the pool's target and are ready
    pub ready_machine_count: i64,
    /// Nodes in service
    pub available_machine_count: i64,
    /// Nodes out of service
    pub unavailable_machine_count: i64,
    /// Generation of the pool's spec that this is about
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Disruption of the nodes that don't have the target yet, as the agent's planner computes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolPlan {
    /// The target
    pub target: String,
    /// Nodes that don't have it yet
    pub nodes: i32,
    /// Those that are drained
    pub drains: i32,
    /// Those that reboot
    pub reboots: i32,
    /// Nodes without a known plan: their current config is gone, or they refuse the target
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<i32>,
    /// Causes of the reboots: fields, paths and units, at most 16
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_because: Option<Vec<String>>,
    /// Services that are reloaded or restarted without a reboot, at most 16
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<ServicePlan>>,
}

/// A service that is reloaded or restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePlan {
    /// `reload`, `restart` or `daemon-reload`
    pub action: String,
    /// The unit
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// On how many nodes
    pub nodes: i32,
    /// Paths and units whose change requires it, at most 8
    pub because: Vec<String>,
}

/// Condition of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`
    pub status: String,
    /// Time of the last change of the status
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// CamelCase reason
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable message
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": { "type": "object", "nullable": true, "additionalProperties": { "type": "string" } },
            "matchExpressions": {
                "type": "array",
                "nullable": true,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": { "type": "array", "nullable": true, "items": { "type": "string" } }
                    }
                }
            }
        },
        "x-kubernetes-map-type": "atomic"
    })
}

fn set_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 100,
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 253, "pattern": operator::SET_NAME }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"]
    })
}

fn synchronizers(_: &mut SchemaGenerator) -> Schema {
    let count = json_schema!({ "type": "integer", "format": "int64", "minimum": 0 });
    json_schema!({
        "type": "array",
        "nullable": true,
        "items": {
            "type": "object",
            "required": ["poolSynchronizerType", "machineCount", "updatedMachineCount", "readyMachineCount",
                "availableMachineCount", "unavailableMachineCount"],
            "properties": {
                "poolSynchronizerType": { "type": "string", "enum": ["PinnedImageSets"], "maxLength": 256 },
                "machineCount": count,
                "updatedMachineCount": count,
                "readyMachineCount": count,
                "availableMachineCount": count,
                "unavailableMachineCount": count,
                "observedGeneration": count
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["poolSynchronizerType"]
    })
}

fn number_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "nullable": true, "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$" })
}
