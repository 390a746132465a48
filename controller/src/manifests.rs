//! Reads the objects of a directory: each `.yaml`, `.yml` and `.json` file, with any number of documents.
//!
//! MachineConfigs, pools, `MachineOSConfig`s, `RolloutPolicy`s, the `ControllerConfig` and the disruption policy are taken. A kind that
//! concerns nodes and is not handled is named, and so is a document without a kind; others lie beside them in any repository. Every
//! read has a bound, and an error names the file.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use kube::core::{Selector, SelectorExt as _};
use machine_config_core::model::document::{self, Document, Handling, Kind};
use machine_config_core::model::policy::DisruptionPolicy;
use machine_config_core::model::reading::{Found, refuse_unknown};
use machine_config_core::model::{ModelError, NotApplied};
use serde::Serialize;
use serde_json::Value;

use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{
    ControllerConfig, MachineConfig, MachineConfigPool, MachineOSConfig, ROLE, RolloutPolicy, Violation,
    check, rendered_for,
};
use crate::reading::{Object, of_document};
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
    /// Refusals of an API server with our definitions; their texts begin with the file.
    pub violations: Vec<Violation>,
    /// Rules of rollouts, by name.
    pub rollout_policies: BTreeMap<String, RolloutPolicy>,
    /// Objects without effect: kinds that are not handled, configs of no pool, unknown fields that were let pass.
    pub notes: Vec<String>,
    /// Objects that were read.
    pub taken: usize,
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
    /// A document.
    #[error("{}", of_document_error(path, error))]
    Refused {
        /// The file.
        path: PathBuf,
        /// The error.
        error: ModelError,
    },
    /// Several of these.
    #[error("{} errors:\n  {}", .0.len(), lines(.0))]
    Several(Vec<ManifestError>),
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

impl ManifestError {
    fn refused(path: &Path, error: ModelError) -> Self {
        Self::Refused { path: path.to_owned(), error }
    }

    /// Makes one error of all.
    fn all(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Several(errors)) } else { errors.pop() }
    }
}

/// An error of a field names the object, and not the file.
fn of_document_error(path: &Path, error: &ModelError) -> String {
    let text = error.to_string();
    let path = path.display().to_string();
    if text.starts_with(&path) { text } else { format!("{path}: {text}") }
}

