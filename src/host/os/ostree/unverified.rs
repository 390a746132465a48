//! Layers whose bytes are not known to be right yet.
//!
//! ostree-ext gives a layer its name in the repository when its last byte is read, and verifies the digest of the
//! bytes by skopeo after that. A pull that ends in between leaves a wrong layer under a right name, which the next pull
//! would take for its own. Invariant: a name that was not verified is in a file before it can exist, and the layers in
//! the file are removed before anything else is pulled.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ostree_ext::container::store::ImportProgress;
use ostree_ext::gio::Cancellable;
use ostree_ext::ostree::Repo;

use super::super::error::OsError;
use super::failed::failed;
use crate::host::fsync::fsync;

/// The file, beside the repository: one name a line.
const FILE: &str = "ostree/machine-config-agent-unverified";

/// The layers of one pull.
#[derive(Debug)]
pub(super) struct Unverified {
    file: PathBuf,
    /// Names, by the digests of the layers.
    names: BTreeMap<String, String>,
}

impl Unverified {
    /// Writes down which names the pull may make.
    pub(super) fn begin(path: &Path, names: impl Iterator<Item = (String, String)>) -> Result<Self, OsError> {
        let begun = Self { file: path.join(FILE), names: names.collect() };
        let written = begun.write().and_then(|file| {
            fsync(&file)?;
            Ok(fsync(File::open(path.join("ostree"))?)?)
        });
        written.map_err(|e| failed(format!("{} can't be written: {e}", begun.file.display())))?;
        Ok(begun)
    }

    /// Takes a layer out that is known to be right: the importer reports it after the digest was queried.
    pub(super) fn record(&mut self, event: &ImportProgress) {
        match event {
            ImportProgress::OstreeChunkStarted(_) | ImportProgress::DerivedLayerStarted(_) => {}
            ImportProgress::OstreeChunkCompleted(layer) | ImportProgress::DerivedLayerCompleted(layer) => {
                self.names.remove(layer.digest().as_ref());
                // A name too many in the file only means that its layer is pulled again.
                drop(self.write());
            }
        }
    }

    /// Ends with a pull that was verified whole.
    pub(super) fn end(self) -> Result<(), OsError> {
        removed(&self.file)
    }

    fn write(&self) -> io::Result<File> {
        let mut file = File::create(&self.file)?;
        for name in self.names.values() {
            writeln!(file, "{name}")?;
        }
        Ok(file)
    }
}

/// Removes the layers of a pull that did not come to its end.
pub(super) fn forget(repo: &Repo, path: &Path) -> Result<(), OsError> {
    let file = path.join(FILE);
    let text = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| failed(format!("{} can't be read: {e}", file.display())))?,
    };
    for name in text.lines() {
        repo.set_ref_immediate(None, name, None, Cancellable::NONE).map_err(failed)?;
    }
    removed(&file)
}

fn removed(file: &Path) -> Result<(), OsError> {
    fs::remove_file(file).map_err(|e| failed(format!("{} can't be removed: {e}", file.display())))
}
