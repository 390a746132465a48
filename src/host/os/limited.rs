//! Limits of the backend's work. A staging ends when it shows no progress or takes too long, and so does each other change of
//! the deployments: it may wait for another program, and nothing says when that one ends.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::OsProgress;
use super::error::{OsError, OsErrorKind, SYSROOT};
use crate::host::{Host, HostError};
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
    /// Returns the words of an error.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stall => "made no progress for",
            Self::Total => "was not done within",
        }
    }
}

/// Work that was too slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooSlow {
    /// The exceeded limit.
    pub limit: Limit,
    /// Its length.
    pub after: Duration,
    /// The last progress.
    pub last: String,
}

/// Change of the deployments beside a staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OsChange<'a> {
    /// Drops the staged deployment.
    Unstage,
    /// Gives up the deployment that ran before the booted one.
    DropRollback,
    /// Makes this deployment the next boot's.
    SetDefault(&'a str),
}

/// Listener to the progress of one piece of work.
pub struct Progress<'a> {
    report: &'a dyn Fn(OsProgress),
    last: RefCell<Option<OsProgress>>,
    moved: Notify,
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress({:?})", self.last)
    }
}

impl<'a> Progress<'a> {
    /// Passes the progress on.
    pub fn new(report: &'a dyn Fn(OsProgress)) -> Self {
        Self { report, last: RefCell::default(), moved: Notify::new() }
    }

    /// Takes a step. Saying the same again is no progress.
    pub fn heard(&self, step: OsProgress) {
        if self.last.borrow().as_ref() != Some(&step) {
            self.last.replace(Some(step.clone()));
            self.moved.notify_one();
        }
        (self.report)(step);
    }

    /// Runs the work within the limits; `left` is what is left of the total time. Its future is dropped when this returns.
    pub async fn limit<T>(
        &self,
        limits: OsLimits,
        left: Duration,
        reports_progress: impl Fn() -> bool,
        work: impl Future<Output = T>,
    ) -> Result<T, TooSlow> {
        let end = Instant::now() + left;
        let slow = |limit, after| {
            let last =
                self.last.borrow().as_ref().map_or_else(|| "nothing".to_owned(), OsProgress::to_string);
            TooSlow { limit, after, last }
        };
        tokio::pin!(work);
        loop {
            let stall = if reports_progress() { limits.stall } else { limits.total };
            tokio::select! {
                // The work is only borrowed; a notice that another arm overtakes is kept; both clocks are limits, begun again.
                biased;
                done = &mut work => return Ok(done),
                () = self.moved.notified() => if Instant::now() >= end {
                    return Err(slow(Limit::Total, limits.total));
                },
                () = sleep_until(end) => return Err(slow(Limit::Total, limits.total)),
                () = sleep(stall) => return Err(slow(Limit::Stall, limits.stall)),
            }
        }
    }
}

impl Host {
    /// Changes the deployments within the limits of a staging. What was begun at the host's tooling may go on: the same change
    /// can be requested again.
    pub async fn change_deployments(
        &self,
        change: OsChange<'_>,
        progress: &dyn Fn(OsProgress),
    ) -> Result<(), HostError> {
        let progress = Progress::new(progress);
        let heard = |step| progress.heard(step);
        let work = match change {
            OsChange::Unstage => self.os.unstage(&heard),
            OsChange::DropRollback => self.os.drop_rollback(&heard),
            OsChange::SetDefault(deployment) => self.os.set_default_deployment(deployment, &heard),
        };
        let done = progress.limit(self.limits, self.limits.total, || true, work).await;
        done.unwrap_or_else(|slow| {
            let TooSlow { limit, after, last } = slow;
            let (limit, after) = (limit.as_str(), after.as_secs());
            let cause =
                format!("the change of its deployments {limit} {after} s; the last progress is: {last}");
            Err(OsError::new(OsErrorKind::Busy, SYSROOT, cause).into_error())
        })
    }
}
