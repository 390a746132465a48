//! Two writers of one field: another program sets back what the controller writes, each time. The field is named in an Event, and is not
//! written without end. The target of a pool is in `refusals.rs`, that of a node in `lib rollout::tests::writes`.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::cluster::{Bench, MachineConfigBuilder, changes, create_object, key, node_api, object_api};
use crate::drain::{NODE, Scene};
use crate::lost_answers::made;
use crate::process::{Cluster, NAMESPACE, condition};
use crate::refusals::until_has;
use crate::rollout::{Agents, ready_node};
use crate::seams::drain::until_event;

/// Writes that are made before a field is named, and those that the first pauses let pass meanwhile.
const MAX_WRITES: usize = 6;

/// Another program, until it is dropped: it patches an object whenever that is to be another one.
pub fn rival<K>(
    api: Api<K>,
    name: &'static str,
    of_status: bool,
    back: fn(&Value) -> Option<Value>,
) -> JoinSet<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut changes = pin!(changes(&api, &ListParams::default()).await.unwrap());
        while let Some((object, _)) = changes.next().await {
            let object = serde_json::to_value(&object).unwrap();
            let Some(patch) = back(&object).filter(|_| object["metadata"]["name"] == name) else { continue };
            let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
            let patched = if of_status {
                api.patch_status(name, &how, &patch).await
            } else {
                api.patch(name, &how, &patch).await
            };
            drop(patched);
        }
    });
    tasks
}

/// Waits until the field is named, and checks that it was written a few times alone.
async fn until_named(bench: &Bench, mark: usize, writes: &str, name: &str, words: &str) {
    let client = bench.client("watcher").await;
    let reason = if words.starts_with("The status of") { "StatusContested" } else { "FieldContested" };
    until_event(&client, reason, name, words).await;
    let written = made(bench, mark, writes).await;
    assert!((2..=MAX_WRITES).contains(&written), "{written} writes: {writes}");
}

/// A cluster with the pool `worker`, which is rendered.
async fn rendered() -> (Cluster, String) {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let first = cluster.start("first", &["--controllers", "render"]);
    let target = cluster.until_target("worker", "").await;
    assert!(first.terminate().await.success());
    (cluster, target)
}

#[tokio::test]
async fn status_of_pool_that_is_set_back_is_named() {
    let (cluster, _) = rendered().await;
    let pools = object_api(&cluster.bench.client("rival").await, "machineconfigpools");
    let _rival = rival(pools, "worker", true, |pool| {
        (pool["status"]["machineCount"] != 77).then(|| json!({ "status": { "machineCount": 77 } }))
    });
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("a", &["--controllers", "node"]);
    let words = "The status of MachineConfigPool worker was written several times in a row";
    until_named(&cluster.bench, mark, "patch machineconfigpools/status", "worker", words).await;
}

/// Another program sets the target of a pool back, each time after a moment: no node is driven back and forth, and the pool says why.
#[tokio::test]
async fn nodes_of_pool_whose_target_is_set_back_stay_as_they_are() {
    let (cluster, first) = rendered().await;
    for name in ["n1", "n2", "n3"] {
        ready_node(&cluster.client, name, &first).await;
    }
    cluster.config("worker", MachineConfigBuilder::new("60-b").karg("quiet")).await;
    let rival = cluster.bench.client("rival").await;
    let back = first.clone();
    let rival = tokio::spawn(async move {
        let pools = object_api(&rival, "machineconfigpools");
        let mut changes = pin!(changes(&pools, &ListParams::default()).await.unwrap());
        while let Some((pool, _)) = changes.next().await {
            if pool.data["spec"]["configuration"]["name"] != back.as_str() {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let patch = Patch::Merge(json!({ "spec": { "configuration": { "name": back } } }));
                drop(pools.patch("worker", &PatchParams::default(), &patch).await);
            }
        }
    });
    let mut controller = cluster.start("a", &[]);
    let words = "The spec.configuration of pool worker was written several times in a row";
    until_event(&cluster.client, "FieldContested", "worker", words).await;
    let is_told = |pool: &Value| {
        let found = condition(pool, "Degraded");
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == "True"
            && message.contains("another program sets spec.configuration of the pool back")
    };
    cluster.until_pool("worker", "why no node is given a target", is_told).await;
    let targeted = |lines: &[String]| lines.iter().filter(|line| line.contains("Targeted node")).count();
    let before = targeted(&controller.lines());
    // Pauses of 2, 4 and 8 s: three more targets of the pool.
    for _ in 0..3 {
        cluster.until_target("worker", &first).await;
        let is_back = |pool: &Value| crate::process::target(pool) == first;
        cluster.until_pool("worker", "its target is set back", is_back).await;
    }
    assert_eq!(targeted(&controller.lines()), before, "{:#?}", controller.lines());
    rival.abort();
    let _agents = Agents::start(&cluster.bench).await;
    // Once a target stands, the nodes get it, though the pool can't be rendered by now.
    let target = cluster.until_target("worker", &first).await;
    cluster.config("worker", MachineConfigBuilder::new("70-c").karg("a=\"b")).await;
    let is_degraded = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "True";
    cluster.until_pool("worker", "it can't be rendered", is_degraded).await;
    controller.line("has kept its target for 30 s").await;
    for name in ["n1", "n2", "n3"] {
        until_has(&cluster, name, &target).await;
    }
}

