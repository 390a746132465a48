//! Image mode by a label and `ConfigMap`s: the form of the source design of 2023. Pure.
//!
//! A pool with the label [`ENABLED`] is read, with the `ConfigMap`s [`SETTINGS`], [`OS_IMAGE`] and [`CONTAINERFILES`], as a
//! `MachineOSConfig`, which then is an object as any other. What comes of it is on the pool: one of four conditions, and the image
//! in the annotation [`NEWEST_IMAGE`].
//!
//! # Decisions
//!
//! - The `MachineOSConfig` is a real object that names its maker ([`MADE_FROM`]): the build and the rollout know of one way into image
//!   mode. A pool whose `MachineOSConfig` a person wrote keeps that one.
//! - The base image becomes a MachineConfig of the pool, `05-osimageurl-POOL`, where the cluster's release does not name it already. Other
//!   pools keep their OS, and a person's MachineConfig of a later name wins.
//! - It stays when the pool opts out: its nodes go back to this image. The source design had no way back.
//! - A `ConfigMap` that is gone or wrong changes nothing that is there: the pool says so.

mod input;
mod results;
mod settings;

use std::collections::BTreeMap;

use kube::core::{ObjectMeta, Selector, SelectorExt as _};

pub use input::{
    BASE_PREFIX, CONTAINERFILES, ConfigMap, ENABLED, MADE_FROM, NEWEST_IMAGE, OS_IMAGE, OptInInput, SETTINGS,
};
pub use results::{Results, has_results, results};
pub use settings::OptInError;

use crate::api::os_config::MachineOSConfigSpec;
use crate::api::{MachineConfig, MachineConfigPool, MachineConfigSpec, MachineOSConfig, ROLE, controller_of};
use crate::build::IMAGE_BUILDER;

/// One write. Each can be made again.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the pool's `MachineOSConfig`.
    CreateOsConfig(Box<MachineOSConfig>),
    /// Gives it another spec.
    UpdateOsConfig(Box<MachineOSConfig>),
    /// Deletes it: the pool has opted out. Its builds go with it, and the nodes leave image mode.
    DeleteOsConfig {
        /// Its name.
        name: String,
        /// Its UID: another one of that name stays.
        uid: String,
        /// Its version: one that somebody took over meanwhile stays.
        version: Option<String>,
    },
    /// Creates or updates the MachineConfig with the base image.
    WriteBase(Box<MachineConfig>),
}

/// Returns true if a pool has opted in.
pub fn is_enabled(pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    pool.metadata.deletion_timestamp.is_none() && labels.is_some_and(|labels| labels.contains_key(ENABLED))
}

/// Returns true if an object was made from a pool's label.
pub fn is_made(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MADE_FROM))
}

/// Returns the next write for a pool; none where all is as it should be.
pub fn opt_in(input: &OptInInput<'_>) -> Result<Option<Action>, OptInError> {
    let own = input.os_config.filter(|config| is_made(&config.metadata));
    if !is_enabled(input.pool) {
        return Ok(own.and_then(|own| opt_out(own, input.pool)));
    }
    // One that is being deleted makes room first.
    let is_foreign = input.os_config.is_some() && own.is_none();
    if is_foreign || own.is_some_and(|config| config.metadata.deletion_timestamp.is_some()) {
        return Ok(None);
    }
    let desired = settings::os_config(input)?;
    let base = base(input)?;
    match own {
        // Before the base: a pool that is not in image mode yet would change to it.
        None => Ok(Some(Action::CreateOsConfig(Box::new(desired)))),
        Some(own) => {
            Ok(changed(own, &desired).or_else(|| base.map(|base| Action::WriteBase(Box::new(base)))))
        }
    }
}