fn lines(errors: &[ManifestError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

impl Manifests {
    /// Reads a directory, without those below it.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        Self::read_with(directory, UnknownFields::Refused)
    }

    /// Reads a directory; the error names all that is wrong.
    pub fn read_with(directory: &Path, unknown_fields: UnknownFields) -> Result<Self, ManifestError> {
        let (manifests, errors) = Self::collect(directory, unknown_fields)?;
        ManifestError::all(errors).map_or(Ok(manifests), Err)
    }

    /// Reads what can be read of a directory, and returns the errors of the rest.
    pub fn collect(
        directory: &Path,
        unknown_fields: UnknownFields,
    ) -> Result<(Self, Vec<ManifestError>), ManifestError> {
        let mut manifests = Self::default();
        let reading = Reading { on_twice: OnTwice::Refuse, unknown_fields };
        let mut errors = Vec::new();
        for path in files(directory)? {
            if path.is_file() {
                errors.extend(manifests.add_file(&path, reading));
            } else if path.is_dir() {
                manifests.notes.push(format!("{}: it is a directory, which is not read", path.display()));
            } else {
                let cause = "not a regular file, or a dangling link; fix or remove it".to_owned();
                errors.push(ManifestError::Unread { path, cause });
            }
        }
        let unselected = manifests.unselected();
        manifests.notes.extend(unselected);
        Ok((manifests, errors))
    }

    /// Reads a file, or standard input by `-`: an object that is there already is replaced. A file without an object of ours is
    /// refused.
    pub fn replace_by_file(
        &mut self,
        path: &Path,
        unknown_fields: UnknownFields,
    ) -> Result<(), ManifestError> {
        let reading = Reading { on_twice: OnTwice::Replace, unknown_fields };
        let before = self.taken;
        let mut errors = self.add_file(path, reading);
        if errors.is_empty() && self.taken == before {
            let cause = "contains no object that this command reads; name a file with a MachineConfig or a MachineConfigPool";
            errors.push(ManifestError::Unread { path: path.to_owned(), cause: cause.to_owned() });
        }
        ManifestError::all(errors).map_or(Ok(()), Err)
    }

    /// Returns a note on each MachineConfig that no pool selects.
    fn unselected(&self) -> Vec<String> {
        let selectors: Vec<Selector> = self
            .pools
            .values()
            .filter_map(|pool| Selector::try_from(pool.spec.machine_config_selector.clone()?).ok())
            .collect();
        if self.pools.is_empty() {
            return Vec::new();
        }
        let nothing = BTreeMap::new();
        let is_selected = |config: &MachineConfig| {
            let labels = config.metadata.labels.as_ref().unwrap_or(&nothing);
            rendered_for(&config.metadata).is_some()
                || selectors.iter().any(|selector| selector.matches(labels))
        };
        let note = |(name, config): (&String, &MachineConfig)| {
            let role = config.metadata.labels.as_ref().and_then(|labels| labels.get(ROLE));
            let label =
                role.map_or_else(|| "it has no role label".to_owned(), |role| format!("its role is {role}"));
            format!(
                "MachineConfig {name}: no pool selects it ({label}): it is in none of the rendered configs"
            )
        };
        self.configs.iter().filter(|(_, config)| !is_selected(config)).map(note).collect()
    }

    /// Returns the images of the release: those of the `ControllerConfig`, with another OS image where one is given.
    pub fn release(&self, os_image: Option<&str>) -> Release {
        let spec = self.controller_config.as_ref().and_then(|config| config.0.get("spec"));
        let release = spec.map(Release::from_controller_config).unwrap_or_default();
        Release { os_image: os_image.map(str::to_owned).or(release.os_image), ..release }
    }

    /// Reads a file; of each document the error, where it has one.
    fn add_file(&mut self, path: &Path, reading: Reading) -> Vec<ManifestError> {
        let unread = |cause: String| ManifestError::Unread { path: path.to_owned(), cause };
        let source = path.display().to_string();
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(cause) => return vec![unread(cause)],
        };
        if bytes.trim_ascii().is_empty() {
            return Vec::new();
        }
        match document::documents(&bytes, &source) {
            Ok(documents) => {
                documents.iter().filter_map(|document| self.add(document, path, reading).err()).collect()
            }
            Err(error) => vec![ManifestError::refused(path, error)],
        }
    }

    fn add(&mut self, document: &Document, path: &Path, reading: Reading) -> Result<(), ManifestError> {
        let kind = match document.handling() {
            Handling::Read(kind) => kind,
            Handling::Named(cause) => {
                let title = if document.kind().is_empty() {
                    document.source().to_owned()
                } else {
                    format!("{}: {}", path.display(), document.title())
                };
                self.notes.push(format!("{title}: {cause}"));
                return Ok(());
            }
            Handling::Refused(cause) => {
                return Err(ManifestError::refused(path, document.refuse_whole(cause)));
            }
            Handling::Foreign => return Ok(()),
        };
        self.taken += 1;
        let object: Value = document.read().map_err(|error| ManifestError::refused(path, error))?.value;
        let in_file =
            |found: Violation| Violation { text: format!("{}: {}", path.display(), found.text), ..found };
        self.violations.extend(check(&object).into_iter().map(in_file));
        match kind {
            Kind::MACHINE_CONFIG => {
                let (name, config) = self.read_object::<MachineConfig>(document, path, reading)?;
                let old = self.configs.insert(name.clone(), config);
                reading.on_twice.check(old.is_some(), path, kind, name)
            }
            Kind::POOL => {
                let (name, pool) = self.read_object::<MachineConfigPool>(document, path, reading)?;
                let old = self.pools.insert(name.clone(), pool);
                reading.on_twice.check(old.is_some(), path, kind, name)
            }
            Kind::OS_CONFIG => {
                let (name, os_config) = self.read_object::<MachineOSConfig>(document, path, reading)?;
                let old = self.os_configs.insert(name.clone(), os_config);
                reading.on_twice.check(old.is_some(), path, kind, name)
            }
            Kind::ROLLOUT_POLICY => {
                let (name, policy) = self.read_object::<RolloutPolicy>(document, path, reading)?;
                let old = self.rollout_policies.insert(name.clone(), policy);
                reading.on_twice.check(old.is_some(), path, kind, name)
            }
            Kind::CONTROLLER_CONFIG => self.add_controller_config(document, path, reading),
            _ => {
                let refused = |error| ManifestError::refused(path, error);
                let policy = DisruptionPolicy::of_document(document).map_err(refused)?;
                self.take_remarks(policy.unknown, document, reading).map_err(refused)?;
                self.policy = Some(policy.value);
                Ok(())
            }
        }
    }

    fn add_controller_config(
        &mut self,
        document: &Document,
        path: &Path,
        reading: Reading,
    ) -> Result<(), ManifestError> {
        let refused = |error| ManifestError::refused(path, error);
        let (name, _) = self.read_object::<ControllerConfig>(document, path, reading)?;
        if name != CONTROLLER_CONFIG {
            let cause = format!("ControllerConfig {name} is not read; name it {CONTROLLER_CONFIG}");
            return Err(refused(document.refuse("metadata.name", &cause)));
        }
        let whole: Value = document.read().map_err(refused)?.value;
        let old = self.controller_config.replace(WholeObject(whole));
        reading.on_twice.check(old.is_some(), path, Kind::CONTROLLER_CONFIG, name)
    }

    fn read_object<K: Object>(
        &mut self,
        document: &Document,
        path: &Path,
        reading: Reading,
    ) -> Result<(String, K), ManifestError> {
        let refused = |error| ManifestError::refused(path, error);
        let Found { value, unknown } = of_document::<K>(document).map_err(refused)?;
        self.take_remarks(unknown, document, reading).map_err(refused)?;
        Ok((document.name().to_owned(), value))
    }

    /// Refuses unknown fields, or names them.
    fn take_remarks(
        &mut self,
        unknown: Vec<NotApplied>,
        document: &Document,
        reading: Reading,
    ) -> Result<(), ModelError> {
        match reading.unknown_fields {
            UnknownFields::Refused => refuse_unknown(&unknown, document.source()),
            UnknownFields::Named => {
                let note = |remark: NotApplied| format!("{}: {remark}; it is not applied", document.title());
                self.notes.extend(unknown.into_iter().map(note));
                Ok(())
            }
        }
    }
}

/// Treatment of fields that no type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFields {
    /// A mistake.
    Refused,
    /// They pass, named.
    Named,
}

/// Treatment of files.
#[derive(Debug, Clone, Copy)]
struct Reading {
    on_twice: OnTwice,
    unknown_fields: UnknownFields,
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
    fn check(self, is_second: bool, path: &Path, kind: Kind, name: String) -> Result<(), ManifestError> {
        if is_second && self == Self::Refuse {
            return Err(ManifestError::Twice { path: path.to_owned(), kind: kind.kind, name });
        }
        Ok(())
    }
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
        if matches!(ending, Some("yaml" | "yml" | "json")) {
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
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(MAX_FILE + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_FILE) {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    Ok(bytes)
}
