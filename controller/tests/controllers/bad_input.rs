//! Bad input: a condition names the object, the cause and the next step, and another pool goes on.

use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use machine_config_controller::api::RolloutPolicy;
use serde_json::{Value, json};

use crate::cluster::{
    MachineConfigBuilder, annotation, call, changes, key, node_api, node_until, object_api, object_until,
    within,
};
use crate::process::{Cluster, Controller, apply_definition, condition, target};
use crate::rollout::{Agents, ready_node};

/// A pool with bad input, and another one with a node that gets what is new.
struct Pools {
    cluster: Cluster,
    /// Rendered configs of both pools.
    bad: String,
    good: String,
    _controller: Controller,
    _agents: Agents,
}

fn config(name: &str, contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(name).file("/etc/a.conf", 0o644, contents)
}

impl Pools {
    async fn new() -> Self {
        let cluster = Cluster::new().await;
        apply_definition(&cluster.client, "rolloutpolicies").await;
        for pool in ["bad", "good"] {
            cluster.pool(pool).await;
            cluster.config(pool, config(&format!("50-{pool}"), "1")).await;
        }
        let controller = cluster.start("a", &[]);
        let bad = cluster.until_target("bad", "").await;
        let good = cluster.until_target("good", "").await;
        let agents = Agents::start(&cluster.bench).await;
        let pools = Self { cluster, bad, good, _controller: controller, _agents: agents };
        pools.node("n-bad", &pools.bad, &["bad"]).await;
        pools.node("n-good", &pools.good, &["good"]).await;
        pools
    }

    /// Creates a node of some pools.
    async fn node(&self, name: &str, config: &str, pools: &[&str]) {
        ready_node(&self.cluster.client, name, config).await;
        let label = |pool: &&str| (format!("node-role.kubernetes.io/{pool}"), json!(""));
        let labels: serde_json::Map<String, Value> = pools.iter().map(label).collect();
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        node_api(&self.cluster.client).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Gives the bad pool a MachineConfig `60-bad` with an Ignition config as it is.
    async fn ignition(&self, config: Value) {
        let metadata = json!({ "name": "60-bad", "labels": { key("role"): "bad" } });
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": metadata, "spec": { "config": config },
        });
        let api = object_api(&self.cluster.client, "machineconfigs");
        let how = PatchParams::apply("test").force();
        api.patch("60-bad", &how, &Patch::Apply(&object)).await.unwrap();
    }

    async fn patch_bad(&self, spec: Value) {
        self.cluster.patch_pool("bad", json!({ "spec": spec })).await;
    }

    /// Waits until a condition of the bad pool has a reason and a message.
    async fn reported(&self, type_: &str, reason: &str, message: &str) -> Value {
        let holds = |pool: &Value| {
            let found = condition(pool, type_);
            found["reason"] == reason && found["message"].as_str().is_some_and(|text| text.contains(message))
        };
        self.cluster.until_pool("bad", message, holds).await
    }

    /// Waits until the node of the good pool has a new config, which that of the bad pool does not get.
    async fn other_goes_on(&self) {
        self.cluster.config("good", config("50-good", "2")).await;
        let new = self.cluster.until_target("good", &self.good).await;
        let has_new = |node: &Node| {
            annotation(node, "currentConfig") == Some(&new) && annotation(node, "state") == Some("Done")
        };
        node_until(&self.cluster.client, "n-good", "the new config", has_new).await;
        let bad = node_api(&self.cluster.client).get("n-bad").await.unwrap();
        assert_eq!(annotation(&bad, "desiredConfig"), Some(self.bad.as_str()));
    }

    fn policies(&self) -> Api<RolloutPolicy> {
        Api::all(self.cluster.client.clone())
    }

    async fn policy(&self, name: &str, spec: Value) {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let object = serde_json::from_value(object).unwrap();
        self.policies().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Waits until the condition `Accepted` of a policy has a status and a reason; returns its message.
    async fn accepted(&self, policy: &str, status: &str, reason: &str) -> String {
        let read = |policy: &RolloutPolicy| {
            let conditions = policy.status.as_ref().and_then(|status| status.conditions.clone());
            conditions.into_iter().flatten().find(|one| one.type_ == "Accepted")
        };
        let holds = |policy: &RolloutPolicy| {
            read(policy).is_some_and(|one| one.status == status && one.reason.as_deref() == Some(reason))
        };
        let found = object_until(&self.policies(), policy, reason, holds).await;
        read(&found).unwrap().message.unwrap_or_default()
    }
}

