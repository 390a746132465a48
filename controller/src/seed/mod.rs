//! Install-time image mode, once there is a cluster: the MachineConfig of an image that was built before. Pure.
//!
//! A `MachineOSConfig` names such an image by the annotation `pre-built-image`. Its pool gets a MachineConfig with that image, the
//! component, at the bootstrap and in the cluster alike; [`crate::build`] makes a build of it that has succeeded without a Job; the nodes,
//! which boot the image already, adopt it.
//!
//! # Decisions
//!
//! - The annotation stays, and rules the component: it is created, updated and deleted with it, as the source document has it. Merged
//!   upstream removes the annotation after the seeding and freezes the component.
//! - What upstream seeded is understood: without the annotation, its component stays as it is. So it does once its `MachineOSConfig` is
//!   gone: it names no maker, a person's would look like it, and nothing proves whose it is. That is told, with the next step.
//! - One of this program names its maker ([`MADE_BY`], [`MADE_FOR`]), and is deleted only where that one, or nobody, rules its pool. A copy
//!   stays. One without a maker, such as that of the bootstrap, gets it from the `MachineOSConfig` whose annotation rules it.
//! - A pool is rendered with its component before the API server has it: there is no moment at which nodes that were installed with the
//!   image would be given another one.
//! - An image that can't be read changes nothing: the pool is not rendered, and says why.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use serde_json::Value;

use crate::api::{CURRENT_BUILD, MachineConfig, MachineConfigSpec, MachineOSConfig, PRE_BUILT_IMAGE, ROLE};
use crate::model::ImageRef;

/// Prefix of the names of components: after the templates, before a person's configs.
pub const COMPONENT_PREFIX: &str = "10-prebuiltimage-osimageurl-";

/// The annotation of a component that was made here: the name of its `MachineOSConfig`.
pub const MADE_BY: &str = "machine-config-agent.io/machine-os-config";

/// Another one: pool and UID of that `MachineOSConfig`. A copy has another name than it says.
pub const MADE_FOR: &str = "machine-config-agent.io/made-for";

/// The longest name of an image, as in the fields of a `MachineOSBuild`, which the API server would refuse.
const MAX_IMAGE: usize = 447;

/// The condition of a `MachineOSConfig` whose first image was built before.
pub const SEEDED: &str = "Seeded";

/// Returns the MachineConfig with a pool's image.
pub fn component(pool: &str, image: &str) -> MachineConfig {
    let metadata = ObjectMeta {
        name: Some(format!("{COMPONENT_PREFIX}{pool}")),
        labels: Some(BTreeMap::from([(ROLE.to_owned(), pool.to_owned())])),
        annotations: Some(BTreeMap::from([(PRE_BUILT_IMAGE.to_owned(), image.to_owned())])),
        ..ObjectMeta::default()
    };
    let spec = MachineConfigSpec { os_image_url: Some(image.to_owned()), ..MachineConfigSpec::default() };
    MachineConfig { metadata, spec }
}

/// Returns the image that was built before, or its error.
pub fn image(annotations: Option<&BTreeMap<String, String>>) -> Option<Result<String, String>> {
    let image = annotation(annotations, PRE_BUILT_IMAGE)?;
    Some(match ImageRef::parse(image) {
        Ok(_) if image.starts_with("oci:") => Err(format!("{image} is a directory of one host")),
        Ok(_) if image.len() > MAX_IMAGE => {
            Err(format!("it has {} characters, and at most {MAX_IMAGE} are taken", image.len()))
        }
        Ok(_) if !is_canonical(image) => Err(format!("{image} does not name the registry in full")),
        Ok(_) => Ok(image.clone()),
        Err(error) => Err(error.to_string()),
    })
}

/// Returns true for a name that is the same wherever it is read: its host is in it, and none of Docker Hub's short forms. Upstream refuses
/// the others.
fn is_canonical(image: &str) -> bool {
    let Some((host, name)) = image.split_once('/') else { return false };
    let is_host =
        host.contains(['.', ':']) || host == "localhost" || host.chars().any(|c| c.is_ascii_uppercase());
    let is_short = host == "index.docker.io" || (host == "docker.io" && !name.contains('/'));
    is_host && !is_short
}

/// Returns true if a cluster has taken the image over: by the annotation or by the condition, of which upstream writes both as well.
pub fn is_seeded(os_config: &MachineOSConfig) -> bool {
    let conditions = os_config.status.iter().flat_map(|status| status.conditions.iter().flatten());
    annotation(os_config.metadata.annotations.as_ref(), CURRENT_BUILD).is_some()
        || conditions.into_iter().any(|one| one.type_ == SEEDED && one.status == "True")
}

