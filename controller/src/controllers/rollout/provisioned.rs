//! The shell of nodes that were provisioned for a custom pool: they get its labels before any pool takes them.

use std::time::Duration;

use kube::Client;
use tracing::{info, warn};

use crate::controllers::cache::{Cache, Snapshot};
use crate::controllers::metrics::Metrics;
use crate::controllers::node_write::write_body;
use crate::controllers::write::Write;
use crate::rollout::{Fleet, Node, NodePatch, first_config, label_patch};

/// Wait for a retry, if nothing changes before.
const RETRY: Duration = Duration::from_secs(5);

/// Returns the patch of a node that waits for the labels of its custom pool.
pub(super) fn pending(snapshot: &Snapshot, node: &Node) -> Option<NodePatch> {
    let config = first_config(node)?;
    let pool = snapshot.pools.get(&snapshot.rendered.get(config)?.pool)?.as_ref().ok()?;
    label_patch(node, pool)
}

/// Labels the nodes that wait for it; returns the time until the next try, if there is one.
pub(super) async fn label(
    client: &Client,
    cache: &Cache,
    metrics: &Metrics,
    fleet: &Fleet,
) -> Option<Duration> {
    let patches: Vec<NodePatch> = {
        let snapshot = cache.lock();
        let nodes = fleet.unlabeled().filter_map(|name| snapshot.nodes.get(name));
        nodes.filter_map(|node| pending(&snapshot, node)).collect()
    };
    let mut again = None;
    for patch in patches {
        let name = &patch.node;
        match write_body(Write::NodeTarget, client, cache, name, &patch.uid, &patch.body()).await {
            Ok(true) => {
                metrics.wrote("node", "written");
                let labels = patch.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
                let labels = labels.collect::<Vec<_>>().join(", ");
                info!("Labeled node {name}, which was provisioned for that pool: {labels}");
            }
            Ok(false) => metrics.wrote("node", "conflict"),
            Err(error) => {
                warn!(
                    "node {name} can't be labeled for the pool that it was provisioned for: {error}; no pool updates it until then"
                );
                metrics.wrote("node", "failed");
                again = Some(RETRY);
            }
        }
    }
    again
}
