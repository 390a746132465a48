//! The clock of the host. Pure code is given the time and never reads it.
//!
//! Two clocks: wall time is for people and may be set; every wait is measured by the monotonic clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::model::Timestamp;

/// Waits for a time; without one, without end. Cancel-safe: it only waits.
pub async fn elapsed(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// A source of both times.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
    /// When it was made, by the runtime's own timers: time that they let pass has passed here, too.
    made: Instant,
    /// The time since the boot then.
    monotonic: Duration,
}

#[derive(Debug, Clone)]
enum Source {
    System,
    Hands { wall: Arc<AtomicU64>, monotonic: Arc<AtomicU64> },
}

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self { source: Source::System, made: Instant::now(), monotonic: Duration::new(seconds, nanos) }
    }

    /// Returns a clock that always shows the same time, so that its output can be compared.
    pub fn stopped(at: Timestamp) -> Self {
        Self::moved_by(Arc::new(AtomicU64::new(at.micros())))
    }

    /// Returns a clock that the caller moves, in microseconds since the epoch, so that lateness shows at once.
    pub fn moved_by(hand: Arc<AtomicU64>) -> Self {
        Self::set_by(Arc::clone(&hand), hand)
    }

    /// As [`Clock::moved_by`], with wall time of its own, as if a person set the clock.
    pub fn set_by(wall: Arc<AtomicU64>, monotonic: Arc<AtomicU64>) -> Self {
        let source = Source::Hands { wall, monotonic };
        Self { source, made: Instant::now(), monotonic: Duration::ZERO }
    }

    /// Returns the time; the epoch when the machine's clock is before it.
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
            }
            Source::Hands { wall, .. } => Timestamp::from_micros(wall.load(Ordering::Relaxed)),
        }
    }

    /// Returns the time since the boot (`CLOCK_MONOTONIC`), which measures every wait. A clock moved by a test adds the
    /// time that the runtime's timers let pass.
    pub fn monotonic(&self) -> Duration {
        let begun = match &self.source {
            Source::System => self.monotonic,
            Source::Hands { monotonic, .. } => Duration::from_micros(monotonic.load(Ordering::Relaxed)),
        };
        begun + self.made.elapsed()
    }

    /// As [`Clock::monotonic`], in microseconds.
    pub fn monotonic_micros(&self) -> u64 {
        u64::try_from(self.monotonic().as_micros()).unwrap_or(u64::MAX)
    }
}
