//! Each way in which the API server can fail this controller, through a proxy before it.

use http::Method;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::cluster::{MachineConfigBuilder, object_api};
use crate::connections::behind_proxy;
use crate::process::Cluster;
use crate::proxy::{Failing, Seam};

/// The ways in which a list fails.
const WAYS: [Failing; 4] = [
    Failing::NeverAnswers,
    Failing::AnswersLate,
    Failing::Refuses(403, "the role has no right for it"),
    Failing::AnswersSomethingElse,
];

/// What a controller decides on is not known: it is not ready, names the kind, and writes nothing. When the list comes, it
/// goes on by itself.
async fn list_fails(plural: &str, kind: &str) {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    for failing in WAYS {
        proxy.fail(Seam::new(Method::GET, &[&format!("/{plural}?")]).without("watch="), failing);
        let mut controller = cluster.start("a", &[]);
        let listening = controller.line("metrics and health on").await;
        let address =
            listening.split("health on ").nth(1).unwrap().split('"').next().unwrap().trim().to_owned();
        proxy.failed(1).await;
        let (code, text) = get(&address, "/readyz").await;
        assert_eq!((code, text.contains(kind)), (503, true), "{plural} {failing:?}: {text}");
        assert_eq!(targets(&cluster).await, [""], "{plural} {failing:?}");
        proxy.mend();
        cluster.until_target("worker", "").await;
        assert!(controller.terminate().await.success());
        cluster.patch_pool("worker", serde_json::json!({ "spec": { "configuration": null } })).await;
    }
}

async fn targets(cluster: &Cluster) -> Vec<String> {
    let pools = object_api(&cluster.client, "machineconfigpools").list(&ListParams::default()).await.unwrap();
    let target = |pool: &DynamicObject| {
        let pool: &Value = &pool.data;
        pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned()
    };
    pools.items.iter().map(target).collect()
}

async fn get(address: &str, path: &str) -> (u16, String) {
    let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn list_of_pools_fails() {
    list_fails("machineconfigpools", "Pools").await;
}

#[tokio::test]
async fn list_of_machineconfigs_fails() {
    list_fails("machineconfigs", "Configs").await;
}

#[tokio::test]
async fn list_of_nodes_fails() {
    list_fails("nodes", "Nodes").await;
}

#[tokio::test]
async fn list_of_definitions_fails() {
    list_fails("customresourcedefinitions", "Definitions").await;
}

/// A replica of the API server that is behind: what is written names the version that was read, so nothing newer is undone.
#[tokio::test]
async fn list_of_pools_is_older_than_pool() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    proxy.remember();
    let first = cluster.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    assert!(first.terminate().await.success());
    cluster
        .patch_pool("worker", serde_json::json!({ "spec": { "configuration": null, "paused": true } }))
        .await;
    proxy.fail(Seam::new(Method::GET, &["/machineconfigpools?"]), Failing::AnswersWithOlderNews);
    let _second = cluster.start("b", &[]);
    let pool = cluster
        .until_pool("worker", "its target", |pool| pool["spec"]["configuration"]["name"] == target.as_str());
    assert_eq!(pool.await["spec"]["paused"], true);
    assert!(proxy.mend().iter().sum::<u64>() > 0);
}
