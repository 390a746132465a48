//! Targets that this process stands for, for the node controller.

use std::sync::PoisonError;

use tracing::info;

use super::{Controller, target_of};
use crate::api::MachineConfigPool;
use crate::controllers::cache::OwnTarget;
use crate::controllers::client::uptime;
use crate::controllers::own_target::{is_told, present};
use crate::retry::{KEPT, Turn};

impl Controller {
    /// Judges the target that a pool is to have: that of MachineConfigs that change back and forth waits.
    pub(super) fn turn(&mut self, pool: &MachineConfigPool, target: &str) -> Turn {
        let uid = pool.metadata.uid.as_deref().unwrap_or_default();
        let turn = self.turns.lock().unwrap_or_else(PoisonError::into_inner).wants(uid, target, uptime());
        match turn {
            Turn::Taken => {}
            Turn::Unsettled(left) | Turn::Held(left) => self.try_later(left),
        }
        turn
    }

    /// Has the nodes of a pool be given one of these configs and no other one; none while they are contested.
    pub(super) fn stand_for(&self, pool: &MachineConfigPool, configs: Vec<String>, is_contested: bool) {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let own = OwnTarget { uid: pool.metadata.uid.clone(), configs, is_contested };
        self.cache.change(|snapshot| snapshot.set_own_target(&name, own));
    }

    /// Stands for the target that a pool is about to have, and for the present one if it is an own one: the watch may be ahead of the answer.
    pub(super) fn stand_for_next(&self, pool: &MachineConfigPool, next: &str, is_contested: bool) {
        let known = self.cache.lock().own_target(pool).cloned();
        // The first one is known with the answer.
        let Some(known) = known else { return };
        let mut configs = known.configs;
        configs.retain(|config| config == present(pool) && config != next);
        configs.push(next.to_owned());
        self.stand_for(pool, configs, is_contested);
    }

    /// Stands for the target that a pool has if nothing better is known: it can't be rendered, or not be written to.
    pub(super) fn stand_for_present(&self, pool: &MachineConfigPool) {
        if self.cache.lock().own_target(pool).is_none() {
            let is_told = is_told(pool);
            let configs = if is_told { Vec::new() } else { vec![present(pool).to_owned()] };
            self.stand_for(pool, configs, is_told);
        }
    }

    /// Looks whether a target still stands that was set back, also while the pool can't be rendered; its nodes get it once nobody has set it
    /// back for a time.
    pub(super) fn stands(&mut self, pool: &MachineConfigPool) {
        let Some(own) = self.cache.lock().own_target(pool).cloned() else {
            return self.stand_for_present(pool);
        };
        if own.configs.iter().any(|config| config == present(pool)) {
            self.stands_with(pool, own.configs);
        }
    }

    /// Stands for the target that a pool has, which is one of these.
    pub(super) fn stands_with(&mut self, pool: &MachineConfigPool, configs: Vec<String>) {
        let was_contested = self.cache.lock().own_target(pool).is_some_and(|own| own.is_contested);
        let left = self.contested.unproven(&target_of(pool), present(pool));
        if was_contested && left.is_none() {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            info!("Pool {name} has kept its target for {} s: its nodes get it", KEPT.as_secs());
        }
        self.stand_for(pool, configs, left.is_some());
        if let Some(left) = left {
            self.try_later(left);
        }
    }
}
