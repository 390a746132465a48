//! Next try of a stage of an image-based upgrade that failed and may succeed by itself.

use std::time::Duration;

use crate::model::backoff::Backoff;

/// Retries of the work on a stage.
#[derive(Debug, Clone)]
pub struct StageRetry(Backoff);

impl StageRetry {
    /// Creates it; nothing has failed yet.
    pub fn new(node: &str) -> Self {
        Self(Backoff::for_work(&format!("{node}/lifecycle")))
    }

    /// Takes a success.
    pub fn succeed(&mut self) {
        self.0.reset();
    }

    /// Takes a failure: returns the wait for the next try.
    pub fn fail(&mut self) -> Duration {
        self.0.next_wait()
    }
}
