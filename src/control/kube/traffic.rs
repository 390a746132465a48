//! Traffic of the link, counted for the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters that only grow, and whether the Node is watched.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: AtomicU64,
    watches: AtomicU64,
    up: AtomicBool,
}

impl Traffic {
    /// Returns the number of sent requests, watches included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of begun watches.
    pub fn watches(&self) -> u64 {
        self.watches.load(Ordering::Relaxed)
    }

    /// Returns whether the API server answers.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watching(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answers(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }
}
