//! Directories on the way to the paths of a config, and which of them the agent made.
//!
//! One that it made has a kept original, as a listed path has: nothing, or what a directory of an earlier config took the place
//! of. It lasts as long as a path of the config is in it.

use std::collections::{BTreeMap, BTreeSet};

use super::saved::{self, PREIMAGES, PathSnapshot, SAVED_DIRECTORY};
use super::{HostError, Root, embedded};
use crate::model::ids::IMAGE_ORIGINALS;
use crate::model::{HostSpec, ManagedPath, ObservedFile};

/// Paths by their names and by their real paths.
#[derive(Debug)]
pub struct RealPaths {
    paths: BTreeMap<String, ManagedPath>,
}

impl RealPaths {
    /// Resolves paths.
    pub fn load<'a>(
        root: &Root,
        paths: impl IntoIterator<Item = &'a ManagedPath>,
    ) -> Result<Self, HostError> {
        let (mut directories, mut all) = (BTreeMap::<&str, String>::new(), BTreeMap::new());
        for path in paths {
            all.insert(path.to_string(), path.clone());
            let Some((directory, name)) = path.as_str().rsplit_once('/') else { continue };
            if !directories.contains_key(directory) {
                directories.insert(directory, real_directory(root, directory)?);
            }
            let real = directories.get(directory).map(String::as_str).unwrap_or_default();
            all.insert(format!("{real}/{name}"), path.clone());
        }
        Ok(Self { paths: all })
    }

    /// Returns the directories above the paths.
    pub fn parents(&self) -> BTreeSet<ManagedPath> {
        let mut parents = BTreeSet::new();
        for path in self.paths.keys() {
            let mut path = path.as_str();
            while let Some((above, _)) = path.rsplit_once('/')
                && let Ok(parent) = ManagedPath::new(above)
                && parents.insert(parent)
            {
                path = above;
            }
        }
        parents
    }

    /// Returns true if one of the paths is in a directory.
    pub fn is_any_in(&self, root: &Root, directory: &ManagedPath) -> Result<bool, HostError> {
        let real = root.real_path(directory.as_str())?;
        let is_in =
            |path: &str, above: &str| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        Ok(self.paths.keys().any(|path| is_in(path, directory.as_str()) || is_in(path, &real)))
    }

    /// Returns true if it is one of the paths.
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains_key(path)
    }

    /// Returns the path that is there.
    pub fn get(&self, path: &str) -> Option<&ManagedPath> {
        self.paths.get(path)
    }
}

/// Returns where a directory really is.
pub fn real_directory(root: &Root, directory: &str) -> Result<String, HostError> {
    let probe = root.real_path(&format!("{directory}/_"))?;
    Ok(probe.rsplit_once('/').map_or("", |(real, _)| real).to_owned())
}

/// Returns the error of a path in a directory that links of the host lead elsewhere than `before`, where something of that name still is.
pub fn led_elsewhere(root: &Root, path: &str, before: &str) -> Result<Option<HostError>, HostError> {
    let Some(Place { directory, name, now }) = other_place(root, path, before)? else { return Ok(None) };
    let is_there = root.observe(&format!("{before}/{name}"))? != ObservedFile::Absent;
    Ok(is_there.then(|| HostError::Led { directory, before: before.to_owned(), now, name }))
}

/// The same of a path that an update took away from there: nothing of that name is left, but the directory is.
pub fn led_away(root: &Root, path: &str, before: &str) -> Result<Option<HostError>, HostError> {
    let Some(Place { directory, name, now }) = other_place(root, path, before)? else { return Ok(None) };
    let is_there = matches!(root.observe(before)?, ObservedFile::Directory { .. });
    Ok(is_there.then(|| HostError::LedAway { directory, before: before.to_owned(), now, name }))
}

/// Place of a path: its directory, by which it is named and by its real path, and its name there.
struct Place {
    directory: String,
    name: String,
    now: String,
}

/// Returns the place of a path where links of the host lead its directory elsewhere than `before`.
fn other_place(root: &Root, path: &str, before: &str) -> Result<Option<Place>, HostError> {
    let Some((directory, name)) = path.rsplit_once('/') else { return Ok(None) };
    let now = real_directory(root, directory)?;
    // A directory that has moved as a whole, with a link in its place, is the same one.
    let is_same = now == before || real_directory(root, before)? == now;
    Ok((!is_same).then(|| Place { directory: directory.to_owned(), name: name.to_owned(), now }))
}

/// Returns the error of a path of a config that links of the host led to another directory when it was applied, and that is still there.
pub fn left_elsewhere(
    root: &Root,
    from: &HostSpec,
    path: &ManagedPath,
) -> Result<Option<HostError>, HostError> {
    let above = path.as_str().rsplit_once('/').map(|(above, _)| above);
    let led = from.led.iter().find(|(directory, _)| Some(directory.as_str()) == above);
    led.map_or(Ok(None), |(_, before)| led_elsewhere(root, path.as_str(), before))
}

/// Returns the directories that the agent made for paths of a config, which does not manage them itself.
pub fn made(root: &Root, spec: &HostSpec) -> Result<BTreeSet<ManagedPath>, HostError> {
    made_for(root, &spec.managed())
}

/// Returns the directories that the agent made for paths, on this host or in its image, beside the paths themselves.
pub fn made_for(root: &Root, managed: &BTreeSet<ManagedPath>) -> Result<BTreeSet<ManagedPath>, HostError> {
    let (kept, of_image) =
        (root.list(&format!("{PREIMAGES}/{SAVED_DIRECTORY}"))?, root.list(IMAGE_ORIGINALS)?);
    let (kept, mut made) = (kept.into_iter().chain(of_image).collect::<BTreeSet<_>>(), BTreeSet::new());
    if kept.is_empty() {
        return Ok(made);
    }
    for parent in RealPaths::load(root, managed)?.parents() {
        if managed.contains(&parent) || !kept.contains(&saved::document_name(&parent)) {
            continue;
        }
        let original = match saved::load_original(root, &parent)? {
            None => embedded::kept(root, "", &parent)?,
            original => original,
        };
        // A directory was the host's, which has it back.
        if !matches!(original, None | Some(PathSnapshot::Directory { .. })) {
            made.insert(parent);
        }
    }
    Ok(made)
}
