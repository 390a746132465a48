//! The definitions of the kinds, for a cluster without them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration,
    MachineOSBuild, MachineOSConfig, PinnedImageSet, RolloutPolicy,
};

/// Returns the definitions of the kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        ControllerConfig::crd(),
        MachineConfig::crd(),
        MachineConfigNode::crd(),
        MachineConfigPool::crd(),
        MachineConfiguration::crd(),
        MachineOSBuild::crd(),
        MachineOSConfig::crd(),
        PinnedImageSet::crd(),
        RolloutPolicy::crd(),
    ]
}
