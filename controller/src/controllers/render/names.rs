//! Names of rendered configs that work for one pool uses while unused ones are deleted beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::controllers::client::RequestError;

/// Names in use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(Arc<Mutex<InUse>>);

#[derive(Debug, Default)]
struct InUse {
    /// The config that a pool is about to have as its target, by pool.
    wanted: BTreeMap<String, String>,
    /// Those that are being deleted.
    deleted: BTreeSet<String>,
}

/// A deletion under way; it ends with this.
pub(super) struct Deletion(Names, String);

impl Drop for Deletion {
    fn drop(&mut self) {
        self.0.lock().deleted.remove(&self.1);
    }
}

impl Names {
    /// Records the config that a pool is about to have as its target.
    pub(super) fn wants(&self, pool: &str, config: &str) {
        self.lock().wanted.insert(pool.to_owned(), config.to_owned());
    }

    /// Returns an error if a config is being deleted.
    pub(super) fn usable(&self, config: &str) -> Result<(), RequestError> {
        if self.lock().deleted.contains(config) {
            return Err(RequestError::Failed(format!(
                "MachineConfig {config} is being deleted, and made again then"
            )));
        }
        Ok(())
    }

    /// Begins to delete a config, unless a pool wants it.
    pub(super) fn begin_deletion(&self, config: &str) -> Option<Deletion> {
        let mut names = self.lock();
        let is_wanted = names.wanted.values().any(|wanted| wanted == config);
        if is_wanted {
            return None;
        }
        names.deleted.insert(config.to_owned());
        drop(names);
        Some(Deletion(self.clone(), config.to_owned()))
    }

    /// Forgets pools that are gone.
    pub(super) fn keep(&self, pools: &[String]) {
        self.lock().wanted.retain(|pool, _| pools.contains(pool));
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_that_pool_is_about_to_have_is_not_deleted() {
        let names = Names::default();
        names.wants("worker", "a");
        assert!(names.begin_deletion("a").is_none());
        let deletion = names.begin_deletion("b");
        assert!(deletion.is_some() && names.usable("b").is_err() && names.usable("a").is_ok());
        drop(deletion);
        assert!(names.usable("b").is_ok());
        names.wants("worker", "b");
        assert!(names.begin_deletion("a").is_some());
    }
}
