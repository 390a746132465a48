//! Errors of an Ignition config: which config, and where in it.

use super::super::ConfigName;
use super::super::error::ModelError;

/// Config of an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'a>(pub(super) &'a ConfigName);

impl Within<'_> {
    /// Returns an error that MCD finds before an update, and calls unreconcilable.
    pub(super) fn unreachable(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Unreachable { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }

    /// Returns an error of a field on which MCD fails in the middle of an update, or which it reads otherwise.
    pub(super) fn error(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Field { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }
}
