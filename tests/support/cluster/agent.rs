//! Our own binary as a node runs it, against the server.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use tokio::sync::watch;

use super::drained;
use super::process::{Child, Start};

/// The agent's executable. Tests of another package find it where `./test` built it before.
pub fn program() -> PathBuf {
    if let Some(path) = option_env!("CARGO_BIN_EXE_machine-config-agent") {
        return PathBuf::from(path);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug").join("machine-config-agent");
    assert!(path.exists(), "{} is missing: cargo build --workspace --bins makes it", path.display());
    path
}

/// Options of the agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    pub kubeconfig: PathBuf,
    pub node: String,
    pub root: PathBuf,
    /// Flags besides those every test gives.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl AgentOptions {
    pub fn new(kubeconfig: &Path, node: &str, root: &Path) -> Self {
        let (kubeconfig, root) = (kubeconfig.to_owned(), root.to_owned());
        Self { kubeconfig, node: node.to_owned(), root, args: vec![], env: vec![] }
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    root: Option<PathBuf>,
    is_changed_meanwhile: bool,
    lines: watch::Receiver<Vec<String>>,
}

impl Agent {
    /// Starts it; it is not waited for.
    pub fn start(options: &AgentOptions) -> Self {
        let mut command = Command::new(program());
        command.arg("daemon").arg("--kubeconfig").arg(&options.kubeconfig);
        command.args(["--node-name", &options.node]).arg("--root").arg(&options.root);
        command.args(["--os-backend", "none", "--reboot-by", "supervisor"]);
        if !options.args.iter().any(|arg| arg == "--metrics-listen") {
            command.args(["--metrics-listen", "127.0.0.1:0"]);
        }
        command.args(&options.args).envs(options.env.iter().map(|(name, value)| (name, value)));
        Self::run(&options.node, command)
    }

    /// Starts what a test has put together itself.
    pub fn run(node: &str, command: Command) -> Self {
        let (tell, lines) = watch::channel(vec![]);
        let root = drained::root(&command);
        let stderr = Box::new(move |line| tell.send_modify(|all: &mut Vec<String>| all.push(line)));
        let child = Child::start(Start {
            name: &format!("the agent of {node}"),
            command,
            notify: None,
            stdout: None,
            stderr,
        });
        Self { child, root, is_changed_meanwhile: false, lines }
    }

    /// Notes that the test puts something in the way after the plan: no plan sees that.
    pub const fn host_changes_meanwhile(&mut self) {
        self.is_changed_meanwhile = true;
    }

    /// Its process id, for readings in `/proc`.
    pub const fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// All lines of its standard error so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// Waits for a line of its standard error.
    pub async fn line(&mut self, what: &str, mut desired: impl FnMut(&str) -> bool) -> String {
        let mut found = None;
        let seen = self.lines.wait_for(|all| {
            found = all.iter().find(|line| desired(line)).cloned();
            found.is_some()
        });
        // The sender goes with the process.
        let ended = super::within(what, seen).await.is_err();
        assert!(!ended, "the agent ended without it: {what}");
        found.unwrap()
    }

    /// Asks it to stop, as systemd does, and waits for its end.
    pub async fn terminate(&self) -> ExitStatus {
        self.child.signal(Signal::TERM);
        self.child.end().await
    }

    /// Waits for its end, such as that of one that asked its supervisor for a reboot.
    pub async fn end(&self) -> ExitStatus {
        self.child.end().await
    }

    /// Kills it, as a power cut would.
    pub async fn kill(&self) -> ExitStatus {
        self.child.signal(Signal::KILL);
        self.child.end().await
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("-- lines of the agent:\n{}", self.lines().join("\n"));
        } else if let Some(root) = &self.root {
            let wrong = drained::without_write(root, self.is_changed_meanwhile);
            assert_eq!(wrong, Vec::<String>::new(), "a drain without a write");
        }
    }
}
