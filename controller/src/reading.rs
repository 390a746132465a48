//! Reads the kinds of the API: of a file's document and of an API object alike, through the one entry of `core`.
//!
//! A type alone does not say what a value may be: [`Object::check`] does, for what the API server of a cluster with the Machine
//! Config Operator's definitions lets pass.

use machine_config_core::model::ConfigName;
use machine_config_core::model::document::{self, Document, Kind};
use machine_config_core::model::machineconfig;
use machine_config_core::model::reading::{self, Found};
use machine_config_core::model::text::shown;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig,
    PinnedImageSet, RolloutPolicy, rendered_for,
};
use crate::model::faults::Faults;
use crate::model::machineconfig::Fields;
use crate::model::pinned::unpinnable;
use crate::model::{ModelError, NotApplied};
use crate::plan::{Irreconcilable, refused_at_first};
use crate::rollout::{check_max_unavailable, check_policy};

/// As much of a name is shown: the longest one that the API server takes.
const MAX_NAME: usize = 253;

/// A kind that is read from files and from the cluster.
pub trait Object: DeserializeOwned {
    /// Its kind and version.
    const KIND: Kind;

    /// Fields that the Machine Config Operator has and that are not read here.
    const OF_OPERATOR: &'static [&'static str] = &[];

    /// Refuses values that their type takes and their meaning does not: of each the field and the cause.
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads what no type has: the fields that are not known there.
    fn inside(&self, name: &str) -> Result<Vec<NotApplied>, ModelError> {
        let _ = name;
        Ok(Vec::new())
    }

    /// Reads a text as nodes do, where they read the kind.
    fn as_node(document: &Document, faults: &mut Faults) -> AsNode {
        let _ = (document, faults);
        AsNode::default()
    }
}

/// Remarks and refusals of nodes beside the faults of a document that has some.
#[derive(Debug, Default)]
pub struct AsNode {
    /// Fields that nobody knows.
    unknown: Vec<NotApplied>,
    /// Refusal of the rest by each node.
    refused: Option<Irreconcilable>,
}

/// A document of a file, as far as it can be read.
#[derive(Debug)]
pub struct Examined<K> {
    /// The object; `None` where its type does not take it.
    pub value: Option<K>,
    /// The fields that nobody knows.
    pub unknown: Vec<NotApplied>,
    /// All that is wrong with it.
    pub faults: Faults,
    /// Refusal of an object with faults by each node: it is in no rendered config that could say it.
    pub refused: Option<Irreconcilable>,
}

impl Object for MachineConfig {
    const KIND: Kind = Kind::MACHINE_CONFIG;

    fn inside(&self, name: &str) -> Result<Vec<NotApplied>, ModelError> {
        // A rendered one was read when it was made.
        if rendered_for(&self.metadata).is_some() {
            return Ok(Vec::new());
        }
        let spec = &self.spec;
        let fields = Fields {
            os_image_url: spec.os_image_url.clone(),
            extensions_image: spec.extensions_image.clone(),
            kernel_arguments: spec.kernel_arguments.clone(),
            kernel_type: spec.kernel_type.clone(),
            extensions: spec.extensions.clone(),
            fips: spec.fips,
        };
        Ok(fields.host_spec(name, spec.config.as_ref())?.remarks)
    }

    fn as_node(document: &Document, faults: &mut Faults) -> AsNode {
        let (spec, found) = machineconfig::MachineConfig::examine_document(document.clone());
        let Some(error) = found.into_error() else { return AsNode::default() };
        faults.add_others(error, |_| false);
        let Some(spec) = spec else { return AsNode::default() };
        let refused = refused_at_first(&spec).ok().flatten();
        AsNode { unknown: spec.remarks, refused }
    }
}

impl Object for MachineConfigPool {
    const KIND: Kind = Kind::POOL;
    const OF_OPERATOR: &'static [&'static str] = &["spec.configuration"];

    fn check(&self) -> Vec<String> {
        check_max_unavailable(self.spec.max_unavailable.as_ref()).err().into_iter().collect()
    }
}

impl Object for MachineOSConfig {
    const KIND: Kind = Kind::OS_CONFIG;
}

impl Object for MachineOSBuild {
    const KIND: Kind = Kind { kind: "MachineOSBuild", group_version: "machineconfiguration.openshift.io/v1" };
    // Controllers write it.
    const OF_OPERATOR: &'static [&'static str] = &["spec"];
}

impl Object for MachineConfigNode {
    const KIND: Kind =
        Kind { kind: "MachineConfigNode", group_version: "machineconfiguration.openshift.io/v1" };
    const OF_OPERATOR: &'static [&'static str] = &["spec"];
}

impl Object for ControllerConfig {
    const KIND: Kind = Kind::CONTROLLER_CONFIG;
    // Compared with the operator's own definition by a test.
    const OF_OPERATOR: &'static [&'static str] = &[
        "spec.bgpVIPPeersJSON",
        "spec.cloudProviderConfig",
        "spec.clusterDNSIP",
        "spec.dns",
        "spec.etcdDiscoveryDomain",
        "spec.ipFamilies",
        "spec.network",
        "spec.networkType",
        "spec.platform",
        "spec.pullSecret",
        "spec.rootCAData",
    ];
}

