//! SELinux labels, requested of a worker: libostree reads the policy, and the agent is not linked to it.
//!
//! One query a line, one answer a line, both JSON; the worker ends with its standard input. Invariant: a policy
//! that can't be read gives no labels; a worker that does not answer within its limit is ended, and is an error.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::super::error::{OsError, OsErrorKind};
use super::limits::{ANSWER_LIMIT, END_LIMIT, late};
use crate::host::{HostError, Root};

/// The worker's verb for SELinux labels.
pub const LABELS_VERB: &str = "labels";

/// The object of errors.
const OBJECT: &str = "the SELinux labels of new files";

/// The longest answer: a label, as JSON.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 4096;

/// A query of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host::os) struct LabelQuery {
    /// The path of the new file.
    pub(in crate::host::os) path: String,
    /// Its type and permission bits.
    pub(in crate::host::os) mode: u32,
}

/// A worker that has read a policy.
#[derive(Debug)]
pub(in crate::host) struct Labeller {
    child: Child,
    // `None` is the sign for the worker to end.
    queries: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Labeller {
    /// Starts a worker for the policy below a root.
    pub(in crate::host) fn start(root: &Root) -> Result<Self, HostError> {
        let executable = root.entered().worker()?;
        let mut child = Command::new(executable.path())
            .arg(LABELS_VERB)
            .arg(root.base())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed(&format!("the worker process can't be started: {e}")))?;
        let (queries, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| failed("the worker process has no pipes"))?;
        Ok(Self { child, queries, answers })
    }

    /// Requests the label of a new file or directory; `None` if the policy names none.
    pub(in crate::host) fn label(&mut self, path: &str, mode: u32) -> Result<Option<String>, HostError> {
        let query = LabelQuery { path: path.to_owned(), mode };
        let deadline = Instant::now() + ANSWER_LIMIT;
        self.converse(&query, deadline).map_err(|error| {
            if error.kind() == ErrorKind::TimedOut {
                self.end(Duration::ZERO);
                return failed(&format!("there is none for {path}: {}", late(ANSWER_LIMIT)));
            }
            failed(&format!("the worker process gave none for {path}: {error}"))
        })
    }

    /// One query and its answer. The query is shorter than a pipe, and the one before was read: it is written without a wait.
    fn converse(&mut self, query: &LabelQuery, deadline: Instant) -> io::Result<Option<String>> {
        let mut line = serde_json::to_string(query)?;
        line.push('\n');
        let queries = self.queries.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        queries.write_all(line.as_bytes())?;
        let (mut answer, mut chunk) = (Vec::new(), [0; CHUNK_BYTES]);
        while !answer.ends_with(b"\n") {
            if !becomes_readable(&self.answers, deadline)? {
                return Err(ErrorKind::TimedOut.into());
            }
            let read = self.answers.read(&mut chunk)?;
            if read == 0 || answer.len() > MAX_ANSWER_BYTES {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            answer.extend(chunk.iter().take(read));
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Ends the worker: by the end of its queries, and by force when that takes longer than it may. One that a hanging disk holds
    /// even then is left to the end of this process.
    fn end(&mut self, patience: Duration) {
        drop(self.queries.take());
        let Ok(process) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) else { return };
        let ends = |within| becomes_readable(&process, Instant::now() + within).unwrap_or(false);
        if !ends(patience) {
            self.child.kill().unwrap_or_default();
            ends(END_LIMIT);
        }
        // It is reaped without a wait.
        drop(self.child.try_wait());
    }
}

impl Drop for Labeller {
    fn drop(&mut self) {
        // Its queries have been answered or returned as errors.
        self.end(END_LIMIT);
    }
}

/// Waits until there is something to read, or the end of it; returns false after the deadline.
fn becomes_readable(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
            .map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            // A signal is for the loop, after the batch.
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

fn failed(cause: &str) -> HostError {
    OsError::new(OsErrorKind::Worker, OBJECT, cause).into_error()
}
