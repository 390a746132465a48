//! Errors of libostree.

use super::super::error::{OsError, OsErrorKind, SYSROOT};

/// Wraps an error of libostree.
pub(super) fn failed(error: impl std::fmt::Display) -> OsError {
    OsError::told(SYSROOT, &error.to_string(), OsErrorKind::Libostree)
}
