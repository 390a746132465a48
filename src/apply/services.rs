//! Requests to the running systemd. Where none runs, the next boot makes up for it.

use crate::host::Host;
use crate::host::systemd::ServiceOutcome;
use crate::plan::{BatchOp, ServiceOp, Step};

use super::ApplyError;

/// Carries out one step.
pub(super) async fn apply_batch(host: &Host, step: &Step) -> Result<(), ApplyError> {
    let BatchOp::Service(op) = step.op.in_batch() else { return Err(ApplyError::foreign(step, "services")) };
    let result = match op {
        ServiceOp::DaemonReload => host.systemd.daemon_reload().await,
        ServiceOp::Reload(unit) => Box::pin(host.systemd.reload(unit)).await,
        ServiceOp::Restart(unit) => Box::pin(host.systemd.restart(unit)).await,
    };
    match result.map_err(ApplyError::host(step.to_string()))? {
        ServiceOutcome::Done => {}
        ServiceOutcome::NoSystemd => {
            tracing::info!(op = step.op.as_str(), "Skipped {step}: no systemd runs for this root");
        }
    }
    Ok(())
}
