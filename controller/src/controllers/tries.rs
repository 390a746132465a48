//! Tries of writes that fail, by object: the pauses between them, and when one is told.
//!
//! What the API server refuses is told at once, and tried again with growing pauses, or as soon as its input changes. What it does not answer
//! is told when that happens again, and tried again with pauses that are shorter: it may answer at any moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::client::{RequestError, uptime};
use crate::retry::Retries;

/// The longest pause after a try without an answer.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(30);

/// Tries without an answer before one is told: a connection that breaks once is nobody's concern.
const MAX_UNTOLD: u32 = 2;

/// Failures of writes so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Tries(Arc<Mutex<Failures>>);

#[derive(Debug, Default)]
struct Failures {
    refused: Retries,
    unanswered: Retries,
    /// An input that changes is no reason to ask a server at once that does not answer: it changes all the time.
    is_input_frequent: bool,
}

/// Consequences of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    /// Pause before the next try.
    pub(super) wait: Duration,
    /// It is news for the log.
    pub(super) is_logged: bool,
    /// It is to be told on the object.
    pub(super) is_told: bool,
}

impl Tries {
    /// Of writes whose inputs change all the time.
    pub(super) fn of_frequent_inputs() -> Self {
        let failures = Failures { is_input_frequent: true, ..Failures::default() };
        Self(Arc::new(Mutex::new(failures)))
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time to wait before the next try; `None` if it is due.
    pub(super) fn wait(&self, name: &str, input: &str) -> Option<Duration> {
        let (failures, now) = (self.lock(), uptime());
        let of_server = if failures.is_input_frequent { "" } else { input };
        let waits = [failures.refused.wait(name, input, now), failures.unanswered.wait(name, of_server, now)];
        waits.into_iter().flatten().max()
    }

    /// Records a failure that is no conflict.
    pub(super) fn failed(&self, name: &str, input: &str, error: &RequestError) -> Failed {
        let (mut failures, now, cause) = (self.lock(), uptime(), error.to_string());
        if error.is_refusal() {
            let (wait, is_news) = failures.refused.failed(name, input, &cause, now);
            return Failed { wait, is_logged: is_news, is_told: is_news };
        }
        let input = if failures.is_input_frequent { "" } else { input };
        let (wait, is_news) = failures.unanswered.failed_for(name, input, &cause, LONGEST_UNANSWERED, now);
        let tries = failures.unanswered.tries(name);
        let is_told = tries == MAX_UNTOLD || (is_news && tries > MAX_UNTOLD);
        Failed { wait, is_logged: is_news, is_told }
    }

    /// Returns the cause of the last failure of what has not been written since.
    pub(super) fn cause(&self, name: &str) -> Option<String> {
        let failures = self.lock();
        failures.refused.cause(name).or_else(|| failures.unanswered.cause(name)).map(str::to_owned)
    }

    /// Forgets what was written.
    pub(super) fn succeeded(&self, name: &str) {
        let mut failures = self.lock();
        failures.refused.succeeded(name);
        failures.unanswered.succeeded(name);
    }

    /// Forgets what is gone.
    pub(super) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        let mut failures = self.lock();
        failures.refused.keep(&is_kept);
        failures.unanswered.keep(&is_kept);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn error(code: u16) -> RequestError {
        RequestError::Refused(Box::new(Status::failure("no", "Test").with_code(code)))
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_is_told_at_once_and_lost_answer_when_it_comes_again() {
        let told = |failed: Failed| (failed.wait.as_secs(), failed.is_logged, failed.is_told);
        let tries = Tries::default();
        assert_eq!(told(tries.failed("a", "1", &error(403))), (2, true, true));
        assert_eq!(told(tries.failed("a", "1", &error(403))), (4, false, false));
        assert!(tries.wait("a", "1").is_some() && tries.wait("a", "2").is_none());
        assert_eq!(told(tries.failed("b", "1", &error(503))), (2, true, false));
        assert_eq!(told(tries.failed("b", "1", &error(503))), (4, false, true));
        assert_eq!(told(tries.failed("b", "1", &error(503))), (8, false, false));
        assert_eq!(told(tries.failed("b", "1", &error(500))), (16, true, true));
        assert_eq!(told(tries.failed("b", "1", &error(500))), (30, false, false));
        assert!(tries.wait("b", "1").is_some() && tries.wait("b", "2").is_none());
        tries.succeeded("b");
        assert_eq!((tries.cause("a").as_deref(), tries.cause("b")), (Some("no (403)"), None));
        tries.keep(|name| name != "a");
        assert_eq!(tries.wait("a", "1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_does_not_answer_is_left_alone_whatever_is_to_be_written() {
        let tries = Tries::of_frequent_inputs();
        tries.failed("a", "1", &error(503));
        assert!(tries.wait("a", "2").is_some());
        tries.failed("b", "1", &error(403));
        assert!(tries.wait("b", "1").is_some() && tries.wait("b", "2").is_none());
    }
}
