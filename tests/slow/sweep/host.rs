//! A host to die on: a plain directory, or a machine with a real sysroot. Both are one directory that can be copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use machine_config_agent::sandbox::{AGENT as INSIDE, Booted, CONTROL, SandboxHost};
use rustix::process::{Pid, Signal, kill_process};

use super::tree::{Tree, boot, changed, read};

pub const AGENT: &str = env!("CARGO_BIN_EXE_machine-config-agent");

/// The exit code with which the agent asks for a reboot.
pub const REBOOT: i32 = 133;

/// The exit code of a config that was not applied.
pub const FAILED: i32 = 4;
/// The exit code of an update that the host does not let be written.
pub const REFUSED: i32 = 3;

/// Exit code of a process that died of SIGKILL, directly and through the sandbox.
pub const KILLED: i32 = 137;

/// A run takes a tenth of a second to two seconds; a longer one hangs.
const TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Machine,
}

/// End of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// As systemd does it: a staged deployment is finalized.
    Orderly,
    /// At once.
    PowerCut,
}

/// Result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub log: String,
}

pub struct SweepHost {
    kind: Kind,
    dir: PathBuf,
    booted: Option<Booted>,
    boots: u32,
    pub runs: u32,
}

impl SweepHost {
    /// Takes a directory up and boots it.
    pub fn boot(kind: Kind, dir: &Path) -> Result<Self, String> {
        let mut host = Self { kind, dir: dir.to_owned(), booted: None, boots: 0, runs: 0 };
        host.up()?;
        Ok(host)
    }

    fn up(&mut self) -> Result<(), String> {
        self.boots += 1;
        if self.kind == Kind::Machine {
            let world = SandboxHost::open(&self.dir, Path::new(AGENT)).map_err(|error| error.to_string())?;
            self.booted = Some(world.boot().map_err(|error| error.to_string())?);
        } else {
            let id = format!("00000000-0000-4000-8000-{:012}\n", self.boots + 100 * std::process::id());
            fs::write(self.dir.join("root/proc/sys/kernel/random/boot_id"), id).unwrap();
        }
        Ok(())
    }

    /// Ends the boot.
    pub fn down(&mut self, how: Down) -> Result<(), String> {
        let Some(booted) = self.booted.take() else { return Ok(()) };
        let done = match how {
            Down::Orderly => booted.shutdown(),
            Down::PowerCut => booted.power_cut(),
        };
        done.map_err(|error| error.to_string())
    }

    pub fn reboot(&mut self, how: Down) -> Result<(), String> {
        self.down(how)?;
        self.up()
    }

    /// Copies the directory; the machine is off.
    pub fn copy(from: &Path, to: &Path) {
        let done = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status().unwrap();
        assert!(done.success(), "cp {} {}", from.display(), to.display());
    }

    fn command(&self, verb: &str) -> Command {
        if let Some(booted) = &self.booted {
            booted.command([INSIDE, verb])
        } else {
            let mut command = Command::new(AGENT);
            command.arg(verb).arg("--root").arg(self.dir.join("root"));
            command
        }
    }

    /// Path of a config, as the agent sees it.
    fn agent_path(&self, name: &str) -> PathBuf {
        match self.kind {
            Kind::Plain => self.dir.join("control").join(name),
            Kind::Machine => Path::new(CONTROL).join(name),
        }
    }

    /// Asks for a config, to die at a fail point or not.
    pub fn apply(&mut self, config: &str, image: Option<&str>, point: Option<&str>) -> Result<Ran, String> {
        let mut command = self.command("apply");
        command
            .args(["--yes", "--reboot-by", "supervisor", "--to"])
            .arg(self.agent_path(&format!("{config}.json")));
        command.arg("--policy").arg(self.agent_path("policy.json"));
        command.args(image.into_iter().flat_map(|image| ["--to-image", image]));
        command.envs(point.map(|point| ("MCA_FAIL_POINT", point)));
        self.runs += 1;
        bounded(command)
    }

