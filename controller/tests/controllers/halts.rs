//! A halt ends only as `docs/rollouts.md` says, whatever becomes of the policy that ruled the rollout.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use machine_config_controller::api::RolloutPolicy;
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, object_until};
use crate::process::{Cluster, Controller, condition};
use crate::rollout_edges::{
    NODES, config, desired, finish, policy, return_of_canary, three_nodes, until_desired,
};

/// A cluster whose canary failed a config and returned: the rollout of the pool `worker` is halted.
struct Halted {
    cluster: Cluster,
    _controller: Controller,
    policies: Api<RolloutPolicy>,
    first: String,
}

impl Halted {
    async fn new() -> Self {
        let (cluster, controller, first) = three_nodes().await;
        cluster.pool("infra").await;
        cluster.config("infra", MachineConfigBuilder::new("50-infra")).await;
        cluster.until_target("infra", "").await;
        return_of_canary(&cluster, &first).await;
        let policies = Api::all(cluster.client.clone());
        let halted = Self { cluster, _controller: controller, policies, first };
        halted.until("1 failed nodes, 0 allowed").await;
        halted
    }

    /// Waits until the pool is halted with these words; no node has the bad config.
    async fn until(&self, words: &str) {
        let is_halted = |pool: &Value| {
            let found = condition(pool, "RolloutHalted");
            let message = found["message"].as_str().unwrap_or_default();
            found["status"] == "True" && found["reason"] == "TooManyFailures" && message.contains(words)
        };
        self.cluster.until_pool("worker", words, is_halted).await;
        for name in NODES {
            assert_eq!(
                desired(&self.cluster.client, name).await.as_ref(),
                Some(&self.first),
                "{name}: {words}"
            );
        }
    }

    /// Waits until a policy has a phase, with the pool that it is for.
    async fn until_policy(&self, name: &str, phase: &str, pool: &str) {
        let is_there = |policy: &RolloutPolicy| {
            policy.status.as_ref().is_some_and(|status| {
                status.phase.as_deref() == Some(phase) && status.pool.as_deref() == Some(pool)
            })
        };
        object_until(&self.policies, name, phase, is_there).await;
    }

    async fn for_pool(&self, pool: &str) {
        let patch = Patch::Merge(json!({ "spec": { "poolRef": { "name": pool } } }));
        self.policies.patch("worker", &PatchParams::default(), &patch).await.unwrap();
    }
}

async fn until_condition(cluster: &Cluster, type_: &str, reason: &str) {
    let has = |pool: &Value| condition(pool, type_)["reason"] == reason;
    cluster.until_pool("worker", &format!("{type_}: {reason}"), has).await;
}

/// Annotates the pool, and has the controller decide by that.
async fn resume(cluster: &Cluster, value: &str, max_unavailable: i32) {
    let annotations = json!({ "machine-config-agent.io/resume": value });
    let patch =
        json!({ "metadata": { "annotations": annotations }, "spec": { "maxUnavailable": max_unavailable } });
    cluster.patch_pool("worker", patch).await;
    let is_decided = |pool: &Value| pool["status"]["observedGeneration"] == pool["metadata"]["generation"];
    cluster.until_pool("worker", "it is decided", is_decided).await;
}

/// The policy is deleted while its canary soaks: the other nodes wait for a person. The pool's annotation goes on with the target that it
/// names, and each value once.
#[tokio::test]
async fn policy_deleted_in_soak_halts_until_pool_is_annotated() {
    let (cluster, _controller, first) = three_nodes().await;
    let client = &cluster.client;
    let policies = Api::<RolloutPolicy>::all(client.clone());
    let spec = json!({ "canary": { "nodes": 1, "soak": "1h" } });
    policy(client, &spec).await;
    cluster.until_pool("worker", "its nodes", |pool| pool["status"]["updatedMachineCount"] == 3).await;
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    until_desired(client, "n1", &second).await;
    finish(client, "n1").await;
    until_condition(&cluster, "RolloutProgressing", "Soaking").await;
    policies.delete("worker", &DeleteParams::default()).await.unwrap();
    until_condition(&cluster, "RolloutHalted", "PolicyDeleted").await;
    // Of another target.
    resume(&cluster, &format!("{first} 1"), 1).await;
    until_condition(&cluster, "RolloutHalted", "PolicyDeleted").await;
    for name in ["n2", "n3"] {
        assert_eq!(desired(client, name).await.as_ref(), Some(&first), "{name}");
    }
    resume(&cluster, &format!("{second} 1"), 1).await;
    until_desired(client, "n2", &second).await;
    until_condition(&cluster, "RolloutResumed", "Annotated").await;
    // The next halt of the same target is another one: the value was followed.
    policy(client, &spec).await;
    until_condition(&cluster, "RolloutHalted", "PolicyFollowed").await;
    policies.delete("worker", &DeleteParams::default()).await.unwrap();
    until_condition(&cluster, "RolloutHalted", "PolicyDeleted").await;
    finish(client, "n2").await;
    cluster.until_pool("worker", "two are done", |pool| pool["status"]["updatedMachineCount"] == 2).await;
    resume(&cluster, &format!("{second} 1"), 2).await;
    until_condition(&cluster, "RolloutHalted", "PolicyDeleted").await;
    assert_eq!(desired(client, "n3").await.as_ref(), Some(&first), "it was followed once");
    resume(&cluster, &format!("{second} 2"), 1).await;
    until_desired(client, "n3", &second).await;
}

#[tokio::test]
async fn policy_that_is_given_to_another_pool_and_back_ends_no_halt() {
    let halted = Halted::new().await;
    halted.for_pool("infra").await;
    halted.until("and the RolloutPolicy of pool worker was deleted").await;
    halted.until_policy("worker", "NoNodes", "infra").await;
    halted.for_pool("worker").await;
    halted.until_policy("worker", "Halted", "worker").await;
    halted.until("RolloutPolicy worker").await;
    // As docs/rollouts.md says.
    let patch =
        Patch::Merge(json!({ "metadata": { "annotations": { "machine-config-agent.io/resume": "1" } } }));
    halted.policies.patch("worker", &PatchParams::default(), &patch).await.unwrap();
    let bad = halted.cluster.until_target("worker", &halted.first).await;
    until_desired(&halted.cluster.client, "n1", &bad).await;
}

#[tokio::test]
async fn second_policy_that_stays_ends_no_halt() {
    let halted = Halted::new().await;
    let second = json!({
        "metadata": { "name": "night" },
        "spec": { "poolRef": { "name": "worker" }, "canary": { "nodes": 1 } },
    });
    halted.policies.create(&PostParams::default(), &serde_json::from_value(second).unwrap()).await.unwrap();
    let is_told = |pool: &Value| condition(pool, "RolloutInvalid")["reason"] == "PolicyInvalid";
    halted.cluster.until_pool("worker", "two policies", is_told).await;
    halted.until("1 failed nodes, 0 allowed").await;
    halted.policies.delete("worker", &DeleteParams::default()).await.unwrap();
    halted.until_policy("night", "Halted", "worker").await;
    halted.until("of RolloutPolicy night").await;
}
