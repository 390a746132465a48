//! `PinnedImageSet`: images that the nodes of the pools that name it keep.

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::pool::Condition;
use super::schema::{Named, conditions};

/// Images that nodes pull ahead and keep.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "PinnedImageSet",
    plural = "pinnedimagesets",
    status = "PinnedImageSetStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImageSetSpec {
    /// The images, by digest
    #[schemars(schema_with = "pinned_images")]
    pub pinned_images: Vec<Named>,
}

/// Observed state of the set
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct PinnedImageSetStatus {
    /// Conditions of the set
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
}

fn pinned_images(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 500,
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 447,
                    "x-kubernetes-validations": [{
                        "rule": "self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$')",
                        "message": "the image must end with @sha256:<64 hexadecimal digits>"
                    }]
                }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"]
    })
}
