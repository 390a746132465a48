//! One call to the running systemd over D-Bus, its time limit, and the meaning of its errors.

use std::time::Duration;

use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type};
use zbus::{Connection, Message};

use crate::host::HostError;
use crate::model::UnitName;

pub(super) const SERVICE: &str = "org.freedesktop.systemd1";
pub(super) const OBJECT: &str = "/org/freedesktop/systemd1";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const SERVICE_UNIT: &str = "org.freedesktop.systemd1.Service";

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
    let reply = bus.call_method(Some(SERVICE), path, properties, "Get", &(interface, name)).await;
    let value = reply.and_then(|reply| reply.body().deserialize::<OwnedValue>());
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

/// Has systemd tell its signals on this connection, which may have been requested before.
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

/// Returns systemd's own message when systemd itself refused, and not the bus: a retry changes nothing then.
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

/// Returns the name of systemd's error, if it was one.
pub(super) fn error_name(error: &HostError) -> Option<&str> {
    let HostError::Bus { source, .. } = error else { return None };
    match source.downcast_ref::<zbus::Error>() {
        Some(zbus::Error::MethodError(name, ..)) => Some(name.as_str()),
        _ => None,
    }
}
