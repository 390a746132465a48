//! The certificates of a `ControllerConfig`, as files of a new node: those of the rendered config may be older, and before the
//! first boot nobody else brings those of registries.

use std::collections::BTreeMap;

use machine_config_core::model::certificates::RegistryName;
use tracing::warn;

use super::no_config::NoConfig;
use crate::api::controller_config::{CONTROLLER_CONFIG, ControllerConfigSpec, RegistryBundle, bytes_of};

/// The API server's authorities for the kubelet.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// The cloud's authorities.
pub const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";

/// A directory for each registry.
const REGISTRIES: &str = "/etc/docker/certs.d";

/// Returns the certificates by path. One that can't be read is an error: the node would lack it.
pub(super) fn authorities(cluster: &ControllerConfigSpec) -> Result<BTreeMap<String, String>, NoConfig> {
    let known = [
        (KUBELET_CA, "kubeAPIServerServingCAData", &cluster.kube_api_server_serving_ca_data),
        (CLOUD_CA, "cloudProviderCAData", &cluster.cloud_provider_ca_data),
    ];
    let mut found = BTreeMap::new();
    for (path, field, data) in known {
        found.extend(decoded(field, data.as_deref())?.map(|text| (path.to_owned(), text)));
    }
    for (field, RegistryBundle { file, data }) in cluster.registry_bundles() {
        match RegistryName::from_file(file) {
            Ok(name) => {
                let path = format!("{REGISTRIES}/{name}/ca.crt");
                found.extend(decoded(field, data.as_deref())?.map(|text| (path, text)));
            }
            // As on a running node.
            Err(error) => {
                warn!("Skipped a CA of ControllerConfig {CONTROLLER_CONFIG}, spec.{field}: {error}");
            }
        }
    }
    Ok(found)
}

/// Returns the text of bytes in base64, where there is one.
fn decoded(field: &str, data: Option<&str>) -> Result<Option<String>, NoConfig> {
    let Some(data) = data.filter(|data| !data.is_empty()) else { return Ok(None) };
    let text = bytes_of(data).and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| {
        NoConfig::NotYet(format!(
            "ControllerConfig {CONTROLLER_CONFIG}: spec.{field} is not base64 text; correct it"
        ))
    })?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: serde_json::Value) -> Result<Vec<(String, String)>, NoConfig> {
        let spec: ControllerConfigSpec = serde_json::from_value(spec).unwrap();
        authorities(&spec).map(|found| found.into_iter().collect())
    }

    /// BOOT-014: the registries' too, by the rules of a running node.
    #[test]
    fn each_certificate_has_its_file() {
        let pair = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let found = of(json!({ "kubeAPIServerServingCAData": "bmV3", "cloudProviderCAData": "Cg==",
            "imageRegistryBundleData": [{ "file": "reg.test..5000", "data": "b25l" }, { "file": "a.test", "data": "YQ==" }],
            "imageRegistryBundleUserData": [{ "file": "reg.test..5000", "data": "dHdv" }, { "file": "../x", "data": "eA==" }] }));
        let expected = [
            pair("/etc/docker/certs.d/a.test/ca.crt", "a"),
            pair("/etc/docker/certs.d/reg.test:5000/ca.crt", "two"),
            pair(KUBELET_CA, "new"),
        ];
        assert_eq!(found.unwrap(), expected);
        assert_eq!(of(json!({ "imageRegistryBundleData": null })).unwrap(), []);
    }

    #[test]
    fn unreadable_certificate_is_named() {
        let error = of(json!({ "imageRegistryBundleUserData": [{ "file": "a.test", "data": "g3heim!" }] }))
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("spec.imageRegistryBundleUserData is not base64 text"), "{error}");
        assert!(!error.contains("g3heim"), "{error}");
    }
}
