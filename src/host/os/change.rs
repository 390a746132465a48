//! Changes of the deployments beside a staging. Each has the staging's limits: it may wait for another program, and nothing says
//! when that one ends.

use tokio::time::timeout;

use super::OsProgress;
use super::error::{OsError, OsErrorKind, SYSROOT};
use super::in_time::{Late, in_time};
use crate::host::{Host, HostError};

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

impl Host {
    /// Changes the deployments within the limits of a staging. After them, what the agent began at the host's tooling is ended:
    /// the same change can be requested again.
    pub async fn change_deployments(
        &self,
        change: OsChange<'_>,
        progress: &dyn Fn(OsProgress),
    ) -> Result<(), HostError> {
        let limits = self.limits;
        let work = async |heard: &dyn Fn(OsProgress)| match change {
            OsChange::Unstage => self.os.unstage(heard).await,
            OsChange::DropRollback => self.os.drop_rollback(heard).await,
            OsChange::SetDefault(deployment) => self.os.set_default_deployment(deployment, heard).await,
        };
        let late = match in_time(limits.total, |_| limits.stall, progress, work).await {
            Ok(done) => return done,
            Err(late) => late,
        };
        let ended = matches!(timeout(limits.stall, self.os.abandon()).await, Ok(Ok(())));
        let rest = if ended { "" } else { "; what was begun can't be ended" };
        let Late { limit, last } = late;
        let (after, limit) = (limit.of(limits).as_secs(), limit.as_str());
        let cause =
            format!("the change of its deployments {limit} {after} s; the last progress is: {last}{rest}");
        Err(OsError::new(OsErrorKind::Busy, SYSROOT, cause).into_error())
    }
}
