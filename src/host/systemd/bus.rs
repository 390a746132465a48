//! The running systemd, over its D-Bus API: reload, restart, and the result of each job.
//!
//! Invariant: a call returns when its job has ended, and a job that did not end in `done` is an error. Where no systemd
//! runs for the root (a sandbox, an image build) nothing is asked and the outcome says so.

use std::pin::pin;
use std::time::Duration;

use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type};
use zbus::{Connection, Message};

use super::signals::{Ended, Signals, Told};
use super::{CA_TRUST_LIMIT, JOB_LIMIT, RELOAD_LIMIT, SETTLING};
use crate::host::root::Root;
use crate::host::{HostError, command};
use crate::model::UnitName;

const SOCKET: &str = "/run/dbus/system_bus_socket";
pub(super) const SERVICE: &str = "org.freedesktop.systemd1";
pub(super) const OBJECT: &str = "/org/freedesktop/systemd1";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const SERVICE_UNIT: &str = "org.freedesktop.systemd1.Service";
const CA_TRUST_UNIT: &str = "coreos-update-ca-trust.service";
/// What a unit conflicts with that a shutdown stops.
const SHUTDOWN: [&str; 2] = ["shutdown.target", "final.target"];

/// What came of asking systemd.
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
    /// Finds out whether systemd runs for the root: only for the machine's own, and only when it booted the machine.
    pub fn of(root: &Root) -> Result<Self, HostError> {
        let runs = root.is_machine() && root.exists("/run/systemd/system")?;
        Ok(Self { way: if runs { Way::Machine(root.clone()) } else { Way::None } })
    }

    /// Says that no systemd is to be asked.
    pub fn absent() -> Self {
        Self { way: Way::None }
    }

    #[cfg(test)]
    pub(crate) fn given(connection: Connection) -> Self {
        Self { way: Way::Given(connection) }
    }

    /// Has systemd read its unit files again.
    pub async fn daemon_reload(&self) -> Result<ServiceOutcome, HostError> {
        let Some(bus) = self.connect().await? else { return Ok(ServiceOutcome::NoSystemd) };
        within("daemon-reload".to_owned(), RELOAD_LIMIT, call(&bus, "Reload", &())).await?;
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
                command::run("update-ca-trust", &[], CA_TRUST_LIMIT).await.map(|()| ServiceOutcome::Done)
            }
            done => done,
        }
    }

    /// Makes sure that a unit is active, and that the shutdown stops it: what it does when it is stopped is then done
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
        let result = match within(format!("{action} of {unit}"), JOB_LIMIT, run).await {
            Ok(end) => end.result,
            Err(error) => return Err(refusal(error).map_or_else(|error| error, failed)),
        };
        match result.as_str() {
            "done" => match failed_at_once(&bus, unit).await? {
                Some(result) => Err(failed(result)),
                None => Ok(ServiceOutcome::Done),
            },
            // A condition of the unit said no; systemctl takes that for success too.
            "skipped" => Ok(ServiceOutcome::Done),
            _ => Err(failed(result)),
        }
    }
}

/// Starts a job and waits for its end. Its end may be told before the reply that names it: both are listened to.
pub(super) async fn run_job<B>(
    bus: &Connection,
    method: &'static str,
    arguments: &B,
) -> Result<Ended, HostError>
where
    B: serde::Serialize + Type,
{
    let mut signals = Signals::listen(bus, method, None).await?;
    subscribe(bus).await?;
    let mut early = Vec::new();
    // systemd answers as soon as the job is queued; at most it reads its unit files before.
    let reply = within(format!("systemd ({method})"), RELOAD_LIMIT, call(bus, method, arguments));
    let mut reply = pin!(reply);
    let reply = loop {
        tokio::select! {
            biased;
            // Cancel-safe: a message is taken from the queue only when it is returned.
            told = signals.next() => early.push(told?),
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
                Told::Changed => {
                    if let Some(result) = failed(bus, &path).await? {
                        return Ok(Some(result));
                    }
                }
                Told::Ended(_) => {}
            }
        }
    };
    // Nothing told in time is the good end.
    tokio::time::timeout(SETTLING, fails).await.unwrap_or(Ok(None))
}

