//! The target that the render controller of this process gives a pool. Its nodes are given no other one: a program that sets
//! `spec.configuration` back drives none of them.
//!
//! # Decisions
//!
//! - Where this process renders, nodes are given what it rendered last, and nothing before it has decided for the first time.
//! - Once the target was set back several times in a row, they are given it when it has stood for a time.
//! - A pool that can't be rendered keeps the target that it has.
//! - A new leader takes over the fight that the pool's condition tells of.

use super::cache::{OwnTarget, Snapshot};
use super::unread;
use crate::api::MachineConfigPool;
use crate::rollout::is_contested;

/// Judgement of the target that a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The render controller has not decided yet, and will in a moment.
    Undecided,
    /// Nodes may be given it.
    Own,
    /// Another program sets it, or sets it back.
    Contested,
}

impl Snapshot {
    /// Returns what the render controller made of this very pool.
    pub(super) fn own_target(&self, pool: &MachineConfigPool) -> Option<&OwnTarget> {
        let own = self.own_targets.as_ref()?.get(pool.metadata.name.as_deref()?)?;
        (own.uid == pool.metadata.uid).then_some(own)
    }

    /// Records what it made; returns true if that is news.
    pub(super) fn set_own_target(&mut self, pool: &str, own: OwnTarget) -> bool {
        let all = self.own_targets.get_or_insert_default();
        if all.get(pool) == Some(&own) {
            return false;
        }
        all.insert(pool.to_owned(), own);
        self.pool_changed(pool);
        true
    }

    /// Judges the target that a pool has.
    pub(super) fn standing(&self, pool: &MachineConfigPool) -> Standing {
        // Otherwise nothing is decided by the target, and the pool says so.
        let can_render = unread::RENDER.iter().all(|kind| self.knows(*kind));
        if self.own_targets.is_none() || !can_render {
            return Standing::Own;
        }
        let present = present(pool);
        match self.own_target(pool) {
            None => Standing::Undecided,
            Some(own) if own.is_contested => Standing::Contested,
            Some(own) if own.configs.iter().any(|config| config == present) => Standing::Own,
            Some(_) => Standing::Contested,
        }
    }
}

/// Returns the name of the target that a pool has; empty for none.
pub(super) fn present(pool: &MachineConfigPool) -> &str {
    pool.spec.configuration.as_ref().and_then(|target| target.name.as_deref()).unwrap_or_default()
}

/// Returns true if a pool's condition tells of another program that sets its target back.
pub(super) fn is_told(pool: &MachineConfigPool) -> bool {
    pool.status.as_ref().is_some_and(is_contested)
}
