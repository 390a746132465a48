//! The files of a build as one compressed archive. Pure: the same files give the same bytes.
//!
//! A Secret holds 1 MiB, and a build has the config more than once. `ADD` unpacks the archive in a stage of its own: the base image
//! needs no tool for that, and has no layer of it.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// Name of the archive among the files of a build.
pub(super) const ARCHIVE: &str = "config.tar.gz";

/// Stage with the unpacked files.
pub(super) const FILES: &str = "machine-config-files";

/// Returns the instructions that unpack the archive.
pub(super) fn unpack() -> String {
    format!("FROM scratch AS {FILES}\nADD {ARCHIVE} /\n\n")
}

/// Packs the files. Only root may read them.
pub(super) fn pack(files: &BTreeMap<String, Vec<u8>>) -> std::io::Result<Vec<u8>> {
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
