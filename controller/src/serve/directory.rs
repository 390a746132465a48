//! Pools and rendered configs of a directory, in the layout that `bootstrap` writes.
//!
//! ```text
//! DIR/machine-pools/POOL.yaml     names the config
//! DIR/machine-configs/NAME.yaml
//! DIR/controller-config/machine-config-controller.yaml     certificates of the cluster, where it is there
//! ```
//!
//! It is read for each node, so another directory in its place is noticed.

use std::path::{Path, PathBuf};

use machine_config_core::model::{ModelError, document};

use super::authorities::authorities;
use super::files;
use super::ignition::Joining;
use super::no_config::NoConfig;
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use crate::reading::{Object, of_document};

/// The largest file: five times the API server's limit for one object.
const MAX_BYTES: u64 = 8 << 20;

/// Below it: the pools.
const POOLS: &str = "machine-pools";

/// The directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Names one. It need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns true if a bootstrap has written pools.
    #[expect(
        clippy::disallowed_methods,
        reason = "a directory that a person names; the controller has no host below it"
    )]
    pub(super) fn is_ready(&self) -> bool {
        let entries = std::fs::read_dir(self.path.join(POOLS)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| path.extension().is_some_and(|end| end == "yaml"))
    }

    pub(super) async fn joining(&self, pool: &str) -> Result<Joining, NoConfig> {
        let (directory, pool) = (self.clone(), pool.to_owned());
        let read = tokio::task::spawn_blocking(move || directory.read(&pool)).await;
        read.unwrap_or_else(|_| Err(NoConfig::NotYet("the directory was not read to its end".to_owned())))
    }

    fn read(&self, name: &str) -> Result<Joining, NoConfig> {
        if !self.is_ready() {
            // Ignition retries, and a bootstrap may still be at work.
            let place = self.path.display();
            let cause =
                format!("{place}/machine-pools has no pool yet; write it with `bootstrap --output {place}`");
            return Err(NoConfig::NotYet(cause));
        }
        let path = self.path.join(POOLS).join(format!("{name}.yaml"));
        if !is_there(&path) {
            let place = self.path.display().to_string();
            return Err(NoConfig::NoPool { pool: name.to_owned(), place });
        }
        let pool: MachineConfigPool = object(&path)?;
        let status = pool.status.and_then(|status| status.configuration);
        let named = [pool.spec.configuration, status].into_iter().flatten().filter_map(|config| config.name);
        let config = named.into_iter().find(|name| !name.is_empty());
        let Some(config) = config.filter(|name| super::is_name(name)) else {
            let cause = format!("{}: spec.configuration.name names no config", path.display());
            return Err(NoConfig::NotYet(cause));
        };
        let configs = self.path.join("machine-configs");
        let yaml = configs.join(format!("{config}.yaml"));
        let json = configs.join(format!("{config}.json"));
        if is_there(&json) && is_there(&yaml) {
            let cause = format!(
                "{} and {config}.json both hold MachineConfig {config}; remove one of the two",
                yaml.display()
            );
            return Err(NoConfig::NotYet(cause));
        }
        // Of neither the one that a bootstrap writes is named.
        let path = if is_there(&json) { json } else { yaml };
        let cluster = self.path.join("controller-config").join(format!("{CONTROLLER_CONFIG}.yaml"));
        let cluster = if is_there(&cluster) { object(&cluster)? } else { ControllerConfig::default() };
        let authorities = authorities(&cluster.spec)?;
        Ok(Joining { config: object::<MachineConfig>(&path)?, authorities, ..Joining::default() })
    }
}

fn is_there(path: &Path) -> bool {
    path.exists()
}

fn object<K: Object>(path: &Path) -> Result<K, NoConfig> {
    let bytes = files::read(path, MAX_BYTES).map_err(NoConfig::NotYet)?;
    // Without the parser's words: they may quote a secret.
    let wrong = |error: ModelError| {
        let field = error.field().map(|field| format!(": {field}")).unwrap_or_default();
        NoConfig::NotYet(format!("{}{field}: it can't be read as its kind", path.display()))
    };
    let document = document::one(&bytes, &path.display().to_string(), K::KIND).map_err(wrong)?;
    Ok(of_document(&document).map_err(wrong)?.value)
}
