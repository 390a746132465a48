//! Names of stateroots and versions: both become directory names and kernel arguments.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::SeedError;
use crate::model::short;

/// Prefix of the stateroots of seeds.
const PREFIX: &str = "rhcos_";

/// The longest name: `rhcos_` and a version.
const MAX_NAME_BYTES: usize = 128;

/// The version of a seed, for instance `4.17.2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Version(String);

impl Version {
    /// Reads a version: what may stand in a directory's name and in a kernel argument.
    pub fn new(text: &str) -> Result<Self, SeedError> {
        if is_name(text) && text.len() <= MAX_NAME_BYTES - PREFIX.len() {
            return Ok(Self(text.to_owned()));
        }
        Err(SeedError::Version { version: short(text, 100) })
    }

    /// Returns the version.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Version {
    type Error = SeedError;
    fn try_from(text: String) -> Result<Self, SeedError> {
        Self::new(&text)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0
    }
}

/// The name of a stateroot: a directory below `/ostree/deploy`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct StaterootName(String);

impl StaterootName {
    /// Reads a name.
    pub fn new(text: &str) -> Result<Self, SeedError> {
        if is_name(text) && text.len() <= MAX_NAME_BYTES {
            return Ok(Self(text.to_owned()));
        }
        Err(SeedError::Name { name: short(text, 100) })
    }

    /// Returns the name of a version's stateroot.
    pub fn from_version(version: &Version) -> Self {
        Self(format!("{PREFIX}{}", version.0.replace('-', "_")))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StaterootName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for StaterootName {
    type Error = SeedError;
    fn try_from(text: String) -> Result<Self, SeedError> {
        Self::new(&text)
    }
}

impl From<StaterootName> for String {
    fn from(name: StaterootName) -> Self {
        name.0
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['.', '-'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LCA-004: `rhcos_` and the version, with `-` replaced by `_`.
    #[test]
    fn stateroot_is_named_by_its_version() {
        let named = |text: &str| StaterootName::from_version(&Version::new(text).unwrap()).to_string();
        assert_eq!(named("4.17.2"), "rhcos_4.17.2");
        assert_eq!(named("4.18.0-rc.1-x"), "rhcos_4.18.0_rc.1_x");
    }

    #[test]
    fn names_that_leave_their_directory_are_refused() {
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "a\0", "é", "a$b", &"x".repeat(200)] {
            assert!(Version::new(bad).is_err() && StaterootName::new(bad).is_err(), "{bad:?}");
            assert!(serde_json::from_value::<StaterootName>(serde_json::json!(bad)).is_err(), "{bad:?}");
        }
        assert!(StaterootName::new("my-os").is_ok());
    }
}
