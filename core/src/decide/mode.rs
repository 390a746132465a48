//! How the agent is run: what is otherwise in the daemon and in `apply`.

/// How long the agent lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until it is stopped: the daemon.
    Stopped,
    /// Until nothing is left to do by itself: `apply`.
    Settled,
}

impl Until {
    /// Returns true if the agent is there when something changes later: it watches the host, repairs drift where that is
    /// wanted, and leaves a hint for logins. Who runs `apply` reads its answer.
    pub fn is_lasting(self) -> bool {
        self == Self::Stopped
    }
}

/// What happens when an update needs a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboots {
    /// It is asked for.
    Asked,
    /// It is left to the caller; the record waits for the next boot.
    Left,
}

/// Why the agent's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was stopped.
    Stopped,
    /// Nothing is left to do by itself.
    Settled,
    /// The machine is to reboot, and somebody else plays it.
    Reboot,
}
