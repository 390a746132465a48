//! A program that the shutdown runs after it has stopped another unit.
//!
//! It is the `ExecStop=` of a transient unit that does nothing while it is active. Nothing depends on it: when it fails,
//! the machine goes down all the same.

use zbus::zvariant::Value;

use super::JOB_TIMEOUT;
use super::bus::{ServiceOutcome, Systemd, run_job};
use super::call::{refusal, within};
use super::transient::exists_already;
use crate::host::HostError;
use crate::model::UnitName;

/// Target that the shutdown reaches once all services are stopped, and that stops the unit:
/// `ostree-finalize-staged.service` does its work then, too.
const LATE: &str = "final.target";
/// A few hundred small files and their sync: seconds, on a slow disk more.
const STOP_TIMEOUT_USEC: u64 = 60_000_000;

/// A program for the shutdown.
#[derive(Debug)]
pub struct ShutdownHook<'a> {
    /// The name of its unit.
    pub unit: &'a UnitName,
    /// Its purpose, for people.
    pub description: &'a str,
    /// The absolute path of the program, and its arguments.
    pub command: &'a [String],
    /// Its name in the journal.
    pub log_name: &'a str,
    /// The unit that is stopped before.
    pub after: &'a UnitName,
    /// Paths that have to be mounted still.
    pub mounts: &'a [&'a str],
}

impl Systemd {
    /// Has the shutdown run a program. One of this name that is there already stays.
    pub async fn at_shutdown(&self, program: &ShutdownHook<'_>) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        let unit = program.unit;
        let none: Vec<(&str, Vec<(&str, Value<'_>)>)> = Vec::new();
        let arguments = (unit.as_str(), "fail", properties(program), none);
        let start = run_job(&bus, "StartTransientUnit", &arguments);
        let failed = |result| HostError::Job { action: "start", unit: unit.to_string(), result };
        match within(format!("start of {unit}"), JOB_TIMEOUT, start).await {
            Ok(end) if end.result == "done" => Ok(ServiceOutcome::Done),
            Ok(end) => Err(failed(end.result)),
            Err(error) if exists_already(&error) => Ok(ServiceOutcome::Done),
            Err(error) => Err(refusal(error).map_or_else(|error| error, failed)),
        }
    }
}

/// A unit that is active without a process. A unit that starts before another is stopped after it.
fn properties<'a>(program: &ShutdownHook<'a>) -> Vec<(&'static str, Value<'a>)> {
    let path = program.command.first().cloned().unwrap_or_default();
    vec![
        ("Description", Value::from(program.description)),
        ("Type", Value::from("oneshot")),
        ("RemainAfterExit", Value::from(true)),
        ("ExecStop", Value::from(vec![(path, program.command.to_vec(), false)])),
        ("TimeoutStopUSec", Value::from(STOP_TIMEOUT_USEC)),
        ("SyslogIdentifier", Value::from(program.log_name)),
        // Those would stop it with the other services, before the target that it waits for.
        ("DefaultDependencies", Value::from(false)),
        ("Conflicts", Value::from(vec![LATE])),
        ("Before", Value::from(vec![program.after.as_str(), LATE])),
        ("RequiresMountsFor", Value::from(program.mounts.to_vec())),
    ]
}
