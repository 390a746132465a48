//! The embedded backend: libostree and ostree-ext, for hosts with neither rpm-ostree nor bootc.
//!
//! The agent itself is not linked to libostree. Each piece of work is done by a short-lived process of a second
//! executable, for three reasons: it takes a mount namespace in which `/sysroot` is writable, and the agent's own stays
//! as it is; the memory of libostree, of its libraries and of pulling goes away with it; and a crash of the C code is
//! an error of one step, not the end of the agent.
//!
//! | in the agent | in the worker |
//! |---|---|
//! | [`OstreeBackend`], `executable`, `stamp` | [`worker`], `sysroot`, `stage`, `image`, `oci` |
//! | the asking half of [`labels`] | its answering half; `install`, for the sandbox |
//!
//! Invariant: a worker never outlives the agent (`PR_SET_PDEATHSIG`, and it is killed when its future is dropped),
//! and staging is all or nothing: a deployment with the wanted digest and arguments is staged, or none is. Nothing that
//! the agent's `main` reaches names a libostree symbol (`tests/second_executable.rs`): the linker then leaves the library out.

#![expect(
    clippy::disallowed_types,
    reason = "the worker's lines are read while it runs, which `host::command` can't"
)]

pub(crate) mod executable;
pub(crate) mod install;
pub mod labels;

mod image;
mod oci;

mod protocol;
mod stage;
mod stamp;
mod sysroot;
pub mod worker;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::model::observation::{Carries, OsSeen, Staged};
use crate::model::{Contents, ImageRef};

use super::super::{BoxFuture, Entered, HostError};
use super::{OsBackend, OsProgress, StageRequest};
use protocol::{Answer, Failure, Line, Request, Secret, Trouble, VERSION, Work};
use stamp::Stamp;

pub(in crate::host) use executable::Executable;
pub(in crate::host) use labels::Labeller;
pub use protocol::{LABELS_VERB, WORKER_VERB};

/// How long a worker may say nothing: a pull reports each percent, and unpacking one large layer on a slow disk takes
/// a few minutes.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// How much of a crashed worker's standard error goes into the error text.
const STDERR_TAIL: usize = 1000;

/// The libostree backend.
#[derive(Debug, Clone)]
pub struct OstreeBackend {
    sysroot: PathBuf,
    /// What was seen last, and the state of the sysroot before that look.
    last: Arc<Mutex<Option<(Stamp, OsSeen)>>>,
    /// Found when the first worker is needed: without one nothing was seen, so nothing can be changed.
    worker: Arc<Mutex<Option<Arc<Executable>>>>,
    entered: Entered,
}

impl OstreeBackend {
    /// Takes the root of the host; only the booted one (`/`) can be staged to.
    pub fn new(root: &Path) -> Self {
        let entered = Entered::default();
        Self { sysroot: root.to_owned(), last: Arc::default(), worker: Arc::default(), entered }
    }

    /// Tells it that the root was entered, and what is kept open from before.
    #[must_use]
    pub fn with_entered(self, entered: Entered) -> Self {
        Self { entered, ..self }
    }

    /// Says whether the machine was booted by libostree.
    pub fn detect(root: &Path) -> bool {
        root == Path::new("/") && Path::new("/run/ostree-booted").exists()
    }

    fn executable(&self) -> Result<Arc<Executable>, HostError> {
        let mut known = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(executable) = &*known {
            return Ok(Arc::clone(executable));
        }
        let found = Executable::of(&self.entered)?;
        *known = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Says what a worker failed with. One of another version is looked for again, as it may be replaced.
    fn failure(&self, failure: Failure) -> HostError {
        if failure.trouble == Trouble::NotInstalled {
            *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        failure.into_error()
    }

    async fn ask(&self, work: Work, progress: &(dyn Fn(OsProgress) + '_)) -> Result<Answer, HostError> {
        let object = work.object();
        let failed = |cause: String| Failure::new(Trouble::Worker, object.clone(), cause).into_error();
        let executable = self.executable()?;
        let mut child =
            spawn(&executable).map_err(|e| failed(format!("the worker process can't be started: {e}")))?;
        let request = Request { version: VERSION.to_owned(), sysroot: self.sysroot.clone(), work };
        let request =
            serde_json::to_vec(&request).map_err(|e| failed(format!("the request can't be written: {e}")))?;
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed("the worker process has no pipes".to_owned()));
        };
        // A worker that is gone already shows at the other end.
        let sent = stdin.write_all(&request).await;
        drop(stdin);
        let mut complaints = Vec::new();
        let (answer, _) = tokio::join!(last_line(stdout, progress), stderr.read_to_end(&mut complaints));
        match answer {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(failure))) => Err(self.failure(failure)),
            Ok(None) => Err(failed(ending(&mut child, sent, &complaints).await)),
            Err(cause) => Err(failed(cause)),
        }
    }

    async fn quietly(&self, work: Work) -> Result<Answer, HostError> {
        self.ask(work, &|_| {}).await
    }
}

