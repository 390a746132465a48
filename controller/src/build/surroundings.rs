//! Surroundings of a build: what the cluster and the rendered config say of registries, the proxy and entitlements. Pure.
//!
//! # Decisions
//!
//! - A build pulls as a node of the pool would: by the mirrors, the policy and the pull secret of its rendered config.
//! - The build settings are stronger, key by key.
//! - Certificates of one registry are trusted for that registry alone, as on a node; upstream's builds have none of them.

use std::collections::BTreeMap;

use machine_config_core::model::HostSpec;
use machine_config_core::model::certificates::RegistryName;
use serde_json::{Map, Value, json};

use super::mounts::{Mount, MountObject};
use super::objects::JobSettings;
use crate::api::controller_config::{CONTROLLER_CONFIG, ControllerConfigSpec, bytes_of};

/// Files of the rendered config that a build goes by.
const REGISTRIES: &str = "/etc/containers/registries.conf";
const POLICY: &str = "/etc/containers/policy.json";
const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// The Secret into which the Machine Config Operator copies the cluster's pull secret.
pub const GLOBAL_PULL_SECRET: &str = "global-pull-secret-copy";

/// Directory of the rendered config with the places of signatures, for the policy.
const SIGNATURES: &str = "/etc/containers/registries.d/";

/// Objects that the user's steps see where they exist, under upstream's names; that of the pool first.
const ENTITLEMENT: (&str, &str) = ("etc-pki-entitlement", "/etc/pki/entitlement");
const PACKAGE_KEYS: (&str, &str) = ("etc-pki-rpm-gpg", "/etc/pki/rpm-gpg");

/// The `ConfigMap` of repository files, and their directory.
pub const REPOSITORIES: (&str, &str) = ("etc-yum-repos-d", "/etc/yum.repos.d");

/// Objects around a build.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The pool.
    pub pool: &'a str,
    /// The rendered config.
    pub rendered: &'a HostSpec,
    /// The `ControllerConfig`, where there is one.
    pub cluster: Option<&'a ControllerConfigSpec>,
    /// Names of the Secrets in the namespace of builds.
    pub secrets: &'a dyn Fn(&str) -> bool,
    /// The `ConfigMap` of repository files is there.
    pub has_repositories: bool,
    /// The build settings have a policy.
    pub has_policy: bool,
    /// Contents of [`GLOBAL_PULL_SECRET`], where it is there.
    pub global: Option<&'a [u8]>,
}

/// They hold a pull secret.
impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Surroundings of a build.
#[derive(Clone, Default, PartialEq)]
pub struct Surroundings {
    proxy: BTreeMap<String, String>,
    trust_bundle: String,
    /// Certificates by registry, as a key of a `ConfigMap` names it.
    registry_authorities: BTreeMap<String, String>,
    registries_conf: String,
    policy_json: String,
    /// Places of signatures by the name of their file.
    signatures: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    /// For the base image, where the `MachineOSConfig` names no Secret.
    pub pull_secret: Vec<u8>,
}

/// As that.
impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// Puts them together, or says what of them can't be read.
    pub fn of(around: &Around<'_>) -> Result<Self, String> {
        let none = ControllerConfigSpec::default();
        let cluster = around.cluster.unwrap_or(&none);
        let trust_bundle = decoded("additionalTrustBundle", cluster.additional_trust_bundle.as_deref())?;
        Ok(Self {
            proxy: proxy(cluster),
            trust_bundle: trust_bundle.unwrap_or_default(),
            registry_authorities: registry_authorities(cluster)?,
            registries_conf: text(around.rendered, REGISTRIES)?,
            policy_json: if around.has_policy { String::new() } else { policy(around.rendered)? },
            signatures: signatures(around.rendered)?,
            mounts: mounts(around),
            pull_secret: pull_secret(around, cluster)?,
        })
    }
}

impl JobSettings {
    /// Returns the settings of a build in its surroundings: each key that is not set is theirs.
    #[must_use]
    pub fn within(&self, surroundings: &Surroundings) -> Self {
        let or = |own: &String, other: &String| if own.is_empty() { other.clone() } else { own.clone() };
        let is_free = |mount: &&Mount| !self.mounts.iter().any(|own| own.path == mount.path);
        let free = surroundings.mounts.iter().filter(is_free);
        Self {
            proxy: if self.proxy.is_empty() { surroundings.proxy.clone() } else { self.proxy.clone() },
            trust_bundle: or(&self.trust_bundle, &surroundings.trust_bundle),
            registry_authorities: surroundings.registry_authorities.clone(),
            registries_conf: or(&self.registries_conf, &surroundings.registries_conf),
            policy_json: or(&self.policy_json, &surroundings.policy_json),
            signatures: surroundings.signatures.clone(),
            mounts: self.mounts.iter().chain(free).cloned().collect(),
            ..self.clone()
        }
    }
}

