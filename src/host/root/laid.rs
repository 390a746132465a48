//! Paths as they will be, laid over those of a root: for a look at the host as it is once an open update is undone.
//!
//! Nothing is written. A look at a path sees what is laid there, through links as well. A walk, which is safe because it opens
//! directory after directory, can't see it: one that leads through what is laid is noted, and the answer is not known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::model::{ObservedFile, Sha256};

static ABSENT: LaidPath = LaidPath::Absent;

/// A path as it will be. `Debug` shows no contents.
#[derive(Clone, PartialEq, Eq)]
pub enum LaidPath {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A symbolic link.
    Link {
        /// Text of the link.
        target: String,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A directory.
    Directory {
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
}

impl fmt::Debug for LaidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::File { .. } => "File",
            Self::Link { .. } => "Link",
            Self::Directory { .. } => "Directory",
        })
    }
}

/// Paths as they will be.
#[derive(Debug, Clone, Default)]
pub struct LaidPaths {
    /// By path.
    pub paths: BTreeMap<String, LaidPath>,
    /// Hard links, each with the file that it is another name of.
    pub hard_links: BTreeSet<(String, String)>,
    /// Directories among the paths that go with all that is in them.
    pub trees: BTreeSet<String>,
}

/// Paths that are laid over a root.
#[derive(Debug, Default)]
pub(super) struct Laid {
    pub(super) paths: BTreeMap<String, LaidPath>,
    pub(super) hard_links: BTreeSet<(String, String)>,
    /// Directories among them that are something else, or nothing, now.
    pub(super) new_directories: BTreeSet<String>,
    /// Paths whose look could not be answered.
    pub(super) unknown: Mutex<BTreeSet<String>>,
}

/// Result of a look.
#[derive(Debug)]
pub(in crate::host) enum Look<'a> {
    /// To what is laid at this path.
    Laid(String, &'a LaidPath),
    /// To the disk, by this path.
    Disk(Cow<'a, str>),
}

impl LaidPath {
    pub(in crate::host) fn observed(&self) -> ObservedFile {
        match self {
            Self::Absent => ObservedFile::Absent,
            Self::File { bytes, mode, uid, gid } => ObservedFile::Regular {
                sha256: Sha256::digest(bytes),
                len: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                mode: *mode,
                uid: *uid,
                gid: *gid,
            },
            Self::Link { target, uid, gid } => {
                ObservedFile::Symlink { target: target.clone(), uid: *uid, gid: *gid }
            }
            Self::Directory { mode, uid, gid } => {
                ObservedFile::Directory { mode: *mode, uid: *uid, gid: *gid }
            }
        }
    }

    pub(super) fn link_target(&self) -> Option<String> {
        if let Self::Link { target, .. } = self { Some(target.clone()) } else { None }
    }

    pub(super) fn dress(&self) -> Option<(u32, u32, u32)> {
        match self {
            Self::Absent => None,
            Self::File { mode, uid, gid, .. } | Self::Directory { mode, uid, gid } => {
                Some((*mode, *uid, *gid))
            }
            Self::Link { uid, gid, .. } => Some((0o777, *uid, *gid)),
        }
    }
}

/// Returns a path with one slash at its beginning and none at its end.
pub(super) fn absolute(path: &str) -> String {
    match path.trim_matches('/') {
        "." | "" => "/".to_owned(),
        path => format!("/{path}"),
    }
}

/// Returns a path and those above it, without the root.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        path.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())
    })
}

impl Laid {
    /// Returns what is laid at a path without links on its way, or above it; `None` where the disk tells.
    pub(super) fn at(&self, real: &str) -> Option<&LaidPath> {
        if let Some(laid) = self.paths.get(real) {
            return Some(laid);
        }
        let above = ancestors(real).skip(1).find_map(|above| self.paths.get_key_value(above));
        match above {
            None => None,
            Some((path, LaidPath::Directory { .. })) if !self.new_directories.contains(path) => None,
            Some(_) => Some(&ABSENT),
        }
    }

    pub(super) fn note(&self, path: &str) {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    }
}
