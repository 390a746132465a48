//! The shell of nodes that were provisioned for a custom pool: they get its labels before any pool takes them.
//!
//! A node that refuses them is of no pool. Its own says so as of the nodes that it can't write to, and it is tried again as those are.

use std::sync::Arc;

use crate::api::MachineConfigPool;
use crate::controllers::cache::Snapshot;
use crate::rollout::{Fleet, Node, NodePatch, NodeWrites, first_config, label_patch};

/// Returns the pool that a node was provisioned for, and the patch with its labels, as long as the node waits for them.
pub(super) fn waiting<'a>(snapshot: &'a Snapshot, node: &Node) -> Option<(&'a MachineConfigPool, NodePatch)> {
    let config = first_config(node)?;
    let pool = snapshot.pools.get(&snapshot.rendered.get(config)?.pool)?.as_ref().ok()?;
    Some((pool, label_patch(node, pool)?))
}

/// Returns the patch of a node that waits for the labels of its custom pool.
pub(super) fn pending(snapshot: &Snapshot, node: &Node) -> Option<NodePatch> {
    waiting(snapshot, node).map(|(_, patch)| patch)
}

/// Returns the nodes that wait for the labels of a pool and could not be written to.
pub(super) fn unlabeled(snapshot: &Snapshot, pool: &str, fleet: &Fleet, writes: &NodeWrites) -> Vec<Node> {
    if writes.is_well() {
        return Vec::new();
    }
    let is_of_pool = |node: &&Arc<Node>| {
        waiting(snapshot, node).is_some_and(|(found, _)| found.metadata.name.as_deref() == Some(pool))
    };
    let nodes = fleet.unlabeled().filter_map(|name| snapshot.nodes.get(name));
    nodes.filter(is_of_pool).map(|node| Node::clone(node)).collect()
}
