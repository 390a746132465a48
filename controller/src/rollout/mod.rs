//! The next nodes of a pool to get the target, and the pool's status.
//!
//! Pure: [`rollout`] takes a pool, its nodes and the time, and returns patches, statuses and when to be asked again. All
//! that it remembers is in these statuses and in annotations of nodes.
//!
//! # What the caller owes it
//!
//! - `nodes` holds the caller's own writes: the object that the API server returned for a patch replaces the node in the
//!   caller's store at once (or [`NodePatch::apply`] does), before the next call. A decision by nodes from before the last
//!   patches may exceed `maxUnavailable`.
//! - All nodes of the pool are there: no call before the first list of nodes is complete.
//! - Pools are decided one after another. [`Pool::unavailable_elsewhere`] couples those of the control plane.
//! - A patch that the API server refuses as a conflict is dropped; the node's next version brings the next decision.
//! - The status of the policy is written before the patches of the same call, both with their resource version. Any order
//!   is safe, and so is any write that is lost; with this one, nothing is watched longer than it has to be.
//!
//! # Rules
//!
//! Capacity, order and states are the Machine Config Operator's (`pkg/controller/node`). Better on purpose: a node that
//! fails or is at work gets a new target even where it is not Ready or cordoned, since it is out of service already; one
//! that failed goes first; the controller's own node goes last in each pool; a node that was never given a target serves.

mod accepted;
mod census;
mod choose;
mod clock;
mod course;
mod gates;
mod node;
mod number;
mod patch;
mod plan;
mod policy;
mod pools;
mod status;
mod windows;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::pool::Configuration;
use crate::api::{
    MachineConfigPool, MachineConfigPoolStatus, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus,
};
use crate::cost::NodeCost;
pub use accepted::{ACCEPTED, unfollowed};
pub use choose::most as max_unavailable;
pub use clock::Clock;
pub use node::{
    AgentState, CURRENT_CONFIG, CURRENT_IMAGE, DESIRED_SINCE, Node, PREFETCH_SINCE, Pair, PrefetchProgress,
    REASON, STATE, UPDATE_IN_PROGRESS,
};
pub use patch::{NodePatch, Prefetch, Since};
pub use pools::{Conflict, MASTER, Members, Membership, PoolMembers, SelectorError, Selectors, WORKER};

use census::Census;
use policy::Rules;

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// Its nodes, in any order.
    pub nodes: &'a [&'a Node],
    /// Nodes that this pool and another one select.
    pub conflicts: &'a [Conflict],
    /// Cost of the way to the target, by the node's current config. A config that is missing is unknown.
    pub costs: &'a BTreeMap<String, NodeCost>,
    /// The wall clock.
    pub now: Timestamp,
    /// The jumps of the wall clock.
    pub clock: &'a Clock,
}

/// A pool, as far as a rollout is concerned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// The target: its `spec.configuration`.
    pub configuration: Configuration,
    /// Source of the target's image.
    pub layering: Layering,
    /// The `osImageURL` of the target, where it differs from that of the last config: a pool without layering prefetches it.
    pub os_image: Option<String>,
    /// No node is given another target.
    pub paused: bool,
    /// Nodes out of service at a time.
    pub max_unavailable: Option<IntOrString>,
    /// Nodes of the control plane that are out of service in other pools.
    pub unavailable_elsewhere: usize,
    /// Error of its node selector.
    pub selector_error: Option<SelectorError>,
    /// Its status, as the API server has it.
    pub status: MachineConfigPoolStatus,
    /// The cluster's definition of pools has `status.plan`: the one of `machine-config-controller crds` does.
    pub has_plan: bool,
    /// Its policy. More than one is a mistake that is reported.
    pub policies: Vec<Policy>,
    /// Cause that the policy of its name can't be read: it may hold a window, or ask for a canary.
    pub unreadable_policy: Option<String>,
}

