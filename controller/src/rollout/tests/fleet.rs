//! Nodes that change one by one, against a count of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::super::simulation::Dice;
use super::super::*;
use super::world::{node, now, pool};
use crate::api::MachineConfigPool;

const POOLS: [&str; 4] = ["gpu", "infra", MASTER, WORKER];

fn label(pool: &str) -> String {
    format!("node-role.kubernetes.io/{pool}")
}

fn pools() -> Vec<MachineConfigPool> {
    let object = |name: &&str| {
        let selector = json!({ "matchLabels": { label(name): "" } });
        let object = json!({ "metadata": { "name": name }, "spec": { "nodeSelector": selector } });
        serde_json::from_value(object).unwrap()
    };
    POOLS.iter().map(object).collect()
}

/// The pool that a config was rendered for.
fn rendered_for(config: Option<&String>) -> Option<&str> {
    config?.split_once('-').map(|(pool, _)| pool)
}

/// A node in any state, of one or two pools.
fn any_node(dice: &mut Dice, number: u64, version: u64) -> Node {
    let config = |dice: &mut Dice| {
        let pool = POOLS[dice.count(0, 3)];
        format!("{pool}-{}", dice.from(1, 2))
    };
    let (name, current, desired) = (format!("n{number:02}"), config(dice), config(dice));
    let mut node = node(&name, &current);
    node.resource_version = version.to_string();
    node.desired = Pair::new(if dice.one_in(2) { current } else { desired }, None);
    let states = [AgentState::Done, AgentState::Working, AgentState::Degraded];
    node.state = states[dice.count(0, 2)];
    (node.ready, node.unschedulable) = (!dice.one_in(4), dice.one_in(6));
    node.desired_since = dice.one_in(2).then(now);
    node.drain_blocked = dice.one_in(8).then(|| "a budget".to_owned());
    node.topology = dice.one_in(8).then(|| "HighlyAvailable".to_owned());
    node.left = dice.one_in(4).then(|| POOLS[dice.count(0, 3)].to_owned());
    for _ in 0..dice.from(1, 2) {
        let pool = POOLS[dice.count(0, 3)];
        node.control_plane |= pool == MASTER;
        node.labels.insert(label(pool), String::new());
    }
    node
}

/// Knowledge of the fleet about a pool, counted from all nodes.
struct Counted<'a> {
    nodes: Vec<&'a Node>,
    conflicts: Vec<Conflict>,
    unavailable_elsewhere: usize,
    held_elsewhere: usize,
    left: Vec<&'a str>,
}

fn count<'a>(members: &Members, nodes: &'a BTreeMap<String, Node>, pool: &str) -> Counted<'a> {
    let own = members.of(pool).unwrap();
    let is_conflict = |node: &Node| own.conflicts.iter().any(|conflict| conflict.node == node.name);
    let is_own = |node: &Node| own.nodes.contains(&node.name);
    let is_elsewhere =
        |node: &&Node| node.control_plane && node.is_unavailable() && !is_own(node) && !is_conflict(node);
    let is_drift = |node: &Node| {
        node.current == node.desired && node.state == AgentState::Degraded && node.is_schedulable()
    };
    let works_for = |node: &Node| {
        let is_for =
            rendered_for(node.desired.config.as_ref()) == Some(pool) || node.left.as_deref() == Some(pool);
        is_for && node.is_in_flight() && !is_drift(node)
    };
    let is_held = |node: &&Node| {
        let is_out = node.is_unavailable() || node.is_in_flight();
        is_out && (is_conflict(node) || works_for(node)) && !is_own(node)
    };
    Counted {
        nodes: own.nodes.iter().map(|name| &nodes[name]).collect(),
        conflicts: own.conflicts.clone(),
        unavailable_elsewhere: nodes.values().filter(is_elsewhere).count(),
        held_elsewhere: nodes.values().filter(is_held).count(),
        left: nodes
            .values()
            .filter(|node| works_for(node) && !is_own(node) && !is_conflict(node))
            .map(|node| &*node.name)
            .collect(),
    }
}

fn put(fleet: &mut Fleet, node: &Node) {
    fleet.put(Arc::new(node.clone()), rendered_for(node.desired.config.as_ref()), node.labels_applied);
}

