//! The status of a `RolloutPolicy` that has no answer: what it would record is not done, and that is told.

use http::Method;
use serde_json::{Value, json};

use super::{TwoPools, UNANSWERED, contents};
use crate::process::{Cluster, condition};
use crate::proxy::Seam;
use crate::refusals::{failures, get, page_until, until_has};
use crate::rollout_edges::{desired, policy};
use crate::seams::drain::until_event;

/// The nodes of the pool `worker`.
const NODES: &[&str] = &["w1", "w2"];

async fn until_complete(cluster: &Cluster, target: &str) {
    let is_complete = |pool: &Value| {
        condition(pool, "RolloutProgressing")["reason"] == "Complete"
            && pool["status"]["configuration"]["name"] == target
    };
    cluster.until_pool("worker", "its rollout is over", is_complete).await;
}

/// No node gets a target that is not recorded. The pool, an Event and the metric say why, the other pool goes on, and so does this one once
/// the status is written.
#[tokio::test]
async fn status_of_policy_has_no_answer() {
    let TwoPools { cluster, proxy, listener, mut worker, mut infra, _controller, _agents } =
        TwoPools::new(NODES).await;
    let client = &cluster.client;
    policy(client, &json!({ "canary": { "nodes": 1 } })).await;
    until_complete(&cluster, &worker).await;
    for failing in UNANSWERED {
        let before = failures(&get(listener, "/metrics").1, "PolicyStatus", "unanswered");
        proxy.fail(Seam::new(Method::PATCH, &["/rolloutpolicies/worker/status?"]), failing);
        let words = format!("{failing:?}");
        cluster.config("worker", contents("worker", &words)).await;
        let target = cluster.until_target("worker", &worker).await;
        proxy.failed(1).await;
        let is_told = |pool: &Value| {
            ["RolloutProgressing", "Degraded"].iter().all(|type_| {
                let found = condition(pool, type_);
                let message = found["message"].as_str().unwrap_or_default();
                found["reason"] == "Unrecorded"
                    && message.contains("RolloutPolicy worker: its status can't be written")
            })
        };
        cluster.until_pool("worker", &format!("{words} is told"), is_told).await;
        cluster.config("infra", contents("infra", &words)).await;
        infra = cluster.until_target("infra", &infra).await;
        until_has(&cluster, "i1", &infra).await;
        let is_counted = |_, body: &str| failures(body, "PolicyStatus", "unanswered") > before;
        page_until(listener, "/metrics", "the failure is counted", is_counted).await;
        for name in NODES {
            assert_eq!(desired(client, name).await.as_ref(), Some(&worker), "{name}: {words}");
        }
        until_event(client, "StatusNotWritten", "worker", "RolloutPolicy worker").await;
        proxy.mend();
        for name in NODES {
            until_has(&cluster, name, &target).await;
        }
        until_complete(&cluster, &target).await;
        worker = target;
    }
}
