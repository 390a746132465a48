//! Reads the objects of a directory: each `.yaml`, `.yml` and `.json` file, with any number of documents. Every other entry is named.
//!
//! MachineConfigs, pools, `MachineOSConfig`s, `RolloutPolicy`s, the `ControllerConfig` and the disruption policy are taken. A kind that
//! concerns nodes and is not handled is named, and so is a document without a kind; others lie beside them in any repository. Every
//! read has a bound, and an error names the file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use kube::ResourceExt as _;
use kube::core::{DynamicObject, ObjectMeta, Selector, SelectorExt as _};
use machine_config_core::model::document::{self, Document, Handling, Kind};
use machine_config_core::model::policy::DisruptionPolicy;
use machine_config_core::model::reading::{from_tree, refuse_unknown};
use machine_config_core::model::unread::{DIRECTORY, is_of_volume, unread as unread_entries, unread_file};
use machine_config_core::model::{ModelError, NotApplied};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::os_config::{ContainerFile, MachineOSConfigSpec};
use crate::api::{
    ControllerConfig, MachineConfig, MachineConfigPool, MachineOSConfig, PinnedImageSet, ROLE, RolloutPolicy,
    Violation, check, rendered_for,
};
use crate::plan::Irreconcilable;
use crate::reading::{Examined, Object, examine};
use crate::render::Release;

/// The largest file: five times the API server's limit for one object.
const MAX_FILE: u64 = 8 << 20;

/// The most files of a directory.
const MAX_FILES: usize = 10_000;

/// Said of a MachineConfig that has no effect.
const NO_POOL: &str = ": no pool selects it";

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
    /// Readable parts of build settings with faults, by name.
    pub unread_os_configs: BTreeMap<String, MachineOSConfig>,
    /// Rules of rollouts, by name.
    pub rollout_policies: BTreeMap<String, RolloutPolicy>,
    /// `MachineOSConfig`s whose images the cluster builds: they need none before.
    pub left_to_cluster: BTreeSet<String>,
    /// Secrets by name, of any namespace: a local build takes its credentials from them.
    pub secrets: BTreeMap<String, Vec<WholeObject>>,
    /// Names of the sets of pinned images that were checked.
    pub pinned_sets: BTreeSet<String>,
    /// Objects without effect: kinds that are not handled, configs of no pool, unknown fields that were let pass.
    pub notes: Vec<String>,
    /// Objects of the directory that could not be read.
    pub unread: Unread,
    /// Objects that were read.
    pub taken: usize,
    /// Kinds and names of the file that is being read.
    pub of_file: BTreeSet<(&'static str, String)>,
}

/// Objects with faults: another fault may be there only because one of them is missing.
#[derive(Debug, Default)]
pub struct Unread {
    /// Nobody knows of what kind it is.
    pub any: bool,
    /// Pools, by the names that they have.
    pub pools: BTreeSet<String>,
    /// A `ControllerConfig`.
    pub controller_config: bool,
    /// A disruption policy.
    pub policy: bool,
    /// Labels of MachineConfigs; `None` where they can't be read either.
    pub configs: Vec<Option<BTreeMap<String, String>>>,
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
    /// Refusal by each node of an object that has other faults.
    #[error("{}: {object} is refused, and no node gets it: {refused}", path.display())]
    Unreachable {
        /// The file.
        path: PathBuf,
        /// The object.
        object: String,
        /// Cause, in the node's words.
        refused: Irreconcilable,
    },
    /// As many more of one object.
    #[error("{}: and {more} more faults of the same object", path.display())]
    More {
        /// The file.
        path: PathBuf,
        /// The number.
        more: usize,
    },
    /// Several of these.
    #[error("{} errors:\n  {}", .0.len(), lines(.0))]
    Several(Vec<ManifestError>),
    /// Two objects of one kind and name.
    #[error("{path}: {kind} {name} exists already; keep one of the two")]
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

