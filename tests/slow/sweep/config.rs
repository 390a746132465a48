//! MachineConfigs, built field by field.

use machine_config_agent::model::ImageRef;
use serde_json::{Value, json};

/// A config.
#[derive(Clone)]
pub struct Config {
    pub name: String,
    files: Vec<Value>,
    units: Vec<Value>,
    users: Vec<Value>,
    kargs: Vec<String>,
    os_image: String,
}

impl Config {
    pub fn new(name: &str) -> Self {
        let (files, units, users, kargs, os_image) = Default::default();
        Self { name: name.to_owned(), files, units, users, kargs, os_image }
    }

    pub fn file(mut self, path: &str, mode: u32, text: &str) -> Self {
        self = self.without(path);
        let source = format!("data:;base64,{}", base64(text.as_bytes()));
        self.files
            .push(json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}}));
        self
    }

    /// A file of the account core.
    pub fn file_of_core(mut self, path: &str, mode: u32, text: &str) -> Self {
        self = self.file(path, mode, text);
        let core = json!({"name": "core"});
        self.files.iter_mut().filter(|file| file["path"] == path).for_each(|file| {
            file["user"] = core.clone();
            file["group"] = core.clone();
        });
        self
    }

    pub fn without(mut self, path: &str) -> Self {
        self.files.retain(|file| file["path"] != path);
        self
    }

    /// A unit, as Ignition writes it.
    pub fn unit(mut self, unit: Value) -> Self {
        self.units.retain(|other| other["name"] != unit["name"]);
        self.units.push(unit);
        self
    }

    pub fn core(mut self, keys: &[&str], password: Option<&str>) -> Self {
        self.users = vec![json!({"name": "core", "sshAuthorizedKeys": keys, "passwordHash": password})];
        self
    }

    pub fn karg(mut self, karg: &str) -> Self {
        self.kargs.push(karg.to_owned());
        self
    }

    pub fn os_image(mut self, image: &ImageRef) -> Self {
        self.os_image = image.to_string();
        self
    }

    pub fn text(&self) -> String {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": self.name},
            "spec": {
                "config": {
                    "ignition": {"version": "3.5.0"},
                    "storage": {"files": self.files},
                    "systemd": {"units": self.units},
                    "passwd": {"users": self.users},
                },
                "kernelArguments": self.kargs,
                "osImageURL": self.os_image,
            },
        })
        .to_string()
    }
}

/// The disruption policy: all but `/etc/costly` and the OS goes without a reboot.
pub fn policy() -> String {
    let none = json!([{"type": "None"}]);
    let of = |field: &str, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({field: name, "actions": none})).collect()
    };
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {
            "files": of("path", &["/etc/motd", "/etc/many", "/etc/app.conf"]),
            "units": of("name", &["a.service", "b.service", "c.service", "report@.service"]),
            "sshkey": {"actions": none},
        }},
    })
    .to_string()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
