//! Which nodes are patched.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::census::Census;
use super::{Node, NodePatch, Seen};

/// The most patches of one call; the next ones follow at once.
const MAX_PATCHES: usize = 512;

/// Returns the patches, and whether there are more.
pub(super) fn patches(seen: &Seen<'_>, census: &Census<'_>) -> (Vec<NodePatch>, bool) {
    let Some(target) = &census.target else { return (Vec::new(), false) };
    if seen.pool.paused {
        return (Vec::new(), false);
    }
    let capacity = capacity(seen, census).unwrap_or(0);
    let chosen = chosen(census, capacity, usize::MAX);
    let mut patches = Vec::new();
    for node in &chosen {
        let mut patch = NodePatch::new(node);
        patch.pair = Some(target.clone());
        patch.taint(node, false);
        patches.push(patch);
    }
    let chosen: BTreeSet<&str> = chosen.iter().map(|node| &*node.name).collect();
    for node in seen.nodes.iter().filter(|node| !chosen.contains(&*node.name)) {
        let mut patch = NodePatch::new(node);
        patch.taint(node, node.desired != *target);
        if !patch.is_empty() {
            patches.push(patch);
        }
        if patches.len() > MAX_PATCHES.max(chosen.len()) {
            break;
        }
    }
    let is_cut = patches.len() > MAX_PATCHES;
    patches.truncate(MAX_PATCHES);
    (patches, is_cut)
}

/// Returns how many nodes may be taken out of service now.
pub(super) fn capacity(seen: &Seen<'_>, census: &Census<'_>) -> Result<usize, String> {
    let max = max_unavailable(seen, census)?;
    let elsewhere = if census.is_control_plane { seen.pool.unavailable_elsewhere } else { 0 };
    Ok(max.saturating_sub(census.occupied).saturating_sub(elsewhere))
}

/// Returns how many nodes may be out of service; at least 1, of the control plane never more.
pub(super) fn max_unavailable(seen: &Seen<'_>, census: &Census<'_>) -> Result<usize, String> {
    let max = match &seen.pool.max_unavailable {
        None => 1,
        Some(value) => super::number::scaled(value, seen.nodes.len(), super::number::Rounding::Down)?,
    };
    Ok(if census.is_control_plane { 1 } else { max.max(1) })
}

/// Returns the nodes that get the target: as many as there is capacity for, and at most `limit`.
fn chosen<'a>(census: &Census<'a>, capacity: usize, limit: usize) -> Vec<&'a Node> {
    let mut nodes = census.waiting.clone();
    let free = nodes.iter().filter(|node| node.is_unavailable()).count();
    // More than these are never chosen: no need to sort all.
    let most = capacity.saturating_add(free).min(limit);
    if most == 0 {
        return Vec::new();
    }
    if most < nodes.len() {
        nodes.select_nth_unstable_by(most, |one, other| order(one, other));
        nodes.truncate(most);
    }
    nodes.sort_unstable_by(|one, other| order(one, other));
    let mut left = capacity;
    nodes.retain(|node| {
        let costs = usize::from(!node.is_unavailable());
        let fits = costs <= left;
        left -= costs.min(left);
        fits
    });
    nodes
}

/// Failed nodes first, then those at work: both are out of service already. Then by zone and age, as the operator does;
/// the controller's own node last.
fn order(one: &Node, other: &Node) -> Ordering {
    let class = |node: &Node| match (node.is_in_flight(), node.is_degraded()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    };
    class(one)
        .cmp(&class(other))
        .then_with(|| one.runs_controller.cmp(&other.runs_controller))
        .then_with(|| one.zone.is_none().cmp(&other.zone.is_none()))
        .then_with(|| one.zone.cmp(&other.zone))
        .then_with(|| one.created.cmp(&other.created))
        .then_with(|| one.name.cmp(&other.name))
}