#[tokio::test]
async fn pool_that_selects_nothing_is_reported() {
    let pools = Pools::new().await;
    // No node.
    pools.patch_bad(json!({ "nodeSelector": { "matchLabels": { "role": "none" } } })).await;
    let message = "pool bad has no node: its nodeSelector matches none, or only nodes of custom pools; label a node to match it";
    pools.reported("RolloutProgressing", "NoNodes", message).await;
    // No MachineConfig.
    pools.patch_bad(json!({ "machineConfigSelector": { "matchLabels": { key("role"): "none" } } })).await;
    let message = "pool bad: machineConfigSelector selects no MachineConfig; label one as the selector requires (by default \
                   machineconfiguration.openshift.io/role=bad), or correct the selector";
    let pool = pools.reported("RenderDegraded", "", message).await;
    assert_eq!(target(&pool), pools.bad);
    pools.other_goes_on().await;
}

#[tokio::test]
async fn node_of_two_pools_is_reported() {
    let pools = Pools::new().await;
    pools.cluster.pool("third").await;
    pools.node("n-two", &pools.bad, &["bad", "third"]).await;
    let message = "node n-two belongs to the custom pools bad and third, so none of them updates it; remove the label of all but one";
    pools.reported("RolloutInvalid", "NodeInTwoPools", message).await;
    pools.other_goes_on().await;
    // The bad pool's other node is updated, too.
    pools.cluster.config("bad", config("50-bad", "2")).await;
    let new = pools.cluster.until_target("bad", &pools.bad).await;
    let has_new = |node: &Node| annotation(node, "currentConfig") == Some(&new);
    node_until(&pools.cluster.client, "n-bad", "the new config", has_new).await;
    let two = node_api(&pools.cluster.client).get("n-two").await.unwrap();
    assert_eq!(annotation(&two, "desiredConfig"), Some(pools.bad.as_str()));
}

#[tokio::test]
async fn unparsable_machineconfig_is_reported() {
    let pools = Pools::new().await;
    pools.ignition(json!({ "ignition": { "version": "9.0.0" } })).await;
    let pool = pools.reported("RenderDegraded", "", "\"9.0.0\"").await;
    assert_eq!(target(&pool), pools.bad);
    pools
        .ignition(json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [
            { "path": "/etc/b", "contents": { "source": "https://files.test/b" } },
        ] } }))
        .await;
    let pool =
        pools.reported("RenderDegraded", "", "nothing is downloaded, put the contents into the config").await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(message.contains("60-bad") && message.contains("/etc/b"), "{message}");
    pools.other_goes_on().await;
}

/// What each node would refuse is refused before: of a pool without a target as of one that has it. The words are the nodes'.
#[tokio::test]
async fn config_that_no_node_takes_is_reported() {
    let pools = Pools::new().await;
    let open =
        json!({ "directories": [{ "path": "/srv/a", "mode": 511 }], "files": [{ "path": "/srv/a/b" }] });
    let database = json!({ "directories": [{ "path": "/etc/shadow" }] });
    for (storage, words) in [
        (
            database,
            "storage.directories \"/etc/shadow\": it is the host's database of accounts, which is a file",
        ),
        (
            open,
            "storage.directories \"/srv/a\" mode: with mode 0777 other accounts than its owner can write there",
        ),
    ] {
        pools.ignition(json!({ "ignition": { "version": "3.2.0" }, "storage": storage })).await;
        let pool = pools.reported("RenderDegraded", "", words).await;
        assert_eq!(target(&pool), pools.bad);
    }
    pools.other_goes_on().await;
}