/// Says with what result a unit has failed, also when systemd is about to start it again.
async fn failed(bus: &Connection, path: &OwnedObjectPath) -> Result<Option<String>, HostError> {
    let state = property::<String>(bus, path, UNIT, "ActiveState").await?;
    let again = property::<String>(bus, path, UNIT, "SubState").await? == "auto-restart";
    if state != "failed" && !again {
        return Ok(None);
    }
    let result = property::<String>(bus, path, SERVICE_UNIT, "Result").await.unwrap_or_default();
    Ok(Some(if result.is_empty() || result == "success" { state } else { result }))
}

/// Returns the object of a loaded unit.
pub(super) async fn unit_path(bus: &Connection, unit: &UnitName) -> Result<OwnedObjectPath, HostError> {
    let reply = call(bus, "GetUnit", &(unit.as_str(),)).await?;
    reply.body().deserialize().map_err(|source| bus_error("GetUnit", source))
}

/// Reads a property.
pub(super) async fn property<T>(
    bus: &Connection,
    path: &OwnedObjectPath,
    interface: &'static str,
    name: &'static str,
) -> Result<T, HostError>
where
    T: TryFrom<OwnedValue>,
    T::Error: Into<zbus::zvariant::Error>,
{
    let properties = Some("org.freedesktop.DBus.Properties");
    let asked = bus.call_method(Some(SERVICE), path, properties, "Get", &(interface, name)).await;
    let value = asked.and_then(|reply| reply.body().deserialize::<OwnedValue>());
    value
        .and_then(|value| T::try_from(value).map_err(|error| error.into().into()))
        .map_err(|source| HostError::Bus { call: format!("{interface}.{name}"), source: Box::new(source) })
}

/// Makes a call to systemd's manager.
pub(super) async fn call<B>(bus: &Connection, method: &'static str, body: &B) -> Result<Message, HostError>
where
    B: serde::Serialize + Type,
{
    let reply = bus.call_method(Some(SERVICE), OBJECT, Some(MANAGER), method, body).await;
    reply.map_err(|source| bus_error(method, source))
}

/// Has systemd tell its signals on this connection, which may have been asked for before.
pub(super) async fn subscribe(bus: &Connection) -> Result<(), HostError> {
    match call(bus, "Subscribe", &()).await {
        Err(error) if !error_name(&error).is_some_and(|name| name.ends_with(".AlreadySubscribed")) => {
            Err(error)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Bounds a piece of work in time.
pub(super) async fn within<T>(
    object: String,
    limit: Duration,
    work: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    let timed_out = HostError::Timeout { object, seconds: limit.as_secs() };
    tokio::time::timeout(limit, work).await.unwrap_or(Err(timed_out))
}

/// Wraps an error of the bus.
pub(super) fn bus_error(method: &'static str, source: zbus::Error) -> HostError {
    HostError::Bus { call: format!("{MANAGER}.{method}"), source: Box::new(source) }
}

/// Returns systemd's own words when it was systemd that said no, and not the bus: asking again changes nothing then.
pub(super) fn refusal(error: HostError) -> Result<String, HostError> {
    const OF_THE_BUS: [&str; 6] =
        ["NoReply", "ServiceUnknown", "NameHasNoOwner", "Disconnected", "Timeout", "LimitsExceeded"];
    let HostError::Bus { call, source } = error else { return Err(error) };
    let words = match source.downcast_ref::<zbus::Error>() {
        Some(zbus::Error::MethodError(name, text, _))
            if !OF_THE_BUS.iter().any(|word| name.as_str().ends_with(&format!(".Error.{word}"))) =>
        {
            Some(text.clone().unwrap_or_else(|| name.to_string()))
        }
        _ => None,
    };
    words.ok_or(HostError::Bus { call, source })
}

/// Returns the name of systemd's error, where it was one.
pub(super) fn error_name(error: &HostError) -> Option<&str> {
    let HostError::Bus { source, .. } = error else { return None };
    match source.downcast_ref::<zbus::Error>() {
        Some(zbus::Error::MethodError(name, ..)) => Some(name.as_str()),
        _ => None,
    }
}
