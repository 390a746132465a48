//! The MachineConfigs of the story: each is the previous one with a change.

use serde_json::{Value, json};

/// The config that MCD had applied.
pub(super) const BASE: &str = "rendered-worker-a";

/// The unit of the base config.
pub(super) const UNIT: &str = "[Unit]\nDescription=Greets once\n[Service]\nType=oneshot\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// The unit that the second image brings.
pub(super) const APP_UNIT: &str = "[Unit]\nDescription=The application\n[Service]\nExecStart=/usr/bin/app\n[Install]\nWantedBy=multi-user.target\n";

/// The file that the second image brings.
pub(super) const APP_SETTINGS: &str = "mode = \"production\"\nworkers = 4\n";

/// The message of the day of one version.
pub(super) fn motd(version: &str) -> String {
    format!("This node is managed: version {version}.\n")
}

/// A config being put together.
#[derive(Debug, Clone)]
pub(super) struct Config {
    name: String,
    files: Vec<Value>,
    units: Vec<Value>,
    users: Vec<Value>,
    kargs: Vec<String>,
}

impl Config {
    /// The base.
    pub(super) fn base() -> Self {
        let mut config = Self {
            name: BASE.to_owned(),
            files: Vec::new(),
            units: vec![json!({"name": "greet.service", "enabled": true, "contents": UNIT})],
            users: Vec::new(),
            kargs: Vec::new(),
        };
        config.set("/etc/motd", 0o644, &motd("a"));
        config.set("/etc/chrony.conf", 0o644, "pool time.example iburst\n");
        config
    }

    /// The same under the next name.
    pub(super) fn next(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sets a file.
    pub(super) fn set(&mut self, path: &str, mode: u32, text: &str) {
        let source = format!("data:,{}", percent(text));
        self.files.retain(|file| file.get("path").and_then(Value::as_str) != Some(path));
        self.files.push(json!({"path": path, "mode": mode, "contents": {"source": source}}));
    }

    /// Adds a unit; `enabled` may be left open.
    pub(super) fn unit(&mut self, name: &str, enabled: Option<bool>, contents: &str) {
        self.units.push(json!({"name": name, "enabled": enabled, "contents": contents}));
    }

    /// Sets the keys of `core`.
    pub(super) fn keys(&mut self, keys: &[&str]) {
        self.users = vec![json!({"name": "core", "sshAuthorizedKeys": keys})];
    }

    /// Adds a kernel argument.
    pub(super) fn karg(&mut self, karg: &str) {
        self.kargs.push(karg.to_owned());
    }

    /// The object.
    pub(super) fn text(&self) -> String {
        let object = json!({
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
            },
        });
        format!("{object:#}\n")
    }
}

/// The disruption policy of the story: these paths need nothing, every other one a reboot.
pub(super) fn policy() -> String {
    let none = json!([{"type": "None"}]);
    let object = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {
            "files": [
                {"path": "/etc/motd", "actions": none},
                {"path": "/etc/app", "actions": none},
            ],
            "units": [{"name": "report@.service", "actions": none}],
        }},
    });
    format!("{object:#}\n")
}

/// Encodes text for a data URL.
fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/=@".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
