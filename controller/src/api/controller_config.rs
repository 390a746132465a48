//! `ControllerConfig`: cluster-wide data for the nodes and this program; only fields that are read.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{anything, bytes};

/// The name of the one object.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";

/// Certificates, images and the proxy of the cluster.
#[derive(CustomResource, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "ControllerConfig",
    plural = "controllerconfigs",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "OSImage", type_ = "string", json_path = ".spec.baseOSContainerImage"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerConfigSpec {
    /// Additional certificates that nodes trust, PEM
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub additional_trust_bundle: Option<String>,
    /// OS image of the release
    #[serde(rename = "baseOSContainerImage", skip_serializing_if = "Option::is_none")]
    pub base_os_container_image: Option<String>,
    /// Image with the packages of extensions
    #[serde(rename = "baseOSExtensionsContainerImage", skip_serializing_if = "Option::is_none")]
    pub base_os_extensions_container_image: Option<String>,
    /// CAs of the cloud provider, PEM
    #[serde(rename = "cloudProviderCAData", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub cloud_provider_ca_data: Option<String>,
    /// CAs of registries
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bundles")]
    pub image_registry_bundle_data: Option<Vec<RegistryBundle>>,
    /// CAs of registries that an administrator added
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bundles")]
    pub image_registry_bundle_user_data: Option<Vec<RegistryBundle>>,
    /// Images of the release by name
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<BTreeMap<String, String>>,
    /// Pull secret of the cluster's own registry
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub internal_registry_pull_secret: Option<String>,
    /// CAs of the API server for kubelets, PEM
    #[serde(rename = "kubeAPIServerServingCAData", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub kube_api_server_serving_ca_data: Option<String>,
    /// The cluster's description of its infrastructure
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub infra: Option<Value>,
    /// OS image of releases before `baseOSContainerImage`
    #[serde(rename = "osImageURL", skip_serializing_if = "Option::is_none")]
    pub os_image_url: Option<String>,
    /// Proxy of the nodes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// The release
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_image: Option<String>,
}

impl ControllerConfigSpec {
    /// Returns the authorities of registries with their field; later ones are stronger: what a person added wins.
    pub fn registry_bundles(&self) -> impl Iterator<Item = (&'static str, &RegistryBundle)> {
        let all = [
            ("imageRegistryBundleData", &self.image_registry_bundle_data),
            ("imageRegistryBundleUserData", &self.image_registry_bundle_user_data),
        ];
        all.into_iter()
            .flat_map(|(field, bundles)| bundles.iter().flatten().map(move |bundle| (field, bundle)))
    }
}

/// Returns the bytes of a field in base64; `None` where it is not.
pub fn bytes_of(data: &str) -> Option<Vec<u8>> {
    Some(serde_json::from_value::<k8s_openapi::ByteString>(Value::from(data)).ok()?.0)
}

/// It holds a pull secret: only other fields are shown.
impl std::fmt::Debug for ControllerConfigSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerConfigSpec")
            .field("base_os_container_image", &self.base_os_container_image)
            .field("release_image", &self.release_image)
            .finish_non_exhaustive()
    }
}

/// The CA of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RegistryBundle {
    /// The registry; `..` stands for the colon before its port
    pub file: String,
    /// Certificates, PEM
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// Proxy of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Proxy {
    /// For HTTP
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// For HTTPS
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts that are reached without the proxy
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
}

/// Bundles are read leniently; each has its registry and its certificates.
fn bundles(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "items": {
            "type": "object",
            "required": ["data", "file"],
            "properties": {
                "data": { "type": "string", "format": "byte", "description": "Certificates, PEM" },
                "file": {
                    "type": "string",
                    "description": "The registry; `..` stands for the colon before its port"
                }
            }
        }
    })
}