/// A `RolloutPolicy`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Generation of its spec.
    pub generation: Option<i64>,
    /// Its annotation `machine-config-agent.io/resume`.
    pub resume: Option<String>,
    /// Its spec.
    pub spec: RolloutPolicySpec,
    /// Its status: the state of the rollout.
    pub status: RolloutPolicyStatus,
}

/// Source of the image of a pool's target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layering {
    /// The pool is not in image mode: no `MachineOSConfig` names it.
    #[default]
    None,
    /// There is no `MachineOSBuild` yet.
    Waiting {
        /// The `MachineOSConfig`.
        machine_os_config: String,
    },
    /// There is one.
    Build {
        /// The `MachineOSBuild`.
        machine_os_build: String,
        /// State of the build.
        state: BuildState,
    },
}

/// State of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildState {
    /// It has not begun.
    Initial,
    /// It is prepared.
    Prepared,
    /// It runs.
    Building,
    /// It failed.
    Failed,
    /// It was interrupted.
    Interrupted,
    /// It succeeded, and the `MachineOSConfig` does not name its image yet.
    Unpublished,
    /// It succeeded, and build and `MachineOSConfig` name this image, by digest.
    Built(String),
}

/// Writes, and the time of the next decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rollout {
    /// Patches of nodes, the most important first. Bounded: where more are due, `wake` is now.
    pub patches: Vec<NodePatch>,
    /// The whole status of the pool. Equal to [`Pool::status`] when there is nothing to write.
    pub status: MachineConfigPoolStatus,
    /// The whole status of the policy, where the pool has one. Written before the patches.
    pub policy_status: Option<RolloutPolicyStatus>,
    /// Something changes by time alone: ask again then. Other changes come as events.
    pub wake: Option<Timestamp>,
}

impl Pool {
    /// Reads a pool. The caller adds fields from other objects: `layering`, `os_image`, `unavailable_elsewhere`,
    /// `selector_error` and `policies`.
    pub fn from_pool(pool: &MachineConfigPool) -> Self {
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            generation: pool.metadata.generation,
            configuration: pool.spec.configuration.clone().unwrap_or_default(),
            paused: pool.spec.paused.unwrap_or(false),
            max_unavailable: pool.spec.max_unavailable.clone(),
            status: pool.status.clone().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Returns the target of the nodes, once it is known: a rendered config and, in image mode, its image.
    pub fn target(&self) -> Option<Pair> {
        let config = self.configuration.name.clone().filter(|name| !name.is_empty())?;
        match &self.layering {
            Layering::None => Some(Pair::new(config, None)),
            Layering::Build { state: BuildState::Built(image), .. } => {
                Some(Pair::new(config, Some(image.clone())))
            }
            Layering::Waiting { .. } | Layering::Build { .. } => None,
        }
    }
}

impl Policy {
    /// Reads a policy.
    pub fn from_policy(policy: &RolloutPolicy) -> Self {
        let annotations = policy.metadata.annotations.as_ref();
        Self {
            name: policy.metadata.name.clone().unwrap_or_default(),
            generation: policy.metadata.generation,
            resume: annotations
                .and_then(|annotations| annotations.get(crate::api::rollout_policy::RESUME))
                .cloned(),
            spec: policy.spec.clone(),
            status: policy.status.clone().unwrap_or_default(),
        }
    }
}

/// Decides the next writes for a pool.
pub fn rollout(seen: &Seen<'_>) -> Rollout {
    let rules = Rules::new(seen.pool, seen.nodes.len());
    let node_timeout =
        rules.as_ref().ok().and_then(|rules| rules.as_ref()).and_then(|rules| rules.node_timeout);
    let census = Census::new(seen, node_timeout);
    let mut course = course::course(seen, &census, rules);
    accepted::judge(&mut course, seen.now);
    let (patches, is_cut) = choose::patches(seen, &census, &course);
    Rollout {
        patches,
        status: status::status(seen, &census, &course),
        wake: if is_cut { Some(seen.now) } else { course.wake },
        policy_status: course.memory,
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
