//! Unpacking of what others made, in a process of its own that is confined to one directory ([`process`]).
//!
//! The worker sends bytes as they arrive and gets back what came of them. It never parses an archive itself.
//!
//! Invariant: the process ends with the worker, and with its [`Unpacking`].

pub(super) mod process;
mod stream;

use std::cell::Cell;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::super::super::error::{OsError, OsErrorKind};
use super::super::super::worker::protocol::FetchedSeed;
use super::archive::MAX_FILE_BYTES;
use super::failure::unpack_failed;
use super::unpack::{Attribute, set_refused};
use crate::host::command::Lines;
use crate::host::confine::Limits;
use crate::stateroot::{Layout, StaterootName};

/// The verb of the second executable for it.
pub(in super::super) const VERB: &str = "unpack";

/// Its limits: archives are streamed, and a file of a seed has at most 8 GiB.
const LIMITS: Limits = Limits { memory: 512 << 20, file: MAX_FILE_BYTES };

/// Bytes that are sent at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Work of the process, in its directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// Keep the files of a seed and check them. A stream is a layer of an image or, with a name, one file of the seed.
    Seed {
        /// The layout.
        layout: Layout,
        /// The stateroot of its version.
        stateroot: StaterootName,
        /// The commit of an image that boots.
        commit: Option<String>,
    },
    /// Unpack the archive of `/etc`, and delete.
    Etc {
        /// The paths that go.
        deletions: Vec<String>,
    },
}

/// The first message to the process.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    directory: PathBuf,
    /// The name of the seed, in errors.
    object: String,
    /// Bytes that stay free.
    reserve: u64,
    job: Job,
}

/// One line of the process.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Progress {
        text: String,
        percent: Option<u8>,
    },
    /// An attribute that it may not set.
    Refused(Attribute),
    /// A stream was unpacked.
    Unpacked,
    Done(Option<FetchedSeed>),
    Failed(OsError),
}

/// A process that unpacks.
pub(super) struct Unpacking<'a> {
    child: Child,
    input: ChildStdin,
    lines: Lines<ChildStdout>,
    directory: PathBuf,
    object: String,
    progress: &'a dyn Fn(String, Option<u8>),
    /// It reads no more: it has ended, and its last line says why.
    is_deaf: Cell<bool>,
}

impl<'a> Unpacking<'a> {
    /// Starts the process for a directory.
    pub(super) async fn start(
        directory: &Path,
        object: &str,
        reserve: u64,
        job: Job,
        progress: &'a dyn Fn(String, Option<u8>),
    ) -> Result<Self, OsError> {
        let broken = |cause: String| OsError::new(OsErrorKind::Worker, object, cause);
        let request = Request { directory: directory.to_owned(), object: object.to_owned(), reserve, job };
        let request = serde_json::to_vec(&request)
            .map_err(|e| broken(format!("the unpacker's request can't be written: {e}")))?;
        let mut child = Command::new("/proc/self/exe")
            .arg(VERB)
            .env_clear()
            // libostree asks for it, and `/proc` has none there.
            .env("OSTREE_BOOTID", "none")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| broken(format!("the process that unpacks can't be started: {e}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(broken("the process that unpacks has no pipes".to_owned()));
        };
        let unpacking = Self {
            child,
            input,
            lines: Lines::new(output),
            directory: directory.to_owned(),
            object: object.to_owned(),
            progress,
            is_deaf: Cell::new(false),
        };
        Ok(unpacking.with_request(&request).await)
    }

    async fn with_request(mut self, request: &[u8]) -> Self {
        self.begin(None).await;
        drop(self.send(request).await);
        self.write(&stream::END).await;
        self
    }

    async fn write(&mut self, bytes: &[u8]) {
        if !self.is_deaf.get() && self.input.write_all(bytes).await.is_err() {
            self.is_deaf.set(true);
        }
    }

    /// Begins a stream: a layer, or a file of the seed.
    pub(super) async fn begin(&mut self, name: Option<&str>) {
        self.write(&[stream::NEXT]).await;
        if let Some(name) = name {
            drop(self.send(name.as_bytes()).await);
        }
    }

    /// Sends bytes of the stream. A process that has ended is an error, whose cause is told by the end of the stream.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        // An empty part would be the end.
        for part in bytes.chunks(CHUNK_BYTES) {
            let length = u32::try_from(part.len()).map_err(io::Error::other)?;
            self.write(&length.to_be_bytes()).await;
            self.write(part).await;
        }
        if self.is_deaf.get() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Sends all that can be read. The end of the process is told by the end of the stream.
    pub(super) async fn send_all(&mut self, source: &mut dyn Read) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match source.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) if self.send(chunk.get(..read).unwrap_or_default()).await.is_err() => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Ends the stream, and waits until it is unpacked.
    pub(super) async fn end(&mut self) -> Result<(), OsError> {
        self.write(&stream::END).await;
        loop {
            match self.line().await? {
                Line::Refused(attribute) => set_refused(&self.directory, &attribute)
                    .map_err(|error| unpack_failed(&self.object, &error))?,
                Line::Unpacked => return Ok(()),
                Line::Progress { .. } | Line::Done(_) | Line::Failed(_) => return Err(self.confused()),
            }
        }
    }

    /// Ends the work, and returns the seed that was checked.
    pub(super) async fn finish(mut self) -> Result<Option<FetchedSeed>, OsError> {
        self.write(&[stream::LAST]).await;
        match self.line().await? {
            Line::Done(seed) => Ok(seed),
            Line::Progress { .. } | Line::Refused(_) | Line::Unpacked | Line::Failed(_) => {
                Err(self.confused())
            }
        }
    }

    fn confused(&self) -> OsError {
        OsError::new(OsErrorKind::Worker, &self.object, "the process that unpacks answered another question")
    }

    /// Reads the next line that is no progress. A failure of the process is one.
    async fn line(&mut self) -> Result<Line, OsError> {
        let broken = |object: &str, cause: String| OsError::new(OsErrorKind::Worker, object, cause);
        loop {
            let line = self.lines.next().await;
            let line = line.map_err(|e| broken(&self.object, format!("the unpacker can't be read: {e}")))?;
            let Some(line) = line else {
                let ended = self.child.wait().await;
                return Err(match ended {
                    Ok(status) => silent(&self.object, status),
                    Err(error) => broken(&self.object, error.to_string()),
                });
            };
            match serde_json::from_str(&line) {
                Ok(Line::Progress { text, percent }) => (self.progress)(text, percent),
                Ok(Line::Failed(failure)) => return Err(failure),
                Ok(line) => return Ok(line),
                // A library's remark.
                Err(_) => {}
            }
        }
    }
}

/// Says what the end of a process without an answer means. Whoever kills it, a crash is the seed's.
fn silent(object: &str, status: ExitStatus) -> OsError {
    let killed = |signal: Signal| status.signal() == Some(signal.as_raw());
    if status.signal().is_none() || [Signal::KILL, Signal::TERM].into_iter().any(killed) {
        let cause = format!("the process that unpacks ended without an answer ({status})");
        return OsError::new(OsErrorKind::Worker, object, cause);
    }
    let memory = LIMITS.memory >> 20;
    let cause =
        format!("it can't be unpacked within {memory} MiB of memory, or the unpacker has a fault ({status})");
    OsError::new(OsErrorKind::SeedDamaged, object, cause)
}
