//! Drains by the rules of a `RolloutPolicy`.

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use machine_config_controller::api::RolloutPolicy;
use serde_json::{Value, json};

use crate::cluster::{Request, annotation, pod_gone};
use crate::drain::{NODE, Scene, is_cordoned, own};
use crate::process::{Controller, apply_definition, condition};
use crate::proxy::{Failing, Seam};
use crate::refusals::{failures, get, listener, page_until};
use crate::seams::drain::until_event;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A drain controller, and the rules of the node's pool.
async fn start(scene: &Scene, drain: Value) -> Controller {
    apply_definition(&scene.cluster.client, "rolloutpolicies").await;
    scene.cluster.pool("worker").await;
    scene.patch(json!({ "metadata": { "labels": { "node-role.kubernetes.io/worker": "" } } })).await;
    let policy = json!({ "metadata": { "name": "worker" }, "spec": { "drain": drain } });
    policies(scene).create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    scene.cluster.start("a", &["--controllers", "node,drain"])
}

fn policies(scene: &Scene) -> Api<RolloutPolicy> {
    Api::all(scene.cluster.client.clone())
}

fn is_excluded(node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDE))
}

/// The drain fails, is named, and goes on when the policy changes: then the pods that are left are deleted, against their budget.
#[tokio::test]
async fn drain_that_takes_too_long_fails_then_deletes() {
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let mut controller = start(&scene, json!({ "timeout": "1s" })).await;
    let listener = listener(&mut controller).await;
    scene.request("drain-rendered-b").await;
    let why = "drain-rendered-b the drain took longer than 1s: pod default/kept is kept by PodDisruptionBudget default/one";
    let node = scene
        .until("failed", |node| own(node, "drain-failed").is_some_and(|failed| failed.starts_with(why)))
        .await;
    assert!(is_cordoned(&node) && annotation(&node, "lastAppliedDrain").is_none());
    controller.line("the drain took longer than 1s").await;
    // All that docs/rollouts.md promises.
    let words = "the drain took longer than 1s: pod default/kept";
    let text = "Drain failed after 1s: pod default/kept is kept by PodDisruptionBudget default/one";
    until_event(&scene.cluster.client, "DrainFailed", NODE, text).await;
    let metric = |value: &'static str| {
        move |_, body: &str| body.contains(&format!("mcc_drain_err{{node=\"{NODE}\"}} {value}"))
    };
    page_until(listener, "/metrics", "the metric", metric("1")).await;
    let is_named = |pool: &Value| {
        let found = condition(pool, "NodeDegraded");
        found["status"] == "True" && found["message"].as_str().unwrap_or_default().contains(words)
    };
    scene.cluster.until_pool("worker", "NodeDegraded", is_named).await;
    // The next leader evicts nothing, so it knows no better cause.
    assert!(controller.terminate().await.success());
    let mut controller = scene.cluster.start("b", &["--controllers", "node,drain"]);
    let listener = crate::refusals::listener(&mut controller).await;
    page_until(listener, "/metrics", "the metric", metric("1")).await;
    let blocked = |_, body: &str| body.contains("machine_config_controller_drain_blocked{node=");
    page_until(listener, "/metrics", "its node", blocked).await;
    let node = scene.until("failed", |node| own(node, "drain-failed").is_some()).await;
    assert!(own(&node, "drain-failed").unwrap().starts_with(why), "{node:?}");
    assert!(own(&node, "drain-blocked").unwrap().contains("is kept by"), "{node:?}");
    let deletes = Patch::Merge(json!({ "spec": { "drain": { "onTimeout": "DeletePods" } } }));
    policies(&scene).patch("worker", &PatchParams::default(), &deletes).await.unwrap();
    pod_gone(&scene.cluster.client, "default", "kept").await;
    let node = scene.until_done("drain-rendered-b").await;
    assert_eq!((own(&node, "drain-failed"), own(&node, "drain-blocked")), (None, None));
    let is_over = |_, body: &str| !body.contains(&format!("mcc_drain_err{{node=\"{NODE}\"}} 1"));
    page_until(listener, "/metrics", "the metric", is_over).await;
    scene
        .cluster
        .until_pool("worker", "no longer", |pool| condition(pool, "NodeDegraded")["status"] == "False")
        .await;
}

