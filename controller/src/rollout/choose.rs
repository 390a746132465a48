//! Which nodes are patched.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::capacity::capacity;
use super::census::Tally;
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
    census: &Tally<'_>,
    course: &Course,
) -> (Vec<NodePatch>, bool) {
    let stops = matches!(course.phase, Phase::Paused | Phase::Invalid | Phase::Contested);
    let Some(target) = census.target.as_ref().filter(|_| !stops) else { return told(input, census) };
    let capacity = capacity(input, census).unwrap_or(0);
    let mut patches = Vec::new();
    let is_held = |node: &Node| census.is_held(node, input.writes);
    // The same write once more, which has its place.
    let unsettled = census.unsettled.iter().map(|node| &**node).filter(|_| course.phase == Phase::Updating);
    let given = unsettled.chain(chosen(input, census, capacity, course.limit)).map(|node| (node, target));
    let returned = course.roll_back.iter().flat_map(|pair| census.failed().map(move |node| (node, pair)));
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
    // Each of the others has something to be written, unless it is held or in a patch above.
    let most = MAX_PATCHES + 1 + done.len() + census.obstacles.len();
    let others = others(census, course, &requested, most).into_values();
    for node in others.filter(|node| !done.contains(&node.name) && !is_held(node)) {
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

/// Returns nodes that may get a patch without a target, of each list at most so many.
fn others<'a>(
    census: &Tally<'a>,
    course: &Course,
    requested: &BTreeSet<&'a str>,
    most: usize,
) -> BTreeMap<&'a str, &'a Node> {
    let census = census.census();
    let waits = matches!(course.phase, Phase::Updating | Phase::Soaking);
    let untainted = waits.then_some(&census.untainted);
    let lists = [&census.astray, &census.tainted, &census.prefetched].into_iter().chain(untainted);
    let lists = lists.flat_map(|list| list.iter().take(most));
    let at_work = census.at_work.iter().chain(&census.failing).chain(&census.unsettled);
    let requested = requested.iter().filter_map(|name| census.nodes.get(*name));
    // Those of them that are not done are at work.
    lists.chain(at_work).chain(&census.marked).chain(requested).map(|node| (&*node.name, &**node)).collect()
}

/// Returns the patches of a pool that gives no target: the topology, which agents at work have to know, too, and the mark of a pool that a
/// node left, whose place is free.
fn told(input: &RolloutInput<'_>, census: &Tally<'_>) -> (Vec<NodePatch>, bool) {
    let marked = census.marked.iter().filter(|node| !census.astray.contains(&*node.name));
    let nodes = census.astray.iter().chain(marked).map(|node| &**node);
    let changed = nodes.filter(|node| !census.is_held(node, input.writes)).map(|node| marks(input, node));
    let mut patches: Vec<NodePatch> =
        changed.filter(|patch| !patch.is_empty()).take(MAX_PATCHES + 1).collect();
    let is_cut = patches.len() > MAX_PATCHES;
    patches.truncate(MAX_PATCHES);
    (patches, is_cut)
}

/// Returns the patch of what a node is told in any phase.
fn marks(input: &RolloutInput<'_>, node: &Node) -> NodePatch {
    let kept: Vec<_> = node.left_pools().filter(|left| !node.is_done() && *left != input.pool.name).collect();
    let kept = (!kept.is_empty()).then(|| kept.join(","));
    NodePatch {
        topology: input.pool.topology.change(node),
        left: (kept != node.left).then_some(kept),
        ..NodePatch::new(node)
    }
}

/// Returns the patch of a node that gets no target now.
fn other(
    input: &RolloutInput<'_>,
    node: &Node,
    target: &Pair,
    course: &Course,
    is_requested: bool,
) -> NodePatch {
    let mut patch = marks(input, node);
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
fn prefetching<'a>(input: &RolloutInput<'a>, census: &Tally<'a>, course: &Course) -> BTreeSet<&'a str> {
    let Some(order) = &course.prefetch else { return BTreeSet::new() };
    let is_ahead =
        |node: &Node| node.prefetch_since.is_some_and(|since| since.duration_since(input.now) > MAX_SKEW);
    let mut running = 0_usize;
    let mut requested = BTreeSet::new();
    let mut idle = Vec::new();
    let all = census.census();
    // One that was cordoned meanwhile downloads all the same.
    let cordoned =
        all.blocked.iter().map(|node| &**node).filter(|node| gates::is_running(node, order, input));
    let waiting = all.waiting.iter().map(|node| &**node);
    for node in waiting.chain(cordoned).filter(|node| node.ready) {
        if gates::is_running(node, order, input) {
            running += 1;
            if is_ahead(node) {
                requested.insert(&*node.name);
            }
        } else if gates::is_pending(node, order, input) && !census.is_held(node, input.writes) {
            idle.push(node);
        }
    }
    // In the order in which they are given the target.
    let free = order.at_once.saturating_sub(running);
    requested.extend(idle.into_iter().take(free).map(|node| &*node.name));
    requested
}

/// Returns those of the waiting nodes that get the target: as many as there is capacity for, and at most `limit`.
fn chosen<'a>(input: &RolloutInput<'_>, census: &Tally<'a>, capacity: usize, limit: usize) -> Vec<&'a Node> {
    let all = census.census();
    let is_held = |node: &Node| census.is_held(node, input.writes);
    let held = census.obstacles.keys().filter_map(|name| all.nodes.get(*name));
    let held = held.filter(|node| is_held(node) && node.is_unavailable() && all.is_waiting(node)).count();
    // One that is out of service already needs no capacity.
    let free = all.waiting_unavailable.saturating_sub(held);
    let most = capacity.saturating_add(free).min(limit);
    let mut left = capacity;
    let is_last = |node: &Node| census.obstacles.get(&*node.name).is_some_and(|obstacle| obstacle.is_last);
    let first = all.waiting.iter().map(|node| &**node).filter(|node| !is_held(node) && !is_last(node));
    let last = census.obstacles.keys().filter_map(|name| all.nodes.get(*name)).map(|node| &**node);
    let last = last.filter(|node| is_last(node) && !is_held(node) && all.is_waiting(node));
    let nodes = first.chain(last).take(most);
    let fits = |node: &&Node| {
        let costs = usize::from(!node.is_unavailable());
        let fits = costs <= left;
        left -= costs.min(left);
        fits
    };
    nodes.filter(fits).collect()
}
