//! The client of the worker: processes of a second executable, which alone is linked to libostree.
//!
//! Three reasons: it takes a mount namespace in which `/sysroot` is writable, and the agent's own stays as it is; the
//! memory of libostree, of its libraries and of pulling goes away with it; and a crash of the C code is an error of one
//! step, not the end of the agent. Every backend uses it: rpm-ostree and bootc write the same sysroot that it reads.
//!
//! Invariant: a worker never outlives the agent (`PR_SET_PDEATHSIG`, and it is killed when its future is dropped), and a question
//! has a limit (`exchange`, `labels`). How long other work may take is the caller's to say.
//! Nothing here names a libostree symbol (`tests/os/second_executable.rs`): the linker then leaves the library out.

#![expect(
    clippy::disallowed_types,
    reason = "the worker's lines are read while it runs, which `host::command` can't"
)]

mod exchange;
pub(crate) mod executable;
pub(in crate::host) mod labels;
mod limits;
pub(in crate::host::os) mod protocol;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::host::{BoxFuture, ContainerHandles, HostError, Proxies};
use crate::model::observation::{ObservedOs, Staged};
use crate::model::{Contents, ImageRef, Karg, ProxySettings};

use super::error::{OsError, OsErrorKind};
use super::{
    OsProgress, PrefetchRequest, Prefetched, Preflight, ProgressSender, SoftRebootState, StageRequest,
};
use exchange::exchange;
use executable::Executable;
use limits::ANSWER_LIMIT;
use protocol::{
    Request, Secret, StaterootCommand, StaterootReply, VERSION, WithoutCommit, WorkerCommand, WorkerReply,
};

pub use labels::LABELS_VERB;
pub use protocol::WORKER_VERB;

/// libostree's file of a staged deployment.
const STAGED: &str = "run/ostree/staged-deployment";

/// The mark of a locked staged deployment; since libostree 2023.8 there is also a key in [`STAGED`].
const LOCKED: &str = "run/ostree/staged-deployment-locked";

/// The key.
const LOCKED_KEY: &[u8] = b"locked";

/// The configuration of libostree's repository.
const REPOSITORY_CONFIG: &str = "ostree/repo/config";

/// The line in it that [`WorkerCommand::PerObjectFsync`] brings.
const PER_OBJECT_FSYNC: &str = "per-object-fsync=true";

/// Client of the worker.
#[derive(Debug, Clone)]
pub struct Worker {
    sysroot: PathBuf,
    /// Found when the first worker is needed: without one nothing was seen, so nothing can be changed.
    executable: Arc<Mutex<Option<Arc<Executable>>>>,
    entered: ContainerHandles,
    /// Proxies for its pulls; `None` leaves them to the environment.
    proxies: Option<Proxies>,
}

impl Worker {
    /// Takes the root of the host, and the handles from before it was entered.
    pub fn new(root: &Path, entered: ContainerHandles) -> Self {
        Self { sysroot: root.to_owned(), executable: Arc::default(), entered, proxies: None }
    }

