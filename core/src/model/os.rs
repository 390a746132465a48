//! The operating system of a node, as a config sets it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ImageRef;

/// The kernel (MCD-070: empty counts as default; a target with an unknown one is refused where it is read).
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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Realtime => "realtime",
            Self::Pages64k => "64k-pages",
        }
    }
}

/// The OS of a host on which the deployment of an update that was undone runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeftOs {
    /// The layers that the update wanted.
    pub layers: Layers,
    /// The image that ran before the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ImageRef>,
}

/// Layers on an image outside image mode.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layers {
    /// The desired kernel.
    pub kernel: KernelType,
    /// The desired extensions, by name.
    pub extensions: BTreeSet<String>,
}

impl LeftOs {
    /// Adds an update that was given up to an earlier one, if there is one: the image that ran before the first one counts.
    #[must_use]
    pub fn after(earlier: Option<Self>, layers: Layers, before: Option<ImageRef>) -> Self {
        Self { layers, before: earlier.and_then(|left| left.before).or(before) }
    }
}

impl Layers {
    /// Returns true if the image is kept.
    pub fn is_empty(&self) -> bool {
        self.kernel == KernelType::Default && self.extensions.is_empty()
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel.as_str())?;
        let names: Vec<&str> = self.extensions.iter().map(String::as_str).collect();
        if names.is_empty() {
            f.write_str(", no extensions")
        } else {
            write!(f, ", extensions {}", names.join(" "))
        }
    }
}
