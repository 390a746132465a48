//! Errors of the sandbox. Every variant names the object and the next step.

use std::io;
use std::path::PathBuf;

use crate::host::HostError;
use crate::model::FaultClass;

/// An error of the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Programs that a sandbox needs.
    #[error(
        "the sandbox needs {missing}, which this machine does not have below /usr; install it: \
         apt install {debian}  or  dnf install {fedora}"
    )]
    Missing {
        /// The programs.
        missing: String,
        /// Debian's packages.
        debian: String,
        /// Fedora's packages.
        fedora: String,
    },
    /// The second executable is not installed.
    #[error(
        "the sandbox needs the agent's second executable, which is not at {places}; install it at one of them"
    )]
    NoWorker {
        /// The searched paths.
        places: String,
    },
    /// The kernel allows no namespaces.
    #[error("the sandbox can't create namespaces: {cause}")]
    NoNamespaces {
        /// The action, the kernel's error, and the next step.
        cause: String,
    },
    /// The directory holds something.
    #[error("{0} is not empty; name a directory that is new or empty")]
    NotEmpty(PathBuf),
    /// The directory is not a sandbox, or a damaged one.
    #[error("{path} can't be used as a sandbox: {cause}; make a new one in another directory")]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// An image that is to be derived from is not there.
    #[error("the sandbox has no image {0}")]
    NoImage(String),
    /// A system call on a path failed.
    #[error("can't {action} {path}: {source}")]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A child process of the sandbox failed.
    #[error("{what} failed: {cause}")]
    Child {
        /// Its task.
        what: &'static str,
        /// Its exit status, and the end of its output.
        cause: String,
    },
    /// The played node did not reach the state that a scene waits for.
    #[error("the demo failed: {cause}; run it again with --keep and look around in its directory")]
    Story {
        /// The awaited state, and the last one seen.
        cause: String,
    },
    /// libostree failed.
    #[error("the sandbox's sysroot can't be built: {0}")]
    Os(#[source] HostError),
}

impl SandboxError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Os(error) => error.class(),
            Self::Story { .. }
            | Self::Missing { .. }
            | Self::NoWorker { .. }
            | Self::NoNamespaces { .. }
            | Self::NotEmpty(_)
            | Self::Damaged { .. }
            | Self::NoImage(_)
            | Self::Io { .. }
            | Self::Child { .. } => FaultClass::Degraded,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "ToolMissing",
            Self::NoWorker { .. } => "OsWorkerNotInstalled",
            Self::Story { .. } => "StoppedShort",
            Self::NoNamespaces { .. } => "NoNamespaces",
            Self::NotEmpty(_) => "NotEmpty",
            Self::Damaged { .. } => "SandboxDamaged",
            Self::NoImage(_) => "ImageNotFound",
            Self::Io { .. } => "Io",
            Self::Child { .. } => "CommandFailed",
            Self::Os(error) => error.reason(),
        }
    }
}
