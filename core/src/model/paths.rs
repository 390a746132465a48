//! Managed directories and links, and the one view of every path of a config.

use super::{FileMode, FileSpec, ManagedPath, Owner, Principal};

/// A directory as it should be. What is not set is left as it was on a directory that was there before, and is 0755 and
/// root's on one that is made; what is not set any more is as it was before the first config, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectorySpec {
    /// The permission bits.
    pub mode: Option<FileMode>,
    /// The owner.
    pub user: Option<Principal>,
    /// The group.
    pub group: Option<Principal>,
    /// Set if it may replace a file or a link that no config brought.
    pub overwrite: bool,
}

/// Target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// Text of a symbolic link.
    Soft(String),
    /// The file that a hard link is another name of.
    Hard(ManagedPath),
}

/// A link as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpec {
    /// The target.
    pub target: LinkTarget,
    /// Owner of a symbolic link; a hard link has that of its target.
    pub owner: Owner,
    /// Set if it may replace a file or a link that no config brought.
    pub overwrite: bool,
}

/// A link to it masks a unit.
const DEV_NULL: &str = "/dev/null";

impl LinkSpec {
    /// Returns the mask of a unit.
    pub fn mask() -> Self {
        Self { target: LinkTarget::Soft(DEV_NULL.to_owned()), owner: Owner::ROOT, overwrite: false }
    }
}

impl DirectorySpec {
    /// Returns true if it no longer sets an attribute that the old entry set.
    pub fn drops_attributes_of(&self, old: &Self) -> bool {
        (old.mode.is_some() && self.mode.is_none())
            || (old.user.is_some() && self.user.is_none())
            || (old.group.is_some() && self.group.is_none())
    }
}

impl LinkSpec {
    /// Returns the file that a hard link is another name of.
    pub fn hard_target(&self) -> Option<&ManagedPath> {
        match &self.target {
            LinkTarget::Hard(target) => Some(target),
            LinkTarget::Soft(_) => None,
        }
    }
}

/// A path as a config has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSpec {
    /// A file, a unit file or a drop-in.
    File(FileSpec),
    /// A directory.
    Directory(DirectorySpec),
    /// A link.
    Link(LinkSpec),
}

impl PathSpec {
    /// Returns the owners by name or number, where the config sets them.
    pub fn owners(&self) -> (Option<&Principal>, Option<&Principal>) {
        match self {
            Self::File(file) => (Some(&file.owner.user), Some(&file.owner.group)),
            Self::Directory(directory) => (directory.user.as_ref(), directory.group.as_ref()),
            Self::Link(LinkSpec { target: LinkTarget::Hard(_), .. }) => (None, None),
            Self::Link(link) => (Some(&link.owner.user), Some(&link.owner.group)),
        }
    }

    /// Returns the section of Ignition that it is of.
    pub fn section(&self) -> &'static str {
        match self {
            Self::File(_) => "storage.files",
            Self::Directory(_) => "storage.directories",
            Self::Link(_) => "storage.links",
        }
    }
}
