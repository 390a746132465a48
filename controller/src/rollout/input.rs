//! Inputs of a decision: a pool with its policies, its nodes and the time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::clock::Clock;
use super::node::{Node, Pair};
use super::pools::{Conflict, SelectorError};
use super::topology::Topology;
use super::writes::{Answer, NodeWrites};
use crate::api::pool::{Condition, Configuration};
use crate::api::rollout_policy::RESUME;
use crate::api::{
    MachineConfigPool, MachineConfigPoolStatus, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus,
};
use crate::cost::NodeCost;

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct RolloutInput<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// Nodes that this pool and another one select.
    pub conflicts: &'a [Conflict],
    /// Cost of the way to the target, by the node's current config. A config that is missing is unknown.
    pub costs: &'a BTreeMap<String, NodeCost>,
    /// The wall clock.
    pub now: Timestamp,
    /// The jumps of the wall clock.
    pub clock: &'a Clock,
    /// Outcomes of the last writes to nodes.
    pub writes: &'a NodeWrites,
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
    /// Nodes that are not, or not only, its own and take a place of its `maxUnavailable`: those that another pool claims as well, and
    /// those that were taken away while they were at work for it.
    pub held_elsewhere: usize,
    /// Those that were taken away, for people.
    pub left: LeftNodes,
    /// The topology that its nodes are told.
    pub topology: Topology,
    /// Its annotation `machine-config-agent.io/resume`: it begins with the target that goes on although its policy is gone.
    pub resume: Option<String>,
    /// Error of its node selector.
    pub selector_error: Option<SelectorError>,
    /// Its status, as the API server has it.
    pub status: MachineConfigPoolStatus,
    /// The cluster's definition of pools has `status.plan`: the one of `machine-config-controller crds` does.
    pub has_plan: bool,
    /// Its policy. More than one is a mistake that is reported.
    pub policies: Vec<Policy>,
    /// Nodes that were provisioned for it and refuse its labels, or did not answer: they are of no pool.
    pub unlabeled: Vec<Node>,
    /// Its nodes whose cordons and answers to agents are not written.
    pub undrained: Vec<Undrained>,
    /// Message on its policy that can't be read: it may hold a window, or ask for a canary.
    pub unreadable_policy: Option<String>,
    /// The status of that policy.
    pub unreadable_memory: Option<RolloutPolicyStatus>,
    /// Message on kinds that the API server does not let this controller read: what is known of them is old, or nothing.
    pub unread: Option<String>,
    /// Message on its target, which another program sets back each time.
    pub contested: Option<String>,
    /// The target that this controller gives it, while another program sets it back.
    pub own_target: Option<String>,
    /// Message on the policy's status, which could not be written: the next steps are not recorded.
    pub unrecorded: Option<String>,
    /// Its own status could not be written.
    pub is_status_failing: bool,
    /// Its condition `RolloutHalted` as this process decided it last: the API server may not have it.
    pub halted: Option<Condition>,
    /// Its condition `RolloutResumed` as this process decided it last.
    pub resumed: Option<Condition>,
}

/// A node whose cordons and answers to its agent are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undrained {
    /// The node.
    pub node: String,
    /// Answer to the last write.
    pub answer: Answer,
    /// The API server's words, or why there are none.
    pub cause: String,
}

/// Nodes that left a pool while they were at work for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftNodes {
    /// Their number.
    pub count: usize,
    /// The first ones, each with what it does and where it is now.
    pub first: Vec<(String, String)>,
    /// Those out of service that it claims with another custom pool, which no pool updates.
    pub claimed: usize,
    /// The first ones of them.
    pub first_claimed: Vec<(String, String)>,
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

impl Pool {
    /// Reads a pool. The caller adds fields from other objects: `layering`, `os_image`, `unavailable_elsewhere`,
    /// `held_elsewhere`, `left`, `topology`, `selector_error`, `unlabeled` and `policies`.
    pub fn from_pool(pool: &MachineConfigPool) -> Self {
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            generation: pool.metadata.generation,
            configuration: pool.spec.configuration.clone().unwrap_or_default(),
            paused: pool.spec.paused.unwrap_or(false),
            max_unavailable: pool.spec.max_unavailable.clone(),
            status: pool.status.clone().unwrap_or_default(),
            resume: pool.metadata.annotations.as_ref().and_then(|all| all.get(RESUME)).cloned(),
            ..Self::default()
        }
    }

    /// Returns what its policies remember, whether or not they can be followed.
    pub(super) fn memories(&self) -> impl Iterator<Item = &RolloutPolicyStatus> {
        self.policies.iter().map(|policy| &policy.status).chain(&self.unreadable_memory)
    }

    /// Returns the config whose rollout the pool is in: that of another program is none.
    pub(super) fn own_config(&self) -> Option<&str> {
        let config = if self.contested.is_some() { &self.own_target } else { &self.configuration.name };
        config.as_deref().filter(|config| !config.is_empty())
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
            resume: annotations.and_then(|annotations| annotations.get(RESUME)).cloned(),
            spec: policy.spec.clone(),
            status: policy.status.clone().unwrap_or_default(),
        }
    }
}