    /// Returns true if nobody knows which of two objects is meant.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Twice { .. } => true,
            Self::Several(errors) => errors.iter().any(Self::is_ambiguous),
            Self::Unread { .. }
            | Self::Refused { .. }
            | Self::Unreachable { .. }
            | Self::More { .. }
            | Self::TooMany { .. } => false,
        }
    }

    /// Makes one error of all.
    pub fn all(mut errors: Vec<Self>) -> Option<Self> {
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
    /// Reads a directory, without those below it; the error names all that is wrong.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        let (manifests, errors) = Self::collect(directory, UnknownFields::Refused)?;
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
        let Files { read, unread } = files(directory)?;
        manifests.notes = unread;
        for path in read {
            if path.is_file() {
                errors.extend(manifests.add_file(&path, reading));
            } else {
                manifests.unread.any = true;
                let cause = "not a regular file, or a dangling link; fix or remove it".to_owned();
                errors.push(ManifestError::Unread { path, cause });
            }
        }
        let unselected = manifests.unselected(|_| true);
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
        let configs = std::mem::take(&mut self.configs);
        let mut errors = self.add_file(path, reading);
        let given: BTreeSet<String> = self.configs.keys().cloned().collect();
        for (name, config) in configs {
            self.configs.entry(name).or_insert(config);
        }
        // The file may have the pool that selects one of before, and a person sees their own in a whole cluster.
        let unselected = self.unselected(|_| true);
        self.notes.retain(|note| !note.contains(NO_POOL) || unselected.contains(note));
        let unselected = self.unselected(|name| given.contains(name));
        let new = unselected.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>();
        self.notes.extend(new);
        if errors.is_empty() && self.taken == before {
            let cause = "it contains no object that this command reads; name a file with a MachineConfig or a MachineConfigPool";
            let document = path.display().to_string();
            errors.push(ManifestError::refused(
                path,
                ModelError::Document { document, cause: cause.to_owned() },
            ));
        }
        ManifestError::all(errors).map_or(Ok(()), Err)
    }

    /// Returns a note on each MachineConfig of these that no pool selects.
    fn unselected(&self, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
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
            format!("MachineConfig {name}{NO_POOL} ({label}): it is in none of the rendered configs")
        };
        let asked = self.configs.iter().filter(|(name, _)| is_asked(name));
        asked.filter(|(_, config)| !is_selected(config)).map(note).collect()
    }

    /// Returns true if a MachineConfig with faults may be one of a pool.
    pub fn lacks_config_of(&self, pool: &str) -> bool {
        let selector = self.pools.get(pool).and_then(|pool| pool.spec.machine_config_selector.clone());
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        let may_be = |labels: &Option<BTreeMap<String, String>>| {
            selector.as_ref().zip(labels.as_ref()).is_none_or(|(selector, labels)| selector.matches(labels))
        };
        self.unread.any || self.unread.configs.iter().any(may_be)
    }

    /// Returns true if an object with faults may decide about the plan of a pool.
    pub fn lacks_part_of(&self, pool: &str) -> bool {
        let Unread { any, pools, controller_config, policy, .. } = &self.unread;
        let is_pool = pools.contains(pool) || pools.contains("");
        *any || is_pool || *controller_config || *policy || self.lacks_config_of(pool)
    }

    /// Returns the images of the release: those of the `ControllerConfig`, with another OS image where one is given.
    pub fn release(&self, os_image: Option<&str>) -> Release {
        let spec = self.controller_config.as_ref().and_then(|config| config.0.get("spec"));
        // It was read before.
        let spec = spec.and_then(|spec| from_tree(spec).ok()).map(|found| found.value);
        let release = spec.as_ref().map(Release::from_controller_config).unwrap_or_default();
        Release { os_image: os_image.map(str::to_owned).or(release.os_image), ..release }
    }

    /// Reads a file; of each document all that is wrong with it.
    fn add_file(&mut self, path: &Path, reading: Reading) -> Vec<ManifestError> {
        let unread = |cause: String| ManifestError::Unread { path: path.to_owned(), cause };
        let source = path.display().to_string();
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(cause) => {
                self.unread.any = true;
                return vec![unread(cause)];
            }
        };
        self.of_file.clear();
        let mut errors = Errors { path, found: Vec::new() };
        match document::documents(&bytes, &source) {
            Ok(documents) => {
                if documents.is_empty() {
                    self.notes
                        .push(format!("{source} is empty, so nothing of it is read; fill or remove it"));
                }
                for document in &documents {
                    self.add(document, reading, &mut errors);
                }
            }
            Err(error) => {
                self.unread.any = true;
                errors.refused(&error);
            }
        }
        errors.found
    }

    /// Takes an object of the cluster as the document of a file; fields that nobody knows are named.
    pub fn add_object(&mut self, place: &Path, object: &DynamicObject) -> Vec<ManifestError> {
        self.of_file.clear();
        let reading = Reading { on_twice: OnTwice::Replace, unknown_fields: UnknownFields::Named };
        let mut errors = Errors { path: place, found: Vec::new() };
        let kind = object.types.as_ref().map(|types| &*types.kind).unwrap_or_default();
        let source = format!("{kind} {}", object.name_any());
        let text = serde_json::to_vec(object).map_err(|error| error.to_string());
        let read = text.map_err(|cause| ModelError::Document { document: source.clone(), cause });
        let documents = read.and_then(|text| document::documents(&text, &source));
        for document in errors.take(documents).iter().flatten() {
            self.add(document, reading, &mut errors);
        }
        errors.found
    }

    fn add(&mut self, document: &Document, reading: Reading, errors: &mut Errors<'_>) {
        let Some(kind) = self.kind_to_read(document, reading, errors) else { return };
        self.taken += 1;
        let Some(object) = errors.take(document.read::<Value>()) else {
            self.unread.any = true;
            return;
        };
        self.check_as_server(&object.value, errors.path);
        self.take(kind, document, object.value, reading, errors);
    }

    /// Returns the kind of a document that is read; names or refuses any other one.
    fn kind_to_read(
        &mut self,
        document: &Document,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) -> Option<Kind> {
        match document.handling() {
            Handling::Read(kind) => return Some(kind),
            // A file that is named is read for what is in it.
            Handling::Named(_) if reading.on_twice == OnTwice::Replace && document.is_bare() => {
                errors.take(document.check_kind(Kind::MACHINE_CONFIG));
            }
            Handling::Named(cause) => {
                let title = if document.kind().is_empty() {
                    document.source().to_owned()
                } else {
                    format!("{}: {}", errors.path.display(), document.title())
                };
                self.notes.push(format!("{title}: {cause}"));
                if document.is_pinned_set() {
                    self.check_pinned_set(document, reading, errors);
                }
            }
            Handling::Refused(cause) => {
                self.unread.any = true;
                errors.refused(&document.refuse_whole(cause));
            }
            Handling::Foreign => self.keep_secret(document),
        }
        None
    }

    /// Takes an object of a kind that is read.
    fn take(
        &mut self,
        kind: Kind,
        document: &Document,
        object: Value,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) {
        match kind {
            Kind::MACHINE_CONFIG => {
                let read = self.read_object::<MachineConfig>(document, reading, errors);
                if read.is_none() {
                    self.unread.configs.push(labels(&object));
                }
                self.put(|all| &mut all.configs, kind, read, reading, errors);
            }
            Kind::POOL => {
                let read = self.read_object::<MachineConfigPool>(document, reading, errors);
                if read.is_none() {
                    self.unread.pools.insert(document.name().to_owned());
                }
                self.put(|all| &mut all.pools, kind, read, reading, errors);
            }
            Kind::OS_CONFIG => {
                let read = self.read_object::<MachineOSConfig>(document, reading, errors);
                if read.is_none() {
                    // The image that it names would be a MachineConfig of its pool.
                    let pool = object.pointer("/spec/machineConfigPool/name").and_then(Value::as_str);
                    let of_pool = pool.map(|pool| BTreeMap::from([(ROLE.to_owned(), pool.to_owned())]));
                    self.unread.configs.push(of_pool);
                    self.unread_os_configs.insert(document.name().to_owned(), readable(&object));
                }
                self.put(|all| &mut all.os_configs, kind, read, reading, errors);
            }
            Kind::ROLLOUT_POLICY => {
                let read = self.read_object::<RolloutPolicy>(document, reading, errors);
                self.put(|all| &mut all.rollout_policies, kind, read, reading, errors);
            }
            Kind::CONTROLLER_CONFIG => {
                self.add_controller_config(document, object, reading, errors);
                self.unread.controller_config = self.controller_config.is_none();
            }
            _ => {
                let read = errors
                    .take(DisruptionPolicy::of_document(document))
                    .filter(|policy| self.take_remarks(policy.unknown.clone(), document, reading, errors));
                let Some(policy) = read else {
                    self.unread.policy = true;
                    return;
                };
                let old = self.policy.replace(policy.value);
                let name = document.name().to_owned();
                self.check_twice(old.is_some(), (kind, name), reading, errors);
            }
        }
    }

    /// Keeps what an API server would refuse of an object.
    fn check_as_server(&mut self, object: &Value, path: &Path) {
        let in_file =
            |found: Violation| Violation { text: format!("{}: {}", path.display(), found.text), ..found };
        self.violations.extend(check(object).into_iter().map(in_file));
    }

    /// Checks a set as the API server and the nodes will, which are to keep its images.
    fn check_pinned_set(&mut self, document: &Document, reading: Reading, errors: &mut Errors<'_>) {
        let Some(object) = errors.take(document.read::<Value>()) else { return };
        self.check_as_server(&object.value, errors.path);
        if let Some((name, _)) = self.read_object::<PinnedImageSet>(document, reading, errors) {
            let is_second = !self.pinned_sets.insert(name.clone());
            self.check_twice(is_second, (Kind::PINNED_SET, name), reading, errors);
        }
    }

    /// Keeps a Secret as it is: its faults matter only where a `MachineOSConfig` names it.
    fn keep_secret(&mut self, document: &Document) {
        if document.kind() == "Secret" {
            let object = WholeObject(document.read::<Value>().map(|read| read.value).unwrap_or_default());
            self.secrets.entry(document.name().to_owned()).or_default().push(object);
        }
    }

    fn add_controller_config(
        &mut self,
        document: &Document,
        whole: Value,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) {
        let Some((name, _)) = self.read_object::<ControllerConfig>(document, reading, errors) else { return };
        if name != CONTROLLER_CONFIG {
            let cause = format!("ControllerConfig {name} is not read; name it {CONTROLLER_CONFIG}");
            errors.refused(&document.refuse("metadata.name", &cause));
            return;
        }
        let old = self.controller_config.replace(WholeObject(whole));
        self.check_twice(old.is_some(), (Kind::CONTROLLER_CONFIG, name), reading, errors);
    }

    /// Keeps an object that was read.
    fn put<K>(
        &mut self,
        of_kind: impl FnOnce(&mut Self) -> &mut BTreeMap<String, K>,
        kind: Kind,
        read: Option<(String, K)>,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) {
        let Some((name, object)) = read else { return };
        let old = of_kind(self).insert(name.clone(), object);
        self.check_twice(old.is_some(), (kind, name), reading, errors);
    }

    /// Refuses a second object of one kind and name, where it is a mistake: in one file it always is.
    fn check_twice(
        &mut self,
        is_second: bool,
        (kind, name): (Kind, String),
        reading: Reading,
        errors: &mut Errors<'_>,
    ) {
        let is_in_file = !self.of_file.insert((kind.kind, name.clone()));
        if is_in_file || (is_second && reading.on_twice == OnTwice::Refuse) {
            errors.found.push(ManifestError::Twice { path: errors.path.to_owned(), kind: kind.kind, name });
        }
    }

    /// Reads an object; `None` where something is wrong with it.
    fn read_object<K: Object>(
        &mut self,
        document: &Document,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) -> Option<(String, K)> {
        let Examined { value, unknown, faults, refused } = examine::<K>(document);
        let wrong = faults.into_error();
        if let Some(wrong) = &wrong {
            errors.refused(wrong);
        }
        let is_known = self.take_remarks(unknown, document, reading, errors);
        if let Some(refused) = refused {
            let object = document.title();
            errors.found.push(ManifestError::Unreachable { path: errors.path.to_owned(), object, refused });
        }
        let value = value.filter(|_| wrong.is_none() && is_known)?;
        Some((document.name().to_owned(), value))
    }

    /// Refuses unknown fields, or names them; returns true if the object is taken.
    fn take_remarks(
        &mut self,
        unknown: Vec<NotApplied>,
        document: &Document,
        reading: Reading,
        errors: &mut Errors<'_>,
    ) -> bool {
        match reading.unknown_fields {
            UnknownFields::Refused => errors.take(refuse_unknown(&unknown, document.source())).is_some(),
            UnknownFields::Named => {
                let note = |remark: NotApplied| format!("{}: {remark}; it is not applied", document.title());
                self.notes.extend(unknown.into_iter().map(note));
                true
            }
        }
    }
}

