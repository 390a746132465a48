//! What keeps a step from being carried out.

use crate::host::HostError;
use crate::model::{Class, ImageRef};

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The host did not let it be done.
    #[error("{object} can't be brought to the host")]
    Host {
        /// The step, or the batch of steps.
        object: String,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The originals could not be saved or read: nothing is changed without them.
    #[error("the originals of {object} can't be saved or read")]
    Originals {
        /// The batch.
        object: &'static str,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The step belongs to another OS tooling.
    #[error("{step} is not possible with the OS backend {backend}")]
    Unsupported {
        /// The step.
        step: String,
        /// The backend.
        backend: &'static str,
    },
    /// The backend staged something else.
    #[error("{wanted} was to be staged, but {staged} is")]
    WrongImage {
        /// What was asked for.
        wanted: ImageRef,
        /// What is staged.
        staged: String,
    },
    /// The plan names something that its config does not have.
    #[error("{step} has no counterpart in the config {config}")]
    NotInConfig {
        /// The step.
        step: String,
        /// The config.
        config: String,
    },
}

impl ApplyError {
    pub(super) fn host(object: impl Into<String>) -> impl FnOnce(HostError) -> Self {
        let object = object.into();
        move |source| Self::Host { object, source }
    }

    pub(super) fn originals(object: &'static str) -> impl FnOnce(HostError) -> Self {
        move |source| Self::Originals { object, source }
    }

    /// Returns the class.
    pub fn class(&self) -> Class {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } => source.class(),
            Self::Unsupported { .. } => Class::Degraded,
            // Staging again may heal it: someone else staged in between.
            Self::WrongImage { .. } => Class::Retry,
            Self::NotInConfig { .. } => Class::Fatal,
        }
    }

    /// Returns a bounded word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } => source.reason(),
            Self::Unsupported { .. } => "UnsupportedByBackend",
            Self::WrongImage { .. } => "WrongImageStaged",
            Self::NotInConfig { .. } => "BrokenPlan",
        }
    }

    /// Returns what a person does next.
    pub fn next(&self) -> String {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } => source.next(),
            Self::Unsupported { .. } => {
                "Build it into the OS image, or run the agent with a backend that can do it.".to_owned()
            }
            Self::WrongImage { .. } => {
                "Find out who else stages deployments on this node (ostree admin status).".to_owned()
            }
            Self::NotInConfig { .. } => {
                "Report it, with `journalctl -u machine-config-agent`; the record on the node is not consistent."
                    .to_owned()
            }
        }
    }
}
