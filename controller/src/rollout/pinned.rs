//! PinnedImageSets of a pool: what its nodes are told, and how many of them keep the images. Pure.
//!
//! A node does not watch for its first set: it asks when its annotation changes. So the annotation holds the names of the sets of
//! its pools, as long as there are some.
//!
//! # Decision
//!
//! A node is updated when its MachineConfigNode names each set of the pool with the generation that it desires. The Machine Config
//! Operator counts a node that has reported nothing yet as updated, too.

use std::collections::BTreeSet;

use super::{Node, Pair};
use crate::api::MachineConfigPool;
use crate::api::pool::PoolSynchronizer;

/// The type of the synchronizer.
const TYPE: &str = "PinnedImageSets";

/// A set as a node reports it in its MachineConfigNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedSet {
    /// Its name.
    pub name: String,
    /// Its images are on the node, in the generation that the node knows.
    pub is_current: bool,
}

/// Returns the names of the sets that a pool names.
pub fn sets(pool: &MachineConfigPool) -> BTreeSet<&str> {
    pool.spec.pinned_image_sets.iter().flatten().map(|set| &*set.name).collect()
}

/// Returns the annotation of a node whose pools name these sets; `None`: it has none.
pub fn annotation(sets: &BTreeSet<&str>) -> Option<String> {
    (!sets.is_empty()).then(|| sets.iter().copied().collect::<Vec<_>>().join(","))
}

/// Counts the nodes of a pool; `None` while it names no set.
pub fn synchronizer<'a>(
    pool: &MachineConfigPool,
    nodes: impl Iterator<Item = (&'a Node, &'a [ReportedSet])>,
) -> Option<PoolSynchronizer> {
    let sets = sets(pool);
    if sets.is_empty() {
        return None;
    }
    let mut found = PoolSynchronizer {
        pool_synchronizer_type: TYPE.to_owned(),
        observed_generation: pool.metadata.generation,
        ..PoolSynchronizer::default()
    };
    for (node, reported) in nodes {
        let keeps = |set: &&str| reported.iter().any(|one| one.name == **set && one.is_current);
        found.machine_count += 1;
        found.updated_machine_count += i64::from(sets.iter().all(keeps));
        let is_unavailable = node.is_unavailable();
        found.unavailable_machine_count += i64::from(is_unavailable);
        found.available_machine_count += i64::from(!is_unavailable);
        let is_ready = !is_unavailable && node.is_done() && node.current != Pair::default();
        found.ready_machine_count += i64::from(is_ready);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(sets: &[&str]) -> MachineConfigPool {
        let sets: Vec<_> = sets.iter().map(|set| json!({ "name": set })).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "worker", "generation": 4 }, "spec": { "pinnedImageSets": sets },
        }))
        .unwrap()
    }

    fn reported(name: &str, is_current: bool) -> ReportedSet {
        ReportedSet { name: name.to_owned(), is_current }
    }

    fn node(unschedulable: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n", "annotations": {
                "machineconfiguration.openshift.io/currentConfig": "a",
                "machineconfiguration.openshift.io/desiredConfig": "a",
                "machineconfiguration.openshift.io/state": "Done",
            } },
            "spec": { "unschedulable": unschedulable },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
        .map(Node::from_node)
        .unwrap()
    }

    #[test]
    fn node_is_updated_when_it_keeps_each_set_of_pool() {
        let (serves, cordoned) = (node(false), node(true));
        let nodes: [(&Node, &[ReportedSet]); 5] = [
            (&serves, &[reported("a", true), reported("b", true), reported("c", false)]),
            (&serves, &[reported("a", true), reported("b", false)]),
            (&serves, &[reported("a", true)]),
            (&serves, &[]),
            (&cordoned, &[reported("a", true), reported("b", true)]),
        ];
        let found = synchronizer(&pool(&["b", "a"]), nodes.into_iter()).unwrap();
        assert_eq!(
            serde_json::to_value(found).unwrap(),
            json!({ "poolSynchronizerType": "PinnedImageSets", "machineCount": 5, "updatedMachineCount": 2,
                "readyMachineCount": 4, "availableMachineCount": 4, "unavailableMachineCount": 1,
                "observedGeneration": 4 })
        );
        assert_eq!(synchronizer(&pool(&[]), nodes.into_iter()), None);
        assert_eq!(annotation(&sets(&pool(&["b", "a"]))).as_deref(), Some("a,b"));
        assert_eq!(annotation(&sets(&pool(&[]))), None);
    }
}
