//! Errors of the journal's state files.

use crate::host::HostError;
use crate::model::{ConfigName, FaultClass, ModelError};
use crate::update::IllegalTransition;

/// A journal that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A read or write failed.
    #[error("the agent's state can't be read or written")]
    Host(#[from] HostError),
    /// The files that the machine-config-daemon would read after this agent can't be written.
    #[error("the config can't be committed: the files of machine-config-daemon can't be kept up to date")]
    Mcd(#[source] HostError),
    /// The files of the machine-config-daemon can't be taken over.
    #[error("the state of machine-config-daemon can't be taken over")]
    Import(#[source] HostError),
    /// The config that the machine-config-daemon committed is no object with a name.
    #[error(
        "{path}, the config that machine-config-daemon committed, can't be read: {cause}; nothing was touched"
    )]
    NotImported {
        /// The file.
        path: String,
        /// The parser's message.
        cause: String,
    },
    /// A file of the state does not have this agent's contents.
    #[error("{path} can't be read as {what}: {cause}; nothing was touched")]
    Unreadable {
        /// The file.
        path: String,
        /// The expected content.
        what: &'static str,
        /// The parser's message.
        cause: String,
    },
    /// Something else is in the place of a file or a directory of the state.
    #[error("{path} can't be used: it is {found}, not {expected}")]
    Misplaced {
        /// The path.
        path: String,
        /// The expected kind.
        expected: &'static str,
        /// The kind found.
        found: &'static str,
    },
    /// A newer agent wrote the file.
    #[error("{path} {found}; nothing was touched")]
    Newer {
        /// The file.
        path: String,
        /// Its version or word that this agent does not know.
        found: String,
    },
    /// A file that belongs to the record is missing.
    #[error("{path} is missing or is not the target {config} of the update in progress; nothing was touched")]
    Lost {
        /// The file.
        path: String,
        /// The config it should hold.
        config: ConfigName,
    },
    /// Another process holds the lock.
    #[error("another machine-config-agent works on this host (it holds {path})")]
    Locked {
        /// The lock file.
        path: String,
    },
    /// Another process holds the lock of the work on stateroots.
    #[error("another machine-config-agent works on a stateroot (it holds {path})")]
    StaterootLocked {
        /// The lock file.
        path: String,
    },
    /// A stored config is not valid any more.
    #[error("a stored config is not valid")]
    Model(#[from] ModelError),
    /// A phase was to be moved along no edge.
    #[error(transparent)]
    Edge(#[from] IllegalTransition),
    /// There is no update to move.
    #[error("there is no update that could take {what}: this is a defect of the agent")]
    NoUpdate {
        /// The event or phase.
        what: &'static str,
    },
}

impl JournalError {
    /// Returns the class for the node.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Host(error) | Self::Mcd(error) | Self::Import(error) => error.class(),
            Self::Locked { .. } | Self::StaterootLocked { .. } | Self::NotImported { .. } => {
                FaultClass::Degraded
            }
            Self::Unreadable { .. }
            | Self::Misplaced { .. }
            | Self::Newer { .. }
            | Self::Lost { .. }
            | Self::Model(_)
            | Self::Edge(_)
            | Self::NoUpdate { .. } => FaultClass::Fatal,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host(_) => "StateNotWritable",
            Self::Mcd(error) | Self::Import(error) => error.reason(),
            Self::NotImported { .. } => "MalformedFile",
            Self::Unreadable { .. } | Self::Misplaced { .. } => "StateUnreadable",
            Self::Newer { .. } => "StateNewer",
            Self::Lost { .. } => "StateLost",
            Self::Locked { .. } | Self::StaterootLocked { .. } => "StateLocked",
            Self::Model(_) => "StateInvalid",
            Self::Edge(_) | Self::NoUpdate { .. } => "AgentDefect",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Host(error) | Self::Mcd(error) | Self::Import(error) => error.next(),
            Self::Unreadable { path, .. } => restore(path, false),
            Self::Misplaced { path, .. } => restore(path, true),
            Self::NotImported { path, .. } => format!(
                "Restore {path} from a backup, or move it away: the node then counts as never managed, and what it lacks of \
                 its target is written."
            ),
            Self::Newer { path, .. } => {
                format!(
                    "Install the newer agent again: it continues from here. Without it: {}",
                    lower(&restore(path, false))
                )
            }
            Self::Lost { path, .. } => {
                format!(
                    "Restore {path}, or {KEEP_UNDO}, then move record.json out of that directory to start over."
                )
            }
            Self::StaterootLocked { .. } => "Wait until it exits, or stop it.".to_owned(),
            Self::Locked { .. } => {
                "Wait until it exits; the daemon stops with `systemctl stop machine-config-agent`.".to_owned()
            }
            Self::Model(_) => "Correct the MachineConfig; the agent notices the change.".to_owned(),
            Self::Edge(_) | Self::NoUpdate { .. } => {
                "Report it, with `journalctl -u machine-config-agent` and record.json's phase.".to_owned()
            }
        }
    }
}

/// Without its record, an update's originals go with the next start.
const KEEP_UNDO: &str =
    "copy /var/lib/machine-config-agent/preimages elsewhere (only these originals can undo the update)";

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns the way out of a file or a directory of the state that can't be used.
fn restore(path: &str, is_misplaced: bool) -> String {
    let moved = |what: &str| format!("Restore {path} from a backup, or move it away{what}");
    if is_misplaced && path.ends_with("lock") {
        return format!("Move {path} away; the agent creates a new one.");
    }
    if is_misplaced && path.ends_with("/history") {
        return format!("Move {path} away: the list of past updates starts empty.");
    }
    if path.ends_with("/target.json") {
        // Alone, without its target, the record would be refused next.
        let record = if is_misplaced { "it and record.json" } else { "record.json" };
        return format!(
            "Restore {path} from a backup, or {KEEP_UNDO}, then move {record} out of that directory to start over."
        );
    }
    if path.ends_with("/record.json") {
        return format!("Restore {path} from a backup, or {KEEP_UNDO}, then move {path} away to start over.");
    }
    if path.ends_with("/accounts.json") {
        return moved(": the agent then treats the accounts in it as the host's own.");
    }
    if path.ends_with("/kargs.json") {
        return moved(
            ": arguments that earlier configs left on the kernel's command line then count as the host's own.",
        );
    }
    if path.ends_with("/preimages") || path.ends_with("/kept") {
        return moved(": the originals in it are lost, and no update can restore them.");
    }
    if path.contains("/preimages/kept/") {
        return moved(": the managed path then stays on this host when the config no longer lists it.");
    }
    if path.contains("/preimages/") {
        return moved(": no undo reverts the changes that this batch of the open update already made.");
    }
    moved(" to start over.")
}

/// Error of an advance.
#[derive(Debug, thiserror::Error)]
pub enum AdvanceError<E> {
    /// The record could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The effect failed.
    #[error("the step failed")]
    Effect(#[source] E),
}
