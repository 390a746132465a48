//! Programs of an administrator: executable files of a directory, run one after the other.
//!
//! Where systemd runs, a program is a transient unit, so that it gets nothing of the agent's and ends with all that it has
//! started. Invariant: only the last lines of its output are kept, in memory and on disk, and possible secrets are masked. It
//! runs as root, so one that another user may change is not run.

use std::time::Duration;

use tokio::net::unix::pipe::Receiver;

use super::HostError;
use super::command::{self, last_words, with_words};
use super::redact::redact;
use super::root::Root;
use super::systemd::transient::{Program, Transients};
use super::systemd::{Systemd, known};
use crate::model::observation::ObservedFile;

/// Most bytes kept of the end of its output.
const MAX_KEPT_BYTES: usize = 8 * 1024;

/// As much is read at once.
const CHUNK_BYTES: usize = 4 * 1024;

/// So many reads empty a pipe that was full when its writer ended.
const MAX_LAST_READS: usize = 32;

/// Anybody's permission to execute.
const EXECUTABLE: u32 = 0o111;

/// A directory of programs.
#[derive(Debug, Clone, Copy)]
pub struct ProgramDirectory<'a> {
    /// Its path.
    pub path: &'a str,
    /// The unit of the program that runs.
    pub unit: &'a str,
    /// Its standard error, a named pipe.
    pub errors: &'a str,
    /// The name that its lines have in the journal.
    pub log_name: &'a str,
    /// Name of its kind, for people.
    pub what: &'a str,
}

impl ProgramDirectory<'_> {
    /// Returns the names of the programs in their order, and the entries beside them that are none.
    pub fn list(&self, root: &Root) -> Result<(Vec<String>, Vec<String>), HostError> {
        let (mut programs, mut ignored) = (Vec::new(), Vec::new());
        for name in root.list(self.path)? {
            match root.observe(&self.below(&name))? {
                ObservedFile::Regular { mode, .. } if mode & EXECUTABLE != 0 => programs.push(name),
                ObservedFile::Regular { .. }
                | ObservedFile::Absent
                | ObservedFile::Symlink { .. }
                | ObservedFile::Directory { .. }
                | ObservedFile::Special
                | ObservedFile::Unreachable => ignored.push(name),
            }
        }
        Ok((programs, ignored))
    }

    /// Runs a program, no longer than given; returns its end if that is a failure. Its lines carry these fields in the journal
    /// (`NAME=VALUE`).
    pub async fn run(
        &self,
        root: &Root,
        systemd: &Systemd,
        name: &str,
        limit: Duration,
        fields: &[String],
    ) -> Result<Option<String>, HostError> {
        root.check_trusted(&self.below(name))?;
        let program = root.base().join(self.below(name).trim_start_matches('/')).display().to_string();
        match systemd.transients().await? {
            Some(units) => self.as_unit(&units, root, name, program, limit, fields).await,
            None => match command::run(&program, &[], limit).await {
                Ok(()) => Ok(None),
                Err(HostError::Command { cause, .. }) => {
                    Ok(Some(redact(&cause).replacen("exit status: ", "exit code ", 1)))
                }
                Err(HostError::Timeout { seconds, .. }) => Ok(Some(format!("no end within {seconds} s"))),
                Err(error) => Err(error),
            },
        }
    }

    async fn as_unit(
        &self,
        units: &Transients,
        root: &Root,
        name: &str,
        program: String,
        limit: Duration,
        fields: &[String],
    ) -> Result<Option<String>, HostError> {
        let unit = known(self.unit)?;
        // A unit of an earlier start has no meaning now.
        units.stop(&unit).await?;
        let mut output = Output::open(root, self.errors)?;
        let description = format!("{} {name} (for machine-config-agent)", self.what);
        let command = [program];
        let mut run = Box::pin(units.run(Program {
            unit: &unit,
            description: &description,
            command: &command,
            log_name: self.log_name,
            log_fields: fields,
            output: None,
            errors: root.base().join(self.errors.trim_start_matches('/')),
            environment: None,
            pipe: None,
            seconds: Some(limit.as_secs().max(1)),
        }));
        let ended = loop {
            tokio::select! {
                // The same future is polled until it ends.
                ended = &mut run => break ended?,
                // Cancel-safe: it only waits, and takes the output in the step that ends it.
                read = output.read() => read?,
            }
        };
        let words = output.last_words()?;
        units.stop(&unit).await?;
        root.remove_pipe(self.errors)?;
        if !words.is_empty() {
            // A second value of the field: `journalctl -t` finds the line by either, beside what the program printed.
            tracing::info!(SYSLOG_IDENTIFIER = self.log_name, "{name}: {words}");
        }
        Ok((!ended.is_success()).then(|| with_words(&ended, &words)))
    }

    fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Standard error of a program.
#[derive(Debug)]
struct Output {
    pipe: Receiver,
    path: String,
    end: Vec<u8>,
    /// The beginning is gone.
    cut: bool,
}

impl Output {
    fn open(root: &Root, path: &str) -> Result<Self, HostError> {
        let pipe = Receiver::from_owned_fd(root.make_pipe(path)?).map_err(unread(path))?;
        Ok(Self { pipe, path: path.to_owned(), end: Vec::new(), cut: false })
    }

    /// Waits for more, and reads it.
    async fn read(&mut self) -> Result<(), HostError> {
        self.pipe.readable().await.map_err(unread(&self.path))?;
        self.take().map(drop)
    }

    /// Reads the available output; returns true if there was any.
    fn take(&mut self) -> Result<bool, HostError> {
        let mut chunk = [0; CHUNK_BYTES];
        match self.pipe.try_read(&mut chunk) {
            Ok(count) => {
                self.end.extend_from_slice(chunk.get(..count).unwrap_or_default());
                let over = self.end.len().saturating_sub(MAX_KEPT_BYTES);
                self.cut |= over > 0;
                drop(self.end.drain(..over));
                Ok(count > 0)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(unread(&self.path)(error)),
        }
    }

    /// Reads the rest, and returns the end of it all.
    fn last_words(mut self) -> Result<String, HostError> {
        let mut reads = 0;
        while reads < MAX_LAST_READS && self.take()? {
            reads += 1;
        }
        let text = String::from_utf8_lossy(&self.end);
        // Half a word may be half a secret, which the redaction would miss.
        let whole =
            if self.cut { text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest) } else { &text };
        Ok(last_words(&redact(whole)))
    }
}

fn unread(path: &str) -> impl Fn(std::io::Error) -> HostError + '_ {
    move |source| HostError::io("read", path, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: &str = "/run/test.stderr";

    #[tokio::test(flavor = "current_thread")]
    async fn flood_on_standard_error_is_kept_in_bounds() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut output = Output::open(&root, ERRORS).unwrap();
        let path = dir.path().join(ERRORS.trim_start_matches('/'));
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            for _ in 0..4096 {
                pipe.write_all(&[b'x'; 1024]).unwrap();
            }
            pipe.write_all(b"\nthe port is closed\n").unwrap();
        });
        while !writer.is_finished() || output.take().unwrap() {
            tokio::time::timeout(Duration::from_millis(50), output.read()).await.ok().transpose().unwrap();
            assert!(output.end.len() <= MAX_KEPT_BYTES && output.end.capacity() <= 4 * MAX_KEPT_BYTES);
        }
        assert_eq!(output.last_words().unwrap(), "the port is closed");
        // A second run begins with an empty pipe.
        assert_eq!(Output::open(&root, ERRORS).unwrap().last_words().unwrap(), "");
    }
}