    /// Asks for a config as [`SweepHost::apply`] does, in a process that may not take more than a gigabyte of addresses.
    pub fn apply_bounded(&mut self, config: &str, point: Option<&str>) -> Result<Ran, String> {
        let mut command = Command::new("prlimit");
        command.arg("--as=1073741824").arg(AGENT).arg("apply").arg("--root").arg(self.dir.join("root"));
        command
            .args(["--yes", "--reboot-by", "supervisor", "--to"])
            .arg(self.agent_path(&format!("{config}.json")));
        command.arg("--policy").arg(self.agent_path("policy.json"));
        command.envs(point.map(|point| ("MCA_FAIL_POINT", point)));
        self.runs += 1;
        bounded(command)
    }

    /// Plans for a config, as [`SweepHost::apply`] would.
    pub fn plan(&mut self, config: &str) -> Result<Ran, String> {
        let mut command = self.command("plan");
        command.arg("--to").arg(self.agent_path(&format!("{config}.json")));
        command.arg("--policy").arg(self.agent_path("policy.json"));
        self.runs += 1;
        bounded(command)
    }

    pub fn verify(&mut self) -> Result<Ran, String> {
        self.runs += 1;
        bounded(self.command("verify"))
    }

    /// The root of the host, and its `/var`.
    fn roots(&self) -> (PathBuf, PathBuf) {
        match &self.booted {
            Some(booted) => (booted.root(), self.dir.join("sysroot/ostree/deploy/sandbox/var")),
            None => (self.dir.join("root"), self.dir.join("root/var")),
        }
    }

    pub fn state(&self) -> PathBuf {
        self.roots().1.join("lib/machine-config-agent")
    }

    /// MCD's own files.
    pub fn of_mcd(&self) -> PathBuf {
        self.roots().0.join("etc/machine-config-daemon")
    }

    /// The command line of the kernel, in its order and without what names the deployment.
    pub fn line(&self) -> Vec<String> {
        let line = self.booted.as_ref().map_or("", |booted| booted.kargs());
        line.split(' ').filter(|karg| !karg.starts_with("ostree=")).map(str::to_owned).collect()
    }

    /// Everything the agent may manage: `/etc`, homes, and the data of the boot.
    pub fn tree(&self) -> Tree {
        let (root, var) = self.roots();
        let skip = |path: &str| path == "etc/.pwd.lock" || path == "etc/machine-config-daemon";
        let mut tree = Tree::new();
        read(&root.join("etc"), "etc", &skip, &mut tree);
        read(&var.join("home"), "var/home", &skip, &mut tree);
        let Some(booted) = &self.booted else { return tree };
        let mut kargs: Vec<&str> =
            booted.kargs().split(' ').filter(|karg| !karg.starts_with("ostree=")).collect();
        kargs.sort_unstable();
        let origin = fs::read_to_string(format!("{}.origin", root.display())).unwrap();
        let digest = origin.lines().find_map(|line| line.split_once("@sha256:")).map_or("", |(_, hex)| hex);
        changed(&tree, &vec![boot("kargs", &kargs.join(" ")), boot("image", digest)])
    }
}

/// Runs a process to its end; one that hangs is killed, and an error.
fn bounded(mut command: Command) -> Result<Ran, String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| format!("can't start the agent: {error}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let (send, receive) = mpsc::channel();
    let waiting = std::thread::spawn(move || drop(send.send(child.wait_with_output())));
    let Ok(done) = receive.recv_timeout(TIMEOUT) else {
        kill_process(pid, Signal::KILL).unwrap_or_default();
        return Err(format!("{command:?} hangs: it ran for {} s", TIMEOUT.as_secs()));
    };
    waiting.join().unwrap();
    let output = done.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, log) = (text(&output.stdout), text(&output.stderr));
    Ok(Ran { code: output.status.code().unwrap_or(KILLED), out, log })
}
