//! Errors of libostree.

use super::super::error::{OsError, OsErrorKind, SYSROOT};

/// Wraps an error of libostree.
pub(super) fn failed(error: impl std::fmt::Display) -> OsError {
    OsError::from_text(SYSROOT, &error.to_string(), OsErrorKind::Libostree)
}
