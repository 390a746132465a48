//! `RolloutPolicy`: how a pool's nodes come to a new config. Without one, the Machine Config Operator's defaults hold.
//!
//! It is a kind of its own, so that MachineConfigPool stays as the operator defines it. Its status is the memory of the
//! rollout: what has to survive a restart of the controller is there, and nowhere else.

#![expect(clippy::duplicated_attributes, reason = "columns of one type")]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::drain::Drain;
use super::pool::Condition;
use super::schema;

/// The annotation of a `RolloutPolicy` that resumes a halted rollout: each new value once.
pub const RESUME: &str = "machine-config-agent.io/resume";

/// Rules for the updates of one pool's nodes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machine-config-agent.io",
    version = "v1alpha1",
    kind = "RolloutPolicy",
    plural = "rolloutpolicies",
    shortname = "rp",
    status = "RolloutPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Pool", type_ = "string", json_path = ".status.pool"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Wave", type_ = "integer", json_path = ".status.wave"),
    printcolumn(name = "Waves", type_ = "integer", json_path = ".status.waves"),
    printcolumn(name = "NextWindow", type_ = "date", json_path = ".status.nextWindow", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicySpec {
    /// The pool; default: the one with the policy's name
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
    /// The first nodes, before all waves
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Wave>,
    /// Waves after the canary, in order; the remaining nodes follow after the last one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub waves: Option<Vec<Wave>>,
    /// Nodes that may fail before the rollout halts: a number, or a share of the pool in percent; default 0
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percent")]
    pub allowed_failures: Option<IntOrString>,
    /// Action on failed nodes when the rollout halts; default Halt
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// A node that has not finished after this time has failed, as `2h30m`; default: never
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub node_timeout: Option<String>,
    /// Download of the OS image before the first drain
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// When nodes may be given a new target; default: always
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub windows: Option<Vec<Window>>,
    /// How nodes are drained
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// A pool by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct PoolRef {
    /// Its name
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Nodes that are updated together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "type(self.nodes) == int ? self.nodes >= 1 : self.nodes != '0%'",
        "message": "nodes must be at least 1, or 1%"
    },
    {
        "rule": "!has(self.soak) || duration(self.soak) <= duration('720h')",
        "message": "soak must be at most 720h"
    }
]))]
pub struct Wave {
    /// Size: a number of nodes, or a share of the pool in percent, rounded up
    #[schemars(schema_with = "required_number_or_percent")]
    pub nodes: IntOrString,
    /// Time that the controller watches these nodes before the next wave, as `30m`; default: none
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(schema_with = "schema::duration")]
    pub soak: Option<String>,
}

/// Action on failed nodes when the rollout halts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OnFailure {
    /// They stay as they are, until a corrected config comes.
    #[default]
    Halt,
    /// They return to the last config that all nodes of the pool had.
    RollBack,
}

/// Download of the OS image before the first drain.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.concurrency) || (type(self.concurrency) == int ? self.concurrency >= 1 : self.concurrency != '0%')",
    "message": "concurrency must be at least 1, or 1%"
}]))]
#[serde(rename_all = "camelCase", default)]
pub struct Prefetch {
    /// Nodes that download at a time: a number, or a share of the pool in percent; default 10
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percent")]
    pub concurrency: Option<IntOrString>,
    /// Longest wait for a node; default 1h
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub timeout: Option<String>,
}

/// A time at which nodes may be given a new target. A node that began in it may finish after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "duration(self.length) >= duration('1m') && duration(self.length) <= duration('168h')",
    "message": "length must be 1m to 168h"
}]))]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Days on which it opens; default: each day
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(schema_with = "days")]
    pub days: Option<Vec<Day>>,
    /// When it opens on these days, as `22:00`
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"), length(max = 5))]
    pub start: String,
    /// Length, as `4h`
    #[schemars(schema_with = "required_duration")]
    pub length: String,
    /// Time zone, as `Europe/Berlin`; default UTC
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "days of the week")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// State of the rollout; the controller resumes from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicyStatus {
    /// Generation of the spec that this is about
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The pool
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// `Complete`, `Prefetching`, `Updating`, `Soaking`, `Closed`, `Paused`, `Halted` or `Invalid`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Target of the nodes; all fields below are about it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<PolicyTarget>,
    /// The last target that all nodes had
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<PolicyTarget>,
    /// The wave: 1 is the first one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<i32>,
    /// Number of waves, with the canary and the remaining nodes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waves: Option<i32>,
    /// The image is on the nodes, as far as it could be waited for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetched: Option<bool>,
    /// The wave is watched
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<SoakStatus>,
    /// Cause of the halt
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<HaltStatus>,
    /// Failed nodes that a person accepted
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_failures: Option<i32>,
    /// The last value of the annotation `machine-config-agent.io/resume` that was followed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<String>,
    /// When nodes may be given the target next
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
    /// Errors in the policy
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// `Accepted`: the rollout of its pool follows it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
}

/// A config and, in image mode, an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct PolicyTarget {
    /// The rendered config
    #[serde(default)]
    pub config: String,
    /// The image, by digest
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub image: Option<String>,
}

/// Time that a wave was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SoakStatus {
    /// Seconds that the controller has watched it
    #[serde(default)]
    pub seconds: i64,
    /// Time of its last observation
    #[serde(default, rename = "seen")]
    pub observed_at: String,
}

/// Cause of the halt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HaltStatus {
    /// When
    pub at: String,
    /// The node that failed first
    pub node: String,
    /// Its reason
    pub cause: String,
    /// Nodes that had failed
    pub failed: i32,
    /// Nodes that were allowed to fail
    pub allowed: i32,
    /// Generation of the policy
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

impl RolloutPolicy {
    /// Returns the name of the pool that it is for.
    pub fn pool(&self) -> &str {
        let named = self.spec.pool_ref.as_ref().map(|pool| &*pool.name);
        named.or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

const NUMBER_OR_PERCENT: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";

fn number_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "nullable": true, "pattern": NUMBER_OR_PERCENT, "maxLength": 9 })
}

fn required_number_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "pattern": NUMBER_OR_PERCENT, "maxLength": 9 })
}

fn required_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": schema::DURATION, "minLength": 2, "maxLength": 18 })
}

fn days(generator: &mut SchemaGenerator) -> Schema {
    let day = generator.subschema_for::<Day>();
    json_schema!({
        "type": "array", "nullable": true, "items": day, "minItems": 1, "maxItems": 7, "x-kubernetes-list-type": "set"
    })
}
