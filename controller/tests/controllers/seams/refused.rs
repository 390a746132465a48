//! Writes that the API server refuses, one object of many: what is told, that the others go on, and that the write is made once it may be.
//! The writes of a rollout and of a build are in `refusals.rs`.

use std::net::SocketAddr;

use http::Method;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::drain::until_event;
use crate::cluster::{
    MachineConfigBuilder, create_object, key, node_api, node_until, object_api, object_until, within,
};
use crate::connections::behind_proxy;
use crate::process::{Cluster, NAMESPACE, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::{failures, get, listener, page_until};
use crate::rollout::ready_node;

const WORDS: &str = "a webhook says no";

/// The codes of a webhook: also those of an object that is gone, and of a conflict.
const CODES: [u16; 3] = [403, 404, 409];

/// Tries in the time of a test, with growing pauses.
const MAX_TRIES: u64 = 6;

/// A cluster with two pools that are rendered, each from a config of its own.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    listener: SocketAddr,
    _controller: crate::process::Controller,
}

impl Scene {
    async fn new() -> Self {
        let (cluster, proxy) = behind_proxy().await;
        for pool in ["worker", "infra"] {
            cluster.pool(pool).await;
            cluster.config(pool, MachineConfigBuilder::new(&format!("50-{pool}"))).await;
        }
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        for pool in ["worker", "infra"] {
            cluster.until_target(pool, "").await;
        }
        Self { cluster, proxy, listener, _controller: controller }
    }

    /// Waits until a write is counted as refused.
    async fn until_refused(&self, write: &str) {
        let is_counted = |_, body: &str| failures(body, write, "refused") > 0;
        page_until(self.listener, "/metrics", &format!("{write} is refused"), is_counted).await;
    }
}

fn image(digit: char) -> String {
    format!("registry.test/os@sha256:{}", digit.to_string().repeat(64))
}

pub async fn os_config(cluster: &Cluster, pool: &str, annotations: Value) {
    let spec = json!({
        "machineConfigPool": { "name": pool }, "imageBuilder": { "imageBuilderType": "Job" },
        "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1",
        "containerFile": [{ "containerfileArch": "NoArch", "content": "FROM configs AS final" }],
    });
    let object = json!({ "metadata": { "name": pool, "annotations": annotations }, "spec": spec });
    create_object(&cluster.client, "machineosconfigs", pool, object).await.unwrap();
}

/// One node and one pool refuse: the other node is told, and the count is written later.
#[tokio::test]
async fn pinned_images_are_refused() {
    for code in CODES {
        Box::pin(pinned_images_refused_with(code)).await;
    }
}

async fn pinned_images_refused_with(code: u16) {
    let no = Failing::Refuses(code, WORDS);
    let scene = Scene::new().await;
    let client = &scene.cluster.client;
    let asked = |node: &k8s_openapi::api::core::v1::Node| {
        node.metadata.annotations.as_ref().unwrap().get("machine-config-agent.io/pinned-image-sets").cloned()
    };
    let target = scene.cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(client, name, &target).await;
    }
    let patch = |name: &str| Seam::new(Method::PATCH, &[name]);
    scene.proxy.fail(patch("/api/v1/nodes/n1?").with_body("pinned-image-sets"), no);
    let counts = "/machineconfigpools/worker/status?";
    scene.proxy.fail(patch(counts).with_body("poolSynchronizersStatus"), no);
    let sets = |name: &str| json!({ "spec": { "pinnedImageSets": [{ "name": name }] } });
    scene.cluster.patch_pool("worker", sets("a")).await;
    node_until(client, "n2", "it is told", |node| asked(node).as_deref() == Some("a")).await;
    scene.until_refused("NodePinnedImages").await;
    scene.until_refused("PinnedImageCounts").await;
    assert!(scene.proxy.mend().iter().all(|met| *met <= MAX_TRIES), "{code}: it is tried rarely");
    for name in ["n1", "worker"] {
        until_event(client, "PinnedImagesNotWritten", name, WORDS).await;
    }
    // A change is tried at once.
    scene.cluster.patch_pool("worker", sets("b")).await;
    node_until(client, "n1", "it is told", |node| asked(node).as_deref() == Some("b")).await;
    let has_counts = |pool: &Value| pool["status"]["poolSynchronizersStatus"][0]["machineCount"] == 2;
    scene.cluster.until_pool("worker", "its counts", has_counts).await;
}

