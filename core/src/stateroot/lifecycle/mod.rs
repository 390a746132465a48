//! Stateroots driven by a desired stage: from the desire, what is seen and the conditions so far to the next action on the
//! verbs, and the conditions that say so.
//!
//! Stages, conditions, reasons and refusals are those of lifecycle-agent's ImageBasedUpgrade. Its conditions are its state,
//! and so it is here: [`Lifecycle`] is written down by the agent before each action, in both stateroots before a reboot, because
//! each has its own `/var` and, in a cluster of one node, its own etcd.
//!
//! # Decisions
//! 1. What a stage works on is what its beginning named: a desire that changes meanwhile undoes it before the new system runs,
//!    and is looked at when the work is over afterwards.
//! 2. An abort removes the stateroot that the agent has prepared, finalizing that which was left. lifecycle-agent removes each
//!    stateroot that does not run.
//! 3. An upgrade that can't be completed in the new system (a hook fails) returns, as one whose trial fails: a machine that nobody
//!    watches is left in the system that is known to work. The condition, in the previous system, has the cause.
//! 4. A file that names no version, or another one, ends no upgrade: it may have come with the seed.

mod condition;
mod decide;
mod desire;
mod stages;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::{StaterootName, Version};
use crate::model::BootId;

pub use condition::{Condition, ConditionReason, ConditionStatus, ConditionType, Conditions, Stamp};
pub use decide::{LifecycleAction, decide};
pub use desire::{Desire, ObservedStateroots, SeedRef, Source, Stage};

/// The version of [`Lifecycle`].
pub const LIFECYCLE_SCHEMA: u32 = 1;

/// The file of [`Lifecycle`], in the agent's own directory of each stateroot.
pub const LIFECYCLE_FILE: &str = "stateroot-lifecycle.json";

/// The annotation by which a person says that what the agent could not remove is gone.
pub const MANUAL_CLEANUP: &str = "lca.openshift.io/manual-cleanup-done";

/// State of the stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// The version of this shape.
    pub schema: u32,
    /// The last desire.
    pub desire: Desire,
    /// The seed of the work under way; `None` while there is none.
    #[serde(default)]
    pub seed: Option<SeedRef>,
    /// The stateroot in which it began.
    #[serde(default)]
    pub origin: Option<String>,
    /// The boot in which the reboot into another stateroot was requested.
    #[serde(default)]
    pub left_in: Option<BootId>,
    /// Reason for which the upgrade can't be completed, so that the previous stateroot is booted.
    #[serde(default)]
    pub returning: Option<String>,
    /// The object is to be made again from this: it was written for another stateroot.
    #[serde(default)]
    pub is_copy: bool,
    /// The conditions.
    pub conditions: Conditions,
}

impl Lifecycle {
    /// Makes the state of a host whose stage nobody has set yet; nothing is known of an object without conditions.
    pub fn new(desire: Desire, conditions: Conditions) -> Self {
        Self {
            schema: LIFECYCLE_SCHEMA,
            desire,
            seed: None,
            origin: None,
            left_in: None,
            returning: None,
            is_copy: false,
            conditions,
        }
    }

    /// Makes the state of an idle host.
    pub fn idle(desire: Desire, now: &str) -> Self {
        let mut new = Self::new(desire, Conditions::default());
        new.reset(&new.stamp(now));
        new
    }

    /// Returns the state for another stateroot, in which it is read after the reboot.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { is_copy: true, ..self.clone() }
    }

    /// Returns the stateroot of the seed, if its version can be one's name.
    pub fn target(&self) -> Option<StaterootName> {
        let version = Version::new(&self.seed.as_ref()?.version).ok()?;
        Some(StaterootName::from_version(&version))
    }

    /// Returns true if the seed's stateroot runs.
    pub fn is_after_pivot(&self, running: &str) -> bool {
        let is_origin = self.origin.as_deref() == Some(running);
        !is_origin && self.target().is_some_and(|target| target.as_str() == running)
    }

    fn stamp(&self, now: &str) -> Stamp {
        Stamp { generation: self.desire.generation, now: now.to_owned() }
    }

    /// Removes all conditions but `Idle`, which is true, and forgets the work.
    fn reset(&mut self, stamp: &Stamp) {
        let idle = self.conditions.find(ConditionType::Idle).cloned();
        self.conditions = Conditions::new(idle.into_iter().collect());
        let (kind, status) = (ConditionType::Idle, ConditionStatus::True);
        self.conditions.set(kind, status, ConditionReason::Idle, "Idle", stamp);
        (self.seed, self.origin, self.left_in, self.returning) = (None, None, None, None);
    }
}
