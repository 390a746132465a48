//! Nodes of the fleet: hosts of the sandbox with an agent, and what restarts them.

use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use machine_config_agent::model::ImageRef;
use machine_config_agent::sandbox::{AGENT, Booted, CONTROL, LayerFile, SandboxHost};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cluster::{Agent, Bench, Identity};
use crate::server::Registry;

/// With this exit code the agent asks its supervisor for the reboot.
const REBOOT_REQUIRED: i32 = 133;

/// All nodes.
pub(crate) struct Fleet {
    first: Arc<Mutex<SandboxHost>>,
    /// Its end stops the nodes.
    stop: PipeWriter,
    nodes: Vec<JoinHandle<()>>,
    // The directories are removed with it, after the nodes.
    dirs: Vec<tempfile::TempDir>,
}

pub(crate) fn names(size: usize) -> impl Iterator<Item = String> {
    (0..size).map(|number| format!("fleet-{number:02}"))
}

impl Fleet {
    /// Makes and boots the hosts, and starts their agents.
    pub(crate) fn start(bench: &Bench, size: usize, registry: &str) -> Self {
        let agent = Path::new(env!("CARGO_BIN_EXE_machine-config-agent"));
        let (stopped, stop) = std::io::pipe().unwrap();
        let (mut nodes, mut dirs, mut first) = (Vec::new(), Vec::new(), None);
        for name in names(size) {
            let dir = tempfile::tempdir().unwrap();
            let host = SandboxHost::create(dir.path(), agent, &BTreeMap::new(), &|_| {}).unwrap();
            let kubeconfig = bench.kubeconfig(&Identity::Admin(name.clone()));
            std::fs::copy(kubeconfig, host.control().join("kubeconfig")).unwrap();
            first.get_or_insert_with(|| Arc::new(Mutex::new(SandboxHost::open(dir.path(), agent).unwrap())));
            let (registry, stopped) = (registry.to_owned(), stopped.try_clone().unwrap());
            nodes.push(std::thread::spawn(move || live(&name, &host, &registry, &stopped)));
            dirs.push(dir);
        }
        Self { first: first.unwrap(), stop, nodes, dirs }
    }

    /// Makes an image with a layer that no node has, and pushes it; its name is one behind the link.
    pub(crate) fn image(&self, registry: &Registry, link: &str, number: usize, bytes: usize) -> ImageRef {
        let mut contents = Vec::new();
        let random = std::fs::File::open("/dev/urandom").unwrap();
        random.take(u64::try_from(bytes).unwrap()).read_to_end(&mut contents).unwrap();
        let file = LayerFile { path: "usr/share/load".to_owned(), mode: 0o644, contents };
        let host = self.first.lock().unwrap();
        let (base, tag) = (host.image("v1").unwrap(), format!("load-{number}"));
        let image = host.derive(&base, &tag, &[file], &BTreeMap::new()).unwrap();
        let pushed = registry.push(&host.dir().join("images"), &tag, &image, &tag);
        ImageRef::parse(&pushed.to_string().replace(&registry.address, link)).unwrap()
    }

    pub(crate) fn stop(self) {
        drop(self.stop);
        for node in self.nodes {
            node.join().unwrap();
        }
        drop(self.dirs);
    }
}

/// A node's life: the agent runs, asks for a reboot, and runs again.
fn live(name: &str, host: &SandboxHost, registry: &str, stopped: &PipeReader) {
    let mut booted = host.boot().unwrap();
    let drop_ins = booted.root().join("etc/containers/registries.conf.d");
    std::fs::create_dir_all(&drop_ins).unwrap();
    let text = format!("[[registry]]\nlocation = \"{registry}\"\ninsecure = true\n");
    std::fs::write(drop_ins.join("fleet.conf"), text).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    loop {
        let agent = daemon(name, &booted);
        let process = Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
        let ended = pidfd_open(process, PidfdFlags::empty()).unwrap();
        let mut either = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
        poll(&mut either, None).unwrap();
        if !either[1].revents().is_empty() {
            return;
        }
        let status = runtime.block_on(agent.end());
        assert_eq!(status.code(), Some(REBOOT_REQUIRED), "{name}: {:#?}", agent.lines());
        booted.shutdown().unwrap();
        booted = host.boot().unwrap();
    }
}

fn daemon(name: &str, booted: &Booted) -> Agent {
    let kubeconfig = format!("{CONTROL}/kubeconfig");
    let words = [AGENT, "daemon", "--node-name", name, "--os-backend", "ostree", "--reboot-by", "supervisor"];
    let words = [&words[..], &["--metrics-listen", "127.0.0.1:0", "--kubeconfig", &kubeconfig]].concat();
    Agent::run(name, booted.command(words))
}