/// One that this pool controls is deleted; a copy of it, or that of an earlier pool, is not.
fn opt_out(own: &MachineOSConfig, pool: &MachineConfigPool) -> Option<Action> {
    let controller = controller_of(&own.metadata, "MachineConfigPool");
    let is_ours = controller.is_some_and(|controller| Some(&controller.uid) == pool.metadata.uid.as_ref())
        && own.metadata.name == pool.metadata.name;
    (is_ours && own.metadata.deletion_timestamp.is_none()).then(|| Action::DeleteOsConfig {
        name: own.metadata.name.clone().unwrap_or_default(),
        uid: own.metadata.uid.clone().unwrap_or_default(),
        version: own.metadata.resource_version.clone(),
    })
}

/// Returns the object as it should be; none where it is. Annotations of others stay.
fn changed(own: &MachineOSConfig, desired: &MachineOSConfig) -> Option<Action> {
    let builder = |config: &MachineOSConfig| {
        config.metadata.annotations.as_ref().and_then(|all| all.get(IMAGE_BUILDER).cloned())
    };
    if normal(&own.spec) == normal(&desired.spec) && builder(own) == builder(desired) {
        return None;
    }
    let mut new = MachineOSConfig { spec: desired.spec.clone(), status: None, ..own.clone() };
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.remove(IMAGE_BUILDER);
    annotations.extend(builder(desired).map(|builder| (IMAGE_BUILDER.to_owned(), builder)));
    Some(Action::UpdateOsConfig(Box::new(new)))
}

/// The API server fills in the default of a list's key.
fn normal(spec: &MachineOSConfigSpec) -> MachineOSConfigSpec {
    let mut spec = spec.clone();
    for file in spec.container_file.iter_mut().flatten() {
        file.containerfile_arch.get_or_insert_with(|| "NoArch".to_owned());
    }
    spec.container_file = spec.container_file.filter(|files| !files.is_empty());
    spec
}

/// Returns the MachineConfig with the base image, where it has to be written.
fn base(input: &OptInInput<'_>) -> Result<Option<MachineConfig>, OptInError> {
    let pool = input.pool.metadata.name.as_deref().unwrap_or_default();
    let name = format!("{BASE_PREFIX}{pool}");
    let Some((image, extensions)) = settings::images(input)? else {
        return if is_based(input) { Ok(None) } else { Err(OptInError::no_base(input.namespace, pool)) };
    };
    let labels = BTreeMap::from([(ROLE.to_owned(), pool.to_owned())]);
    let is_released = input.release.os_image.as_ref() == Some(&image)
        && (extensions.is_none() || input.release.extensions_image == extensions);
    let old = input.configs.get(&name);
    if is_released && old.is_none() {
        return Ok(None);
    }
    if !selects(input.pool, &labels) {
        return Err(OptInError::Unselected { pool: pool.to_owned(), config: name });
    }
    let spec = MachineConfigSpec {
        os_image_url: Some(image),
        extensions_image: extensions,
        ..MachineConfigSpec::default()
    };
    let metadata = match old {
        Some(old) if old.spec == spec => return Ok(None),
        Some(old) if !is_made(&old.metadata) => return Err(OptInError::Taken { config: name }),
        Some(old) => old.metadata.clone(),
        None => ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(MADE_FROM.to_owned(), SETTINGS.to_owned())])),
            ..ObjectMeta::default()
        },
    };
    Ok(Some(MachineConfig { metadata, spec }))
}

/// Returns true if the pool has a base image by another way.
fn is_based(input: &OptInInput<'_>) -> bool {
    let nothing = BTreeMap::new();
    let has_image =
        |config: &&MachineConfig| config.spec.os_image_url.as_ref().is_some_and(|image| !image.is_empty());
    let mut named = input.configs.values().filter(has_image);
    input.release.os_image.is_some()
        || named.any(|config| selects(input.pool, config.metadata.labels.as_ref().unwrap_or(&nothing)))
}

fn selects(pool: &MachineConfigPool, labels: &BTreeMap<String, String>) -> bool {
    let selector = pool.spec.machine_config_selector.clone().unwrap_or_default();
    Selector::try_from(selector).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests;
