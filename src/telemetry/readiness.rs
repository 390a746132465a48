//! Readiness of the agent: its recovery is done, and the node's state was reported for the first time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that is cheap to clone. The agent has one thread: when its loop hangs, `/healthz` has no answer.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Marks the recovery as done.
    pub fn ready(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the recovery is done.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
