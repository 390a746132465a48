//! The storage that a node was installed with, of the MachineConfig that it was served. Of that document nothing else is
//! kept: it has the size of the whole config, and is read at each start.

use ignition_config::v3_6::{Disk, Filesystem, Luks, Raid, Storage};
use serde::Deserialize;

use super::{Header, VERSIONS, fixed_storage};
use crate::model::document::{self, Kind};
use crate::model::error::ModelError;
use crate::model::spec::FixedSections;
use crate::model::text::short;

#[derive(Deserialize)]
struct Served {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    config: Config,
}

#[derive(Deserialize)]
struct Config {
    ignition: Header,
    #[serde(default)]
    storage: Option<Sections>,
}

#[derive(Deserialize)]
struct Sections {
    #[serde(default)]
    disks: Option<Vec<Disk>>,
    #[serde(default)]
    filesystems: Option<Vec<Filesystem>>,
    #[serde(default)]
    luks: Option<Vec<Luks>>,
    #[serde(default)]
    raid: Option<Vec<Raid>>,
}

/// Reads the storage that a node was installed with from the MachineConfig that it was served, in JSON.
pub fn installed_storage(bytes: &[u8], document: &str) -> Result<FixedSections, ModelError> {
    let served: Served = document::one(bytes, document, Kind::MACHINE_CONFIG)?.read()?.value;
    let version = served.spec.config.ignition.version.unwrap_or_default();
    if !VERSIONS.contains(&version.as_str()) {
        let cause = format!("its Ignition version {:?} is not supported", short(&version, 40));
        let (document, field) = (short(document, 300), "spec.config.ignition.version".to_owned());
        return Err(ModelError::InDocument { document, field, cause });
    }
    let mut fixed = FixedSections::default();
    if let Some(Sections { disks, filesystems, luks, raid }) = served.spec.config.storage {
        let storage = Storage { disks, filesystems, luks, raid, ..Storage::default() };
        fixed_storage(&mut fixed, &storage);
    }
    Ok(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_storage_is_read_like_config_storage() {
        let text = r#"{"kind":"MachineConfig","metadata":{"name":"a"},"spec":{"config":{"ignition":{"version":"3.2.0"},
            "passwd":{"users":[{"name":"someone"}]},"storage":{"disks":[{"device":"/dev/sda","wipeTable":true}],
            "filesystems":[],"files":[{"path":"/etc/a"}]}}}}"#;
        let fixed = installed_storage(text.as_bytes(), "served").unwrap();
        let spec = crate::model::MachineConfig::parse(text.as_bytes(), "a").unwrap().spec(None).unwrap();
        assert_eq!(fixed.sections, spec.fixed.sections);
        assert_eq!(fixed.sections.len(), 1);
    }

    #[test]
    fn invalid_served_config_is_named() {
        let version =
            |version: &str| format!(r#"{{"spec":{{"config":{{"ignition":{{"version":"{version}"}}}}}}}}"#);
        for bad in ["", "{}", "[]", r#"{"spec":{}}"#, &version("2.2.0"), &version("")] {
            let error = installed_storage(bad.as_bytes(), "/etc/served.json").unwrap_err().to_string();
            assert!(error.contains("/etc/served.json"), "{error}");
        }
        assert_eq!(installed_storage(version("3.6.0").as_bytes(), "a").unwrap(), FixedSections::default());
    }
}
