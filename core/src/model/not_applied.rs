//! Fields of a config that are not applied to this host: named, never dropped in silence.
//!
//! Each field of a config has one of three fates: it is applied, refused before anything is touched, or named here.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::escaped;

/// A field that is not applied to this host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotApplied {
    /// The field, such as `storage.luks "data"`.
    pub field: String,
    /// The kind of reason.
    pub because: NotAppliedReason,
    /// Cause and next step.
    pub message: String,
}

/// Kind of reason why a field is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NotAppliedReason {
    /// Ignition makes it when a host is installed, and this host was not installed with it.
    Installation,
    /// The host lacks what the field is about.
    HostLacks,
    /// No reader knows the field.
    UnknownField,
    /// It is of a config that was imported and can't be read as a whole.
    OpaqueOrigin,
    /// The field has no effect any more: the program that wrote it left it behind.
    Stale,
    /// It is another object of the file, and of a kind that is not read there.
    OtherKind,
    /// Another field of the entry, or an existing object of the host, decides instead.
    NoEffect,
    /// It left the config, and something on the host prevents its removal.
    NotRemoved,
}

impl NotApplied {
    /// Creates one.
    pub fn new(field: impl Into<String>, because: NotAppliedReason, message: impl Into<String>) -> Self {
        Self { field: field.into(), because, message: escaped(&message.into()) }
    }
}

impl NotAppliedReason {
    /// Returns the word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installation => "installation",
            Self::HostLacks => "host-lacks",
            Self::UnknownField => "unknown-field",
            Self::OpaqueOrigin => "opaque-origin",
            Self::Stale => "stale",
            Self::OtherKind => "other-kind",
            Self::NoEffect => "no-effect",
            Self::NotRemoved => "not-removed",
        }
    }
}

impl NotAppliedReason {
    /// Returns the reason of a condition.
    pub fn condition_reason(self) -> &'static str {
        match self {
            Self::Installation => "Installation",
            Self::HostLacks => "HostLacks",
            Self::UnknownField => "UnknownField",
            Self::OpaqueOrigin => "OpaqueOrigin",
            Self::Stale => "Stale",
            Self::OtherKind => "OtherKind",
            Self::NoEffect => "NoEffect",
            Self::NotRemoved => "NotRemoved",
        }
    }
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
