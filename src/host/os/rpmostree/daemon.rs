//! The daemon of rpm-ostree on the system bus: calls, properties, and whether it is still there.
//!
//! Invariant: properties are read, never remembered: the daemon leaves the bus after a minute without clients,
//! and a cache is old then.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type, Value};
use zbus::{Connection, MatchRule, Message, MessageStream};

use crate::host::root::Root;
use crate::host::systemd::bus;
use crate::host::{HostError, os};
use os::error::{OsError, OsErrorKind, SYSROOT};

use super::deployments::{Deployment, Dictionary, State, kargs, text};
use super::transaction::Peer;

const SERVICE: &str = "org.projectatomic.rpmostree1";
const SYSROOT_OBJECT: &str = "/org/projectatomic/rpmostree1/Sysroot";
const SYSROOT_INTERFACE: &str = "org.projectatomic.rpmostree1.Sysroot";
const OS_INTERFACE: &str = "org.projectatomic.rpmostree1.OS";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// The name under which the daemon shows this client, the same in every process of the agent.
const CLIENT: &str = "machine-config-agent";

/// Tries of a greeting: the daemon may be about to leave the bus for want of clients, once; the second call starts
/// it again. One more for a start that meets a reboot of the bus.
const GREETINGS: usize = 3;

/// Time limit of the daemon's start. The bus gives up after 25 s, while systemd continues starting it: a greeting after
/// that waits for the same start. Five minutes are the `TimeoutStartSec=` of its unit; systemd has given up by then, too.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Signals that wait until they are read: the daemon signals a change of its properties a few times a transaction.
const QUEUE: usize = 64;

/// Error of a call.
#[derive(Debug)]
pub(super) enum CallError {
    /// Another transaction runs.
    Busy,
    /// The desired image is pending already.
    Same,
    /// The daemon is not there, or went away before it answered.
    Gone(HostError),
    /// The work was begun, and failed.
    Work(HostError),
    /// It has not started yet, for as long as the bus waits.
    Starting(HostError),
    /// Anything else, or the sysroot is held by another program.
    Failed(HostError),
}

impl CallError {
    /// Converts it to an error of the host.
    pub(super) fn into_error(self) -> HostError {
        let failure = |trouble, cause| OsError::new(trouble, SYSROOT, cause).into_error();
        match self {
            Self::Busy => failure(OsErrorKind::Busy, "another rpm-ostree transaction is in progress"),
            Self::Same => {
                failure(OsErrorKind::RpmOstree, "rpm-ostree has this image already, but shows another one")
            }
            Self::Gone(error) | Self::Work(error) | Self::Starting(error) | Self::Failed(error) => error,
        }
    }
}

/// The connection to it.
#[derive(Debug)]
pub(super) struct Daemon {
    bus: Connection,
    root: Root,
    /// The object of the booted stateroot.
    os: OwnedObjectPath,
}

impl Daemon {
    /// Connects, starts the daemon if it does not run, and keeps it from leaving while this value lives.
    pub(super) async fn open(root: &Root) -> Result<Self, HostError> {
        let bus = bus::system(root).await?;
        let options = HashMap::from([("id", Value::from(CLIENT))]);
        let (mut greeting, began) = (1, Instant::now());
        loop {
            match call(&bus, SYSROOT_OBJECT, SYSROOT_INTERFACE, "RegisterClient", &options).await {
                Ok(_) => break,
                Err(CallError::Gone(_)) if greeting < GREETINGS => greeting += 1,
                Err(CallError::Starting(_)) if began.elapsed() < START_TIMEOUT => {}
                Err(refused) => return Err(refused.into_error()),
            }
        }
        let mut daemon = Self { bus, root: root.clone(), os: OwnedObjectPath::default() };
        daemon.os = daemon.property(SYSROOT_INTERFACE, "Booted").await?;
        if daemon.os.as_str() == "/" {
            let cause = "rpm-ostree reports that this machine was not booted from it";
            return Err(OsError::new(OsErrorKind::NotBooted, SYSROOT, cause).into_error());
        }
        Ok(daemon)
    }

    /// Has the daemon look at the sysroot again, and reads its state.
    pub(super) async fn state(&self) -> Result<State, HostError> {
        let reload = call(&self.bus, SYSROOT_OBJECT, SYSROOT_INTERFACE, "Reload", &()).await;
        reload.map_err(CallError::into_error)?;
        self.last_state().await
    }

    /// Reads the state that the daemon saw last: at the latest before it reported the end of its last transaction.
    pub(super) async fn last_state(&self) -> Result<State, HostError> {
        let (dictionaries, booted_line, next_line) = tokio::try_join!(
            self.property::<Vec<Dictionary>>(SYSROOT_INTERFACE, "Deployments"),
            self.line(false),
            self.line(true),
        )?;
        Ok(State {
            deployments: dictionaries.iter().map(Deployment::from_dictionary).collect(),
            booted_kargs: kargs(&booted_line),
            next_kargs: kargs(&next_line),
            next_line,
        })
    }

    /// Reads a command line: of the pending deployment, else of the booted one; or of the latter in any case.
    async fn line(&self, pending: bool) -> Result<String, HostError> {
        let reply =
            self.os_call("GetDeploymentBootConfig", &("", pending)).await.map_err(CallError::into_error)?;
        let config: Dictionary = read(&reply, "GetDeploymentBootConfig")?;
        Ok(config.get("options").and_then(text).unwrap_or_default())
    }

