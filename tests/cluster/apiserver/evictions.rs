//! Evictions and the budgets that hold them up.

use kube::Client;
use serde_json::{Value, json};

use super::shared;
use crate::cluster::{DisruptionController, Kubelet, call, pod_gone as gone, running_pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Api;

async fn evict(client: &Client, namespace: &str, pod: &str) -> (u16, Value) {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": namespace } });
    call(client, "POST", &path, Some(("application/json", body))).await
}

async fn namespace(client: &Client, name: &str) {
    let body = json!({ "metadata": { "name": name } });
    assert_eq!(call(client, "POST", "/api/v1/namespaces", Some(("application/json", body))).await.0, 200);
}

async fn budget(client: &Client, namespace: &str, spec: Value) {
    let body = json!({ "metadata": { "name": "budget" }, "spec": spec });
    let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let (code, why) = call(client, "POST", &path, Some(("application/json", body))).await;
    assert_eq!(code, 200, "{why}");
}

/// Waits until the budget's status was reckoned and allows so many disruptions.
async fn allows(client: &Client, namespace: &str, count: i32) {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    crate::cluster::object_until(&api, "budget", "the budget's status", |budget| {
        let status = budget.status.clone().unwrap_or_default();
        status.observed_generation == budget.metadata.generation && status.disruptions_allowed == Some(count)
    })
    .await;
}

#[tokio::test]
async fn evicted_pod_ends_gracefully_and_its_kubelet_lets_it_go() {
    let bench = shared();
    let client = bench.client("admin").await;
    namespace(&client, "evict-plain").await;
    running_pod(&client, "evict-plain", "one", "evicting", json!({})).await;
    let (code, why) = evict(&client, "evict-plain", "one").await;
    assert_eq!(code, 200, "{why}");
    let (_, pod) = call(&client, "GET", "/api/v1/namespaces/evict-plain/pods/one", None).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], json!(30));
    let _kubelet = Kubelet::start(bench, "evicting").await;
    gone(&client, "evict-plain", "one").await;
    assert_eq!(evict(&client, "evict-plain", "one").await.0, 404);
}

#[tokio::test]
async fn exhausted_budget_answers_429_with_its_cause() {
    let bench = shared();
    let client = bench.client("admin").await;
    namespace(&client, "evict-kept").await;
    running_pod(&client, "evict-kept", "one", "keeping", json!({ "labels": { "app": "kept" } })).await;
    budget(
        &client,
        "evict-kept",
        json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "kept" } } }),
    )
    .await;
    let _disruptions = DisruptionController::start(bench, "evict-kept").await;
    allows(&client, "evict-kept", 0).await;
    let (code, why) = evict(&client, "evict-kept", "one").await;
    assert_eq!((code, &why["reason"]), (429, &json!("TooManyRequests")), "{why}");
    assert_eq!(why["message"], json!("Cannot evict pod as it would violate the pod's disruption budget."));
    assert_eq!(why["details"]["causes"][0]["reason"], json!("DisruptionBudget"), "{why}");
    // A second healthy pod makes room.
    running_pod(&client, "evict-kept", "two", "keeping", json!({ "labels": { "app": "kept" } })).await;
    allows(&client, "evict-kept", 1).await;
    assert_eq!(evict(&client, "evict-kept", "one").await.0, 200);
    allows(&client, "evict-kept", 0).await;
    assert_eq!(evict(&client, "evict-kept", "two").await.0, 429);
}

#[tokio::test]
async fn budget_without_status_refuses_with_time_to_wait() {
    let bench = shared();
    let client = bench.client("admin").await;
    namespace(&client, "evict-early").await;
    running_pod(&client, "evict-early", "one", "early", json!({ "labels": { "app": "early" } })).await;
    budget(
        &client,
        "evict-early",
        json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "early" } } }),
    )
    .await;
    let (code, why) = evict(&client, "evict-early", "one").await;
    assert_eq!((code, &why["details"]["retryAfterSeconds"]), (429, &json!(10)), "{why}");
    let _disruptions = DisruptionController::start(bench, "evict-early").await;
    allows(&client, "evict-early", 1).await;
    assert_eq!(evict(&client, "evict-early", "one").await.0, 200);
}
