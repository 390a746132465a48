//! Permissions of `daemon --lifecycle`: the component on a real kube-apiserver.

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::calls::{BY_RBAC, Call, all_done, check};
use super::setup::Applied;
use crate::cluster::scene::status;
use crate::cluster::{
    Agent, AgentOptions, Identity, create_object, node_api, object_until, real_only, within,
};
use crate::plain_host::bare;
use crate::rendered::{file, manifests, text};

const LCA: &str = "/apis/lca.openshift.io/v1";
const SECRETS: &str = "/api/v1/namespaces/openshift-lifecycle-agent/secrets";

/// The component in force, with its definitions, the Secret of the push and another one.
async fn applied() -> Applied {
    let applied = Applied::new("base", &["kubelet-identity", "lifecycle"]).await;
    for definition in file(&manifests().join("components/lifecycle/crds.yaml")) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        applied.request("POST", path, &definition).await;
    }
    for name in ["seedgen", "other"] {
        let secret = json!({ "metadata": { "name": name }, "data": { "seedAuth": "e30=" } });
        applied.request("POST", SECRETS, &secret).await;
    }
    let spec = json!({ "spec": { "clusterID": "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0" } });
    create_object(&applied.admin, "clusterversions", "version", spec).await.unwrap();
    // Served, and allowed: neither has an event.
    let kubelet = kubelet(&applied).await;
    let last = Call::get("read the Secret", format!("{SECRETS}/seedgen"));
    let kinds = ["seedgenerators", "imagebasedupgrades"].map(|kind| named(kind, kind_name(kind)));
    within("the component is in force", async {
        for call in kinds.iter().chain([&last]) {
            while call.send(&kubelet).await.0 != 200 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    applied
}

async fn kubelet(applied: &Applied) -> Client {
    applied.bench.client_as(&Identity::Kubelet("worker-a".to_owned()), "the-agent").await
}

fn kind_name(plural: &str) -> &'static str {
    if plural == "seedgenerators" { "seedimage" } else { "upgrade" }
}

/// A list as the agent's watch begins with.
fn named(plural: &str, name: &str) -> Call {
    Call::get("list by name", format!("{LCA}/{plural}?fieldSelector=metadata.name%3D{name}"))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "lca.openshift.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn objects(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("lca.openshift.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// LCA-020: a kubelet's certificate reads one Secret of lifecycle-agent's namespace, and writes nothing of a SeedGenerator but its
/// status.
#[tokio::test]
async fn kubelet_reaches_no_more_than_lifecycle_needs() {
    if !real_only("permissions::lifecycle::kubelet_reaches_no_more_than_lifecycle_needs") {
        return;
    }
    let applied = applied().await;
    let seed = object("SeedGenerator", "seedimage", &json!({ "seedImage": "registry.test/seed:1" }));
    applied.request("POST", &format!("{LCA}/seedgenerators"), &seed).await;
    let client = kubelet(&applied).await;
    let upgrade = object("ImageBasedUpgrade", "upgrade", &json!({ "stage": "Idle" }));
    let written = json!({ "status": { "observedGeneration": 1, "conditions": [] } });
    let at = |plural: &str, rest: &str| format!("{LCA}/{plural}/{}{rest}", kind_name(plural));
    let watch = |plural: &str| {
        let name = kind_name(plural);
        let path = format!("{LCA}/{plural}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}");
        Call::get("watch by name", path)
    };
    let mut allowed = vec![
        Call::get("count the Nodes", "/api/v1/nodes?limit=2"),
        Call::post("create the upgrade", format!("{LCA}/imagebasedupgrades"), upgrade.clone()),
        Call::get("read the version", "/apis/config.openshift.io/v1/clusterversions/version"),
        Call::get("read the credentials", format!("{SECRETS}/seedgen")),
    ];
    for plural in ["imagebasedupgrades", "seedgenerators"] {
        let status = Call::patch("write the status", at(plural, "/status"), written.clone());
        allowed.extend([named(plural, kind_name(plural)), watch(plural), status]);
    }
    allowed.push(Call::delete("delete the upgrade", at("imagebasedupgrades", "")));
    check(&client, &all_done(allowed)).await;
    applied.request("POST", &format!("{LCA}/imagebasedupgrades"), &upgrade).await;
    let refused = [
        Call::get("list the Secrets", SECRETS),
        Call::get("read another Secret", format!("{SECRETS}/other")),
        Call::get("read such a Secret elsewhere", "/api/v1/namespaces/default/secrets/seedgen"),
        Call::patch("write the Secret", format!("{SECRETS}/seedgen"), json!({ "data": {} })),
        Call::get("list all SeedGenerators", format!("{LCA}/seedgenerators")),
        Call::post("create a SeedGenerator", format!("{LCA}/seedgenerators"), seed),
        Call::delete("delete the SeedGenerator", at("seedgenerators", "")),
        Call::patch("change its seed", at("seedgenerators", ""), json!({ "spec": { "seedImage": "x/y" } })),
        Call::patch("desire a stage", at("imagebasedupgrades", ""), json!({ "spec": { "stage": "Prep" } })),
        Call::get("list versions", "/apis/config.openshift.io/v1/clusterversions"),
        Call::delete("delete a Node", "/api/v1/nodes/worker-b"),
    ];
    check(&client, &refused.map(|call| (call, BY_RBAC))).await;
}

/// The agent itself, on the only node of its cluster: nothing that it requests is refused.
#[tokio::test]
async fn agent_with_lifecycle_is_refused_nothing() {
    if !real_only("permissions::lifecycle::agent_with_lifecycle_is_refused_nothing") {
        return;
    }
    let applied = applied().await;
    node_api(&applied.admin).delete("worker-b", &DeleteParams::default()).await.unwrap();
    let host = tempfile::tempdir().unwrap();
    bare(host.path());
    let mark = applied.bench.mark().await;
    let kubeconfig = applied.bench.kubeconfig(&Identity::Kubelet("worker-a".to_owned()));
    let agent = Agent::start(&AgentOptions::new(&kubeconfig, "worker-a", host.path()).arg("--lifecycle"));
    let upgrades = objects(&applied.admin, "ImageBasedUpgrade");
    object_until(&upgrades, "upgrade", "it has a status", |one| one.data["status"].is_object()).await;
    let seed = object("SeedGenerator", "seedimage", &json!({ "seedImage": "registry.test/seed:1" }));
    applied.request("POST", &format!("{LCA}/seedgenerators"), &seed).await;
    // This host is a directory, so its services can't be stopped.
    let seeds = objects(&applied.admin, "SeedGenerator");
    let failed = |one: &DynamicObject| {
        status(&serde_json::to_value(one).unwrap(), "SeedGenCompleted") == "False"
            && one.data["status"].to_string().contains("does not run on the host itself")
    };
    object_until(&seeds, "seedimage", "it has failed", failed).await;
    let all = applied.bench.requests_since(mark).await;
    let own = all.iter().filter(|one| one.agent.starts_with("machine-config-agent/"));
    let refused = own.filter(|one| matches!(one.code, Some(401 | 403)));
    assert_eq!(refused.map(crate::cluster::Request::line).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(text(&json!({ "x": agent.lines().join("\n") }), "/x").contains("SeedGenerator seedimage failed"));
}
