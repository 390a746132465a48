//! Failures of queries to a registry, and their retries.

use std::time::Duration;

use super::RegistryError;
use super::options::TIMEOUT;

/// Condition of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Not before the server gets the request again.
    After(Duration),
    /// After a while.
    Later,
    /// After a person has changed something: credentials, a name, the registry's settings.
    OnChange,
}

/// A question without an answer. None holds a secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It names no image.
    #[error(
        "{image:?} is not the name of an image: {rule}; give it as registry/name:tag or registry/name@sha256:HEX"
    )]
    Reference {
        /// The name.
        image: String,
        /// The cause.
        rule: &'static str,
    },
    /// 401 or 403.
    #[error("registry {registry} refuses {repository} ({status}) {}; {}", account(*.had_account), next(*.had_account))]
    Denied {
        /// Which.
        registry: String,
        /// Of whose images.
        repository: String,
        /// The answer.
        status: u16,
        /// True if the credentials have an account of this registry.
        had_account: bool,
    },
    /// 429.
    #[error("registry {registry} has too many requests (429){}; the controller retries later", wait(.after.as_ref()))]
    TooManyRequests {
        /// Which.
        registry: String,
        /// Wait that the registry requests.
        after: Option<Duration>,
    },
    /// 5xx.
    #[error("registry {registry} fails ({status}); check its log; the controller retries later")]
    Server {
        /// Which.
        registry: String,
        /// The answer.
        status: u16,
        /// Wait that the registry requests.
        after: Option<Duration>,
    },
    /// It deletes nothing.
    #[error("registry {registry} deletes no images (405); enable deletion there, or delete them manually")]
    DeletionOff {
        /// Which.
        registry: String,
    },
    /// Another status.
    #[error("registry {registry} answers {status}; check its log")]
    Unexpected {
        /// Which.
        registry: String,
        /// The answer.
        status: u16,
    },
    /// Somebody else answers in its place.
    #[error(
        "{registry} is not a registry: the answer to /v2/ (status {status}) is not from one; check the proxy or load balancer in front \
         of it"
    )]
    NoRegistry {
        /// Which.
        registry: String,
        /// The answer.
        status: u16,
    },
    /// A page for people.
    #[error(
        "registry {registry} returned an HTML page, as a login proxy does; check the proxy in front of it"
    )]
    Page {
        /// Which.
        registry: String,
    },
    /// An answer that can't be used.
    #[error("registry {registry}: unexpected response: {what}; check its log")]
    Answer {
        /// Which.
        registry: String,
        /// The cause.
        what: &'static str,
    },
    /// No connection, no TLS, or it broke.
    #[error("registry {registry} can't be reached: {cause}; the controller retries later")]
    Unreachable {
        /// Which.
        registry: String,
        /// Why.
        cause: String,
    },
    /// It takes too long.
    #[error("registry {registry} has not answered within {} s; the controller retries later", TIMEOUT.as_secs())]
    Timeout {
        /// Which.
        registry: String,
    },
    /// The certificates that are to be trusted, or the machine's own.
    #[error(
        "certificates for registry {registry} can't be read: {cause}; correct the trust bundle, or install ca-certificates"
    )]
    Trust {
        /// Which.
        registry: String,
        /// Why.
        cause: String,
    },
}

impl Failure {
    /// Returns when to ask again.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::TooManyRequests { after: Some(after), .. } | Self::Server { after: Some(after), .. } => {
                Retry::After(*after)
            }
            Self::TooManyRequests { .. }
            | Self::Server { .. }
            | Self::NoRegistry { .. }
            | Self::Page { .. }
            | Self::Answer { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. } => Retry::Later,
            Self::Reference { .. }
            | Self::Denied { .. }
            | Self::DeletionOff { .. }
            | Self::Unexpected { .. }
            | Self::Trust { .. } => Retry::OnChange,
        }
    }
}

impl From<Failure> for RegistryError {
    fn from(failure: Failure) -> Self {
        match failure.retry() {
            Retry::After(_) | Retry::Later => Self::Unavailable(failure.to_string()),
            Retry::OnChange => Self::Refused(failure.to_string()),
        }
    }
}

fn account(had: bool) -> &'static str {
    if had { "to the account of the Secret" } else { "without an account" }
}

fn next(had: bool) -> &'static str {
    if had {
        "give the account the right, or put another one into the Secret"
    } else {
        "put an account of this registry into the Secret"
    }
}

fn wait(after: Option<&Duration>) -> String {
    after.map(|after| format!(", for {} s", after.as_secs())).unwrap_or_default()
}
