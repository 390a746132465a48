//! The node controller with the other two: from a MachineConfig to nodes that have it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Instant;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{
    Bench, MachineConfigBuilder, Presence, Request, annotation, changes, create_node, key, node_api, within,
};
use crate::process::{Cluster, condition, target};

/// Agents of all nodes: each follows its contract, as soon as it sees a request.
pub struct Agents(JoinHandle<()>);

impl Agents {
    pub async fn start(bench: &Bench) -> Self {
        let client = bench.client("agents").await;
        Self(tokio::spawn(async move {
            loop {
                let nodes = node_api(&client);
                let Ok(changes) = changes(&nodes, &ListParams::default()).await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let mut changes = pin!(changes);
                while let Some((node, presence)) = changes.next().await {
                    if let (Presence::There, Some(patch)) = (presence, answer(&node)) {
                        // A failed patch is repeated: the node is observed again.
                        let patch = Patch::Merge(patch);
                        drop(nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await);
                    }
                }
            }
        }))
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The next write of a node's agent.
fn answer(node: &Node) -> Option<Value> {
    let get = |name: &str| annotation(node, name).unwrap_or_default();
    let (desired, drain) = (get("desiredConfig"), format!("drain-{}", get("desiredConfig")));
    let annotations = if desired.is_empty() {
        return None;
    } else if (desired, get("desiredImage")) == (get("currentConfig"), get("currentImage")) {
        let uncordon = format!("uncordon-{desired}");
        if get("desiredDrain") == uncordon && get("state") == "Done" {
            return None;
        }
        json!({ key("desiredDrain"): uncordon, key("state"): "Done" })
    } else if get("state") != "Working" || get("desiredDrain") != drain {
        json!({ key("state"): "Working", key("desiredDrain"): drain })
    } else if get("lastAppliedDrain") == drain {
        json!({
            key("state"): "Done", key("currentConfig"): desired, key("currentImage"): annotation(node, "desiredImage"),
            key("desiredDrain"): format!("uncordon-{desired}"),
        })
    } else {
        return None;
    };
    Some(json!({ "metadata": { "annotations": annotations } }))
}

/// Creates a node that is ready and has a config.
pub async fn ready_node(client: &Client, name: &str, config: &str) {
    let annotations = [("currentConfig", config), ("desiredConfig", config), ("state", "Done")];
    create_node(client, name, &annotations).await;
    ready(client, name).await;
}

async fn ready(client: &Client, name: &str) {
    let condition = json!({ "type": "Ready", "status": "True" });
    let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    node_api(client).patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Watches all nodes until the rollout of a config is over; returns the most nodes that were out of service at once.
pub async fn watch_rollout(client: Client, config: String, count: usize) -> usize {
    let api: Api<Node> = node_api(&client);
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    let mut most = 0;
    let watch = async {
        loop {
            let Ok(changes) = changes(&api, &ListParams::default()).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let mut changes = pin!(changes);
            while let Some((node, _)) = changes.next().await {
                nodes.insert(node.name_any(), node);
                let out = nodes.values().filter(|node| {
                    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
                    cordoned || annotation(node, "desiredConfig") != annotation(node, "currentConfig")
                });
                most = most.max(out.count());
                let done = nodes.values().filter(|node| {
                    let free = node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true);
                    free && annotation(node, "currentConfig") == Some(&config)
                        && annotation(node, "lastAppliedDrain")
                            .is_some_and(|last| last.starts_with("uncordon-"))
                });
                if done.count() == count {
                    return most;
                }
            }
        }
    };
    within("all nodes have the config", watch).await
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

#[tokio::test]
async fn new_config_reaches_all_nodes_within_max_unavailable() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.patch_pool("worker", json!({ "spec": { "maxUnavailable": 2 } })).await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    let names = ["n1", "n2", "n3", "n4", "n5"];
    for name in names {
        ready_node(&cluster.client, name, &first).await;
    }
    let _agents = Agents::start(&cluster.bench).await;
    let counts = |pool: &Value| {
        (pool["status"]["machineCount"].clone(), pool["status"]["updatedMachineCount"].clone())
    };
    cluster.until_pool("worker", "five nodes", |pool| counts(pool) == (json!(5), json!(5))).await;
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    let most = watch_rollout(cluster.bench.client("watcher").await, second.clone(), names.len()).await;
    assert!((1..=2).contains(&most), "{most} nodes were out of service at once");
    let updated = |pool: &Value| {
        condition(pool, "Updated")["status"] == "True"
            && pool["status"]["configuration"]["name"] == second.as_str()
    };
    let pool = cluster.until_pool("worker", "updated", updated).await;
    assert_eq!(
        (target(&pool), condition(&pool, "RenderDegraded")["status"].as_str()),
        (second.as_str(), Some("False"))
    );
    // A real server adds one of its own.
    let taints = |node: &Node| {
        let all = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        all.into_iter().filter(|taint| taint.key == "UpdateInProgress").collect::<Vec<_>>()
    };
    for name in names {
        let node = node_api(&cluster.client).get(name).await.unwrap();
        assert!(taints(&node).is_empty(), "{name}: {:?}", taints(&node));
    }
}

/// Nodes that become `NotReady` and Ready again have the status of their pool written once a second; in the end it is right.
#[tokio::test]
async fn flapping_nodes_write_status_once_a_second() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    for name in &names {
        ready_node(&cluster.client, name, &target).await;
    }
    let ready = |count: usize| move |pool: &Value| pool["status"]["readyMachineCount"] == count;
    cluster.until_pool("worker", "20 nodes", ready(20)).await;
    let (mark, since) = (cluster.bench.mark().await, Instant::now());
    let nodes = node_api(&cluster.client);
    for status in ["False", "True", "False", "True", "False"] {
        for name in &names {
            let condition = json!({ "type": "Ready", "status": status });
            let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
            nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }
    cluster.until_pool("worker", "none Ready", ready(0)).await;
    let requests = cluster.bench.requests_since(mark).await;
    let is_status = |request: &&Request| {
        (&*request.verb, &*request.resource, &*request.subresource)
            == ("patch", "machineconfigpools", "status")
    };
    let writes = u64::try_from(requests.iter().filter(is_status).count()).unwrap();
    let seconds = since.elapsed().as_secs();
    assert!((1..=seconds + 2).contains(&writes), "{writes} writes in {seconds} s");
}

/// A controller that is killed before any of its writes is replaced by one that does the rest; no write is made twice over.
#[tokio::test]
async fn recovers_from_kill_before_every_write() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("0")).await;
    let controller = cluster.start("first", &[]);
    let mut last = cluster.until_target("worker", "").await;
    for name in ["n1", "n2", "n3"] {
        ready_node(&cluster.client, name, &last).await;
    }
    let _agents = Agents::start(&cluster.bench).await;
    watch_rollout(cluster.bench.client("watcher").await, last.clone(), 3).await;
    assert!(controller.terminate().await.success());
    // One rollout through which controllers die one after the other: each gets one write further than the one before it.
    let mut killed = 0;
    for round in 1..=2_u32 {
        cluster.config("worker", config(&round.to_string())).await;
        let watch = tokio::spawn(watch_until(cluster.bench.client("watcher").await, last.clone(), 3));
        loop {
            let writes = (killed % 4 + 1).to_string();
            let controller = cluster.start(&format!("c{killed}"), &["--abort-at-write", &writes]);
            let is_done = tokio::select! {
                status = controller.end() => {
                    assert_eq!(status.code(), None, "{:?}", controller.lines());
                    killed += 1;
                    false
                }
                () = finished(&cluster, &last) => {
                    controller.kill().await;
                    true
                }
            };
            cluster.free_lease().await;
            if is_done {
                break;
            }
        }
        let (config, most) = watch.await.unwrap();
        assert_eq!(most, 1, "round {round}");
        last = config;
    }
    assert!(killed > 5, "{killed}");
}

/// Waits until the pool's status has another config for its nodes.
async fn finished(cluster: &Cluster, other_than: &str) {
    let done = |pool: &Value| {
        let name = pool["status"]["configuration"]["name"].as_str().unwrap_or_default();
        name != other_than && name == target(pool) && condition(pool, "Updated")["status"] == "True"
    };
    cluster.until_pool("worker", "updated", done).await;
}

/// As [`watch_rollout`], to whatever config follows one.
async fn watch_until(client: Client, other_than: String, count: usize) -> (String, usize) {
    let pools = crate::cluster::object_api(&client, "machineconfigpools");
    let read = |pool: &kube::api::DynamicObject| target(&serde_json::to_value(pool).unwrap()).to_owned();
    let pool =
        crate::cluster::object_until(&pools, "worker", "another target", |pool| read(pool) != other_than)
            .await;
    let config = read(&pool);
    (config.clone(), watch_rollout(client, config, count).await)
}
