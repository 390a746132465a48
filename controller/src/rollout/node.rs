//! A node, reduced to the fields that decide a rollout.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as KubeNode, NodeCondition, Taint};
use serde::Deserialize;

use crate::drain;
use crate::model::annotations::{DESIRED_CONFIG, DESIRED_IMAGE, PREFETCH_IMAGE, PREFETCH_STATUS};

/// The annotation with the config that a node has.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// The annotation with the image that a node has.
pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
/// The annotation with the agent's state.
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// The annotation with the agent's error.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// The annotation with a config and the time at which the node was given it: `<config> <time>`.
pub const DESIRED_SINCE: &str = "machine-config-agent.io/desired-since";
/// The annotation with the pool that a node belonged to when another pool gave it a target before it was done.
pub(super) const LEFT_POOL: &str = "machine-config-agent.io/left-pool-at-work";
/// The annotation with the time at which the node was requested to prefetch.
pub const PREFETCH_SINCE: &str = "machine-config-agent.io/prefetch-since";
/// The annotation with the config that a node was provisioned with.
pub(super) const FIRST_PIVOT: &str = "machineconfiguration.openshift.io/firstPivotConfig";
/// The annotation of a node that has had the labels of its custom pool.
pub(super) const LABELS_APPLIED: &str = "machineconfiguration.openshift.io/customPoolLabelsApplied";
/// The annotation with the topology of the cluster.
pub(super) const TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// The taint of nodes that wait for an update.
pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";

const ZONE: &str = "topology.kubernetes.io/zone";
const CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/arbiter",
];

/// A config and, in image mode, an image: a node's current or desired pair. One value, written in one patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pair {
    /// The rendered config.
    pub config: Option<String>,
    /// The image; `None` outside of image mode.
    pub image: Option<String>,
}

impl Pair {
    /// Creates the pair of a rendered config and an image.
    pub fn new(config: impl Into<String>, image: Option<String>) -> Self {
        Self { config: Some(config.into()), image }
    }
}

/// State that the agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentState {
    /// It has not said anything yet.
    #[default]
    Unknown,
    /// `Done`.
    Done,
    /// `Working`.
    Working,
    /// `Degraded`.
    Degraded,
    /// `Unreconcilable`.
    Unreconcilable,
}

/// Progress of the node's prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefetchProgress {
    /// Not begun, or under way.
    Running,
    /// The image is on the node.
    Done,
    /// It failed; the agent tries again.
    Failed,
}

/// A node, reduced to the fields that decide a rollout. The caller keeps these in place of whole objects.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts of a node that don't exclude one another")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version of the object: the precondition of each patch.
    pub resource_version: String,
    /// Its zone.
    pub zone: Option<String>,
    /// When it was created.
    pub created: Timestamp,
    /// It takes pods: Ready, no disk pressure, a network.
    pub ready: bool,
    /// It is cordoned.
    pub unschedulable: bool,
    /// It belongs to the control plane.
    pub control_plane: bool,
    /// This controller runs on it. [`Node::from_node`] can't know; the caller sets it.
    pub runs_controller: bool,
    /// It runs Windows: no pool takes it.
    pub windows: bool,
    /// Its labels, by which pools select it.
    pub labels: BTreeMap<String, String>,
    /// All its taints: a patch replaces the list.
    pub taints: Vec<Taint>,
    /// Current config and image.
    pub current: Pair,
    /// Desired config and image.
    pub desired: Pair,
    /// State that the agent reports.
    pub state: AgentState,
    /// The agent's error.
    pub reason: Option<String>,
    /// When it was given its target.
    pub desired_since: Option<Timestamp>,
    /// The pools for which it was at work when another one gave it a target, with commas between them.
    pub left: Option<String>,
    /// The image that it is requested to prefetch.
    pub prefetch_image: Option<String>,
    /// When it was requested.
    pub prefetch_since: Option<Timestamp>,
    /// Progress of that prefetch.
    pub prefetch: Option<PrefetchProgress>,
    /// The pod and the budget that its drain waits for.
    pub drain_blocked: Option<String>,
    /// The config that it was provisioned with.
    pub first_pivot: Option<String>,
    /// It has had the labels of its custom pool.
    pub labels_applied: bool,
    /// The topology of the cluster, as its agent was told.
    pub topology: Option<String>,
    /// Cause of its failed drain.
    pub drain_failed: Option<String>,
    /// Its annotations: those of the contract with agents, and our own.
    pub annotations: BTreeMap<String, String>,
}

/// Annotations that are kept.
const PREFIXES: [&str; 2] = ["machineconfiguration.openshift.io/", "machine-config-agent.io/"];

