//! A file's permission bits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Permission bits: of files without setuid, setgid and sticky (MCD-091).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileMode(u32);

impl FileMode {
    /// Mode of a file whose config sets none (MCD-122).
    pub const DEFAULT: Self = Self(0o644);
    /// Mode of a file that only its owner may read.
    pub const PRIVATE: Self = Self(0o600);

    /// A directory that only the owner may enter.
    pub const PRIVATE_DIRECTORY: Self = Self(0o700);
    /// A directory as it is made above a file (MCD-122).
    pub const DIRECTORY: Self = Self(0o755);

    /// Takes permission bits; `None` above 0777.
    pub fn new(bits: i64) -> Option<Self> {
        u32::try_from(bits).ok().filter(|bits| *bits <= 0o777).map(Self)
    }

    /// Takes the bits of a directory, setuid, setgid and sticky included; `None` above 07777.
    pub fn of_directory(bits: i64) -> Option<Self> {
        u32::try_from(bits).ok().filter(|bits| *bits <= 0o7777).map(Self)
    }

    /// Returns the bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if anybody but the owner may do anything.
    pub fn is_shared(self) -> bool {
        self.0 & 0o077 != 0
    }

    /// Returns true if others than owner and group may read: such contents are no secret.
    pub fn world_readable(self) -> bool {
        self.0 & 0o004 != 0
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}