/// Decides a pool by the fleet, and by a count of all nodes; both are the same.
fn decide(fleet: &mut Fleet, members: &Members, nodes: &BTreeMap<String, Node>, target: &Pool) -> Rollout {
    let name = &*target.name;
    assert_eq!(fleet.control_plane(), nodes.values().filter(|node| node.control_plane).count());
    let counted = count(members, nodes, name);
    assert_eq!(fleet.conflicts(name), counted.conflicts[..counted.conflicts.len().min(5)]);
    assert_eq!(fleet.unavailable_elsewhere(name), counted.unavailable_elsewhere, "{name}");
    assert_eq!(fleet.held_elsewhere(name), counted.held_elsewhere, "{name}");
    let left = fleet.left(name);
    assert_eq!(left.count, counted.left.len(), "{name}");
    assert!(left.first.iter().map(|(node, _)| &**node).eq(counted.left.into_iter().take(5)), "{name}");
    let pool = Pool {
        left,
        has_plan: true,
        unavailable_elsewhere: counted.unavailable_elsewhere,
        held_elsewhere: counted.held_elsewhere,
        topology: Topology::Named("SingleReplica".to_owned()),
        ..target.clone()
    };
    let input = RolloutInput {
        pool: &pool,
        conflicts: &counted.conflicts,
        costs: &BTreeMap::new(),
        now: now(),
        clock: &Clock::default(),
        writes: &NodeWrites::default(),
    };
    let own = |node: &&Node| Node { runs_controller: node.name == "n03", ..(*node).clone() };
    let all: Vec<Node> = counted.nodes.iter().map(own).collect();
    let mut full = rollout(&input, &mut Census::new(&all));
    assert_eq!(rollout(&input, fleet.census(name).unwrap()), full, "{name}");
    // A version alone changes nothing but what a patch names.
    full.patches.iter_mut().for_each(|patch| patch.resource_version.clear());
    full
}

/// After each of many changes each pool is decided as if all nodes had been counted, and a pool that is not to be decided again
/// would be decided as before.
#[test]
fn fleet_that_changes_is_decided_as_one_that_is_counted() {
    for seed in 0..30 {
        let mut dice = Dice::new(seed);
        let pools = pools();
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        let mut fleet = Fleet::new(Some("n03".to_owned()));
        fleet.begin(&pools);
        let mut before: BTreeMap<String, Rollout> = BTreeMap::new();
        let target =
            |name: &str, number: u64| Pool { name: name.to_owned(), ..pool(&format!("{name}-{number}")) };
        let mut targets = POOLS.map(|name| target(name, 1));
        for version in 1..150 {
            let number = dice.from(0, 20);
            let name = format!("n{number:02}");
            if dice.one_in(6) {
                nodes.remove(&name);
                fleet.remove(&name);
            } else {
                let node = any_node(&mut dice, number, version);
                put(&mut fleet, &node);
                nodes.insert(name, node);
            }
            let mut concerned = fleet.take_concerned();
            if dice.one_in(20) {
                let chosen = &mut targets[dice.count(0, 3)];
                *chosen = target(&chosen.name, dice.from(1, 2));
                concerned.insert(Arc::from(&*chosen.name));
            }
            let members = Members::new(&pools, nodes.values());
            for target in &targets {
                let new = decide(&mut fleet, &members, &nodes, target);
                let old = before.insert(target.name.clone(), new.clone());
                if !concerned.contains(&*target.name) {
                    assert_eq!(old, Some(new), "seed {seed}, {version}: {} changed", target.name);
                }
            }
        }
    }
}

/// A report of one node concerns its pool alone, and a version alone none.
#[test]
fn change_of_node_concerns_its_own_pool() {
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let member = |name: &str, pool: &str| {
        let mut node = node(name, &format!("{pool}-1"));
        node.labels.insert(label(pool), String::new());
        node
    };
    let (mut worker, infra) = (member("a", WORKER), member("b", "infra"));
    put(&mut fleet, &worker);
    put(&mut fleet, &infra);
    drop(fleet.take_concerned());
    worker.ready = false;
    put(&mut fleet, &worker);
    assert_eq!(fleet.take_concerned().into_iter().collect::<Vec<_>>(), [Arc::from(WORKER)]);
    worker.resource_version = "9".to_owned();
    put(&mut fleet, &worker);
    assert!(fleet.take_concerned().is_empty());
    // In flight for one pool and labeled for another one, it takes a place of both.
    worker.desired = Pair::new("worker-2", None);
    worker.labels = infra.labels.clone();
    put(&mut fleet, &worker);
    assert_eq!(fleet.take_concerned().len(), 2);
    assert_eq!((fleet.held_elsewhere(WORKER), fleet.held_elsewhere("infra")), (1, 0));
}

