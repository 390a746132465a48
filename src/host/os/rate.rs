//! Rate of a pull: the mean of its last seconds. Pure.

use std::collections::VecDeque;
use std::time::Duration;

/// The time over which the rate is a mean: no layer's start or end makes it jump.
const SPAN: Duration = Duration::from_secs(10);

/// A rate of a shorter time says nothing.
const SHORTEST: Duration = Duration::from_secs(1);

/// The time between two counts that are kept.
const STEP: Duration = Duration::from_millis(250);

/// Bytes of a pull by time.
#[derive(Debug, Clone, Default)]
pub(super) struct Rate(VecDeque<(Duration, u64)>);

impl Rate {
    /// Takes the bytes that are there by now; returns their rate for people, once it is known. A count that falls is of another layer.
    pub(super) fn at(&mut self, now: Duration, bytes: u64) -> Option<String> {
        if self.0.back().is_some_and(|(_, last)| *last > bytes) {
            self.0.clear();
        }
        // One that begins the span stays.
        while self.0.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= SPAN) {
            self.0.pop_front();
        }
        // Counts that come fast: the last one gives way, and those before it stay apart.
        let apart = |last: usize| Some(self.0.get(last)?.0.saturating_sub(self.0.get(last - 1)?.0));
        if self.0.len() > 1 && apart(self.0.len() - 1).is_some_and(|apart| apart < STEP) {
            self.0.pop_back();
        }
        self.0.push_back((now, bytes));
        let (began, first) = self.0.front()?;
        let lasts = now.saturating_sub(*began);
        let rate =
            (bytes - first).saturating_mul(1000).checked_div(u64::try_from(lasts.as_millis()).ok()?)?;
        (lasts >= SHORTEST).then(|| text(rate))
    }
}

fn text(rate: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    match rate {
        ..MIB => format!("{} KiB/s", rate / KIB),
        MIB.. if rate < 10 * MIB => format!("{}.{} MiB/s", rate / MIB, rate % MIB * 10 / MIB),
        _ => format!("{} MiB/s", rate / MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn second(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    #[test]
    fn rate_is_of_last_seconds() {
        let mut rate = Rate::default();
        assert_eq!(rate.at(second(0), 0), None);
        assert_eq!(rate.at(Duration::from_millis(900), MIB), None);
        assert_eq!(rate.at(second(2), 5 * MIB).as_deref(), Some("2.5 MiB/s"));
        for at in 3..60 {
            assert!(rate.at(second(at), (5 + (at - 2) * 100) * MIB).is_some());
        }
        assert_eq!(rate.at(second(60), 5_805 * MIB).as_deref(), Some("100 MiB/s"));
        // It hangs, and goes on slowly.
        assert_eq!(rate.at(second(160), 5_805 * MIB + 100 * 1024).as_deref(), Some("1 KiB/s"));
        // The next layer counts from 0.
        assert_eq!(rate.at(second(161), 0), None);
        assert_eq!(rate.at(second(162), MIB).as_deref(), Some("1.0 MiB/s"));
    }

    #[test]
    fn counts_that_come_fast_are_few() {
        let mut rate = Rate::default();
        let count = |at: u64| at.min(50_000) * 1024 + at.saturating_sub(50_000) * 100;
        let last = (0..100_000).filter_map(|at| rate.at(Duration::from_millis(at), count(at))).last();
        assert_eq!(last.as_deref(), Some("97 KiB/s"), "those of the first seconds are not in it");
        assert!((30..50).contains(&rate.0.len()), "{}", rate.0.len());
    }
}
