//! Programs that outlive the agent: each is a transient unit of systemd, found again by its fixed name.
//!
//! Invariants: nothing is polled. systemd signals a change of the unit; a state that was read before the subscription
//! is read again after. No job lasts as long as the program: one that is started while the host boots would keep the
//! boot from being over, and a program that waits for that (`systemctl is-system-running --wait`) would wait for
//! itself.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use zbus::Connection;
use zbus::zvariant::{Fd, OwnedObjectPath, Value};

use super::bus::{Systemd, run_job};
use super::call::{
    MANAGER, OBJECT, SERVICE_UNIT, UNIT, bus_error, call, error_name, property, refusal, subscribe,
    unit_path, within,
};
use super::signals::{ManagerSignal, Signals};
use super::{JOB_TIMEOUT, LINKS_TIMEOUT};
use crate::host::HostError;
use crate::model::UnitName;

/// The first systemd that takes open descriptors for a transient unit.
const WITH_DESCRIPTORS: u32 = 253;

/// The descriptor at which the first one that is passed on arrives (`sd_listen_fds(3)`).
pub(in crate::host) const FIRST_DESCRIPTOR: u32 = 3;

/// `ExecMainCode` of a process that ended by itself (`CLD_EXITED`, `sigaction(2)`).
const EXITED: i32 = 1;

/// A program to be run once.
#[derive(Debug)]
pub(in crate::host) struct Program<'a> {
    /// The name of its unit.
    pub(in crate::host) unit: &'a UnitName,
    /// Its purpose, for people.
    pub(in crate::host) description: &'a str,
    /// The absolute path of the program, and its arguments.
    pub(in crate::host) command: &'a [String],
    /// Its name in the journal.
    pub(in crate::host) log_name: &'a str,
    /// Fields that its lines carry in the journal, as `NAME=VALUE`.
    pub(in crate::host) log_fields: &'a [String],
    /// The file for its standard output; the journal where there is none.
    pub(in crate::host) output: Option<PathBuf>,
    /// The file for its standard error, which is there already.
    pub(in crate::host) errors: PathBuf,
    /// A file of variables for its environment: properties of a unit are no place for secrets.
    pub(in crate::host) environment: Option<PathBuf>,
    /// The end of a pipe that it gets as [`FIRST_DESCRIPTOR`].
    pub(in crate::host) pipe: Option<OwnedFd>,
    /// Time limit in seconds, after which systemd ends it; none is never.
    pub(in crate::host) seconds: Option<u64>,
}

/// End of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct ProgramResult {
    /// systemd's word: `success`, `exit-code`, `signal`, `timeout`, `oom-kill`.
    pub(in crate::host) result: String,
    /// The exit code, or the number of the signal.
    pub(in crate::host) status: i32,
}

impl ProgramResult {
    /// Returns true if it succeeded.
    pub(in crate::host) fn is_success(&self) -> bool {
        self.result == "success"
    }
}

impl std::fmt::Display for ProgramResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.result.as_str() {
            "exit-code" => write!(f, "exit code {}", self.status),
            "signal" | "core-dump" => write!(f, "signal {}", self.status),
            result => f.write_str(result),
        }
    }
}

/// A unit of an earlier start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct Found {
    /// Its command line.
    pub(in crate::host) command: Vec<String>,
    /// Set while it runs.
    pub(in crate::host) running: bool,
}

/// Client of transient units.
#[derive(Debug)]
pub(in crate::host) struct Transients {
    bus: Connection,
}

/// A property of a unit, as `StartTransientUnit` takes it.
type Property<'a> = (&'a str, Value<'a>);

impl Systemd {
    /// Connects, to run transient units; `None` where no systemd runs.
    pub(in crate::host) async fn transients(&self) -> Result<Option<Transients>, HostError> {
        Ok(self.connect().await?.map(|bus| Transients { bus }))
    }
}

impl Transients {
    /// Returns true if a program can be given an open descriptor.
    pub(in crate::host) async fn takes_descriptors(&self) -> Result<bool, HostError> {
        let manager =
            OwnedObjectPath::try_from(OBJECT).map_err(|source| bus_error("Version", source.into()))?;
        let version = property::<String>(&self.bus, &manager, MANAGER, "Version").await?;
        Ok(number(&version).is_some_and(|number| number >= WITH_DESCRIPTORS))
    }