/// One unused config is not deleted: the next one is, and the refused one later.
#[tokio::test]
async fn deletion_of_rendered_config_is_refused() {
    for code in CODES {
        Box::pin(deletion_refused_with(code)).await;
    }
}

async fn deletion_refused_with(code: u16) {
    let scene = Scene::new().await;
    let mut names = Vec::new();
    let mut target = scene.cluster.until_target("worker", "").await;
    scene.proxy.fail(
        Seam::new(Method::DELETE, &[&format!("/machineconfigs/{target}")]),
        Failing::Refuses(code, WORDS),
    );
    // Ten that nothing uses are kept, and of one second they have no order.
    while failures(&get(scene.listener, "/metrics").1, "RenderedConfigDeletion", "refused") == 0 {
        names.push(target.clone());
        assert!(names.len() < 100, "the oldest one is not deleted");
        let contents = names.len().to_string();
        let config = MachineConfigBuilder::new("50-worker").file("/etc/a.conf", 0o644, contents);
        scene.cluster.config("worker", config).await;
        target = scene.cluster.until_target("worker", &target).await;
    }
    let text = format!("Unused MachineConfig {} is not deleted: {WORDS} ({code})", names[0]);
    until_event(&scene.cluster.client, "RenderedConfigNotDeleted", "worker", &text).await;
    // One more, so that there is another surplus one.
    let config = MachineConfigBuilder::new("50-worker").file("/etc/a.conf", 0o644, "last");
    scene.cluster.config("worker", config).await;
    let configs = object_api(&scene.cluster.client, "machineconfigs");
    let gone = async |name: &str| {
        within(&format!("{name} is deleted"), async {
            while configs.get_opt(name).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let unrefused = within("another one is deleted", async {
        loop {
            let left = configs.list(&ListParams::default()).await.unwrap().items;
            let is_left = |name: &String| left.iter().any(|one| one.metadata.name.as_ref() == Some(name));
            if let Some(name) = names.iter().skip(1).find(|name| !is_left(name)) {
                break name.clone();
            }
            tokio::task::yield_now().await;
        }
    });
    assert_ne!(unrefused.await, names[0]);
    assert!(configs.get_opt(&names[0]).await.unwrap().is_some());
    scene.proxy.mend();
    gone(&names[0]).await;
}

/// The config of one image that was built before is refused: that of the other pool is created, and both pools have targets with their
/// images.
#[tokio::test]
async fn config_of_prebuilt_image_is_refused() {
    for code in CODES {
        Box::pin(prebuilt_image_refused_with(code)).await;
    }
}

async fn prebuilt_image_refused_with(code: u16) {
    let scene = Scene::new().await;
    let name = |pool: &str| format!("10-prebuiltimage-osimageurl-{pool}");
    // The first of them by name.
    let refused = Seam::new(Method::POST, &["/machineconfigs?"]).with_body(&format!("\"{}\"", name("infra")));
    scene.proxy.fail(refused, Failing::Refuses(code, WORDS));
    for pool in ["infra", "worker"] {
        os_config(&scene.cluster, pool, json!({ key("pre-built-image"): image('1') })).await;
    }
    let configs = object_api(&scene.cluster.client, "machineconfigs");
    object_until(&configs, &name("worker"), "the other one", |_| true).await;
    scene.until_refused("SeedConfig").await;
    let text = format!(
        "MachineConfig {} of an image that was built before is not created: {WORDS} ({code})",
        name("infra")
    );
    until_event(&scene.cluster.client, "PrebuiltImageNotWritten", "infra", &text).await;
    for pool in ["infra", "worker"] {
        let first = scene.cluster.until_target(pool, "").await;
        let has_image =
            |one: &kube::api::DynamicObject| one.data["spec"]["osImageURL"] == image('1').as_str();
        let mut target = first;
        while !has_image(&configs.get(&target).await.unwrap()) {
            target = scene.cluster.until_target(pool, &target).await;
        }
    }
    assert!(configs.get_opt(&name("infra")).await.unwrap().is_none());
    assert!(scene.proxy.mend().iter().all(|met| *met <= MAX_TRIES), "{code}: it is tried rarely");
    object_until(&configs, &name("infra"), "the config", |_| true).await;
}

async fn config_map(scene: &Scene, name: &str, data: Value) {
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(
        scene.cluster.client.clone(),
        NAMESPACE,
    );
    let map = json!({ "metadata": { "name": name }, "data": data });
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
}

/// Each write of a pool that opts in is refused in its turn, and told as an Event of that pool; the other pool opts in meanwhile.
#[tokio::test]
async fn writes_of_opting_in_are_refused() {
    for code in CODES {
        Box::pin(opting_in_refused_with(code)).await;
    }
}

async fn opting_in_refused_with(code: u16) {
    let scene = Scene::new().await;
    let client = &scene.cluster.client;
    let settings =
        json!({ "finalImagePushSecretName": "push", "finalImagePullspec": "registry.test/os/worker" });
    config_map(&scene, "on-cluster-build-config", settings).await;
    config_map(&scene, "machine-config-osimageurl", json!({ "baseOSContainerImage": image('1') })).await;
    let post = |kind: &str, name: &str| {
        Seam::new(Method::POST, &[&format!("/{kind}?")]).with_body(&format!("\"{name}\""))
    };
    scene.proxy.fail(post("machineosconfigs", "worker"), Failing::Refuses(code, "no config"));
    scene.proxy.fail(post("machineconfigs", "05-osimageurl-worker"), Failing::Refuses(code, "no base"));
    let pool = Seam::new(Method::PATCH, &["/machineconfigpools/worker/status?"]).with_body("BuildPending");
    scene.proxy.fail(pool, Failing::Refuses(code, "no result"));
    for name in ["worker", "infra"] {
        let labels = json!({ "metadata": { "labels": { key("layering-enabled"): "" } } });
        scene.cluster.patch_pool(name, labels).await;
    }
    let is_pending = |pool: &Value| condition(pool, "BuildPending")["status"] == "True";
    scene.cluster.until_pool("infra", "it has opted in", is_pending).await;
    let writes = [
        ("OptInOsConfig", "no config", "/machineosconfigs?"),
        ("OptInBaseImage", "no base", "/machineconfigs?"),
        ("OptInResult", "no result", "/machineconfigpools/worker/status?"),
    ];
    let mut open: Vec<_> = writes.to_vec();
    // In whichever order they come.
    while !open.is_empty() {
        let is_refused = |write: &str, body: &str| failures(body, write, "refused") > 0;
        let any = |_, body: &str| open.iter().any(|(write, ..)| is_refused(write, body));
        let body = page_until(scene.listener, "/metrics", "one more is refused", any).await;
        let (met, left): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(write, ..)| is_refused(write, &body));
        open = left;
        for (_, words, part) in met {
            until_event(client, "OptInRefused", "worker", words).await;
            scene.proxy.mend_part(part);
        }
    }
    scene.cluster.until_pool("worker", "it has opted in", is_pending).await;
}

/// The pool's condition of a build is refused: an Event of the `MachineOSConfig` tells, and that of the other pool is written.
#[tokio::test]
async fn condition_of_build_is_refused() {
    for code in CODES {
        Box::pin(build_condition_refused_with(code)).await;
    }
}

async fn build_condition_refused_with(code: u16) {
    let scene = Scene::new().await;
    let refused =
        Seam::new(Method::PATCH, &["/machineconfigpools/worker/status?"]).with_body("ImageBuildDegraded");
    scene.proxy.fail(refused, Failing::Refuses(code, WORDS));
    for pool in ["worker", "infra"] {
        os_config(&scene.cluster, pool, json!({})).await;
    }
    // The Secret is missing.
    let is_told = |pool: &Value| condition(pool, "ImageBuildDegraded")["reason"] == "BuildPending";
    scene.cluster.until_pool("infra", "what is missing", is_told).await;
    scene.until_refused("BuildCondition").await;
    until_event(&scene.cluster.client, "ConfigReconcileFailed", "worker", "a webhook says no").await;
    scene.proxy.mend();
    // A change is tried at once.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "mended": "true" } } }));
    let configs = object_api(&scene.cluster.client, "machineosconfigs");
    configs.patch("worker", &PatchParams::default(), &label).await.unwrap();
    scene.cluster.until_pool("worker", "what is missing", is_told).await;
    let nodes = node_api(&scene.cluster.client).list(&ListParams::default()).await.unwrap();
    assert!(nodes.items.is_empty());
}
