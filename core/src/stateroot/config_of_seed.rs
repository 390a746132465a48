//! The committed config as a seed has it: without secrets, and the paths that it says are its own.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::class;
use super::left_out::real_path;
use super::secret::{in_contents, in_name, in_source, is_secret_key};
use crate::model::document::{self, Kind};

/// Metadata of a config that a node reads.
const METADATA: [&str; 2] = ["name", "labels"];

/// Annotations of a config that a node reads.
const ANNOTATIONS: &str = "machineconfiguration.openshift.io/";

/// The config, and what it says about the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortableConfig {
    /// The config as JSON.
    pub json: String,
    /// Its paths.
    pub managed: BTreeSet<String>,
    /// Those whose contents look like a key: they are not in it.
    pub withheld: BTreeSet<String>,
    /// Its fields that look like a key and are still in it: a JSON pointer, and the cause.
    pub suspicious: Vec<(String, &'static str)>,
}

/// Returns the config of the seed: that of the host, without the files that a seed leaves out, and without what looks like a key.
/// The error is a cause, which quotes no value.
pub fn config_of_seed(json: &[u8]) -> Result<PortableConfig, String> {
    let object = document::one(json, "it", Kind::MACHINE_CONFIG).and_then(|object| object.read::<Value>());
    let mut config = object.map_err(|error| error.to_string())?.value;
    if !config.pointer("/spec").is_some_and(Value::is_object) {
        return Err("it has no spec".to_owned());
    }
    let mut found = PortableConfig::default();
    if let Some(metadata) = config.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        retain_metadata(metadata);
    }
    if let Some(status) = config.as_object_mut() {
        status.retain(|key, _| ["apiVersion", "kind", "metadata", "spec"].contains(&&**key));
    }
    found.take_files(&mut config);
    found.take_units(&mut config);
    found.take_users(&mut config);
    drop_keys(&mut config);
    find_secrets(&config, "", "", &mut found.suspicious);
    found.json = config.to_string();
    Ok(found)
}

fn retain_metadata(metadata: &mut Map<String, Value>) {
    metadata.retain(|key, _| METADATA.contains(&&**key) || key == "annotations");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| key.starts_with(ANNOTATIONS));
    }
}

/// Returns the objects of a list.
fn list<'a>(config: &'a mut Value, pointer: &str) -> Option<&'a mut Vec<Value>> {
    config.pointer_mut(pointer)?.as_array_mut()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl PortableConfig {
    fn take_files(&mut self, config: &mut Value) {
        for section in ["directories", "links"] {
            let entries = list(config, &format!("/spec/config/storage/{section}"));
            self.managed.extend(entries.into_iter().flatten().map(|entry| real_path(text(entry, "path"))));
        }
        let Some(files) = list(config, "/spec/config/storage/files") else { return };
        files.retain(|file| {
            let path = real_path(text(file, "path"));
            if class(&path).is_some() {
                return false;
            }
            let is_secret = in_name(&path).is_some() || has_secret(file);
            if is_secret {
                self.withheld.insert(path)
            } else {
                self.managed.insert(path)
            };
            !is_secret
        });
    }

    fn take_units(&mut self, config: &mut Value) {
        for unit in list(config, "/spec/config/systemd/units").into_iter().flatten() {
            let path = format!("etc/systemd/system/{}", text(unit, "name"));
            self.take_unit(unit, path.clone());
            for dropin in list(unit, "/dropins").into_iter().flatten() {
                let path = format!("{path}.d/{}", text(dropin, "name"));
                self.take_unit(dropin, path);
            }
        }
    }

    fn take_unit(&mut self, unit: &mut Value, path: String) {
        if in_contents(text(unit, "contents").as_bytes()).is_none() {
            self.managed.insert(path);
            return;
        }
        self.withheld.insert(path);
        if let Some(unit) = unit.as_object_mut() {
            unit.remove("contents");
        }
    }

    /// Accounts stay, without passwords. Their keys are public.
    fn take_users(&mut self, config: &mut Value) {
        for section in ["users", "groups"] {
            for account in list(config, &format!("/spec/config/passwd/{section}")).into_iter().flatten() {
                if let Some(account) = account.as_object_mut() {
                    account.remove("passwordHash");
                }
                let name = text(account, "name");
                let home = match text(account, "homeDir") {
                    "" if name == "root" => "/root".to_owned(),
                    "" => format!("/home/{name}"),
                    home => home.to_owned(),
                };
                if section == "users" && !name.is_empty() {
                    let keys = ["authorized_keys", "authorized_keys.d/ignition"];
                    self.managed.extend(keys.map(|file| format!("{}/.ssh/{file}", real_path(&home))));
                }
            }
        }
    }
}

