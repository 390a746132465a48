//! Errors of an Ignition config: which config, and where in it.

use super::super::ConfigName;
use super::super::NotApplied;
use super::super::error::ModelError;
use super::super::faults::Faults;

/// Config of an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within<'a>(pub(super) &'a ConfigName);

impl Within<'_> {
    /// Returns an error that MCD finds before an update, and calls unreconcilable.
    pub(super) fn unreachable(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Unreachable { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }

    /// Returns an error of a document that can't be read: a value of another type than its field has, or one that is missing.
    pub(super) fn unread(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        let document = format!("MachineConfig {}", self.0);
        ModelError::InDocument { document, field: field.into(), cause: cause.into() }
    }

    /// Returns an error of a field on which MCD fails in the middle of an update, or which it reads otherwise.
    pub(super) fn error(self, field: impl Into<String>, cause: impl Into<String>) -> ModelError {
        ModelError::Field { config: self.0.to_string(), field: field.into(), cause: cause.into() }
    }
}

/// The reader of a list of entries: each is read or refused by itself.
pub(super) struct Entries<'a> {
    /// The config.
    pub(super) within: Within<'a>,
    /// Faults of the entries.
    pub(super) faults: &'a mut Faults,
    /// Parts that are read and not applied.
    pub(super) remarks: &'a mut Vec<NotApplied>,
}
