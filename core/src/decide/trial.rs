//! Times of a health trial's attempts, and time limits of its checks.

use std::time::Duration;

use crate::model::backoff::Backoff;

/// The shortest wait between two attempts, which come closer to each other as the time runs out.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Time limit of a check even when the trial's time is over: one whole attempt is made.
const SHORTEST_CHECK: Duration = Duration::from_secs(10);

/// The attempts of one trial.
#[derive(Debug, Clone)]
pub struct Attempts {
    backoff: Backoff,
}

impl Attempts {
    /// Begins with the first one.
    pub fn new(node: &str) -> Self {
        Self { backoff: Backoff::for_work(node) }
    }

    /// Returns the wait for the next attempt after one that failed with this much time left; `None` ends the trial.
    pub fn next_wait(&mut self, left: Duration) -> Option<Duration> {
        // No event signals that a check would now pass, so poll.
        (!left.is_zero()).then(|| self.backoff.next_wait().min((left / 2).max(SHORTEST_WAIT)))
    }
}

/// Returns the limit of a check.
pub fn check_limit(left: Duration) -> Duration {
    left.max(SHORTEST_CHECK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_closer_until_deadline() {
        let mut attempts = Attempts::new("a");
        let (mut left, mut waits) = (Duration::from_secs(60), Vec::new());
        while let Some(wait) = attempts.next_wait(left) {
            assert!(wait >= Duration::from_secs(1) && wait <= left.max(Duration::from_secs(2)), "{wait:?}");
            waits.push(wait);
            left = left.saturating_sub(wait);
        }
        assert!(waits.len() > 6 && waits.len() < 20, "{waits:?}");
        assert!(waits[3] > waits[0] && waits[3] > waits[waits.len() - 1], "{waits:?}");
        assert_eq!(check_limit(Duration::ZERO), SHORTEST_CHECK);
    }
}
