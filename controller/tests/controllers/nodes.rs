//! Topology of nodes, and labels of the pool that they were provisioned for.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{MachineConfigBuilder, annotation, create_node, key, node_api, node_until};
use crate::pairs::Pairs;
use crate::process::Cluster;
use crate::rollout::ready_node;

fn config(name: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(name).file("/etc/a.conf", 0o644, name)
}

/// MCD drains nothing on a cluster of one node, and so does the agent: the controller tells it.
#[tokio::test]
async fn agent_of_single_node_is_told_so() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-a")).await;
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let topology = "controlPlaneTopology";
    node_until(&cluster.client, "n1", "SingleReplica", |node| {
        annotation(node, topology) == Some("SingleReplica")
    })
    .await;
    ready_node(&cluster.client, "n2", &target).await;
    node_until(&cluster.client, "n1", "no topology", |node| annotation(node, topology).is_none()).await;
    node_api(&cluster.client).delete("n2", &DeleteParams::default()).await.unwrap();
    node_until(&cluster.client, "n1", "SingleReplica", |node| {
        annotation(node, topology) == Some("SingleReplica")
    })
    .await;
}

/// A node of a custom pool comes with its config and with the label of workers alone.
#[tokio::test]
async fn provisioned_node_is_labeled_before_another_pool_takes_it() {
    let cluster = Cluster::new().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(&format!("50-{pool}"))).await;
    }
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let infra = cluster.until_target("infra", "").await;
    cluster.until_target("worker", "").await;
    let pairs = Pairs::start(&cluster.bench).await;
    let annotations = [
        ("currentConfig", &*infra),
        ("desiredConfig", &*infra),
        ("firstPivotConfig", &*infra),
        ("state", "Done"),
    ];
    create_node(&cluster.client, "n1", &annotations).await;
    let condition = json!({ "type": "Ready", "status": "True" });
    let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    node_api(&cluster.client).patch_status("n1", &PatchParams::default(), &status).await.unwrap();
    let node = node_until(&cluster.client, "n1", "the label of its pool", |node| {
        node.metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key("node-role.kubernetes.io/infra"))
    });
    let node = node.await;
    assert_eq!(node.metadata.annotations.unwrap().get(&key("customPoolLabelsApplied")), Some(&String::new()));
    let count = |pool: &serde_json::Value| pool["status"]["machineCount"].clone();
    cluster.until_pool("infra", "its node", |pool| count(pool) == 1).await;
    cluster.until_pool("worker", "no node", |pool| count(pool) == 0).await;
    let config = |(config, _): (String, Option<String>)| config;
    let given: Vec<String> = pairs.of("n1").await.into_iter().map(config).collect();
    assert_eq!(given, [infra], "no other target, not even for a moment");
}
