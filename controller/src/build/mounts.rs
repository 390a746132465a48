//! Directories that the user's steps see, and the image does not have: entitlements, repository files, keys. Pure.

use serde_json::{Map, Value, json};

/// A `Secret` or a `ConfigMap` of the controller's namespace, at a path of the steps.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "Written")]
pub struct Mount {
    /// The mounted object.
    pub object: MountObject,
    /// Its path in the steps.
    pub path: String,
    /// The pod starts without it.
    pub optional: bool,
}

/// A mounted object, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountObject {
    /// A `Secret`.
    Secret(String),
    /// A `ConfigMap`.
    ConfigMap(String),
}

/// As a person writes it.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    secret: Option<String>,
    config_map: Option<String>,
    path: String,
}

impl TryFrom<Written> for Mount {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let path = written.path;
        let object = match (written.secret, written.config_map) {
            (Some(name), None) => MountObject::Secret(name),
            (None, Some(name)) => MountObject::ConfigMap(name),
            _ => return Err(format!("mount {path:?}: name one of secret and configMap")),
        };
        // It becomes a flag of buildah's.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_whole = path.len() > 1 && path.starts_with('/') && path.chars().all(is_plain);
        if !is_whole || path.split('/').any(|part| part == "..") {
            return Err(format!("mount {path:?}: give the path as /DIRECTORY, of letters, digits, and ._-/"));
        }
        Ok(Self { object, path, optional: false })
    }
}

/// Returns the name of the pod's volume of a mount, by its place in the list.
pub(super) fn volume_name(number: usize) -> String {
    format!("mount-{number}")
}

/// Returns the path of a mount in the pod.
pub(super) fn source(number: usize) -> String {
    format!("/run/build/mounts/{number}")
}

impl Mount {
    /// Returns the name of its Secret.
    pub(super) fn secret(&self) -> Option<&str> {
        match &self.object {
            MountObject::Secret(name) => Some(name),
            MountObject::ConfigMap(_) => None,
        }
    }

    /// The pod's volume.
    pub(super) fn volume(&self, name: &str) -> Value {
        let optional = self.optional.then_some(("optional", json!(true)));
        let with = |source: &[(&str, Value)]| -> Map<String, Value> {
            source
                .iter()
                .cloned()
                .chain(optional.clone())
                .map(|(key, value)| (key.to_owned(), value))
                .collect()
        };
        match &self.object {
            MountObject::Secret(secret) => {
                let source = with(&[("secretName", json!(secret)), ("defaultMode", json!(0o400))]);
                json!({ "name": name, "secret": source })
            }
            MountObject::ConfigMap(map) => {
                json!({ "name": name, "configMap": with(&[("name", json!(map))]) })
            }
        }
    }

    /// A volume of a `Build` of OpenShift.
    pub(super) fn build_volume(&self, name: &str) -> Value {
        let source = match &self.object {
            MountObject::Secret(secret) => {
                json!({ "type": "Secret", "secret": { "secretName": secret, "defaultMode": 0o400 } })
            }
            MountObject::ConfigMap(map) => json!({ "type": "ConfigMap", "configMap": { "name": map } }),
        };
        json!({ "name": name, "source": source, "mounts": [{ "destinationPath": self.path }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_name_one_object_and_a_plain_path() {
        let read = |value: Value| serde_json::from_value::<Mount>(value);
        let mount = read(json!({ "secret": "etc-pki-entitlement", "path": "/etc/pki/entitlement" })).unwrap();
        assert_eq!(mount.object, MountObject::Secret("etc-pki-entitlement".to_owned()));
        let mount = read(json!({ "configMap": "etc-yum-repos-d", "path": "/etc/yum.repos.d" })).unwrap();
        assert_eq!(mount.volume("mount-0")["configMap"]["name"], "etc-yum-repos-d");
        for path in ["", "/", "etc", "/etc/a b", "/etc/a:rw", "/etc/../root", "/etc/*", "/etc/$HOME"] {
            let error = read(json!({ "secret": "s", "path": path })).unwrap_err().to_string();
            assert!(error.contains("give the path as"), "{path}: {error}");
        }
        for wrong in [json!({ "path": "/a" }), json!({ "secret": "s", "configMap": "c", "path": "/a" })] {
            assert!(read(wrong).unwrap_err().to_string().contains("name one of"));
        }
    }
}
