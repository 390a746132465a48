//! The running systemd, over its D-Bus API: reload, restart, and the result of each job.
//!
//! Invariant: a call returns when its job has ended, and a job that did not end in `done` is an error. Where no systemd
//! runs for the root (a sandbox, an image build) nothing is called and the outcome is [`ServiceOutcome::NoSystemd`].

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use zbus::Connection;
use zbus::zvariant::{OwnedObjectPath, Type};

use super::call::{
    MANAGER, OBJECT, SERVICE_UNIT, UNIT, bus_error, call, property, refusal, subscribe, unit_path, within,
};
use super::signals::{JobResult, ManagerSignal, Signals};
use super::{CA_TRUST_TIMEOUT, JOB_TIMEOUT, RELOAD_TIMEOUT, SETTLING};
use crate::host::root::Root;
use crate::host::{HostError, command};
use crate::model::UnitName;

/// Installed by a systemd that has soft reboots (254).
pub const SOFT_REBOOT_TARGET: &str = "/usr/lib/systemd/system/soft-reboot.target";
const SOCKET: &str = "/run/dbus/system_bus_socket";
/// The unit that builds the trust store; that is also built without it.
pub const CA_TRUST_UNIT: &str = "coreos-update-ca-trust.service";
/// Targets that a unit conflicts with if a shutdown stops it.
const SHUTDOWN: [&str; 2] = ["shutdown.target", "final.target"];

/// Result of a request to systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// It was done.
    Done,
    /// No systemd runs for this root: it was left out, the next boot makes up for it.
    NoSystemd,
}

/// The systemd that runs for a root, or none.
#[derive(Debug, Clone)]
pub struct Systemd {
    way: Way,
    /// Soft reboots before this process: no process of the agent outlives one.
    pub(super) soft_reboots: Arc<OnceLock<u32>>,
}

#[derive(Debug, Clone)]
enum Way {
    None,
    Machine(Root),
    /// A connection that a test made.
    #[cfg(test)]
    Given(Connection),
}

/// Connects to the system bus of a root.
pub(in crate::host) async fn system(root: &Root) -> Result<Connection, HostError> {
    let failed =
        |source: zbus::Error| HostError::Bus { call: "connecting".to_owned(), source: Box::new(source) };
    let socket = root.base().join(SOCKET.trim_start_matches('/'));
    let address = format!("unix:path={}", socket.display());
    let builder = zbus::connection::Builder::address(address.as_str()).map_err(failed)?;
    // Boxed: a connection in the making is large, and would be a part of every step of an update.
    Box::pin(builder.build()).await.map_err(failed)
}

impl Systemd {
    fn new(way: Way) -> Self {
        Self { way, soft_reboots: Arc::default() }
    }

    /// Returns the soft reboots that this systemd has counted. None if it does not count
    /// (before 256), or does not answer: the booted deployment shows then that one happened.
    pub async fn soft_reboots(&self) -> u32 {
        if let Some(count) = self.soft_reboots.get() {
            return *count;
        }
        match self.count_soft_reboots().await {
            Some(count) => *self.soft_reboots.get_or_init(|| count),
            None => 0,
        }
    }

    async fn count_soft_reboots(&self) -> Option<u32> {
        if let Way::Machine(root) = &self.way
            && !root.exists(SOFT_REBOOT_TARGET).ok()?
        {
            return Some(0);
        }
        let Some(bus) = self.connect().await.ok()? else { return Some(0) };
        let manager = OwnedObjectPath::try_from(OBJECT).ok()?;
        let count = property::<u32>(&bus, &manager, MANAGER, "SoftRebootsCount");
        match within("SoftRebootsCount".to_owned(), RELOAD_TIMEOUT, count).await {
            Ok(count) => Some(count),
            // Only an answer is kept: this one reports an unknown property.
            Err(error) => refusal(error).ok().map(|_| 0),
        }
    }

    /// Finds out whether systemd runs for the root: only for the machine's own, and only when it booted the machine.
    pub fn detect(root: &Root) -> Result<Self, HostError> {
        let runs = root.is_machine() && root.exists("/run/systemd/system")?;
        Ok(Self::new(if runs { Way::Machine(root.clone()) } else { Way::None }))
    }

