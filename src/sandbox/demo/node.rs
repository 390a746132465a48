//! The played node: boots the machine, runs the agent in it, follows its log and its report, plays its reboots.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::show::Show;
use crate::host::Root;
use crate::host::watch::Watch;
use crate::sandbox::host::allow;
use crate::sandbox::{AGENT, Booted, CONTROL, SandboxError, SandboxHost};

/// The exit code by which the agent requests the reboot of its supervisor.
const REBOOT_REQUIRED: i32 = 133;

/// Time limit of a scene. The slowest needs some three seconds; a machine under load gets twenty times that.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// End of the wait for the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentExit {
    /// The report shows the awaited state.
    Settled,
    /// The agent's process is gone, with this exit code.
    Died(i32),
}

/// The node.
#[derive(Debug)]
pub(super) struct Node {
    host: SandboxHost,
    booted: Option<Booted>,
    agent: Option<Agent>,
    watch: Watch,
    boots: usize,
}

#[derive(Debug)]
struct Agent {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Node {
    pub(super) fn new(host: SandboxHost) -> Result<Self, SandboxError> {
        let failed = |error: crate::host::HostError| SandboxError::Story { cause: error.to_string() };
        let control = Root::open(&host.control()).map_err(failed)?;
        let watch = Watch::new(&control, ["/report.json"], []).map_err(failed)?;
        let booted = Some(host.boot()?);
        Ok(Self { host, booted, agent: None, watch, boots: 1 })
    }

    pub(super) fn host(&self) -> &SandboxHost {
        &self.host
    }

    /// Returns the boots of the machine so far.
    pub(super) fn boots(&self) -> usize {
        self.boots
    }

    pub(super) fn booted(&self) -> Result<&Booted, SandboxError> {
        self.booted.as_ref().ok_or(SandboxError::Story { cause: "the machine is off".to_owned() })
    }

    /// A path of the running deployment, or of `/var`, seen from outside.
    pub(super) fn path(&self, path: &str) -> Result<PathBuf, SandboxError> {
        let relative = path.trim_start_matches('/');
        Ok(match relative.strip_prefix("var/") {
            Some(below) => self.host.dir().join("sysroot/ostree/deploy/sandbox/var").join(below),
            None => self.booted()?.root().join(relative),
        })
    }

    /// Reads a file of the host; an unreadable one is shown as such.
    pub(super) fn read(&self, path: &str) -> String {
        self.path(path)
            .and_then(|file| {
                std::fs::read_to_string(&file).map_err(|error| SandboxError::io("read", file, error))
            })
            .unwrap_or_else(|error| format!("({error})"))
    }

    /// Writes a file of the host behind the agent's back.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<(), SandboxError> {
        let file = self.path(path)?;
        let parent = file.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(parent).map_err(|error| SandboxError::io("make", parent, error))?;
        std::fs::write(&file, text).map_err(|error| SandboxError::io("write", file, error))
    }

