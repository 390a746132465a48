//! The definitions of the kinds, for a cluster without them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

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
    all.into_iter().map(described).collect()
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
