//! Fields that nobody knows: the Machine Config Operator accepts them, so a pool and a MachineConfig name them.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, create_object, key, object_api};
use crate::documents::loosen;
use crate::process::{Cluster, condition, target};
use kube::api::{Patch, PatchParams};

const TYPO: &str =
    "MachineConfig 50-typo: spec.config.storge: there is no such field (did you mean storage?)";

async fn ignition(cluster: &Cluster, name: &str, config: Value) {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": name, "labels": { key("role"): "worker" } }, "spec": { "config": config },
    });
    let how = PatchParams::apply("test").force();
    object_api(&cluster.client, "machineconfigs").patch(name, &how, &Patch::Apply(&object)).await.unwrap();
}

/// Waits for a status of the condition; returns the pool.
async fn until(cluster: &Cluster, status: &str, part: &str) -> Value {
    let holds = |pool: &Value| {
        let found = condition(pool, "UnknownFields");
        found["status"] == status && found["message"].as_str().unwrap_or_default().contains(part)
    };
    cluster.until_pool("worker", &format!("UnknownFields is {status}"), holds).await
}

/// Events of a MachineConfig: message and count.
async fn events(cluster: &Cluster, name: &str) -> Vec<(String, i32)> {
    events_of(cluster, "MachineConfig", name).await
}

async fn events_of(cluster: &Cluster, kind: &str, name: &str) -> Vec<(String, i32)> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
    let of_config = all.filter(|event| {
        event.involved_object.kind.as_deref() == Some(kind)
            && event.involved_object.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some("UnknownFields")
    });
    of_config.map(|event| (event.message.unwrap_or_default(), event.count.unwrap_or_default())).collect()
}

#[tokio::test]
async fn unknown_fields_are_condition_and_one_event_until_they_go() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let file = |contents: &str| MachineConfigBuilder::new("00-a").file("/etc/a", 0o644, contents);
    cluster.config("worker", file("1")).await;
    let first = cluster.until_target("worker", "").await;
    let typo = json!({ "ignition": { "version": "3.4.0" }, "storge": { "files": [] } });
    ignition(&cluster, "50-typo", typo).await;
    let pool = until(&cluster, "True", TYPO).await;
    // It is rendered all the same.
    assert_eq!(condition(&pool, "RenderDegraded")["status"], "False", "{pool}");
    // The condition is written before the Event, and another rendering after it.
    let mut last = first;
    for contents in ["2", "3"] {
        cluster.config("worker", file(contents)).await;
        last = cluster.until_target("worker", &last).await;
        until(&cluster, "True", TYPO).await;
    }
    // Another MachineConfig gets an Event of its own; the first one is not told again.
    let other = json!({ "ignition": { "version": "3.4.0" }, "systemd": { "unit": [] } });
    ignition(&cluster, "60-other", other).await;
    until(&cluster, "True", "MachineConfig 60-other: spec.config.systemd.unit: ").await;
    cluster.config("worker", file("4")).await;
    cluster.until_target("worker", &last).await;
    assert_eq!(events(&cluster, "50-typo").await, [(TYPO.to_owned(), 1)]);
    assert_eq!(events(&cluster, "60-other").await.len(), 1);
    // A pool that can't be rendered keeps it: the field is still there.
    ignition(&cluster, "70-bad", json!({ "ignition": { "version": "9.0.0" } })).await;
    let degraded = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "True";
    let pool = cluster.until_pool("worker", "RenderDegraded", degraded).await;
    assert_eq!(condition(&pool, "UnknownFields")["status"], "True", "{pool}");
    ignition(&cluster, "70-bad", json!({ "ignition": { "version": "3.4.0" } })).await;
    for name in ["50-typo", "60-other"] {
        ignition(&cluster, name, json!({ "ignition": { "version": "3.4.0" } })).await;
    }
    let pool = until(&cluster, "False", "").await;
    assert_eq!(condition(&pool, "UnknownFields")["message"], "", "{pool}");
}

/// Of these a cluster has one: each pool names what nobody knows of them, and that a disruption policy is refused.
#[tokio::test]
async fn fields_of_shared_objects_are_named() {
    let cluster = Cluster::new().await;
    let group = "machineconfiguration.openshift.io";
    loosen(&cluster, &[(group, "controllerconfigs"), ("operator.openshift.io", "machineconfigurations")])
        .await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("00-a").file("/etc/a", 0o644, "1")).await;
    cluster.controller_config(&json!({ "futureField": 1 })).await;
    let policy = json!({ "spec": { "futureField": 1 } });
    create_object(&cluster.client, "machineconfigurations", "cluster", policy).await.unwrap();
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let pool =
        until(&cluster, "True", "ControllerConfig machine-config-controller: spec.futureField: ").await;
    let message = condition(&pool, "UnknownFields")["message"].clone();
    assert!(message.to_string().contains("MachineConfiguration cluster: spec.futureField: "), "{message}");
    assert_eq!(events_of(&cluster, "ControllerConfig", "machine-config-controller").await.len(), 1);
    assert_eq!(events_of(&cluster, "MachineConfiguration", "cluster").await.len(), 1);

    let policies = object_api(&cluster.client, "machineconfigurations");
    let set = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        policies.patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    };
    let files = json!([{ "path": "etc/a", "actions": [] }]);
    set(json!({ "nodeDisruptionPolicy": { "files": files }, "futureField": null })).await;
    cluster.patch_pool("worker", json!({ "spec": { "osImageStream": { "name": "rhel-9" } } })).await;
    let not_applied = async |parts: &[&str]| {
        let has = |pool: &Value| {
            let message =
                condition(pool, "FieldsNotApplied")["message"].as_str().unwrap_or_default().to_owned();
            parts.iter().all(|part| message.contains(part)) && message.is_empty() == parts.is_empty()
        };
        cluster.until_pool("worker", "FieldsNotApplied", has).await
    };
    let pool =
        not_applied(&["MachineConfiguration cluster is not applied: ", "etc/a", "spec.osImageStream"]).await;
    assert_eq!(condition(&pool, "RenderDegraded")["status"], "False", "{pool}");
    set(json!({ "nodeDisruptionPolicy": null })).await;
    cluster.patch_pool("worker", json!({ "spec": { "osImageStream": null } })).await;
    not_applied(&[]).await;
    let api = object_api(&cluster.client, "controllerconfigs");
    let patch = Patch::Merge(json!({ "spec": { "futureField": null } }));
    api.patch("machine-config-controller", &PatchParams::default(), &patch).await.unwrap();
    until(&cluster, "False", "").await;
}

/// As by the Machine Config Operator: each part is read before they are merged.
#[tokio::test]
async fn part_that_does_not_decode_degrades_pool_though_later_one_overrides_it() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let file = |source: &str| {
        json!({ "ignition": { "version": "3.4.0" }, "storage": { "files": [
            { "path": "/etc/a", "contents": { "source": source } },
        ] } })
    };
    ignition(&cluster, "60-good", file("data:,1")).await;
    let before = cluster.until_target("worker", "").await;
    ignition(&cluster, "50-bad", file("data:;base64,@")).await;
    let degraded = |pool: &Value| {
        let found = condition(pool, "RenderDegraded");
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == "True" && message.contains("50-bad") && message.contains("/etc/a")
    };
    let pool = cluster.until_pool("worker", "the part is named", degraded).await;
    assert_eq!(target(&pool), before);
    ignition(&cluster, "50-bad", file("data:,0")).await;
    let mended = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "False";
    // Hidden by the later one, so the content is as before.
    let pool = cluster.until_pool("worker", "rendered again", mended).await;
    assert_eq!(target(&pool), before);
}
