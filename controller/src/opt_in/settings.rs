//! The `ConfigMap`s, read as a `MachineOSConfig`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use machine_config_core::model::{ImageRef, short};

use super::input::{CONTAINERFILES, ConfigMap, ENABLED, MADE_FROM, OS_IMAGE, OptInInput, SETTINGS};
use crate::api::os_config::{ContainerFile, ImageBuilder};
use crate::api::{MachineOSConfig, MachineOSConfigSpec, Named};
use crate::build::{BuilderType, IMAGE_BUILDER};

/// The most characters of a Containerfile that a `MachineOSConfig` takes.
const MAX_CONTAINERFILE: usize = 4096;

/// The longest image that it takes.
const MAX_IMAGE: usize = 447;

/// Cause why a pool that has opted in gets no image. Each names the object, the key, the cause and the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptInError {
    /// A `ConfigMap` is not there.
    #[error("ConfigMap {namespace}/{name} is missing; {next}")]
    Missing {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: &'static str,
        /// The next step.
        next: String,
    },
    /// A key of it.
    #[error("ConfigMap {namespace}/{name}: {key}: {cause}")]
    Key {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: &'static str,
        /// The key.
        key: String,
        /// The cause and the next step.
        cause: String,
    },
    /// The pool would not get the image.
    #[error(
        "pool {pool}: machineConfigSelector does not select MachineConfig {config}, which holds the base image; select \
         machineconfiguration.openshift.io/role={pool}"
    )]
    Unselected {
        /// The pool.
        pool: String,
        /// The MachineConfig.
        config: String,
    },
    /// A person has one of that name.
    #[error(
        "MachineConfig {config} is not of ConfigMap {OS_IMAGE}; rename it, or give it the image of that ConfigMap"
    )]
    Taken {
        /// The MachineConfig.
        config: String,
    },
}

impl OptInError {
    /// No base image.
    pub(super) fn no_base(namespace: &str, pool: &str) -> Self {
        let next = format!(
            "create it with key baseOSContainerImage, or remove the label {ENABLED} from pool {pool}"
        );
        Self::Missing { namespace: namespace.to_owned(), name: OS_IMAGE, next }
    }
}

/// A `ConfigMap` that is there.
struct Map<'a> {
    namespace: &'a str,
    name: &'static str,
    data: &'a BTreeMap<String, String>,
}

impl<'a> Map<'a> {
    fn new(namespace: &'a str, name: &'static str, data: ConfigMap<'a>) -> Option<Self> {
        data.map(|data| Self { namespace, name, data })
    }

    fn error(&self, key: &str, cause: impl Into<String>) -> OptInError {
        let (namespace, key) = (self.namespace.to_owned(), key.to_owned());
        OptInError::Key { namespace, name: self.name, key, cause: cause.into() }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.data.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn required(&self, key: &str) -> Result<&'a str, OptInError> {
        self.get(key).ok_or_else(|| {
            let keys: Vec<&str> = self.data.keys().map(String::as_str).take(20).collect();
            let has = if keys.is_empty() { "no keys".to_owned() } else { keys.join(", ") };
            self.error(
                key,
                format!("it is missing or empty; add it (the ConfigMap has {})", short(&has, 300)),
            )
        })
    }

    /// The name of a Secret.
    fn secret(&self, key: &str, name: &str) -> Result<Named, OptInError> {
        let is_part = |part: &str| {
            let ends = part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.ends_with(|c: char| c.is_ascii_alphanumeric());
            ends && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        if name.len() <= 253 && name.split('.').all(is_part) {
            return Ok(Named { name: name.to_owned() });
        }
        Err(self
            .error(key, format!("{:?} is not the name of a Secret; write the name alone", short(name, 100))))
    }

    fn image(&self, key: &str, image: &str) -> Result<String, OptInError> {
        let next = "write REGISTRY/NAME@sha256:<64 hex digits>, as skopeo inspect prints it";
        match ImageRef::parse(image) {
            Ok(_) if !image.starts_with("oci:") => Ok(image.to_owned()),
            Ok(_) => Err(self.error(key, format!("{image} is a directory of one host; {next}"))),
            Err(error) => Err(self.error(key, format!("{error}; {next}"))),
        }
    }
}

/// Returns the `MachineOSConfig` that the pool requests.
pub(super) fn os_config(input: &OptInInput<'_>) -> Result<MachineOSConfig, OptInError> {
    let pool = input.pool.metadata.name.clone().unwrap_or_default();
    let Some(map) = Map::new(input.namespace, SETTINGS, input.settings) else {
        let next = format!(
            "create it with keys finalImagePushSecretName and finalImagePullspec, or remove the label {ENABLED} from pool {pool}"
        );
        return Err(OptInError::Missing { namespace: input.namespace.to_owned(), name: SETTINGS, next });
    };
    let push_key = "finalImagePushSecretName";
    let base_key = "baseImagePullSecretName";
    let spec = MachineOSConfigSpec {
        machine_config_pool: Named { name: pool.clone() },
        image_builder: ImageBuilder { image_builder_type: "Job".to_owned() },
        base_image_pull_secret: map.get(base_key).map(|name| map.secret(base_key, name)).transpose()?,
        rendered_image_push_secret: map.secret(push_key, map.required(push_key)?)?,
        rendered_image_push_spec: pushed(&map)?,
        container_file: containerfile(input, &pool)?,
    };
    let mut annotations = BTreeMap::from([(MADE_FROM.to_owned(), SETTINGS.to_owned())]);
    let builder = builder(&map)?;
    if builder != BuilderType::Job {
        annotations.insert(IMAGE_BUILDER.to_owned(), builder.as_str().to_owned());
    }
    let metadata = ObjectMeta {
        name: Some(pool.clone()),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: "machineconfiguration.openshift.io/v1".to_owned(),
            kind: "MachineConfigPool".to_owned(),
            name: pool,
            uid: input.pool.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }]),
        ..ObjectMeta::default()
    };
    Ok(MachineOSConfig { metadata, spec, status: None })
}

