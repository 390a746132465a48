//! The operating system of a node, as a config asks for it.

use serde::{Deserialize, Serialize};

/// Which kernel runs (MCD-070: empty and unknown values count as default).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelType {
    /// The image's own.
    #[default]
    Default,
    /// The real-time kernel.
    Realtime,
    /// The kernel with 64 KiB pages, on arm64.
    #[serde(rename = "64k-pages")]
    Pages64k,
}

impl KernelType {
    /// Reads `spec.kernelType`.
    pub fn parse(value: &str) -> Self {
        match value {
            "realtime" => Self::Realtime,
            "64k-pages" => Self::Pages64k,
            _ => Self::Default,
        }
    }

    /// Returns the word of `spec.kernelType`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Realtime => "realtime",
            Self::Pages64k => "64k-pages",
        }
    }
}
