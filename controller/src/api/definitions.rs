//! The definitions of the kinds, for a cluster without them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::operator;

use super::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration,
    MachineOSBuild, MachineOSConfig, PinnedImageSet, RolloutPolicy,
};

/// Returns the definitions of the kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let all = [
        ControllerConfig::crd(),
        MachineConfig::crd(),
        MachineConfigNode::crd(),
        MachineConfigPool::crd(),
        MachineConfiguration::crd(),
        MachineOSBuild::crd(),
        MachineOSConfig::crd(),
        PinnedImageSet::crd(),
        RolloutPolicy::crd(),
    ];
    all.into_iter().map(complete).map(described).collect()
}

/// Adds the operator's fields that are not read here.
fn complete(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let fields = operator::fields(&definition.spec.names.kind);
    let field = |(name, mut schema): (&str, Value)| {
        schema.as_object_mut()?.insert("description".to_owned(), json!("As on OpenShift; not read here"));
        Some((name.to_owned(), serde_json::from_value::<JSONSchemaProps>(schema).ok()?))
    };
    let fields: Vec<_> = fields.into_iter().filter_map(field).collect();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let properties = schema.and_then(|schema| schema.properties.as_mut());
        let spec = properties.and_then(|properties| properties.get_mut("spec"));
        if let Some(properties) = spec.and_then(|spec| spec.properties.as_mut()) {
            properties.extend(fields.iter().cloned());
        }
    }
    definition
}

/// Describes a kind by the words of its spec: `kubectl explain` begins with them.
fn described(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        let spec = schema.properties.as_ref().and_then(|properties| properties.get("spec"));
        if let Some(words) = spec.and_then(|spec| spec.description.clone()) {
            schema.description = Some(words);
        }
    }
    definition
}
