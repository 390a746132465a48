//! Changes of paths, and their result.

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
    /// A link.
    Link {
        /// Text of the link.
        target: String,
    },
    /// Nothing.
    Absent,
}

/// Extended attributes of a file.
#[derive(Debug, Clone, Copy)]
pub enum Attributes<'a> {
    /// Those of the file that it replaces; a new file gets the label that the host's SELinux policy names.
    Keep,
    /// These.
    Exactly(&'a [(String, Vec<u8>)]),
}

/// One path and its desired state.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub(super) path: String,
    pub(super) trusted: u32,
    pub(super) want: DesiredPath<'a>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Paths that were changed.
    pub changed: usize,
    /// Paths that were right already.
    pub right: usize,
}

impl std::fmt::Debug for DesiredPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { bytes, mode, uid, gid, .. } => {
                write!(f, "File({} bytes, {mode:04o}, {uid}:{gid})", bytes.len())
            }
            Self::Link { target } => write!(f, "Link({target})"),
            Self::Absent => f.write_str("Absent"),
        }
    }
}

impl<'a> DesiredPath<'a> {
    /// Wants a file that keeps the attributes of the one it replaces.
    pub fn file(bytes: &'a [u8], mode: u32, uid: u32, gid: u32) -> Self {
        Self::File { bytes, mode, uid, gid, attributes: Attributes::Keep }
    }
}

impl<'a> Change<'a> {
    /// Makes a change. `trusted` is the user, besides root, whose directories the path may lead through.
    pub fn new(path: impl Into<String>, trusted: u32, want: DesiredPath<'a>) -> Self {
        Self { path: path.into(), trusted, want }
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the user, besides root, whose directories the path may lead through.
    pub fn trusted(&self) -> u32 {
        self.trusted
    }
}
