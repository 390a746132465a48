//! The shell of nodes that were provisioned for a custom pool: they get its labels before any pool takes them.
//!
//! A node that refuses them is of no pool. Its own says so as of the nodes that it can't write to, and it is tried again as those are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::Client;
use tracing::{info, warn};

use crate::api::MachineConfigPool;
use crate::controllers::cache::{Cache, Snapshot};
use crate::controllers::client::uptime;
use crate::controllers::metrics::Metrics;
use crate::controllers::node_write::write_body;
use crate::controllers::write::Write;
use crate::rollout::{Answer, Fleet, Node, NodePatch, NodeWrites, first_config, label_patch};

/// So many nodes are labeled at once.
const MAX_WRITES: usize = 16;

/// Returns the pool that a node was provisioned for, and the patch with its labels, as long as the node waits for them.
fn waiting<'a>(snapshot: &'a Snapshot, node: &Node) -> Option<(&'a MachineConfigPool, NodePatch)> {
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

/// Labels the nodes that wait for it; returns the time until the next try, if there is one.
pub(super) async fn label(
    client: &Client,
    cache: &Cache,
    metrics: &Metrics,
    fleet: &mut Fleet,
    writes: &mut NodeWrites,
) -> Option<Duration> {
    writes.observe(uptime());
    let mut again = Vec::new();
    let due: Vec<(Arc<Node>, NodePatch, String)> = {
        let snapshot = cache.lock();
        let of_node = |node: &Arc<Node>| {
            let (pool, patch) = waiting(&snapshot, node)?;
            Some((Arc::clone(node), patch, pool.metadata.name.clone().unwrap_or_default()))
        };
        let nodes = fleet.unlabeled().filter_map(|name| snapshot.nodes.get(name));
        let all = nodes.filter_map(of_node);
        let (held, due) = all.partition(|(node, ..)| writes.wait(node, None).is_some());
        let held: Vec<(Arc<Node>, NodePatch, String)> = held;
        again.extend(held.iter().filter_map(|(node, ..)| writes.wait(node, None)));
        due
    };
    let one = |(node, patch, pool): (Arc<Node>, NodePatch, String)| async move {
        let written =
            write_body(Write::NodeTarget, client, cache, &patch.node, &patch.uid, &patch.body()).await;
        (node, patch, pool, written)
    };
    let mut answers = stream::iter(due).map(one).buffer_unordered(MAX_WRITES);
    while let Some((node, patch, pool, written)) = answers.next().await {
        let name = &patch.node;
        writes.observe(uptime());
        // Its status names the node, or no longer does.
        fleet.concern_pool(&pool);
        match written {
            Ok(true) => {
                metrics.wrote("node", "written");
                writes.written(&patch);
                let labels = patch.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
                let labels = labels.collect::<Vec<_>>().join(", ");
                info!("Labeled node {name}, which was provisioned for pool {pool}: {labels}");
            }
            Ok(false) => metrics.wrote("node", "conflict"),
            Err(error) => {
                metrics.wrote("node", "failed");
                let answer = Answer::from_code(error.code());
                let error = error.about(&format!("labeling for pool {pool}"));
                warn!("Failed to label node {name}: {error}; no pool updates it until it has its labels");
                writes.failed(&node, None, &patch, answer, &error.to_string());
                again.extend(writes.wait(&node, None));
            }
        }
    }
    again.into_iter().min()
}
