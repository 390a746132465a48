//! The limit of the bandwidth of a pull.

use std::time::Duration;

/// Bandwidth limit of a pull: after each layer it pauses until its average is the limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace(pub(super) Option<u64>);

impl Pace {
    /// Returns the pause after so many bytes in this time.
    pub(super) fn pause(self, bytes: u64, elapsed: Duration) -> Duration {
        let Some(limit) = self.0.filter(|limit| *limit > 0) else { return Duration::ZERO };
        let millis = bytes.saturating_mul(1000) / limit;
        Duration::from_millis(millis).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_keep_average_at_limit() {
        let second = Duration::from_secs(1);
        assert_eq!(Pace(None).pause(u64::MAX, Duration::ZERO), Duration::ZERO);
        let pace = Pace(Some(1_000_000));
        assert_eq!(pace.pause(3_000_000, second), 2 * second);
        assert_eq!(pace.pause(3_000_000, 5 * second), Duration::ZERO);
        assert_eq!(pace.pause(0, Duration::ZERO), Duration::ZERO);
        assert!(pace.pause(u64::MAX, second) > second);
    }
}
