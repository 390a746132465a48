//! Time limit of an answer: longer for a slow API server, so that its late answers are not requested twice.
//!
//! A server may read fast and write slowly (its etcd has a slow disk), and an update is some reads and some writes: a fast
//! answer in between predicts nothing about the next write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The limit of a server that answers as it should: a large MachineConfig over a slow line, and no more.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest limit. The API server itself ends a request after a minute.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// So many fast answers in a row shorten the limit: more than an update has requests.
const FAST_IN_A_ROW: u32 = 24;

/// The limit that holds now.
#[derive(Debug)]
pub(super) struct AdaptiveTimeout {
    seconds: AtomicU64,
    fast: AtomicU32,
}

impl Default for AdaptiveTimeout {
    fn default() -> Self {
        Self { seconds: AtomicU64::new(FIRST_TIMEOUT.as_secs()), fast: AtomicU32::new(0) }
    }
}

impl AdaptiveTimeout {
    /// Returns the time limit of an answer.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }

    /// An answer took longer: the next one may take twice as long.
    pub(super) fn exceeded(&self) {
        let longer = (self.timeout() * 2).min(MAX_TIMEOUT);
        self.seconds.store(longer.as_secs(), Ordering::Relaxed);
        self.fast.store(0, Ordering::Relaxed);
    }

    /// An answer came. Many in a row that took a small part of their time shorten the limit again.
    pub(super) fn answered(&self, took: Duration) {
        if took >= self.timeout() / 8 {
            self.fast.store(0, Ordering::Relaxed);
        } else if self.fast.fetch_add(1, Ordering::Relaxed) + 1 >= FAST_IN_A_ROW {
            self.fast.store(0, Ordering::Relaxed);
            let shorter = (self.timeout() / 2).max(FIRST_TIMEOUT);
            self.seconds.store(shorter.as_secs(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_grows_for_slow_server_and_shrinks_for_fast_one() {
        let limit = AdaptiveTimeout::default();
        assert_eq!(limit.timeout(), FIRST_TIMEOUT);
        // Answers of 5 to 9 s change nothing.
        limit.answered(Duration::from_secs(9));
        assert_eq!(limit.timeout().as_secs(), 10);
        limit.exceeded();
        assert_eq!(limit.timeout().as_secs(), 20);
        limit.answered(Duration::from_secs(12));
        assert_eq!(limit.timeout().as_secs(), 20);
        for _ in 0..5 {
            limit.exceeded();
        }
        assert_eq!(limit.timeout(), MAX_TIMEOUT);
        // Fast reads between slow writes change nothing.
        for _ in 0..5 {
            for _ in 1..FAST_IN_A_ROW {
                limit.answered(Duration::from_millis(3));
            }
            limit.answered(Duration::from_secs(50));
        }
        assert_eq!(limit.timeout(), MAX_TIMEOUT);
        for _ in 0..3 * FAST_IN_A_ROW {
            limit.answered(Duration::from_millis(3));
        }
        assert_eq!(limit.timeout(), FIRST_TIMEOUT);
    }
}
