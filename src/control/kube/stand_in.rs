//! A rendered config that the cluster does not know. A bootstrap renders a pool's config before there is a cluster, and the
//! cluster's own controller may give the same content another name, or render another content: the node can't tell which
//! from the name. The installed config is on its disk, though, so the two are compared.

use tracing::info;

use super::fetch::{config_path, parse_config};
use super::{Cluster, ControlError, KubeError, invalid, mcn};
use crate::model::ConfigName;
use crate::model::document::{self, Kind};
use crate::model::hosted::SERVED;
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::pool::PoolConfigs;
use crate::report::config_difference;

/// Replacement for a config.
enum StandIn {
    /// The own copy of the config has this content, and so has the pool's config.
    Same(Vec<u8>),
    /// The pool's config is another one; or nothing is known.
    Unknown(String),
}

impl Cluster {
    /// Takes the answer for a config. One that the cluster does not have is taken from the disk, if the config of its pool has the
    /// same content; else their difference is kept.
    pub(super) async fn or_own(
        &mut self,
        name: &ConfigName,
        answer: Result<Vec<u8>, KubeError>,
    ) -> Result<Vec<u8>, KubeError> {
        self.instead.clear();
        let Err(missing) = answer else { return answer };
        if !missing.is_not_found() {
            return Err(missing);
        }
        match self.stand_in(name).await {
            Ok(StandIn::Same(own)) => Ok(own),
            Ok(StandIn::Unknown(instead)) => {
                self.instead = instead;
                Err(missing)
            }
            // The missing object is the error, not a failed search for a replacement.
            Err(_) => Err(missing),
        }
    }

    async fn stand_in(&self, name: &ConfigName) -> Result<StandIn, ControlError> {
        let unknown = |text: String| Ok(StandIn::Unknown(text));
        let Some(pool) = mcn::rendered_pool(name.as_str()) else { return unknown(String::new()) };
        let Some(own) = self.own_copy(name)? else { return unknown(String::new()) };
        let (path, object) = (pool_path(pool), format!("MachineConfigPool {pool}"));
        let pool = self.api.get(&path, &object).await?;
        let pool = document::one(pool.as_bytes(), &object, Kind::POOL)
            .and_then(|pool| PoolConfigs::of_document(&pool))
            .map_err(|error| invalid(&object, error))?;
        let Ok(other) = ConfigName::new(pool.target) else { return unknown(String::new()) };
        if other == *name {
            return unknown(String::new());
        }
        let bytes = self.api.get(&config_path(&other), &format!("MachineConfig {other}")).await?;
        let theirs = parse_config(&other, bytes.as_bytes())?;
        match difference(&parse_config(name, &own)?, &theirs)? {
            None => {
                info!(
                    "MachineConfig {name} is not in the cluster, and {object} has the same content as {other}: it counts"
                );
                Ok(StandIn::Same(own))
            }
            Some(text) => unknown(format!("; {object} has {other}, to which it would take: {text}")),
        }
    }

    /// Returns the installed config, or an earlier fetched one, if it is that config.
    fn own_copy(&self, name: &ConfigName) -> Result<Option<Vec<u8>>, ControlError> {
        let served = self.root.read_trusted(SERVED, machineconfig::MAX_BYTES)?;
        let is_it = |bytes: &Vec<u8>| parse_config(name, bytes).is_ok();
        Ok(served.filter(is_it).or(self.cache.config(name)?))
    }
}

fn difference(ours: &MachineConfig, theirs: &MachineConfig) -> Result<Option<String>, ControlError> {
    let spec = |config: &MachineConfig| {
        config.spec(None).map_err(|source| invalid(&format!("MachineConfig {}", config.name()), source))
    };
    Ok(config_difference(&spec(ours)?, &spec(theirs)?))
}

fn pool_path(pool: &str) -> String {
    format!("/apis/machineconfiguration.openshift.io/v1/machineconfigpools/{pool}")
}