/// Returns the labels of an object, where all can be read.
fn labels(object: &Value) -> Option<BTreeMap<String, String>> {
    let metadata = object.get("metadata")?.as_object()?;
    match metadata.get("labels") {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(labels) => from_tree(labels).ok().map(|found| found.value),
    }
}

/// Returns what can be read of a `MachineOSConfig` that its type does not take: it is checked all the same.
fn readable(object: &Value) -> MachineOSConfig {
    fn part<T: DeserializeOwned>(object: &Value, pointer: &str) -> Option<T> {
        object.pointer(pointer).and_then(|part| from_tree(part).ok()).map(|found| found.value)
    }
    let file = |file: &Value| ContainerFile {
        content: part(file, "/content").unwrap_or_default(),
        ..ContainerFile::default()
    };
    let files = object.pointer("/spec/containerFile").and_then(Value::as_array);
    let metadata = ObjectMeta { annotations: part(object, "/metadata/annotations"), ..ObjectMeta::default() };
    let spec = MachineOSConfigSpec {
        machine_config_pool: part(object, "/spec/machineConfigPool").unwrap_or_default(),
        container_file: files.map(|files| files.iter().map(file).collect()),
        ..MachineOSConfigSpec::default()
    };
    MachineOSConfig { metadata, spec, status: part(object, "/status") }
}

