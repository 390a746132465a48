//! A host in a temporary directory, the agent's real binary, and what it leaves behind there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    dead_code,
    reason = "shared by tests: the lints of a library do not fit"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use machine_config_agent::model::Sha256;
use serde_json::{Value, json};

pub const BINARY: &str = env!("CARGO_BIN_EXE_machine-config-agent");
pub const STATE: &str = "var/lib/machine-config-agent";

/// A policy that lets files below /etc change without a reboot.
pub const QUIET: &str = r#"{"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
    "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {
    "files": [{"path": "/etc", "actions": [{"type": "None"}]}], "sshkey": {"actions": [{"type": "None"}]},
    "units": [{"name": "crio.service", "actions": [{"type": "DaemonReload"},
        {"type": "Reload", "reload": {"serviceName": "crio.service"}}]}]}}}"#;

/// Result of a run of the binary.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub struct Node {
    pub dir: tempfile::TempDir,
}

impl Node {
    /// A host with an account, a boot id, and the agent's empty state.
    pub fn new() -> Self {
        let node = Self { dir: tempfile::tempdir().unwrap() };
        node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n");
        node.put("root/etc/group", "root:x:0:\ncore:x:1000:\n");
        node.put("root/etc/shadow", "root:*:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\n");
        node.put("root/home/core/.profile", "");
        node.put("root/proc/cmdline", "quiet\n");
        node.put("root/proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
        node.put(
            "root/usr/lib/systemd/system/crio.service",
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
        );
        node.put(&format!("root/{STATE}/lock"), "");
        node.mode(&format!("root/{STATE}"), 0o700);
        node.put("policy.json", QUIET);
        node
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn text(&self, path: &str) -> String {
        self.path(path).to_str().unwrap().to_owned()
    }

    pub fn put(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn mode(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The binary with a host that has no OS backend, where reboots are played.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(self.dir.path()).env_clear().env("PATH", "/usr/sbin:/usr/bin");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        let output = self.command(words).output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn plan(&self, config: &str) -> Ran {
        self.run(&[
            "plan",
            "--to",
            config,
            "--policy",
            "policy.json",
            "--root",
            "root",
            "--os-backend",
            "none",
        ])
    }

    pub fn apply(&self, config: &str) -> Ran {
        self.run(&apply(config))
    }

    /// Commits a config without a fault.
    pub fn commit(&self, name: &str, spec: &Value) {
        self.put(name, config(name.trim_end_matches(".json"), spec));
        let ran = self.apply(name);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }

    /// Everything below a directory: kind, mode, owner, inode, times and contents.
    pub fn listing(&self, below: &str) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        list(&self.path(below), "", &mut entries);
        entries
    }
}

/// The words of an apply that is confirmed.
pub fn apply(config: &str) -> [&str; 12] {
    [
        "apply",
        "--to",
        config,
        "--policy",
        "policy.json",
        "--root",
        "root",
        "--os-backend",
        "none",
        "--reboot-by",
        "supervisor",
        "--yes",
    ]
}

fn list(directory: &Path, name: &str, entries: &mut BTreeMap<String, String>) {
    let meta = std::fs::symlink_metadata(directory).unwrap();
    let kind = meta.file_type();
    let mut line = format!(
        "{:o} {}:{} inode {} changed {}.{:09}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.ino(),
        meta.mtime(),
        meta.mtime_nsec()
    );
    if kind.is_symlink() {
        write!(line, " to {}", std::fs::read_link(directory).unwrap().display()).unwrap();
    } else if kind.is_file() {
        write!(line, " holds {}", Sha256::digest(&std::fs::read(directory).unwrap())).unwrap();
    }
    entries.insert(name.to_owned(), line);
    if kind.is_dir() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let below = format!("{name}/{}", entry.file_name().to_str().unwrap());
            list(&entry.path(), &below, entries);
        }
    }
}

/// A MachineConfig with a spec.
pub fn config(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": spec})
    .to_string()
}

/// A spec with an Ignition config of the given sections.
pub fn ignition(sections: Value) -> Value {
    let mut tree = json!({"ignition": {"version": "3.5.0"}});
    let Value::Object(sections) = sections else { panic!("sections are a mapping") };
    tree.as_object_mut().unwrap().extend(sections);
    json!({ "config": tree })
}

/// A spec with files of a path and a text each.
pub fn files(files: &[(&str, &str)]) -> Value {
    let list: Vec<Value> = files
        .iter()
        .map(|(path, text)| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}}))
        .collect();
    ignition(json!({"storage": {"files": list}}))
}