/// Pools of the control plane share their limit: one that is out of service concerns them all.
#[test]
fn node_of_control_plane_concerns_pools_of_control_plane() {
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let mut nodes = Vec::new();
    for (name, pool) in [("a", MASTER), ("b", "infra"), ("c", WORKER)] {
        let mut node = node(name, "x");
        node.labels.insert(label(pool), String::new());
        node.control_plane = pool != WORKER;
        put(&mut fleet, &node);
        nodes.push(node);
    }
    drop(fleet.take_concerned());
    nodes[0].ready = false;
    put(&mut fleet, &nodes[0]);
    let concerned: Vec<_> = fleet.take_concerned().into_iter().collect();
    assert_eq!(concerned, [Arc::from("infra"), Arc::from(MASTER)]);
    assert_eq!((fleet.unavailable_elsewhere("infra"), fleet.unavailable_elsewhere(MASTER)), (1, 0));
}

/// A node in flight that gets another pool's labels keeps its place until it is done, also when that pool gives it its own target.
#[test]
fn node_that_leaves_its_pool_at_work_keeps_its_place_until_done() {
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let mut moved = node("a", "worker-1");
    moved.labels.insert(label(WORKER), String::new());
    (moved.desired, moved.state) = (Pair::new("worker-2", None), AgentState::Working);
    put(&mut fleet, &moved);
    moved.labels = BTreeMap::from([(label("infra"), String::new())]);
    put(&mut fleet, &moved);
    let give = |fleet: &mut Fleet, moved: &mut Node, config: &str| {
        let mut patch = NodePatch { pair: Some(Pair::new(config, None)), ..NodePatch::new(moved) };
        fleet.mark_left("infra", std::slice::from_mut(&mut patch));
        patch.apply(moved);
        put(fleet, moved);
        patch.body()["metadata"]["annotations"].get("machine-config-agent.io/left-pool-at-work").cloned()
    };
    // Also with a second target of the new pool.
    assert_eq!(give(&mut fleet, &mut moved, "infra-1"), Some(json!(WORKER)));
    assert_eq!((fleet.held_elsewhere(WORKER), fleet.held_elsewhere("infra")), (1, 0));
    assert_eq!(give(&mut fleet, &mut moved, "infra-2"), None);
    assert_eq!(fleet.held_elsewhere(WORKER), 1);
    drop(fleet.take_concerned());
    (moved.current, moved.state) = (moved.desired.clone(), AgentState::Done);
    put(&mut fleet, &moved);
    assert_eq!(fleet.held_elsewhere(WORKER), 0);
    assert!(fleet.take_concerned().contains(WORKER), "its place is free");
    // The next update is the new pool's own.
    assert_eq!(give(&mut fleet, &mut moved, "infra-3"), Some(json!(null)));
    assert_eq!(fleet.held_elsewhere(WORKER), 0);
}

/// Moved twice while it is at work: each pool that it left keeps its place until it is done.
#[test]
fn node_that_leaves_two_pools_at_work_keeps_both_places() {
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let mut moved = Node { left: Some("edge".to_owned()), ..moved() };
    put(&mut fleet, &moved);
    assert_eq!(fleet.held_elsewhere(WORKER), 0, "edge is the one that it left");
    moved.labels = BTreeMap::from([(label(WORKER), String::new())]);
    put(&mut fleet, &moved);
    let mut patch = NodePatch { pair: Some(Pair::new("worker-2", None)), ..NodePatch::new(&moved) };
    fleet.mark_left(WORKER, std::slice::from_mut(&mut patch));
    patch.apply(&mut moved);
    put(&mut fleet, &moved);
    assert_eq!(moved.left_pools().collect::<Vec<_>>(), ["edge", "infra"]);
    assert_eq!((fleet.held_elsewhere("infra"), fleet.held_elsewhere(WORKER)), (1, 0));
    // Back in the second one, which counts it as its own: the first place stays.
    moved.labels = BTreeMap::from([(label("infra"), String::new())]);
    put(&mut fleet, &moved);
    let decided = decided(&mut fleet, Pool { name: "infra".to_owned(), paused: true, ..pool("infra-1") });
    let left: Vec<_> = decided.patches.iter().map(|patch| patch.left.clone()).collect();
    assert_eq!(left, [Some(Some("edge".to_owned()))]);
}

