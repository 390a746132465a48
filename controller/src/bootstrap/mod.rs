//! Renders a directory of manifests as the cluster's controllers would, before there is a cluster: pools with their
//! rendered configs, for the first nodes.
//!
//! The same functions as in the cluster, so the same names (BOOT-015): a node that was provisioned so finds its config there.

mod build;
mod credentials;
mod output;
mod seed;

use std::collections::BTreeMap;

pub use build::{Unbuilt, generate, set_image, unbuilt};
pub use credentials::{Credentials, Purpose, credentials, useless_secrets};
pub use output::{OutputError, write};
pub use seed::{SeedError, component_configs};

use crate::api::os_config::ContainerFile;
use crate::api::pool::{Configuration, MachineConfigPoolStatus, Reference};
use crate::api::{MachineConfig, MachineConfigPool, MachineOSConfig};
use crate::image::{ImageError, check_containerfile};
use crate::manifests::{Manifests, WholeObject};
use crate::model::NotApplied;
use crate::render::{Release, RenderError, Rendered, render_first};

/// Objects that a bootstrap writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Pools that name their config, by name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// Rendered configs by name.
    pub configs: BTreeMap<String, MachineConfig>,
    /// `MachineOSConfig`s that were given an image, for the cluster.
    pub os_configs: BTreeMap<String, MachineOSConfig>,
    /// The `ControllerConfig`, where the manifests have it: the server of Ignition configs reads its certificates.
    pub controller_config: Option<WholeObject>,
    /// Fields that no node of a pool applies, with the pool.
    pub remarks: Vec<(String, NotApplied)>,
}

/// Errors of the manifests. Each names the object, the field and the next step.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// Nothing to do is a mistyped directory.
    #[error("the manifests have no MachineConfigPool; add one for each kind of node")]
    NoPool,
    /// An image that was built before the cluster.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// Lines that no builder would take.
    #[error("MachineOSConfig {object}: spec.containerFile[{place}].content: {cause}")]
    Containerfile {
        /// The object.
        object: String,
        /// Which of them.
        place: usize,
        /// The line, the cause and the next step.
        cause: ImageError,
    },
    /// Nothing to build from.
    #[error("pool {pool}: no MachineConfig of it has an osImageURL; set one, or name --os-image")]
    NoBase {
        /// The pool.
        pool: String,
    },
    /// Credentials among the manifests that can't be used.
    #[error("MachineOSConfig {object}: {field}: Secret {secret}: {cause}")]
    Secret {
        /// The object.
        object: String,
        /// Its field.
        field: &'static str,
        /// The Secret.
        secret: String,
        /// Cause and next step.
        cause: String,
    },
    /// A `MachineOSConfig` to leave to the cluster that is not there.
    #[error(
        "--leave-to-cluster {object}: the manifests have no MachineOSConfig {object}; name one of: {known}"
    )]
    Left {
        /// The object.
        object: String,
        /// Those that there are.
        known: String,
    },
    /// A pool that can't be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl BootstrapError {
    /// Returns the field that it names; none where a pool can't be rendered, which has fields of its own.
    pub fn field(&self) -> Option<String> {
        match self {
            Self::NoPool | Self::Render(_) => None,
            Self::Seed(error) => Some(error.field()),
            Self::Containerfile { place, .. } => Some(format!("spec.containerFile[{place}].content")),
            Self::NoBase { .. } => Some("spec.osImageURL".to_owned()),
            Self::Secret { field, .. } => Some((*field).to_owned()),
            Self::Left { .. } => Some("--leave-to-cluster".to_owned()),
        }
    }
}

/// Renders the pools; fails with all that is wrong.
pub fn bootstrap(manifests: &Manifests, release: &Release) -> Result<Output, Vec<BootstrapError>> {
    let mut errors: Vec<BootstrapError> = Vec::new();
    if manifests.pools.is_empty() {
        errors.push(BootstrapError::NoPool);
    }
    errors.extend(unknown_left(manifests));
    let (components, refused) = component_configs(manifests);
    errors.extend(refused.into_iter().map(BootstrapError::Seed));
    let os_configs = manifests.os_configs.iter().chain(&manifests.unread_os_configs);
    errors.extend(os_configs.flat_map(|(name, config)| containerfiles(name, config)));
    let mut configs = manifests.configs.clone();
    for component in &components {
        configs.insert(component.metadata.name.clone().unwrap_or_default(), component.clone());
    }
    let configs: Vec<MachineConfig> = configs.into_values().collect();
    let mut output = Output { controller_config: manifests.controller_config.clone(), ..Output::default() };
    for (name, pool) in &manifests.pools {
        match render_first(pool, &configs, release) {
            Ok(rendered) => {
                errors
                    .extend(seed::unselected(name, &components, &rendered.sources).map(BootstrapError::Seed));
                output.pools.insert(name.clone(), with_target(pool, &rendered));
                output.remarks.extend(rendered.remarks.iter().map(|remark| (name.clone(), remark.clone())));
                output.configs.insert(rendered.name().to_owned(), rendered.object);
            }
            Err(refused) => errors.extend(refused.into_iter().map(BootstrapError::Render)),
        }
    }
    if errors.is_empty() { Ok(output) } else { Err(errors) }
}

/// Refuses names that are to be left to the cluster and are not there.
fn unknown_left(manifests: &Manifests) -> impl Iterator<Item = BootstrapError> {
    let is_there = |name: &&String| {
        manifests.os_configs.contains_key(*name) || manifests.unread_os_configs.contains_key(*name)
    };
    let unknown = manifests.left_to_cluster.iter().filter(move |name| !is_there(name));
    unknown.map(|name| {
        let known = manifests.os_configs.keys().cloned().collect::<Vec<_>>().join(", ");
        BootstrapError::Left { object: name.clone(), known }
    })
}

/// Checks the lines of a `MachineOSConfig`, whatever else is wrong with it.
fn containerfiles(name: &str, config: &MachineOSConfig) -> Vec<BootstrapError> {
    let files = config.spec.container_file.iter().flatten().enumerate();
    let error = |(place, file): (usize, &ContainerFile)| {
        let cause = check_containerfile(&file.content).err()?;
        Some(BootstrapError::Containerfile { object: name.to_owned(), place, cause })
    };
    files.filter_map(error).collect()
}

/// Returns the pool with its config: as target, and as the current config of its nodes, as none has another one.
fn with_target(pool: &MachineConfigPool, rendered: &Rendered) -> MachineConfigPool {
    let source = |name: &String| Reference {
        api_version: Some("machineconfiguration.openshift.io/v1".to_owned()),
        kind: Some("MachineConfig".to_owned()),
        name: Some(name.clone()),
    };
    let configuration = Some(Configuration {
        name: Some(rendered.name().to_owned()),
        source: Some(rendered.sources.iter().map(source).collect()),
    });
    let mut pool = pool.clone();
    pool.spec.configuration.clone_from(&configuration);
    pool.status = Some(MachineConfigPoolStatus { configuration, ..MachineConfigPoolStatus::default() });
    pool
}

#[cfg(test)]
mod tests;
