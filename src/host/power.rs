//! The end of a boot, and which boot this is.

use std::fmt;
use std::time::Duration;

use super::root::Root;
use super::{BoxFuture, HostError};
use crate::model::BootId;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// logind answers at once; it only starts the reboot.
const ANSWER: Duration = Duration::from_secs(30);

/// What a reboot that was asked for means for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebooting {
    /// The machine goes down: wait for the end.
    Asked,
    /// A supervisor plays the reboot: end the process.
    Exit,
}

/// What can be asked about boots.
pub trait Power: fmt::Debug {
    /// Returns the id of this boot.
    fn boot_id(&self) -> Result<BootId, HostError>;

    /// Asks for a reboot. `why` is for the people who read the journal.
    fn reboot<'a>(&'a self, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>>;
}

/// A machine with systemd's logind.
#[derive(Debug)]
pub struct Logind {
    root: Root,
}

impl Logind {
    /// Takes the root, which holds the boot's id and the system bus.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone() }
    }
}

impl Power for Logind {
    fn boot_id(&self) -> Result<BootId, HostError> {
        read_boot_id(&self.root)
    }

    fn reboot<'a>(&'a self, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>> {
        Box::pin(async move {
            tracing::info!(why, "asking logind for a reboot: {why}");
            let call = || "login1.Manager.Reboot".to_owned();
            let failed = |source: zbus::Error| HostError::Bus { call: call(), source: Box::new(source) };
            let bus = super::systemd::bus::system(&self.root).await?;
            let asked = bus.call_method(
                Some("org.freedesktop.login1"),
                "/org/freedesktop/login1",
                Some("org.freedesktop.login1.Manager"),
                "Reboot",
                // Not interactive: nobody is there to be asked for a password.
                &false,
            );
            match tokio::time::timeout(ANSWER, asked).await {
                Ok(answer) => answer.map(|_| Rebooting::Asked).map_err(failed),
                Err(_) => Err(HostError::Timeout { object: call(), seconds: ANSWER.as_secs() }),
            }
        })
    }
}

/// A host in a directory: whoever started the process starts it again, as after a reboot.
#[derive(Debug)]
pub struct Supervised {
    root: Root,
}

impl Supervised {
    /// Takes the root, which holds the boot's id.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone() }
    }
}

impl Power for Supervised {
    fn boot_id(&self) -> Result<BootId, HostError> {
        read_boot_id(&self.root)
    }

    fn reboot<'a>(&'a self, why: &'a str) -> BoxFuture<'a, Result<Rebooting, HostError>> {
        Box::pin(async move {
            tracing::info!(why, "ending, so that the supervisor reboots the host: {why}");
            Ok(Rebooting::Exit)
        })
    }
}

fn read_boot_id(root: &Root) -> Result<BootId, HostError> {
    let malformed =
        |cause: String| HostError::Malformed { path: BOOT_ID.to_owned(), format: "a boot id", cause };
    let text = root.read_text(BOOT_ID)?.ok_or_else(|| malformed("there is no such file".to_owned()))?;
    BootId::new(text.trim()).map_err(|error| malformed(error.to_string()))
}
