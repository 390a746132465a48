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
    RolloutPolicy, rendered_for,
};
use crate::model::machineconfig::Fields;
use crate::model::{ModelError, NotApplied};
use crate::rollout::{check_max_unavailable, check_policy};

/// As much of a name is shown: the longest one that the API server takes.
const MAX_NAME: usize = 253;

/// A kind that is read from files and from the cluster.
pub trait Object: DeserializeOwned {
    /// Its kind and version.
    const KIND: Kind;

    /// Fields that the Machine Config Operator has and that are not read here.
    const OF_OPERATOR: &'static [&'static str] = &[];

    /// Refuses a value that its type takes and its meaning does not: the field and the cause.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Reads what no type has: the fields that are not known there.
    fn inside(&self, name: &str) -> Result<Vec<NotApplied>, ModelError> {
        let _ = name;
        Ok(Vec::new())
    }

    /// Reads a text as nodes do, where they read the kind.
    fn as_node(document: &Document) -> Result<(), ModelError> {
        let _ = document;
        Ok(())
    }
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

    fn as_node(document: &Document) -> Result<(), ModelError> {
        machineconfig::MachineConfig::of_document(document.clone())?.spec(None).map(drop)
    }
}

impl Object for MachineConfigPool {
    const KIND: Kind = Kind::POOL;
    const OF_OPERATOR: &'static [&'static str] = &["spec.osImageStream", "spec.configuration"];

    fn check(&self) -> Result<(), String> {
        check_max_unavailable(self.spec.max_unavailable.as_ref())
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
    // The operator writes it, with many fields more.
    const OF_OPERATOR: &'static [&'static str] = &["spec"];
}

impl Object for RolloutPolicy {
    const KIND: Kind = Kind::ROLLOUT_POLICY;

    fn check(&self) -> Result<(), String> {
        check_policy(&self.spec)
    }
}

/// Reads a document of a file.
pub fn of_document<K: Object>(document: &Document) -> Result<Found<K>, ModelError> {
    document.check(K::KIND)?;
    let name = name(document.name(), document.source())?;
    K::as_node(document)?;
    let found = document.read::<K>()?;
    whole(found, &name, document.source())
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

fn whole<K: Object>(found: Found<K>, name: &str, document: &str) -> Result<Found<K>, ModelError> {
    found.value.check().map_err(|text| wrong(document, &text))?;
    inside(found, name)
}

fn inside<K: Object>(found: Found<K>, name: &str) -> Result<Found<K>, ModelError> {
    let Found { value, mut unknown } = found;
    // The type of a kind does not have these two, and a status is what a controller wrote.
    let is_head = |field: &str| {
        let is_of_operator = |known: &str| {
            field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        ["apiVersion", "kind", "status"].iter().chain(K::OF_OPERATOR).any(|known| is_of_operator(known))
    };
    unknown.retain(|remark| !is_head(&remark.field));
    unknown.extend(value.inside(name)?);
    Ok(Found { value, unknown })
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
