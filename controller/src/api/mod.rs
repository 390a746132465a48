//! The kinds, as the API server stores them: only what is read or written here.
//!
//! Names, labels and fields are those of the Machine Config Operator (`github.com/openshift/api`,
//! machineconfiguration/v1), so that objects and programs work with either side. On OpenShift the cluster's own
//! definitions are used; `machine-config-controller crds` prints these for a cluster without them.

pub mod machineconfig;
pub mod pool;
pub mod rollout_policy;

pub use machineconfig::{MachineConfig, MachineConfigSpec};
pub use pool::{MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus};
pub use rollout_policy::{RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The label of a MachineConfig that says for which pool it is.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The annotation of a MachineConfig that a controller made; it holds that controller's version.
pub const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";

/// The annotation of a rendered MachineConfig whose OS image is not the cluster's own.
pub const IMAGE_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

/// Returns the definitions of the kinds.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [MachineConfig::crd(), MachineConfigPool::crd(), RolloutPolicy::crd()]
}
