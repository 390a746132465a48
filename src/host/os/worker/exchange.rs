//! One exchange with a worker process: the request, the lines of its progress, the result, and the end of the process.
//!
//! Invariant: a question ends within its limit, whatever the worker does: reads nothing, says nothing, says half of it, closes its
//! output, or leaves a child with its pipes. When the exchange is over, the process is too.

use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::super::OsProgress;
use super::super::error::OsError;
use super::executable::Executable;
use super::limits::{END_LIMIT, late};
use super::protocol::{Line, WORKER_VERB, WorkerReply};
use crate::host::command::{Lines, TAIL_BYTES, last_words, tail, with_words};
use crate::model::ProxySettings;

/// Result of a piece of work.
pub(super) type Answer = Result<WorkerReply, OsError>;

/// Result of a conversation.
#[expect(clippy::large_enum_variant, reason = "one at a time: a box would save nothing")]
enum Conversation {
    Answered(Answer),
    /// The output ended.
    Silent {
        sent: io::Result<()>,
        complaints: Vec<u8>,
    },
}

/// Has a worker of its own do a piece of work; `limit` is for its answer. An error is one of the exchange.
pub(super) async fn exchange(
    executable: &Executable,
    proxies: &ProxySettings,
    request: &[u8],
    limit: Option<Duration>,
    progress: &(dyn Fn(OsProgress) + '_),
) -> Result<Answer, String> {
    let mut child =
        spawn(executable, proxies).map_err(|e| format!("the worker process can't be started: {e}"))?;
    let conversation = converse(&mut child, request, progress);
    let said = match limit {
        None => conversation.await,
        Some(limit) => timeout(limit, conversation).await.unwrap_or_else(|_| Err(late(limit))),
    };
    // One that has answered lets go of its locks and files by itself.
    let patience = if said.is_ok() { END_LIMIT } else { Duration::ZERO };
    let ended = end(&mut child, patience).await;
    match said? {
        Conversation::Answered(answer) => Ok(answer),
        Conversation::Silent { sent, complaints } => {
            let words = last_words(&String::from_utf8_lossy(&complaints));
            let sent = sent.err().map(|e| format!("; the request was not read: {e}")).unwrap_or_default();
            Err(with_words(&format!("the worker process ended without an answer ({ended}){sent}"), &words))
        }
    }
}

fn spawn(executable: &Executable, proxies: &ProxySettings) -> io::Result<Child> {
    tokio::process::Command::new(executable.path())
        .arg(WORKER_VERB)
        .envs(proxies.variables())
        // Names in archives are UTF-8, which libarchive converts to the locale; causes of errors are found by their English words.
        .env("LC_ALL", "C.UTF-8")
        .env_remove("LANGUAGE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // An exchange that is dropped ends its worker.
        .kill_on_drop(true)
        .spawn()
}

/// Sends the request and reads until the result, or until the output ends.
async fn converse(
    child: &mut Child,
    request: &[u8],
    progress: &(dyn Fn(OsProgress) + '_),
) -> Result<Conversation, String> {
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the worker process has no pipes".to_owned());
    };
    let mut told = pin!(tail(child.stderr.take(), TAIL_BYTES));
    let mut answered = pin!(async { tokio::join!(send(stdin, request), last_line(stdout, progress)) });
    let mut complaints = None;
    let (sent, answer) = loop {
        tokio::select! {
            biased;
            // The answer counts, whoever else still holds the other pipe.
            answered = &mut answered => break answered,
            // Read all the while: a worker whose pipe is full waits for ever.
            words = &mut told, if complaints.is_none() => complaints = Some(words),
        }
    };
    if let Some(answer) = answer? {
        return Ok(Conversation::Answered(answer));
    }
    let complaints = match complaints {
        Some(words) => words,
        None => timeout(END_LIMIT, told).await.unwrap_or_else(|_| Ok(Vec::new())),
    };
    Ok(Conversation::Silent { sent, complaints: complaints.unwrap_or_default() })
}

/// Sends the request. A worker that is gone already shows at the other end.
async fn send(mut stdin: ChildStdin, request: &[u8]) -> io::Result<()> {
    stdin.write_all(request).await
}

/// Reads lines until the result. Any other line is a library's remark on standard output.
async fn last_line(
    stdout: ChildStdout,
    progress: &(dyn Fn(OsProgress) + '_),
) -> Result<Option<Answer>, String> {
    let mut lines = Lines::new(stdout);
    loop {
        let line = lines.next().await.map_err(|e| format!("the worker process can't be read: {e}"))?;
        let Some(line) = line else { return Ok(None) };
        match serde_json::from_str(&line) {
            Ok(Line::Progress { text, percent }) => progress(OsProgress { text, percent }),
            Ok(Line::Done(answer)) => return Ok(Some(Ok(answer))),
            Ok(Line::Failed(failure)) => return Ok(Some(Err(failure))),
            Err(_) => {}
        }
    }
}

/// Ends the process, and tells how it ended. One that a hanging disk holds even then is reaped when it lets go.
async fn end(child: &mut Child, patience: Duration) -> String {
    if let Ok(status) = timeout(patience, child.wait()).await {
        return status.map_or_else(|error| error.to_string(), |status| status.to_string());
    }
    let killed = child.start_kill();
    match timeout(END_LIMIT, child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => killed.err().map_or_else(|| "it does not end".to_owned(), |error| error.to_string()),
    }
}
