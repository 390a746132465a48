//! Directories as an update leaves them: a walk that is asked beforehand sees them so.

use std::collections::BTreeMap;

/// A directory as it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryAhead {
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
}

impl DirectoryAhead {
    /// One that the agent makes on the way to a path.
    pub const MADE: Self = Self { mode: 0o755, uid: 0 };
}

/// Directories that an update makes or changes, by their real paths.
#[derive(Debug, Clone, Default)]
pub struct DirectoriesAhead {
    directories: BTreeMap<String, DirectoryAhead>,
}

impl DirectoriesAhead {
    /// Adds a directory.
    pub fn insert(&mut self, path: String, directory: DirectoryAhead) {
        self.directories.insert(path, directory);
    }

    /// Returns true if the update makes and changes none.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// Returns a directory.
    pub fn get(&self, path: &str) -> Option<DirectoryAhead> {
        self.directories.get(path).copied()
    }
}