/// A node of `infra` that was at work for `worker` when it was given `infra-1`.
fn moved() -> Node {
    let mut moved = node("a", "worker-1");
    moved.labels.insert(label("infra"), String::new());
    (moved.desired, moved.state) = (Pair::new("infra-1", None), AgentState::Working);
    moved.left = Some(WORKER.to_owned());
    moved
}

/// Decides a pool as the shell does.
fn decided(fleet: &mut Fleet, target: Pool) -> Rollout {
    let (held_elsewhere, left) = (fleet.held_elsewhere(&target.name), fleet.left(&target.name));
    let pool = Pool { held_elsewhere, left, ..target };
    let input = RolloutInput {
        pool: &pool,
        conflicts: &[],
        costs: &BTreeMap::new(),
        now: now(),
        clock: &Clock::default(),
        writes: &NodeWrites::default(),
    };
    let mut decided = rollout(&input, fleet.census(&pool.name).unwrap());
    fleet.mark_left(&pool.name, &mut decided.patches);
    decided
}

/// Returns the patches that take the annotation away, with their version.
fn unmarked(rollout: &Rollout) -> Vec<&str> {
    let patches = rollout.patches.iter().filter(|patch| patch.left == Some(None));
    patches.map(|patch| &*patch.resource_version).collect()
}

/// Done at its target, it has no place in the pool that it left, and the annotation goes: also in a paused pool, and when it is back.
#[test]
fn node_that_leaves_its_pool_at_work_loses_annotation_when_done() {
    let infra = |is_paused| Pool { name: "infra".to_owned(), paused: is_paused, ..pool("infra-1") };
    for is_paused in [false, true] {
        let mut fleet = Fleet::new(None);
        fleet.begin(&pools());
        let mut moved = moved();
        put(&mut fleet, &moved);
        assert_eq!(unmarked(&decided(&mut fleet, infra(is_paused))), [""; 0], "it is at work");
        (moved.current, moved.state) = (moved.desired.clone(), AgentState::Done);
        moved.resource_version = "7".to_owned();
        put(&mut fleet, &moved);
        let decided_again = decided(&mut fleet, infra(is_paused));
        assert_eq!(unmarked(&decided_again), ["7"], "paused: {is_paused}");
        let body = decided_again.patches.last().unwrap().body();
        let annotations = &body["metadata"]["annotations"];
        assert_eq!(annotations.get("machine-config-agent.io/left-pool-at-work"), Some(&json!(null)));
        decided_again.patches.last().unwrap().apply(&mut moved);
        put(&mut fleet, &moved);
        assert_eq!(decided(&mut fleet, infra(is_paused)).patches, [], "one write");
    }
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let back = Node { labels: BTreeMap::from([(label(WORKER), String::new())]), ..moved() };
    put(&mut fleet, &back);
    assert_eq!(unmarked(&decided(&mut fleet, Pool { paused: true, ..pool("worker-2") })), ["1"]);
}

/// With drift at its target, which nobody gave it anew, it is at work for nothing: with the annotation still there, and without one.
#[test]
fn node_that_left_its_pool_and_drifted_takes_no_place() {
    let mut fleet = Fleet::new(None);
    fleet.begin(&pools());
    let mut moved = moved();
    (moved.current, moved.state) = (moved.desired.clone(), AgentState::Degraded);
    put(&mut fleet, &moved);
    assert_eq!(fleet.held_elsewhere(WORKER), 0);
    let mut patch = NodePatch { pair: Some(Pair::new("infra-2", None)), ..NodePatch::new(&moved) };
    fleet.mark_left("infra", std::slice::from_mut(&mut patch));
    assert_eq!(patch.left, Some(None), "not marked again");
    // It finished for worker, as infra was paused.
    (moved.desired, moved.left) = (Pair::new("worker-2", None), None);
    moved.current = moved.desired.clone();
    put(&mut fleet, &moved);
    assert_eq!(fleet.held_elsewhere(WORKER), 0);
    // Out of service, it may be half-way back to what it had.
    moved.unschedulable = true;
    put(&mut fleet, &moved);
    assert_eq!(fleet.held_elsewhere(WORKER), 1);
}

