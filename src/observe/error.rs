//! Errors of an observation.

use crate::host::HostError;
use crate::model::{FaultClass, ImageRef, ModelError};

/// A failed look at the host.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The host did not let it be seen.
    #[error("can't inspect {object}")]
    Host {
        /// The observed object.
        object: &'static str,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The image can't be looked at, or this host can't boot it. The words are MCD's: tests of clusters look for them.
    #[error("failed to update OS to {image}")]
    Image {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The home directory of an account is no place for keys.
    #[error("the keys of {user} can't be found: its home directory is {home:?}")]
    Home {
        /// The account.
        user: String,
        /// The home directory in passwd.
        home: String,
        /// The rule it breaks.
        #[source]
        source: ModelError,
    },
}

impl ObserveError {
    pub(super) fn wrap(object: &'static str) -> impl Fn(HostError) -> Self + Copy {
        move |source| Self::Host { object, source }
    }

    pub(super) fn image(image: &ImageRef) -> impl FnOnce(HostError) -> Self {
        let image = image.clone();
        move |source| Self::Image { image, source }
    }

    pub(super) fn home(user: &str, home: &str) -> impl Fn(ModelError) -> Self {
        move |source| Self::Home { user: user.to_owned(), home: home.to_owned(), source }
    }

    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Host { source, .. } | Self::Image { source, .. } => source.class(),
            Self::Home { .. } => FaultClass::Degraded,
        }
    }

    /// Returns a bounded word for events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host { source, .. } | Self::Image { source, .. } => source.reason(),
            Self::Home { .. } => "HomeDirectory",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Host { source, .. } | Self::Image { source, .. } => source.next(),
            Self::Home { user, .. } => format!(
                "Give {user} an absolute home directory without .. in /etc/passwd (usermod --home), not one of the system."
            ),
        }
    }
}
