//! Errors of a build's context.

use crate::model::ModelError;

/// Error of a build's context. Each names the object, the cause and the next step; nothing was created.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The user's Containerfile.
    #[error("the Containerfile, line {line}: {cause}")]
    Containerfile {
        /// The line, from 1.
        line: usize,
        /// The cause and the next step.
        cause: String,
    },
    /// A field that can't stand in a Containerfile.
    #[error("{field} {value:?}: {cause}")]
    Field {
        /// Which.
        field: &'static str,
        /// Its content.
        value: String,
        /// The cause and the next step.
        cause: &'static str,
    },
    /// The rendered config can't be read.
    #[error(transparent)]
    Config(#[from] ModelError),
    /// A part of the config that has no text.
    #[error("the config can't be written: {0}")]
    Json(#[from] serde_json::Error),
    /// Unreachable: the archive is in memory.
    #[error("the config can't be compressed: {0}; report this with the MachineConfig")]
    Archive(#[from] std::io::Error),
}
