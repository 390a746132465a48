//! Errors of a container runtime.

use thiserror::Error;

/// An error of the container runtime.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CriError {
    /// It does not answer.
    #[error("the container runtime behind {socket}: {cause}")]
    Away {
        /// Its socket.
        socket: String,
        /// The cause.
        cause: String,
    },
    /// It refuses.
    #[error("the container runtime behind {socket} refuses {method} ({code}): {message}")]
    Refused {
        /// Its socket.
        socket: String,
        /// The method.
        method: String,
        /// gRPC's code.
        code: u32,
        /// Its words.
        message: String,
    },
}

impl CriError {
    /// Returns true if the disk is full: no other image fits, either.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("no space left on device"))
    }
}
