//! Image mode by a label and `ConfigMap`s: the objects made of them, the pool's status, and the way back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, create_object, key, object_api, object_until, own_only, within};
use crate::lost_answers::{lose_all, made};
use crate::process::{Cluster, NAMESPACE, condition};

const CONTROLLERS: [&str; 2] = ["--controllers", "render,opt-in"];

fn image(digit: char) -> String {
    format!("registry.test/os@sha256:{}", digit.to_string().repeat(64))
}

fn config_maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn config_map(cluster: &Cluster, name: &str, data: &[(&str, &str)]) {
    let data: BTreeMap<String, String> =
        data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    config_maps(cluster).create(&PostParams::default(), &object).await.unwrap();
}

async fn settings(cluster: &Cluster) {
    let settings = [("finalImagePushSecretName", "push"), ("finalImagePullspec", "registry.test/os/worker")];
    config_map(cluster, "on-cluster-build-config", &settings).await;
}

fn os_configs(cluster: &Cluster) -> Api<DynamicObject> {
    object_api(&cluster.client, "machineosconfigs")
}

async fn label(cluster: &Cluster, value: Value) {
    let labels = json!({ "metadata": { "labels": { key("layering-enabled"): value } } });
    cluster.patch_pool("worker", labels).await;
}

pub async fn until_gone(api: &Api<DynamicObject>, name: &str) {
    within("it is gone", async {
        while api.get_opt(name).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn pool(cluster: &Cluster) {
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, "1")).await;
}

fn is_true(pool: &Value, kind: &str) -> bool {
    condition(pool, kind)["status"] == "True"
}

async fn until_waiting(cluster: &Cluster) {
    let next = |pool: &Value| condition(pool, "BuildPending")["message"] == "The image is queued";
    cluster.until_pool("worker", "no build yet", next).await;
}

/// Adds a person's lines, and waits until the `MachineOSConfig` has them.
async fn add_lines(cluster: &Cluster) {
    config_map(cluster, "on-cluster-build-custom-dockerfile", &[("worker", "FROM configs AS final")]).await;
    let has_lines =
        |one: &DynamicObject| one.data["spec"]["containerFile"][0]["content"] == "FROM configs AS final";
    object_until(&os_configs(cluster), "worker", "the lines", has_lines).await;
}

#[tokio::test]
async fn label_creates_os_config_and_its_removal_deletes_it() {
    let cluster = Cluster::new().await;
    pool(&cluster).await;
    label(&cluster, json!("")).await;
    let _controller = cluster.start("a", &CONTROLLERS);
    let missing = |pool: &Value| {
        let condition = condition(pool, "BuildPending");
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "True" && message.contains("on-cluster-build-config is missing")
    };
    cluster.until_pool("worker", "what is missing", missing).await;
    is_reported(&cluster, "on-cluster-build-config is missing").await;
    settings(&cluster).await;
    config_map(&cluster, "machine-config-osimageurl", &[("baseOSContainerImage", &image('1'))]).await;
    let pushed =
        |one: &DynamicObject| one.data["spec"]["renderedImagePushSpec"] == "registry.test/os/worker:latest";
    let config = object_until(&os_configs(&cluster), "worker", "the config", pushed).await;
    assert_eq!(config.metadata.owner_references.as_ref().unwrap()[0].kind, "MachineConfigPool");
    // The target has the base image; the pool waits for a build.
    let rendered = object_api(&cluster.client, "machineconfigs");
    let based = |one: &DynamicObject| one.data["spec"]["osImageURL"] == image('1').as_str();
    object_until(&rendered, "05-osimageurl-worker", "the base", based).await;
    until_waiting(&cluster).await;
    // Lines of a person, and a manual edit that does not last.
    add_lines(&cluster).await;
    let edit = json!({ "spec": { "renderedImagePushSpec": "registry.test/other:1" } });
    os_configs(&cluster).patch("worker", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    object_until(&os_configs(&cluster), "worker", "as it was", pushed).await;
    // A ConfigMap that goes changes nothing that is there.
    config_maps(&cluster).delete("on-cluster-build-config", &DeleteParams::default()).await.unwrap();
    cluster.until_pool("worker", "what is missing", missing).await;
    assert!(os_configs(&cluster).get_opt("worker").await.unwrap().is_some());
    label(&cluster, Value::Null).await;
    until_gone(&os_configs(&cluster), "worker").await;
    let is_clean = |pool: &Value| {
        ["BuildPending", "Building", "BuildSuccess", "BuildFailed"]
            .iter()
            .all(|kind| condition(pool, kind).is_null())
    };
    cluster.until_pool("worker", "no conditions", is_clean).await;
    assert!(rendered.get_opt("05-osimageurl-worker").await.unwrap().is_some(), "the nodes go back to it");
}

/// Waits for the Event about a refusal.
async fn is_reported(cluster: &Cluster, words: &str) {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let is_it = |event: &Event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("OptInRefused")
            && event.involved_object.name.as_deref() == Some("worker")
            && message.contains(words)
    };
    within("the refusal is an Event", async {
        while !events.list(&ListParams::default()).await.unwrap().items.iter().any(is_it) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Controllers die one after the other, each before another write: opting in, other settings, and opting out come to the same end.
#[tokio::test]
async fn opting_in_and_out_survives_a_kill_before_every_write() {
    let cluster = Cluster::new().await;
    pool(&cluster).await;
    let controller = cluster.start("first", &CONTROLLERS);
    cluster.until_target("worker", "").await;
    assert!(controller.terminate().await.success());
    settings(&cluster).await;
    config_map(&cluster, "machine-config-osimageurl", &[("baseOSContainerImage", &image('1'))]).await;
    let rendered = object_api(&cluster.client, "machineconfigs");
    let mut killed = 0;
    for round in ["in", "changed", "out"] {
        match round {
            "in" => label(&cluster, json!("")).await,
            "changed" => {
                let other = json!({ "data": { "baseOSContainerImage": image('2') } });
                let lines = [("worker", "FROM configs AS final")];
                config_map(&cluster, "on-cluster-build-custom-dockerfile", &lines).await;
                let how = PatchParams::default();
                let api = config_maps(&cluster);
                api.patch("machine-config-osimageurl", &how, &Patch::Merge(other)).await.unwrap();
            }
            _ => label(&cluster, Value::Null).await,
        }
        let before = killed;
        loop {
            // One dies before its first write, the next one after that.
            let writes = (killed % 2 + 1).to_string();
            let more = ["--abort-at-write", &writes];
            let controller = cluster.start(&format!("c{killed}"), &[&CONTROLLERS[..], &more].concat());
            let is_done = tokio::select! {
                status = controller.end() => {
                    assert_eq!(status.code(), None, "{:?}", controller.lines());
                    killed += 1;
                    false
                }
                () = come_to(&cluster, &rendered, round) => {
                    controller.kill().await;
                    true
                }
            };
            cluster.free_lease().await;
            if is_done {
                break;
            }
        }
        assert!(killed > before, "{round}: nobody was killed");
    }
    assert!(killed > 5, "{killed}");
    let left = os_configs(&cluster).list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");
}

/// Waits until all of a round is written.
async fn come_to(cluster: &Cluster, rendered: &Api<DynamicObject>, round: &str) {
    let based = |digit| {
        let image = image(digit);
        move |one: &DynamicObject| one.data["spec"]["osImageURL"] == image.as_str()
    };
    match round {
        "in" => {
            let pushed = |one: &DynamicObject| {
                one.data["spec"]["renderedImagePushSpec"] == "registry.test/os/worker:latest"
            };
            object_until(&os_configs(cluster), "worker", "the config", pushed).await;
            object_until(rendered, "05-osimageurl-worker", "the base", based('1')).await;
            cluster.until_pool("worker", "told", |pool| is_true(pool, "BuildPending")).await;
        }
        "changed" => {
            let has_lines = |one: &DynamicObject| {
                one.data["spec"]["containerFile"][0]["content"] == "FROM configs AS final"
            };
            object_until(&os_configs(cluster), "worker", "the lines", has_lines).await;
            object_until(rendered, "05-osimageurl-worker", "the other base", based('2')).await;
        }
        _ => {
            until_gone(&os_configs(cluster), "worker").await;
            let is_clean = |pool: &Value| {
                ["BuildPending", "Building", "BuildSuccess", "BuildFailed"]
                    .iter()
                    .all(|kind| condition(pool, kind).is_null())
            };
            cluster.until_pool("worker", "no conditions", is_clean).await;
        }
    }
}

/// A build's way over the pool: its state, its image, and nothing of it once the label is gone.
#[tokio::test]
async fn build_results_are_on_pool() {
    let cluster = Cluster::new().await;
    pool(&cluster).await;
    settings(&cluster).await;
    config_map(&cluster, "machine-config-osimageurl", &[("baseOSContainerImage", &image('1'))]).await;
    label(&cluster, json!("")).await;
    let controller = cluster.start("a", &CONTROLLERS);
    let rendered = object_api(&cluster.client, "machineconfigs");
    object_until(&rendered, "05-osimageurl-worker", "the base", |_| true).await;
    let based = |pool: &Value| {
        let source = pool["spec"]["configuration"]["source"].as_array();
        source.is_some_and(|all| all.iter().any(|one| one["name"] == "05-osimageurl-worker"))
    };
    let found = cluster.until_pool("worker", "a target with the base", based).await;
    let build = json!({ "spec": {
        "machineConfig": { "name": found["spec"]["configuration"]["name"] }, "machineOSConfig": { "name": "worker" },
        "renderedImagePushSpec": "registry.test/os/worker:worker-1",
    } });
    create_object(&cluster.client, "machineosbuilds", "worker-1", build).await.unwrap();
    let builds = object_api(&cluster.client, "machineosbuilds");
    let state = async |kind: &str, more: Value| {
        let condition = json!([{ "type": kind, "status": "True", "reason": kind, "message": "-",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let mut status = json!({ "conditions": condition });
        more.as_object().unwrap().iter().for_each(|(key, value)| status[key] = value.clone());
        let patch = Patch::Merge(json!({ "status": status }));
        builds.patch_status("worker-1", &PatchParams::default(), &patch).await.unwrap();
    };
    state("Building", json!({})).await;
    cluster.until_pool("worker", "it is built", |pool| is_true(pool, "Building")).await;
    // Another controller takes over in between.
    controller.kill().await;
    cluster.free_lease().await;
    state("Succeeded", json!({ "digestedImagePushSpec": image('2') })).await;
    let _controller = cluster.start("b", &CONTROLLERS);
    cluster.until_pool("worker", "success", |pool| is_true(pool, "BuildSuccess")).await;
    let published = Patch::Merge(json!({ "status": { "currentImagePullSpec": image('2') } }));
    os_configs(&cluster).patch_status("worker", &PatchParams::default(), &published).await.unwrap();
    let newest = key("newestImageEquivalentConfig");
    let named = |pool: &Value| pool["metadata"]["annotations"][&newest] == image('2').as_str();
    cluster.until_pool("worker", "the newest image", named).await;
    label(&cluster, Value::Null).await;
    let is_clean = |pool: &Value| {
        condition(pool, "BuildSuccess").is_null() && pool["metadata"]["annotations"][&newest].is_null()
    };
    cluster.until_pool("worker", "nothing left", is_clean).await;
    until_gone(&os_configs(&cluster), "worker").await;
}

/// No write is answered: `MachineOSConfig`, base image and conditions are made once each, and go again.
#[tokio::test]
async fn pool_opts_in_and_out_without_answer_to_any_write() {
    if !own_only("opt_in::pool_opts_in_and_out_without_answer_to_any_write") {
        return;
    }
    let cluster = Cluster::new().await;
    let mark = cluster.bench.mark().await;
    lose_all(&cluster.bench);
    pool(&cluster).await;
    settings(&cluster).await;
    config_map(&cluster, "machine-config-osimageurl", &[("baseOSContainerImage", &image('1'))]).await;
    label(&cluster, json!("")).await;
    let _controller = cluster.start("a", &["--controllers", "render,opt-in"]);
    until_waiting(&cluster).await;
    add_lines(&cluster).await;
    label(&cluster, Value::Null).await;
    until_gone(&os_configs(&cluster), "worker").await;
    cluster.until_pool("worker", "no condition", |pool| condition(pool, "BuildPending").is_null()).await;
    for line in ["create machineosconfigs", "update machineosconfigs", "delete machineosconfigs"] {
        assert_eq!(made(&cluster.bench, mark, line).await, 1, "{line}");
    }
    // One more is rendered with the base.
    assert!((2..=3).contains(&made(&cluster.bench, mark, "create machineconfigs").await));
}
