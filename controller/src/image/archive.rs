//! The files of a build as one compressed archive, or as several. Pure: the same files give the same bytes.
//!
//! A Secret holds 1 MiB, and a build has the config more than once. `ADD` unpacks the archives in a stage of its own: the base image
//! needs no tool for that, and has no layer of them. One file is never parted: to join it the base image would need a tool.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// Bytes that one archive should have at most: a Secret holds as many.
pub const MAX_ARCHIVE: usize = 1024 * 1024;

/// Stage with the unpacked files.
pub(super) const FILES: &str = "machine-config-files";

/// Returns the instructions that unpack archives.
pub(super) fn unpack<'a>(archives: impl Iterator<Item = &'a String>) -> String {
    let head = format!("FROM scratch AS {FILES}\n");
    archives.fold(head, |text, archive| text + "ADD " + archive + " /\n") + "\n"
}

/// Packs the files; returns archives by name. One that is too large for a Secret becomes one for each file.
pub(super) fn pack(files: &BTreeMap<String, Vec<u8>>) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let whole = archive(files.iter())?;
    if whole.len() <= MAX_ARCHIVE {
        return Ok(BTreeMap::from([("config.tar.gz".to_owned(), whole)]));
    }
    let parts = files.iter().enumerate();
    parts
        .map(|(number, file)| Ok((format!("config-{number}.tar.gz"), archive([file].into_iter())?)))
        .collect()
}

/// Only root may read the files.
fn archive<'a>(files: impl Iterator<Item = (&'a String, &'a Vec<u8>)>) -> std::io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (name, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    let mut compressed = archive.into_inner()?;
    compressed.flush()?;
    compressed.finish()
}
