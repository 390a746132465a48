//! The next deployment: image and kernel arguments in one request, with the credentials for the pull.

use crate::host::{Credentials, Host, OsProgress, StageRequest};
use crate::model::HostSpec;
use crate::plan::{Op, Step};

use super::ApplyError;

/// Carries out the steps of one batch of the OS.
pub(super) async fn carry(
    host: &Host,
    to: &HostSpec,
    steps: &[Step],
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    let mut request = StageRequest::default();
    for step in steps {
        match &step.op {
            Op::LinkPullSecret { path } => {
                let found = Credentials::at(&host.root, to, path).and_then(|found| {
                    found.iter().try_for_each(|found| found.link(&host.root, &host.points))?;
                    Ok(found)
                });
                let found = found.map_err(ApplyError::host(step.to_string()))?;
                request.credentials = found.map(|found| found.json);
                host.points.hit("pull-secret");
            }
            Op::StageOs { image } => request.image = Some(image.clone()),
            Op::SetKargs { delete, append } => {
                request.delete_kargs.clone_from(delete);
                request.append_kargs.clone_from(append);
            }
            Op::InstallExtensions { .. } | Op::SwitchKernel { .. } => {
                return Err(ApplyError::Unsupported { step: step.to_string(), backend: host.os.name() });
            }
            Op::WriteFile { .. }
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
            | Op::PresetUnit { .. }
            | Op::DaemonReload
            | Op::ReloadUnit { .. }
            | Op::RestartUnit { .. } => {
                return Err(ApplyError::NotInConfig { step: step.to_string(), config: "os".to_owned() });
            }
        }
    }
    if request.is_empty() {
        return Ok(());
    }
    stage(host, &request, progress).await
}

async fn stage(host: &Host, request: &StageRequest, progress: &dyn Fn(OsProgress)) -> Result<(), ApplyError> {
    let staged = host.os.stage(request, progress).await.map_err(ApplyError::host("the next deployment"))?;
    host.points.hit("os-staged");
    let Some(wanted) = &request.image else { return Ok(()) };
    match staged.image {
        Some(image) if image.digest() == wanted.digest() => Ok(()),
        other => {
            let staged = other.map_or(staged.deployment, |image| image.to_string());
            Err(ApplyError::WrongImage { wanted: wanted.clone(), staged })
        }
    }
}
