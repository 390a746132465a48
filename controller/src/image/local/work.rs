//! The directory of a builder: its images, one build at a time, and nothing of a build that is over.

#![expect(clippy::disallowed_methods, reason = "the builder's own directory; `host` is the agent's")]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use machine_config_core::model::reference::is_digest;

use super::LocalError;
use crate::image::{AGENT, Context};

/// The longest file with a digest.
const MAX_DIGEST: u64 = 200;

/// A directory that this process alone builds in.
#[derive(Debug)]
pub(super) struct Work {
    path: PathBuf,
    // Held until the end; the kernel gives it back whatever ends the process.
    pub(super) lock: File,
}

impl Drop for Work {
    fn drop(&mut self) {
        // A process that is being started has the file open until it is another program: closing gives nothing back then.
        self.lock.unlock().unwrap_or_default();
    }
}

impl Work {
    /// Makes the directory, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self, LocalError> {
        let failed = |error: std::io::Error| LocalError::file(path, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock);
        let lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(LocalError::Busy { path: path.to_owned() }),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Returns true if a build was killed here: its files are removed last.
    pub(super) fn has_leftovers(&self) -> Result<bool, LocalError> {
        let path = self.join("context");
        std::fs::exists(&path).map_err(|error| LocalError::file(&path, &error))
    }

    /// Returns a path in it.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the files of a build where only this account reads them: a config holds secrets.
    pub(super) fn write(&self, context: &Context, agent: &Path) -> Result<(), LocalError> {
        let directory = self.join("context");
        let failed = |error: std::io::Error| LocalError::file(&directory, &error);
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        let named = context.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        for (name, bytes) in named.chain([("Containerfile", context.containerfile.as_bytes())]) {
            let path = directory.join(name);
            let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(bytes))
                .map_err(|error| LocalError::file(&path, &error))?;
        }
        let copied = std::fs::copy(agent, directory.join(AGENT));
        copied
            .map(drop)
            .map_err(|error| LocalError::Agent { path: agent.to_owned(), cause: error.to_string() })
    }

    /// Reads the digest that buildah wrote after a push.
    pub(super) fn digest(&self) -> Result<String, LocalError> {
        use std::io::Read as _;
        let path = self.join("context").join("digest");
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_DIGEST).read_to_string(&mut text));
        read.map_err(|error| LocalError::file(&path, &error))?;
        let digest = text.trim();
        if is_digest(digest) {
            Ok(digest.to_owned())
        } else {
            Err(LocalError::Digest { found: digest.to_owned() })
        }
    }

    /// Removes the files of a build.
    pub(super) fn clear(&self) -> Result<(), LocalError> {
        let path = self.join("context");
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LocalError::file(&path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
