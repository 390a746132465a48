//! Content of the screen.

use schemars::JsonSchema;
use serde::Serialize;

use super::build::BuildRow;
use super::estimate::Estimate;
use super::step::Step;
use crate::api::rollout_policy::HaltStatus;

/// Content of the screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Time of the reading.
    pub at: String,
    /// Kinds that can't be read now, shown as last read.
    pub stale: Vec<String>,
    /// The pools by name.
    pub pools: Vec<PoolView>,
    /// Builds that have not succeeded; builds that need a person come first.
    pub builds: Vec<BuildRow>,
    /// Nodes that are not done; nodes that need a person come first.
    pub nodes: Vec<NodeRow>,
    /// Number of further nodes that are not done.
    pub more_nodes: usize,
    /// Nodes that no pool updates.
    pub nodes_without_pool: usize,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// The rendered config that its nodes are to have.
    pub target: String,
    /// The image of it, in image mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The reason of its condition `RolloutProgressing`; `Unreadable` if the pool can't be read.
    pub state: String,
    /// The message of that condition.
    pub message: String,
    /// Other conditions that need a person.
    pub problems: Vec<String>,
    /// A person paused it.
    pub paused: bool,
    /// Its nodes.
    pub nodes: usize,
    /// Have the target.
    pub updated: usize,
    /// Were given something, and have not finished.
    pub at_work: usize,
    /// Will be given the target.
    pub waiting: usize,
    /// Report that they failed.
    pub degraded: usize,
    /// Do nothing, and are cordoned or not Ready.
    pub out_of_service: usize,
    /// Download the image ahead.
    pub prefetching: usize,
    /// Are drained, and a pod may not leave.
    pub drains_blocked: usize,
    /// Progress of its policy's waves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<Wave>,
    /// Cause of the halt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<HaltStatus>,
    /// Next time at which nodes may get the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
    /// Time of the remaining nodes, if nodes were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}

/// Progress of a policy's waves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// The present one, from 1; the canary, if any, is the first.
    pub number: i32,
    /// Number of waves.
    pub of: i32,
    /// Time for which it has been watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_seconds: Option<i64>,
}

/// A node that is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its pool; empty if it has none, a list with commas if several pools claim it.
    pub pool: String,
    /// Its step, or its fault.
    pub step: Step,
    /// Since when, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The cause, or the object that it waits for.
    pub detail: String,
}