/// Another program deletes a rendered config, each time: it is made a few times, and then rarely.
#[tokio::test]
async fn rendered_config_that_is_deleted_is_named() {
    let (cluster, target) = rendered().await;
    let configs = object_api(&cluster.bench.client("rival").await, "machineconfigs");
    let name = target.clone();
    let _rival = tokio::spawn(async move {
        let mut changes = pin!(changes(&configs, &ListParams::default()).await.unwrap());
        while let Some((config, _)) = changes.next().await {
            if config.metadata.name.as_ref() == Some(&name) {
                drop(configs.delete(&name, &DeleteParams::default()).await);
            }
        }
    });
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("a", &[]);
    let words = format!("MachineConfig {target} was made several times in a row: another program deletes it");
    until_named(&cluster.bench, mark, "create machineconfigs", "worker", &words).await;
    let is_told = |pool: &Value| {
        let found = condition(pool, "RenderDegraded");
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == "True" && message.contains("another program deletes MachineConfig")
    };
    cluster.until_pool("worker", "what deletes its config", is_told).await;
}

/// An autoscaler, or a person's script, uncordons whatever is cordoned.
#[tokio::test]
async fn cordon_that_is_set_back_is_named() {
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let bench = &scene.cluster.bench;
    let _rival = rival(node_api(&bench.client("rival").await), NODE, false, |node| {
        (node["spec"]["unschedulable"] == true).then(|| json!({ "spec": { "unschedulable": null } }))
    });
    let mark = bench.mark().await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    let words =
        "The spec.unschedulable or annotation lastAppliedDrain of Node n was written several times in a row";
    until_named(bench, mark, "patch nodes", NODE, words).await;
}

/// The answer to an agent is taken away, so that its request is open again.
#[tokio::test]
async fn answer_to_agent_that_is_set_back_is_named() {
    let scene = Scene::new().await;
    let bench = &scene.cluster.bench;
    let _rival = rival(node_api(&bench.client("rival").await), NODE, false, |node| {
        let answer = "machineconfiguration.openshift.io/lastAppliedDrain";
        let is_there = node["metadata"]["annotations"].get(answer).is_some();
        is_there.then(|| json!({ "metadata": { "annotations": { answer: null } } }))
    });
    let mark = bench.mark().await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("uncordon-rendered-b").await;
    let words = "lastAppliedDrain of Node n was written several times in a row";
    until_named(bench, mark, "patch nodes", NODE, words).await;
}

/// What the agent of a cluster of one node is told.
#[tokio::test]
async fn topology_of_node_that_is_set_back_is_named() {
    let (cluster, target) = rendered().await;
    ready_node(&cluster.client, "n1", &target).await;
    let _rival = rival(node_api(&cluster.bench.client("rival").await), "n1", false, |node| {
        let topology = "machineconfiguration.openshift.io/controlPlaneTopology";
        let is_there = node["metadata"]["annotations"].get(topology).is_some();
        is_there.then(|| json!({ "metadata": { "annotations": { topology: null } } }))
    });
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("a", &["--controllers", "node"]);
    let words = "controlPlaneTopology of Node n1 was written several times in a row";
    until_named(&cluster.bench, mark, "patch nodes", "n1", words).await;
}