    /// Puts a file into the control directory, replacing it whole as every writer should.
    pub(super) fn control(&self, name: &str, text: &str) -> Result<(), SandboxError> {
        let path = self.host.control().join(name);
        let fresh = path.with_extension("new");
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| SandboxError::io("make", parent, error))?;
            allow(parent, 0o755)?;
        }
        std::fs::write(&fresh, text).map_err(|error| SandboxError::io("write", &fresh, error))?;
        allow(&fresh, 0o644)?;
        std::fs::rename(&fresh, &path).map_err(|error| SandboxError::io("rename", &path, error))
    }

    /// Reads the agent's report.
    pub(super) fn report(&self) -> Value {
        let path = self.host.control().join("report.json");
        std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(Value::Null)
    }

    /// Runs a verb of the agent in the machine, beside the daemon, and returns its exit code and its output.
    pub(super) async fn verb(&self, arguments: &[&str]) -> Result<(i32, String), SandboxError> {
        let argv = std::iter::once(AGENT).chain(arguments.iter().copied());
        let mut command = Command::from(self.booted()?.command(argv));
        let output = command.stdin(Stdio::null()).output().await;
        let output = output.map_err(|error| SandboxError::io("start", AGENT, error))?;
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().unwrap_or(-1), text))
    }

    /// Starts the agent, with a fail point or without.
    pub(super) fn start(&mut self, fail_point: Option<&str>) -> Result<(), SandboxError> {
        let daemon = ["daemon", "--directory", CONTROL, "--node-name", "sandbox", "--os-backend", "ostree"];
        let rest = ["--reboot-by", "supervisor", "--log-format", "json"];
        let argv = std::iter::once(AGENT).chain(daemon).chain(rest);
        let mut command = Command::from(self.booted()?.command(argv));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(point) = fail_point {
            command.env("MCA_FAIL_POINT", point);
        }
        let mut child = command.spawn().map_err(|error| SandboxError::io("start", AGENT, error))?;
        let log =
            child.stderr.take().ok_or(SandboxError::Story { cause: "the agent has no log".to_owned() })?;
        self.agent = Some(Agent { child, log: BufReader::new(log).lines() });
        Ok(())
    }

    /// Waits for a state of the report, plays the reboots on the way, and shows the time line.
    pub(super) async fn until(
        &mut self,
        show: &Show,
        settled: impl Fn(&Value) -> bool,
    ) -> Result<AgentExit, SandboxError> {
        let begun = Instant::now();
        loop {
            if settled(&self.report()) {
                self.drain_log(show, begun).await;
                return Ok(AgentExit::Settled);
            }
            if begun.elapsed() > LINE_TIMEOUT {
                return Err(SandboxError::Story {
                    cause: format!("nothing settled; the last report: {}", self.report()),
                });
            }
            let Some(agent) = &mut self.agent else { return Ok(AgentExit::Died(-1)) };
            tokio::select! {
                // A line that was read is shown at once; the other arms only wait.
                line = agent.log.next_line() => match line {
                    Ok(Some(line)) => print_line(show, begun, &line),
                    Ok(None) | Err(_) => {
                        if let Some(ended) = self.ended(show, begun).await? {
                            return Ok(ended);
                        }
                    }
                },
                changed = self.watch.changed() => drop(changed),
                () = tokio::time::sleep(LINE_TIMEOUT) => {}
            }
        }
    }

    /// Handles the end of the agent's process: a reboot is played, any other end is reported.
    async fn ended(&mut self, show: &Show, begun: Instant) -> Result<Option<AgentExit>, SandboxError> {
        let Some(mut agent) = self.agent.take() else { return Ok(Some(AgentExit::Died(-1))) };
        let status = agent.child.wait().await.map_err(|error| SandboxError::io("wait for", AGENT, error))?;
        let code = status.code().unwrap_or(-1);
        if code != REBOOT_REQUIRED {
            return Ok(Some(AgentExit::Died(code)));
        }
        let Some(booted) = self.booted.take() else { return Ok(Some(AgentExit::Died(code))) };
        booted.shutdown()?;
        show.event(begun.elapsed(), "~~~ the machine goes down: libostree finalizes what is staged ~~~");
        let booted = self.host.boot()?;
        show.event(
            begun.elapsed(),
            &format!("~~~ the machine is up: boot {}, {} ~~~", booted.id(), deployment(&booted)),
        );
        self.booted = Some(booted);
        self.boots += 1;
        self.start(None)?;
        Ok(None)
    }

    /// Shows the log up to now.
    async fn drain_log(&mut self, show: &Show, begun: Instant) {
        let Some(agent) = &mut self.agent else { return };
        let quiet = Duration::from_millis(30);
        while let Ok(Ok(Some(line))) = tokio::time::timeout(quiet, agent.log.next_line()).await {
            print_line(show, begun, &line);
        }
    }

    /// Stops the agent as systemd does.
    pub(super) async fn stop(&mut self) -> Result<(), SandboxError> {
        let Some(mut agent) = self.agent.take() else { return Ok(()) };
        let id =
            agent.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            // An error means that the process has just ended by itself, as it should.
            rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap_or_default();
        }
        agent.child.wait().await.map(drop).map_err(|error| SandboxError::io("wait for", AGENT, error))
    }
}

/// Names a boot's deployment: its directory.
pub(super) fn deployment(booted: &Booted) -> String {
    booted
        .root()
        .file_name()
        .map(|name| name.to_string_lossy().chars().take(12).collect())
        .unwrap_or_default()
}

/// Shows one line of the agent's log, unless it is at debug level; a plan that comes with it is shown as a
/// block.
fn print_line(show: &Show, begun: Instant, line: &str) {
    let parsed: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    if parsed.get("level").and_then(Value::as_str) == Some("DEBUG") {
        return;
    }
    let message = parsed.get("message").and_then(Value::as_str).unwrap_or(line);
    let (first, rest) = message.split_once('\n').unwrap_or((message, ""));
    show.event(begun.elapsed(), first.trim_end_matches(':'));
    if !rest.is_empty() {
        show.block("plan", rest);
    }
}