    /// Creates a connection to no systemd: nothing is called.
    pub fn absent() -> Self {
        Self::new(Way::None)
    }

    /// Returns true if it runs for the root, so that services are started and stopped.
    pub fn is_running(&self) -> bool {
        !matches!(self.way, Way::None)
    }

    #[cfg(test)]
    pub(crate) fn given(connection: Connection) -> Self {
        Self::new(Way::Given(connection))
    }

    /// Has systemd read its unit files again.
    pub async fn daemon_reload(&self) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        within("daemon-reload".to_owned(), RELOAD_TIMEOUT, call(&bus, "Reload", &())).await?;
        Ok(ServiceOutcome::Done)
    }

    /// Reloads a unit.
    pub async fn reload(&self, unit: &UnitName) -> Result<ServiceOutcome, HostError> {
        Box::pin(self.job("ReloadUnit", "reload", unit)).await
    }

    /// Restarts a unit. The trust store is also built without its unit (MCD-107).
    pub async fn restart(&self, unit: &UnitName) -> Result<ServiceOutcome, HostError> {
        let done = Box::pin(self.job("RestartUnit", "restart", unit)).await;
        match done {
            Err(error) if unit.as_str() == CA_TRUST_UNIT => {
                tracing::warn!(unit = %unit, "{error}; running update-ca-trust instead");
                command::run("update-ca-trust", &[], CA_TRUST_TIMEOUT).await.map(|()| ServiceOutcome::Done)
            }
            done => done,
        }
    }

    /// Starts a unit and waits for its end, if it is installed; returns true if it is.
    pub async fn start_installed(&self, unit: &UnitName) -> Result<bool, HostError> {
        let Some(state) = self.service(unit).await? else { return Ok(false) };
        if state.load != "loaded" {
            return Ok(false);
        }
        Box::pin(self.job("StartUnit", "start", unit)).await.map(|outcome| outcome == ServiceOutcome::Done)
    }

    /// Stops a unit; one that fails while it stops is stopped, too.
    pub async fn stop(&self, unit: &UnitName) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        let arguments = (unit.as_str(), "replace");
        let run = run_job(&bus, "StopUnit", &arguments);
        let failed = |result: String| HostError::Job { action: "stop", unit: unit.to_string(), result };
        match within(format!("stop of {unit}"), JOB_TIMEOUT, Box::pin(run)).await {
            Ok(end) if end.result == "done" => Ok(ServiceOutcome::Done),
            Ok(end) => Err(failed(end.result)),
            Err(error) => Err(refusal(error).map_or_else(|error| error, failed)),
        }
    }

    /// Makes sure that a unit is active, and that the shutdown stops it: its work at the stop is then done
    /// before the machine goes down.
    pub async fn stopped_by_shutdown(&self, unit: &UnitName) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        let refused = |cause: String| HostError::NotStopped { unit: unit.to_string(), cause };
        let path: OwnedObjectPath = call(&bus, "LoadUnit", &unit.as_str())
            .await?
            .body()
            .deserialize()
            .map_err(|source| bus_error("LoadUnit", source))?;
        let mut state: String = property(&bus, &path, UNIT, "ActiveState").await?;
        if state != "active" {
            self.job("StartUnit", "start", unit).await?;
            state = property(&bus, &path, UNIT, "ActiveState").await?;
        }
        if state != "active" {
            return Err(refused(format!("it is {state}, although it was started")));
        }
        let conflicts: Vec<String> = property(&bus, &path, UNIT, "Conflicts").await?;
        if !conflicts.iter().any(|other| SHUTDOWN.contains(&other.as_str())) {
            return Err(refused(
                "it conflicts neither with shutdown.target nor with final.target".to_owned(),
            ));
        }
        Ok(ServiceOutcome::Done)
    }

    pub(super) fn is_machine(&self) -> bool {
        matches!(self.way, Way::Machine(_))
    }

    pub(super) async fn connect(&self) -> Result<Option<Connection>, HostError> {
        match &self.way {
            Way::None => Ok(None),
            Way::Machine(root) => system(root).await.map(Some),
            #[cfg(test)]
            Way::Given(connection) => Ok(Some(connection.clone())),
        }
    }

    async fn job(
        &self,
        method: &'static str,
        action: &'static str,
        unit: &UnitName,
    ) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        let failed = |result: String| HostError::Job { action, unit: unit.to_string(), result };
        let arguments = (unit.as_str(), "replace");
        let run = run_job(&bus, method, &arguments);
        let result = match within(format!("{action} of {unit}"), JOB_TIMEOUT, run).await {
            Ok(end) => end.result,
            Err(error) => return Err(refusal(error).map_or_else(|error| error, failed)),
        };
        match result.as_str() {
            "done" => match failed_at_once(&bus, unit).await? {
                Some(result) => Err(failed(result)),
                None => Ok(ServiceOutcome::Done),
            },
            // A condition of the unit failed; systemctl takes that for success too.
            "skipped" => Ok(ServiceOutcome::Done),
            _ => Err(failed(result)),
        }
    }
}

