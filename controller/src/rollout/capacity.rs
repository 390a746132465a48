//! Capacity of a pool: the nodes that may be out of service.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::census::Tally;
use super::input::{Pool, RolloutInput};
use super::node::Node;
use super::number::{Rounding, scaled};

/// Returns why a node can't be given a target, or is waited for.
pub(super) fn obstacle(node: &Node) -> &'static str {
    if node.ready { "cordoned" } else { "not Ready" }
}

/// Returns how many nodes may be taken out of service now.
pub(super) fn capacity(input: &RolloutInput<'_>, census: &Tally<'_>) -> Result<usize, String> {
    let max = max_unavailable(input, census)?;
    let elsewhere = if census.is_control_plane() { input.pool.unavailable_elsewhere } else { 0 };
    Ok(max
        .saturating_sub(census.occupied)
        .saturating_sub(elsewhere)
        .saturating_sub(input.pool.held_elsewhere))
}

/// Returns how many nodes may be out of service; at least 1, of the control plane never more.
pub(super) fn max_unavailable(input: &RolloutInput<'_>, census: &Tally<'_>) -> Result<usize, String> {
    most(input.pool, census.len(), census.is_control_plane())
}

/// Refuses a `maxUnavailable` that is neither a number nor a percentage.
pub fn check_max_unavailable(value: Option<&IntOrString>) -> Result<(), String> {
    let checked = value.map_or(Ok(0), |value| scaled(value, 1, Rounding::Down)).map(drop);
    checked
        .map_err(|cause| format!("spec.maxUnavailable: {cause}; write a number, or a percentage such as 25%"))
}

/// Returns how many of a pool's nodes may be out of service; at least 1, of the control plane never more.
pub fn most(pool: &Pool, nodes: usize, is_control_plane: bool) -> Result<usize, String> {
    let max = match &pool.max_unavailable {
        None => 1,
        Some(value) => scaled(value, nodes, Rounding::Down)?,
    };
    Ok(if is_control_plane { 1 } else { max.max(1) })
}