#[tokio::test]
async fn selectors_that_are_empty_or_contradict_themselves_are_reported() {
    let pools = Pools::new().await;
    pools.patch_bad(json!({ "machineConfigSelector": { "matchLabels": null } })).await;
    let message = "pool bad: machineConfigSelector is empty; name the labels of the pool's MachineConfigs";
    pools.reported("RenderDegraded", "", message).await;
    let none = json!({ "matchLabels": null, "matchExpressions": [] });
    pools.patch_bad(json!({ "nodeSelector": none })).await;
    let message =
        "pool bad: nodeSelector is empty, so it selects no node; name the labels of the pool's nodes";
    pools.reported("RolloutInvalid", "NodeSelectorInvalid", message).await;
    let both = json!({ "matchExpressions": [
        { "key": "a", "operator": "Exists" }, { "key": "a", "operator": "DoesNotExist" },
    ] });
    pools.patch_bad(json!({ "nodeSelector": both })).await;
    pools
        .reported("RolloutProgressing", "NoNodes", "pool bad has no node: its nodeSelector matches none")
        .await;
    pools.other_goes_on().await;
}

#[tokio::test]
async fn image_by_tag_is_reported() {
    let pools = Pools::new().await;
    let tagged = config("50-bad", "2").os_image_url("example.com/os:latest");
    pools.cluster.config("bad", tagged).await;
    let message = "image \"example.com/os:latest\" is refused: it is not named by digest; give it as NAME@sha256:<64 hex digits>";
    let pool = pools.reported("RenderDegraded", "", message).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(message.contains("MachineConfig 50-bad"), "{message}");
    assert_eq!(target(&pool), pools.bad);
    pools.other_goes_on().await;
}

#[tokio::test]
async fn window_that_never_opens_is_reported() {
    let pools = Pools::new().await;
    let window = json!({ "start": "22:00", "length": "4h", "timeZone": "Mars/Base" });
    pools.policy("bad", json!({ "windows": [window] })).await;
    pools.cluster.config("bad", config("50-bad", "2")).await;
    let message = "RolloutPolicy bad: spec.windows[0] never opens: timeZone \"Mars/Base\" is unknown; write it as Europe/Berlin";
    pools.reported("RolloutInvalid", "PolicyInvalid", message).await;
    assert_eq!(pools.accepted("bad", "False", "PolicyInvalid").await, message);
    pools.other_goes_on().await;
}

/// The condition ends when the pool appears, or when the policy names another one.
#[tokio::test]
async fn policy_without_pool_is_reported_until_corrected() {
    let pools = Pools::new().await;
    pools.policy("night", json!({ "poolRef": { "name": "gpu" } })).await;
    pools.policy("canary", json!({ "poolRef": { "name": "bda" } })).await;
    let message = "RolloutPolicy night is for pool gpu, which does not exist; correct spec.poolRef.name, create the pool, \
                   or delete the policy";
    assert_eq!(pools.accepted("night", "False", "PoolNotFound").await, message);
    pools.accepted("canary", "False", "PoolNotFound").await;
    let events: Api<Event> = Api::namespaced(pools.cluster.client.clone(), "default");
    let mut events = pin!(changes(&events, &ListParams::default()).await.unwrap());
    let event = within("an Event of the policy", async {
        loop {
            let (event, _) = events.next().await.unwrap();
            if event.involved_object.name.as_deref() == Some("night") {
                break event;
            }
        }
    })
    .await;
    assert_eq!(event.involved_object.kind.as_deref(), Some("RolloutPolicy"));
    assert_eq!((event.reason.as_deref(), event.message.as_deref()), (Some("PoolNotFound"), Some(message)));
    pools.other_goes_on().await;
    pools.cluster.pool("gpu").await;
    assert_eq!(pools.accepted("night", "True", "PoolFound").await, "");
    let corrected = Patch::Merge(json!({ "spec": { "poolRef": { "name": "bad" } } }));
    pools.policies().patch("canary", &PatchParams::default(), &corrected).await.unwrap();
    pools.accepted("canary", "True", "PoolFound").await;
    // Two for one pool: each names the other.
    pools.policy("bad", json!({})).await;
    for policy in ["bad", "canary"] {
        let message = pools.accepted(policy, "False", "PolicyInvalid").await;
        assert!(
            message.contains("bad and RolloutPolicy canary are both for pool bad; delete one"),
            "{message}"
        );
    }
    // A pool that is deleted.
    let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/gpu";
    assert_eq!(call(&pools.cluster.client, "DELETE", path, None).await.0, 200);
    pools.accepted("night", "False", "PoolNotFound").await;
}

