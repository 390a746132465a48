//! The running systemd, over its D-Bus API: reload, restart, and the result of each job.
//!
//! Invariant: a call returns when its job has ended, and a job that did not end in `done` is an error. Where no systemd
//! runs for the root (a sandbox, an image build) nothing is asked and the outcome says so.

use std::pin::{Pin, pin};
use std::time::Duration;

use zbus::export::futures_core::Stream;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type};
use zbus::{Connection, MatchRule, Message, MessageStream};

use super::{CA_TRUST_LIMIT, JOB_LIMIT, RELOAD_LIMIT};
use crate::host::root::Root;
use crate::host::{HostError, command};
use crate::model::UnitName;

const SOCKET: &str = "/run/dbus/system_bus_socket";
const SERVICE: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const CA_TRUST_UNIT: &str = "coreos-update-ca-trust.service";
/// What a unit conflicts with that a shutdown stops.
const SHUTDOWN: [&str; 2] = ["shutdown.target", "final.target"];
/// Signals that wait while the reply is on its way: more than the jobs of a whole boot.
const QUEUE: usize = 1024;

/// What came of asking systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// It was done.
    Done,
    /// No systemd runs for this root: it was left out, the next boot makes up for it.
    NoSystemd,
}

/// The systemd that runs for a root, or none.
#[derive(Debug)]
pub struct Systemd {
    way: Way,
}

#[derive(Debug)]
enum Way {
    None,
    Machine(Root),
    /// A connection that a test made.
    #[cfg(test)]
    Given(Connection),
}

/// A job that ended.
struct Ended {
    job: OwnedObjectPath,
    result: String,
}

/// Connects to the system bus of a root.
pub(in crate::host) async fn system(root: &Root) -> Result<Connection, HostError> {
    let failed =
        |source: zbus::Error| HostError::Bus { call: "connecting".to_owned(), source: Box::new(source) };
    let socket = root.base().join(SOCKET.trim_start_matches('/'));
    let address = format!("unix:path={}", socket.display());
    let builder = zbus::connection::Builder::address(address.as_str()).map_err(failed)?;
    builder.build().await.map_err(failed)
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
        self.job("ReloadUnit", "reload", unit).await
    }

    /// Restarts a unit. The trust store is also built without its unit (MCD-107).
    pub async fn restart(&self, unit: &UnitName) -> Result<ServiceOutcome, HostError> {
        let done = self.job("RestartUnit", "restart", unit).await;
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
        let mut state: String = property(&bus, &path, "ActiveState").await?;
        if state != "active" {
            self.job("StartUnit", "start", unit).await?;
            state = property(&bus, &path, "ActiveState").await?;
        }
        if state != "active" {
            return Err(refused(format!("it is {state}, although it was started")));
        }
        let conflicts: Vec<String> = property(&bus, &path, "Conflicts").await?;
        if !conflicts.iter().any(|other| SHUTDOWN.contains(&other.as_str())) {
            return Err(refused(
                "it conflicts neither with shutdown.target nor with final.target".to_owned(),
            ));
        }
        Ok(ServiceOutcome::Done)
    }

    async fn connect(&self) -> Result<Option<Connection>, HostError> {
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
        let result = within(format!("{action} of {unit}"), JOB_LIMIT, run_job(&bus, method, unit)).await?;
        match result.as_str() {
            // `skipped`: a condition of the unit said no; systemctl takes that for success too.
            "done" | "skipped" => Ok(ServiceOutcome::Done),
            _ => Err(HostError::Job { action, unit: unit.to_string(), result }),
        }
    }
}

/// Reads a property of a unit.
async fn property<T>(bus: &Connection, unit: &OwnedObjectPath, name: &'static str) -> Result<T, HostError>
where
    T: TryFrom<OwnedValue>,
    T::Error: Into<zbus::zvariant::Error>,
{
    let words = ("org.freedesktop.systemd1.Unit", name);
    let reply =
        bus.call_method(Some(SERVICE), unit, Some("org.freedesktop.DBus.Properties"), "Get", &words).await;
    let value = reply.and_then(|reply| reply.body().deserialize::<OwnedValue>());
    value
        .and_then(|value| T::try_from(value).map_err(|error| error.into().into()))
        .map_err(|s| bus_error(name, s))
}

/// Starts a job and waits for its end. Its end may be told before the reply that names it: both are listened to.
async fn run_job(bus: &Connection, method: &'static str, unit: &UnitName) -> Result<String, HostError> {
    let failed = |source: zbus::Error| bus_error(method, source);
    let rule = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .interface(MANAGER)
        .and_then(|rule| rule.member("JobRemoved"))
        .map_err(failed)?
        .build();
    let mut ends = MessageStream::for_match_rule(rule, bus, Some(QUEUE)).await.map_err(failed)?;
    call(bus, "Subscribe", &()).await?;
    let mut early = Vec::new();
    let arguments = (unit.as_str(), "replace");
    let mut reply = pin!(call(bus, method, &arguments));
    let reply = loop {
        tokio::select! {
            biased;
            // Cancel-safe: a message is taken from the queue only when it is returned.
            end = next(&mut ends) => early.push(ended(method, end)?),
            // Not cancelled: the same future is polled until it ends.
            reply = &mut reply => break reply?,
        }
    };
    let job: OwnedObjectPath = reply.body().deserialize().map_err(failed)?;
    let mut seen = early.into_iter();
    loop {
        let end = match seen.next() {
            Some(end) => end,
            None => ended(method, next(&mut ends).await)?,
        };
        if end.job == job {
            return Ok(end.result);
        }
    }
}

async fn next(stream: &mut MessageStream) -> Option<zbus::Result<Message>> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

fn ended(method: &'static str, message: Option<zbus::Result<Message>>) -> Result<Ended, HostError> {
    let closed = || zbus::Error::Failure("the bus closed the connection".to_owned());
    let message = message.ok_or_else(closed).and_then(|message| message);
    let body =
        message.and_then(|message| message.body().deserialize::<(u32, OwnedObjectPath, String, String)>());
    body.map(|(_, job, _, result)| Ended { job, result }).map_err(|source| bus_error(method, source))
}

async fn call<B>(bus: &Connection, method: &'static str, body: &B) -> Result<Message, HostError>
where
    B: serde::Serialize + Type,
{
    let reply = bus.call_method(Some(SERVICE), OBJECT, Some(MANAGER), method, body).await;
    reply.map_err(|source| bus_error(method, source))
}

async fn within<T>(
    object: String,
    limit: Duration,
    work: impl Future<Output = Result<T, HostError>>,
) -> Result<T, HostError> {
    let timed_out = HostError::Timeout { object, seconds: limit.as_secs() };
    tokio::time::timeout(limit, work).await.unwrap_or(Err(timed_out))
}

fn bus_error(method: &'static str, source: zbus::Error) -> HostError {
    HostError::Bus { call: format!("{MANAGER}.{method}"), source: Box::new(source) }
}
