//! The stored MachineConfigNode: the parts that the next write depends on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::report::Status;

/// The field manager of MCD and of its controller's drain conditions: all of them write under this one name.
pub(super) const MANAGER: &str = "machine-config-operator";

/// A condition with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Its status.
    pub(super) status: Status,
    /// Its reason.
    pub(super) reason: String,
    /// Its message.
    #[serde(default)]
    pub(super) message: String,
    /// Time of its last change of status.
    pub(super) last_transition_time: String,
    /// As another writer left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<u64>,
}

/// The current and the desired one of configs or images.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pair {
    /// The desired name.
    pub(super) desired: Option<String>,
    /// The current name.
    pub(super) current: Option<String>,
}

/// The version that was read last, or answered to the last write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stored {
    /// Its version: a write that names it fails after another write.
    pub(super) version: String,
    /// The generation of its spec.
    pub(super) generation: u64,
    /// The observed generation of its status; it never falls.
    pub(super) observed: u64,
    /// `spec.pool.name`.
    pub(super) pool: String,
    /// `spec.configVersion.desired`.
    pub(super) desired: String,
    /// `spec.configImage.desiredImage`.
    pub(super) image: Option<String>,
    /// Its conditions.
    pub(super) conditions: Vec<StoredCondition>,
    /// `status.configVersion`.
    pub(super) configs: Pair,
    /// `status.configImage`.
    pub(super) images: Pair,
    /// `status.irreconcilableChanges`; null where it is not set.
    pub(super) changes: Value,
    /// The conditions that would go if the manager left them out.
    pub(super) owned: BTreeSet<String>,
    /// Fields of the status that others write under the same manager: they would go, too.
    pub(super) carried: Map<String, Value>,
}

impl Stored {
    /// Reads an object. A field that is not there, or not as it should be, counts as empty: the next write repairs it.
    pub(super) fn read(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        let pair = |name: &str, half: &str| Pair {
            desired: text(&format!("/status/{name}/desired{half}")),
            current: text(&format!("/status/{name}/current{half}")),
        };
        let fields = owned_fields(object);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        Self {
            version: text("/metadata/resourceVersion").unwrap_or_default(),
            generation: number("/metadata/generation"),
            observed: number("/status/observedGeneration"),
            pool: text("/spec/pool/name").unwrap_or_default(),
            desired: text("/spec/configVersion/desired").unwrap_or_default(),
            image: text("/spec/configImage/desiredImage"),
            conditions: conditions
                .into_iter()
                .flatten()
                .filter_map(|condition| StoredCondition::deserialize(condition).ok())
                .collect(),
            configs: pair("configVersion", ""),
            images: pair("configImage", "Image"),
            changes: object.pointer("/status/irreconcilableChanges").cloned().unwrap_or_default(),
            owned: fields.iter().flat_map(|fields| owned_conditions(fields)).collect(),
            carried: carried(object, &fields),
        }
    }

    /// Returns true if the CRD certainly has the fields of image mode.
    pub(super) fn has_images(&self) -> bool {
        self.image.is_some() || self.images != Pair::default()
    }
}

/// The `f:status` of what the manager applied.
fn owned_fields(object: &Value) -> Vec<&Map<String, Value>> {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let ours = |entry: &&Value| {
        entry.get("manager").and_then(Value::as_str) == Some(MANAGER)
            && entry.get("operation").and_then(Value::as_str) == Some("Apply")
            && entry.get("subresource").and_then(Value::as_str) == Some("status")
    };
    managers
        .into_iter()
        .flatten()
        .filter(ours)
        .filter_map(|entry| entry.pointer("/fieldsV1/f:status").and_then(Value::as_object))
        .collect()
}

/// Field sets name an element of a list by its key: `k:{"type":"Drained"}`.
fn owned_conditions(fields: &Map<String, Value>) -> Vec<String> {
    let keys = fields.get("f:conditions").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    keys.filter_map(|key| key.strip_prefix("k:"))
        .filter_map(|key| serde_json::from_str::<Value>(key).ok())
        .filter_map(|key| key.get("type").and_then(Value::as_str).map(str::to_owned))
        .collect()
}

/// Fields that this agent never writes, but that its manager's name holds.
fn carried(object: &Value, fields: &[&Map<String, Value>]) -> Map<String, Value> {
    let mut carried = Map::new();
    let Some(status) = object.get("status").and_then(Value::as_object) else { return carried };
    for (name, value) in status {
        let ours =
            ["conditions", "configVersion", "configImage", "observedGeneration"].contains(&name.as_str());
        let held = || fields.iter().any(|fields| fields.contains_key(&format!("f:{name}")));
        if !ours && held() {
            carried.insert(name.clone(), value.clone());
        }
    }
    carried
}