/// The cluster's definition knows the fields otherwise. The policy's name is no pool's.
#[tokio::test]
async fn unreadable_policy_is_reported_until_corrected() {
    let pools = Pools::new().await;
    let definitions =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rolloutpolicies.machine-config-agent.io";
    let mut definition = call(&pools.cluster.client, "GET", definitions, None).await.1;
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap();
    *schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    assert_eq!(
        call(&pools.cluster.client, "PUT", definitions, Some(("application/json", definition))).await.0,
        200
    );
    let kind = ApiResource::erase::<RolloutPolicy>(&());
    let policies: Api<DynamicObject> = Api::all_with(pools.cluster.client.clone(), &kind);
    let object = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "night" },
        "spec": { "poolRef": { "name": "bad" }, "windows": "at night" },
    });
    let how = PatchParams::apply("test").force();
    // The server takes the new schema over a moment later.
    within("the loose definition holds", async {
        while policies.patch("night", &how, &Patch::Apply(&object)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    pools.cluster.config("bad", config("50-bad", "2")).await;
    let message = "RolloutPolicy night can't be read: spec.windows: it is a string, and must be a list; correct it, or delete it";
    pools.reported("RolloutInvalid", "PolicyInvalid", message).await;
    let accepted = |policy: &Value| condition(policy, "Accepted").clone();
    let is_refused = |policy: &DynamicObject| {
        let accepted = accepted(&policy.data);
        accepted["status"] == "False"
            && accepted["reason"] == "PolicyInvalid"
            && accepted["message"] == message
    };
    let refused = object_until(&policies, "night", "refused", is_refused).await;
    assert_eq!(refused.data["status"]["phase"], "Invalid");
    pools.other_goes_on().await;
    // It was written once.
    let now = policies.get("night").await.unwrap();
    assert_eq!(now.metadata.resource_version, refused.metadata.resource_version);
    let window = json!([{ "start": "00:00", "length": "24h" }]);
    let corrected = Patch::Merge(json!({ "spec": { "windows": window } }));
    policies.patch("night", &PatchParams::default(), &corrected).await.unwrap();
    assert_eq!(pools.accepted("night", "True", "PoolFound").await, "");
    let has_new = |node: &Node| annotation(node, "desiredConfig") != Some(&pools.bad);
    node_until(&pools.cluster.client, "n-bad", "the new config", has_new).await;
}

/// The definition of pools gets the field `status.plan` while the controller runs.
#[tokio::test]
async fn definition_that_changes_later_is_read_again() {
    let pools = Pools::new().await;
    pools.patch_bad(json!({ "paused": true })).await;
    pools.cluster.config("bad", config("50-bad", "2")).await;
    let paused = |pool: &Value| {
        target(pool) != pools.bad && condition(pool, "RolloutProgressing")["reason"] == "Paused"
    };
    let pool = pools.cluster.until_pool("bad", "paused with another target", paused).await;
    assert_eq!(pool["status"]["plan"], Value::Null);
    apply_definition(&pools.cluster.client, "machineconfigpools").await;
    // While the server makes room for the other definition it refuses to list, also in the middle of a wait.
    let api = object_api(&pools.cluster.client, "machineconfigpools");
    within("the plan is in the status", async {
        while !api.get("bad").await.is_ok_and(|pool| pool.data["status"]["plan"]["nodes"] == 1) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
