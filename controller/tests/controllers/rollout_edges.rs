//! What happens to a rollout while it is under way: its policy is edited, a second pool claims a node, another image is built.

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::build::{Builds, spec};
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::cluster::{MachineConfigBuilder, annotation, call, key, node_api, node_until, within};
use crate::process::{Cluster, Controller, apply_definition, condition};
use crate::rollout::{Agents, ready_node};

const POLICIES: &str = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies";

pub fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

/// Sets annotations, as the agent of a node does.
pub async fn annotate(client: &Client, node: &str, annotations: &[(&str, Option<&str>)]) {
    let annotations: Value = annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    node_api(client).patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// The agent of a node has done what is wanted of it.
pub async fn finish(client: &Client, name: &str) {
    let node = node_api(client).get(name).await.unwrap();
    let (config, image) = (annotation(&node, "desiredConfig"), annotation(&node, "desiredImage"));
    let all = [("currentConfig", config), ("currentImage", image), ("state", Some("Done")), ("reason", None)];
    annotate(client, name, &all).await;
}

pub async fn until_desired(client: &Client, name: &str, config: &str) {
    let is_told = |node: &Node| annotation(node, "desiredConfig") == Some(config);
    node_until(client, name, &format!("{config} is wanted"), is_told).await;
}

pub async fn desired(client: &Client, name: &str) -> Option<String> {
    annotation(&node_api(client).get(name).await.unwrap(), "desiredConfig").map(str::to_owned)
}

/// Sets the spec of the policy, and waits until the controller has decided by it; returns its status.
pub async fn policy(client: &Client, spec: &Value) -> Value {
    let object = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "worker" }, "spec": spec,
    });
    let path = format!("{POLICIES}/worker");
    let patch = format!("{path}?fieldManager=test&force=true");
    within("its status is of this spec", async {
        // The server serves a new kind a moment later.
        while call(client, "PATCH", &patch, Some(("application/apply-patch+yaml", object.clone()))).await.0
            != 200
        {
            tokio::task::yield_now().await;
        }
        loop {
            let policy = call(client, "GET", &path, None).await.1;
            if policy["status"]["observedGeneration"] == policy["metadata"]["generation"] {
                break policy["status"].clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

pub const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A pool with rollout policies, its controller, and three nodes of its first config. Returns the config's name, too.
pub async fn three_nodes() -> (Cluster, Controller, String) {
    let cluster = Cluster::new().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    for name in NODES {
        ready_node(&cluster.client, name, &first).await;
    }
    (cluster, controller, first)
}

/// Three nodes have a config; the canary fails the next one, and returns. Returns the name of that one.
pub async fn return_of_canary(cluster: &Cluster, first: &str) -> String {
    let client = &cluster.client;
    policy(client, &json!({ "canary": { "nodes": 1 }, "onFailure": "RollBack" })).await;
    let is_recorded = |pool: &Value| {
        pool["status"]["configuration"]["name"] == first && pool["status"]["readyMachineCount"] == 3
    };
    cluster.until_pool("worker", "all have the first config", is_recorded).await;
    cluster.config("worker", config("bad")).await;
    let bad = cluster.until_target("worker", first).await;
    until_desired(client, "n1", &bad).await;
    annotate(client, "n1", &[("state", Some("Degraded")), ("reason", Some("disk full"))]).await;
    until_desired(client, "n1", first).await;
    finish(client, "n1").await;
    bad
}

/// The failed node has returned to the config before: edits of the policy that do not resume leave it there, and all others too.
#[tokio::test]
async fn edit_of_policy_after_return_begins_nothing_again() {
    let (cluster, _controller, first) = three_nodes().await;
    let client = &cluster.client;
    let bad = return_of_canary(&cluster, &first).await;
    let is_halted = |pool: &Value| condition(pool, "RolloutHalted")["status"] == "True";
    cluster.until_pool("worker", "it is halted", is_halted).await;
    for spec in [
        json!({ "canary": { "nodes": 2 }, "onFailure": "RollBack" }),
        json!({ "canary": { "nodes": 1 }, "onFailure": "Halt", "nodeTimeout": "9h" }),
        json!({ "allowedFailures": 0 }),
    ] {
        let status = policy(client, &spec).await;
        assert_eq!(status["phase"], "Halted", "{spec}: {status}");
        for name in NODES {
            assert_eq!(desired(client, name).await.as_ref(), Some(&first), "{name}: {spec}");
        }
    }
    // As docs/rollouts.md says: at least the failed nodes.
    policy(client, &json!({ "allowedFailures": 1 })).await;
    until_desired(client, "n1", &bad).await;
}

/// A node at work that a second custom pool claims belongs to none of them, and still takes the place of its pool.
#[tokio::test]
async fn node_in_conflict_keeps_its_place_while_at_work() {
    let cluster = Cluster::new().await;
    let client = &cluster.client;
    let label = async |node: &str, role: &str| {
        let role = format!("node-role.kubernetes.io/{role}");
        let patch = Patch::Merge(json!({ "metadata": { "labels": { role: "" } } }));
        node_api(client).patch(node, &PatchParams::default(), &patch).await.unwrap();
    };
    for pool in ["worker", "infra", "third"] {
        cluster.pool(pool).await;
    }
    cluster.config("infra", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("infra", "").await;
    for name in ["n1", "n2"] {
        ready_node(client, name, &first).await;
        label(name, "infra").await;
    }
    cluster.until_pool("infra", "two nodes", |pool| pool["status"]["readyMachineCount"] == 2).await;
    cluster.config("infra", config("2")).await;
    let second = cluster.until_target("infra", &first).await;
    until_desired(client, "n1", &second).await;
    label("n1", "third").await;
    let is_named = |pool: &Value| condition(pool, "RolloutInvalid")["reason"] == "NodeInTwoPools";
    let pool = cluster.until_pool("infra", "the conflict", is_named).await;
    let unavailable = |pool: &Value| pool["status"]["unavailableMachineCount"].as_i64().unwrap_or(0);
    let base = unavailable(&pool);
    // Whatever is decided again.
    for count in [1, 0] {
        let ready = json!({ "type": "Ready", "status": if count == 0 { "True" } else { "False" } });
        let patch = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
        node_api(client).patch_status("n2", &PatchParams::default(), &patch).await.unwrap();
        let counted = |pool: &Value| unavailable(pool) == base + count;
        cluster.until_pool("infra", "its other node", counted).await;
        assert_eq!(desired(client, "n2").await.as_ref(), Some(&first), "n1 is at work");
    }
    finish(client, "n1").await;
    until_desired(client, "n2", &second).await;
}

/// The image of a rollout is replaced while its first node is at work: the second one waits for the next image, and reboots once.
#[tokio::test]
async fn nodes_wait_for_image_that_is_built_meanwhile() {
    let builds = Builds::new().await;
    let (cluster, client) = (&builds.cluster, &builds.cluster.client);
    let _controller = builds.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(client, name, &target).await;
    }
    cluster.until_pool("worker", "two nodes", |pool| pool["status"]["readyMachineCount"] == 2).await;
    let jobs = JobController::start(&cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (build, image) = builds.until_published("").await;
    let has_old = |node: &Node| annotation(node, "desiredImage") == Some(&image);
    node_until(client, "n1", "the image", has_old).await;
    builds.until_condition("False", "BuildSuccess").await;
    jobs.play(Plays::Running);
    let other = spec("FROM configs AS final\nRUN false", &builds.repository);
    builds.patch_os_config(json!({ "spec": other })).await;
    builds.until_condition("False", "Building").await;
    let is_at_work = |count: i64| {
        move |pool: &Value| pool["status"]["unavailableMachineCount"].as_i64().unwrap_or(0) == count
    };
    cluster.until_pool("worker", "n1 is at work", is_at_work(1)).await;
    finish(client, "n1").await;
    cluster.until_pool("worker", "n1 has finished", is_at_work(0)).await;
    let waiting = node_api(client).get("n2").await.unwrap();
    assert_eq!(annotation(&waiting, "desiredImage"), None);
    jobs.play(Plays::Well);
    let (_, new) = builds.until_published(&build).await;
    assert_ne!(new, image);
    let is_told = |node: &Node| annotation(node, "desiredImage").is_some();
    let _agents = Agents::start(&cluster.bench).await;
    let told = node_until(client, "n2", "an image", is_told).await;
    assert_eq!(annotation(&told, "desiredImage"), Some(&*new));
    for name in ["n1", "n2"] {
        node_until(client, name, "the new image", |node| annotation(node, "currentImage") == Some(&new))
            .await;
    }
}