/// Pods that a rule skips stay: by their label, and those that do not end. The node leaves load balancers before, and comes back after.
#[tokio::test]
async fn skipped_pods_stay_and_node_leaves_load_balancers() {
    let scene = Scene::new().await;
    scene.pod("plain", json!({})).await;
    scene.pod("logs", json!({ "labels": { "app": "logs" } })).await;
    scene.pod("held", json!({ "finalizers": ["example.test/hold"] })).await;
    let skip = json!({ "podSelector": { "matchLabels": { "app": "logs" } }, "terminatingLongerThan": "1s" });
    let mut controller =
        start(&scene, json!({ "skip": skip, "excludeFromLoadBalancers": { "wait": "2s" } })).await;
    let mark = scene.cluster.bench.mark().await;
    scene.request("drain-rendered-b").await;
    let node = scene.until("excluded", is_excluded).await;
    assert!(is_cordoned(&node) && own(&node, "excluded-from-load-balancers").is_some());
    let node = scene.until_done("drain-rendered-b").await;
    assert!(is_excluded(&node));
    assert_eq!(scene.evictions(mark).await, 2);
    controller.line("pods default/held, default/logs were skipped, and are still on the node").await;
    assert!(
        scene
            .pods()
            .get_opt("logs")
            .await
            .unwrap()
            .is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    );
    scene.request("uncordon-rendered-b").await;
    let node = scene.until_done("uncordon-rendered-b").await;
    assert!(!is_excluded(&node) && own(&node, "excluded-from-load-balancers").is_none());
    // Load balancers have the time of the rule, from the label on.
    let requests = scene.cluster.bench.requests_since(mark).await;
    let first = |is_it: &dyn Fn(&&Request) -> bool| requests.iter().find(is_it).unwrap().answered.unwrap();
    let labels =
        |one: &&Request| one.body.as_ref().is_some_and(|body| body["metadata"]["labels"][EXCLUDE] == "");
    let labeled = first(&|one| one.line() == format!("patch nodes {NODE}") && labels(one));
    let waited = first(&|one| one.subresource == "eviction") - labeled;
    // The label has the second in which it was decided.
    assert!(waited >= 1_000_000, "{waited} us");
}

/// Pods are to be deleted against their budget, and the API server refuses that, does not answer or answers something else: the pod is named
/// with the cause, the others leave, and it is deleted once it may be.
#[tokio::test]
async fn deletion_of_pod_fails() {
    let (scene, proxy) = Scene::behind_proxy().await;
    scene.pod("plain", json!({})).await;
    scene.budget("one", "shop").await;
    let mut controller = start(&scene, json!({ "timeout": "1s", "onTimeout": "DeletePods" })).await;
    let listener = listener(&mut controller).await;
    let failed = |body: &str, outcome: &str| failures(body, "Eviction", outcome);
    for (round, failing, outcome, words) in [
        (0, Failing::Refuses(403, "a webhook says no"), "refused", "can't be deleted: a webhook says no"),
        (1, Failing::NeverAnswers, "unanswered", "is not deleted yet: no answer within 10 s"),
        (2, Failing::AnswersSomethingElse, "unanswered", "is not deleted yet: its answer can't be read"),
    ] {
        scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
        proxy.fail(Seam::new(Method::DELETE, &["/pods/kept"]), failing);
        let before = failed(&get(listener, "/metrics").1, outcome);
        let request = format!("drain-rendered-{round}");
        scene.request(&request).await;
        let text = format!("pod default/kept {words}");
        let is_named = |node: &Node| own(node, "drain-blocked").is_some_and(|why| why.contains(&text));
        scene.until(&text, is_named).await;
        page_until(listener, "/metrics", "it is counted", |_, body| failed(body, outcome) > before).await;
        pod_gone(&scene.cluster.client, "default", "plain").await;
        assert!(proxy.mend()[0] <= 3, "{failing:?}: it is tried rarely");
        pod_gone(&scene.cluster.client, "default", "kept").await;
        scene.until_done(&request).await;
        let uncordon = format!("uncordon-rendered-{round}");
        scene.request(&uncordon).await;
        scene.until_done(&uncordon).await;
    }
}