fn annotation<'a>(annotations: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a String> {
    annotations.and_then(|annotations| annotations.get(key)).filter(|value| !value.is_empty())
}

/// A `MachineOSConfig`, reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its pool.
    pub pool: String,
    /// The image that was built before, or its error.
    pub image: Option<Result<String, String>>,
}

/// Write that a pool's image needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates the component.
    Create(Box<MachineConfig>),
    /// Gives it the image that the annotation names now.
    Update(Box<MachineConfig>),
    /// Deletes it: its `MachineOSConfig`, or the annotation, is gone.
    Delete(Box<MachineConfig>),
}

/// A component that is not as it should be; each names the object, the field and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The annotation.
    #[error(
        "MachineOSConfig {object}: metadata.annotations[{PRE_BUILT_IMAGE}]: {cause}; write REGISTRY/NAME@sha256:<64 hex digits>, \
         as skopeo inspect prints it"
    )]
    Image {
        /// The object.
        object: String,
        /// Cause.
        cause: String,
    },
    /// A person has a MachineConfig of that name.
    #[error(
        "MachineConfig {config} has the name of the one with the image of MachineOSConfig {object}; rename it"
    )]
    Taken {
        /// The MachineConfig.
        config: String,
        /// The `MachineOSConfig`.
        object: String,
    },
    /// The pool would not get the image.
    #[error(
        "pool {pool}: machineConfigSelector does not select MachineConfig {config}; select {ROLE}={pool}, or the nodes get another \
         image"
    )]
    Unselected {
        /// The pool.
        pool: String,
        /// The MachineConfig.
        config: String,
    },
}

/// Returns the write for the component of one `MachineOSConfig`.
fn action(source: &Source, there: Option<&MachineConfig>) -> Result<Option<Action>, SourceError> {
    let (object, config) = (source.name.clone(), format!("{COMPONENT_PREFIX}{}", source.pool));
    let image = match &source.image {
        None => return Ok(None),
        Some(Err(cause)) => return Err(SourceError::Image { object, cause: cause.clone() }),
        Some(Ok(image)) => image,
    };
    let mut desired = component(&source.pool, image);
    let annotations = desired.metadata.annotations.get_or_insert_default();
    annotations.insert(MADE_BY.to_owned(), object.clone());
    annotations.insert(MADE_FOR.to_owned(), format!("{}/{}", source.pool, source.uid));
    let Some(there) = there else { return Ok(Some(Action::Create(Box::new(desired)))) };
    if !is_component(there) || is_copy(there) {
        return Err(SourceError::Taken { config, object });
    }
    if there.spec.os_image_url.as_ref() == Some(image) && !has_no_maker(there) {
        return Ok(None);
    }
    let mut new = there.clone();
    new.spec.os_image_url = Some(image.clone());
    new.metadata.annotations.get_or_insert_default().extend(desired.metadata.annotations.unwrap_or_default());
    Ok(Some(Action::Update(Box::new(new))))
}

/// Returns the writes that components need, and the errors.
pub fn actions(
    sources: &[Source],
    configs: &BTreeMap<String, MachineConfig>,
) -> (Vec<Action>, Vec<SourceError>) {
    let (mut actions, mut errors) = (Vec::new(), Vec::new());
    for source in sources {
        let name = format!("{COMPONENT_PREFIX}{}", source.pool);
        match action(source, configs.get(&name)) {
            Ok(found) => actions.extend(found),
            Err(error) => errors.push(error),
        }
    }
    let prefixed = configs.range(COMPONENT_PREFIX.to_owned()..);
    let own = prefixed.take_while(|(name, _)| name.starts_with(COMPONENT_PREFIX));
    let left = own.filter(|(_, config)| is_left(config, sources));
    actions.extend(left.map(|(_, config)| Action::Delete(Box::new(config.clone()))));
    (actions, errors)
}

/// Returns the sources of a pool's rendered config: the components are as they are going to be. The others are not copied.
pub fn with_components<'a>(
    pool: &str,
    sources: &[Source],
    configs: &'a BTreeMap<String, MachineConfig>,
) -> Result<Vec<Cow<'a, MachineConfig>>, SourceError> {
    let name = format!("{COMPONENT_PREFIX}{pool}");
    let mut component = configs.get(&name).map(Cow::Borrowed);
    for source in sources.iter().filter(|source| source.pool == pool) {
        match action(source, component.as_deref())? {
            Some(Action::Create(config) | Action::Update(config)) => component = Some(Cow::Owned(*config)),
            Some(Action::Delete(_)) => component = None,
            None => {}
        }
    }
    let component = component.filter(|config| !is_left(config, sources));
    let others = configs.iter().filter(|(other, _)| **other != name);
    Ok(others.map(|(_, config)| Cow::Borrowed(config)).chain(component).collect())
}

