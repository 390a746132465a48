//! Topology of nodes, and labels of the pool that they were provisioned for.

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, annotation, create_node, key, node_api, node_until, object_api};
use crate::connections::behind_proxy;
use crate::pairs::Pairs;
use crate::process::{Cluster, condition};
use crate::proxy::{Failing, Seam};
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

/// Waits until a node is told a topology, or none.
async fn until_told(cluster: &Cluster, node: &str, expected: Option<&str>) {
    let what = format!("{node}: {expected:?}");
    node_until(&cluster.client, node, &what, |node| annotation(node, "controlPlaneTopology") == expected)
        .await;
}

/// Waits until the pool is decided again: what it would tell its nodes, it has.
async fn until_decided(cluster: &Cluster, max_unavailable: i32) {
    let patch = json!({ "spec": { "maxUnavailable": max_unavailable } });
    cluster.patch_pool("worker", patch).await;
    let is_observed = |pool: &Value| pool["status"]["observedGeneration"] == pool["metadata"]["generation"];
    cluster.until_pool("worker", "decided", is_observed).await;
}

/// The ControllerConfig's word goes to each node, as the Machine Config Operator's does, whatever the number of nodes.
#[tokio::test]
async fn nodes_are_told_topology_of_controller_config() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-a")).await;
    let name = "machine-config-controller";
    let status = |topology: &str| json!({ "status": { "controlPlaneTopology": topology } });
    let mut infra = status("SingleReplica");
    infra["apiVersion"] = json!("config.openshift.io/v1");
    infra["kind"] = json!("Infrastructure");
    infra["spec"] = json!({});
    cluster.controller_config(&json!({ "infra": infra })).await;
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let target = cluster.until_target("worker", "").await;
    for node in ["n1", "n2"] {
        ready_node(&cluster.client, node, &target).await;
    }
    for node in ["n1", "n2"] {
        until_told(&cluster, node, Some("SingleReplica")).await;
    }
    let configs = object_api(&cluster.client, "controllerconfigs");
    for topology in ["HighlyAvailable", "SingleReplica"] {
        let patch = json!({ "spec": { "infra": status(topology) } });
        configs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        for node in ["n1", "n2"] {
            until_told(&cluster, node, Some(topology)).await;
        }
    }
    // Without it the nodes count.
    configs.delete(name, &DeleteParams::default()).await.unwrap();
    for node in ["n1", "n2"] {
        until_told(&cluster, node, None).await;
    }
}

/// Without a ControllerConfig the only node of the control plane is not drained, and its workers are.
#[tokio::test]
async fn workers_beside_single_control_plane_node_are_drained() {
    let cluster = Cluster::new().await;
    for pool in ["master", "worker"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(&format!("50-{pool}"))).await;
    }
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let worker = cluster.until_target("worker", "").await;
    let master = cluster.until_target("master", "").await;
    let label = async |node: &str, role: &str, value: Value| {
        let labels =
            json!({ "metadata": { "labels": { format!("node-role.kubernetes.io/{role}"): value } } });
        node_api(&cluster.client).patch(node, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    };
    let control_plane = async |node: &str| {
        ready_node(&cluster.client, node, &master).await;
        label(node, "master", json!("")).await;
        label(node, "worker", Value::Null).await;
    };
    ready_node(&cluster.client, "w1", &worker).await;
    control_plane("m1").await;
    until_told(&cluster, "m1", Some("SingleReplica")).await;
    until_told(&cluster, "w1", None).await;
    until_decided(&cluster, 2).await;
    until_told(&cluster, "w1", None).await;
    control_plane("m2").await;
    until_told(&cluster, "m1", None).await;
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

/// A webhook refuses the labels: the pool that the node is for says so, the node takes part in no other, the other one goes on, and a change
/// of the node is tried at once.
#[tokio::test]
async fn node_that_refuses_labels_of_its_pool_is_named_there() {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(&format!("50-{pool}"))).await;
    }
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let infra = cluster.until_target("infra", "").await;
    cluster.until_target("worker", "").await;
    let ways = [
        (
            "refused",
            Failing::Refuses(403, "a webhook says no"),
            "NodeWriteRefused",
            "labeling for pool infra is refused: a webhook says no (403)",
        ),
        (
            "else",
            Failing::AnswersSomethingElse,
            "NodeWriteUnanswered",
            "labeling for pool infra: its answer can't be read",
        ),
    ];
    for (name, failing, reason, words) in ways {
        proxy.fail(Seam::new(Method::PATCH, &[&format!("/api/v1/nodes/{name}?")]), failing);
        let annotations = [
            ("currentConfig", &*infra),
            ("desiredConfig", &*infra),
            ("firstPivotConfig", &*infra),
            ("state", "Done"),
        ];
        create_node(&cluster.client, name, &annotations).await;
        let is_named = |pool: &Value| {
            ["RolloutNodesNotWritten", "Degraded"].iter().all(|type_| {
                let found = condition(pool, type_);
                let message = found["message"].as_str().unwrap_or_default();
                found["status"] == "True"
                    && found["reason"] == reason
                    && message.contains(name)
                    && message.contains(words)
            })
        };
        cluster.until_pool("infra", reason, is_named).await;
        // Others are labeled, and the pool that takes workers has neither.
        create_node(&cluster.client, &format!("well-{name}"), &annotations).await;
        let has_label = |node: &Node| node.labels().contains_key("node-role.kubernetes.io/infra");
        node_until(&cluster.client, &format!("well-{name}"), "the label of its pool", has_label).await;
        let pool = cluster.until_pool("worker", "no node", |pool| pool["status"]["machineCount"] == 0).await;
        assert_eq!(condition(&pool, "RolloutNodesNotWritten")["status"], "False");
        proxy.mend();
        let mended = Patch::Merge(json!({ "metadata": { "labels": { "mended": "true" } } }));
        node_api(&cluster.client).patch(name, &PatchParams::default(), &mended).await.unwrap();
        node_until(&cluster.client, name, "the label of its pool", has_label).await;
        let is_over = |pool: &Value| condition(pool, "RolloutNodesNotWritten")["status"] == "False";
        cluster.until_pool("infra", "all is well", is_over).await;
    }
}

