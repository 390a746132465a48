//! Images that were built before the cluster: the MachineConfig of each pool, and what the pool is rendered to.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, create_object, key, object_api, object_until, own_only, within};
use crate::lost_answers::{lose_all, made};
use crate::process::{Cluster, condition, target};
use crate::seams::drain::until_event;

const COMPONENT: &str = "10-prebuiltimage-osimageurl-worker";

fn image(digit: char) -> String {
    format!("registry.test/os@sha256:{}", digit.to_string().repeat(64))
}

async fn os_config(cluster: &Cluster, annotations: Value) {
    let spec = json!({
        "machineConfigPool": { "name": "worker" }, "imageBuilder": { "imageBuilderType": "Job" },
        "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1",
    });
    let object = json!({ "metadata": { "name": "worker", "annotations": annotations }, "spec": spec });
    create_object(&cluster.client, "machineosconfigs", "worker", object).await.unwrap();
}

async fn annotate(cluster: &Cluster, image: Value) {
    let api = object_api(&cluster.client, "machineosconfigs");
    let patch = json!({ "metadata": { "annotations": { key("pre-built-image"): image } } });
    api.patch("worker", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn configs(cluster: &Cluster) -> Api<DynamicObject> {
    object_api(&cluster.client, "machineconfigs")
}

/// Returns the image of a rendered config.
async fn os_image(cluster: &Cluster, rendered: &str) -> Value {
    configs(cluster).get(rendered).await.unwrap().data["spec"]["osImageURL"].clone()
}

async fn until_gone(cluster: &Cluster) {
    let api = configs(cluster);
    within("the component is gone", async {
        while api.get_opt(COMPONENT).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

/// SEED-008, SEED-009: the component is created, updated and deleted with the annotation, and goes with the `MachineOSConfig`. The
/// pool never has a target without the image.
#[tokio::test]
async fn component_follows_annotation() {
    let cluster = Cluster::new().await;
    os_config(&cluster, json!({ key("pre-built-image"): image('1') })).await;
    cluster.config("worker", config("1")).await;
    cluster.pool("worker").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    assert_eq!(os_image(&cluster, &first).await, image('1'));
    let has =
        |expected: String| move |one: &DynamicObject| one.data["spec"]["osImageURL"] == expected.as_str();
    object_until(&configs(&cluster), COMPONENT, "the component", has(image('1'))).await;
    // SEED-010: no node has finished, so the pool's status names no config; nothing was looked up by an empty name.
    let pool = object_api(&cluster.client, "machineconfigpools").get("worker").await.unwrap();
    assert!(pool.data["status"]["configuration"]["name"].as_str().unwrap_or_default().is_empty());
    annotate(&cluster, json!(image('2'))).await;
    let second = cluster.until_target("worker", &first).await;
    assert_eq!(os_image(&cluster, &second).await, image('2'));
    object_until(&configs(&cluster), COMPONENT, "another image", has(image('2'))).await;
    // An unreadable object changes nothing, and the pool reports the cause.
    annotate(&cluster, json!("registry.test/os:latest")).await;
    let degraded = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "True";
    let pool = cluster.until_pool("worker", "degraded", degraded).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(
        message.contains("MachineOSConfig worker: metadata.annotations") && message.contains("skopeo"),
        "{message}"
    );
    assert_eq!(target(&pool), second);
    annotate(&cluster, json!(image('2'))).await;
    cluster.until_pool("worker", "not degraded", |pool| !degraded(pool)).await;
    annotate(&cluster, Value::Null).await;
    let third = cluster.until_target("worker", &second).await;
    assert_eq!(os_image(&cluster, &third).await, Value::Null);
    until_gone(&cluster).await;
    annotate(&cluster, json!(image('1'))).await;
    assert_eq!(cluster.until_target("worker", &third).await, first, "the same objects, the same name");
    object_until(&configs(&cluster), COMPONENT, "the component", has(image('1'))).await;
    object_api(&cluster.client, "machineosconfigs").delete("worker", &DeleteParams::default()).await.unwrap();
    assert_eq!(cluster.until_target("worker", &first).await, third);
    until_gone(&cluster).await;
}

/// State after merged upstream seeding: the annotation is gone, and the component frozen. It names no maker, so that it stays without its
/// `MachineOSConfig` as well: a person's would look like it.
#[tokio::test]
async fn component_without_maker_stays_and_is_told() {
    let cluster = Cluster::new().await;
    os_config(&cluster, json!({ key("current-machine-os-build"): "worker-1" })).await;
    let component = json!({
        "metadata": { "name": COMPONENT, "labels": { key("role"): "worker" }, "annotations": { key("pre-built-image"): image('1') } },
        "spec": { "osImageURL": image('1') },
    });
    create_object(&cluster.client, "machineconfigs", COMPONENT, component).await.unwrap();
    cluster.config("worker", config("1")).await;
    cluster.pool("worker").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    assert_eq!(os_image(&cluster, &first).await, image('1'));
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    assert_eq!(os_image(&cluster, &second).await, image('1'));
    object_api(&cluster.client, "machineosconfigs").delete("worker", &DeleteParams::default()).await.unwrap();
    until_event(
        &cluster.client,
        "PrebuiltImageLeft",
        "worker",
        &format!("kubectl delete machineconfig {COMPONENT}"),
    )
    .await;
    cluster.config("worker", config("3")).await;
    let third = cluster.until_target("worker", &second).await;
    assert_eq!(os_image(&cluster, &third).await, image('1'));
    assert!(configs(&cluster).get_opt(COMPONENT).await.unwrap().is_some(), "nobody proves that it is ours");
    // As the Event says.
    configs(&cluster).delete(COMPONENT, &DeleteParams::default()).await.unwrap();
    let fourth = cluster.until_target("worker", &third).await;
    assert_eq!(os_image(&cluster, &fourth).await, Value::Null);
}

/// A component goes with its `MachineOSConfig`; a copy for another pool stays, and its nodes get it.
#[tokio::test]
async fn copy_of_component_stays_without_its_os_config() {
    let cluster = Cluster::new().await;
    os_config(&cluster, json!({ key("pre-built-image"): image('1') })).await;
    cluster.config("worker", config("1")).await;
    cluster.pool("worker").await;
    cluster.config("infra", MachineConfigBuilder::new("50-b").file("/etc/b.conf", 0o644, "1")).await;
    cluster.pool("infra").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    cluster.until_target("worker", "").await;
    let made = object_until(&configs(&cluster), COMPONENT, "the component", |_| true).await;
    let named = |name: &str, pool: &str, annotations: Value| {
        json!({
            "metadata": { "name": name, "labels": { key("role"): pool }, "annotations": annotations },
            "spec": { "osImageURL": image('1') },
        })
    };
    let copy = "10-prebuiltimage-osimageurl-infra";
    let annotations = json!(made.metadata.annotations);
    create_object(&cluster.client, "machineconfigs", copy, named(copy, "infra", annotations)).await.unwrap();
    // A person's config is rendered.
    let mut infra = cluster.until_target("infra", "").await;
    while os_image(&cluster, &infra).await != image('1') {
        infra = cluster.until_target("infra", &infra).await;
    }
    object_api(&cluster.client, "machineosconfigs").delete("worker", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster).await;
    assert!(configs(&cluster).get_opt(copy).await.unwrap().is_some());
}

/// No write is answered: the component follows its annotation all the same.
#[tokio::test]
async fn component_follows_annotation_without_answer_to_any_write() {
    if !own_only("seed::component_follows_annotation_without_answer_to_any_write") {
        return;
    }
    let cluster = Cluster::new().await;
    let mark = cluster.bench.mark().await;
    lose_all(&cluster.bench);
    os_config(&cluster, json!({ key("pre-built-image"): image('1') })).await;
    cluster.config("worker", config("1")).await;
    cluster.pool("worker").await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    assert_eq!(os_image(&cluster, &first).await, image('1'));
    annotate(&cluster, json!(image('2'))).await;
    let second = cluster.until_target("worker", &first).await;
    assert_eq!(os_image(&cluster, &second).await, image('2'));
    annotate(&cluster, Value::Null).await;
    until_gone(&cluster).await;
    cluster.until_target("worker", &second).await;
    for (line, count) in [
        ("create machineconfigs 10-", 1),
        ("update machineconfigs 10-", 1),
        ("delete machineconfigs 10-", 1),
        ("create machineconfigs rendered-", 3),
    ] {
        assert_eq!(made(&cluster.bench, mark, line).await, count, "{line}");
    }
}