    /// Requests work; the answer is the address to follow it.
    pub(super) async fn transaction<B>(&self, method: &'static str, body: &B) -> Result<String, CallError>
    where
        B: serde::Serialize + Type,
    {
        let reply = self.os_call(method, body).await?;
        read(&reply, method).map_err(CallError::Failed)
    }

    /// Returns the address of the transaction that runs, and its method; `None` when none does.
    pub(super) async fn active(&self) -> Result<Option<(String, String)>, HostError> {
        let address: String = self.property(SYSROOT_INTERFACE, "ActiveTransactionPath").await?;
        if address.is_empty() {
            return Ok(None);
        }
        let active: OwnedValue = self.property_value(SYSROOT_INTERFACE, "ActiveTransaction").await?;
        let (method, _, _) = <(String, String, String)>::try_from(active).unwrap_or_default();
        Ok(Some((address, method)))
    }

    /// Connects to a transaction.
    pub(super) async fn follow(&self, address: &str) -> Result<Peer, HostError> {
        Peer::open(self.root.base(), address).await
    }

    /// Listens for changes of the daemon's properties.
    pub(super) async fn changes(&self) -> Result<MessageStream, HostError> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .path(SYSROOT_OBJECT)
            .and_then(|rule| rule.interface(PROPERTIES))
            .and_then(|rule| rule.member("PropertiesChanged"))
            .map_err(|source| bus_error("PropertiesChanged", source))?;
        self.listen(rule.build()).await
    }

    /// Listens for the end of the daemon.
    pub(super) async fn owners(&self) -> Result<MessageStream, HostError> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender("org.freedesktop.DBus")
            .and_then(|rule| rule.member("NameOwnerChanged"))
            .and_then(|rule| rule.add_arg(SERVICE))
            .map_err(|source| bus_error("NameOwnerChanged", source))?;
        self.listen(rule.build()).await
    }

    async fn listen(&self, rule: MatchRule<'static>) -> Result<MessageStream, HostError> {
        let stream = MessageStream::for_match_rule(rule, &self.bus, Some(QUEUE)).await;
        stream.map_err(|source| bus_error("AddMatch", source))
    }

    async fn os_call<B>(&self, method: &'static str, body: &B) -> Result<Message, CallError>
    where
        B: serde::Serialize + Type,
    {
        call(&self.bus, self.os.as_str(), OS_INTERFACE, method, body).await
    }

    async fn property<T>(&self, interface: &str, name: &'static str) -> Result<T, HostError>
    where
        T: TryFrom<OwnedValue>,
    {
        let value = self.property_value(interface, name).await?;
        T::try_from(value).map_err(|_| {
            bus_error(
                name,
                zbus::Error::Failure("the property is of another type than documented".to_owned()),
            )
        })
    }

    async fn property_value(&self, interface: &str, name: &'static str) -> Result<OwnedValue, HostError> {
        let reply = call(&self.bus, SYSROOT_OBJECT, PROPERTIES, "Get", &(interface, name)).await;
        let reply = reply.map_err(CallError::into_error)?;
        read(&reply, name)
    }
}

async fn call<B>(
    bus: &Connection,
    object: &str,
    interface: &str,
    method: &'static str,
    body: &B,
) -> Result<Message, CallError>
where
    B: serde::Serialize + Type,
{
    let reply = bus.call_method(Some(SERVICE), object, Some(interface), method, body).await;
    reply.map_err(|source| refused(method, source))
}

fn read<T>(reply: &Message, method: &'static str) -> Result<T, HostError>
where
    T: serde::de::DeserializeOwned + Type,
{
    reply.body().deserialize().map_err(|source| bus_error(method, source))
}

/// Classifies an error on the bus. The daemon's own have no names of their own, only texts.
fn refused(method: &'static str, source: zbus::Error) -> CallError {
    let zbus::Error::MethodError(name, text, _) = &source else {
        return CallError::Failed(bus_error(method, source));
    };
    let text = text.clone().unwrap_or_default();
    let text = text.trim();
    if text.starts_with("Transaction in progress") {
        CallError::Busy
    } else if text.contains("Old and new refs are equal") {
        CallError::Same
    } else if matches!(
        name.as_str(),
        "org.freedesktop.DBus.Error.NoReply"
            | "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner"
            | "org.freedesktop.DBus.Error.Disconnected"
    ) {
        let cause = format!("{method}: the daemon of rpm-ostree does not answer: {text}");
        CallError::Gone(OsError::new(OsErrorKind::DaemonLost, SYSROOT, cause).into_error())
    } else if name.as_str() == "org.freedesktop.systemd1.UnitMasked" || text.contains(" is masked") {
        let cause = format!("the daemon of rpm-ostree can't be started: {text}");
        CallError::Failed(OsError::new(OsErrorKind::DaemonMasked, SYSROOT, cause).into_error())
    } else if name.as_str() == "org.freedesktop.DBus.Error.TimedOut" {
        let cause = format!("the daemon of rpm-ostree has not started: {text}");
        CallError::Starting(OsError::new(OsErrorKind::DaemonLost, SYSROOT, cause).into_error())
    } else if name.starts_with("org.freedesktop.DBus.Error.Spawn") {
        let cause = format!("the daemon of rpm-ostree can't be started: {text}");
        CallError::Failed(OsError::new(OsErrorKind::DaemonLost, SYSROOT, cause).into_error())
    } else {
        CallError::Failed(
            OsError::from_text(SYSROOT, &format!("{method}: {text}"), OsErrorKind::RpmOstree).into_error(),
        )
    }
}

fn bus_error(what: &'static str, source: zbus::Error) -> HostError {
    HostError::Bus { call: format!("{SERVICE} {what}"), source: Box::new(source) }
}
