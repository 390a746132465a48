//! How the agent is run: what is otherwise in the daemon and in `apply`.

/// How long the agent lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until it is stopped: the daemon.
    Stopped,
    /// Until nothing is left to do by itself: `apply`.
    Settled,
}

/// What happens when an update needs a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboots {
    /// It is asked for.
    Asked,
    /// It is left to the caller; the record waits for the next boot.
    Left,
}
