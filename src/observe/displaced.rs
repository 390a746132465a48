//! Directories of a config, and those that the agent made for one, in whose place somebody has put a link or mounted a file system.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::{Root, durable};
use crate::model::{Displaced, HostSpec, ManagedPath, Observation, ObservedFile};

use super::ObserveError;

/// Looks for them. `made` are the directories that the agent made.
pub(super) fn displaced(
    root: &Root,
    from: &HostSpec,
    observed: &Observation,
    made: &BTreeSet<ManagedPath>,
) -> Result<BTreeMap<ManagedPath, Displaced>, ObserveError> {
    let failed = || ObserveError::wrap("the directories");
    let mut displaced = from.displaced(observed);
    let listed = from.directories.keys().filter(|path| !from.unapplied.contains(*path));
    for path in listed.chain(made).filter(|path| !displaced.contains_key(*path)).collect::<Vec<_>>() {
        let how = match root.observe(path.as_str()).map_err(failed())? {
            ObservedFile::Symlink { .. } => Some(Displaced::MadeLink),
            ObservedFile::Directory { .. } => {
                let is_mounted = durable::is_mounted(root, path.as_str()).map_err(failed())?;
                is_mounted.then_some(Displaced::Mount)
            }
            ObservedFile::Absent
            | ObservedFile::Regular { .. }
            | ObservedFile::Special
            | ObservedFile::Unreachable => None,
        };
        displaced.extend(how.map(|how| (path.clone(), how)));
    }
    let entries = from.entries();
    let directories: BTreeSet<&str> =
        entries.keys().filter_map(|path| path.as_str().rsplit_once('/')).map(|(above, _)| above).collect();
    for directory in directories {
        let link = durable::link_of_account(root, directory).map_err(failed())?;
        let link = link.and_then(|link| ManagedPath::new(link).ok());
        if let Some(link) = link {
            displaced.entry(link).or_insert(Displaced::LinkOfAccount);
        }
    }
    Ok(displaced)
}
