//! Changes of paths, and their result.

use rustix::fs::Stat;

use crate::host::root::Hands;
use crate::model::{ObservedFile, Sha256};

/// Desired state of a path.
#[derive(Clone)]
pub enum DesiredPath<'a> {
    /// A regular file.
    File {
        /// Its bytes.
        bytes: &'a [u8],
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its extended attributes.
        attributes: Attributes<'a>,
    },
    /// A symbolic link.
    Link {
        /// Text of the link.
        target: String,
        /// Owner and group; `None` for whoever made it.
        owner: Option<(u32, u32)>,
    },
    /// Another name of a regular file.
    HardLink {
        /// The path of the file.
        target: String,
    },
    /// A directory, with whatever is in it.
    Directory {
        /// Its permission bits; `None` for those of an existing one, or 0755.
        mode: Option<u32>,
        /// Its owner; `None` for that of an existing one, or root.
        uid: Option<u32>,
        /// Its group, likewise.
        gid: Option<u32>,
    },
    /// Nothing.
    Absent,
    /// No directory, if nothing is in it. Anything but a directory is left.
    NoDirectory,
}

/// Extended attributes of a file.
#[derive(Debug, Clone, Copy)]
pub enum Attributes<'a> {
    /// Those of the file that it replaces; a new file gets the label that the host's SELinux policy names. No access list: who may
    /// read it is in the mode.
    Keep,
    /// As [`Attributes::Keep`], and the access list of the file that it replaces: one that is edited remains what it is.
    KeepAccess,
    /// These.
    Exactly(&'a [(String, Vec<u8>)]),
}

/// One path and its desired state.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub(super) path: String,
    pub(super) hands: Hands,
    pub(super) want: DesiredPath<'a>,
    pub(super) over_directory: bool,
    pub(super) hard: Option<String>,
    pub(super) of_owner: bool,
    pub(super) linked: bool,
}

/// Repetition of a change, for the leftovers of an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The first one: a path that is right was right before, and durable.
    First,
    /// A repetition: leftovers are cleared, and directories are synced although their files are right, because the
    /// earlier run may have died between switching names and syncing.
    Again,
    /// A repetition after a sync that failed: files and links are made again although they are right.
    Anew,
}

/// Result of a set of changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// Paths that were changed.
    pub changed: usize,
    /// Paths that were right already.
    pub right: usize,
    /// Directories that were to go, and stay: something is in them.
    pub left: Vec<String>,
}

impl std::fmt::Debug for DesiredPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { bytes, mode, uid, gid, .. } => {
                write!(f, "File({} bytes, {mode:04o}, {uid}:{gid})", bytes.len())
            }
            Self::Link { target, .. } => write!(f, "Link({target})"),
            Self::HardLink { target } => write!(f, "HardLink({target})"),
            Self::Directory { mode, .. } => write!(f, "Directory({mode:?})"),
            Self::Absent => f.write_str("Absent"),
            Self::NoDirectory => f.write_str("NoDirectory"),
        }
    }
}

impl<'a> DesiredPath<'a> {
    /// Wants a file that keeps the attributes of the one it replaces.
    pub fn file(bytes: &'a [u8], mode: u32, uid: u32, gid: u32) -> Self {
        Self::File { bytes, mode, uid, gid, attributes: Attributes::Keep }
    }

    /// Wants a file that is an edited version of the one it replaces.
    pub fn edited(bytes: &'a [u8], mode: u32, uid: u32, gid: u32) -> Self {
        Self::File { bytes, mode, uid, gid, attributes: Attributes::KeepAccess }
    }

    /// Wants a symbolic link of whatever owner.
    pub fn link(target: impl Into<String>) -> Self {
        Self::Link { target: target.into(), owner: None }
    }
}

impl<'a> Change<'a> {
    /// Makes a change. `trusted` is the user, besides root, whose directories the path may lead through.
    pub fn new(path: impl Into<String>, trusted: u32, want: DesiredPath<'a>) -> Self {
        Self {
            path: path.into(),
            hands: trusted.into(),
            want,
            over_directory: false,
            hard: None,
            of_owner: false,
            linked: false,
        }
    }

    /// Lets go of an original that can't be saved: the owner of the directory made it so.
    #[must_use]
    pub fn of_owner(self) -> Self {
        Self { of_owner: true, ..self }
    }

