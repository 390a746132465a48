//! The way to the API server.

use std::fs;

use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Identity, MachineConfigBuilder, own_only};
use crate::process::Cluster;
use crate::proxy::{Failing, Proxy, Seam};

/// A cluster whose controllers come through a proxy.
pub async fn behind_proxy() -> (Cluster, Proxy) {
    let mut cluster = Cluster::new().await;
    let proxy = Proxy::new(cluster.bench.client("controller").await).await;
    let path = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(proxy.url);
    fs::write(&path, config.to_string()).unwrap();
    cluster.kubeconfig = path;
    (cluster, proxy)
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
