//! What can go wrong with a control plane.

use crate::host::HostError;
use crate::model::{Class, ConfigName, ModelError};

/// A target that can't be read, or a report that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A file of the directory could not be read or written.
    #[error("the control directory can't be used")]
    Host(#[from] HostError),
    /// The target is not valid.
    #[error("{document} is not valid")]
    Invalid {
        /// Which document.
        document: String,
        /// What is wrong.
        #[source]
        source: ModelError,
    },
    /// The wanted MachineConfig is not there.
    #[error("MachineConfig {config} is not there: {place} has neither {config}.yaml nor {config}.json")]
    Missing {
        /// The config.
        config: ConfigName,
        /// Where it was looked for.
        place: String,
    },
    /// A file holds another object than its name says.
    #[error("{document} holds MachineConfig {found}, not {config}")]
    Misnamed {
        /// The file.
        document: String,
        /// The name it should hold.
        config: ConfigName,
        /// The name it holds.
        found: ConfigName,
    },
}

impl ControlError {
    /// Returns what it means for the node: a change of the source mends each of these.
    pub fn class(&self) -> Class {
        match self {
            Self::Host(error) => error.class(),
            Self::Invalid { source, .. } => source.class(),
            Self::Missing { .. } | Self::Misnamed { .. } => Class::Degraded,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host(error) => error.reason(),
            Self::Invalid { source, .. } => source.reason(),
            Self::Missing { .. } => "ConfigNotFound",
            Self::Misnamed { .. } => "ConfigMisnamed",
        }
    }

    /// Returns what a person does next.
    pub fn next(&self) -> String {
        match self {
            Self::Host(error) => error.next(),
            Self::Invalid { document, .. } | Self::Misnamed { document, .. } => {
                format!("Correct {document}; the agent notices by itself.")
            }
            Self::Missing { place, .. } => {
                format!("Put the MachineConfig into {place}; the agent notices by itself.")
            }
        }
    }
}
