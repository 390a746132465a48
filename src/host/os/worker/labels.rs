//! SELinux labels, requested of a worker: libostree reads the policy, and the agent is not linked to it.
//!
//! One query a line, one answer a line, both JSON; the worker ends with its standard input. Invariant: a policy
//! that can't be read gives no labels, a worker that does not answer is an error.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::super::error::{OsError, OsErrorKind};
use crate::host::{HostError, Root};

/// The worker's verb for SELinux labels.
pub const LABELS_VERB: &str = "labels";

/// The object of errors.
const OBJECT: &str = "the SELinux labels of new files";

/// The longest answer: a label, as JSON.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

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
    answers: BufReader<ChildStdout>,
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
        Ok(Self { child, queries, answers: BufReader::new(answers) })
    }

    /// Requests the label of a new file or directory; `None` if the policy names none.
    pub(in crate::host) fn label(&mut self, path: &str, mode: u32) -> Result<Option<String>, HostError> {
        let query = LabelQuery { path: path.to_owned(), mode };
        self.converse(&query).map_err(|e| failed(&format!("the worker process gave none for {path}: {e}")))
    }

    fn converse(&mut self, query: &LabelQuery) -> std::io::Result<Option<String>> {
        let mut line = serde_json::to_string(query)?;
        line.push('\n');
        let queries = self.queries.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        queries.write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.answers.by_ref().take(MAX_ANSWER_BYTES).read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}

impl Drop for Labeller {
    fn drop(&mut self) {
        drop(self.queries.take());
        // It ends by itself now; its queries have been answered or returned as errors.
        drop(self.child.wait());
    }
}

fn failed(cause: &str) -> HostError {
    OsError::new(OsErrorKind::Worker, OBJECT, cause).into_error()
}
