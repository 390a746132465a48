//! Which nodes are patched.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::capacity::capacity;
use super::census::Census;
use super::course::Course;
use super::phase::Phase;
use super::{Node, NodePatch, Pair, Prefetch, RolloutInput, Since, gates};

/// The most patches of one call; the next ones follow at once.
const MAX_PATCHES: usize = 512;

/// A time that lies this far ahead was written by a clock that was wrong.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Returns the patches, and whether there are more.
pub(super) fn patches(
    input: &RolloutInput<'_>,
    census: &Census<'_>,
    course: &Course,
) -> (Vec<NodePatch>, bool) {
    let stops = matches!(course.phase, Phase::Paused | Phase::Invalid);
    let Some(target) = census.target.as_ref().filter(|_| !stops) else { return told(input) };
    let capacity = capacity(input, census).unwrap_or(0);
    let mut patches = Vec::new();
    let is_held = |node: &Node| census.is_held(node, input.writes);
    // The same write once more, which has its place.
    let unsettled = census.unsettled.iter().copied().filter(|_| course.phase == Phase::Updating);
    let free: Vec<&Node> = census.waiting.iter().copied().filter(|node| !is_held(node)).collect();
    let given = chosen(free, capacity, course.limit).into_iter();
    let given = unsettled.chain(given).map(|node| (node, target));
    let failed = census.failing.iter().chain(&census.late).copied();
    let returned = course.roll_back.iter().flat_map(|pair| failed.clone().map(move |node| (node, pair)));
    for (node, pair) in given.chain(returned).filter(|(node, _)| !is_held(node)) {
        let mut patch = NodePatch::new(node);
        patch.pair = Some(pair.clone());
        patch.since = Some(Since::new(pair, input.now));
        patch.taint(node, pair != target);
        patch.topology = input.pool.topology.change(node);
        patches.push(patch);
    }
    let done: BTreeSet<String> = patches.iter().map(|patch| patch.node.clone()).collect();
    let requested = prefetching(input, census, course);
    let others = input.nodes.iter().filter(|node| !done.contains(&node.name));
    for node in others.filter(|node| !is_held(node)) {
        let patch = other(input, node, target, course, requested.contains(&*node.name));
        if !patch.is_empty() {
            patches.push(patch);
        }
        if patches.len() > MAX_PATCHES {
            break;
        }
    }
    let is_cut = patches.len() > MAX_PATCHES;
    patches.truncate(MAX_PATCHES);
    (patches, is_cut)
}

/// Returns the patches of a pool that gives no target: the topology alone, which agents at work have to know, too.
fn told(input: &RolloutInput<'_>) -> (Vec<NodePatch>, bool) {
    let changed = input.nodes.iter().filter_map(|node| {
        let topology = input.pool.topology.change(node)?;
        Some(NodePatch { topology: Some(topology), ..NodePatch::new(node) })
    });
    let mut patches: Vec<NodePatch> = changed.take(MAX_PATCHES + 1).collect();
    let is_cut = patches.len() > MAX_PATCHES;
    patches.truncate(MAX_PATCHES);
    (patches, is_cut)
}

/// Returns the patch of a node that gets no target now.
fn other(
    input: &RolloutInput<'_>,
    node: &Node,
    target: &Pair,
    course: &Course,
    is_requested: bool,
) -> NodePatch {
    let mut patch = NodePatch { topology: input.pool.topology.change(node), ..NodePatch::new(node) };
    let is_given = node.desired == *target;
    if is_given || matches!(course.phase, Phase::Updating | Phase::Soaking) {
        patch.taint(node, !is_given);
    }
    let is_ahead = |since: Timestamp| since.duration_since(input.now) > MAX_SKEW;
    // One without a stamp was given the target by somebody else.
    if is_given && node.is_in_flight() && node.desired_since.is_none_or(is_ahead) {
        patch.since = Some(Since::new(&node.desired, input.now));
    }
    if let (Some(order), true) = (&course.prefetch, is_requested) {
        patch.prefetch = Some(Some(Prefetch { image: order.image.clone(), since: input.now }));
    } else if is_given && node.is_done() && node.prefetch_since.is_some() {
        // The agent drops an unneeded download.
        patch.prefetch = Some(None);
    }
    patch
}

/// Returns the nodes that are requested to prefetch now.
fn prefetching<'a>(input: &RolloutInput<'a>, census: &Census<'a>, course: &Course) -> BTreeSet<&'a str> {
    let Some(order) = &course.prefetch else { return BTreeSet::new() };
    let is_ahead =
        |node: &Node| node.prefetch_since.is_some_and(|since| since.duration_since(input.now) > MAX_SKEW);
    let mut running = 0_usize;
    let mut requested = BTreeSet::new();
    let mut idle = Vec::new();
    // One that was cordoned meanwhile downloads all the same.
    let cordoned = census.blocked.iter().filter(|node| gates::is_running(node, order, input));
    for node in census.waiting.iter().chain(cordoned).filter(|node| node.ready) {
        if gates::is_running(node, order, input) {
            running += 1;
            if is_ahead(node) {
                requested.insert(&*node.name);
            }
        } else if gates::is_pending(node, order, input) && !census.is_held(node, input.writes) {
            idle.push(*node);
        }
    }
    let free = order.at_once.saturating_sub(running);
    if free < idle.len() && free > 0 {
        idle.select_nth_unstable_by(free, |one, other| self::order(one, other));
    }
    requested.extend(idle.into_iter().take(free).map(|node| &*node.name));
    requested
}

/// Returns those of the nodes that get the target: as many as there is capacity for, and at most `limit`.
fn chosen(mut nodes: Vec<&Node>, capacity: usize, limit: usize) -> Vec<&Node> {
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
