//! Reads the objects of a directory: each `.yaml`, `.yml` and `.json` file, with any number of documents.
//!
//! Only MachineConfigs, pools, `MachineOSConfig`s, the `ControllerConfig` and the disruption policy are taken; other kinds lie beside
//! them in any repository. Every read has a bound, and an error names the file.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use machine_config_core::model::policy::DisruptionPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSConfig, check};
use crate::render::Release;

/// The largest file: five times the API server's limit for one object.
const MAX_FILE: u64 = 8 << 20;

/// The most files of a directory.
const MAX_FILES: usize = 10_000;

/// Objects of a directory.
#[derive(Debug, Default)]
pub struct Manifests {
    /// MachineConfigs by name.
    pub configs: BTreeMap<String, MachineConfig>,
    /// Pools by name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// Build settings of the pools' images, by name.
    pub os_configs: BTreeMap<String, MachineOSConfig>,
    /// The `ControllerConfig`, where one is there: as it was read, with all its fields.
    pub controller_config: Option<WholeObject>,
    /// The disruption policy of the cluster, where one is there.
    pub policy: Option<DisruptionPolicy>,
    /// What an API server with our definitions would refuse, with file, object, field and next step.
    pub violations: Vec<String>,
}

/// An object as it was read, with fields that no type of ours has.
#[derive(Clone, PartialEq, Serialize)]
pub struct WholeObject(pub Value);

/// It may hold secrets.
impl std::fmt::Debug for WholeObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WholeObject").finish_non_exhaustive()
    }
}

/// Errors of a directory.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file or the directory.
    #[error("{path}: {cause}")]
    Unread {
        /// Which.
        path: PathBuf,
        /// Cause.
        cause: String,
    },
    /// Two objects of one kind and name.
    #[error("{path}: {kind} {name} is there already; keep one of the two")]
    Twice {
        /// The file with the second one.
        path: PathBuf,
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Too many files.
    #[error("{path}: it has more than {MAX_FILES} files; name a smaller directory")]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
}

impl Manifests {
    /// Reads a directory, without those below it.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let mut manifests = Self::default();
        for path in files(directory)? {
            manifests.add_file(&path, OnTwice::Refuse)?;
        }
        Ok(manifests)
    }

    /// Reads a file: an object that is there already is replaced.
    pub fn replace_by_file(&mut self, path: &Path) -> Result<(), ManifestError> {
        self.add_file(path, OnTwice::Replace)
    }

    /// Returns the images of the release: those of the `ControllerConfig`, with another OS image where one is given.
    pub fn release(&self, os_image: Option<&str>) -> Release {
        let spec = self.controller_config.as_ref().and_then(|config| config.0.get("spec"));
        let release = spec.map(Release::from_controller_config).unwrap_or_default();
        Release { os_image: os_image.map(str::to_owned).or(release.os_image), ..release }
    }

    fn add_file(&mut self, path: &Path, on_twice: OnTwice) -> Result<(), ManifestError> {
        let unread = |cause: String| ManifestError::Unread { path: path.to_owned(), cause };
        let text = read(path).map_err(unread)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).map_err(|error| unread(first_line(&error.to_string())))?;
        for document in documents {
            self.add(document, path, on_twice)?;
        }
        Ok(())
    }

    fn add(&mut self, document: Value, path: &Path, on_twice: OnTwice) -> Result<(), ManifestError> {
        let violations = check(&document).into_iter().map(|cause| format!("{}: {cause}", path.display()));
        self.violations.extend(violations);
        let group = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if !group.starts_with("machineconfiguration.openshift.io/") && group != "operator.openshift.io/v1" {
            return Ok(());
        }
        let unread = |cause: String| ManifestError::Unread { path: path.to_owned(), cause };
        match document.get("kind").and_then(Value::as_str) {
            Some("MachineConfig") => {
                let (name, config) = named::<MachineConfig>(document).map_err(unread)?;
                let old = self.configs.insert(name.clone(), config);
                on_twice.check(old.is_some(), path, "MachineConfig", name)
            }
            Some("MachineConfigPool") => {
                let (name, pool) = named::<MachineConfigPool>(document).map_err(unread)?;
                let old = self.pools.insert(name.clone(), pool);
                on_twice.check(old.is_some(), path, "MachineConfigPool", name)
            }
            Some("MachineOSConfig") => {
                let (name, os_config) = named::<MachineOSConfig>(document).map_err(unread)?;
                let old = self.os_configs.insert(name.clone(), os_config);
                on_twice.check(old.is_some(), path, "MachineOSConfig", name)
            }
            Some("ControllerConfig") => {
                let (name, _) = named::<ControllerConfig>(document.clone()).map_err(unread)?;
                if name != CONTROLLER_CONFIG {
                    return Err(unread(format!(
                        "ControllerConfig {name} is not read; name it {CONTROLLER_CONFIG}"
                    )));
                }
                let old = self.controller_config.replace(WholeObject(document));
                on_twice.check(old.is_some(), path, "ControllerConfig", name)
            }
            Some("MachineConfiguration") => {
                let bytes = serde_json::to_vec(&document).map_err(|error| unread(error.to_string()))?;
                let policy = DisruptionPolicy::parse(&bytes, &path.display().to_string());
                self.policy = Some(policy.map_err(|error| unread(error.to_string()))?);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Treatment of a second object with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnTwice {
    /// A mistake.
    Refuse,
    /// The second one is the newer one.
    Replace,
}

impl OnTwice {
    /// Refuses a second object, where it is a mistake.
    fn check(
        self,
        is_second: bool,
        path: &Path,
        kind: &'static str,
        name: String,
    ) -> Result<(), ManifestError> {
        if is_second && self == Self::Refuse {
            return Err(ManifestError::Twice { path: path.to_owned(), kind, name });
        }
        Ok(())
    }
}

fn named<T: DeserializeOwned>(document: Value) -> Result<(String, T), String> {
    let name = document.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    let name = name.ok_or_else(|| "an object has no metadata.name; give it one".to_owned())?;
    let object = serde_json::from_value(document);
    // Without the value: an object holds secrets.
    let object = object.map_err(|error| format!("{name} can't be read ({})", class(&error)))?;
    Ok((name, object))
}

fn class(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // The name of a field is no secret.
    if let Some(field) = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return format!("field {field} is missing");
    }
    let expected = text.split("expected ").nth(1).map(|expected| format!("a field is not {expected}"));
    expected.unwrap_or_else(|| "a field has another type".to_owned())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "files that a person names; the controller has no host below it"
)]
fn files(directory: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let unread = |error: std::io::Error| ManifestError::Unread {
        path: directory.to_owned(),
        cause: error.to_string(),
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("yaml" | "yml" | "json")) && path.is_file() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(ManifestError::TooMany { path: directory.to_owned() });
        }
    }
    paths.sort();
    Ok(paths)
}

#[expect(
    clippy::disallowed_methods,
    reason = "files that a person names; the controller has no host below it"
)]
fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MAX_FILE) {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    Ok(text)
}
