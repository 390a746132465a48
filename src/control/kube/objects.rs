//! MachineConfigs and the disruption policy: fetched by name when they are needed, kept on disk for the time that the
//! API server is away.
//!
//! An object on disk is the API server's own text, with its uid and version. It is used only while the API server is
//! away.

use crate::host::{HostError, Root};
use crate::model::{ConfigName, FileMode};

/// Directory of the cached objects.
const CACHE_PATH: &str = "/var/lib/machine-config-agent/cache";

/// So many MachineConfigs are kept: the one that runs, the one that is desired, and the previous one.
const MAX_OBJECTS: usize = 3;

/// File of the policy; empty when the cluster has none.
const POLICY: &str = "/var/lib/machine-config-agent/cache/policy.json";

/// The objects on disk.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    root: Root,
}

impl Cache {
    /// Takes the host's root.
    pub(super) fn new(root: Root) -> Self {
        Self { root }
    }

    /// Returns a MachineConfig.
    pub(super) fn config(&self, name: &ConfigName) -> Result<Option<Vec<u8>>, HostError> {
        match self.entries()?.into_iter().rev().find(|entry| entry.config == name.as_str()) {
            Some(entry) => self.root.read(&entry.path()),
            None => Ok(None),
        }
    }

    /// Stores a MachineConfig. The oldest ones go.
    pub(super) fn store_config(&self, name: &ConfigName, object: &[u8]) -> Result<(), HostError> {
        let entries = self.entries()?;
        if let Some(newest) = entries.last()
            && newest.config == name.as_str()
            && self.root.read(&newest.path())?.as_deref() == Some(object)
        {
            return Ok(());
        }
        let number = entries.last().map_or(0, |newest| newest.number + 1);
        let entry = Entry { number, config: name.to_string() };
        let (same, others): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|old| old.config == name.as_str());
        let surplus = (others.len() + 1).saturating_sub(MAX_OBJECTS);
        let stale = same.iter().chain(others.iter().take(surplus)).map(Entry::path);
        // It holds secrets.
        self.root.replace_and_remove((&entry.path(), object, FileMode::PRIVATE), &stale.collect::<Vec<_>>())
    }

    /// Returns the policy: `None` when it was never read, an empty text when the cluster has none.
    pub(super) fn policy(&self) -> Result<Option<Vec<u8>>, HostError> {
        self.root.read(POLICY)
    }

    /// Stores the policy.
    pub(super) fn store_policy(&self, object: &[u8]) -> Result<(), HostError> {
        if self.root.read(POLICY)?.as_deref() == Some(object) {
            return Ok(());
        }
        self.root.replace(POLICY, object, FileMode::PRIVATE)
    }

    /// Lists the MachineConfigs, the oldest first.
    fn entries(&self) -> Result<Vec<Entry>, HostError> {
        let names = self.root.list(CACHE_PATH)?;
        let mut entries: Vec<Entry> = names.iter().filter_map(|name| Entry::parse(name)).collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        Ok(entries)
    }
}

/// A file name: `12_rendered-worker-a.json`. No config's name has an underscore.
#[derive(Debug)]
struct Entry {
    number: u64,
    config: String,
}

impl Entry {
    fn parse(name: &str) -> Option<Self> {
        let (number, config) = name.strip_suffix(".json")?.split_once('_')?;
        Some(Self { number: number.parse().ok()?, config: config.to_owned() })
    }

    fn path(&self) -> String {
        format!("{CACHE_PATH}/{}_{}.json", self.number, self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_newest_few() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(Root::open(directory.path()).unwrap());
        let name = |text: &str| ConfigName::new(text).unwrap();
        assert_eq!(cache.config(&name("a")).unwrap(), None);
        for config in ["a", "b", "c", "a", "d"] {
            cache.store_config(&name(config), config.as_bytes()).unwrap();
        }
        assert_eq!(cache.entries().unwrap().len(), MAX_OBJECTS);
        assert_eq!(cache.config(&name("b")).unwrap(), None);
        assert_eq!(cache.config(&name("a")).unwrap().unwrap(), b"a");
        cache.store_config(&name("a"), b"other").unwrap();
        assert_eq!(cache.config(&name("a")).unwrap().unwrap(), b"other");
        assert_eq!(cache.entries().unwrap().len(), MAX_OBJECTS);
    }

    #[test]
    fn cluster_without_policy_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(Root::open(directory.path()).unwrap());
        assert_eq!(cache.policy().unwrap(), None);
        cache.store_policy(b"").unwrap();
        assert_eq!(cache.policy().unwrap().unwrap(), b"");
    }
}
