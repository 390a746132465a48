//! The way to the API server.

use std::collections::BTreeSet;
use std::fs;
use std::pin::pin;

use futures_util::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::cluster::{
    Identity, MachineConfigBuilder, changes, create_node, node_until, own_only, running_pod, within,
};
use crate::process::Cluster;
use crate::proxy::{Failing, Proxy, Seam};

/// A cluster whose controllers come through a proxy.
pub async fn behind_proxy() -> (Cluster, Proxy) {
    let mut cluster = Cluster::new().await;
    let proxy = put_before(&mut cluster).await;
    (cluster, proxy)
}

/// Has the controllers that start from now on come through a proxy.
pub async fn put_before(cluster: &mut Cluster) -> Proxy {
    let proxy = Proxy::new(cluster.bench.client("controller").await).await;
    let path = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(proxy.url);
    fs::write(&path, config.to_string()).unwrap();
    cluster.kubeconfig = path;
    proxy
}

/// All watches and requests of a controller.
#[tokio::test]
async fn watches_and_requests_share_one_connection() {
    if !own_only("watches_and_requests_share_one_connection") {
        return;
    }
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    let _controller = cluster.start("a", &[]);
    cluster.until_target("worker", "").await;
    let all = cluster.bench.connected();
    let own = all.values().filter(|agent| agent.starts_with("machine-config-controller/"));
    assert_eq!(own.count(), 1, "{all:?}");
}

/// A load balancer may not speak HTTP/2.
#[tokio::test]
async fn server_without_http_2_is_served_too() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    proxy.fail(Seam::new(Method::GET, &["/machineconfigs?"]), Failing::Refuses(503, "not yet"));
    let _controller = cluster.start("a", &[]);
    proxy.failed(1).await;
    proxy.mend();
    cluster.until_target("worker", "").await;
}

/// An API server takes 100 requests at a time on a connection, and each drain watches its pods: more drains than that keep nothing
/// from its answer.
#[tokio::test]
async fn many_drains_leave_room_for_all_else() {
    const NODES: usize = 120;
    if !own_only("many_drains_leave_room_for_all_else") {
        return;
    }
    let cluster = Cluster::new().await;
    for number in 0..NODES {
        let name = format!("n{number}");
        create_node(&cluster.client, &name, &[("desiredDrain", "drain-b")]).await;
        let held = json!({ "finalizers": ["example.test/hold"] });
        running_pod(&cluster.client, "default", &name, &name, held).await;
    }
    let _controller = cluster.start("a", &[]);
    for number in 0..NODES {
        let is_cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        node_until(&cluster.client, &format!("n{number}"), "cordoned", is_cordoned).await;
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let mut changed = pin!(changes(&pods, &ListParams::default()).await.unwrap());
    let mut ending = BTreeSet::new();
    within("all pods end", async {
        while ending.len() < NODES {
            let (pod, _) = changed.next().await.unwrap();
            if pod.metadata.deletion_timestamp.is_some() {
                ending.insert(pod.metadata.name);
            }
        }
    })
    .await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    cluster.until_target("worker", "").await;
    let all = cluster.bench.connected();
    let own = all.values().filter(|agent| agent.starts_with("machine-config-controller/"));
    assert_eq!(own.count(), 2, "{all:?}");
}