/// Reference of the pushed image. Its tag is replaced by the name of the build.
fn pushed(map: &Map<'_>) -> Result<String, OptInError> {
    let key = "finalImagePullspec";
    let image = map.required(key)?;
    let refused = |cause: &str| Err(map.error(key, format!("{:?} {cause}", short(image, 100))));
    if image.contains('@') {
        return refused("has a digest, which a build does not know yet; write REGISTRY/NAME:TAG");
    }
    let (repository, tag) = match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        // Any tag would do.
        Some(_) | None => (image, "latest"),
    };
    let is_plain =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let Some((registry, path)) = repository.split_once('/') else {
        return refused("names no registry; write REGISTRY/NAME:TAG");
    };
    let (host, port) = registry.split_once(':').unwrap_or((registry, "443"));
    if !host.contains('.') || !is_plain(host) || !port.chars().all(|c| c.is_ascii_digit()) || port.is_empty()
    {
        return refused("has a registry without a dot in its name; write the full name of its host");
    }
    if !path.split('/').all(is_plain) || !is_plain(tag) || image.len() > MAX_IMAGE {
        return refused("is not the name of an image; write REGISTRY/NAME:TAG");
    }
    Ok(format!("{repository}:{tag}"))
}

/// Returns the builder, by its name in the source design or in an annotation.
fn builder(map: &Map<'_>) -> Result<BuilderType, OptInError> {
    let key = "imageBuilderType";
    match map.get(key) {
        None | Some("custom-pod-builder" | "Job") => Ok(BuilderType::Job),
        Some("openshift-image-builder" | "OpenShiftBuild") => Ok(BuilderType::OpenShiftBuild),
        Some(other) => {
            let cause = format!(
                "{:?} does not build here; write custom-pod-builder, or openshift-image-builder on OpenShift",
                short(other, 100)
            );
            Err(map.error(key, cause))
        }
    }
}

/// A person's lines for this pool.
fn containerfile(input: &OptInInput<'_>, pool: &str) -> Result<Option<Vec<ContainerFile>>, OptInError> {
    let Some(map) = Map::new(input.namespace, CONTAINERFILES, input.containerfiles) else { return Ok(None) };
    let Some(content) = map.data.get(pool).filter(|content| !content.trim().is_empty()) else {
        return Ok(None);
    };
    let characters = content.chars().count();
    if characters > MAX_CONTAINERFILE {
        let cause = format!(
            "it has {characters} characters of at most {MAX_CONTAINERFILE}; move files into an image and COPY them"
        );
        return Err(map.error(pool, cause));
    }
    Ok(Some(vec![ContainerFile { containerfile_arch: Some("NoArch".to_owned()), content: content.clone() }]))
}

/// Returns the base image and the extensions' one; none where the `ConfigMap` names none.
pub(super) fn images(input: &OptInInput<'_>) -> Result<Option<(String, Option<String>)>, OptInError> {
    let Some(map) = Map::new(input.namespace, OS_IMAGE, input.os_image) else { return Ok(None) };
    let (base, extensions) = ("baseOSContainerImage", "baseOSExtensionsContainerImage");
    let extensions = map.get(extensions).map(|image| map.image(extensions, image)).transpose()?;
    Ok(Some((map.image(base, map.required(base)?)?, extensions)))
}