/// Faults of a file.
struct Errors<'a> {
    path: &'a Path,
    found: Vec<ManifestError>,
}

impl Errors<'_> {
    /// Adds an error: each of several by itself.
    fn refused(&mut self, error: &ModelError) {
        let path = || self.path.to_owned();
        let each = error.faults().map(|fault| ManifestError::refused(self.path, fault.clone()));
        let more = (error.more() > 0).then(|| ManifestError::More { path: path(), more: error.more() });
        let all: Vec<ManifestError> = each.chain(more).collect();
        self.found.extend(all);
    }

    /// Takes a value, or adds the error.
    fn take<T>(&mut self, read: Result<T, ModelError>) -> Option<T> {
        read.map_err(|error| self.refused(&error)).ok()
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

#[expect(
    clippy::disallowed_methods,
    reason = "files that a person names; the controller has no host below it"
)]
fn files(directory: &Path) -> Result<Files, ManifestError> {
    let unread = |error: std::io::Error| ManifestError::Unread {
        path: directory.to_owned(),
        cause: error.to_string(),
    };
    let (mut paths, mut left_out) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_directory = path.is_dir();
        let cause = unread_file(&name).filter(|_| !is_directory).or(is_directory.then_some(DIRECTORY));
        match cause {
            _ if is_of_volume(&name) => {}
            Some(cause) => left_out.push((path.display().to_string(), cause)),
            None => paths.push(path),
        }
        if paths.len() + left_out.len() > MAX_FILES {
            return Err(ManifestError::TooMany { path: directory.to_owned() });
        }
    }
    paths.sort();
    Ok(Files { read: paths, unread: unread_entries(left_out) })
}

/// Entries of a directory.
struct Files {
    /// Files to read, in the order of their names.
    read: Vec<PathBuf>,
    /// The others, each with its cause.
    unread: Vec<String>,
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
