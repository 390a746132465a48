//! Paths of the configs that are embedded in images and that the target does not have, in a staged deployment.
//!
//! The merge of `/etc` takes the new image's version of whatever the host has not changed: of these paths that is the version of
//! the config in the image. And a path that the agent took away or restored, as the running image's config had brought it, is a
//! change to the merge: it would stay so under every later image.
//!
//! # Decisions
//! 1. Each of these paths becomes what the base of the new image has. The image keeps that where the config replaced it; else it is
//!    what the host has now without that config, which may be nothing.
//! 2. A change of the host's own is merged as ever. The agent's own work is told from it by what it leaves: the original of the
//!    running image's base, or nothing.
//! 3. A directory that was made for such a path goes with it, and one that the agent had taken away so comes with the files that the
//!    new image has in it: the merge would leave out all of them.
//! 4. Links of a unit that only the new image's config turns stay as the host has them; those that the running image's config had
//!    turned, and the agent has put back to the preset, are those of the new image.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::embedded::{self, Embedded};
use super::saved::{self, PathSnapshot};
use super::systemd::{UnitFileLinks, UnitLinks};
use super::{HostError, Root};
use crate::model::ids::{IMAGE_ORIGINALS, UNIT_DIR};
use crate::model::{HostSpec, ManagedPath, ObservedFile, UnitName};

/// The version of a path that the new deployment gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The running host's, absence included.
    Host,
    /// The original that the new image keeps of its base.
    Original,
    /// The new image's own.
    Image,
    /// Nothing.
    Nothing,
    /// Nothing, if it is an empty directory.
    Emptied,
}

impl Source {
    /// Reads the version.
    pub(super) fn read(
        self,
        root: &Root,
        deployment: &str,
        path: &ManagedPath,
    ) -> Result<PathSnapshot, HostError> {
        match self {
            Self::Host => PathSnapshot::read(root, path.as_str()),
            Self::Original => Ok(embedded::kept(root, deployment, path)?.unwrap_or(PathSnapshot::Absent)),
            Self::Image => saved::of_deployment(root, deployment, path),
            Self::Nothing | Self::Emptied => Ok(PathSnapshot::Absent),
        }
    }
}

/// Finds the paths that the merge into a staged deployment, by its directory, would leave otherwise.
pub(super) fn find(
    root: &Root,
    deployment: &str,
    to: &HostSpec,
) -> Result<BTreeMap<ManagedPath, Source>, HostError> {
    let dropped = Dropped {
        root,
        deployment,
        booted: Embedded::load(root, "")?,
        staged: Embedded::load(root, deployment)?,
    };
    let (managed, stored) = (to.managed(), to.stored());
    let mut found = BTreeMap::new();
    for path in dropped.paths() {
        let is_desired = managed.contains(path) || stored.contains(path);
        if !is_desired && path.is_below("/etc") && root.real_path(path.as_str())? == path.as_str() {
            found.extend(dropped.source(path)?.map(|source| (path.clone(), source)));
        }
    }
    let is_free = |path: &ManagedPath| !managed.contains(path) && !stored.contains(path);
    let links = dropped.links(to)?;
    for (path, source) in links.into_iter().chain(dropped.directories()?) {
        if is_free(&path) {
            found.entry(path).or_insert(source);
        }
    }
    Ok(found)
}

/// The running and the staged deployment, with the configs in their images.
struct Dropped<'a> {
    root: &'a Root,
    deployment: &'a str,
    booted: Option<Embedded>,
    staged: Option<Embedded>,
}