    /// Tells that the file has names which the configs know.
    #[must_use]
    pub fn linked(self, linked: bool) -> Self {
        Self { linked, ..self }
    }

    /// Returns true if the configs know of further names of the file.
    pub(super) fn may_be_linked(&self) -> bool {
        self.linked || self.is_hard_link()
    }

    /// Returns true if an original that can't be saved is let go.
    pub fn is_of_owner(&self) -> bool {
        self.of_owner
    }

    /// Has a file or a link replace an empty directory as well.
    #[must_use]
    pub fn over_directory(self) -> Self {
        Self { over_directory: true, ..self }
    }

    /// Tells that the path is a hard link of this file, if it is the same one: so it is saved, and restored.
    #[must_use]
    pub fn from_hard_link(self, target: &str) -> Self {
        Self { hard: Some(target.to_owned()), ..self }
    }

    /// Returns the file that the path is a hard link of, if it is the same one.
    pub fn hard_link_before(&self) -> Option<&str> {
        self.hard.as_deref()
    }

    /// Returns true if the path may be a directory, which is then kept or removed.
    pub fn may_be_directory(&self) -> bool {
        self.over_directory || self.is_directory()
    }

    /// Returns true if the change is one of a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.want, DesiredPath::Directory { .. } | DesiredPath::NoDirectory)
    }

    /// Returns true if the path becomes a directory.
    pub fn makes_directory(&self) -> bool {
        matches!(self.want, DesiredPath::Directory { .. })
    }

    /// Returns true if the path becomes a directory with these attributes, all of which the change names.
    pub(super) fn has_dress_of(&self, stat: &Stat) -> bool {
        matches!(self.want, DesiredPath::Directory { mode: Some(mode), uid: Some(uid), gid: Some(gid) }
            if (mode, uid, gid) == (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid))
    }

    /// Returns true if a file or a link is to replace a directory.
    pub fn replaces_directory(&self) -> bool {
        self.over_directory && !self.is_directory() && !self.is_removal()
    }

    /// Returns true if the path becomes a hard link.
    pub fn is_hard_link(&self) -> bool {
        matches!(self.want, DesiredPath::HardLink { .. })
    }

    /// Returns the file that the path becomes a hard link of.
    pub fn hard_target(&self) -> Option<&str> {
        match &self.want {
            DesiredPath::HardLink { target } => Some(target),
            DesiredPath::File { .. }
            | DesiredPath::Link { .. }
            | DesiredPath::Directory { .. }
            | DesiredPath::Absent
            | DesiredPath::NoDirectory => None,
        }
    }

    /// Returns true if the path is below one that another change makes a symbolic link, which leads to it.
    pub fn goes_through(&self, other: &Self) -> bool {
        matches!(other.want, DesiredPath::Link { .. }) && !other.over_directory && self.is_below(other)
    }

    /// Returns true if the change, carried out or not, may have left what is found where nothing was. A name never shows a file that is
    /// not whole, so one of another content is somebody's.
    pub fn may_have_made(&self, found: &ObservedFile) -> bool {
        let (file, link) = match found {
            ObservedFile::Regular { sha256, .. } => (Some(sha256), None),
            ObservedFile::Symlink { target, .. } => (None, Some(target)),
            // A directory is never replaced, but for an empty one of the old config.
            ObservedFile::Absent
            | ObservedFile::Directory { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable => return true,
        };
        match &self.want {
            DesiredPath::Absent | DesiredPath::NoDirectory => true,
            DesiredPath::File { bytes, .. } => file == Some(&Sha256::digest(bytes)),
            DesiredPath::HardLink { .. } => file.is_some(),
            DesiredPath::Link { target, .. } => link == Some(target),
            DesiredPath::Directory { .. } => false,
        }
    }

    /// Returns true if the path is to go.
    pub fn is_removal(&self) -> bool {
        matches!(self.want, DesiredPath::Absent | DesiredPath::NoDirectory)
    }

    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.path.strip_prefix(other.path.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Lets the path lead through directories of any other account, too, with the walk's precautions.
    #[must_use]
    pub fn entering(self, enters: bool) -> Self {
        Self { hands: Hands { enters, ..self.hands }, ..self }
    }

    /// Returns the accounts whose directories the path may lead through.
    pub fn hands(&self) -> Hands {
        self.hands
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the user, besides root, whose directories the path may lead through.
    pub fn trusted(&self) -> u32 {
        self.hands.trusted
    }
}
