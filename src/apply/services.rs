//! Requests to the running systemd. Where none runs, the next boot makes up for it.

use crate::host::Host;
use crate::host::systemd::ServiceOutcome;
use crate::plan::{Op, Step};

use super::ApplyError;

/// Carries out one step.
pub(super) async fn apply_batch(host: &Host, step: &Step) -> Result<(), ApplyError> {
    let asked = match &step.op {
        Op::DaemonReload => host.systemd.daemon_reload().await,
        Op::ReloadUnit { unit } => Box::pin(host.systemd.reload(unit)).await,
        Op::RestartUnit { unit } => Box::pin(host.systemd.restart(unit)).await,
        Op::LinkPullSecret { .. }
        | Op::StageOs { .. }
        | Op::SetKargs { .. }
        | Op::InstallExtensions { .. }
        | Op::SwitchKernel { .. }
        | Op::WriteFile { .. }
        | Op::RemoveFile { .. }
        | Op::RestoreFile { .. }
        | Op::WriteUnit { .. }
        | Op::RemoveUnit { .. }
        | Op::WriteDropin { .. }
        | Op::RemoveDropin { .. }
        | Op::SetSshKeys
        | Op::SetPassword
        | Op::MaskUnit { .. }
        | Op::UnmaskUnit { .. }
        | Op::EnableUnit { .. }
        | Op::DisableUnit { .. }
        | Op::PresetUnit { .. } => {
            return Err(ApplyError::NotInConfig { step: step.to_string(), config: "services".to_owned() });
        }
    };
    match asked.map_err(ApplyError::host(step.to_string()))? {
        ServiceOutcome::Done => {}
        ServiceOutcome::NoSystemd => {
            tracing::info!(op = step.op.as_str(), "Skipped {step}: no systemd runs for this root");
        }
    }
    Ok(())
}
