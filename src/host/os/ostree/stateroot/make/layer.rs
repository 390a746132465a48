//! The layer of a seed: one archive of tar that is written as its members arrive, and never read into memory.
//!
//! It is not compressed: nearly all of it is compressed already. The size of a member is known at its end and is written into
//! its header then, so that no member is on the disk twice.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256 as Hasher};

use super::pack::{member_header, padding};
use crate::host::fsync::fsync;
use crate::model::Sha256;

/// Members hold what only root may read.
const MODE: u32 = 0o600;

/// Bytes that are written or read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A layer that is being written.
pub(super) struct Layer {
    file: BufWriter<File>,
    prefix: String,
}

/// The sink of one member.
pub(super) struct MemberSink<'a> {
    file: &'a mut BufWriter<File>,
    size: u64,
}

impl Write for MemberSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.size += u64::try_from(written).unwrap_or_default();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Layer {
    /// Begins a layer whose members are in a directory of the image: empty, or a path without slashes around it.
    pub(super) fn create(path: &Path, directory: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)?;
        let mut layer =
            Self { file: BufWriter::with_capacity(BUFFER_BYTES, file), prefix: prefix(directory) };
        for (at, _) in layer.prefix.clone().match_indices('/') {
            let name = layer.prefix.get(..=at).unwrap_or_default();
            layer.file.write_all(member_header(name, 0o755, 0)?.as_bytes())?;
        }
        Ok(layer)
    }

    /// Goes on with a layer that was left.
    pub(super) fn reopen(path: &Path, directory: &str) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file: BufWriter::with_capacity(BUFFER_BYTES, file), prefix: prefix(directory) })
    }

    /// Writes a small member.
    pub(super) fn bytes(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.file.write_all(member_header(&format!("{}{name}", self.prefix), MODE, size)?.as_bytes())?;
        self.file.write_all(bytes)?;
        self.file.write_all(&padding(size))
    }

    /// Writes a member of unknown size: a stream that is compressed.
    pub(super) fn compressed(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let named = format!("{}{name}", self.prefix);
        let begin = self.file.stream_position()?;
        self.file.write_all(member_header(&named, MODE, 0)?.as_bytes())?;
        let sink = MemberSink { file: &mut self.file, size: 0 };
        let mut encoder = GzEncoder::new(sink, Compression::fast());
        write(&mut encoder)?;
        let size = encoder.finish()?.size;
        self.file.write_all(&padding(size))?;
        self.file.seek(SeekFrom::Start(begin))?;
        self.file.write_all(member_header(&named, MODE, size)?.as_bytes())?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// Leaves the layer, to go on with it later.
    pub(super) fn leave(mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Ends the layer; returns its digest and its size.
    pub(super) fn finish(mut self) -> io::Result<(Sha256, u64)> {
        self.file.write_all(&[0; 1024])?;
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fsync(&file)?;
        file.seek(SeekFrom::Start(0))?;
        digest(&mut file)
    }
}

fn prefix(directory: &str) -> String {
    if directory.is_empty() { String::new() } else { format!("{directory}/") }
}

/// Returns the digest and the size of a stream.
fn digest(from: &mut dyn Read) -> io::Result<(Sha256, u64)> {
    let (mut hasher, mut size, mut buffer) = (Hasher::new(), 0, vec![0; BUFFER_BYTES]);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        hasher.update(buffer.get(..read).unwrap_or_default());
        size += u64::try_from(read).unwrap_or_default();
    }
    Ok((Sha256::from_bytes(hasher.finalize().into()), size))
}
