//! `MachineConfiguration`: what a change of a config costs the nodes, where an administrator says so. There is one, `cluster`.
//!
//! [`crate::model::policy`] reads it, here and on the nodes. On OpenShift the operator puts the table in force into its status; without
//! the operator it is the defaults, overlaid by the spec.

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::operator::only_with;

/// Changes that need no reboot, and sections that may differ from the nodes' own.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "MachineConfiguration",
    derive = "Default",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'").message("the name must be cluster: there is one"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigurationSpec {
    /// Actions by file, unit and SSH keys
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy: Option<NodeDisruptionPolicy>,
    /// Sections that a config may change although the nodes keep theirs
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "overrides")]
    pub irreconcilable_validation_overrides: Option<Overrides>,
}

/// Actions by file, unit and SSH keys; what has no entry reboots the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct NodeDisruptionPolicy {
    /// By path, or by a directory above it; the longest match decides
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "files")]
    pub files: Option<Vec<FileEntry>>,
    /// By unit name
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "units")]
    pub units: Option<Vec<UnitEntry>>,
    /// For SSH keys and passwords
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ssh_key")]
    pub sshkey: Option<Actions>,
}

/// Actions of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FileEntry {
    /// The file, or a directory above it
    pub path: String,
    /// In this order
    pub actions: Option<Vec<Action>>,
}

/// Actions of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct UnitEntry {
    /// Its name
    pub name: String,
    /// In this order
    pub actions: Option<Vec<Action>>,
}

/// Actions of what has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Actions {
    /// In this order
    pub actions: Option<Vec<Action>>,
}

/// One action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Action {
    /// `None`, `Drain`, `DaemonReload`, `Reload`, `Restart` or `Reboot`
    #[serde(rename = "type")]
    pub type_: String,
    /// The service of `Reload`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<Service>,
    /// The service of `Restart`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Service>,
}

/// A service by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its name
    pub service_name: String,
}

/// Sections that are let pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Overrides {
    /// `Disks`, `FileSystems`, `Raid`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Vec<String>>,
}

fn files(_: &mut SchemaGenerator) -> Schema {
    let path = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 4095,
        "description": "The file, or a directory above it",
        "x-kubernetes-validations": [{
            "rule": "self.startsWith('/') && !self.matches('/[.]{0,2}(/|$)')",
            "message": "the path must be absolute, without `.`, `..` and a trailing `/`"
        }]
    });
    entries("path", &path)
}

fn units(_: &mut SchemaGenerator) -> Schema {
    entries("name", &unit_name())
}

/// A list by key.
fn entries(key: &str, of_key: &Value) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 50,
        "items": {
            "type": "object",
            "required": ["actions", key],
            "properties": { key: of_key, "actions": actions() }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key]
    })
}

fn ssh_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "required": ["actions"],
        "properties": { "actions": actions() }
    })
}

fn actions() -> Value {
    let of_service = |type_: &str| only_with(&type_.to_lowercase(), "type", type_);
    let service = json!({ "type": "object", "required": ["serviceName"], "properties": { "serviceName": unit_name() } });
    json!({
        "type": "array",
        "nullable": true,
        "maxItems": 10,
        "description": "In this order",
        "items": {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {
                    "type": "string",
                    "enum": ["None", "Drain", "DaemonReload", "Reload", "Restart", "Reboot"]
                },
                "reload": service,
                "restart": service
            },
            "x-kubernetes-validations": [of_service("Reload"), of_service("Restart")]
        },
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [{
            "rule": "size(self) < 2 || !self.exists(one, one.type in ['None', 'Reboot'])",
            "message": "None and Reboot must stand alone"
        }]
    })
}

fn unit_name() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[a-zA-Z0-9:._@\\\\\\\\-]+[.](service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$')",
            "message": "the unit must be named as systemd names it, as NAME.service"
        }]
    })
}

fn overrides(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "minProperties": 1,
        "properties": {
            "storage": {
                "type": "array",
                "nullable": true,
                "minItems": 1,
                "maxItems": 3,
                "description": "`Disks`, `FileSystems`, `Raid`",
                "items": { "type": "string", "enum": ["Disks", "FileSystems", "Raid"] },
                "x-kubernetes-list-type": "set"
            }
        }
    })
}
