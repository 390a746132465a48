//! Meaning of the API server's answer to an eviction.

use std::time::Duration;

use crate::model::text::short;

/// The longest message that is kept.
const MAX_MESSAGE_CHARS: usize = 500;

/// Wait for the next request for a pod whose eviction failed for a reason that is not the pod's.
const SHORT_RETRY: Duration = Duration::from_secs(5);

/// Fields of the API server's `Status` that decide.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer<'a> {
    /// HTTP status code.
    pub code: u16,
    /// `message`.
    pub message: &'a str,
    /// Message of the cause `DisruptionBudget`.
    pub budget: Option<&'a str>,
    /// `details.retryAfterSeconds`; 0 where none is given.
    pub retry_after: u32,
}

/// Outcome of a requested eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The pod is on its way.
    Evicted,
    /// The pod is gone, or another one of its name is there.
    Gone,
    /// The pod does not leave now.
    Refused(Refusal),
}

/// Cause of an eviction that was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A budget, or several of them, keep the pod.
    Budget,
    /// The API server, or a webhook, refuses it: it does not pass by itself.
    Refused,
    /// The API server has too much to do, or has no database for a moment.
    Busy,
    /// The API server failed: the pod had no part in it.
    Failed,
    /// There was no answer, or none that can be read.
    Unanswered,
}

impl Cause {
    fn of(code: u16) -> Self {
        match code {
            429 | 503 => Self::Busy,
            500.. => Self::Failed,
            _ => Self::Refused,
        }
    }

    /// Returns true if the eviction may pass at any moment, whatever is true of the pod.
    pub fn is_passing(self) -> bool {
        match self {
            Self::Budget | Self::Refused => false,
            Self::Busy | Self::Failed | Self::Unanswered => true,
        }
    }
}

/// An eviction that was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its cause.
    pub cause: Cause,
    /// The pod was to be deleted.
    pub is_deletion: bool,
    /// The API server's message.
    pub message: String,
    /// Wait until the next request.
    pub wait: Duration,
}

impl Outcome {
    /// Reads an answer that is no success. A budget is a 429 with a cause, two of them on one pod a 500 with a sentence. After a refusal by
    /// a budget without a time, the next request waits for `retry`.
    pub fn of_refusal(answer: Answer<'_>, retry: Duration) -> Self {
        let Answer { code, message, budget, retry_after } = answer;
        // Another conflict is a pod that changed meanwhile: it is still there.
        if code == 404 || (code == 409 && message.contains("UID in precondition")) {
            return Self::Gone;
        }
        let by_budget =
            budget.is_some() || (code == 500 && message.contains("more than one PodDisruptionBudget"));
        let wait = match retry_after {
            0 if by_budget => retry,
            0 => SHORT_RETRY,
            seconds => Duration::from_secs(seconds.into()),
        };
        if by_budget {
            let message = short(budget.unwrap_or(message), MAX_MESSAGE_CHARS);
            return Self::refused(Cause::Budget, message, wait);
        }
        let message = with_code(message, code);
        Self::refused(Cause::of(code), message, wait)
    }

    /// Takes a look at the pod that an answer says to be gone, by the uid that is there now: a webhook or a proxy may answer so of a pod
    /// that runs. An answer without a look stays as it is.
    #[must_use]
    pub fn confirmed(self, uid: &str, now: Option<&str>) -> Self {
        if self == Self::Gone && now == Some(uid) {
            let message = "the API server reports that the pod is gone, but it exists".to_owned();
            return Self::refused(Cause::Refused, message, SHORT_RETRY);
        }
        self
    }

    /// An eviction without an answer.
    pub fn of_failure(message: &str) -> Self {
        let message = short(message, MAX_MESSAGE_CHARS);
        Self::refused(Cause::Unanswered, message, SHORT_RETRY)
    }

    /// As the outcome of a deletion, which a policy allows in place of an eviction.
    #[must_use]
    pub fn of_deletion(mut self) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.is_deletion = true;
        }
        self
    }

    fn refused(cause: Cause, message: String, wait: Duration) -> Self {
        Self::Refused(Refusal { cause, is_deletion: false, message, wait })
    }
}

/// Returns a message with the status of its answer. A page of a load balancer says nothing.
fn with_code(message: &str, code: u16) -> String {
    let message = message.trim();
    if message.is_empty() || message.starts_with('<') {
        return format!("HTTP status {code}");
    }
    format!("{} ({code})", short(message, MAX_MESSAGE_CHARS))
}
