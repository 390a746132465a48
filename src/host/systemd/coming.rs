//! Unit files and drop-ins as they will be: those of the host, with the ones of an update in their place.

use std::collections::BTreeMap;

use crate::host::HostError;
use crate::host::parents::real_directory;
use crate::host::root::{Entry, Root};
use crate::model::ManagedPath;

/// A path as an update leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coming {
    /// A file with these bytes.
    File(Vec<u8>),
    /// A link with this text.
    Link(String),
    /// A directory.
    Directory,
    /// Nothing.
    Nothing,
}

/// A path among unit files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Absent,
    File,
    /// A file without a byte: a mask.
    Empty,
    Link(String),
    /// A directory, or what else no unit is read from.
    Other,
}

/// The unit files of a root, with those of an update in their place.
#[derive(Debug, Clone)]
pub(super) struct Sources<'a> {
    root: &'a Root,
    coming: BTreeMap<ManagedPath, Coming>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(root: &'a Root, coming: BTreeMap<ManagedPath, Coming>) -> Self {
        Self { root, coming }
    }

    fn coming(&self, path: &str) -> Option<&Coming> {
        if self.coming.is_empty() {
            return None;
        }
        ManagedPath::new(path).ok().and_then(|path| self.coming.get(&path))
    }

    pub(super) fn entry(&self, path: &str) -> Result<Source, HostError> {
        Ok(match self.coming(path) {
            Some(Coming::File(bytes)) if bytes.is_empty() => Source::Empty,
            Some(Coming::File(_)) => Source::File,
            Some(Coming::Link(target)) => Source::Link(target.clone()),
            Some(Coming::Directory) => Source::Other,
            Some(Coming::Nothing) => Source::Absent,
            None => match Entry::at(self.root, path)? {
                Entry::Absent => Source::Absent,
                Entry::File { stat, .. } if stat.st_size == 0 => Source::Empty,
                Entry::File { .. } => Source::File,
                Entry::Link { target, .. } => Source::Link(target),
                Entry::Directory { .. } | Entry::Other(_) => Source::Other,
            },
        })
    }

    /// Reads a file, links followed.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, HostError> {
        match self.coming(path) {
            Some(Coming::File(bytes)) => Ok(Some(bytes.clone())),
            Some(Coming::Nothing | Coming::Directory) => Ok(None),
            Some(Coming::Link(target)) if target.starts_with('/') => match self.coming(target) {
                Some(Coming::File(bytes)) => Ok(Some(bytes.clone())),
                Some(_) | None => self.root.read(target),
            },
            Some(Coming::Link(target)) => {
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                self.root.read(&format!("{directory}/{target}"))
            }
            None => self.root.read(path),
        }
    }

    /// Lists a directory.
    pub(super) fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        // A directory that comes in the place of something else is empty.
        let is_new = self.coming(directory) == Some(&Coming::Directory)
            && !matches!(Entry::at(self.root, directory)?, Entry::Directory { .. });
        let mut names = if is_new { Vec::new() } else { self.root.list(directory)? };
        for (path, coming) in &self.coming {
            let below = path.as_str().strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
            let Some(below) = below else { continue };
            let name = below.split('/').next().unwrap_or(below);
            let is_listed = names.iter().any(|listed| listed == name);
            if *coming != Coming::Nothing && !is_listed {
                names.push(name.to_owned());
            } else if *coming == Coming::Nothing && name == below {
                names.retain(|listed| listed != name);
            }
        }
        Ok(names)
    }

    /// Returns true for a directory, also by a link.
    pub(super) fn is_directory(&self, path: &str) -> Result<bool, HostError> {
        let is_below = |other: &ManagedPath| other.as_str() != path && other.is_below(path);
        let comes = self.coming.iter().any(|(other, coming)| *coming != Coming::Nothing && is_below(other));
        if comes {
            return Ok(true);
        }
        match self.coming(path) {
            Some(Coming::Directory) => Ok(true),
            Some(Coming::File(_) | Coming::Nothing) => Ok(false),
            Some(Coming::Link(_)) | None => {
                let real = real_directory(self.root, path)?;
                Ok(matches!(Entry::at(self.root, &real)?, Entry::Directory { .. }))
            }
        }
    }
}
