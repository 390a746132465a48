//! The worker process: one request, one thread with libostree objects, one answer.
//!
//! Invariant: writing requests run in a mount namespace of their own, taken before any thread exists.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::super::error::{OsError, OsErrorKind, SYSROOT};
use super::super::worker::executable::NAME;
use super::super::worker::protocol::{
    Greeting, Line, Request, VERSION, WorkerCommand, WorkerReply, write_line,
};
use super::sysroot::Access;
use super::{image, prefetch, soft, stage, stateroot, sysroot};
use crate::host::mounts;

/// The longest request: kernel arguments, and a pull secret of as much as the cluster stores of one.
const MAX_REQUEST_BYTES: u64 = 8 << 20;

/// The verb of a process that the worker starts to unpack what others made.
pub const UNPACK_VERB: &str = stateroot::UNPACK_VERB;

/// Runs that verb.
pub fn unpack() -> ExitCode {
    stateroot::unpack()
}

/// Runs the worker's verb `os-worker`: reads a request on standard input and answers on standard output.
pub fn main() -> ExitCode {
    let line = match serve() {
        Ok(answer) => Line::Done(answer),
        Err(failure) => Line::Failed(failure),
    };
    if write_line(&line) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve() -> Result<WorkerReply, OsError> {
    let broken = |cause: String| OsError::new(OsErrorKind::Worker, SYSROOT, cause);
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| broken(format!("the worker can't be bound to the agent: {e}")))?;
    let mut request = Vec::new();
    std::io::stdin()
        .take(MAX_REQUEST_BYTES)
        .read_to_end(&mut request)
        .map_err(|e| broken(format!("the request can't be read: {e}")))?;
    let unclear = |e: serde_json::Error| broken(format!("the request is not understood: {e}"));
    let Greeting { version } = serde_json::from_slice(&request).map_err(unclear)?;
    if version != VERSION {
        let cause = format!("it is of version {VERSION}, the agent of version {version}");
        return Err(OsError::new(OsErrorKind::NotInstalled, NAME, cause));
    }
    let Request { sysroot, work, .. } = serde_json::from_slice(&request).map_err(unclear)?;
    let access = match work {
        WorkerCommand::Observe
        | WorkerCommand::Preflight { .. }
        | WorkerCommand::SoftReboot { .. }
        | WorkerCommand::Finalize => Access::Read,
        WorkerCommand::Stateroot(ref command) => stateroot::access(command),
        WorkerCommand::Stage { .. }
        | WorkerCommand::Prefetch { .. }
        | WorkerCommand::Kargs { .. }
        | WorkerCommand::PerObjectFsync
        | WorkerCommand::Unstage
        | WorkerCommand::DropRollback
        | WorkerCommand::FallBack { .. } => Access::Write,
    };
    if matches!(work, WorkerCommand::Prefetch { .. }) {
        prefetch::yield_disk();
    }
    if access == Access::Write {
        writable_namespace()
            .map_err(|e| broken(format!("/sysroot can't be made writable in an own mount namespace: {e}")))?;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| broken(format!("no event loop: {e}")))?
        .block_on(perform(&sysroot, access, work))
}

/// As `ostree admin` does: on a booted host `/sysroot` is mounted read-only, and ostree-ext would fail in the middle
/// of a pull.
fn writable_namespace() -> rustix::io::Result<()> {
    mounts::private()?;
    ["/sysroot", "/boot"]
        .map(Path::new)
        .into_iter()
        .filter(|place| place.exists())
        .try_for_each(mounts::make_writable)
}

async fn perform(path: &Path, access: Access, work: WorkerCommand) -> Result<WorkerReply, OsError> {
    let progress = |text: String, percent: Option<u8>| {
        // A reader that is gone does not stop the work: the answer shows it.
        write_line(&Line::Progress { text, percent });
    };
    let sysroot = sysroot::load(path, access)?;
    match work {
        WorkerCommand::Observe => sysroot::observe(&sysroot).map(WorkerReply::Observed),
        WorkerCommand::Preflight { image, credentials, without_commit } => {
            image::preflight(&sysroot, path, &image, credentials.as_ref(), without_commit)
                .await
                .map(WorkerReply::Preflight)
        }
        WorkerCommand::Stage { image, credentials, delete, append } => {
            let lock = sysroot::lock(sysroot, path, &progress).await?;
            let request = stage::StageRequest { image, credentials, delete, append };
            stage::stage(&lock, path, &request, &progress).await.map(WorkerReply::Staged)
        }
        WorkerCommand::Prefetch { image, credentials, bandwidth } => {
            let request = prefetch::PrefetchRequest { image, credentials, bandwidth };
            prefetch::prefetch(sysroot, path, &request, &progress).await.map(WorkerReply::Prefetched)
        }
        WorkerCommand::Kargs { delete, append } => {
            let lock = sysroot::lock(sysroot, path, &progress).await?;
            stage::kargs(&lock, path, &delete, &append).map(WorkerReply::Staged)
        }
        WorkerCommand::PerObjectFsync => {
            sysroot::set_per_object_fsync(&sysroot).map(|()| WorkerReply::Nothing)
        }
        WorkerCommand::DropRollback => {
            let lock = sysroot::lock(sysroot, path, &progress).await?;
            stage::drop_rollback(&lock).map(|()| WorkerReply::Nothing)
        }
        WorkerCommand::FallBack { deployment } => {
            let lock = sysroot::lock(sysroot, path, &progress).await?;
            stage::set_default_deployment(&lock, path, &deployment).map(|()| WorkerReply::Nothing)
        }
        WorkerCommand::Unstage => {
            let lock = sysroot::lock(sysroot, path, &progress).await?;
            stage::unstage(&lock, path).map(|()| WorkerReply::Nothing)
        }
        WorkerCommand::SoftReboot { deployment } => {
            soft::observe(&sysroot, path, deployment.as_deref()).map(WorkerReply::SoftReboot)
        }
        WorkerCommand::Finalize => stage::finalizable(&sysroot).map(|()| WorkerReply::Nothing),
        WorkerCommand::Stateroot(command) => {
            stateroot::perform(sysroot, path, command, &progress).await.map(WorkerReply::Stateroot)
        }
    }
}
