//! PinnedImageSets from the pool to its nodes, and from each MachineConfigNode back to the pool.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, create_object, key, node_api, node_until, object_api};
use crate::process::Cluster;
use crate::rollout::ready_node;

const ASK: &str = "machine-config-agent.io/pinned-image-sets";

fn asked(node: &k8s_openapi::api::core::v1::Node) -> Option<&str> {
    node.metadata.annotations.as_ref()?.get(ASK).map(String::as_str)
}

/// The report of an agent.
async fn report(cluster: &Cluster, node: &str, current: u32) {
    let set = json!({ "name": "a", "desiredGeneration": 1, "currentGeneration": current });
    let set = if current == 0 { json!({ "name": "a", "desiredGeneration": 1 }) } else { set };
    let status = Patch::Merge(json!({ "status": { "pinnedImageSets": [set] } }));
    let api = object_api(&cluster.client, "machineconfignodes");
    api.patch_status(node, &PatchParams::default(), &status).await.unwrap();
}

fn counts(pool: &Value) -> Value {
    let counts = &pool["status"]["poolSynchronizersStatus"][0];
    json!([
        counts["poolSynchronizerType"],
        counts["machineCount"],
        counts["updatedMachineCount"],
        counts["availableMachineCount"]
    ])
}

#[tokio::test]
async fn pool_tells_nodes_of_sets_and_counts_those_that_keep_them() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let target = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &target).await;
        let spec = json!({ "node": { "name": name }, "pool": { "name": "worker" }, "configVersion": { "desired": target } });
        create_object(&cluster.client, "machineconfignodes", name, json!({ "spec": spec })).await.unwrap();
    }
    cluster.patch_pool("worker", json!({ "spec": { "pinnedImageSets": [{ "name": "a" }] } })).await;
    for name in ["n1", "n2"] {
        node_until(&cluster.client, name, "it is told", |node| asked(node) == Some("a")).await;
    }
    let has = |updated: u32| move |pool: &Value| counts(pool) == json!(["PinnedImageSets", 2, updated, 2]);
    cluster.until_pool("worker", "no node has reported", has(0)).await;
    report(&cluster, "n1", 1).await;
    report(&cluster, "n2", 0).await;
    cluster.until_pool("worker", "one node keeps them", has(1)).await;
    report(&cluster, "n2", 1).await;
    cluster.until_pool("worker", "both keep them", has(2)).await;
    // The rest of the status and a node of no pool are others'.
    let pool = cluster.until_pool("worker", "updated", |pool| pool["status"]["machineCount"] == 2).await;
    assert_eq!(counts(&pool)[2], 2);
    cluster.patch_pool("worker", json!({ "spec": { "pinnedImageSets": null } })).await;
    cluster
        .until_pool("worker", "no counts", |pool| pool["status"]["poolSynchronizersStatus"].is_null())
        .await;
    let node = node_api(&cluster.client).get("n1").await.unwrap();
    assert_eq!(
        (asked(&node), crate::cluster::annotation(&node, "currentConfig")),
        (None, Some(&*target)),
        "{}",
        key("state")
    );
}