/// A label moves a node at work to another pool. Its first pool waits for it by name, and gets its place back when it is done: the mark of
/// it goes away, so that a later fault of the node keeps nobody.
#[tokio::test]
async fn node_that_leaves_its_pool_at_work_is_named_until_done() {
    const LEFT: &str = "machine-config-agent.io/left-pool-at-work";
    let cluster = Cluster::new().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(&format!("50-{pool}"))).await;
    }
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let first = cluster.until_target("worker", "").await;
    let infra = cluster.until_target("infra", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &first).await;
        cluster.until_pool("worker", name, |pool| condition(pool, "Updated")["status"] == "True").await;
    }
    let count = |number: u64| move |pool: &Value| pool["status"]["machineCount"] == number;
    cluster.until_pool("worker", "two nodes", count(2)).await;
    cluster.config("worker", config("51-worker")).await;
    let second = cluster.until_target("worker", &first).await;
    let has = |config: String| move |node: &Node| annotation(node, "desiredConfig") == Some(&config);
    node_until(&cluster.client, "n1", "its target", has(second.clone())).await;
    let api = node_api(&cluster.client);
    let patch = |body: Value| {
        let api = api.clone();
        async move { drop(api.patch("n1", &PatchParams::default(), &Patch::Merge(body)).await.unwrap()) }
    };
    let state = |state: &str, current: &str| json!({ "metadata": { "annotations": { key("state"): state, key("currentConfig"): current } } });
    patch(state("Working", &first)).await;
    patch(json!({ "metadata": { "labels": { "node-role.kubernetes.io/infra": "" } } })).await;
    let node = node_until(&cluster.client, "n1", "the target of infra", has(infra.clone())).await;
    assert_eq!(node.annotations().get(LEFT).map(String::as_str), Some("worker"));
    let message = |pool: &Value| {
        condition(pool, "RolloutProgressing")["message"].as_str().unwrap_or_default().to_owned()
    };
    let words = "waiting for nodes n1 (at work, in pool infra)";
    cluster.until_pool("worker", words, |pool| message(pool).ends_with(words)).await;
    patch(state("Done", &infra)).await;
    node_until(&cluster.client, "n1", "no mark", |node| !node.annotations().contains_key(LEFT)).await;
    node_until(&cluster.client, "n2", "its turn", has(second.clone())).await;
}

/// A node at work loses the labels of all pools: the pool that is complete without it names it, and so does the screen, until it is done.
#[tokio::test]
async fn node_that_leaves_all_pools_at_work_is_named() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-worker")).await;
    let _controller = cluster.start("a", &["--controllers", "render,node"]);
    let first = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &first).await;
    }
    let is_updated = |pool: &Value| condition(pool, "Updated")["status"] == "True";
    cluster
        .until_pool("worker", "two nodes", |pool| is_updated(pool) && pool["status"]["machineCount"] == 2)
        .await;
    cluster.config("worker", config("51-worker")).await;
    let second = cluster.until_target("worker", &first).await;
    let has = |node: &Node| annotation(node, "desiredConfig") == Some(&second);
    node_until(&cluster.client, "n1", "its target", has).await;
    let api = node_api(&cluster.client);
    let patch = |name: &'static str, body: Value| {
        let api = api.clone();
        async move { drop(api.patch(name, &PatchParams::default(), &Patch::Merge(body)).await.unwrap()) }
    };
    let state = |state: &str, current: &str| json!({ "metadata": { "annotations": { key("state"): state, key("currentConfig"): current } } });
    patch("n1", state("Working", &first)).await;
    patch("n1", json!({ "metadata": { "labels": { "node-role.kubernetes.io/worker": null } } })).await;
    // As a person would who corrects n2 alone.
    let given = json!({ "metadata": { "annotations": { key("desiredConfig"): second } } });
    patch("n2", given).await;
    patch("n2", state("Done", &second)).await;
    let progress = |pool: &Value| {
        condition(pool, "RolloutProgressing")["message"].as_str().unwrap_or_default().to_owned()
    };
    let words = "; it was left during an update by node n1 (at work, in no pool)";
    let pool = cluster.until_pool("worker", words, |pool| progress(pool).ends_with(words)).await;
    assert!(is_updated(&pool) && pool["status"]["machineCount"] == 1, "{pool}");
    let screen = crate::status::text(&cluster).await;
    let is_shown = |line: &str| line.split_whitespace().take(2).eq(["n1", "-"]);
    assert!(screen.lines().any(is_shown), "{screen}");
    patch("n1", state("Done", &second)).await;
    cluster.until_pool("worker", "nothing left", |pool| !progress(pool).contains("n1")).await;
}
