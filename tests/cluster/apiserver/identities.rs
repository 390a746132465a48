//! Authentication and authorization, and the reviews of other users.

use serde_json::{Value, json};

use super::shared;
use crate::cluster::{Bench, Identity, call, create_node, own_only, real_only};

async fn as_token(bench: &Bench, token: &str, path: &str) -> u16 {
    call(&bench.client_as(&Identity::Token(token.to_owned()), "token").await, "GET", path, None).await.0
}

async fn review(bench: &Bench, spec: Value) -> Value {
    let client = bench.client("admin").await;
    let body = json!({ "spec": spec });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, review) = call(&client, "POST", path, Some(("application/json", body))).await;
    assert_eq!(code, 200, "{review}");
    review["status"].clone()
}

async fn may(bench: &Bench, spec: Value) -> bool {
    let client = bench.client("admin").await;
    let body = json!({ "spec": spec });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, review) = call(&client, "POST", path, Some(("application/json", body))).await;
    assert_eq!(code, 200, "{review}");
    review["status"]["allowed"].as_bool().unwrap()
}

#[tokio::test]
async fn client_certificate_names_user_and_group() {
    let bench = shared();
    let client = bench.client_as(&Identity::Kubelet("certified".to_owned()), "kubelet").await;
    let mark = bench.mark().await;
    call(&client, "GET", "/api/v1/nodes/certified", None).await;
    let requests = bench.requests_since(mark).await;
    let own: Vec<_> = requests.iter().filter(|request| request.user == "system:node:certified").collect();
    assert_eq!(
        (own.len(), own[0].line().as_str(), own[0].agent.as_str()),
        (1, "get nodes certified", "kubelet")
    );
}

#[tokio::test]
async fn anonymous_user_reads_health_and_version_only() {
    let bench = shared();
    assert_eq!(as_token(bench, "unheard-of", "/api/v1/nodes").await, 401);
    assert_eq!(as_token(bench, "nobody-token", "/version").await, 200);
    assert_eq!(as_token(bench, "nobody-token", "/api/v1/nodes").await, 403);
    // No certificate and no token at all.
    let client = bench.client_as(&Identity::Anonymous, "anonymous").await;
    assert_eq!(call(&client, "GET", "/version", None).await.0, 200);
    let (code, why) = call(&client, "GET", "/api/v1/nodes", None).await;
    assert!(code == 403 && why["message"].as_str().unwrap().contains("system:anonymous"), "{why}");
}

/// The log has one line about it, which is its end: a test beside it waits for no other.
#[tokio::test]
async fn unknown_token_is_answered_in_log() {
    let bench = shared();
    let mark = bench.mark().await;
    let client = bench.client_as(&Identity::Token("unheard-of-either".to_owned()), "stranger").await;
    assert_eq!(call(&client, "GET", "/version", None).await.0, 401);
    let requests = bench.requests_since(mark).await;
    let own: Vec<_> = requests.iter().filter(|request| request.agent == "stranger").collect();
    assert_eq!((own.len(), own[0].code, own[0].user.as_str()), (1, Some(401), ""));
}

#[tokio::test]
async fn token_review_names_user() {
    let bench = shared();
    let known = review(bench, json!({ "token": "nobody-token" })).await;
    assert_eq!((&known["authenticated"], &known["user"]["username"]), (&json!(true), &json!("nobody")));
    let unknown = review(bench, json!({ "token": "unheard-of" })).await;
    assert_eq!((unknown.get("authenticated"), unknown["user"].get("username")), (None, None), "{unknown}");
    let elsewhere = review(bench, json!({ "token": "nobody-token", "audiences": ["somebody-else"] })).await;
    assert_eq!(elsewhere.get("authenticated"), None, "{elsewhere}");
}

#[tokio::test]
async fn access_review_reports_permission_for_metrics() {
    let bench = shared();
    let metrics = json!({ "path": "/metrics", "verb": "get" });
    let masters = json!(["system:masters"]);
    assert!(may(bench, json!({ "user": "x", "groups": masters, "nonResourceAttributes": metrics })).await);
    assert!(!may(bench, json!({ "user": "nobody", "nonResourceAttributes": metrics })).await);
    let nodes = json!({ "resource": "nodes", "verb": "list" });
    assert!(!may(bench, json!({ "user": "nobody", "resourceAttributes": nodes })).await);
}

#[tokio::test]
async fn rule_lets_one_user_read_metrics_and_nothing_else() {
    if !own_only("rule_lets_one_user_read_metrics_and_nothing_else") {
        return;
    }
    let bench = shared();
    let may_read = async |path: &str| {
        let attributes = json!({ "path": path, "verb": "get" });
        may(bench, json!({ "user": "metrics-reader", "nonResourceAttributes": attributes })).await
    };
    assert!(may_read("/metrics").await);
    assert!(!may_read("/debug/pprof").await);
}

#[tokio::test]
async fn token_is_judged_by_file_as_it_is_at_request() {
    if !own_only("token_is_judged_by_file_as_it_is_at_request") {
        return;
    }
    let bench = shared();
    assert_eq!(as_token(bench, "rotated", "/version").await, 401);
    bench.set_token("rotated", "somebody", &[]);
    assert_eq!(as_token(bench, "rotated", "/version").await, 200);
    bench.revoke_token("rotated");
    assert_eq!(as_token(bench, "rotated", "/version").await, 401);
}

#[tokio::test]
async fn after_rotation_old_authority_is_not_trusted() {
    let bench = Bench::without_crds();
    let before = bench.client("admin").await;
    assert_eq!(call(&before, "GET", "/version", None).await.0, 200);
    let old = bench.authority();
    bench.rotate_authority();
    assert_ne!(bench.authority(), old);
    let request = http::Request::get("/version").body(vec![]).unwrap();
    assert!(before.request_text(request).await.is_err());
    assert_eq!(call(&bench.client("admin").await, "GET", "/version", None).await.0, 200);
}

#[tokio::test]
async fn kubelet_may_not_touch_another_node() {
    if !real_only("kubelet_may_not_touch_another_node") {
        return;
    }
    let bench = shared();
    let admin = bench.client("admin").await;
    for node in ["own-node", "other-node"] {
        create_node(&admin, node, &[]).await;
    }
    let kubelet = bench.client_as(&Identity::Kubelet("own-node".to_owned()), "kubelet").await;
    let patch =
        || Some(("application/merge-patch+json", json!({ "metadata": { "annotations": { "a": "b" } } })));
    assert_eq!(call(&kubelet, "PATCH", "/api/v1/nodes/own-node", patch()).await.0, 200);
    assert_eq!(call(&kubelet, "PATCH", "/api/v1/nodes/other-node", patch()).await.0, 403);
    assert_eq!(call(&kubelet, "GET", "/api/v1/secrets", None).await.0, 403);
}
