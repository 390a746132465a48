//! Files and links of this host in whose place an update puts something else: what is below them, and what leads through them.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::{HostError, Root};
use crate::model::paths::LinkTarget;
use crate::model::{ManagedPath, Observation, ObservedFile, Obstacle, PathSpec};

/// Entries of the old and of the new config.
pub(super) type Entries<'a> = (&'a BTreeMap<ManagedPath, PathSpec>, &'a BTreeMap<ManagedPath, PathSpec>);

/// A file or a link that does not stay.
#[derive(Debug)]
struct Replaced {
    /// Its real path.
    real: String,
    is_link: bool,
    /// Nothing is below it yet, wherever it leads.
    becomes_directory: bool,
    /// The old config has an entry for it.
    is_of_config: bool,
}

/// Files and links that do not stay.
#[derive(Debug)]
pub(super) struct ReplacedPaths<'a> {
    paths: BTreeMap<&'a ManagedPath, Replaced>,
    old: &'a BTreeMap<ManagedPath, PathSpec>,
    new: &'a BTreeMap<ManagedPath, PathSpec>,
}

impl<'a> ReplacedPaths<'a> {
    pub(super) fn load(
        root: &Root,
        (old, new): Entries<'a>,
        observed: &Observation,
        restorable: &BTreeSet<ManagedPath>,
    ) -> Result<Self, HostError> {
        let mut paths = BTreeMap::new();
        for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let found = observed.files.get(path);
            let Some(found @ (ObservedFile::Regular { .. } | ObservedFile::Symlink { .. })) = found else {
                continue;
            };
            let text = if let ObservedFile::Symlink { target, .. } = found { Some(target) } else { None };
            let (is_link, is_of_config) = (text.is_some(), old.contains_key(path));
            let becomes_directory = match (old.get(path), new.get(path)) {
                (_, Some(PathSpec::Directory(_))) => true,
                (_, Some(PathSpec::File(_))) | (Some(PathSpec::Directory(_)) | None, None) => false,
                (_, Some(PathSpec::Link(link))) => match (&link.target, text) {
                    (LinkTarget::Soft(target), Some(text)) if target == text => continue,
                    (LinkTarget::Soft(_) | LinkTarget::Hard(_), _) => false,
                },
                // What leaves makes way for what is below it.
                (Some(PathSpec::File(_) | PathSpec::Link(_)), None) => {
                    !restorable.contains(path) && new.keys().any(|other| other.is_below(path.as_str()))
                }
            };
            if is_link || becomes_directory {
                let real = root.real_path(path.as_str())?;
                paths.insert(path, Replaced { real, is_link, becomes_directory, is_of_config });
            }
        }
        Ok(Self { paths, old, new })
    }

    /// Returns the path above another one that becomes a directory.
    pub(super) fn directory_above(&self, path: &ManagedPath) -> Option<&'a ManagedPath> {
        self.above(path).find_map(|(above, replaced)| replaced.becomes_directory.then_some(above))
    }

    /// Returns true if a path is below one of them by its name.
    pub(super) fn is_below_any(&self, path: &ManagedPath) -> bool {
        self.above(path).next().is_some()
    }

    fn above(&self, path: &ManagedPath) -> impl Iterator<Item = (&'a ManagedPath, &Replaced)> {
        let is_above = move |other: &ManagedPath| other != path && path.is_below(other.as_str());
        self.paths
            .iter()
            .map(|(other, replaced)| (*other, replaced))
            .filter(move |(other, _)| is_above(other))
    }

    /// Returns the links that a path leads through.
    fn on_the_way(
        &self,
        root: &Root,
        path: &ManagedPath,
    ) -> Result<Vec<(&'a ManagedPath, &Replaced)>, HostError> {
        if !self.paths.values().any(|replaced| replaced.is_link) {
            return Ok(Vec::new());
        }
        let through = root.links_on_the_way(path.as_str())?;
        let is_on_the_way = |replaced: &Replaced| replaced.is_link && through.contains(&replaced.real);
        let links = self.paths.iter().filter(|(_, replaced)| is_on_the_way(replaced));
        Ok(links.map(|(link, replaced)| (*link, replaced)).collect())
    }

    /// Returns the obstacle of a path that leads through one of the links, but is not below it by its name.
    pub(super) fn by_another_way(
        &self,
        root: &Root,
        path: &ManagedPath,
    ) -> Result<Option<Obstacle>, HostError> {
        let links = self.on_the_way(root, path)?;
        let link = links.into_iter().find(|(link, _)| !path.is_below(link.as_str()));
        Ok(link.map(|(link, _)| Obstacle {
            cause: format!("{path} leads through the link {link}, which this update changes"),
            next: format!("Change {link} in a separate update first."),
        }))
    }

    /// Returns the obstacles of links that paths of the old config are behind: they would stay where the link leads, as that config
    /// left them.
    pub(super) fn left_behind(&self, root: &Root) -> Result<Vec<(&'a ManagedPath, Obstacle)>, HostError> {
        let mut obstacles = Vec::new();
        for path in self.old.keys() {
            for (link, replaced) in self.on_the_way(root, path)? {
                let is_below = path.is_below(link.as_str());
                let is_changed = self.old.get(path) != self.new.get(path);
                let is_left = if is_below { !replaced.is_of_config } else { !is_changed };
                if is_left {
                    let cause = format!("{path} of the old config is where this link leads");
                    let next = format!("Remove {path} in a separate update first.");
                    obstacles.push((link, Obstacle { cause, next }));
                }
            }
        }
        Ok(obstacles)
    }
}
