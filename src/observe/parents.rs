//! Directories that the agent made for paths of the old config, and which of them the new one needs.

use std::collections::BTreeSet;

use crate::host::Root;
use crate::host::parents::{self, RealPaths};
use crate::model::{HostSpec, ManagedPath, ObservedFile};

use super::ObserveError;

/// Directories that the agent made for paths of the old config.
#[derive(Debug)]
pub(super) struct Parents {
    /// All of them.
    pub(super) made: BTreeSet<ManagedPath>,
    /// Those that the new config has nothing in.
    pub(super) spare: BTreeSet<ManagedPath>,
}

impl Parents {
    /// Reads them. `brought` are the paths of the image's own config.
    pub(super) fn load(
        root: &Root,
        from: &HostSpec,
        to: &HostSpec,
        brought: &BTreeSet<ManagedPath>,
    ) -> Result<Self, ObserveError> {
        let failed = || ObserveError::wrap("the directories");
        let old = from.managed().union(brought).cloned().collect();
        let mut made = parents::made_for(root, &old).map_err(failed())?;
        for path in made.clone() {
            let found = root.observe(path.as_str()).map_err(failed())?;
            if !matches!(found, ObservedFile::Directory { .. }) {
                made.remove(&path);
            }
        }
        let mut spare = BTreeSet::new();
        if !made.is_empty() {
            let new = RealPaths::load(root, to.managed().iter().chain(&to.stored())).map_err(failed())?;
            for path in &made {
                if !new.contains(path.as_str()) && !new.is_any_in(root, path).map_err(failed())? {
                    spare.insert(path.clone());
                }
            }
        }
        Ok(Self { made, spare })
    }
}
