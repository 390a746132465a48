//! `MachineOSConfig`: how the OS image of a pool is built.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::Condition;
use super::schema::{Named, ObjectReference, conditions, digested_image, generation, pushed_image};

/// Build settings of a pool's OS image: builder, Containerfile, and the tag that it is pushed to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineOSConfig",
    plural = "machineosconfigs",
    status = "MachineOSConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == self.spec.machineConfigPool.name").message(
        "the name must equal the pool's name: a pool has one MachineOSConfig"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.currentImagePullSpec"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSConfigSpec {
    /// The pool
    pub machine_config_pool: Named,
    /// The builder of the image
    pub image_builder: ImageBuilder,
    /// Secret for the pull of the base image
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<Named>,
    /// Secret for the push
    pub rendered_image_push_secret: Named,
    /// Tag that the image is pushed to
    #[schemars(schema_with = "pushed_image")]
    pub rendered_image_push_spec: String,
    /// Containerfile lines that are added to the image
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "container_files")]
    pub container_file: Option<Vec<ContainerFile>>,
}

/// The builder of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuilder {
    /// `Job`
    #[schemars(schema_with = "builder_type")]
    pub image_builder_type: String,
}

/// Lines of a Containerfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerFile {
    /// For which processor; `NoArch` for each
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containerfile_arch: Option<String>,
    /// The lines
    pub content: String,
}

/// Observed state of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineOSConfigStatus {
    /// Conditions of the image
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The image, by digest
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "digested_image")]
    pub current_image_pull_spec: Option<String>,
    /// The build of that image
    #[serde(rename = "machineOSBuild", skip_serializing_if = "Option::is_none")]
    pub machine_os_build: Option<ObjectReference>,
    /// Generation of the spec that this is about
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "generation")]
    pub observed_generation: Option<i64>,
}

fn builder_type(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["Job"] })
}

fn container_files(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 4,
        "items": {
            "type": "object",
            "required": ["content"],
            "properties": {
                "containerfileArch": { "type": "string", "default": "NoArch",
                    "enum": ["ARM64", "AMD64", "PPC64LE", "S390X", "NoArch"] },
                "content": { "type": "string", "maxLength": 4096 }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["containerfileArch"]
    })
}
