//! Topology and labels that nodes are given, and places that others hold.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::super::node::{LABELS_APPLIED, TOPOLOGY};
use super::super::*;
use super::world::*;
use crate::api::MachineConfigPool;

fn told(rollout: &Rollout) -> Vec<(&str, Option<&str>)> {
    let told =
        rollout.patches.iter().filter_map(|patch| Some((&*patch.node, patch.topology.as_ref()?.as_deref())));
    told.collect()
}

/// MCD drains nothing there: the pods have no other node to go to.
#[test]
fn agent_of_one_node_is_told_single_replica_with_its_target() {
    let mut pool = Pool { topology: Topology::new(None, 1, 0), ..pool("b") };
    let mut all = nodes(1, "a");
    let rollout = decide(&pool, &all);
    assert_eq!((told(&rollout), given(&rollout)), (vec![("n00", Some("SingleReplica"))], vec!["n00"]));
    let key = TOPOLOGY.replace('/', "~1");
    let body = rollout.patches[0].body();
    assert_eq!(body.pointer(&format!("/metadata/annotations/{key}")), Some(&json!("SingleReplica")));
    write(&rollout, &mut pool, &mut all);
    assert_eq!(told(&decide(&pool, &all)), []);
    // A second one joins: drains have somewhere to go.
    pool.topology = Topology::new(None, 2, 0);
    all.extend(nodes(2, "b").into_iter().skip(1));
    assert_eq!(told(&decide(&pool, &all)), [("n00", None)]);
}

#[test]
fn topology_of_cluster_is_told_as_it_is_also_in_paused_pool() {
    let all = nodes(2, "b");
    for (named, paused) in [("HighlyAvailable", false), ("SingleReplica", true)] {
        let pool = Pool { topology: Topology::new(Some(named), 2, 1), paused, ..pool("b") };
        assert_eq!(told(&decide(&pool, &all)), [("n00", Some(named)), ("n01", Some(named))]);
    }
    assert_eq!(told(&decide(&pool("b"), &all)), [], "it is not known");
    let mut foreign = nodes(1, "b");
    foreign[0].topology = Some("External".to_owned());
    let pool = Pool { topology: Topology::new(None, 2, 0), ..pool("b") };
    assert_eq!(told(&decide(&pool, &foreign)), [], "somebody else's word");
}

/// Pods of workers have another node to go to; those of the only control plane have none.
#[test]
fn only_control_plane_node_is_told_single_replica_without_its_workers() {
    let mut all = nodes(3, "b");
    all[0].control_plane = true;
    let of = |nodes, control_plane| Pool { topology: Topology::new(None, nodes, control_plane), ..pool("b") };
    assert_eq!(told(&decide(&of(3, 1), &all)), [("n00", Some("SingleReplica"))]);
    // What all were told before is taken back from the workers.
    for node in &mut all {
        node.topology = Some("SingleReplica".to_owned());
    }
    assert_eq!(told(&decide(&of(3, 1), &all)), [("n01", None), ("n02", None)]);
    assert_eq!(told(&decide(&of(3, 3), &all)), [("n00", None), ("n01", None), ("n02", None)]);
}

#[test]
fn places_of_nodes_elsewhere_are_not_given_away() {
    let all = nodes(4, "a");
    let limited = Pool { max_unavailable: Some(IntOrString::Int(2)), ..pool("b") };
    assert_eq!(given(&decide(&limited, &all)).len(), 2);
    assert_eq!(given(&decide(&Pool { held_elsewhere: 1, ..limited.clone() }, &all)).len(), 1);
    assert_eq!(given(&decide(&Pool { held_elsewhere: 2, ..limited.clone() }, &all)).len(), 0);
    assert_eq!(given(&decide(&Pool { held_elsewhere: 9, ..limited }, &all)).len(), 0);
}

fn infra(selector: &serde_json::Value) -> MachineConfigPool {
    serde_json::from_value(json!({ "metadata": { "name": "infra" }, "spec": { "nodeSelector": selector } }))
        .unwrap()
}

fn provisioned() -> Node {
    Node { first_pivot: Some("rendered-infra-1".to_owned()), ..node("n00", "rendered-infra-1") }
}

/// `applyCustomPoolLabels` of the Machine Config Operator.
#[test]
fn provisioned_node_gets_labels_of_its_pool_once() {
    let pool = infra(&json!({
        "matchLabels": { "node-role.kubernetes.io/infra": "" },
        "matchExpressions": [
            { "key": "zone", "operator": "In", "values": ["a"] },
            { "key": "disk", "operator": "Exists" },
            { "key": "size", "operator": "In", "values": ["s", "m"] },
            { "key": "old", "operator": "DoesNotExist" },
        ],
    }));
    let mut node = provisioned();
    let patch = label_patch(&node, &pool).unwrap();
    let labels = json!({ "node-role.kubernetes.io/infra": "", "zone": "a", "disk": "" });
    let body = patch.body();
    assert_eq!(body["metadata"]["labels"], labels);
    assert_eq!(body["metadata"]["annotations"], json!({ LABELS_APPLIED: "" }));
    assert!(body["metadata"]["resourceVersion"].is_string());
    patch.apply(&mut node);
    assert!(label_patch(&node, &pool).is_none(), "a label that a person removes stays removed");
}

#[test]
fn other_nodes_are_not_labeled() {
    let selector = json!({ "matchLabels": { "node-role.kubernetes.io/infra": "" } });
    let pool = infra(&selector);
    assert!(label_patch(&provisioned(), &pool).is_some());
    assert!(label_patch(&Node { first_pivot: None, ..provisioned() }, &pool).is_none());
    let moved = Node { current: Pair::new("rendered-worker-2", None), ..provisioned() };
    assert!(label_patch(&moved, &pool).is_none(), "another pool has updated it since");
    assert!(label_patch(&provisioned(), &infra(&json!({}))).is_none());
    let mut worker = infra(&selector);
    worker.metadata.name = Some("worker".to_owned());
    assert!(label_patch(&provisioned(), &worker).is_none(), "it has that label already");
}
