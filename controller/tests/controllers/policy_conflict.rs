//! A `RolloutPolicy` that changes while a decision by its older version is written.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use machine_config_controller::api::RolloutPolicy;
use serde_json::json;

use crate::cluster::{Fault, MachineConfigBuilder, Request, annotation, node_until, own_only};
use crate::process::{Cluster, apply_definition};
use crate::rollout::ready_node;

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
