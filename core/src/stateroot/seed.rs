//! Contents of an image's labels: no layer is needed for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{SeedError, Version};
use crate::model::short;
use crate::model::text::shown;
use crate::model::yaml::redacted;

/// The label with the version of the format.
pub const FORMAT_LABEL: &str = "com.openshift.lifecycle-agent.seed_format_version";

/// The label with what the cluster of the seed was like, as JSON.
pub const CLUSTER_INFO_LABEL: &str = "com.openshift.lifecycle-agent.seed_cluster_info";

/// The label of a seed that is a bootable image itself.
pub const USE_BOOTC_LABEL: &str = "com.openshift.lifecycle-agent.seed_use_bootc";

/// Directory of the seed's files in such an image.
pub const SEED_DIRECTORY: &str = "usr/lib/openshift/seed";

/// The format that is read.
pub const FORMAT: u32 = 4;

/// The longest label that is read.
const MAX_LABEL_BYTES: usize = 256 * 1024;

/// Layout of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// The files are in the root of an image that does not boot; the system is one of them.
    Classic,
    /// The image boots; the files are below `/usr/lib/openshift/seed`.
    Bootc,
}

impl Layout {
    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Bootc => "bootc",
        }
    }
}

/// The cluster of a seed, as far as this host is compared with it. The rest of the document is shown as
/// it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterInfo {
    /// The version of the seed.
    pub version: Option<String>,
    /// Its cluster used proxies.
    pub proxy: Option<bool>,
    /// Its system was in FIPS mode.
    pub fips: Option<bool>,
    /// Its cluster trusted authorities of its administrators.
    pub trust_bundle: Option<bool>,
    /// Mount point of its container storage; empty when it was no file system of its own.
    pub container_storage: Option<String>,
}

/// A seed image by its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Seed {
    /// Its layout.
    pub layout: Layout,
    /// Its version: that of its cluster.
    pub version: Version,
    /// Traits of its cluster.
    pub cluster: ClusterInfo,
    /// The same as it is written.
    pub document: Map<String, Value>,
}

impl Seed {
    /// Reads the labels of an image; one of another format, or of no seed, is an error.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Result<Self, SeedError> {
        let label = |label: &'static str| labels.get(label).ok_or(SeedError::NotSeed { label });
        let format = label(FORMAT_LABEL)?;
        if format.trim() != FORMAT.to_string() {
            return Err(SeedError::Format { found: shown(format, 40), known: FORMAT });
        }
        let refused = |cause: String| SeedError::Label { label: CLUSTER_INFO_LABEL, cause };
        let text = label(CLUSTER_INFO_LABEL)?;
        if text.len() > MAX_LABEL_BYTES {
            return Err(refused(format!("it has {} bytes; at most {MAX_LABEL_BYTES} are read", text.len())));
        }
        let document: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| refused(redacted(&error.to_string())))?;
        let cluster = ClusterInfo::from_document(&document);
        let version = cluster.version.as_deref().unwrap_or_default();
        let version = Version::new(version).map_err(|_| {
            refused(format!("seed_cluster_ocp_version {:?} is not a version", short(version, 100)))
        })?;
        // Any other value is that of a classic seed, as LCA takes it.
        let is_bootc = labels.get(USE_BOOTC_LABEL).is_some_and(|value| value == "true");
        let layout = if is_bootc { Layout::Bootc } else { Layout::Classic };
        Ok(Self { layout, version, cluster, document })
    }
}

impl ClusterInfo {
    fn from_document(document: &Map<String, Value>) -> Self {
        let flag = |key: &str| document.get(key).and_then(Value::as_bool);
        let text = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
        // `null` where there is none.
        let bundle = document.get("additionalTrustBundle").map(|bundle| {
            let says = |value: &Value| {
                value.as_bool() == Some(true) || value.as_str().is_some_and(|name| !name.is_empty())
            };
            bundle.as_object().is_some_and(|bundle| bundle.values().any(says))
        });
        Self {
            version: text("seed_cluster_ocp_version"),
            proxy: flag("has_proxy"),
            fips: flag("has_fips"),
            trust_bundle: bundle,
            container_storage: text("container_storage_mountpoint_target"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = r#"{"seed_cluster_ocp_version":"4.17.2","cluster_name":"seed","has_proxy":false,"has_fips":true,
        "additionalTrustBundle":{"hasUserCaBundle":true,"proxyConfigmapName":""},
        "container_storage_mountpoint_target":"/var/lib/containers"}"#;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_say_what_a_seed_is() {
        let seed = Seed::from_labels(&labels(&[(FORMAT_LABEL, "4"), (CLUSTER_INFO_LABEL, INFO)])).unwrap();
        assert_eq!((seed.layout, seed.version.as_str()), (Layout::Classic, "4.17.2"));
        let expected = ClusterInfo {
            version: Some("4.17.2".to_owned()),
            proxy: Some(false),
            fips: Some(true),
            trust_bundle: Some(true),
            container_storage: Some("/var/lib/containers".to_owned()),
        };
        assert_eq!(seed.cluster, expected);
        assert_eq!(seed.document["cluster_name"], "seed");
    }

    /// LCA-016: only the third label, with its one value, makes a bootc seed.
    #[test]
    fn third_label_makes_bootc_seed() {
        for (value, layout) in [("true", Layout::Bootc), ("false", Layout::Classic), ("Use", Layout::Classic)]
        {
            let labels = labels(&[(FORMAT_LABEL, "4"), (CLUSTER_INFO_LABEL, INFO), (USE_BOOTC_LABEL, value)]);
            assert_eq!(Seed::from_labels(&labels).unwrap().layout, layout, "{value}");
        }
    }

    /// LCA-002: another format, or none that can be read, is refused.
    #[test]
    fn other_formats_are_refused() {
        for format in ["3", "5", "04", "4.0", "", "four"] {
            let error = Seed::from_labels(&labels(&[(FORMAT_LABEL, format), (CLUSTER_INFO_LABEL, INFO)]))
                .unwrap_err();
            assert!(matches!(error, SeedError::Format { .. }), "{format}: {error}");
            assert!(error.to_string().contains("version 4"), "{error}");
        }
    }

    #[test]
    fn image_without_labels_is_not_a_seed() {
        let error = Seed::from_labels(&labels(&[("machineconfig", "a")])).unwrap_err();
        assert_eq!(error, SeedError::NotSeed { label: FORMAT_LABEL });
        let error = Seed::from_labels(&labels(&[(FORMAT_LABEL, "4")])).unwrap_err();
        assert_eq!(error, SeedError::NotSeed { label: CLUSTER_INFO_LABEL });
        for info in [
            "",
            "[]",
            "{}",
            "{",
            r#"{"seed_cluster_ocp_version":"../x"}"#,
            r#"{"seed_cluster_ocp_version":4}"#,
        ] {
            let error =
                Seed::from_labels(&labels(&[(FORMAT_LABEL, "4"), (CLUSTER_INFO_LABEL, info)])).unwrap_err();
            assert!(matches!(error, SeedError::Label { .. }), "{info}: {error}");
        }
    }

    #[test]
    fn absent_trust_bundle_is_none() {
        let info = r#"{"seed_cluster_ocp_version":"1","additionalTrustBundle":null}"#;
        let seed = Seed::from_labels(&labels(&[(FORMAT_LABEL, "4"), (CLUSTER_INFO_LABEL, info)])).unwrap();
        assert_eq!((seed.cluster.trust_bundle, seed.cluster.proxy), (Some(false), None));
    }
}