/// Drops the keys of disks, and the headers with which contents are fetched.
fn drop_keys(config: &mut Value) {
    for disk in list(config, "/spec/config/storage/luks").into_iter().flatten() {
        if let Some(disk) = disk.as_object_mut() {
            disk.remove("keyFile");
        }
    }
    drop_headers(config);
}

/// Returns true if the contents of a file, or of one of its parts, look like a key.
fn has_secret(file: &Value) -> bool {
    let parts = file.get("append").and_then(Value::as_array).into_iter().flatten();
    let sources = file.get("contents").into_iter().chain(parts);
    sources.into_iter().any(|contents| in_source(text(contents, "source")).is_some())
}

fn drop_headers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("httpHeaders");
            fields.values_mut().for_each(drop_headers);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_headers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Finds fields that look like a key. The depth is that of a document that was read.
fn find_secrets(value: &Value, key: &str, pointer: &str, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                find_secrets(value, key, &format!("{pointer}/{key}"), found);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                find_secrets(value, key, &format!("{pointer}/{at}"), found);
            }
        }
        Value::String(text) => {
            let by_key = (is_secret_key(key) && !text.is_empty()).then_some("a key or a token");
            found.extend(
                by_key.or_else(|| in_contents(text.as_bytes())).map(|cause| (pointer.to_owned(), cause)),
            );
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::seed_config;
    use super::*;

    fn read(spec: &Value) -> PortableConfig {
        let config = json!({"metadata": {"name": "rendered-a", "uid": "u", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
            "machineconfiguration.openshift.io/generated-by-controller-version": "1"}},
            "spec": spec, "status": "hunter2"});
        config_of_seed(config.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn config_of_seed_has_no_secret() {
        let file = |path: &str| json!({"path": path, "contents": {"source": "data:,hunter2"}});
        let found = read(&json!({"kernelArguments": ["a=1"], "fips": true, "config": {
            "passwd": {"users": [{"name": "core", "passwordHash": "hunter2", "sshAuthorizedKeys": ["ssh-rsa AAAA"]}]},
            "systemd": {"units": [{"name": "a.service", "contents": "[Service]\nEnvironment=TOKEN=hunter2\n", "enabled": true},
                {"name": "b.service", "contents": "[Service]\n", "dropins": [{"name": "c.conf", "contents": "PASSWORD=hunter2"}]}]},
            "storage": {"luks": [{"name": "x", "keyFile": {"source": "data:,hunter2"}}],
                "directories": [{"path": "/opt/app"}],
                "files": [file("/var/lib/kubelet/config.json"), file("/root/.kube/config"), file("/etc/hostname"),
                    file("/etc/app/tls.key"), {"path": "/etc/env", "contents": {"source": "data:,PASSWORD%3Dhunter2",
                        "httpHeaders": [{"name": "Authorization", "value": "hunter2"}]}},
                    {"path": "/etc/motd"}]}}}));
        assert!(!found.json.contains("hunter2") && found.json.contains("/etc/motd"), "{}", found.json);
        assert!(
            found.json.contains("generated-by-controller-version") && found.json.contains("ssh-rsa"),
            "{}",
            found.json
        );
        let config = seed_config(found.json.as_bytes()).unwrap();
        assert!(config.fips && config.kargs.len() == 1);
        let managed: Vec<&str> = found.managed.iter().map(String::as_str).collect();
        assert_eq!(
            managed,
            [
                "etc/motd",
                "etc/systemd/system/b.service",
                "var/home/core/.ssh/authorized_keys",
                "var/home/core/.ssh/authorized_keys.d/ignition",
                "var/opt/app",
            ]
        );
        let withheld: Vec<&str> = found.withheld.iter().map(String::as_str).collect();
        let expected = [
            "etc/app/tls.key",
            "etc/env",
            "etc/systemd/system/a.service",
            "etc/systemd/system/b.service.d/c.conf",
        ];
        assert_eq!((withheld, found.suspicious), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn other_fields_that_look_like_keys_are_named() {
        let found =
            read(&json!({"kernelArguments": ["a.password=hunter2"], "config": {"x": {"token": "hunter2"}}}));
        let pointers: Vec<&str> = found.suspicious.iter().map(|(pointer, _)| &**pointer).collect();
        assert_eq!(pointers, ["/spec/config/x/token", "/spec/kernelArguments/0"]);
    }

    #[test]
    fn unreadable_config_is_not_quoted() {
        for bad in ["", "{", "[]", "{\"spec\": \"hunter2\"}"] {
            let error = config_of_seed(bad.as_bytes()).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
