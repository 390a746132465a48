//! When a watch that failed is well again: a list tells nothing of its watch, and one that is answered may end at once.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::answered::Answers;

/// A watch that failed is well again once it has been answered for so long.
pub(crate) const PROVEN: Duration = Duration::from_secs(1);

/// State of a watch that may fail.
pub(crate) struct Recovery {
    answers: Answers,
    is_failing: bool,
    /// When it was answered after it failed.
    answered: Option<Instant>,
}

impl Recovery {
    /// Of the watch with these answers.
    pub(crate) const fn new(answers: Answers) -> Self {
        Self { answers, is_failing: false, answered: None }
    }

    /// Records a failure.
    pub(crate) fn failed(&mut self) {
        self.answers.failed();
        (self.is_failing, self.answered) = (true, None);
    }

    /// Records that the watch brought a change.
    pub(crate) fn changed(&mut self) {
        (self.is_failing, self.answered) = (false, None);
    }

    /// Returns true if it failed and is not well again.
    pub(crate) const fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Waits until one that failed is well again: it has been answered for a time. Cancel-safe.
    pub(crate) async fn proven(&mut self) {
        while self.is_failing {
            let proven = async {
                match self.answered {
                    Some(at) => sleep_until(at + PROVEN).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.answers.next() => self.answered = Some(Instant::now()),
                () = proven => {
                    self.changed();
                    return;
                }
            }
        }
        std::future::pending::<()>().await;
    }
}