    /// Runs a program to its end. It continues when the future is dropped. A unit of this name that is there already is an
    /// error of systemd (`UnitExists`), and nothing is started.
    pub(in crate::host) async fn run(&self, program: Program<'_>) -> Result<ProgramResult, HostError> {
        let properties = properties(&program);
        let none: Vec<(&str, Vec<Property<'_>>)> = Vec::new();
        let arguments = (program.unit.as_str(), "fail", properties, none);
        let end = run_job(&self.bus, "StartTransientUnit", &arguments).await?;
        match end.result.as_str() {
            "done" | "failed" => self.wait(program.unit).await,
            result => Ok(ProgramResult { result: result.to_owned(), status: 0 }),
        }
    }

    /// Looks for a unit of an earlier start.
    pub(in crate::host) async fn find(&self, unit: &UnitName) -> Result<Option<Found>, HostError> {
        let Some(path) = self.path(unit).await? else { return Ok(None) };
        let command = command_line(&self.bus, &path).await?;
        let running = !is_over(&property::<String>(&self.bus, &path, UNIT, "SubState").await?);
        Ok(Some(Found { command, running }))
    }

    /// Waits for the end of a unit, which may be of an earlier start.
    pub(in crate::host) async fn wait(&self, unit: &UnitName) -> Result<ProgramResult, HostError> {
        let Some(path) = self.path(unit).await? else { return Ok(unloaded()) };
        let mut signals = Signals::listen(&self.bus, "GetUnit", Some(&path)).await?;
        subscribe(&self.bus).await?;
        loop {
            match property::<String>(&self.bus, &path, UNIT, "SubState").await?.as_str() {
                "dead" => return Ok(unloaded()),
                state if is_over(state) => return self.ended(&path).await,
                _ => {}
            }
            loop {
                match signals.next().await? {
                    ManagerSignal::UnitChanged => break,
                    ManagerSignal::JobRemoved(end) if end.unit == unit.as_str() => break,
                    ManagerSignal::JobRemoved(_) => {}
                }
            }
        }
    }

    /// Ends the running program and removes the unit; a missing one is ignored.
    pub(in crate::host) async fn stop(&self, unit: &UnitName) -> Result<(), HostError> {
        let arguments = (unit.as_str(), "replace");
        let stop = run_job(&self.bus, "StopUnit", &arguments);
        match within(format!("stop of {unit}"), JOB_TIMEOUT, stop).await {
            Ok(_) => {}
            Err(error) if is_unknown(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        // A unit that failed stays until it is reset; one that ended well is gone by now.
        let arguments = (unit.as_str(),);
        let reset = call(&self.bus, "ResetFailedUnit", &arguments);
        match within(format!("reset of {unit}"), LINKS_TIMEOUT, reset).await {
            Err(error) if !is_unknown(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn path(&self, unit: &UnitName) -> Result<Option<OwnedObjectPath>, HostError> {
        match unit_path(&self.bus, unit).await {
            Ok(path) => Ok(Some(path)),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ended(&self, path: &OwnedObjectPath) -> Result<ProgramResult, HostError> {
        let mut result = property::<String>(&self.bus, path, SERVICE_UNIT, "Result").await?;
        let status = property(&self.bus, path, SERVICE_UNIT, "ExecMainStatus").await?;
        // A daemon that SIGTERM ends did well, for systemd; a program that was to do something did not do it.
        if result == "success"
            && property::<i32>(&self.bus, path, SERVICE_UNIT, "ExecMainCode").await? != EXITED
        {
            "signal".clone_into(&mut result);
        }
        Ok(ProgramResult { result, status })
    }
}

/// Returns true if systemd has refused to start a second unit of the same name.
pub(in crate::host) fn exists_already(error: &HostError) -> bool {
    error_name(error).is_some_and(|name| name.ends_with(".UnitExists"))
}

/// Returns systemd's own words of a refusal.
pub(in crate::host) fn refused(error: HostError) -> Result<String, HostError> {
    refusal(error)
}

/// Result of a unit that is unknown now: another program ended and removed it.
fn unloaded() -> ProgramResult {
    ProgramResult { result: "the unit is gone".to_owned(), status: 0 }
}

fn is_unknown(error: &HostError) -> bool {
    error_name(error).is_some_and(|name| name.ends_with(".NoSuchUnit"))
}

/// Returns true if a service with this `SubState` runs nothing any more.
fn is_over(state: &str) -> bool {
    matches!(state, "exited" | "failed" | "dead")
}

/// Reads the number at the beginning of a version: `252.39-1~deb12u2`, `v257`.
fn number(version: &str) -> Option<u32> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version.get(..end)?.parse().ok()
}

/// The unit of a program: it ends with the program, and a good end can be read until it is stopped.
fn properties<'a>(program: &'a Program<'_>) -> Vec<Property<'a>> {
    let path = program.command.first().cloned().unwrap_or_default();
    let fields: Vec<Vec<u8>> = program.log_fields.iter().map(|field| field.clone().into_bytes()).collect();
    let file = |path: &PathBuf| Value::from(path.display().to_string());
    let mut properties = vec![
        ("Description", Value::from(program.description)),
        ("Type", Value::from("simple")),
        ("RemainAfterExit", Value::from(true)),
        ("ExecStart", Value::from(vec![(path, program.command.to_vec(), false)])),
        ("SyslogIdentifier", Value::from(program.log_name)),
        ("LogExtraFields", Value::from(fields)),
        // All processes that it has started go with it.
        ("KillMode", Value::from("mixed")),
        ("StandardErrorFileToAppend", file(&program.errors)),
    ];
    properties.push(match &program.output {
        Some(path) => ("StandardOutputFileToAppend", file(path)),
        None => ("StandardOutput", Value::from("journal")),
    });
    if let Some(path) = &program.environment {
        properties.push(("EnvironmentFiles", Value::from(vec![(path.display().to_string(), false)])));
    }
    if let Some(seconds) = program.seconds {
        properties.push(("RuntimeMaxUSec", Value::from(seconds * 1_000_000)));
    }
    if let Some(pipe) = &program.pipe {
        properties.push(("ExtraFileDescriptors", Value::from(vec![(Fd::from(pipe), "progress".to_owned())])));
    }
    properties
}

/// Reads the command line of a unit's one command.
async fn command_line(bus: &Connection, path: &OwnedObjectPath) -> Result<Vec<String>, HostError> {
    type Command = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);
    let commands: Vec<Command> = property(bus, path, SERVICE_UNIT, "ExecStart").await?;
    Ok(commands.into_iter().next().map(|(_, command, ..)| command).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (version, expected) in
            [("252.39-1~deb12u2", Some(252)), ("v257", Some(257)), ("253", Some(253)), ("devel", None)]
        {
            assert_eq!(number(version), expected, "{version}");
        }
    }
}
