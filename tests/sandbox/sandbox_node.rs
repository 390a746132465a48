//! A played node for tests: a real sysroot, booted in namespaces, on which `apply` runs until nothing is left to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{AGENT, Booted, CONTROL, LayerFile, SandboxHost};
use serde_json::{Value, json};

/// With this exit code the agent asks its supervisor for the reboot.
const REBOOT_REQUIRED: i32 = 133;

/// Timeout of one verb: far above the usual time.
const LIMIT_SECONDS: i64 = 180;

/// The agent's state, on the disk of a node.
const STATE: &str = "sysroot/ostree/deploy/sandbox/var/lib/machine-config-agent";

/// More boots than any update may need.
const BOOTS: usize = 8;

pub struct Played {
    // The directory is removed with it.
    _dir: tempfile::TempDir,
    pub world: SandboxHost,
    pub booted: Option<Booted>,
    pub boots: usize,
    /// Variable in the environment of each verb.
    pub variable: Option<(&'static str, &'static str)>,
    /// Changes of the host just before each shutdown.
    pub going_down: fn(&Self),
}

/// Last result of `apply`.
pub struct VerbResult {
    pub code: i32,
    pub text: String,
}

/// A config with files by path.
pub fn config(name: &str, files: &[(&str, &str)], os_image_url: Option<&ImageRef>) -> String {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, text)| json!({"path": path, "contents": {"source": format!("data:,{text}")}}))
        .collect();
    let url = os_image_url.map(ToString::to_string).unwrap_or_default();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {
            "osImageURL": url,
            "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}},
        },
    })
    .to_string()
}

pub fn layer(path: &str, text: &str) -> LayerFile {
    LayerFile { path: path.to_owned(), mode: 0o644, contents: text.as_bytes().to_vec() }
}

pub fn labels(carries: Option<&str>) -> BTreeMap<String, String> {
    carries.map(|name| ("machineconfig".to_owned(), name.to_owned())).into_iter().collect()
}

impl Played {
    /// A node that runs image `v1`, which carries no config.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
        let world = SandboxHost::create(dir.path(), agent, &BTreeMap::new(), &|_| {}).unwrap();
        let booted = Some(world.boot().unwrap());
        Self { _dir: dir, world, booted, boots: 1, variable: None, going_down: |_| {} }
    }

    pub fn v1(&self) -> ImageRef {
        self.world.image("v1").unwrap()
    }

    pub fn derive(&self, tag: &str, files: &[LayerFile], carries: Option<&str>) -> ImageRef {
        self.world.derive(&self.v1(), tag, files, &labels(carries)).unwrap()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.booted.as_ref().unwrap().root().join(path.trim_start_matches('/'))
    }

    pub fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok()
    }

    /// Writes a file, as another program than the agent.
    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    /// Makes it a node that a machine image installed: no state, and of MCD's files those of the booted image.
    pub fn as_installed(&self) {
        std::fs::remove_dir_all(self.world.dir().join(STATE)).unwrap();
        let [own, of_image] =
            ["/etc", "/usr/etc"].map(|etc| self.path(&format!("{etc}/machine-config-daemon")));
        std::fs::remove_dir_all(&own).unwrap();
        std::fs::create_dir(&own).unwrap();
        for entry in std::fs::read_dir(of_image).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), own.join(entry.file_name())).unwrap();
        }
    }

    /// Shuts the machine down and boots it.
    pub fn reboot(&mut self) {
        (self.going_down)(self);
        self.booted.take().unwrap().shutdown().unwrap();
        self.booted = Some(self.world.boot().unwrap());
        self.boots += 1;
    }

    /// Runs a verb in the machine.
    pub fn verb(&self, arguments: &[&str]) -> VerbResult {
        self.verb_at(arguments, "")
    }

    /// Runs a verb in the machine, with a fail point.
    pub fn verb_at(&self, arguments: &[&str], point: &str) -> VerbResult {
        let argv = std::iter::once(AGENT).chain(arguments.iter().copied());
        let mut command = self.booted.as_ref().unwrap().command(argv);
        command.envs(self.variable);
        if !point.is_empty() {
            command.env("MCA_FAIL_POINT", point);
        }
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A first boot that can't go on waits for ever.
        let pid = rustix::process::Pid::from_child(&child);
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let limit = rustix::event::Timespec { tv_sec: LIMIT_SECONDS, tv_nsec: 0 };
        let mut poll = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&limit)).unwrap() == 0 {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        VerbResult { code: output.status.code().unwrap_or(-1), text }
    }

    /// Applies a config until nothing is left to do; `after_boot` is what happens to the host at each boot.
    pub fn apply(
        &mut self,
        config: &str,
        image: Option<&ImageRef>,
        after_boot: impl Fn(&Self),
    ) -> VerbResult {
        std::fs::write(self.world.control().join("to.json"), config).unwrap();
        let to = format!("{CONTROL}/to.json");
        let image = image.map(ToString::to_string).unwrap_or_default();
        let mut text = String::new();
        for _ in 0..BOOTS {
            let arguments = [
                "apply",
                "--yes",
                "--to",
                &to,
                "--to-image",
                &image,
                "--reboot-by",
                "supervisor",
                "--os-backend",
                "ostree",
            ];
            let ended = self.verb(&arguments);
            text += &ended.text;
            if ended.code != REBOOT_REQUIRED {
                return VerbResult { text, ..ended };
            }
            self.reboot();
            after_boot(self);
        }
        VerbResult { code: -1, text }
    }
}
