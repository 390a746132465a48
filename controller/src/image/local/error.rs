//! Errors of a build on this machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::failure::BuildFailure;

/// Cause of a missing image. Each names the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It is not installed.
    #[error(
        "buildah is not installed on this machine (nothing is named {program:?}); install the package buildah"
    )]
    NoBuildah {
        /// As it was called.
        program: OsString,
    },
    /// A program can't be run.
    #[error("{program:?} can't be run: {cause}")]
    Program {
        /// Which.
        program: OsString,
        /// Why.
        cause: String,
    },
    /// The agent's executable can't be read.
    #[error("the agent {path} can't be read: {cause}; name its executable with --agent")]
    Agent {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Another process builds there.
    #[error("another build runs in {path}; wait until it ends, or name another directory with --work-dir")]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A file of the builder.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// It took too long.
    #[error("the build did not end in time, in {step}; give it longer with --timeout")]
    Timeout {
        /// Its path.
        step: String,
    },
    /// Somebody ended it.
    #[error("ended by a signal; the next build removes what is left")]
    Interrupted,
    /// The registry answered with something else.
    #[error("the push gave no digest, but {found:?}; push it again")]
    Digest {
        /// What.
        found: String,
    },
    /// buildah failed.
    #[error(transparent)]
    Failed(#[from] Box<BuildFailure>),
}

impl LocalError {
    pub(super) fn program(program: &OsStr, error: &std::io::Error) -> Self {
        let program = program.to_owned();
        if error.kind() == std::io::ErrorKind::NotFound {
            return Self::NoBuildah { program };
        }
        Self::Program { program, cause: error.to_string() }
    }

    pub(super) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), cause: error.to_string() }
    }
}
