//! The next deployment: image, packages and kernel arguments in one request, with the credentials for the pull.
//!
//! Invariant: it ends. A backend that shows no progress, or takes too long, is abandoned.

use std::time::Duration;

use tokio::time::timeout;

use crate::host::os::in_time::{Late, in_time};
use crate::host::{
    Credentials, Host, HostError, OsProgress, StageRequest, boot_loader, etc_merge, next_root,
};
use crate::model::HostSpec;
use crate::model::node_settings::SoftReboot;
use crate::model::observation::Staged;
use crate::plan::{BatchOp, OsOp, Step};

use super::ApplyError;

/// Time to find a result that is there already, even when no time is left.
const SHORTEST: Duration = Duration::from_secs(60);

/// Carries out the steps of one batch of the OS.
pub(super) async fn apply_batch(
    host: &Host,
    to: &HostSpec,
    steps: &[Step],
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    let soft_reboot = host.soft_reboot == SoftReboot::WhereCapable;
    let mut request = StageRequest { soft_reboot, ..StageRequest::default() };
    for step in steps {
        let BatchOp::Os(op) = step.op.in_batch() else { return Err(ApplyError::foreign(step, "os")) };
        match op {
            OsOp::PullSecret => {
                let found = credentials(host, to).map_err(ApplyError::host(step.to_string()))?;
                request.credentials = found.map(|found| found.json);
                host.fail_points.hit("pull-secret");
            }
            OsOp::Image(image) => request.image = Some(image.clone()),
            OsOp::Kargs { delete, append } => {
                delete.clone_into(&mut request.delete_kargs);
                append.clone_into(&mut request.append_kargs);
            }
            OsOp::Layers => request.layers = Some(to.host_layers()),
        }
    }
    if request.is_empty() {
        return Ok(());
    }
    // Another image needs the packages that stay, too: they are fitted to it.
    if request.image.is_some() && !to.host_layers().is_empty() {
        request.layers = Some(to.host_layers());
    }
    if request.layers.as_ref().is_some_and(|layers| !layers.is_empty()) {
        request.extensions_image.clone_from(&to.extensions_image);
    }
    stage(host, to, &request, progress).await
}

/// Links the credentials as they are at this attempt: the planned file may have become worse or better since.
fn credentials(host: &Host, to: &HostSpec) -> Result<Option<Credentials>, HostError> {
    let Some(place) = host.os.auth_file() else { return Ok(None) };
    let found = Credentials::pick(&host.root, to, place)?;
    found.iter().try_for_each(|found| found.link(&host.root, place, &host.fail_points))?;
    Ok(found)
}

async fn stage(
    host: &Host,
    to: &HostSpec,
    request: &StageRequest,
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    // The list is of an earlier deployment.
    etc_merge::forget(&host.root).map_err(ApplyError::host(object(request)))?;
    next_root::drop(&host.root, &host.systemd).await.map_err(ApplyError::host(object(request)))?;
    if host.per_object_fsync && request.image.is_some() {
        let set = host.os.ensure_per_object_fsync().await;
        set.map_err(|source| ApplyError::Stage { object: object(request), source })?;
    }
    let staged = match stage_in_time(host, request, progress).await {
        Ok(staged) => staged.map_err(|source| {
            let source = Credentials::explain(source, &host.root, to, host.os.auth_file());
            ApplyError::Stage { object: object(request), source }
        })?,
        Err(late) => {
            // The abandoned work may still run.
            let abandoned = timeout(host.limits.stall, host.os.abandon()).await;
            return Err(late.left(matches!(abandoned, Ok(Ok(())))));
        }
    };
    host.fail_points.hit("os-staged");
    let Some(desired) = &request.image else { return Ok(()) };
    // Not before: each try of a pull would update it again.
    boot_loader::update(host).await;
    match staged.image {
        Some(image) if image.digest() == desired.digest() => Ok(()),
        other => {
            let staged = other.map_or(staged.deployment, |image| image.to_string());
            Err(ApplyError::WrongImage { desired: desired.clone(), staged })
        }
    }
}

/// Names the deployment to stage.
fn object(request: &StageRequest) -> String {
    request.image.as_ref().map_or_else(|| "the next deployment".to_owned(), ToString::to_string)
}

/// Stages within the limits. The future of the backend is dropped when this returns.
async fn stage_in_time(
    host: &Host,
    request: &StageRequest,
    progress: &dyn Fn(OsProgress),
) -> Result<Result<Staged, HostError>, ApplyError> {
    let limits = host.limits;
    let left = limits.total.saturating_sub(host.spent).max(SHORTEST.min(limits.total));
    // The time spent waiting for another program does not count against the stall limit.
    let shows_progress = |last: Option<&OsProgress>| {
        host.os.reports_progress() && last.is_none_or(|step| step.waits_for().is_none())
    };
    let stall = |last: Option<&OsProgress>| if shows_progress(last) { limits.stall } else { limits.total };
    let staged = in_time(left, stall, progress, async |heard| host.os.stage(request, heard).await).await;
    staged.map_err(|Late { limit, last }| ApplyError::Late {
        object: object(request),
        limit,
        after: limit.of(limits),
        last,
        ended: true,
    })
}
