//! Retry of certificates and the pull secret that could not be applied. A change causes a try at once; here are the
//! times of the others.

use std::time::Duration;

use crate::model::backoff::Backoff;

/// The next try. Its times have nothing to do with those of updates.
#[derive(Debug, Clone)]
pub struct TrustRetry {
    backoff: Backoff,
    due: Option<Duration>,
}

impl TrustRetry {
    /// Creates it; nothing has failed yet.
    pub fn new(node: &str) -> Self {
        Self { backoff: Backoff::for_work(node), due: None }
    }

    /// Takes the result of a try: true for a result other than the last one's, and true if it may pass by itself.
    pub fn tried(&mut self, is_news: bool, may_pass: bool, now: Duration) {
        if is_news {
            self.backoff.reset();
            self.due = None;
        }
        // A try before the time, for another reason, is none to wait longer for the next one.
        let is_over = self.due.is_none_or(|due| due <= now);
        if is_over {
            self.due = may_pass.then(|| now + self.backoff.next_wait());
        }
    }

    /// Returns the time until the next try, if there is one.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn waits_grow_until_result_changes() {
        let mut retry = TrustRetry::new("a");
        assert_eq!(retry.left(at(0)), None);
        retry.tried(true, true, at(0));
        let first = retry.left(at(0)).unwrap();
        assert!(first >= at(1) && first < at(2), "{first:?}");
        // Passes in between change nothing.
        retry.tried(false, true, first / 2);
        assert_eq!(retry.left(first / 2), Some(first.saturating_sub(first / 2)));
        retry.tried(false, true, first);
        assert_eq!(retry.left(first), Some(first * 2));
        retry.tried(true, true, at(60));
        assert_eq!(retry.left(at(60)), Some(first));
    }

    #[test]
    fn success_and_permanent_errors_are_not_retried() {
        for end in [(true, false), (false, false)] {
            let mut retry = TrustRetry::new("a");
            retry.tried(true, true, at(0));
            retry.tried(end.0, end.1, at(2));
            assert_eq!(retry.left(at(2)), None);
        }
    }
}
