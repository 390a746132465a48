//! Label, `ConfigMap`s and objects that a decision is made from.

use std::collections::BTreeMap;

use crate::api::{MachineConfig, MachineConfigPool, MachineOSConfig};
use crate::render::Release;

/// The label of a pool that brings it into image mode.
pub const ENABLED: &str = "machineconfiguration.openshift.io/layering-enabled";

/// The `ConfigMap` that says where images are pushed, and by which accounts.
pub const SETTINGS: &str = "on-cluster-build-config";

/// The `ConfigMap` that says which image is the base.
pub const OS_IMAGE: &str = "machine-config-osimageurl";

/// The `ConfigMap` with a person's lines of the Containerfile, by pool.
pub const CONTAINERFILES: &str = "on-cluster-build-custom-dockerfile";

/// The annotation of a pool with its newest image, by digest.
pub const NEWEST_IMAGE: &str = "machineconfiguration.openshift.io/newestImageEquivalentConfig";

/// The annotation of what was made from a pool's label: the name of [`SETTINGS`].
pub const MADE_FROM: &str = "machine-config-agent.io/made-from";

/// Prefix of a pool's base image: after the templates, before an image that was built before and a person's MachineConfigs.
pub const BASE_PREFIX: &str = "05-osimageurl-";

/// Contents of a `ConfigMap`; `None` where there is none.
pub type ConfigMap<'a> = Option<&'a BTreeMap<String, String>>;

/// Inputs of a decision about one pool.
#[derive(Debug, Clone, Copy)]
pub struct OptInInput<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// Namespace of the `ConfigMap`s.
    pub namespace: &'a str,
    /// [`SETTINGS`].
    pub settings: ConfigMap<'a>,
    /// [`OS_IMAGE`].
    pub os_image: ConfigMap<'a>,
    /// [`CONTAINERFILES`].
    pub containerfiles: ConfigMap<'a>,
    /// Images of the cluster's release.
    pub release: &'a Release,
    /// The pool's `MachineOSConfig`.
    pub os_config: Option<&'a MachineOSConfig>,
    /// MachineConfigs that are rendered from.
    pub configs: &'a BTreeMap<String, MachineConfig>,
}
