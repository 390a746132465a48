//! Looks at a root that something is laid over (`laid`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::laid::{Laid, LaidPath, LaidPaths, Look, absolute, ancestors};
use super::{HostError, Root};
use crate::model::ObservedFile;
use crate::model::ids::DRAFT_SUFFIX;

/// As many links as the kernel follows in one path.
const MAX_LINKS: u32 = 40;

impl Root {
    /// Lays paths over the root. Nothing can be written through what is returned.
    pub fn laid_over(&self, laid: LaidPaths) -> Result<Self, HostError> {
        let LaidPaths { mut paths, hard_links, trees } = laid;
        let (mut stay, mut new_directories) = (Vec::new(), BTreeSet::new());
        for (path, will_be) in &paths {
            let is_directory = matches!(self.observe(path)?, ObservedFile::Directory { .. });
            match will_be {
                LaidPath::Directory { .. } if !is_directory => drop(new_directories.insert(path.clone())),
                LaidPath::Directory { .. } => {}
                LaidPath::Absent | LaidPath::File { .. } | LaidPath::Link { .. } => {
                    if is_directory && !trees.contains(path) && self.holds_others(path, &paths)? {
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

    /// Returns true if anything is laid over the disk.
    pub(super) fn has_laid(&self) -> bool {
        self.laid.is_some()
    }

    /// Returns what is laid at a path without links on its way; `None` where the disk tells.
    pub(super) fn laid_at(&self, real: &str) -> Option<&LaidPath> {
        self.laid.as_ref()?.at(&absolute(real))
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
