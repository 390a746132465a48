//! Classes of errors. Only the class decides back-off, node state and exit code.

use serde::{Deserialize, Serialize};

/// The classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FaultClass {
    /// It may pass without a repair (an unreachable registry, a full disk): retried with back-off.
    Retry,
    /// It stays until the target or the host changes.
    Degraded,
    /// The node can't get from the old config to the new one.
    Unreconcilable,
    /// The agent's own state or a broken invariant: nothing is touched until a person repairs it.
    Fatal,
}

impl FaultClass {
    /// Returns the exit code of a verb that ends with an error of this class.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Retry | Self::Degraded => 4,
            Self::Unreconcilable => 3,
            Self::Fatal => 5,
        }
    }

    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Degraded => "degraded",
            Self::Unreconcilable => "unreconcilable",
            Self::Fatal => "fatal",
        }
    }
}
