//! Directories that the agent made for paths of the old config, and which of them the new one needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::parents::{self, RealPaths};
use crate::host::{HostError, Root, restore};
use crate::model::{Displaced, HostSpec, ManagedPath, Observation, ObservedFile};

use super::ObserveError;
use super::displaced::displaced;

/// Directories in directories are looked into as far.
const MAX_DEPTH: u32 = 8;

/// Directories that the agent made for paths of the old config.
#[derive(Debug)]
pub(super) struct Parents {
    /// All of them.
    pub(super) made: BTreeSet<ManagedPath>,
    /// Those that the new config has nothing in, and that hold nothing that stays.
    pub(super) spare: BTreeSet<ManagedPath>,
    /// Directories that leave, and hold what stays.
    pub(super) holding: BTreeSet<ManagedPath>,
    /// Directories of the old config, or made for it, in whose place something else is.
    pub(super) displaced: BTreeMap<ManagedPath, Displaced>,
}

impl Parents {
    /// Reads them. `brought` are the paths of the image's own config.
    pub(super) fn load(
        root: &Root,
        (from, to): (&HostSpec, &HostSpec),
        observed: &Observation,
        brought: &BTreeSet<ManagedPath>,
    ) -> Result<Self, ObserveError> {
        let failed = || ObserveError::wrap("the directories");
        let old: BTreeSet<ManagedPath> = from.managed().union(brought).cloned().collect();
        let mut made = parents::made_for(root, &old).map_err(failed())?;
        let displaced = displaced(root, from, observed, &made)?;
        for path in made.clone() {
            let found = root.observe(path.as_str()).map_err(failed())?;
            // Behind a link nothing is removed.
            let is_link = |how: &Displaced| *how != Displaced::Mount;
            let is_behind = displaced
                .iter()
                .any(|(above, how)| is_link(how) && path != *above && path.is_below(above.as_str()));
            if is_behind || !matches!(found, ObservedFile::Directory { .. }) {
                made.remove(&path);
            }
        }
        let (mut spare, mut holding) = (BTreeSet::new(), BTreeSet::new());
        let listed: Vec<&ManagedPath> = from.directories.keys().filter(|path| !to.is_listed(path)).collect();
        if !made.is_empty() || !listed.is_empty() {
            let new = RealPaths::load(root, to.managed().iter().chain(&to.stored())).map_err(failed())?;
            let old = RealPaths::load(root, &old).map_err(failed())?;
            let stays = from.replaced(observed);
            let leaving = Leaving { root, old, made: &made, stays };
            for path in listed.into_iter().chain(&made) {
                if new.contains(path.as_str()) || new.is_any_in(root, path).map_err(failed())? {
                    continue;
                }
                let (is_made, is_emptied) =
                    (made.contains(path), leaving.is_all_of(path, 0).map_err(failed())?);
                if is_made && is_emptied {
                    spare.insert(path.clone());
                } else if !is_emptied {
                    holding.insert(path.clone());
                }
            }
        }
        Ok(Self { made, spare, holding, displaced })
    }
}

/// Paths that leave with the old config.
struct Leaving<'a> {
    root: &'a Root,
    old: RealPaths,
    made: &'a BTreeSet<ManagedPath>,
    /// Those in whose place something of another kind is.
    stays: BTreeSet<ManagedPath>,
}

impl Leaving<'_> {
    /// Returns true if nothing stays in a directory that the new config has nothing in. Links that enable a unit go later than
    /// directories do, so they stay in theirs.
    fn is_all_of(&self, directory: &ManagedPath, depth: u32) -> Result<bool, HostError> {
        if !matches!(self.root.observe(directory.as_str())?, ObservedFile::Directory { .. }) {
            return Ok(true);
        }
        for name in self.root.list(directory.as_str())? {
            let Ok(path) = ManagedPath::new(format!("{directory}/{name}")) else { return Ok(false) };
            let own = self.old.get(path.as_str());
            let leaves = match self.root.observe(path.as_str())? {
                ObservedFile::Directory { .. } => {
                    (own.is_some_and(|own| !self.stays.contains(own)) || self.made.contains(&path))
                        && depth < MAX_DEPTH
                        && self.is_all_of(&path, depth + 1)?
                }
                ObservedFile::Regular { .. } | ObservedFile::Symlink { .. } => match own {
                    Some(own) => !self.stays.contains(own) && restore::original(self.root, own)?.is_none(),
                    None => false,
                },
                ObservedFile::Absent => true,
                ObservedFile::Special | ObservedFile::Unreachable => false,
            };
            if !leaves {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
