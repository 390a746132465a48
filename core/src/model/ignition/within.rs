//! Errors of an Ignition config: which config, and where in it.

use super::super::ConfigName;
use super::super::error::ModelError;

/// Where in which config an error is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'a>(pub(super) &'a ConfigName);

impl Within<'_> {
    /// What MCD finds before an update, and calls unreconcilable.
    pub(super) fn unreachable(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Unreachable { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }

    /// What MCD fails at in the middle of an update, or takes otherwise.
    pub(super) fn error(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Field { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }
}
