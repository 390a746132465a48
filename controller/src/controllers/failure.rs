//! Errors of reading a kind.

use std::time::Duration;

use kube::runtime::watcher;

use crate::retry::is_same;

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
            watcher::Error::WatchError(status) => Self::from_status(status),
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

    /// Returns true if it is the same, whatever in its words changes with each try.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.code, self.retry_after) == (other.code, other.retry_after) && is_same(&self.cause, &other.cause)
    }

    /// Returns true if the API server refuses it: it does not pass by itself. A token that is renewed, a kind that is
    /// about to be served, an expired version and a busy server do.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code, 400..500) && !matches!(self.code, 401 | 404 | 408 | 410 | 429)
    }

    /// Takes the server's words. One that ends watches as their kind is deleted has none.
    fn from_status(status: &kube::core::Status) -> Self {
        let words = [&status.message, &status.reason].into_iter().find(|words| !words.is_empty());
        let cause = match (words, status.code) {
            (None, 0) => "the API server ended it without a cause".to_owned(),
            (None, code) => format!("the API server names no cause ({code})"),
            (Some(words), 0) => words.clone(),
            (Some(words), code) => format!("{words} ({code})"),
        };
        Self::with_code(status.code, cause)
    }

    fn from_request(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            Self::from_status(status)
        } else if let kube::Error::SerdeError(_) = error {
            Self::with_code(0, "its answer can't be read".to_owned())
        } else {
            Self::with_code(0, super::client::chain(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of a kind is deleted while it is watched: the server ends the watch with a status that says nothing.
    #[test]
    fn status_that_says_nothing_is_named_as_such() {
        let empty = || Box::new(kube::core::Status::default());
        for error in
            [watcher::Error::WatchError(empty()), watcher::Error::WatchFailed(kube::Error::Api(empty()))]
        {
            let failure = Failure::new(&error);
            assert_eq!((failure.code, &*failure.cause), (0, "the API server ended it without a cause"));
        }
    }
}
