//! Schemas of the Machine Config Operator's fields that are stored and not read here: as strict as its own definitions, so that
//! `validate` refuses what an API server with those would refuse.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::schema::subdomain;

/// Names of sets of pinned images, as the operator's pools take them.
pub(super) const SET_NAME: &str = "^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])(\\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9]))*$";

/// The states of an operator.
pub(super) const STATE: &str = "^(Managed|Unmanaged|Force|Removed)$";

/// A release of OpenShift.
pub(super) const RELEASE: &str = r"^[0-9]+\.[0-9]+\.[0-9]+$";

/// A version of RHCOS, by date or by time.
pub(super) const OS_VERSION: &str = r"^[0-9]+\.[0-9]+\.([0-9]{8}|[0-9]{12})-[0-9]+$";

/// Returns the fields of a kind's spec that are not read here.
pub(super) fn fields(kind: &str) -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let anything =
        || json!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true });
    let number = || json!({ "type": "integer", "format": "int32" });
    match kind {
        "MachineConfigPool" => vec![("osImageStream", stream())],
        "MachineConfiguration" => vec![
            ("bootImageSkewEnforcement", boot_image_skew()),
            ("failedRevisionLimit", number()),
            ("forceRedeploymentReason", text()),
            ("logLevel", log_level()),
            ("managedBootImages", boot_images()),
            ("managementState", json!({ "type": "string", "nullable": true, "pattern": STATE })),
            ("observedConfig", anything()),
            ("operatorLogLevel", log_level()),
            ("succeededRevisionLimit", number()),
            ("unsupportedConfigOverrides", anything()),
        ],
        "ControllerConfig" => vec![
            ("bgpVIPPeersJSON", json!({ "type": "string", "minLength": 1, "maxLength": 65536 })),
            ("cloudProviderConfig", text()),
            ("clusterDNSIP", text()),
            ("dns", dns()),
            ("etcdDiscoveryDomain", text()),
            ("ipFamilies", text()),
            ("network", network()),
            ("networkType", text()),
            ("platform", text()),
            ("pullSecret", reference()),
            ("rootCAData", json!({ "type": "string", "format": "byte" })),
        ],
        _ => Vec::new(),
    }
}

/// The image of a pool, by name.
fn stream() -> Value {
    let name = Value::from(subdomain(&mut SchemaGenerator::default()));
    json!({ "type": "object", "required": ["name"], "properties": { "name": name } })
}

/// A reference to an object.
fn reference() -> Value {
    let text = json!({ "type": "string" });
    let fields = ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"];
    let fields: Map<String, Value> =
        fields.into_iter().map(|field| (field.to_owned(), text.clone())).collect();
    json!({ "type": "object", "nullable": true, "properties": fields })
}

/// The number of lines in a log.
fn log_level() -> Value {
    json!({ "type": "string", "enum": ["", "Normal", "Debug", "Trace", "TraceAll"] })
}

/// A rule that a field is there for one word of another field, and for no other.
pub(super) fn only_with(field: &str, key: &str, word: &str) -> Value {
    json!({
        "rule": format!("has(self.{field}) == (self.{key} == '{word}')"),
        "message": format!("{field} must be set for the {key} {word}, and for no other")
    })
}

/// Reads the message of such a rule: the field, the other one and the word.
pub(super) fn read_only_with(message: &str) -> Option<(&str, &str, &str)> {
    let rest = message.strip_suffix(", and for no other")?;
    let (field, rest) = rest.split_once(" must be set for the ")?;
    let (key, word) = rest.split_once(' ')?;
    Some((field, key, word))
}

/// The boot images that the operator updates.
fn boot_images() -> Value {
    let labels = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": { "type": "string" },
            "operator": { "type": "string" },
            "values": { "type": "array", "items": { "type": "string" } }
        }
    });
    let selector = json!({
        "type": "object",
        "properties": {
            "matchLabels": labels,
            "matchExpressions": { "type": "array", "items": expression }
        }
    });
    let selection = json!({
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": { "type": "string", "enum": ["All", "Partial", "None"] },
            "partial": {
                "type": "object",
                "required": ["machineResourceSelector"],
                "properties": { "machineResourceSelector": selector }
            }
        },
        "x-kubernetes-validations": [only_with("partial", "mode", "Partial")]
    });
    let manager = json!({
        "type": "object",
        "required": ["apiGroup", "resource", "selection"],
        "properties": {
            "apiGroup": { "type": "string", "enum": ["machine.openshift.io"] },
            "resource": { "type": "string", "enum": ["machinesets", "controlplanemachinesets"] },
            "selection": selection
        },
        "x-kubernetes-validations": [{
            "rule": "self.resource != 'controlplanemachinesets' || self.selection.mode in ['All', 'None']",
            "message": "the mode must be All or None for controlplanemachinesets"
        }]
    });
    json!({
        "type": "object",
        "properties": {
            "machineManagers": {
                "type": "array",
                "maxItems": 5,
                "items": manager,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["resource", "apiGroup"]
            }
        }
    })
}

/// The age of boot images that the operator takes.
fn boot_image_skew() -> Value {
    let manual = json!({
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": { "type": "string", "enum": ["OCPVersion", "RHCOSVersion"] },
            "ocpVersion": { "type": "string", "minLength": 5, "maxLength": 10, "pattern": RELEASE },
            "rhcosVersion": { "type": "string", "minLength": 14, "maxLength": 21, "pattern": OS_VERSION }
        },
        "x-kubernetes-validations": [
            only_with("ocpVersion", "mode", "OCPVersion"),
            only_with("rhcosVersion", "mode", "RHCOSVersion")
        ]
    });
    json!({
        "type": "object",
        "required": ["mode"],
        "properties": { "mode": { "type": "string", "enum": ["Manual", "None"] }, "manual": manual },
        "x-kubernetes-validations": [only_with("manual", "mode", "Manual")]
    })
}

/// A change of the MTU.
fn network() -> Value {
    let number = json!({ "type": "integer", "format": "int32", "minimum": 0 });
    let change = json!({ "type": "object", "properties": { "from": number, "to": number } });
    json!({
        "type": "object",
        "nullable": true,
        "required": ["mtuMigration"],
        "properties": {
            "mtuMigration": {
                "type": "object",
                "nullable": true,
                "properties": { "machine": change, "network": change }
            }
        }
    })
}

/// The DNS of the cluster; its own definition has the rules of what is in it.
fn dns() -> Value {
    json!({
        "type": "object",
        "nullable": true,
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }
        },
        "x-kubernetes-preserve-unknown-fields": true
    })
}
