//! The next nodes of a pool to get the target, and the pool's status.
//!
//! Pure: [`rollout`] takes a pool, its nodes and the time, and returns patches, statuses and when to be called again. All
//! that it remembers is in these statuses and in annotations of nodes.
//!
//! # What the caller owes it
//!
//! - The census holds the caller's own writes: the object that the API server returned for a patch replaces the node there at
//!   once (or [`NodePatch::apply`] does), before the next call. A decision by nodes from before the last patches may exceed
//!   `maxUnavailable`.
//! - The census holds all nodes of the pool: no call before the first list of nodes is complete. It is kept from one call to the
//!   next, and told of each change of a node: so a call does not count them all.
//! - Pools are decided one after another. [`Pool::unavailable_elsewhere`] couples those of the control plane.
//! - A patch that the API server refuses as a conflict is dropped; the node's next version brings the next decision. Any other
//!   failure is recorded in [`NodeWrites`], and so is each success.
//! - The status of the policy is written before the patches of the same call, both with their resource version. Any order
//!   is safe, and so is any write that is lost; with this one, nothing is watched longer than it has to be.
//! - [`Pool::status`] is what the API server has: no policy gives a node a target before it says that a policy rules the rollout.
//!
//! # Rules
//!
//! Capacity, order and states are the Machine Config Operator's (`pkg/controller/node`). Better on purpose: a node that
//! fails or is at work gets a new target even where it is not Ready or cordoned, since it is out of service already; one
//! that failed goes first; the controller's own node goes last in each pool; a node that was never given a target serves.

mod accepted;
mod capacity;
mod census;
mod choose;
mod clock;
mod course;
mod fleet;
mod gates;
mod input;
mod limits;
mod node;
mod number;
mod orphan;
mod patch;
mod phase;
mod pinned;
mod plan;
mod policy;
mod pools;
mod provisioned;
mod status;
mod topology;
mod windows;
mod writes;

use jiff::Timestamp;

use crate::api::{MachineConfigPoolStatus, RolloutPolicyStatus};
pub use accepted::{ACCEPTED, unfollowed, unreadable};
pub use capacity::{check_max_unavailable, most as max_unavailable};
pub use census::Census;
pub use clock::Clock;
pub use fleet::Fleet;
pub use input::{BuildState, Layering, LeftNodes, Policy, Pool, RolloutInput, Undrained};
pub use node::{
    AgentState, CURRENT_CONFIG, CURRENT_IMAGE, DESIRED_SINCE, Node, PREFETCH_SINCE, Pair, PrefetchProgress,
    REASON, STATE, UPDATE_IN_PROGRESS,
};
pub use patch::{NodePatch, Prefetch, Since};
pub(crate) use phase::{HALTED, RESUMED};
pub use pinned::{ReportedSet, annotation, sets, synchronizer};
pub use policy::check_policy;
pub use provisioned::{first_config, label_patch};
pub use status::{deleting_status, is_contested, undrained_text, unknown_status, unread_status};
pub use topology::Topology;

pub use pools::{Conflict, MASTER, Members, Membership, PoolMembers, SelectorError, Selectors, WORKER};
pub use writes::{Answer, NodeWrites};

use policy::Rules;

/// Writes, and the time of the next decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rollout {
    /// Patches of nodes, the most important first. Bounded: where more are due, `wake` is now.
    pub patches: Vec<NodePatch>,
    /// The whole status of the pool. Equal to [`Pool::status`] when there is nothing to write.
    pub status: MachineConfigPoolStatus,
    /// The whole status of the policy, where the pool has one. Written before the patches.
    pub policy_status: Option<RolloutPolicyStatus>,
    /// Something changes by time alone: call again then. Other changes come as events.
    pub wake: Option<Timestamp>,
}

/// Decides the next writes for a pool.
pub fn rollout(input: &RolloutInput<'_>, census: &mut Census) -> Rollout {
    census.refresh(input.pool.target(), &input.pool.topology, input.writes);
    let rules = Rules::new(input.pool, census.len());
    let node_timeout =
        rules.as_ref().ok().and_then(|rules| rules.as_ref()).and_then(|rules| rules.node_timeout);
    let census = census.tally(input, node_timeout);
    let mut course = limits::course(input, &census, rules);
    accepted::judge(&mut course, input.now);
    if let Some(wait) = input.writes.next_change() {
        course.wake_at(input.now.checked_add(wait).unwrap_or(input.now));
    }
    let (patches, is_cut) = choose::patches(input, &census, &course);
    Rollout {
        patches,
        status: status::status(input, &census, &course),
        wake: if is_cut { Some(input.now) } else { course.wake },
        policy_status: course.memory,
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
