//! A pool and its nodes, as short as a test wants to write them.

use std::collections::BTreeMap;

use super::super::*;
use crate::api::pool::Configuration;

pub(super) const NOW: &str = "2026-11-23T12:00:00Z";

pub(super) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A node that has `config` and serves.
pub(super) fn node(name: &str, config: &str) -> Node {
    let pair = Pair::new(config, None);
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: "1".to_owned(),
        created: now(),
        ready: true,
        current: pair.clone(),
        desired: pair,
        state: AgentState::Done,
        ..Node::default()
    }
}

/// `count` nodes `n00`, `n01`, ... that have `config`.
pub(super) fn nodes(count: usize, config: &str) -> Vec<Node> {
    (0..count).map(|number| node(&format!("n{number:02}"), config)).collect()
}

/// The pool `worker` with this target.
pub(super) fn pool(config: &str) -> Pool {
    let configuration = Configuration { name: Some(config.to_owned()), source: None };
    Pool { name: "worker".to_owned(), configuration, ..Pool::default() }
}

pub(super) fn decide_at(pool: &Pool, nodes: &[Node], now: Timestamp) -> Rollout {
    decide_by(&Clock::default(), pool, nodes, now)
}

pub(super) fn decide_by(clock: &Clock, pool: &Pool, nodes: &[Node], now: Timestamp) -> Rollout {
    decide_after(&NodeWrites::default(), clock, pool, nodes, now)
}

pub(super) fn decide_after(
    writes: &NodeWrites,
    clock: &Clock,
    pool: &Pool,
    nodes: &[Node],
    now: Timestamp,
) -> Rollout {
    let costs = &BTreeMap::new();
    rollout(&RolloutInput { pool, conflicts: &[], costs, now, clock, writes }, &mut Census::new(nodes))
}

pub(super) fn decide(pool: &Pool, nodes: &[Node]) -> Rollout {
    decide_at(pool, nodes, now())
}

/// The nodes that are given a target, in order.
pub(super) fn given(rollout: &Rollout) -> Vec<&str> {
    rollout.patches.iter().filter(|patch| patch.pair.is_some()).map(|patch| &*patch.node).collect()
}

/// Status, reason and message of a condition.
pub(super) fn condition(rollout: &Rollout, type_: &str) -> (String, String, String) {
    let conditions = rollout.status.conditions.as_deref().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    let found = found.unwrap_or_else(|| panic!("no condition {type_} in {conditions:?}")).clone();
    (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

/// Writes a decision, as the API server would.
pub(super) fn write(rollout: &Rollout, pool: &mut Pool, nodes: &mut [Node]) {
    pool.status = rollout.status.clone();
    if let (Some(status), [policy]) = (&rollout.policy_status, &mut *pool.policies) {
        policy.status = status.clone();
    }
    for patch in &rollout.patches {
        let node = nodes.iter_mut().find(|node| node.name == patch.node).unwrap();
        patch.apply(node);
    }
}

/// The agent of a node ends its update.
pub(super) fn finish(nodes: &mut [Node], name: &str) {
    let node = nodes.iter_mut().find(|node| node.name == name).unwrap();
    node.current = node.desired.clone();
    node.state = AgentState::Done;
    node.reason = None;
}

/// The agent of a node fails its update.
pub(super) fn fail(nodes: &mut [Node], name: &str, reason: &str) {
    let node = nodes.iter_mut().find(|node| node.name == name).unwrap();
    node.state = AgentState::Degraded;
    node.reason = Some(reason.to_owned());
}
