//! Cost of the host's work, counted where the work is done: for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counters that only grow. Shared by the handles of one root.
#[derive(Debug, Default)]
pub struct Meter {
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    files: AtomicU64,
}

impl Meter {
    /// Returns the number of synced files and directories.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns the microseconds spent waiting for that.
    pub fn sync_micros(&self) -> u64 {
        self.sync_micros.load(Ordering::Relaxed)
    }

    /// Returns the number of changed paths.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Counts syncs that ran side by side since `began`.
    pub(crate) fn synced(&self, count: usize, began: Instant) {
        self.syncs.fetch_add(wide(count), Ordering::Relaxed);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sync_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts paths that were changed.
    pub(crate) fn changed(&self, count: usize) {
        self.files.fetch_add(wide(count), Ordering::Relaxed);
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the bytes of this process in memory (`/proc/self/statm`, proc(5)); zero if that can't be read.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or_default();
    pages * wide(rustix::param::page_size())
}
