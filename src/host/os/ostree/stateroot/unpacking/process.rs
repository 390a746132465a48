//! The process that unpacks: it reads a request, confines itself, and reads what others made only then.
//!
//! Invariant: it has one thread.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flate2::bufread::MultiGzDecoder;
use signal_hook::consts::SIGXFSZ;

use super::super::super::super::error::{OsError, OsErrorKind};
use super::super::super::super::worker::protocol::{FetchedSeed, write_line};
use super::super::acl::Accounts;
use super::super::archive::{Kind, damaged, read_entries};
use super::super::failure::unpack_failed;
use super::super::files::{Found, etc_entries};
use super::super::unpack::{Attribute, Unpacker, delete};
use super::stream::{Stream, Streams};
use super::{Job, LIMITS, Line, Request};
use crate::host::confine::{INSIDE, confine};

/// The longest request: names of deleted files.
const MAX_REQUEST_BYTES: u64 = 32 << 20;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Streams on standard input.
type Input = Streams<BufReader<File>>;

/// Runs the verb.
pub(in super::super::super) fn main() -> ExitCode {
    let line = match work() {
        Ok(seed) => Line::Done(seed),
        Err(failure) => Line::Failed(failure),
    };
    if write_line(&line) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn work() -> Result<Option<FetchedSeed>, OsError> {
    let broken =
        |error: io::Error| OsError::new(OsErrorKind::Worker, "the process that unpacks", error.to_string());
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(broken)?;
    let mut input = Streams(BufReader::with_capacity(BUFFER_BYTES, File::from(input)));
    let Request { directory, object, reserve, job } = request(&mut input).map_err(broken)?;
    let accounts = Accounts::load();
    // A file that grows past its limit is an error, not the end of the process.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(broken)?;
    confine(&directory, LIMITS).map_err(|error| {
        let cause = format!("it can't be unpacked in a confined process: {error}");
        OsError::new(OsErrorKind::Worker, &object, cause)
    })?;
    let failed = |error: io::Error| unpack_failed(&object, &error);
    let inside = Path::new(INSIDE);
    let Job::Seed { layout, stateroot, commit } = job else {
        return etc(&mut input, inside, reserve, &accounts, &job).map(|()| None).map_err(failed);
    };
    let mut found = Found::new(inside, reserve, accounts).map_err(failed)?;
    while let Some(mut stream) = input.next().map_err(failed)? {
        let read = if commit.is_some() {
            stream.text().and_then(|name| found.take(&name, &mut stream))
        } else {
            read_layer(&mut stream, &mut found)
        };
        read.and_then(|()| unpacked(&mut stream, found.take_refused())).map_err(failed)?;
    }
    let progress = |text: String, percent: Option<u8>| {
        // A reader that is gone shows at the answer.
        write_line(&Line::Progress { text, percent });
    };
    found.check(&object, (layout, &stateroot), commit, &progress).map(Some)
}

fn request(input: &mut Input) -> io::Result<Request> {
    let stream = input.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut bytes = Vec::new();
    stream.take(MAX_REQUEST_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Reads a stream to its end, and tells what came of it.
fn unpacked(stream: &mut Stream<'_, BufReader<File>>, refused: Vec<Attribute>) -> io::Result<()> {
    io::copy(stream, &mut io::sink())?;
    let lines = refused.into_iter().map(Line::Refused).chain([Line::Unpacked]);
    for line in lines {
        if !write_line(&line) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// Takes the files of a seed out of one layer.
fn read_layer(layer: &mut dyn Read, found: &mut Found) -> io::Result<()> {
    let mut layer = BufReader::with_capacity(BUFFER_BYTES, layer);
    let beginning = layer.fill_buf()?;
    let plain = !beginning.starts_with(&[0x1f, 0x8b]);
    if beginning.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(damaged("a layer is compressed with zstd; push the image with gzip"));
    }
    let source: Box<dyn Read> = if plain { Box::new(layer) } else { Box::new(MultiGzDecoder::new(layer)) };
    let accounts = found.accounts();
    // The archives in it are of any size: they are unpacked as they arrive.
    read_entries(source, None, u64::MAX, &*accounts, |entry, contents| {
        let Some(name) = entry.path.to_str().filter(|name| !name.contains('/')) else { return Ok(()) };
        if let Some(removed) = name.strip_prefix(".wh.") {
            return found.forget(removed);
        }
        if entry.kind == Kind::File { found.take(name, contents) } else { Ok(()) }
    })
}

/// Unpacks the archive of `/etc`, and deletes.
fn etc(input: &mut Input, top: &Path, reserve: u64, accounts: &Accounts, job: &Job) -> io::Result<()> {
    let Job::Etc { deletions } = job else { return Ok(()) };
    while let Some(mut stream) = input.next()? {
        let mut unpacker = Unpacker::new(top, reserve)?;
        etc_entries(&mut stream, accounts, |entry, contents| unpacker.put(&entry, contents))?;
        unpacked(&mut stream, unpacker.finish()?)?;
    }
    deletions.iter().try_for_each(|gone| delete(top, gone))
}
