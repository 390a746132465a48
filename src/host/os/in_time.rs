//! Time limits of a pull or a deployment, counted by its progress.
//!
//! Invariant: it ends. Work that shows no progress, or takes too long, is dropped.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::OsProgress;
use crate::host::HostError;
use crate::model::FaultClass;
use crate::model::node_settings::OsLimits;

/// Exceeded limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Time without progress.
    Stall,
    /// Time in all.
    Total,
}

impl Limit {
    /// Returns its value.
    pub fn of(self, limits: OsLimits) -> Duration {
        match self {
            Self::Stall => limits.stall,
            Self::Total => limits.total,
        }
    }

    /// Returns how it is exceeded, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stall => "made no progress for",
            Self::Total => "was not done within",
        }
    }

    /// Returns a bounded word for events and metric labels.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stall => "OsStalled",
            Self::Total => "OsTooSlow",
        }
    }

    /// Returns the next step.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Stall => {
                "Check what delays it (the network to the registry, journalctl -b); the agent retries."
            }
            Self::Total => {
                "Use a smaller image or a faster link to the registry, or raise the limit in \
                 /etc/machine-config-agent/settings.toml; the agent retries."
            }
        }
    }
}

/// Work that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The exceeded limit.
    pub limit: Limit,
    /// The last progress.
    pub last: String,
}

impl Late {
    /// Returns the error of work on an object that has no error of its own.
    pub(super) fn into_error(self, object: String, limits: OsLimits) -> HostError {
        let Self { limit, last } = self;
        let after = limit.of(limits).as_secs();
        let cause = format!("it {} {after} s; the last progress is: {last}", limit.as_str());
        HostError::Os {
            object,
            cause,
            class: FaultClass::Retry,
            reason: limit.reason(),
            next: limit.next_step().to_owned(),
        }
    }
}

/// Works until the end, and drops the work that makes no progress for `stall`, which may depend on the last one, or has not
/// ended after `left`.
pub async fn in_time<T>(
    left: Duration,
    stall: impl Fn(Option<&OsProgress>) -> Duration,
    progress: &dyn Fn(OsProgress),
    work: impl AsyncFnOnce(&dyn Fn(OsProgress)) -> T,
) -> Result<T, Late> {
    let end = Instant::now() + left;
    let (last, moved) = (RefCell::new(None::<OsProgress>), Notify::new());
    let heard = |step: OsProgress| {
        // Saying the same again is no progress.
        if last.borrow().as_ref() != Some(&step) {
            last.replace(Some(step.clone()));
            moved.notify_one();
        }
        progress(step);
    };
    let late = |limit| Late {
        limit,
        last: last.borrow().as_ref().map_or_else(|| "nothing".to_owned(), OsProgress::to_string),
    };
    let work = work(&heard);
    tokio::pin!(work);
    loop {
        let stall = stall(last.borrow().as_ref());
        tokio::select! {
            // The work is only borrowed; a notice that another arm overtakes is kept; both clocks are limits, begun again.
            biased;
            done = &mut work => return Ok(done),
            () = moved.notified() => if Instant::now() >= end {
                return Err(late(Limit::Total));
            },
            () = sleep_until(end) => return Err(late(Limit::Total)),
            () = sleep(stall) => return Err(late(Limit::Stall)),
        }
    }
}

/// Limits of work beside the updates, as they are when it begins.
#[derive(Clone)]
pub struct LimitsSource(Rc<dyn Fn() -> OsLimits>);

impl LimitsSource {
    /// Takes the function that returns them.
    pub fn new(read: impl Fn() -> OsLimits + 'static) -> Self {
        Self(Rc::new(read))
    }

    /// Returns them.
    pub(super) fn get(&self) -> OsLimits {
        (self.0)()
    }
}

impl Default for LimitsSource {
    fn default() -> Self {
        Self::new(OsLimits::default)
    }
}

impl fmt::Debug for LimitsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitsSource")
    }
}