    /// Takes the proxies for its pulls.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies: Some(proxies), ..self }
    }

    /// Returns the sysroot that is worked on.
    pub(super) fn sysroot(&self) -> &Path {
        &self.sysroot
    }

    /// Returns the proxies to pull through.
    pub(super) fn proxies(&self) -> Result<ProxySettings, HostError> {
        Ok(self.proxies.as_ref().map(Proxies::for_pulls).transpose()?.unwrap_or_default())
    }

    /// Reads the booted and the staged deployment.
    pub(super) async fn observe(&self) -> Result<ObservedOs, HostError> {
        match self.quietly(WorkerCommand::Observe).await? {
            WorkerReply::Observed(observed) => Ok(observed),
            WorkerReply::Preflight(_)
            | WorkerReply::Staged(_)
            | WorkerReply::Prefetched(_)
            | WorkerReply::Stateroot(_)
            | WorkerReply::SoftReboot(_)
            | WorkerReply::Nothing => Err(wrong_reply(&WorkerCommand::Observe)),
        }
    }

    /// Reads an image's properties.
    pub(super) async fn preflight(
        &self,
        image: &ImageRef,
        credentials: Option<&Contents>,
        without_commit: WithoutCommit,
    ) -> Result<Preflight, HostError> {
        let credentials = credentials.and_then(Secret::from_json);
        let work = WorkerCommand::Preflight { image: image.clone(), credentials, without_commit };
        match self.quietly(work.clone()).await? {
            WorkerReply::Preflight(found) => Ok(found),
            WorkerReply::Observed(_)
            | WorkerReply::Staged(_)
            | WorkerReply::Prefetched(_)
            | WorkerReply::Stateroot(_)
            | WorkerReply::SoftReboot(_)
            | WorkerReply::Nothing => Err(wrong_reply(&work)),
        }
    }

    /// Pulls and stages.
    pub(super) async fn stage(
        &self,
        request: &StageRequest,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Staged, HostError> {
        self.staged(
            WorkerCommand::Stage {
                image: request.image.clone(),
                credentials: request.credentials.as_ref().and_then(Secret::from_json),
                delete: request.delete_kargs.clone(),
                append: request.append_kargs.clone(),
            },
            progress,
        )
        .await
    }

    /// Pulls without staging, or drops the prefetched image.
    pub(super) fn prefetch(
        &self,
        request: PrefetchRequest,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Prefetched, HostError>> {
        let worker = self.clone();
        let PrefetchRequest { image, credentials, bandwidth } = request;
        let credentials = credentials.as_ref().and_then(Secret::from_json);
        let work = WorkerCommand::Prefetch { image, credentials, bandwidth };
        Box::pin(async move {
            let report = |step| drop(progress.send_replace(Some(step)));
            match worker.request(work.clone(), &report).await? {
                WorkerReply::Prefetched(free) => Ok(Prefetched { free: Some(free) }),
                WorkerReply::Observed(_)
                | WorkerReply::Preflight(_)
                | WorkerReply::Staged(_)
                | WorkerReply::Stateroot(_)
                | WorkerReply::SoftReboot(_)
                | WorkerReply::Nothing => Err(wrong_reply(&work)),
            }
        })
    }

    /// Changes the kernel arguments of the staged deployment, or else of the booted one.
    pub async fn kargs(&self, delete: &[Karg], append: &[Karg]) -> Result<Staged, HostError> {
        self.staged(WorkerCommand::Kargs { delete: delete.to_vec(), append: append.to_vec() }, &|_| {}).await
    }

    async fn staged(
        &self,
        work: WorkerCommand,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Staged, HostError> {
        match self.request(work.clone(), progress).await? {
            WorkerReply::Staged(staged) => Ok(staged),
            WorkerReply::Observed(_)
            | WorkerReply::Preflight(_)
            | WorkerReply::Prefetched(_)
            | WorkerReply::Stateroot(_)
            | WorkerReply::SoftReboot(_)
            | WorkerReply::Nothing => Err(wrong_reply(&work)),
        }
    }

    /// Drops the staged deployment.
    pub(super) async fn unstage(&self, progress: &(dyn Fn(OsProgress) + '_)) -> Result<(), HostError> {
        self.request(WorkerCommand::Unstage, progress).await.map(drop)
    }

    /// Finds out whether a soft reboot leads into a deployment.
    pub(super) async fn soft_reboot(&self, deployment: Option<&str>) -> Result<SoftRebootState, HostError> {
        let work = WorkerCommand::SoftReboot { deployment: deployment.map(str::to_owned) };
        match self.quietly(work.clone()).await? {
            WorkerReply::SoftReboot(found) => Ok(found),
            WorkerReply::Observed(_)
            | WorkerReply::Preflight(_)
            | WorkerReply::Staged(_)
            | WorkerReply::Prefetched(_)
            | WorkerReply::Stateroot(_)
            | WorkerReply::Nothing => Err(wrong_reply(&work)),
        }
    }

    /// Gives up the deployment that ran before the booted one.
    pub(super) async fn drop_rollback(&self, progress: &(dyn Fn(OsProgress) + '_)) -> Result<(), HostError> {
        self.request(WorkerCommand::DropRollback, progress).await.map(drop)
    }

    /// Makes a deployment the next boot's.
    pub(super) async fn set_default_deployment(
        &self,
        deployment: &str,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<(), HostError> {
        self.request(WorkerCommand::FallBack { deployment: deployment.to_owned() }, progress).await.map(drop)
    }

    /// Checks that the reboot will finalize the staged deployment. Without a sign of a lock no worker is started.
    pub(super) async fn ensure_finalizable(&self) -> Result<(), HostError> {
        if !may_be_locked(&self.sysroot) {
            return Ok(());
        }
        self.quietly(WorkerCommand::Finalize).await.map(drop)
    }

    /// Has pulls sync each object by itself. If the repository is configured so already no worker is started.
    pub(super) async fn ensure_per_object_fsync(&self) -> Result<(), HostError> {
        let config = std::fs::read_to_string(self.sysroot.join(REPOSITORY_CONFIG)).unwrap_or_default();
        if config.lines().any(|line| line.trim() == PER_OBJECT_FSYNC) {
            return Ok(());
        }
        self.quietly(WorkerCommand::PerObjectFsync).await.map(drop)
    }

    /// Does one piece of work on stateroots.
    pub(in crate::host::os) async fn stateroot(
        &self,
        command: StaterootCommand,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<StaterootReply, HostError> {
        let work = WorkerCommand::Stateroot(command);
        match self.request(work.clone(), progress).await? {
            WorkerReply::Stateroot(reply) => Ok(reply),
            WorkerReply::Observed(_)
            | WorkerReply::Preflight(_)
            | WorkerReply::Staged(_)
            | WorkerReply::Prefetched(_)
            | WorkerReply::SoftReboot(_)
            | WorkerReply::Nothing => Err(wrong_reply(&work)),
        }
    }

    fn executable(&self) -> Result<Arc<Executable>, HostError> {
        let mut known = self.executable.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(executable) = &*known {
            return Ok(Arc::clone(executable));
        }
        let found = self.entered.worker()?;
        *known = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Converts a worker's failure. A worker of another version is looked for again, as it may be replaced.
    fn failure(&self, failure: OsError) -> HostError {
        if failure.trouble == OsErrorKind::NotInstalled {
            *self.executable.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        failure.into_error()
    }

    async fn request(
        &self,
        work: WorkerCommand,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<WorkerReply, HostError> {
        let object = work.object();
        let failed = |cause: String| OsError::new(OsErrorKind::Worker, object.clone(), cause).into_error();
        let executable = self.executable()?;
        // Whoever requests other work counts its progress, and drops it.
        let limit = work.is_question().then_some(ANSWER_LIMIT);
        let proxies = if work.pulls() { self.proxies()? } else { ProxySettings::default() };
        let request = Request { version: VERSION.to_owned(), sysroot: self.sysroot.clone(), work };
        let request =
            serde_json::to_vec(&request).map_err(|e| failed(format!("the request can't be written: {e}")))?;
        let answer = exchange(&executable, &proxies, &request, limit, progress).await.map_err(failed)?;
        answer.map_err(|failure| self.failure(failure))
    }

    async fn quietly(&self, work: WorkerCommand) -> Result<WorkerReply, HostError> {
        self.request(work, &|_| {}).await
    }
}

/// Returns true if a staged deployment may be locked: by a mark of its own, or by libostree's file of it.
fn may_be_locked(sysroot: &Path) -> bool {
    let marked = sysroot.join(LOCKED).symlink_metadata();
    let unmarked = marked.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let keys = std::fs::read(sysroot.join(STAGED));
    let unlocked = match keys {
        Ok(keys) => keys.windows(LOCKED_KEY.len()).all(|part| part != LOCKED_KEY),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    !(unmarked && unlocked)
}

fn wrong_reply(work: &WorkerCommand) -> HostError {
    OsError::new(OsErrorKind::Worker, work.object(), "the worker process answered another question")
        .into_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker costs a tenth of a second: facts in files need none.
    #[tokio::test(flavor = "current_thread")]
    async fn finalization_starts_no_worker_unless_locked() {
        let dir = tempfile::tempdir().unwrap();
        let worker = Worker::new(dir.path(), ContainerHandles::default());
        worker.ensure_finalizable().await.unwrap();
        std::fs::create_dir_all(dir.path().join("run/ostree")).unwrap();
        std::fs::write(dir.path().join(STAGED), b"target\0kargs\0").unwrap();
        worker.ensure_finalizable().await.unwrap();
        std::fs::write(dir.path().join(STAGED), b"target\0locked\0\0\0\x01\0b").unwrap();
        worker.ensure_finalizable().await.unwrap_err();
        std::fs::write(dir.path().join(STAGED), b"target\0").unwrap();
        worker.ensure_finalizable().await.unwrap();
        std::fs::write(dir.path().join(LOCKED), b"").unwrap();
        worker.ensure_finalizable().await.unwrap_err();
    }
}
