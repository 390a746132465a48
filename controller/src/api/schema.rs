//! Parts of schemas that several kinds have.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An object of a known kind, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Named {
    /// Its name
    #[schemars(schema_with = "subdomain")]
    pub name: String,
}

/// An object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ObjectReference {
    /// Group of its kind
    #[schemars(length(max = 253))]
    pub group: String,
    /// Plural of its kind
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,
    /// Its namespace
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Its name
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The name of an object.
pub(super) fn subdomain(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "!format.dns1123Subdomain().validate(self).hasValue()",
            "message": "the name must be a lowercase RFC 1123 subdomain"
        }]
    })
}

/// The image that a build pushes: by tag, in a registry with a dot in its name, or in the cluster's own one.
pub(super) fn pushed_image(_: &mut SchemaGenerator) -> Schema {
    let outside = r"^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9-_]{1,61})*/[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$";
    let inside = r"^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$";
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 447,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('{outside}') || self.matches('{inside}')"),
            "message": "the image must be HOST[:PORT]/NAME:TAG or SERVICE.NAMESPACE.svc:PORT/REPOSITORY/NAME:TAG"
        }]
    })
}

/// The image that a build has pushed.
pub(super) fn digested_image(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "nullable": true,
        "minLength": 1,
        "maxLength": 447,
        "x-kubernetes-validations": [{
            "rule": "self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$')",
            "message": "the image must end with @sha256:<64 hexadecimal digits>"
        }]
    })
}

/// An optional name of a rendered config.
pub(super) fn config_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "maxLength": 253 })
}

/// Conditions of which each has its own writer.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    conditions_with(20, &[])
}

/// Conditions of a build: the end of one is final.
pub(super) fn build_conditions(_: &mut SchemaGenerator) -> Schema {
    let ended = ["Failed", "Interrupted", "Succeeded"].map(|end| {
        json!({
            "rule": format!("oldSelf.exists(x, x.type=='{end}' && x.status=='True') ? self==oldSelf : true"),
            "message": format!("the conditions can't change once {end} is True")
        })
    });
    conditions_with(8, &ended)
}

fn conditions_with(most: u32, rules: &[Value]) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": most,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "message": { "type": "string", "maxLength": 32768 },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": { "type": "string", "maxLength": 316 }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    });
    if !rules.is_empty() {
        schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
    }
    schema
}

/// A number that never falls.
pub(super) fn generation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "integer",
        "format": "int64",
        "nullable": true,
        "minimum": 0,
        "x-kubernetes-validations": [{ "rule": "self >= oldSelf", "message": "the generation must not fall" }]
    })
}

/// A time that stays as it was first set.
pub(super) fn set_once(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "date-time",
        "nullable": true,
        "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "the time can't change once it is set" }]
    })
}

/// An object whose fields are those of another standard.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

/// Hours, minutes and seconds, as `2h30m`.
pub(super) const DURATION: &str = "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$";

/// An optional duration.
pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "pattern": DURATION, "minLength": 2, "maxLength": 18 })
}

/// Bytes in base64.
pub(super) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "byte", "nullable": true })
}