fn spawn(executable: &Executable) -> std::io::Result<Child> {
    tokio::process::Command::new(executable.path())
        .arg(WORKER_VERB)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Reads lines until the result. What is not a line of ours is a library's remark on standard output.
async fn last_line(
    stdout: ChildStdout,
    progress: &(dyn Fn(OsProgress) + '_),
) -> Result<Option<Result<Answer, Failure>>, String> {
    let mut lines = BufReader::new(stdout).lines();
    loop {
        let line = tokio::time::timeout(SILENCE, lines.next_line())
            .await
            .map_err(|_| format!("the worker process said nothing for {} s", SILENCE.as_secs()))?
            .map_err(|e| format!("the worker process can't be read: {e}"))?;
        let Some(line) = line else { return Ok(None) };
        match serde_json::from_str(&line) {
            Ok(Line::Progress { text, percent }) => progress(OsProgress { text, percent }),
            Ok(Line::Done(answer)) => return Ok(Some(Ok(answer))),
            Ok(Line::Failed(failure)) => return Ok(Some(Err(failure))),
            Err(_) => {}
        }
    }
}

/// Says how a worker ended that gave no answer.
async fn ending(child: &mut Child, sent: std::io::Result<()>, complaints: &[u8]) -> String {
    let status = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let from = complaints.len().saturating_sub(STDERR_TAIL);
    let tail = String::from_utf8_lossy(complaints.get(from..).unwrap_or_default()).trim().to_owned();
    let sent = sent.err().map(|e| format!("; the request was not read: {e}")).unwrap_or_default();
    format!("the worker process ended without an answer ({status}){sent}: {tail}")
}

impl OsBackend for OstreeBackend {
    fn name(&self) -> &'static str {
        "ostree"
    }

    fn seen(&self) -> BoxFuture<'_, Result<OsSeen, HostError>> {
        Box::pin(async {
            let stamp = Stamp::read(&self.sysroot);
            if let Some((last, seen)) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner)
                && Some(last) == stamp.as_ref()
            {
                return Ok(seen.clone());
            }
            match self.quietly(Work::See).await? {
                Answer::Seen(seen) => {
                    // The stamp is older than the look: a change in between is looked at again.
                    let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = stamp.map(|stamp| (stamp, seen.clone()));
                    Ok(seen)
                }
                Answer::Carries(_) | Answer::Staged(_) | Answer::Nothing => Err(unasked(&Work::See)),
            }
        })
    }

    fn carries<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Carries, HostError>> {
        Box::pin(async move {
            let credentials = credentials.and_then(Secret::of);
            let work = Work::Carries { image: image.clone(), credentials };
            match self.quietly(work.clone()).await? {
                Answer::Carries(carries) => Ok(carries),
                Answer::Seen(_) | Answer::Staged(_) | Answer::Nothing => Err(unasked(&work)),
            }
        })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async move {
            let work = Work::Stage {
                image: request.image.clone(),
                credentials: request.credentials.as_ref().and_then(Secret::of),
                delete: request.delete_kargs.clone(),
                append: request.append_kargs.clone(),
            };
            match self.ask(work.clone(), progress).await? {
                Answer::Staged(staged) => Ok(staged),
                Answer::Seen(_) | Answer::Carries(_) | Answer::Nothing => Err(unasked(&work)),
            }
        })
    }

    fn unstage(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { self.quietly(Work::Unstage).await.map(drop) })
    }

    fn finalise(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { self.quietly(Work::Finalise).await.map(drop) })
    }
}

fn unasked(work: &Work) -> HostError {
    Failure::new(Trouble::Worker, work.object(), "the worker process answered another question").into_error()
}
