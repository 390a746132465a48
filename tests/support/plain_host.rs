//! A host in a directory, without image and without systemd, for tests and benchmarks of the real binary.
#![allow(dead_code, unreachable_pub, reason = "each binary uses its own part of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "it plays the machine from outside, and ends at the first surprise"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

/// Changes below `/etc/mca-plain` ask for nothing: no reboot stands between an update and its end.
const POLICY: &str = "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\n\
    spec: {nodeDisruptionPolicy: {files: [{path: /etc/mca-plain, actions: [{type: None}]}]}}\n";

/// The directories: `host`, the root, and `control`, where the target is.
pub struct PlainHost {
    dir: tempfile::TempDir,
}

impl PlainHost {
    /// Makes a host below a directory.
    pub fn below(at: &Path) -> Self {
        let dir = tempfile::tempdir_in(at).unwrap();
        let host = Self { dir };
        bare(&host.at("host"));
        fs::create_dir_all(host.at("control/machineconfigs")).unwrap();
        fs::write(host.at("control/policy.yaml"), POLICY).unwrap();
        host
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Writes a config with so many files of so many bytes; returns where it is.
    pub fn config(&self, name: &str, files: usize, size: usize) -> PathBuf {
        let path = self.at(&format!("control/machineconfigs/{name}.json"));
        fs::write(&path, config(name, files, size)).unwrap();
        path
    }

    /// Asks for a config, as a writer of the directory does: the file is replaced.
    pub fn want(&self, name: &str) {
        let new = self.at("control/.target");
        fs::write(&new, format!("config: {name}\n")).unwrap();
        fs::rename(new, self.at("control/target.yaml")).unwrap();
    }

    /// The arguments of a verb on this host.
    pub fn arguments(&self, verb: &str, more: &[&str]) -> Vec<String> {
        let root = self.at("host").display().to_string();
        let control = self.at("control").display().to_string();
        let mut arguments = vec![verb.to_owned(), "--root".to_owned(), root];
        arguments.extend(["--os-backend", "none", "--reboot-by", "supervisor"].map(str::to_owned));
        if verb == "daemon" {
            arguments.extend(["--directory".to_owned(), control]);
        } else {
            arguments.extend(["--policy".to_owned(), format!("{control}/policy.yaml")]);
        }
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        arguments
    }

    /// A program with a clean environment.
    pub fn command(program: &str) -> Command {
        let mut command = Command::new(program);
        for name in ["JOURNAL_STREAM", "NOTIFY_SOCKET", "MCA_FAIL_POINT"] {
            command.env_remove(name);
        }
        command
    }
}

/// Makes what the agent needs of a host in a directory: accounts, kernel arguments, a boot.
pub fn bare(root: &Path) {
    for made in ["proc/sys/kernel/random", "etc", "var/lib"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    boot(root, 1);
    fs::write(root.join("proc/cmdline"), "quiet\n").unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
}

/// Plays a boot: it has another id.
pub fn boot(root: &Path, number: u32) {
    let id = format!("00000000-0000-4000-8000-{number:012}\n");
    fs::write(root.join("proc/sys/kernel/random/boot_id"), id).unwrap();
}

/// A rendered config: files over some thirty directories, as a worker's are.
pub fn config(name: &str, files: usize, size: usize) -> String {
    let file = |number: usize| {
        let text: String = format!("{name} {number} ").chars().cycle().take(size).collect();
        json!({"path": format!("/etc/mca-plain/{}/{number}", number % 30), "mode": 0o644,
               "contents": {"source": format!("data:,{}", text.replace(' ', "%20"))}})
    };
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name},
           "spec": {"config": {"ignition": {"version": "3.4.0"},
                               "storage": {"files": (0..files).map(file).collect::<Vec<_>>()}}}})
    .to_string()
}