/// A pool that is complete, paused, or without nodes names it, too.
#[test]
fn pool_that_waits_for_nothing_names_node_that_left_it_at_work() {
    let named = |moved: &Node, has_others: bool, is_paused: bool| {
        let mut fleet = Fleet::new(None);
        fleet.begin(&pools());
        put(&mut fleet, moved);
        if has_others {
            let mut own = node("b", "worker-2");
            own.labels.insert(label(WORKER), String::new());
            put(&mut fleet, &own);
        }
        let decided = decided(&mut fleet, Pool { paused: is_paused, ..pool("worker-2") });
        let conditions = decided.status.conditions.unwrap();
        let found = conditions.into_iter().find(|one| one.type_ == "RolloutProgressing").unwrap();
        found.message.unwrap()
    };
    let mut moved = moved();
    let text = "all 1 nodes have worker-2; it was left during an update by node a ";
    assert_eq!(named(&moved, true, false), format!("{text}(at work, in pool infra)"));
    moved.labels.clear();
    assert_eq!(named(&moved, true, false), format!("{text}(at work, in no pool)"));
    for (has_others, is_paused) in [(true, true), (false, false)] {
        let text = named(&moved, has_others, is_paused);
        assert!(text.ends_with("; it was left during an update by node a (at work, in no pool)"), "{text}");
    }
    (moved.current, moved.state) = (moved.desired.clone(), AgentState::Done);
    assert_eq!(named(&moved, true, false), "all 1 nodes have worker-2");
}

/// The pool whose place is taken names the node, and where it is now.
#[test]
fn pool_names_node_that_left_it_at_work() {
    let named = |moved: &Node| {
        let mut fleet = Fleet::new(None);
        fleet.begin(&pools());
        put(&mut fleet, moved);
        let mut own = node("b", "worker-1");
        own.labels.insert(label(WORKER), String::new());
        put(&mut fleet, &own);
        let decided = decided(&mut fleet, pool("worker-2"));
        assert!(decided.patches.iter().all(|patch| patch.pair.is_none()), "its place is taken");
        let conditions = decided.status.conditions.unwrap();
        let found = conditions.into_iter().find(|one| one.type_ == "RolloutProgressing").unwrap();
        found.message.unwrap()
    };
    let mut moved = moved();
    let text = "0 of 1 nodes have worker-2; waiting for nodes a ";
    assert_eq!(named(&moved), format!("{text}(at work, in pool infra)"));
    moved.state = AgentState::Degraded;
    assert_eq!(named(&moved), format!("{text}(failing, in pool infra)"));
    moved.state = AgentState::Working;
    moved.labels.clear();
    assert_eq!(named(&moved), format!("{text}(at work, in no pool)"));
    for pool in ["gpu", "infra"] {
        moved.labels.insert(label(pool), String::new());
    }
    assert_eq!(named(&moved), format!("{text}(at work, in pools gpu and infra)"));
}

/// Each of the pools that claim a node out of service names it: it takes their places.
#[test]
fn pools_that_claim_node_name_it_as_waited_for() {
    let named = |claimed: &Node, target: &str| {
        let mut fleet = Fleet::new(None);
        fleet.begin(&pools());
        put(&mut fleet, claimed);
        let mut own = node("b", "infra-1");
        own.labels.insert(label("infra"), String::new());
        put(&mut fleet, &own);
        let decided = decided(&mut fleet, Pool { name: "infra".to_owned(), ..pool(target) });
        let conditions = decided.status.conditions.unwrap();
        let found = conditions.into_iter().find(|one| one.type_ == "RolloutProgressing").unwrap();
        found.message.unwrap()
    };
    let mut claimed = moved();
    claimed.labels.insert(label("gpu"), String::new());
    let text = "0 of 1 nodes have infra-2; waiting for nodes a ";
    assert_eq!(named(&claimed, "infra-2"), format!("{text}(at work, in pools gpu and infra)"));
    assert_eq!(named(&claimed, "infra-1"), "all 1 nodes have infra-1");
    claimed.left = None;
    (claimed.current, claimed.state, claimed.ready) = (claimed.desired.clone(), AgentState::Done, false);
    assert_eq!(named(&claimed, "infra-2"), format!("{text}(not Ready, in pools gpu and infra)"));
    claimed.ready = true;
    assert_eq!(named(&claimed, "infra-2"), "0 of 1 nodes have infra-2");
}
