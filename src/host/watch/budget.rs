//! Cost limit of a prompt watch.

use std::time::Duration;

use tokio::time::Instant;

/// Changes returned at once before more are earned: changes of a person or a package manager are never
/// delayed.
const MAX_PROMPT: u32 = 1024;
/// Time to earn one more: a program that writes for hours costs as much as in any other watch.
const EARNED_EVERY: Duration = Duration::from_millis(500);

/// Changes that may still be returned without waiting for quiet.
#[derive(Debug)]
pub(super) struct Budget {
    left: u32,
    refilled: Instant,
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: MAX_PROMPT, refilled: now }
    }

    /// Takes one; returns false if none is left.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.refilled).as_millis() / EARNED_EVERY.as_millis();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(MAX_PROMPT);
            self.left = self.left.saturating_add(earned).min(MAX_PROMPT);
            self.refilled = now;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_storm_exhausts_budget_until_quiet() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        assert_eq!((0..2 * MAX_PROMPT).filter(|_| budget.take(start)).count(), 1024);
        let later = start + EARNED_EVERY * 3;
        assert_eq!((0..10).filter(|_| budget.take(later)).count(), 3);
        let next_day = start + Duration::from_hours(24);
        assert_eq!((0..2 * MAX_PROMPT).filter(|_| budget.take(next_day)).count(), 1024);
    }
}
