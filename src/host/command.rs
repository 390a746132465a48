//! The one way to run a program: by name and arguments, without a shell, bounded in time and in the kept part of its
//! output. Secrets never go into arguments: everyone may read them in `/proc`.

#![expect(clippy::disallowed_types, reason = "this is where programs are run")]

use std::fmt::Display;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use super::HostError;
use crate::model::ProxySettings;
use crate::model::text::escaped;

/// So much of the end of a failed program's output goes into the error: enough for its last words, not a flood.
const MAX_TEXT_LENGTH: usize = 600;

/// Most bytes of an output that is needed: the messages of one unit in one boot are far less.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// So much of the end of an output is kept where only its last words are needed.
pub(in crate::host) const TAIL_BYTES: usize = 4 * MAX_TEXT_LENGTH;

/// The longest line that is kept of a program that prints its progress; the rest of a longer one is dropped.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Runs a program to its end. Its failure, and its taking longer than `limit`, are errors; it is killed then.
pub async fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<(), HostError> {
    run_with(program, arguments, limit, &ProxySettings::default()).await
}

/// Runs a program as [`run`] does, that reaches others through these proxies.
pub async fn run_with(
    program: &str,
    arguments: &[&str],
    limit: Duration,
    proxies: &ProxySettings,
) -> Result<(), HostError> {
    let mut command = Command::new(program);
    command.args(arguments).envs(proxies.variables()).stdout(Stdio::null());
    run_to_end(program, command, limit).await.map(drop)
}

/// Runs a program as [`run`] does, and returns its standard output. More of it than a MiB is an error.
pub async fn output(program: &str, arguments: &[&str], limit: Duration) -> Result<String, HostError> {
    output_with(program, arguments, limit, &ProxySettings::default()).await
}

/// Runs a program as [`output`] does, that reaches others through these proxies.
pub async fn output_with(
    program: &str,
    arguments: &[&str],
    limit: Duration,
    proxies: &ProxySettings,
) -> Result<String, HostError> {
    let mut command = Command::new(program);
    command.args(arguments).envs(proxies.variables()).stdout(Stdio::piped());
    let bytes = run_to_end(program, command, limit).await?;
    if bytes.len() > MAX_OUTPUT_BYTES {
        let cause = format!("it printed more than {MAX_OUTPUT_BYTES} bytes");
        return Err(HostError::Command { program: program.to_owned(), cause });
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn run_to_end(program: &str, mut command: Command, limit: Duration) -> Result<Vec<u8>, HostError> {
    let failed = |cause: String| HostError::Command { program: program.to_owned(), cause };
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = async {
        let mut child = command.spawn().map_err(|error| failed(format!("it can't be started: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = tokio::try_join!(head(stdout, MAX_OUTPUT_BYTES + 1), tail(stderr, TAIL_BYTES));
        let (output, words) = read.map_err(|error| failed(format!("its output can't be read: {error}")))?;
        let status = child.wait().await.map_err(|error| failed(format!("its end is not known: {error}")))?;
        if status.success() {
            return Ok(output);
        }
        Err(failed(with_words(&status, &last_words(&String::from_utf8_lossy(&words)))))
    };
    let late = || HostError::Timeout { object: program.to_owned(), seconds: limit.as_secs() };
    tokio::time::timeout(limit, ended).await.unwrap_or_else(|_| Err(late()))
}

/// Reads a pipe to its end and keeps its first bytes. All of it is read: a program whose pipe is full waits for ever.
async fn head(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(kept) };
    (&mut pipe).take(limit.try_into().unwrap_or(u64::MAX)).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(kept)
}

/// Reads a pipe to its end and keeps its last bytes.
pub(in crate::host) async fn tail(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(kept) };
    while (&mut pipe).take(TAIL_BYTES.try_into().unwrap_or(u64::MAX)).read_to_end(&mut kept).await? > 0 {
        kept.drain(..kept.len().saturating_sub(limit));
    }
    Ok(kept)
}

/// The lines of a pipe, of which a program can't make a long one.
#[derive(Debug)]
pub(in crate::host) struct Lines<R> {
    pipe: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Takes the pipe.
    pub(in crate::host) fn new(pipe: R) -> Self {
        Self { pipe: BufReader::new(pipe), line: Vec::new() }
    }

    /// Returns the next line; `None` at the end. Cancel-safe: the read part of a line is kept.
    pub(in crate::host) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            let bytes = self.pipe.fill_buf().await?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            let (at_end, used) = (bytes.is_empty(), part.len() + usize::from(end.is_some()));
            self.pipe.consume(used);
            if end.is_some() || (at_end && !self.line.is_empty()) {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            if at_end {
                return Ok(None);
            }
        }
    }
}

/// Formats how a program ended, with its last words if it has left some.
pub(in crate::host) fn with_words(how: &dyn Display, words: &str) -> String {
    if words.is_empty() { how.to_string() } else { format!("{how}: {words}") }
}

/// Returns the last lines of a text in one, as many as fit; they may hold names of others, which move no terminal.
pub(in crate::host) fn last_words(text: &str) -> String {
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(MAX_TEXT_LENGTH);
    let end: String = text.chars().skip(skipped).collect();
    escaped(&end.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn failures_name_cause() {
        let limit = Duration::from_secs(20);
        run("true", &[], limit).await.unwrap();
        let error = run("ls", &["/does/not/exist"], limit).await.unwrap_err().to_string();
        assert!(
            error.starts_with("ls failed: exit status: 2: ") && error.contains("/does/not/exist"),
            "{error}"
        );
        let error = run("no-such-program", &[], limit).await.unwrap_err().to_string();
        assert!(error.contains("can't be started"), "{error}");
        let error = run("tail", &["-f", "/dev/null"], Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(error.reason(), "TimedOut");
        // It prints nothing: there is no text behind a colon.
        let error = run("sh", &["-c", "kill -KILL $$"], limit).await.unwrap_err().to_string();
        assert_eq!(error, "sh failed: signal: 9 (SIGKILL)");
    }

    /// A program that prints without end takes no memory of the agent, and the error still quotes its last lines.
    #[tokio::test(flavor = "current_thread")]
    async fn output_is_bounded() {
        let limit = Duration::from_secs(60);
        let flood = "head -c 64M /dev/zero; head -c 64M /dev/zero >&2; echo the end >&2; exit 1";
        let error = run("sh", &["-c", flood], limit).await.unwrap_err().to_string();
        assert!(error.ends_with("the end"), "{}", error.len());
        assert!(error.len() < 2 * TAIL_BYTES, "{}", error.len());
        let error = output("head", &["-c", "64M", "/dev/zero"], limit).await.unwrap_err().to_string();
        assert_eq!(error, "head failed: it printed more than 1048576 bytes");
        let mut lines = Lines::new(&b"one\n\ntwo"[..]);
        for expected in [Some("one"), Some(""), Some("two"), None] {
            assert_eq!(lines.next().await.unwrap().as_deref(), expected);
        }
        let long = [vec![b'x'; 3 * MAX_LINE_BYTES], b"\nlast".to_vec()].concat();
        let mut lines = Lines::new(&long[..]);
        assert_eq!(lines.next().await.unwrap().unwrap().len(), MAX_LINE_BYTES);
        assert_eq!(lines.next().await.unwrap().unwrap(), "last");
    }
}
