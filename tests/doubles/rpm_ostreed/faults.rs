//! Faults, set by tests over the bus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use zbus::interface;

use crate::{Daemon, NAME};

/// The faults; none by default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Faults {
    /// Work waits in its middle until it is released.
    pub(crate) hold: bool,
    /// Work ends with this message.
    pub(crate) fail: Option<String>,
    /// Methods whose work fails; all of them where it is empty.
    pub(crate) fail_only: Option<String>,
    /// An image with this reference is staged instead.
    pub(crate) wrong: Option<String>,
    /// Requests for packages are forgotten.
    pub(crate) forget_packages: bool,
    /// So many clients get no answer to their greeting.
    pub(crate) no_reply: u32,
    /// Another program holds the sysroot.
    pub(crate) sysroot_busy: bool,
    /// The process dies in the middle of the work.
    pub(crate) die: bool,
    /// The work is done, its end is lost: the process dies before it signals.
    pub(crate) die_after: bool,
    /// The name leaves the bus in the middle of the work; the socket stays.
    pub(crate) drop_name: bool,
    /// The packages that images hold, by reference.
    pub(crate) images: BTreeMap<String, BTreeSet<String>>,
    /// The unit of the daemon is masked: the bus answers with that error.
    pub(crate) masked: bool,
    /// Messages sent before the work: more than a client's queue holds.
    pub(crate) chatter: u32,
}

impl Faults {
    pub(crate) fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The interface for tests.
pub(crate) struct Control(pub(crate) Arc<Daemon>);

#[interface(name = "double.Control")]
impl Control {
    /// Sets the faults, as JSON.
    fn set(&self, faults: &str) {
        *self.0.faults.lock().unwrap() = serde_json::from_str(faults).unwrap();
    }

    /// Lets held work go on.
    fn release(&self) {
        self.0.released.notify_one();
    }

    /// Answers when a transaction is held.
    async fn held(&self) {
        self.0.held.notified().await;
    }

    /// Answers when a call has joined the transaction that runs.
    async fn joined(&self) {
        self.0.joined.notified().await;
    }

    /// Returns the methods that made a transaction since the last call.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.log.lock().unwrap())
    }

    /// Returns the deployments as JSON, the next boot's first.
    async fn deployments(&self) -> String {
        serde_json::to_string(&self.0.backing.list().await).unwrap()
    }

    /// Returns the number of reloads that clients requested since the last call.
    fn reloads(&self) -> u32 {
        self.0.reloads.swap(0, std::sync::atomic::Ordering::Relaxed)
    }

    /// Leaves the bus as the daemon does when it is idle.
    async fn leave(&self) {
        let connection = self.0.connection.get().unwrap();
        connection.release_name(NAME).await.unwrap();
    }

    /// Ends at once.
    fn die(&self) {
        std::process::exit(9);
    }
}
