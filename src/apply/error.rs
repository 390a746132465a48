//! Errors of a step.

use std::time::Duration;

use crate::host::HostError;
use crate::host::os::in_time::Limit;
use crate::model::{FaultClass, ImageRef};
use crate::plan::Step;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The host did not let it be done.
    #[error("failed to apply {object}")]
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
    /// The backend staged something else.
    #[error("staged {staged}, not {desired}")]
    WrongImage {
        /// The requested image.
        desired: ImageRef,
        /// The staged image.
        staged: String,
    },
    /// The next deployment could not be made. The words are MCD's: tests of clusters look for them.
    #[error("failed to update OS to {object}")]
    Stage {
        /// The image or change to stage.
        object: String,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The backend took too long.
    #[error(
        "failed to update OS to {object}: it {} {} s; the last progress is: {last}{}",
        .limit.as_str(), .after.as_secs(),
        if *.ended { "" } else { "; the work in progress can't be stopped either" }
    )]
    Late {
        /// The image or change to stage.
        object: String,
        /// The limit.
        limit: Limit,
        /// The limit.
        after: Duration,
        /// The last progress.
        last: String,
        /// Set if the work was ended.
        ended: bool,
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

    /// Returns true if one step of its batch failed, and it is this one.
    pub(super) fn is_of(&self, step: &Step) -> bool {
        match self {
            Self::Host { object, .. } => *object == step.to_string(),
            Self::Originals { .. }
            | Self::WrongImage { .. }
            | Self::Stage { .. }
            | Self::Late { .. }
            | Self::NotInConfig { .. } => false,
        }
    }

    /// Returns the error of a step that its config or its batch does not allow.
    pub(super) fn foreign(step: &Step, config: &str) -> Self {
        Self::NotInConfig { step: step.to_string(), config: config.to_owned() }
    }

    pub(super) fn originals(object: &'static str) -> impl FnOnce(HostError) -> Self {
        move |source| Self::Originals { object, source }
    }

    /// Sets whether the leftover program was ended.
    pub(super) fn left(mut self, is_ended: bool) -> Self {
        if let Self::Late { ended, .. } = &mut self {
            *ended = is_ended;
        }
        self
    }

    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } | Self::Stage { source, .. } => {
                source.class()
            }
            // Staging again may heal it: someone else staged in between.
            Self::WrongImage { .. } | Self::Late { .. } => FaultClass::Retry,
            Self::NotInConfig { .. } => FaultClass::Fatal,
        }
    }

    /// Returns a bounded word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } | Self::Stage { source, .. } => {
                source.reason()
            }
            Self::WrongImage { .. } => "WrongImageStaged",
            Self::Late { limit, .. } => limit.reason(),
            Self::NotInConfig { .. } => "BrokenPlan",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Host { source, .. } | Self::Originals { source, .. } | Self::Stage { source, .. } => source.next(),
            Self::WrongImage { .. } => {
                "Find the program that stages deployments on this node (ostree admin status).".to_owned()
            }
            Self::Late { limit, .. } => limit.next_step().to_owned(),
            Self::NotInConfig { .. } => {
                "Report it, with `journalctl -u machine-config-agent`; the record on the node is not consistent."
                    .to_owned()
            }
        }
    }
}
