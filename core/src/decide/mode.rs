//! Run modes of the agent. Only here the daemon and `apply` differ.

/// Lifetime of the agent's loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// The daemon: runs until it is stopped.
    Daemon,
    /// `apply`: runs until nothing is left to do by itself.
    OneShot,
    /// `firstboot`: runs until the host is as it should be, however long that takes.
    FirstBoot,
}

impl RunMode {
    /// Returns true for all but `apply`. A service waits, watches the host, repairs drift and leaves a hint for logins:
    /// the caller of `apply` reads its output.
    pub fn is_service(self) -> bool {
        self != Self::OneShot
    }
}

/// Handling of an update that needs a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboots {
    /// The agent requests it.
    Requested,
    /// The caller reboots; the record waits for the next boot.
    Left,
}

/// Reason of the loop's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal stopped it.
    Stopped,
    /// Nothing is left to do by itself.
    Settled,
    /// The machine has to reboot, and the caller or a supervisor does it.
    Reboot,
}
