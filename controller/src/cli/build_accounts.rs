//! Accounts of a build: files that a person names, or else Secrets. Those are in this process's memory alone: no disk has them,
//! however it ends.

use std::fmt;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::CliError;
use crate::bootstrap::Credentials;

/// Accounts of a build.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) pull: Option<Account>,
    pub(super) push: Option<Account>,
}

/// Credentials with a path that buildah reads.
pub(super) struct Account {
    /// The file, or the Secret.
    title: String,
    path: PathBuf,
    contents: Vec<u8>,
    // What the path of a Secret leads to.
    _memory: Option<std::fs::File>,
}

/// Nothing of the contents is shown.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Account {
    /// A file that a person names.
    pub(super) fn of_file(path: &Path, contents: String) -> Self {
        let title = path.display().to_string();
        Self { title, path: path.to_owned(), contents: contents.into_bytes(), _memory: None }
    }

    /// A Secret; the path is this process's, and buildah reads it while the process lives.
    pub(super) fn of_secret(credentials: &Credentials) -> Result<Self, CliError> {
        let title = format!("Secret {}", credentials.secret);
        let failed = |error: std::io::Error| CliError::Failed(format!("{title}: {error}"));
        let memory =
            memfd_create("credentials", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut memory = std::fs::File::from(memory);
        memory.write_all(&credentials.contents).map_err(failed)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
        Ok(Self { title, path, contents: credentials.contents.clone(), _memory: Some(memory) })
    }

    /// Returns its name for people.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the credentials.
    pub(super) fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// Returns the path that buildah reads.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
