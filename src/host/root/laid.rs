//! Paths as they will be, laid over those of a root: for a look at the host as it is once an open update is undone.
//!
//! Nothing is written. A look at a path sees what is laid there, through links as well. A walk, which is safe because it opens
//! directory after directory, can't see it: one that leads through what is laid is noted, and the answer is not known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{Seek as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, RawMode, Stat};

use super::{Entry, HostError, Root, relative};
use crate::model::ids::DRAFT_SUFFIX;
use crate::model::{ObservedFile, Sha256};

/// As many links as the kernel follows in one path.
const MAX_LINKS: u32 = 40;

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
}

/// What is laid over a root.
#[derive(Debug, Default)]
pub(super) struct Laid {
    paths: BTreeMap<String, LaidPath>,
    hard_links: BTreeSet<(String, String)>,
    /// Directories among them that are something else, or nothing, now.
    new_directories: BTreeSet<String>,
    /// Paths whose look could not be answered.
    unknown: Mutex<BTreeSet<String>>,
}

/// Where a look leads.
#[derive(Debug)]
pub(in crate::host) enum Look<'a> {
    /// To what is laid at this path.
    Laid(String, &'a LaidPath),
    /// To the disk, by this path.
    Disk(Cow<'a, str>),
}

impl LaidPath {
    pub(super) fn observed(&self) -> ObservedFile {
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

    pub(super) fn dress(&self) -> Option<(u32, u32, u32)> {
        match self {
            Self::Absent => None,
            Self::File { mode, uid, gid, .. } | Self::Directory { mode, uid, gid } => {
                Some((*mode, *uid, *gid))
            }
            Self::Link { uid, gid, .. } => Some((0o777, *uid, *gid)),
        }
    }

    /// Makes the entry that it will be. A file is one of the memory.
    pub(super) fn entry(&self, path: &str) -> Result<Entry, HostError> {
        let failed = |source: std::io::Error| HostError::io("read", path, source);
        Ok(match self {
            Self::Absent => Entry::Absent,
            Self::Link { target, uid, gid } => Entry::Link { target: target.clone(), owner: (*uid, *gid) },
            Self::File { bytes, mode, uid, gid } => {
                let file = in_memory(bytes).map_err(failed)?;
                let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
                Entry::File { file, stat: dressed(stat, libc_file(*mode), *uid, *gid) }
            }
            Self::Directory { mode, uid, gid } => {
                let file = in_memory(&[]).map_err(failed)?;
                let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
                Entry::Directory { stat: dressed(stat, libc_directory(*mode), *uid, *gid) }
            }
        })
    }
}

impl LaidPath {
    /// Opens a regular file, and returns it with its length.
    pub(super) fn regular(&self, path: &str) -> Result<Option<(std::fs::File, u64)>, HostError> {
        match self.entry(path)? {
            Entry::Absent => Ok(None),
            Entry::File { file, stat } => Ok(Some((file, u64::try_from(stat.st_size).unwrap_or_default()))),
            Entry::Link { .. } | Entry::Directory { .. } | Entry::Other(_) => {
                let expected = "a regular file";
                Err(HostError::Kind { path: path.to_owned(), expected, found: "a directory or a link" })
            }
        }
    }
}

fn libc_file(mode: u32) -> u32 {
    rustix::fs::FileType::RegularFile.as_raw_mode() | mode
}

fn libc_directory(mode: u32) -> u32 {
    rustix::fs::FileType::Directory.as_raw_mode() | mode
}

fn dressed(mut stat: Stat, mode: RawMode, uid: u32, gid: u32) -> Stat {
    (stat.st_mode, stat.st_uid, stat.st_gid) = (mode, uid, gid);
    stat
}

fn in_memory(bytes: &[u8]) -> std::io::Result<std::fs::File> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("laid", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Returns a path with one slash at its beginning and none at its end.
fn absolute(path: &str) -> String {
    match relative(path).trim_end_matches('/') {
        "." | "" => "/".to_owned(),
        path => format!("/{path}"),
    }
}

/// Returns a path and those above it, without the root.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        path.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())
    })
}

impl Laid {
    /// Returns what is laid at a path without links on its way, or above it; `None` where the disk tells.
    fn at(&self, real: &str) -> Option<&LaidPath> {
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

    fn note(&self, path: &str) {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    }
}

impl Root {
    /// Lays paths over the root. Nothing can be written through what is returned.
    pub fn laid_over(&self, laid: LaidPaths) -> Result<Self, HostError> {
        let LaidPaths { mut paths, hard_links } = laid;
        let (mut stay, mut new_directories) = (Vec::new(), BTreeSet::new());
        for (path, will_be) in &paths {
            let is_directory = matches!(self.observe(path)?, ObservedFile::Directory { .. });
            match will_be {
                LaidPath::Directory { .. } if !is_directory => drop(new_directories.insert(path.clone())),
                LaidPath::Directory { .. } => {}
                LaidPath::Absent | LaidPath::File { .. } | LaidPath::Link { .. } => {
                    if is_directory && self.holds_others(path, &paths)? {
                        stay.push(path.clone());
                    }
                }
            }
        }
        // Something that nobody put aside is in it.
        paths.retain(|path, _| !stay.contains(path));
        let laid = Laid { paths, hard_links, new_directories, unknown: Mutex::default() };
        let first = Self { laid: Some(Arc::new(laid)), ..self.clone() };
        first.by_real_paths()
    }