impl Node {
    /// Reduces a Node object.
    pub fn from_node(node: KubeNode) -> Self {
        let meta = node.metadata;
        let labels = meta.labels.unwrap_or_default();
        let mut annotations = meta.annotations.unwrap_or_default();
        annotations.retain(|key, _| PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
        let annotation = |key: &str| annotations.get(key).filter(|value| !value.is_empty()).cloned();
        let spec = node.spec.unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let prefetch_image = annotation(PREFETCH_IMAGE);
        let drain_failed = drain_failed(&annotations);
        Self {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            zone: labels.get(ZONE).cloned(),
            created: meta.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            ready: is_ready(&conditions),
            unschedulable: spec.unschedulable.unwrap_or(false),
            control_plane: CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)),
            runs_controller: false,
            windows: labels.get("kubernetes.io/os").is_some_and(|os| os == "windows"),
            taints: spec.taints.unwrap_or_default(),
            current: Pair { config: annotation(CURRENT_CONFIG), image: annotation(CURRENT_IMAGE) },
            desired: Pair {
                config: annotation(DESIRED_CONFIG),
                image: DESIRED_IMAGE.iter().find_map(|key| annotation(key)),
            },
            state: state(annotation(STATE).as_deref()),
            reason: drain_failed.clone().or_else(|| annotation(REASON)),
            desired_since: annotation(DESIRED_SINCE)
                .and_then(|stamp| given(&stamp, annotation(DESIRED_CONFIG).as_deref())),
            left: annotation(LEFT_POOL),
            prefetch_since: annotation(PREFETCH_SINCE).and_then(|time| time.parse().ok()),
            prefetch: annotation(PREFETCH_STATUS)
                .and_then(|status| progress(&status, prefetch_image.as_deref())),
            prefetch_image,
            drain_blocked: drain_blocked(&annotations),
            first_pivot: annotation(FIRST_PIVOT),
            labels_applied: annotations.contains_key(LABELS_APPLIED),
            topology: annotation(TOPOLOGY),
            drain_failed,
            labels,
            annotations,
        }
    }

    /// Returns true if nothing differs but the version.
    pub fn is_same(&self, other: &Self) -> bool {
        *self == Self { resource_version: self.resource_version.clone(), ..other.clone() }
    }

    /// Returns true if it has its target, and reports Done.
    pub fn is_done(&self) -> bool {
        self.current.config.is_some() && self.current == self.desired && self.state == AgentState::Done
    }

    /// Returns true if the agent could not apply its target.
    pub fn is_failing(&self) -> bool {
        self.current != self.desired && self.is_degraded()
    }

    /// Returns true if the agent reports Degraded or Unreconcilable, or its drain failed.
    pub fn is_degraded(&self) -> bool {
        self.drain_failed.is_some() || matches!(self.state, AgentState::Degraded | AgentState::Unreconcilable)
    }

    /// Returns true if it takes pods.
    pub fn is_schedulable(&self) -> bool {
        self.ready && !self.unschedulable
    }

    /// Returns true if it is out of service, or may go so at any time because its agent is at work. A node that was never
    /// given anything serves.
    pub fn is_unavailable(&self) -> bool {
        !self.is_schedulable() || (self.desired.config.is_some() && !self.is_done() && !self.is_failing())
    }

    /// Returns true if it was given something that it does not have yet.
    pub fn is_in_flight(&self) -> bool {
        self.desired.config.is_some() && !self.is_done()
    }

    /// Returns true if it may be out of service for its target. A fault of one that has it is drift; out of service, it may also be on its
    /// way back to what it had.
    pub fn is_at_work(&self) -> bool {
        let has_fault = matches!(self.state, AgentState::Degraded | AgentState::Unreconcilable);
        let has_drift = self.current == self.desired && has_fault && self.is_schedulable();
        self.is_in_flight() && !has_drift
    }

    /// Returns the pools that it left while it was at work for them.
    pub fn left_pools(&self) -> impl Iterator<Item = &str> {
        self.left.as_deref().into_iter().flat_map(|left| left.split(',')).filter(|pool| !pool.is_empty())
    }

    /// Returns true if it has the taint of nodes that wait for an update.
    pub fn is_tainted(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UPDATE_IN_PROGRESS && taint.effect == "PreferNoSchedule")
    }
}

/// Reads when a node was given its target. The stamp of another one says nothing: a person, or another controller, gave it this.
fn given(stamp: &str, config: Option<&str>) -> Option<Timestamp> {
    let (of, time) = stamp.split_once(' ').map_or((config, stamp), |(of, time)| (Some(of), time));
    if of == config { time.parse().ok() } else { None }
}

/// Returns the cause that blocks a drain, as long as the agent waits for the drain.
fn drain_blocked(annotations: &BTreeMap<String, String>) -> Option<String> {
    let view = drain::NodeView::new(annotations, true);
    let blocked = view.blocked.filter(|_| drain::request(&view) == Some(drain::Request::Drain));
    blocked.map(str::to_owned)
}

/// Returns why the drain that the agent waits for failed.
fn drain_failed(annotations: &BTreeMap<String, String>) -> Option<String> {
    drain::NodeView::new(annotations, true).failure().map(str::to_owned)
}

/// The Machine Config Operator's rule.
fn is_ready(conditions: &[NodeCondition]) -> bool {
    let is = |type_: &str, status: &str| {
        conditions.iter().filter(|found| found.type_ == type_).all(|found| found.status == status)
    };
    let known = conditions.iter().any(|found| found.type_ == "Ready");
    known && is("Ready", "True") && is("DiskPressure", "False") && is("NetworkUnavailable", "False")
}

fn state(text: Option<&str>) -> AgentState {
    match text {
        Some("Done") => AgentState::Done,
        Some("Working") => AgentState::Working,
        Some("Degraded") => AgentState::Degraded,
        Some("Unreconcilable") => AgentState::Unreconcilable,
        _ => AgentState::Unknown,
    }
}

/// Reads the agent's prefetch status; that of another image is ignored.
fn progress(status: &str, image: Option<&str>) -> Option<PrefetchProgress> {
    #[derive(Deserialize)]
    struct Status {
        image: String,
        state: String,
    }
    let status: Status = serde_json::from_str(status).ok()?;
    (Some(&*status.image) == image).then_some(match &*status.state {
        "Done" => PrefetchProgress::Done,
        "Failed" => PrefetchProgress::Failed,
        _ => PrefetchProgress::Running,
    })
}