impl Dropped<'_> {
    fn paths(&self) -> BTreeSet<&ManagedPath> {
        self.booted.iter().chain(&self.staged).flat_map(Embedded::paths).collect()
    }

    /// Returns the version that a path gets in place of the merged one; `None` if that is right, or a change of the host's own.
    fn source(&self, path: &ManagedPath) -> Result<Option<Source>, HostError> {
        let has =
            |config: &Option<Embedded>| config.as_ref().is_some_and(|config| config.paths().contains(path));
        let live = self.root.observe(path.as_str())?;
        let old = embedded::observe_of_image(self.root, "", path)?;
        let new = embedded::observe_of_image(self.root, self.deployment, path)?;
        let is_left = has(&self.booted) && live == old;
        let base = if has(&self.booted) {
            let kept = embedded::kept(self.root, "", path)?;
            kept.map_or(ObservedFile::Absent, |kept| kept.observed())
        } else {
            old.clone()
        };
        if !is_left && live != base {
            return Ok(None);
        }
        let (desired, source) = if has(&self.staged) {
            match embedded::kept(self.root, self.deployment, path)? {
                Some(kept) => (kept.observed(), Source::Original),
                None if is_left => (ObservedFile::Absent, Source::Nothing),
                None => (live.clone(), Source::Host),
            }
        } else {
            (new.clone(), Source::Image)
        };
        let merged = if live == old { new } else { live };
        let is_file = |one: &ObservedFile| {
            matches!(one, ObservedFile::Absent | ObservedFile::Regular { .. } | ObservedFile::Symlink { .. })
        };
        Ok((merged != desired && is_file(&merged) && is_file(&desired)).then_some(source))
    }

    /// Returns the directories that a config in an image made for its paths: those of the new image go if nothing is in them. One that
    /// the agent has taken away would be missing with all that the new image has in it.
    fn directories(&self) -> Result<BTreeMap<ManagedPath, Source>, HostError> {
        let mut parents = BTreeSet::new();
        for path in self.paths() {
            let mut path = path.as_str();
            while let Some((above, _)) = path.rsplit_once('/')
                && let Some(parent) = ManagedPath::new(above).ok().filter(|parent| parent.is_below("/etc/"))
                && parents.insert(parent)
            {
                path = above;
            }
        }
        let keeps_originals = !self.root.list(&format!("{}{IMAGE_ORIGINALS}", self.deployment))?.is_empty();
        let is_directory = |found: &ObservedFile| matches!(found, ObservedFile::Directory { .. });
        let mut found = BTreeMap::new();
        for path in parents {
            let old = embedded::observe_of_image(self.root, "", &path)?;
            let new = embedded::observe_of_image(self.root, self.deployment, &path)?;
            let is_gone = self.root.observe(path.as_str())? == ObservedFile::Absent;
            if !is_gone || !is_directory(&new) {
                continue;
            }
            if is_directory(&old) && embedded::kept(self.root, "", &path)? == Some(PathSnapshot::Absent) {
                self.add_files(&path, &mut found)?;
            } else if old == ObservedFile::Absent
                && (!keeps_originals
                    || embedded::kept(self.root, self.deployment, &path)? == Some(PathSnapshot::Absent))
            {
                found.insert(path, Source::Emptied);
            }
        }
        Ok(found)
    }

    /// Adds what the new image's base has in a directory.
    fn add_files(
        &self,
        directory: &ManagedPath,
        found: &mut BTreeMap<ManagedPath, Source>,
    ) -> Result<(), HostError> {
        let Some(below) = directory.as_str().strip_prefix("/etc/") else { return Ok(()) };
        for name in self.root.list(&format!("{}/usr/etc/{below}", self.deployment))? {
            let Ok(path) = ManagedPath::new(format!("{directory}/{name}")) else { continue };
            match embedded::observe_of_image(self.root, self.deployment, &path)? {
                ObservedFile::Directory { .. } => self.add_files(&path, found)?,
                ObservedFile::Regular { .. } | ObservedFile::Symlink { .. } => {
                    if !self.staged.as_ref().is_some_and(|config| config.paths().contains(&path)) {
                        found.insert(path, Source::Image);
                    }
                }
                ObservedFile::Absent | ObservedFile::Special | ObservedFile::Unreachable => {}
            }
        }
        Ok(())
    }

    /// Returns the links of units that a config in an image turns and the target does not name.
    fn links(&self, to: &HostSpec) -> Result<BTreeMap<ManagedPath, Source>, HostError> {
        let units = |config: &Option<Embedded>| -> BTreeSet<UnitName> {
            let names = config.iter().flat_map(|config| config.spec().units.keys());
            names.filter(|name| !to.units.contains_key(*name)).cloned().collect()
        };
        let (booted, staged) = (units(&self.booted), units(&self.staged));
        let mut found = BTreeMap::new();
        if booted.is_empty() && staged.is_empty() {
            return Ok(found);
        }
        let live = UnitFileLinks::load(self.root, "/etc")?;
        let old = UnitFileLinks::load(self.root, "/usr/etc")?;
        let new = UnitFileLinks::load(self.root, &format!("{}/usr/etc", self.deployment))?;
        let presets = UnitLinks::load(self.root)?;
        for unit in booted.union(&staged) {
            let (live, old, new) = (live.leading_to(unit), old.leading_to(unit), new.leading_to(unit));
            let source = if staged.contains(unit) { Source::Host } else { Source::Image };
            let observed = presets.observe(unit)?;
            // Somebody turned it on this host.
            if source == Source::Image && observed.is_against_preset() && live != old {
                continue;
            }
            let places: BTreeSet<&str> = live.keys().chain(old.keys()).chain(new.keys()).copied().collect();
            for at in places {
                let (is, was, will) = (live.get(at), old.get(at), new.get(at));
                let merged = if is == was { will } else { is };
                let desired = if source == Source::Host { is } else { will };
                if merged != desired
                    && let Ok(path) = ManagedPath::new(format!("{UNIT_DIR}/{at}"))
                {
                    found.insert(path, source);
                }
            }
        }
        Ok(found)
    }
}
