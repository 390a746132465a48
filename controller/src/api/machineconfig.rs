//! `MachineConfig`: a part of a node's configuration or, rendered, the whole.

#![expect(clippy::duplicated_attributes, reason = "columns of one type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::anything;

/// Configuration of a node: Ignition config, OS image, kernel and extensions.
#[derive(CustomResource, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfig",
    shortname = "mc",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "GeneratedByController",
        type_ = "string",
        json_path = r".metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version",
        description = "Version of the controller that generated it; empty if a person wrote it"
    ),
    printcolumn(name = "IgnitionVersion", type_ = "string", json_path = ".spec.config.ignition.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigSpec {
    /// Image with the packages of extensions
    #[serde(rename = "baseOSExtensionsContainerImage", skip_serializing_if = "Option::is_none")]
    pub extensions_image: Option<String>,
    /// Ignition config, version 3
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub config: Option<Value>,
    /// Extensions of the OS
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    /// FIPS mode; it can't change on a node that runs
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fips: Option<bool>,
    /// Kernel arguments, in order
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<Vec<String>>,
    /// `default`, `realtime` or `64k-pages`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_type: Option<String>,
    /// OS image, by digest
    #[serde(rename = "osImageURL", skip_serializing_if = "Option::is_none")]
    pub os_image_url: Option<String>,
}

/// Its Ignition config holds secrets: only its size is shown.
impl std::fmt::Debug for MachineConfigSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let config = self.config.as_ref().map(|config| format!("{} bytes", config.to_string().len()));
        f.debug_struct("MachineConfigSpec")
            .field("config", &config)
            .field("kernel_arguments", &self.kernel_arguments)
            .field("os_image_url", &self.os_image_url)
            .finish_non_exhaustive()
    }
}
