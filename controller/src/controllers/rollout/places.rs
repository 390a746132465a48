//! Places of a pool's `maxUnavailable` that nodes hold without being its own.

use crate::controllers::cache::Snapshot;
use crate::controllers::node::Node;
use crate::rollout::PoolMembers;

/// Counts the nodes out of service that a second custom pool claims, which no pool updates, and those that another pool has now while
/// they are at work for this one: until they are done, or the other pool gives them its own target, both pools count them.
pub(super) fn held_elsewhere(snapshot: &Snapshot, pool: &str, members: &PoolMembers) -> usize {
    let is_conflict = |node: &Node| members.conflicts.iter().any(|conflict| conflict.node == node.name);
    // In the order of their names, as the cache has them.
    let is_own = |node: &Node| members.nodes.binary_search(&node.name).is_ok();
    let works_for_pool = |node: &Node| {
        let config = node.rollout.desired.config.as_ref();
        let rendered = config.and_then(|config| snapshot.rendered.get(config));
        node.rollout.is_in_flight() && rendered.is_some_and(|rendered| rendered.pool == pool)
    };
    let is_out = |node: &Node| node.rollout.is_unavailable() || node.rollout.is_in_flight();
    let held = |node: &&Node| is_out(node) && (is_conflict(node) || works_for_pool(node)) && !is_own(node);
    snapshot.nodes.values().filter(held).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::cache::RenderedConfig;
    use crate::rollout::{self, AgentState, Conflict, Pair};

    fn node(name: &str, current: &str, desired: &str) -> Node {
        let (current, desired) = (Pair::new(current, None), Pair::new(desired, None));
        let state = if current == desired { AgentState::Done } else { AgentState::Working };
        let rollout = rollout::Node {
            name: name.to_owned(),
            ready: true,
            current,
            desired,
            state,
            ..rollout::Node::default()
        };
        Node { name: name.to_owned(), rollout, ..Node::default() }
    }

    fn snapshot(nodes: Vec<Node>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (config, pool) in [("worker-1", "worker"), ("worker-2", "worker"), ("infra-1", "infra")] {
            let rendered = RenderedConfig {
                pool: pool.to_owned(),
                pool_uid: String::new(),
                is_own: true,
                made_by: None,
                uid: String::new(),
                version: String::new(),
                made: None,
                generation: 1,
            };
            snapshot.rendered.insert(config.to_owned(), rendered);
        }
        snapshot.nodes = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        snapshot
    }

    #[test]
    fn node_in_flight_keeps_its_place_when_another_pool_claims_it() {
        let members = PoolMembers { nodes: vec!["a".to_owned()], conflicts: Vec::new() };
        let moved = snapshot(vec![node("a", "worker-1", "worker-2"), node("b", "worker-1", "worker-2")]);
        assert_eq!(held_elsewhere(&moved, "worker", &members), 1, "its own is counted as its own");
        assert_eq!(held_elsewhere(&moved, "infra", &members), 0);
        let done = snapshot(vec![node("b", "worker-2", "worker-2")]);
        assert_eq!(held_elsewhere(&done, "worker", &members), 0);
        let given = snapshot(vec![node("b", "worker-1", "infra-1")]);
        assert_eq!(held_elsewhere(&given, "worker", &members), 0, "it works for the other pool");
        let mut failed = node("b", "worker-1", "worker-2");
        failed.rollout.state = AgentState::Degraded;
        assert_eq!(held_elsewhere(&snapshot(vec![failed]), "worker", &members), 1);
    }

    #[test]
    fn node_of_two_pools_takes_place_in_both() {
        let pools = vec!["infra".to_owned(), "gpu".to_owned()];
        let members =
            PoolMembers { nodes: Vec::new(), conflicts: vec![Conflict { node: "b".to_owned(), pools }] };
        let mut down = node("b", "other", "other");
        assert_eq!(held_elsewhere(&snapshot(vec![down.clone()]), "gpu", &members), 0, "it serves");
        down.rollout.ready = false;
        assert_eq!(held_elsewhere(&snapshot(vec![down]), "gpu", &members), 1);
        let at_work = snapshot(vec![node("b", "infra-0", "infra-1")]);
        assert_eq!(held_elsewhere(&at_work, "gpu", &members), 1);
        assert_eq!(held_elsewhere(&at_work, "infra", &members), 1);
    }
}
