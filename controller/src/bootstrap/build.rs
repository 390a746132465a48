//! Images for pools that name none, before the first node boots: the builds. Pure.
//!
//! The image is built from what the pool is rendered to without it, and becomes the one that was built before: bootstrap and cluster go
//! on with it as with an image that a person built.

use kube::core::ObjectMeta;

use super::BootstrapError;
use crate::api::os_config::ImageBuilder;
use crate::api::{MachineConfig, MachineOSConfig, MachineOSConfigSpec, Named, PRE_BUILT_IMAGE};
use crate::build::{push_spec, user_lines};
use crate::manifests::Manifests;
use crate::render::{Release, render_first};
use crate::seed;

/// An image to build.
#[derive(Debug, Clone)]
pub struct Unbuilt {
    /// The `MachineOSConfig`.
    pub os_config: String,
    /// Its pool.
    pub pool: String,
    /// The rendered config that the image contains.
    pub rendered: MachineConfig,
    /// The base image.
    pub base: String,
    /// The user's lines of the Containerfile.
    pub containerfile: String,
    /// The tag that it is pushed to.
    pub push: String,
    /// The Secret for the pull of the base.
    pub pull_secret: Option<String>,
    /// The Secret for the push.
    pub push_secret: String,
}

/// Adds a `MachineOSConfig` for each pool that has none; returns their names.
pub fn generate(manifests: &mut Manifests, repository: &str, push_secret: &str) -> Vec<String> {
    let has_none = |pool: &&String| {
        !manifests.os_configs.values().any(|config| config.spec.machine_config_pool.name == **pool)
    };
    let names: Vec<String> = manifests.pools.keys().filter(has_none).cloned().collect();
    for name in &names {
        let spec = MachineOSConfigSpec {
            machine_config_pool: Named { name: name.clone() },
            image_builder: ImageBuilder { image_builder_type: "Job".to_owned() },
            base_image_pull_secret: None,
            rendered_image_push_secret: Named { name: push_secret.to_owned() },
            rendered_image_push_spec: push_spec(repository, name),
            container_file: None,
        };
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        manifests.os_configs.insert(name.clone(), MachineOSConfig { metadata, spec, status: None });
    }
    names
}

/// Returns the missing builds, or all errors. One that a cluster has taken over already is left to it, and one that a person leaves to it.
pub fn unbuilt(manifests: &Manifests, release: &Release) -> Result<Vec<Unbuilt>, Vec<BootstrapError>> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let configs: Vec<MachineConfig> = manifests.configs.values().cloned().collect();
    for (name, config) in &manifests.os_configs {
        let has_image = seed::image(config.metadata.annotations.as_ref()).is_some();
        let pool = &config.spec.machine_config_pool.name;
        // One of no pool is refused with all else.
        let is_left = manifests.left_to_cluster.contains(name);
        let is_built = !has_image && !is_left && !seed::is_seeded(config);
        let Some(object) = manifests.pools.get(pool).filter(|_| is_built) else { continue };
        let rendered = match render_first(object, &configs, release) {
            Ok(rendered) => rendered,
            Err(refused) => {
                errors.extend(refused.into_iter().map(BootstrapError::Render));
                continue;
            }
        };
        let base = rendered.object.spec.os_image_url.clone().filter(|base| !base.is_empty());
        let Some(base) = base else {
            errors.push(BootstrapError::NoBase { pool: pool.clone() });
            continue;
        };
        found.push(Unbuilt {
            os_config: name.clone(),
            pool: pool.clone(),
            push: push_spec(&config.spec.rendered_image_push_spec, rendered.name()),
            rendered: rendered.object,
            base,
            pull_secret: config.spec.base_image_pull_secret.as_ref().map(|secret| secret.name.clone()),
            push_secret: config.spec.rendered_image_push_secret.name.clone(),
            containerfile: user_lines(&config.spec).to_owned(),
        });
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// Notes an image that was built.
pub fn set_image(manifests: &mut Manifests, os_config: &str, image: &str) {
    if let Some(config) = manifests.os_configs.get_mut(os_config) {
        let annotations = config.metadata.annotations.get_or_insert_default();
        annotations.insert(PRE_BUILT_IMAGE.to_owned(), image.to_owned());
    }
}
