//! Credentials for builds before there is a cluster: the Secrets of the manifests that a `MachineOSConfig` names. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::Secret;

use super::{BootstrapError, Unbuilt};
use crate::manifests::{Manifests, WholeObject};
use crate::registry::credentials_of_secret;

/// Purpose of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The base image.
    Pull,
    /// The image that was built.
    Push,
}

impl Purpose {
    fn field(self) -> &'static str {
        match self {
            Self::Pull => "spec.baseImagePullSecret.name",
            Self::Push => "spec.renderedImagePushSecret.name",
        }
    }

    /// Returns the flag that names a file in place of the Secret.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Pull => "--authfile",
            Self::Push => "--push-authfile",
        }
    }
}

/// Cause and next step of a Secret that is of no use.
const NO_CREDENTIALS: &str =
    "it holds no credentials of a registry; write it as `kubectl create secret docker-registry` does";

/// Credentials of a Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The Secret's name.
    pub secret: String,
    /// A `.dockerconfigjson`.
    pub contents: Vec<u8>,
}

/// Nothing of the contents is shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// Returns the credentials for a build; `None` where its `MachineOSConfig` names no Secret, or none of the manifests.
pub fn credentials(
    manifests: &Manifests,
    build: &Unbuilt,
    purpose: Purpose,
) -> Result<Option<Credentials>, BootstrapError> {
    let name = match purpose {
        Purpose::Pull => build.pull_secret.as_deref(),
        Purpose::Push => Some(build.push_secret.as_str()),
    };
    let Some((name, found)) = name.and_then(|name| Some((name, manifests.secrets.get(name)?))) else {
        return Ok(None);
    };
    let refused = |cause: &str| BootstrapError::Secret {
        object: build.os_config.clone(),
        field: purpose.field(),
        secret: name.to_owned(),
        cause: format!("{cause}, or name {} FILE", purpose.flag()),
    };
    // Copies in several namespaces are one Secret.
    let mut contents: Vec<Option<Vec<u8>>> = found.iter().map(contents).collect();
    contents.dedup();
    match <[_; 1]>::try_from(contents) {
        Ok([Some(contents)]) => Ok(Some(Credentials { secret: name.to_owned(), contents })),
        Ok([None]) => Err(refused(NO_CREDENTIALS)),
        Err(_) => Err(refused("the manifests have several of that name with different contents; keep one")),
    }
}

/// Returns the Secrets of the manifests that a `MachineOSConfig` names, and that hold nothing that a build there or in the cluster could
/// use. Others of the name, in other namespaces, may be somebody else's.
pub fn useless_secrets(manifests: &Manifests) -> Vec<BootstrapError> {
    let named = manifests.os_configs.iter().flat_map(|(name, config)| {
        let spec = &config.spec;
        let pull = spec.base_image_pull_secret.as_ref().map(|secret| (Purpose::Pull, &secret.name));
        let all = pull.into_iter().chain([(Purpose::Push, &spec.rendered_image_push_secret.name)]);
        all.map(move |(purpose, secret)| (name, purpose, secret))
    });
    let useless = named.filter(|(.., secret)| {
        manifests.secrets.get(*secret).is_some_and(|found| found.iter().all(|one| contents(one).is_none()))
    });
    let fault = |(name, purpose, secret): (&String, Purpose, &String)| BootstrapError::Secret {
        object: name.clone(),
        field: purpose.field(),
        secret: secret.clone(),
        cause: NO_CREDENTIALS.to_owned(),
    };
    useless.map(fault).collect()
}

fn contents(object: &WholeObject) -> Option<Vec<u8>> {
    let secret: Secret = serde_json::from_value(object.0.clone()).ok()?;
    // Credentials that are no JSON are refused here, where the Secret has a name, and not by buildah.
    credentials_of_secret(&secret).filter(|bytes| serde_json::from_slice::<serde_json::Value>(bytes).is_ok())
}
