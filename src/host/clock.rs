//! What time it is. Pure code is given the time; it never asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// A source of wall time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Hand(Arc<AtomicU64>),
}

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Returns a clock that always shows the same time, so that what is written with it can be compared.
    pub fn stopped(at: Timestamp) -> Self {
        Self(Source::Hand(Arc::new(AtomicU64::new(at.micros()))))
    }

    /// Returns a clock whose hand somebody else moves, in microseconds since the epoch: what comes late is seen at once.
    pub fn moved_by(hand: Arc<AtomicU64>) -> Self {
        Self(Source::Hand(hand))
    }

    /// Returns the time; the epoch when the machine's clock is before it.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
            }
            Source::Hand(hand) => Timestamp::from_micros(hand.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time since the boot in microseconds, by the clock that nobody sets; with a hand, what it shows.
    pub fn monotonic_micros(&self) -> u64 {
        if let Source::Hand(hand) = &self.0 {
            return hand.load(Ordering::Relaxed);
        }
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1000
    }
}
