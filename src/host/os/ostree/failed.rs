//! What libostree says when it fails.

use super::super::trouble::{Failure, SYSROOT, Trouble};

/// Wraps an error of libostree.
pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::told(SYSROOT, &error.to_string(), Trouble::Libostree)
}