/// Refuses a pool that has an image and was rendered without it. A MachineConfig of a later name may have another one.
pub fn selected(pool: &str, sources: &[Source], rendered_from: &[String]) -> Result<(), SourceError> {
    let config = format!("{COMPONENT_PREFIX}{pool}");
    let has_image = sources.iter().any(|source| source.pool == pool && source.image.is_some());
    if has_image && !rendered_from.contains(&config) {
        return Err(SourceError::Unselected { pool: pool.to_owned(), config });
    }
    Ok(())
}

fn is_component(config: &MachineConfig) -> bool {
    annotation(config.metadata.annotations.as_ref(), PRE_BUILT_IMAGE).is_some()
}

/// Returns true if a component was left by its `MachineOSConfig`, of which there is proof.
fn is_left(config: &MachineConfig, sources: &[Source]) -> bool {
    let pool = pool_of(config);
    let of_pool = || sources.iter().filter(|source| source.pool == pool);
    if of_pool().any(|source| source.image.is_some()) {
        return false;
    }
    let maker = annotation(config.metadata.annotations.as_ref(), MADE_BY);
    let of_maker = |source: &&Source| Some(&source.name) == maker;
    match (is_made_here(config), made_for(config)) {
        (false, _) => false,
        // Its maker is gone, has no image, or is for another pool now.
        (true, Some((_, uid))) => sources.iter().filter(|source| source.uid == uid).all(|one| of_maker(&one)),
        // By the name alone it may be a copy: of another pool, or beside another one's.
        (true, None) => match sources.iter().find(of_maker) {
            Some(maker) => maker.pool == pool,
            None => of_pool().next().is_none(),
        },
    }
}

/// Returns the components that nobody rules: as upstream makes them, without a maker, and of a pool that no `MachineOSConfig` is for.
pub fn unruled<'a>(
    sources: &[Source],
    configs: &'a BTreeMap<String, MachineConfig>,
) -> impl Iterator<Item = &'a MachineConfig> {
    let prefixed = configs.range(COMPONENT_PREFIX.to_owned()..);
    let own = prefixed.take_while(|(name, _)| name.starts_with(COMPONENT_PREFIX)).map(|(_, config)| config);
    let has_source = |config: &MachineConfig| sources.iter().any(|source| source.pool == pool_of(config));
    own.filter(move |config| has_no_maker(config) && is_as_upstream(config) && !has_source(config))
}

/// Returns true if a component names no maker.
fn has_no_maker(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    annotation(annotations, MADE_BY).is_none() && annotation(annotations, MADE_FOR).is_none()
}

/// Returns true if a component is in each field as upstream makes it. A person's may have more in it.
fn is_as_upstream(config: &MachineConfig) -> bool {
    let image = annotation(config.metadata.annotations.as_ref(), PRE_BUILT_IMAGE);
    let has_image = |image: &String| config.spec.os_image_url.as_ref() == Some(image);
    let has_parts =
        |config: &Value| config.as_object().is_none_or(|config| config.keys().any(|part| part != "ignition"));
    let alone =
        MachineConfigSpec { os_image_url: config.spec.os_image_url.clone(), ..MachineConfigSpec::default() };
    let is_alone = MachineConfigSpec { config: None, ..config.spec.clone() } == alone
        && !config.spec.config.as_ref().is_some_and(has_parts);
    image.is_some_and(has_image) && is_alone
}

/// Returns true if a component names its maker, and was made under its own name.
fn is_made_here(config: &MachineConfig) -> bool {
    let has_maker = annotation(config.metadata.annotations.as_ref(), MADE_BY).is_some();
    is_component(config) && has_maker && !is_copy(config)
}

/// Returns true for a copy of another pool's component: a person's.
fn is_copy(config: &MachineConfig) -> bool {
    made_for(config).is_some_and(|(pool, _)| pool != pool_of(config))
}

/// Returns the pool that a component is of, by its name.
fn pool_of(config: &MachineConfig) -> &str {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    name.strip_prefix(COMPONENT_PREFIX).unwrap_or_default()
}

/// Returns pool and UID of the `MachineOSConfig` that a component was made for.
fn made_for(config: &MachineConfig) -> Option<(&str, &str)> {
    annotation(config.metadata.annotations.as_ref(), MADE_FOR)?.split_once('/')
}

#[cfg(test)]
mod tests;
