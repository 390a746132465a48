//! OS images that were built before the cluster: each becomes a MachineConfig of its pool.
//!
//! A `MachineOSConfig` of an installation names its image by the annotation `pre-built-image`; a node boots that image and its
//! first config names it, so it neither rebases nor reboots.

use std::collections::BTreeSet;

use crate::api::{MachineConfig, MachineOSConfig, PRE_BUILT_IMAGE};
use crate::manifests::Manifests;
use crate::seed::{self, COMPONENT_PREFIX, SourceError, is_seeded};

/// Errors of an image. Each names the object, the field and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// SEED-001.
    #[error(
        "MachineOSConfig {object}: metadata.annotations[{PRE_BUILT_IMAGE}] is missing: name an image by digest there, build one \
         with bootstrap --build, or have the cluster build it later with --leave-to-cluster {object}"
    )]
    NoImage {
        /// The object.
        object: String,
    },
    /// SEED-002: an image by tag, by another digest, no reference; or a pool that would not get it.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// SEED-002: of no pool.
    #[error(
        "MachineOSConfig {object}: spec.machineConfigPool.name: there is no MachineConfigPool {pool}; add it, or name one of: {known}"
    )]
    Pool {
        /// The object.
        object: String,
        /// The pool that it names.
        pool: String,
        /// Those that there are.
        known: String,
    },
    /// The API server would refuse it.
    #[error(
        "MachineOSConfig {object}: metadata.name differs from the name of its pool, {pool}; name it {pool}"
    )]
    Name {
        /// The object.
        object: String,
        /// The pool.
        pool: String,
    },
    /// Two of them.
    #[error(
        "MachineOSConfig {object}: spec.machineConfigPool.name: pool {pool} has another MachineOSConfig; remove one of them"
    )]
    Twice {
        /// The second one.
        object: String,
        /// The pool.
        pool: String,
    },
    /// A MachineConfig of that name is there.
    #[error(
        "MachineConfig {config}: spec.osImageURL is not the image of MachineOSConfig {object}; remove this MachineConfig, it is \
         generated"
    )]
    Taken {
        /// The MachineConfig.
        config: String,
        /// The `MachineOSConfig`.
        object: String,
    },
}

impl SeedError {
    /// Returns the field that it names.
    pub fn field(&self) -> String {
        match self {
            Self::NoImage { .. } | Self::Source(SourceError::Image { .. }) => {
                format!("metadata.annotations[{PRE_BUILT_IMAGE}]")
            }
            Self::Source(SourceError::Unselected { .. }) => "spec.machineConfigSelector".to_owned(),
            Self::Pool { .. } | Self::Twice { .. } => "spec.machineConfigPool.name".to_owned(),
            Self::Name { .. } | Self::Source(SourceError::Taken { .. }) => "metadata.name".to_owned(),
            Self::Taken { .. } => "spec.osImageURL".to_owned(),
        }
    }
}

/// Returns the MachineConfigs, and all that is wrong.
pub fn component_configs(manifests: &Manifests) -> (Vec<MachineConfig>, Vec<SeedError>) {
    let (mut configs, mut errors, mut pools) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (name, os_config) in manifests.os_configs.iter().chain(&manifests.unread_os_configs) {
        let pool = &os_config.spec.machine_config_pool.name;
        let object = || name.clone();
        let is_unread = !manifests.os_configs.contains_key(name);
        if is_unread && pool.is_empty() {
            // Its own fault.
        } else if manifests.pools.contains_key(pool) {
            if !pools.insert(pool) {
                errors.push(SeedError::Twice { object: object(), pool: pool.clone() });
            } else if name != pool {
                errors.push(SeedError::Name { object: object(), pool: pool.clone() });
            }
        } else {
            let known = manifests.pools.keys().cloned().collect::<Vec<_>>().join(", ");
            errors.push(SeedError::Pool { object: object(), pool: pool.clone(), known });
        }
        match image(manifests, name, os_config) {
            Ok(None) => {}
            Ok(Some(image)) => match component(manifests, name, pool, &image) {
                Ok(config) => configs.push(config),
                Err(error) => errors.push(error),
            },
            Err(error) => errors.push(error),
        }
    }
    (configs, errors)
}

/// Returns the image to begin with; none where a cluster has taken it over already, or will build it.
fn image(
    manifests: &Manifests,
    name: &str,
    os_config: &MachineOSConfig,
) -> Result<Option<String>, SeedError> {
    match seed::image(os_config.metadata.annotations.as_ref()) {
        None if is_seeded(os_config) || manifests.left_to_cluster.contains(name) => Ok(None),
        None => Err(SeedError::NoImage { object: name.to_owned() }),
        Some(Ok(image)) => Ok(Some(image)),
        Some(Err(cause)) => Err(SourceError::Image { object: name.to_owned(), cause }.into()),
    }
}

fn component(
    manifests: &Manifests,
    object: &str,
    pool: &str,
    image: &str,
) -> Result<MachineConfig, SeedError> {
    let name = format!("{COMPONENT_PREFIX}{pool}");
    if let Some(there) = manifests.configs.get(&name) {
        // One of an earlier run, or of the cluster, stays as it is.
        if there.spec.os_image_url.as_deref() == Some(image) {
            return Ok(there.clone());
        }
        return Err(SeedError::Taken { config: name, object: object.to_owned() });
    }
    Ok(seed::component(pool, image))
}

/// Returns the error of a pool that has an image and does not get it.
pub(super) fn unselected(
    pool: &str,
    components: &[MachineConfig],
    sources: &[String],
) -> impl Iterator<Item = SeedError> {
    let config = format!("{COMPONENT_PREFIX}{pool}");
    let is_there = components.iter().any(|one| one.metadata.name.as_ref() == Some(&config));
    let is_missing = is_there && !sources.contains(&config);
    is_missing.then(|| SourceError::Unselected { pool: pool.to_owned(), config }.into()).into_iter()
}
