//! Errors of reading a kind.

use std::time::Duration;

use kube::runtime::watcher;

/// Error of reading a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The status of the answer, 0 without one.
    pub(super) code: u16,
    /// For people.
    pub(super) cause: String,
    /// The time that a busy server named.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// Takes the cause, without the unreadable text: an object may hold secrets.
    pub(super) fn new(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::from_request(error),
            watcher::Error::WatchError(status) => Self::with_code(status.code, error.to_string()),
            watcher::Error::NoResourceVersion => Self::with_code(0, error.to_string()),
        }
    }

    /// Creates one with the status of an answer, 0 without one.
    pub(super) const fn with_code(code: u16, cause: String) -> Self {
        Self { code, cause, retry_after: None }
    }

    /// Takes the time that a busy server named.
    pub(super) fn with_retry_after(self, named: Option<Duration>) -> Self {
        Self { retry_after: named.filter(|_| self.code == 429), ..self }
    }

    /// As one of an API server that has just started: it refuses everything until it has read its roles.
    pub(super) fn of_start(self) -> Self {
        Self { code: 503, cause: format!("{}, while the API server starts", self.cause), ..self }
    }

    /// Returns true if the API server refuses it: it does not pass by itself. A token that is renewed, a kind that is
    /// about to be served, an expired version and a busy server do.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code, 400..500) && !matches!(self.code, 401 | 404 | 408 | 410 | 429)
    }

    fn from_request(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            Self::with_code(status.code, format!("{} ({})", status.message, status.code))
        } else if let kube::Error::SerdeError(_) = error {
            Self::with_code(0, "its answer can't be read".to_owned())
        } else {
            Self::with_code(0, super::client::chain(error))
        }
    }
}
