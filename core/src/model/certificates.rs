//! Certificate authorities and pull secret of the cluster's nodes, from a `ControllerConfig`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::error::ModelError;
use super::proxy::ProxySettings;
use super::text::short;

/// Rotation of the CA that signs the API server's certificate (`service-ca-rotate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerCaRotation {
    /// It does not.
    #[default]
    Off,
    /// It does.
    On,
    /// It does, and this node has the new CA.
    Brought,
}

/// The trust of one version of the cluster's object. `Debug` shows no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTrust {
    /// The object's version.
    pub version: String,
    /// Rotation of the API server's CA.
    pub rotation: ServerCaRotation,
    /// The API server's new CA, PEM, while it is rotated; `None` as long as it is not read.
    pub server_ca: Option<Contents>,
    /// The kubelet's client CA, if set.
    pub kubelet_ca: Option<Contents>,
    /// The CA of the cloud provider's API, if set.
    pub cloud_ca: Option<Contents>,
    /// Certificate authorities of registries.
    pub registries: Registries,
    /// Through which proxies images are pulled; an error where that can't be used.
    pub proxy: Result<ProxySettings, ModelError>,
    /// The cluster's pull secret, merged with that of its own registry; `None` if unset.
    pub pull_secret: Option<Contents>,
}

/// The trust that is on the host as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustSynced {
    /// The object's version.
    pub version: String,
    /// Rotation of the API server's CA at that time.
    pub rotation: ServerCaRotation,
}

/// The CAs of registries, by directory. A later bundle wins over an earlier one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registries {
    /// Bundle of each registry.
    pub bundles: BTreeMap<RegistryName, Contents>,
    /// Names that can't be a directory's: their bundles are left out.
    pub refused: Vec<ModelError>,
}

impl Registries {
    /// Adds a bundle under its name as the object has it.
    pub fn add(&mut self, file: &str, data: Contents) {
        match RegistryName::from_file(file) {
            Ok(name) => drop(self.bundles.insert(name, data)),
            Err(error) => self.refused.push(error),
        }
    }
}

/// A registry as its directory is named: `HOST` or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryName(String);

impl RegistryName {
    /// Takes a bundle's name: `HOST..PORT`, since the key of a `ConfigMap` holds no colon.
    pub fn from_file(file: &str) -> Result<Self, ModelError> {
        let name = file.replace("..", ":");
        let rule = if name.is_empty() || name == "." {
            "it is not a registry name"
        } else if name.len() > 255 {
            "it is longer than 255 bytes"
        } else if name.contains('/') || name.chars().any(char::is_control) {
            "it must not hold `/` and control characters"
        } else {
            return Ok(Self(name));
        };
        Err(ModelError::Name { what: "registry", value: short(file, 100), rule })
    }

    /// Returns the directory's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-237, W-15: two dots are a colon, and no name leads out of the directory.
    #[test]
    fn names_of_bundles() {
        let name = |file: &str| RegistryName::from_file(file).map(|name| name.to_string());
        assert_eq!(name("reg.test..5000").unwrap(), "reg.test:5000");
        assert_eq!(name("reg.test").unwrap(), "reg.test");
        assert_eq!(name("..").unwrap(), ":");
        for bad in ["", ".", "a/b", "../../etc", "a\0b", "a\nb", &"a".repeat(256)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn later_bundle_wins() {
        let mut registries = Registries::default();
        for (file, data) in [("reg.test", "a"), ("bad/name", "x"), ("reg.test", "b")] {
            registries.add(file, Contents::new(data.as_bytes()));
        }
        assert_eq!(registries.bundles.len(), 1);
        assert_eq!(registries.bundles.values().next().unwrap().bytes(), b"b");
        assert_eq!(registries.refused.len(), 1);
    }
}
