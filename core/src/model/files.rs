//! A managed file.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Contents, FileMode};

/// An owner or a group, by number or by a name that the host resolves (MCD-124).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Principal {
    /// A number.
    Id(u32),
    /// A name in the host's passwd or group database.
    Name(String),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Owner of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub user: Principal,
    /// The group.
    pub group: Principal,
}

impl Owner {
    /// Root, the owner of a file whose config sets none.
    pub const ROOT: Self = Self { user: Principal::Id(0), group: Principal::Id(0) };
}

/// A file as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// The decoded bytes.
    pub contents: Contents,
    /// The permission bits.
    pub mode: FileMode,
    /// The owner and the group.
    pub owner: Owner,
}

impl FileSpec {
    /// A unit file or a drop-in: root's, 0644 (MCD-144).
    pub fn of_unit(contents: Contents) -> Self {
        Self { contents, mode: FileMode::DEFAULT, owner: Owner::ROOT }
    }

    /// Returns true if the contents may be a secret: a file that others may not read is never shown.
    pub fn is_secret(&self) -> bool {
        !self.mode.world_readable()
    }
}
