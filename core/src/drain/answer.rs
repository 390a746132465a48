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
    /// The pod may not leave now.
    Refused(Refusal),
}

/// A refused eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A budget, or several of them, refused it.
    pub by_budget: bool,
    /// The API server's message.
    pub message: String,
    /// Wait until the next request.
    pub wait: Duration,
}

impl Outcome {
    /// Reads a refusal. A budget is a 429 with a cause, two of them on one pod a 500 with a sentence. After a refusal by a
    /// budget without a time, the next request waits for `retry`.
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
        let message = short(budget.unwrap_or(message), MAX_MESSAGE_CHARS);
        Self::Refused(Refusal { by_budget, message, wait })
    }

    /// Takes a look at the pod that an answer says to be gone, by the uid that is there now: a webhook or a proxy may answer so of a pod
    /// that runs. An answer without a look stays as it is.
    #[must_use]
    pub fn confirmed(self, uid: &str, now: Option<&str>) -> Self {
        if self == Self::Gone && now == Some(uid) {
            return Self::of_failure("the answer is that it is gone, but it is there");
        }
        self
    }

    /// An eviction without an answer.
    pub fn of_failure(message: &str) -> Self {
        let message = short(message, MAX_MESSAGE_CHARS);
        Self::Refused(Refusal { by_budget: false, message, wait: SHORT_RETRY })
    }
}