fn proxy(cluster: &ControllerConfigSpec) -> BTreeMap<String, String> {
    let Some(proxy) = &cluster.proxy else { return BTreeMap::new() };
    let all = [
        ("HTTP_PROXY", &proxy.http_proxy),
        ("HTTPS_PROXY", &proxy.https_proxy),
        ("NO_PROXY", &proxy.no_proxy),
    ];
    let given = all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    given
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

fn registry_authorities(cluster: &ControllerConfigSpec) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    // As on a running node, one that is no registry's is left out. The name becomes a key, and a directory in the pod.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    for (field, bundle) in cluster.registry_bundles() {
        if RegistryName::from_file(&bundle.file).is_ok() && bundle.file.chars().all(is_plain) {
            let text = decoded(field, bundle.data.as_deref())?;
            found.extend(text.map(|text| (bundle.file.clone(), text)));
        }
    }
    Ok(found)
}

fn mounts(around: &Around<'_>) -> Vec<Mount> {
    let secret = |name: &str, path: &str| Mount {
        object: MountObject::Secret(name.to_owned()),
        path: path.to_owned(),
        optional: true,
    };
    let is_there = |name: &str| (around.secrets)(name);
    let (name, path) = ENTITLEMENT;
    let of_pool = format!("{name}-{}", around.pool);
    let entitlement = [of_pool.as_str(), name].into_iter().find(|name| is_there(name));
    let keys = Some(PACKAGE_KEYS.0).filter(|name| is_there(name));
    let repositories = around.has_repositories.then(|| Mount {
        object: MountObject::ConfigMap(REPOSITORIES.0.to_owned()),
        path: REPOSITORIES.1.to_owned(),
        optional: true,
    });
    let secrets = [entitlement.map(|name| secret(name, path)), keys.map(|name| secret(name, PACKAGE_KEYS.1))];
    secrets.into_iter().flatten().chain(repositories).collect()
}

/// The credentials of the rendered config, of the cluster's own registry, and of the cluster; later ones are stronger.
fn pull_secret(around: &Around<'_>, cluster: &ControllerConfigSpec) -> Result<Vec<u8>, String> {
    let of_nodes = text(around.rendered, PULL_SECRET)?;
    let internal = decoded("internalRegistryPullSecret", cluster.internal_registry_pull_secret.as_deref())?;
    let global = around.global.map(String::from_utf8_lossy);
    let texts = [Some(of_nodes.as_str()), internal.as_deref(), global.as_deref()];
    let mut all = Map::new();
    for text in texts.into_iter().flatten() {
        // One that is no JSON opens no registry, on a node as here.
        let read: Value = serde_json::from_str(text).unwrap_or_default();
        all.extend(read.get("auths").and_then(Value::as_object).cloned().unwrap_or_default());
    }
    Ok(json!({ "auths": all }).to_string().into_bytes())
}

/// Returns the policy. A key that it names by a path is on nodes alone.
fn policy(rendered: &HostSpec) -> Result<String, String> {
    let policy = text(rendered, POLICY)?;
    if policy.contains("\"keyPath") {
        let name = rendered.name.as_str();
        return Err(format!(
            "{name}: {POLICY} names a key by its path, which a build does not have; use keyData there, or set policyJson in the build \
             settings"
        ));
    }
    Ok(policy)
}

/// Returns the places of signatures.
fn signatures(rendered: &HostSpec) -> Result<BTreeMap<String, String>, String> {
    // The name becomes a key, and a file in the pod.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let names = rendered.files.keys().filter_map(|path| path.as_str().strip_prefix(SIGNATURES));
    let names = names.filter(|name| name.chars().all(is_plain));
    names.map(|name| Ok((name.to_owned(), text(rendered, &format!("{SIGNATURES}{name}"))?))).collect()
}

/// Returns the text of a file of the rendered config; nothing where it has none.
fn text(rendered: &HostSpec, path: &str) -> Result<String, String> {
    let file = rendered.files.iter().find(|(name, _)| name.as_str() == path).map(|(_, file)| file);
    let bytes = file.map(|file| file.contents.bytes().to_vec()).unwrap_or_default();
    String::from_utf8(bytes).map_err(|_| {
        format!("{}: {path} is not UTF-8 text, and a build needs it; correct it", rendered.name.as_str())
    })
}

/// Returns the text of bytes in base64, where there is one. A comment between certificates may be of another encoding.
fn decoded(field: &str, data: Option<&str>) -> Result<Option<String>, String> {
    let Some(data) = data.filter(|data| !data.is_empty()) else { return Ok(None) };
    let wrong = || format!("ControllerConfig {CONTROLLER_CONFIG}: spec.{field} is not base64; correct it");
    let bytes = bytes_of(data).ok_or_else(wrong)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
#[path = "surroundings_tests.rs"]
mod tests;