impl Object for RolloutPolicy {
    const KIND: Kind = Kind::ROLLOUT_POLICY;

    fn check(&self) -> Vec<String> {
        check_policy(&self.spec)
    }
}

/// Nodes read it from the cluster; in files it is only checked.
impl Object for PinnedImageSet {
    const KIND: Kind = Kind::PINNED_SET;

    fn check(&self) -> Vec<String> {
        unpinnable(self.spec.pinned_images.iter().map(|image| image.name.as_str()))
    }
}

/// Reads a document of a file.
pub fn of_document<K: Object>(document: &Document) -> Result<Found<K>, ModelError> {
    let Examined { value, unknown, faults, .. } = examine(document);
    let unread = || document.refuse_whole("it can't be read as its kind");
    faults.into_result(())?;
    value.map(|value| Found { value, unknown }).ok_or_else(unread)
}

/// Reads what can be read of a document of a file.
pub fn examine<K: Object>(document: &Document) -> Examined<K> {
    let mut faults = Faults::default();
    if faults.take(document.check(K::KIND)).is_none() {
        return Examined { value: None, unknown: Vec::new(), faults, refused: None };
    }
    let name = name(document.name(), document.source());
    // One of another type is told with the rest.
    if let Err(error) = &name
        && !document.name().is_empty()
    {
        faults.add(error.clone());
    }
    let AsNode { mut unknown, refused } = K::as_node(document, &mut faults);
    let is_clean = faults.kept().is_empty();
    let mut read = document.mended::<K>();
    for fault in &read.faults {
        // A node may have said it.
        faults.add_others(document.wrong(fault), |_| false);
    }
    let is_whole = read.faults.is_empty();
    let value = read.value.take();
    for text in value.iter().flat_map(K::check) {
        faults.add_others(wrong(document.source(), &text), |field| read.is_told(field));
    }
    if let Err(error) = &name {
        faults.add_others(error.clone(), |field| read.is_told(field));
    }
    if !is_whole && unknown.is_empty() {
        unknown = std::mem::take(&mut read.unknown);
        unknown.retain(|remark| !is_head::<K>(&remark.field));
    }
    let value = match (value.filter(|_| is_whole), name) {
        (Some(value), Ok(name)) if is_clean => {
            let found = inside(Found { value, unknown: std::mem::take(&mut read.unknown) }, &name);
            faults.take(found).map(|found| {
                unknown = found.unknown;
                found.value
            })
        }
        (value, _) => value,
    };
    Examined { value, unknown, faults, refused }
}

/// Reads an object of the cluster, as it is at its type: `check` is the controller's that follows it.
pub fn of_tree<K: Object>(tree: &Value) -> Result<Found<K>, ModelError> {
    let given = tree.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let found = document::of_tree::<K>(tree, K::KIND)?;
    inside(found, &name(given, &format!("{} {}", K::KIND.kind, shown(given, MAX_NAME)))?)
}

/// Reads the spec of an object of the cluster; the error names the field and the cause.
pub fn spec_of_tree<T: DeserializeOwned>(spec: &Value) -> Result<T, String> {
    let wrong =
        |fault: reading::Fault| format!("{}: {}", reading::below("spec", &fault.field), fault.cause());
    reading::from_tree(spec).map(|found| found.value).map_err(wrong)
}

fn inside<K: Object>(found: Found<K>, name: &str) -> Result<Found<K>, ModelError> {
    let Found { value, mut unknown } = found;
    unknown.retain(|remark| !is_head::<K>(&remark.field));
    unknown.extend(value.inside(name)?);
    Ok(Found { value, unknown })
}

/// Returns true for a field that the type of a kind does not have, and an object has: a status is what a controller wrote.
fn is_head<K: Object>(field: &str) -> bool {
    let is_of_operator = |known: &str| {
        field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    ["apiVersion", "kind", "status"].iter().chain(K::OF_OPERATOR).any(|known| is_of_operator(known))
}

/// Checks a name, as the API server does.
fn name(given: &str, document: &str) -> Result<String, ModelError> {
    let wrong = |cause: String| ModelError::InDocument {
        document: document.to_owned(),
        field: "metadata.name".to_owned(),
        cause,
    };
    if given.is_empty() {
        return Err(wrong("it is missing; give the object a name".to_owned()));
    }
    ConfigName::new(given).map(String::from).map_err(|error| wrong(error.to_string()))
}

/// Makes the error of a text that begins with its field.
fn wrong(document: &str, text: &str) -> ModelError {
    let end = text.find([':', ' ']).unwrap_or(text.len());
    let (field, cause) = text.split_at(end);
    ModelError::InDocument {
        document: document.to_owned(),
        field: field.to_owned(),
        cause: cause.trim_start_matches([':', ' ']).to_owned(),
    }
}

mod lenient;
#[cfg(test)]
mod tests;

pub use lenient::Lenient;
pub(crate) use lenient::is_resource_of_its_kind;
