//! `MachineConfigNode`: where the update of a node is, as its agent reports.

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pool::Condition;
use super::schema::{Named, conditions, config_name, digested_image, generation};

/// The node, its pool, and its desired config.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigNode",
    plural = "machineconfignodes",
    status = "MachineConfigNodeStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == self.spec.node.name").message("the name must equal the node's name"),
    printcolumn(name = "PoolName", type_ = "string", json_path = ".spec.pool.name"),
    printcolumn(name = "DesiredConfig", type_ = "string", json_path = ".spec.configVersion.desired"),
    printcolumn(name = "CurrentConfig", type_ = "string", json_path = ".status.configVersion.current"),
    printcolumn(
        name = "Updated",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Updated")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "UpdatePrepared",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdatePrepared")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "UpdateExecuted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpdateExecuted")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "UpdatedFilesAndOS",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="AppliedFilesAndOS")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "CordonedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Cordoned")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "DrainedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drained")].status"#,
        priority = "1"
    ),
    printcolumn(
        name = "RebootedNode",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="RebootedNode")].status"#,
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigNodeSpec {
    /// The config
    pub config_version: Desired,
    /// The OS image, in image mode
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<DesiredImage>,
    /// The node
    pub node: Named,
    /// Its pool
    pub pool: Named,
}

/// The config that a node is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Desired {
    /// Name of the rendered config; `not-yet-set` before there is one
    #[schemars(length(max = 253))]
    pub desired: String,
}

/// The OS image that a node is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DesiredImage {
    /// By digest
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "digested_image")]
    pub desired_image: Option<String>,
}

/// Observed state of the node's update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigNodeStatus {
    /// Conditions of the update
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The configs
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersion>,
    /// The OS images
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_image: Option<ConfigImage>,
    /// Generation of the spec that this is about
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "generation")]
    pub observed_generation: Option<i64>,
    /// Sets of images that are kept on the node
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "named_list")]
    pub pinned_image_sets: Option<Vec<Value>>,
    /// Changes of the config that need a new node
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "changes")]
    pub irreconcilable_changes: Option<Vec<Value>>,
}

/// The configs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ConfigVersion {
    /// The current config
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "config_name")]
    pub current: Option<String>,
    /// The desired config
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "config_name")]
    pub desired: Option<String>,
}

/// The OS images of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigImage {
    /// The current image
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "digested_image")]
    pub current_image: Option<String>,
    /// The desired image
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "digested_image")]
    pub desired_image: Option<String>,
}

fn named_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 100,
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "maxLength": 253 },
                "currentGeneration": { "type": "integer", "format": "int32", "minimum": 1 },
                "desiredGeneration": { "type": "integer", "format": "int32", "minimum": 1 },
                "lastFailedGeneration": { "type": "integer", "format": "int32", "minimum": 1 },
                "lastFailedGenerationError": { "type": "string", "maxLength": 32768 }
            },
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.desiredGeneration) || !has(self.currentGeneration) || self.desiredGeneration >= self.currentGeneration",
                    "message": "desiredGeneration must not be less than currentGeneration"
                },
                {
                    "rule": "!has(self.lastFailedGeneration) || has(self.lastFailedGenerationError)",
                    "message": "lastFailedGenerationError must be set with lastFailedGeneration"
                }
            ]
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"]
    })
}

fn changes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 32,
        "items": {
            "type": "object",
            "required": ["diff", "fieldPath"],
            "properties": {
                "diff": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "fieldPath": {
                    "type": "string", "minLength": 1, "maxLength": 70,
                    "x-kubernetes-validations": [
                        { "rule": "self.startsWith('spec.')", "message": "fieldPath must start with spec." }
                    ]
                }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["fieldPath"]
    })
}
