//! Time that passed, whatever the wall clock was set to.
//!
//! Nodes are stamped with the wall clock, which somebody may set: a node that has just begun would seem to have taken a year,
//! and would have failed. A process that was there knows better by its own clock. Another one believes the stamps.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A difference of both clocks up to this one is that of clocks that are adjusted slowly.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Jumps that are remembered.
const MAX_JUMPS: usize = 64;

/// The jumps of the wall clock that a process has observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    /// The wall clock and the own clock, as they were last.
    last: Option<(Timestamp, Duration)>,
    /// Times that never were: from one to another. A jump back takes from the last one.
    jumps: Vec<(Timestamp, Timestamp)>,
}

impl Clock {
    /// Compares the wall clock with the own one, which only time moves.
    pub fn observe(&mut self, now: Timestamp, uptime: Duration) {
        if let Some((before, since)) = self.last.replace((now, uptime)) {
            let passed =
                SignedDuration::try_from(uptime.saturating_sub(since)).unwrap_or(SignedDuration::MAX);
            let expected = before.checked_add(passed).unwrap_or(now);
            if now.duration_since(expected) > MAX_SKEW {
                self.jumps.push((expected, now));
            } else if expected.duration_since(now) > MAX_SKEW {
                self.set_back(expected.duration_since(now));
            }
        }
        let surplus = self.jumps.len().saturating_sub(MAX_JUMPS);
        self.jumps.drain(..surplus);
    }

    fn set_back(&mut self, mut back: SignedDuration) {
        while let Some((from, to)) = self.jumps.pop() {
            let length = to.duration_since(from);
            if back < length {
                self.jumps.push((from, to.checked_sub(back).unwrap_or(to)));
                return;
            }
            back = back.saturating_sub(length);
        }
    }

    /// Returns the time that passed since a time of the wall clock.
    pub(super) fn passed(&self, since: Timestamp, now: Timestamp) -> SignedDuration {
        let within = self.jumps.iter().map(|(from, to)| (*from.max(&since), *to.min(&now)));
        let skipped = within.filter(|(from, to)| from < to).map(|(from, to)| to.duration_since(from));
        skipped.fold(now.duration_since(since), SignedDuration::saturating_sub)
    }

    /// Returns when so much time will have passed.
    pub(super) fn end(&self, since: Timestamp, length: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        now.checked_add(length.saturating_sub(self.passed(since, now))).ok()
    }
}