#[tokio::test]
async fn pinned_images_that_are_set_back_are_named() {
    let (cluster, target) = rendered().await;
    ready_node(&cluster.client, "n1", &target).await;
    let spec = json!({ "node": { "name": "n1" }, "pool": { "name": "worker" }, "configVersion": { "desired": target } });
    create_object(&cluster.client, "machineconfignodes", "n1", json!({ "spec": spec })).await.unwrap();
    let client = cluster.bench.client("rival").await;
    let _node = rival(node_api(&client), "n1", false, |node| {
        let names = "machine-config-agent.io/pinned-image-sets";
        (node["metadata"]["annotations"][names] == "a")
            .then(|| json!({ "metadata": { "annotations": { names: "b" } } }))
    });
    let _pool = rival(object_api(&client, "machineconfigpools"), "worker", true, |pool| {
        let is_there = pool["status"]["poolSynchronizersStatus"].is_array();
        is_there.then(|| json!({ "status": { "poolSynchronizersStatus": null } }))
    });
    cluster.patch_pool("worker", json!({ "spec": { "pinnedImageSets": [{ "name": "a" }] } })).await;
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("a", &["--controllers", "node"]);
    let words = "pinned-image-sets of Node n1 was written several times in a row";
    until_named(&cluster.bench, mark, "patch nodes", "n1", words).await;
    let words = "status.poolSynchronizersStatus of pool worker was written several times in a row";
    until_event(&cluster.client, "FieldContested", "worker", words).await;
}

#[tokio::test]
async fn os_config_of_label_that_is_set_back_is_named() {
    let (cluster, _) = rendered().await;
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    for (name, data) in [
        (
            "on-cluster-build-config",
            json!({ "finalImagePushSecretName": "push", "finalImagePullspec": "registry.test/os/worker" }),
        ),
        (
            "machine-config-osimageurl",
            json!({ "baseOSContainerImage": format!("registry.test/os@sha256:{}", "1".repeat(64)) }),
        ),
    ] {
        let object = serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap();
        config_maps.create(&PostParams::default(), &object).await.unwrap();
    }
    let configs = object_api(&cluster.bench.client("rival").await, "machineosconfigs");
    let _rival = rival(configs, "worker", false, |config| {
        let other = "registry.test/other:1";
        (config["spec"]["renderedImagePushSpec"] != other)
            .then(|| json!({ "spec": { "renderedImagePushSpec": other } }))
    });
    cluster.patch_pool("worker", json!({ "metadata": { "labels": { key("layering-enabled"): "" } } })).await;
    let mark = cluster.bench.mark().await;
    let _controller = cluster.start("a", &["--controllers", "opt-in"]);
    let words = "MachineOSConfig of pool worker was written several times in a row";
    until_named(&cluster.bench, mark, "update machineosconfigs", "worker", words).await;
}

#[tokio::test]
async fn words_about_build_that_are_set_back_are_named() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let client = builds.cluster.bench.client("rival").await;
    let config = rival(object_api(&client, "machineosconfigs"), "worker", false, |config| {
        let name = "machineconfiguration.openshift.io/current-machine-os-build";
        let is_there = config["metadata"]["annotations"].get(name).is_some();
        is_there.then(|| json!({ "metadata": { "annotations": { name: null } } }))
    });
    let mark = builds.cluster.bench.mark().await;
    let _controller = builds.start("a", &[]);
    let _jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let words = "current-machine-os-build of MachineOSConfig worker was written several times in a row";
    until_named(&builds.cluster.bench, mark, "patch machineosconfigs worker", "worker", words).await;
    drop(config);
    let _pool = rival(object_api(&client, "machineconfigpools"), "worker", true, |pool| {
        let mut all = pool["status"]["conditions"].as_array()?.clone();
        let count = all.len();
        all.retain(|one| one["type"] != "ImageBuildDegraded");
        (all.len() < count).then(|| json!({ "status": { "conditions": all } }))
    });
    let words = "ImageBuildDegraded of pool worker was written several times in a row";
    until_event(&builds.cluster.client, "FieldContested", "worker", words).await;
}

/// Each change of the MachineConfigs taints the nodes that wait: that is our own doing.
#[tokio::test]
async fn taints_of_successive_targets_are_not_contested() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let config = |contents: &str| MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents);
    cluster.config("worker", config("0")).await;
    let mut controller = cluster.start("a", &[]);
    let mut target = cluster.until_target("worker", "").await;
    for name in ["n1", "n2", "n3"] {
        ready_node(&cluster.client, name, &target).await;
    }
    let _agents = Agents::start(&cluster.bench).await;
    // More turns than these wait.
    for contents in ["1", "0", "1", "2", "3", "4"] {
        cluster.config("worker", config(contents)).await;
        target = cluster.until_target("worker", &target).await;
        for name in ["n1", "n2", "n3"] {
            until_has(&cluster, name, &target).await;
        }
    }
    controller.line(&format!("Pool worker targets {target}")).await;
    let lines = controller.lines();
    assert!(!lines.iter().any(|line| line.contains("written several times in a row")), "{lines:#?}");
    let patches = made(&cluster.bench, 0, "patch nodes").await;
    assert!(patches > 0);
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(cluster.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    assert!(!events.items.iter().any(|one| one.reason.as_deref() == Some("FieldContested")));
}