    /// Lays everything where it really is: a directory on the way may be a link.
    fn by_real_paths(self) -> Result<Self, HostError> {
        let Some(laid) = &self.laid else { return Ok(self) };
        let mut real = Laid::default();
        for (path, will_be) in &laid.paths {
            let links = self.links_on_the_way(path)?;
            if links.iter().any(|link| laid.paths.contains_key(link)) {
                // It was seen through a link, or in its place: what comes back there depends on both.
                real.note(path);
                continue;
            }
            let at = self.real_path(path)?;
            if laid.new_directories.contains(path) {
                real.new_directories.insert(at.clone());
            }
            real.paths.insert(at, will_be.clone());
        }
        for (path, target) in &laid.hard_links {
            real.hard_links.insert((self.real_path(path)?, self.real_path(target)?));
        }
        Ok(Self { laid: Some(Arc::new(real)), ..self })
    }

    /// Returns true if something in a directory is none of these paths, as deep as it goes.
    fn holds_others(&self, directory: &str, paths: &BTreeMap<String, LaidPath>) -> Result<bool, HostError> {
        for name in self.list(directory)? {
            let path = format!("{directory}/{name}");
            if name.ends_with(DRAFT_SUFFIX) || matches!(paths.get(&path), Some(LaidPath::Absent)) {
                continue;
            }
            let is_between = self.observe(&path)? == ObservedFile::MADE_DIRECTORY
                && paths
                    .keys()
                    .any(|other| other.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/')));
            if !is_between || self.holds_others(&path, paths)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the topmost path that is laid at a path or above it and changes what is there, with what is laid.
    pub(in crate::host) fn laid_above(&self, real: &str) -> Option<(String, &LaidPath)> {
        let laid = self.laid.as_ref()?;
        let all = ancestors(real).filter_map(|path| laid.paths.get_key_value(path));
        let is_other = |(path, will_be): &(&String, &LaidPath)| {
            !matches!(will_be, LaidPath::Directory { .. })
                || laid.new_directories.contains(*path)
                || *path == real
        };
        all.filter(is_other).last().map(|(path, will_be)| (path.clone(), will_be))
    }

    /// Returns the paths for which a look at what is laid could not be answered.
    pub fn unknown(&self) -> Vec<String> {
        let Some(laid) = &self.laid else { return Vec::new() };
        laid.unknown.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Finds where a look at a path leads, a link at its end not followed.
    pub(in crate::host) fn look<'a>(&'a self, path: &'a str) -> Result<Look<'a>, HostError> {
        let Some(laid) = &self.laid else { return Ok(Look::Disk(Cow::Borrowed(path))) };
        let real = self.real_path(&absolute(path))?;
        Ok(match laid.at(&real) {
            Some(laid) => Look::Laid(real, laid),
            None => Look::Disk(Cow::Owned(real)),
        })
    }

    /// As [`Root::look`], with links at the end followed.
    pub(super) fn look_through<'a>(&'a self, path: &'a str) -> Result<Look<'a>, HostError> {
        if self.laid.is_none() {
            return Ok(Look::Disk(Cow::Borrowed(path)));
        }
        let mut path = absolute(path);
        for _ in 0..MAX_LINKS {
            let real = self.real_path(&path)?;
            let Some(target) = self.link_target(&real, &path)? else { break };
            let directory = real.rsplit_once('/').map_or("", |(directory, _)| directory);
            path = if target.starts_with('/') { target } else { format!("{directory}/{target}") };
        }
        let real = self.real_path(&path)?;
        let laid = self.laid.as_ref().and_then(|laid| laid.at(&real));
        Ok(match laid {
            Some(laid) => Look::Laid(real, laid),
            None => Look::Disk(Cow::Owned(real)),
        })
    }

    /// Returns the text of the link that is laid at a path without links on its way; `None` where the disk tells.
    pub(super) fn laid_link(&self, real: &str) -> Option<Option<String>> {
        let laid = self.laid.as_ref()?.at(&absolute(real))?;
        Some(if let LaidPath::Link { target, .. } = laid { Some(target.clone()) } else { None })
    }

    /// Returns whether two paths will be one file; `None` where the disk tells.
    pub(super) fn laid_hard_link(&self, path: &str, target: &str) -> Result<Option<bool>, HostError> {
        let Some(laid) = &self.laid else { return Ok(None) };
        let both = (self.real_path(&absolute(path))?, self.real_path(&absolute(target))?);
        if laid.hard_links.contains(&both) {
            return Ok(Some(true));
        }
        let is_laid = laid.at(&both.0).is_some() || laid.at(&both.1).is_some();
        Ok(is_laid.then_some(false))
    }

    /// Corrects the names in a directory.
    pub(super) fn list_laid(&self, directory: &str, names: &mut Vec<String>) {
        let Some(laid) = &self.laid else { return };
        let above = if directory == "/" { "" } else { directory };
        for (path, will_be) in &laid.paths {
            let name = path.strip_prefix(above).and_then(|rest| rest.strip_prefix('/'));
            let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
            names.retain(|other| other != name);
            if *will_be != LaidPath::Absent {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
    }

    /// Notes a walk that leads through what is laid.
    pub(super) fn note_walk(&self, directory: &str) -> Result<(), HostError> {
        let Some(laid) = &self.laid else { return Ok(()) };
        match self.look(directory)? {
            Look::Laid(_, LaidPath::Directory { .. }) | Look::Disk(_) => {}
            Look::Laid(..) => laid.note(directory),
        }
        Ok(())
    }

    /// Notes a path whose look can't be answered.
    pub(in crate::host) fn note_unknown(&self, path: &str) {
        if let Some(laid) = &self.laid {
            laid.note(path);
        }
    }
}