/// Starts a job and waits for its end. The end may arrive before the reply that names the job: both are awaited.
pub(super) async fn run_job<B>(
    bus: &Connection,
    method: &'static str,
    arguments: &B,
) -> Result<JobResult, HostError>
where
    B: serde::Serialize + Type,
{
    let mut signals = Signals::listen(bus, method, None).await?;
    subscribe(bus).await?;
    let mut early = Vec::new();
    // systemd answers as soon as the job is queued; at most it reads its unit files before.
    let reply = within(format!("systemd ({method})"), RELOAD_TIMEOUT, call(bus, method, arguments));
    let mut reply = pin!(reply);
    let reply = loop {
        tokio::select! {
            biased;
            // Cancel-safe: a message is taken from the queue only when it is returned.
            signal = signals.next() => early.push(signal?),
            // Not cancelled: the same future is polled until it ends.
            reply = &mut reply => break reply?,
        }
    };
    let job: OwnedObjectPath = reply.body().deserialize().map_err(|source| bus_error(method, source))?;
    signals.end_of(&job, early).await
}

/// Looks at a unit whose job is done. A service of `Type=simple` counts as started before its program runs: one that
/// can't run is known a moment later, so such a unit is listened to for that long.
async fn failed_at_once(bus: &Connection, unit: &UnitName) -> Result<Option<String>, HostError> {
    let path = match unit_path(bus, unit).await {
        Ok(path) => path,
        // It did its work and was unloaded.
        Err(error) => return refusal(error).map(|_| None),
    };
    if let Some(result) = failed(bus, &path).await? {
        return Ok(Some(result));
    }
    let simple = unit.as_str().ends_with(".service")
        && matches!(property::<String>(bus, &path, SERVICE_UNIT, "Type").await?.as_str(), "simple" | "idle");
    if !simple {
        return Ok(None);
    }
    let mut signals = Signals::listen(bus, "GetUnit", Some(&path)).await?;
    // It may have failed before it was listened to.
    if let Some(result) = failed(bus, &path).await? {
        return Ok(Some(result));
    }
    let fails = async {
        loop {
            match signals.next().await? {
                ManagerSignal::UnitChanged => {
                    if let Some(result) = failed(bus, &path).await? {
                        return Ok(Some(result));
                    }
                }
                ManagerSignal::JobRemoved(_) => {}
            }
        }
    };
    // No failure in time is success.
    tokio::time::timeout(SETTLING, fails).await.unwrap_or(Ok(None))
}

/// Returns the result of a failed unit, also when systemd is about to start it again.
async fn failed(bus: &Connection, path: &OwnedObjectPath) -> Result<Option<String>, HostError> {
    let state = property::<String>(bus, path, UNIT, "ActiveState").await?;
    let again = property::<String>(bus, path, UNIT, "SubState").await? == "auto-restart";
    if state != "failed" && !again {
        return Ok(None);
    }
    let result = property::<String>(bus, path, SERVICE_UNIT, "Result").await.unwrap_or_default();
    Ok(Some(if result.is_empty() || result == "success" { state } else { result }))
}
