//! The kinds, as the API server stores them: only fields that this crate reads or writes.
//!
//! Names, labels and fields are those of the Machine Config Operator (`github.com/openshift/api`,
//! machineconfiguration/v1), so that objects and programs work with either side. On OpenShift the cluster's own
//! definitions are used; `machine-config-controller crds` prints these for a cluster without them.

mod check;
pub mod config_node;
pub mod controller_config;
mod definitions;
mod drain;
mod duration;
pub mod machine_configuration;
pub mod machineconfig;
mod metadata;
mod operator;
pub mod os_build;
pub mod os_config;
pub mod owned;
pub mod pinned_image_set;
pub mod pool;
pub mod rollout_policy;
mod schema;

pub use check::{Violation, check};
pub use config_node::{MachineConfigNode, MachineConfigNodeSpec, MachineConfigNodeStatus};
pub use controller_config::{ControllerConfig, ControllerConfigSpec};
pub use definitions::definitions;
pub use drain::{Drain, ExcludeFromLoadBalancers, OnTimeout, Skip};
pub(crate) use duration::duration;
pub use machine_configuration::{MachineConfiguration, MachineConfigurationSpec};
pub use machineconfig::{MachineConfig, MachineConfigSpec};
pub use os_build::{MachineOSBuild, MachineOSBuildSpec, MachineOSBuildStatus};
pub use os_config::{MachineOSConfig, MachineOSConfigSpec, MachineOSConfigStatus};
pub use owned::{controller_of, is_own_version, is_rendered_here, rendered_for};
pub use pinned_image_set::{PinnedImageSet, PinnedImageSetSpec, PinnedImageSetStatus};
pub use pool::{MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus};
pub use rollout_policy::{RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus};
pub use schema::{Named, ObjectReference};

/// The label of a MachineConfig that names its pool.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The annotation of a MachineConfig that a controller made; it holds that controller's version.
pub const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";

/// The annotation of a rendered MachineConfig whose OS image is not the cluster's own.
pub const IMAGE_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

/// The annotation of a `MachineOSConfig`, and of the MachineConfig made from it, with the image that was built before the
/// cluster.
pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";

/// The annotation of a `MachineOSConfig` that names its build.
pub const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";

#[cfg(test)]
mod tests;
