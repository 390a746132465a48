//! A `RolloutPolicy` that changes, or is deleted, while the decision by its older version is not written.

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use machine_config_controller::api::RolloutPolicy;
use serde_json::{Value, json};

use crate::cluster::{
    Fault, MachineConfigBuilder, Request, annotation, node_api, node_until, object_until, own_only,
};
use crate::connections::behind_proxy;
use crate::process::{Cluster, apply_definition, condition};
use crate::proxy::{Failing, Seam};
use crate::rollout::ready_node;
use crate::seams::drain::until_event;

/// The status of the policy is refused as a conflict: no node is given a target by the decision that it was part of.
#[tokio::test]
async fn conflict_of_policy_status_gives_no_node_out() {
    if !own_only("policy_conflict::conflict_of_policy_status_gives_no_node_out") {
        return;
    }
    let cluster = Cluster::new().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let renders = cluster.start("renders", &["--controllers", "render"]);
    let target = cluster.until_target("worker", "").await;
    assert!(renders.terminate().await.success());
    ready_node(&cluster.client, "n", "rendered-worker-old").await;
    let policy = json!({ "metadata": { "name": "worker" }, "spec": { "canary": { "nodes": 1 } } });
    let policies = Api::<RolloutPolicy>::all(cluster.client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    let path = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies/worker/status";
    cluster.bench.fault(&Fault::status(409).method("PATCH").path(path).count(2));
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("node", &["--controllers", "node"]);
    let named = |node: &Node| annotation(node, "desiredConfig") == Some(&*target);
    node_until(&cluster.client, "n", "the target", named).await;
    let all = cluster.bench.requests_since(mark).await;
    let place = |of: &dyn Fn(&Request) -> bool| all.iter().position(of).unwrap();
    let is_status = |code: u64| {
        move |one: &Request| {
            one.resource == "rolloutpolicies" && one.subresource == "status" && one.code == Some(code)
        }
    };
    let written = place(&is_status(200));
    assert!(place(&is_status(409)) < written);
    let given = place(&|one| one.resource == "nodes" && one.verb == "patch");
    assert!(written < given, "{:?}", all.iter().map(Request::line).collect::<Vec<_>>());
}

/// The pool's status is not written, so the pool could not say after a deletion of the policy that one ruled the rollout: no node is given
/// the target before it is written, and none after the policy is gone.
#[tokio::test]
async fn policy_that_pool_can_not_remember_gives_no_node_out() {
    status_fails(Failing::Refuses(403, "a webhook says no"), "a webhook says no").await;
    status_fails(Failing::AnswersSomethingElse, "its answer can't be read").await;
}

async fn status_fails(failing: Failing, words: &str) {
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    apply_definition(client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    let policies = Api::<RolloutPolicy>::all(client.clone());
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    for name in ["n1", "n2", "n3"] {
        ready_node(client, name, &first).await;
    }
    let are_there = |pool: &Value| pool["status"]["updatedMachineCount"] == 3;
    cluster.until_pool("worker", "its nodes", are_there).await;
    proxy.fail(Seam::new(Method::PATCH, &["/machineconfigpools/worker/status?"]), failing);
    let spec = json!({ "canary": { "nodes": 1, "soak": "1h" } });
    let policy = json!({ "metadata": { "name": "worker" }, "spec": spec });
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("debug")).await;
    let target = cluster.until_target("worker", &first).await;
    // The policy says what the pool can't.
    let is_told = |policy: &RolloutPolicy| {
        policy.status.as_ref().is_some_and(|status| {
            let config = status.target.as_ref().map(|target| &target.config);
            status.phase.as_deref() == Some("Unrecorded") && config == Some(&target)
        })
    };
    object_until(&policies, "worker", "unrecorded", is_told).await;
    policies.delete("worker", &DeleteParams::default()).await.unwrap();
    until_event(client, "StatusNotWritten", "worker", words).await;
    proxy.failed_again(1).await;
    proxy.mend();
    let is_halted = |pool: &Value| condition(pool, "RolloutHalted")["reason"] == "PolicyDeleted";
    cluster.until_pool("worker", "halted", is_halted).await;
    for node in node_api(client).list(&ListParams::default()).await.unwrap() {
        assert_eq!(annotation(&node, "desiredConfig"), Some(&*first), "{words}");
    }
}
