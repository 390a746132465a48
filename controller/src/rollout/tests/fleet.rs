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
}

fn count<'a>(members: &Members, nodes: &'a BTreeMap<String, Node>, pool: &str) -> Counted<'a> {
    let own = members.of(pool).unwrap();
    let is_conflict = |node: &Node| own.conflicts.iter().any(|conflict| conflict.node == node.name);
    let is_own = |node: &Node| own.nodes.contains(&node.name);
    let is_elsewhere =
        |node: &&Node| node.control_plane && node.is_unavailable() && !is_own(node) && !is_conflict(node);
    let works_for =
        |node: &Node| node.is_in_flight() && rendered_for(node.desired.config.as_ref()) == Some(pool);
    let is_held = |node: &&Node| {
        let is_out = node.is_unavailable() || node.is_in_flight();
        is_out && (is_conflict(node) || works_for(node)) && !is_own(node)
    };
    Counted {
        nodes: own.nodes.iter().map(|name| &nodes[name]).collect(),
        conflicts: own.conflicts.clone(),
        unavailable_elsewhere: nodes.values().filter(is_elsewhere).count(),
        held_elsewhere: nodes.values().filter(is_held).count(),
    }
}

fn put(fleet: &mut Fleet, node: &Node) {
    fleet.put(Arc::new(node.clone()), rendered_for(node.desired.config.as_ref()), node.labels_applied);
}

/// Decides a pool by the fleet, and by a count of all nodes; both are the same.
fn decide(fleet: &mut Fleet, members: &Members, nodes: &BTreeMap<String, Node>, target: &Pool) -> Rollout {
    let name = &*target.name;
    let counted = count(members, nodes, name);
    assert_eq!(fleet.conflicts(name), counted.conflicts[..counted.conflicts.len().min(5)]);
    assert_eq!(fleet.unavailable_elsewhere(name), counted.unavailable_elsewhere, "{name}");
    assert_eq!(fleet.held_elsewhere(name), counted.held_elsewhere, "{name}");
    let pool = Pool {
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
