//! How the agent runs. Only here the daemon and `apply` differ.

/// How long the agent runs.
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
    /// Returns true for all but `apply`. A service waits, watches the host, repairs drift and leaves a hint for logins: who
    /// runs `apply` reads its output.
    pub fn is_service(self) -> bool {
        self != Self::OneShot
    }
}

/// What happens when an update needs a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboots {
    /// The agent requests it.
    Asked,
    /// The caller reboots; the record waits for the next boot.
    Left,
}

/// Why the agent's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal stopped it.
    Stopped,
    /// Nothing is left to do by itself.
    Settled,
    /// The machine has to reboot, and the caller or a supervisor does it.
    Reboot,
}
