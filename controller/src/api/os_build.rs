//! `MachineOSBuild`: one build of an OS image.

#![expect(clippy::duplicated_attributes, reason = "columns of one type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::Condition;
use super::schema::{Named, ObjectReference, build_conditions, digested_image, pushed_image, set_once};

/// The rendered config, and the image that is built from it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineOSBuild",
    plural = "machineosbuilds",
    status = "MachineOSBuildStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Prepared",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Prepared")].status"#
    ),
    printcolumn(
        name = "Building",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Building")].status"#
    ),
    printcolumn(
        name = "Succeeded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Succeeded")].status"#
    ),
    printcolumn(
        name = "Interrupted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Interrupted")].status"#
    ),
    printcolumn(
        name = "Failed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Failed")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self == oldSelf", "message": "the spec of a build can't change" }
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineOSBuildSpec {
    /// The rendered config
    pub machine_config: Named,
    /// The `MachineOSConfig` with the build's settings
    #[serde(rename = "machineOSConfig")]
    pub machine_os_config: Named,
    /// Tag that the image is pushed to
    #[schemars(schema_with = "pushed_image")]
    pub rendered_image_push_spec: String,
}

/// Observed state of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.buildEnd) || (has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd))",
    "message": "buildEnd must be after buildStart"
}]))]
#[serde(rename_all = "camelCase", default)]
pub struct MachineOSBuildStatus {
    /// When it ended
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "set_once")]
    pub build_end: Option<String>,
    /// When it began
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "set_once")]
    pub build_start: Option<String>,
    /// The builder of the image
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builder: Option<Builder>,
    /// Conditions of the build
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "build_conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The image, by digest
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "digested_image")]
    pub digested_image_push_spec: Option<String>,
    /// Objects that live as long as the build
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10))]
    pub related_objects: Option<Vec<ObjectReference>>,
}

/// The builder of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.imageBuilderType == 'Job' ? has(self.job) : !has(self.job)",
    "message": "job must be set for the type Job, and for no other"
}]))]
#[serde(rename_all = "camelCase")]
pub struct Builder {
    /// `Job`
    #[schemars(length(max = 32))]
    pub image_builder_type: String,
    /// The Job
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<ObjectReference>,
}

impl MachineOSBuild {
    /// Returns the image, where the build has succeeded.
    pub fn image(&self) -> Option<&str> {
        let status = self.status.as_ref()?;
        let succeeded = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Succeeded" && condition.status == "True");
        status.digested_image_push_spec.as_deref().filter(|image| succeeded && !image.is_empty())
    }
}
