//! Writes of one object that hang or fail: what is told, and that the other objects go on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, key, node_api, node_until, object_api, object_until, within};
use crate::connections::behind_proxy;
use crate::process::{Cluster, Controller, NAMESPACE, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::{failures, get, listener, page_until};
use crate::rollout::ready_node;
use crate::seams::drain::until_event;

/// Others go on within this time; a request is given up after 10 s.
const SOON: Duration = Duration::from_secs(4);

const NO_LEADER: Failing = Failing::Refuses(503, "etcd has no leader");

const PINNED: &str = "machine-config-agent.io/pinned-image-sets";

fn contents(pool: &str, text: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, text)
}

fn patch(path: &str) -> Seam {
    Seam::new(Method::PATCH, &[path])
}

/// Pools that are rendered, and the listener of their controller.
async fn rendered(pools: &[&str], more: &[&str]) -> (Cluster, Proxy, Controller, SocketAddr) {
    let (cluster, proxy) = behind_proxy().await;
    for pool in pools {
        cluster.pool(pool).await;
        cluster.config(pool, contents(pool, "0")).await;
    }
    let mut controller = cluster.start("a", more);
    let listener = listener(&mut controller).await;
    for pool in pools {
        cluster.until_target(pool, "").await;
    }
    (cluster, proxy, controller, listener)
}

async fn config_map(cluster: &Cluster, name: &str, data: Value) {
    let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), NAMESPACE);
    let map = json!({ "metadata": { "name": name }, "data": data });
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
}

/// The pools `infra` and `worker` are about to opt in.
async fn opting_in() -> (Cluster, Proxy, Controller, SocketAddr) {
    let all = rendered(&["infra", "worker"], &[]).await;
    let settings =
        json!({ "finalImagePushSecretName": "push", "finalImagePullspec": "registry.test/os/worker" });
    config_map(&all.0, "on-cluster-build-config", settings).await;
    let image = format!("registry.test/os@sha256:{}", "1".repeat(64));
    config_map(&all.0, "machine-config-osimageurl", json!({ "baseOSContainerImage": image })).await;
    all
}

async fn opt_in(cluster: &Cluster, pool: &str) {
    let labels = json!({ "metadata": { "labels": { key("layering-enabled"): "" } } });
    cluster.patch_pool(pool, labels).await;
}

/// The creation of the `MachineOSConfig` of a pool.
fn os_config_of(pool: &str) -> Seam {
    Seam::new(Method::POST, &["/machineosconfigs?"]).with_body(&format!("\"name\":\"{pool}\""))
}

#[tokio::test]
async fn hanging_opt_in_of_one_pool_delays_no_other_pool() {
    let (cluster, proxy, _controller, _) = opting_in().await;
    proxy.fail(os_config_of("infra"), Failing::NeverAnswers);
    opt_in(&cluster, "infra").await;
    proxy.failed(1).await;
    let start = Instant::now();
    opt_in(&cluster, "worker").await;
    let is_pending = |pool: &Value| condition(pool, "BuildPending")["status"] == "True";
    cluster.until_pool("worker", "it has opted in", is_pending).await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(proxy.mend(), [1], "and nobody asks twice meanwhile");
    cluster.until_pool("infra", "it has opted in", is_pending).await;
}

#[tokio::test]
async fn failing_opt_in_is_told_and_tried_rarely() {
    let (cluster, proxy, controller, listener) = opting_in().await;
    proxy.fail(os_config_of("worker"), NO_LEADER);
    opt_in(&cluster, "worker").await;
    let start = Instant::now();
    let words = "Pool worker can't enter image mode: etcd has no leader (503)";
    until_event(&cluster.client, "OptInRefused", "worker", words).await;
    // The changes of other objects are no reason to try again.
    for change in 0..12 {
        cluster.config("infra", contents("infra", &change.to_string())).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let (tries, lasted) = (proxy.mend()[0], start.elapsed());
    assert!((2..=4).contains(&tries), "{tries} in {lasted:?}");
    let told = controller.lines().iter().filter(|line| line.contains("etcd has no leader")).count();
    assert!(told <= 2, "{:#?}", controller.lines());
    let configs = object_api(&cluster.client, "machineosconfigs");
    object_until(&configs, "worker", "it is made", |_| true).await;
    let (_, body) = get(listener, "/metrics");
    assert_eq!(failures(&body, "OptInOsConfig", "unanswered"), tries);
}

/// Names the objects of all Events with a reason.
async fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(cluster.client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let all = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    all.filter_map(|event| event.involved_object.name).collect()
}

/// A pool goes while its target is written: the answer, an error or that there is none, is nobody's concern any more.
#[tokio::test]
async fn pool_that_goes_during_its_write_leaves_neither_metric_nor_event() {
    for failing in [Failing::NeverAnswers, Failing::AnswersLate] {
        let (cluster, proxy, controller, listener) = rendered(&["worker", "infra"], &[]).await;
        let worker = cluster.until_target("worker", "").await;
        let series = |body: &str| body.lines().filter(|line| line.contains("pool=\"infra\"")).count();
        page_until(listener, "/metrics", "its series", |_, body| series(body) > 0).await;
        proxy.fail(patch("/machineconfigpools/infra?"), failing);
        cluster.config("infra", contents("infra", "1")).await;
        proxy.failed(1).await;
        let pools = object_api(&cluster.client, "machineconfigpools");
        pools.delete("infra", &DeleteParams::default()).await.unwrap();
        let is_gone = |_, body: &str| !body.contains("pool_condition{pool=\"infra\"");
        page_until(listener, "/metrics", "the pool is gone", is_gone).await;
        proxy.mend();
        cluster.config("worker", contents("worker", "1")).await;
        cluster.until_target("worker", &worker).await;
        // Of the answer, and of what is done because of it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, body) = get(listener, "/metrics");
        assert_eq!(series(&body), 0, "{failing:?}: {body}");
        let named = told(&cluster, "RenderDegraded").await;
        assert!(!named.iter().any(|name| name == "infra"), "{failing:?}: {named:?}");
        let lines = controller.lines();
        assert!(!lines.iter().any(|line| line.contains("is refused")), "{failing:?}: {lines:#?}");
    }
}

fn pinned(node: &Node) -> Option<&str> {
    node.metadata.annotations.as_ref()?.get(PINNED).map(String::as_str)
}

/// A pool of nodes that have its config, and names no PinnedImageSet yet.
async fn with_nodes(count: usize) -> (Cluster, Proxy, Controller, SocketAddr) {
    let all = rendered(&["worker"], &["--controllers", "render,node"]).await;
    let target = all.0.until_target("worker", "").await;
    for number in 1..=count {
        ready_node(&all.0.client, &format!("n{number}"), &target).await;
    }
    let are_there = |pool: &Value| pool["status"]["readyMachineCount"] == count;
    all.0.until_pool("worker", "its nodes", are_there).await;
    all
}

async fn pin(cluster: &Cluster, sets: Value) {
    cluster.patch_pool("worker", json!({ "spec": { "pinnedImageSets": sets } })).await;
}

#[tokio::test]
async fn hanging_write_of_pinned_images_delays_no_other_node() {
    let (cluster, proxy, _controller, _) = with_nodes(4).await;
    for node in ["n1", "n2", "n3"] {
        proxy.fail(patch(&format!("/nodes/{node}?")).with_body(PINNED), Failing::NeverAnswers);
    }
    let start = Instant::now();
    pin(&cluster, json!([{ "name": "a" }])).await;
    node_until(&cluster.client, "n4", "it is told", |node| pinned(node) == Some("a")).await;
    let counts = |pool: &Value| pool["status"]["poolSynchronizersStatus"][0]["machineCount"] == 4;
    cluster.until_pool("worker", "its counts", counts).await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    proxy.all_failed().await;
    assert_eq!(proxy.mend(), [1; 3], "and nobody asks twice meanwhile");
    for node in ["n1", "n2", "n3"] {
        node_until(&cluster.client, node, "it is told", |node| pinned(node) == Some("a")).await;
    }
}

#[tokio::test]
async fn failing_writes_of_pinned_images_are_told_and_tried_rarely() {
    let (cluster, proxy, _controller, _) = with_nodes(2).await;
    proxy.fail(patch("/nodes/n1?").with_body(PINNED), NO_LEADER);
    let counts = "/machineconfigpools/worker/status?";
    proxy.fail(patch(counts).with_body("poolSynchronizersStatus"), NO_LEADER);
    pin(&cluster, json!([{ "name": "a" }])).await;
    node_until(&cluster.client, "n2", "it is told", |node| pinned(node) == Some("a")).await;
    let words = "Node n1 did not get its pinned images: etcd has no leader (503)";
    until_event(&cluster.client, "PinnedImagesNotWritten", "n1", words).await;
    let words = "Pool worker does not have the counts of its pinned images: etcd has no leader (503)";
    until_event(&cluster.client, "PinnedImagesNotWritten", "worker", words).await;
    for change in 0..12 {
        cluster.config("worker", contents("worker", &change.to_string())).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let tries = proxy.mend();
    assert!(tries.iter().all(|tries| (2..=4).contains(tries)), "{tries:?}");
    node_until(&cluster.client, "n1", "it is told", |node| pinned(node) == Some("a")).await;
    // One that is not told is still told once its pool names none any more.
    proxy.fail(patch("/nodes/n1?").with_body(PINNED), Failing::Refuses(403, "no"));
    pin(&cluster, Value::Null).await;
    node_until(&cluster.client, "n2", "it is told", |node| pinned(node).is_none()).await;
    proxy.failed(2).await;
    proxy.mend();
    node_until(&cluster.client, "n1", "it is told", |node| pinned(node).is_none()).await;
    let has_none = |pool: &Value| pool["status"]["poolSynchronizersStatus"].is_null();
    cluster.until_pool("worker", "no counts", has_none).await;
}

/// Returns the metric of a watch, as long as there is one.
fn watch_up(body: &str, resource: &str) -> Option<bool> {
    let start = format!("machine_config_controller_watch_up{{resource=\"{resource}\"}} ");
    body.lines().find_map(|line| line.strip_prefix(&start)).map(|value| value == "1")
}

#[tokio::test]
async fn reports_of_nodes_that_cannot_be_read_are_named() {
    let (cluster, proxy, _controller, listener) = with_nodes(1).await;
    let resource = "machineconfignodes.machineconfiguration.openshift.io";
    let list = Seam::new(Method::GET, &["/machineconfignodes?"]);
    proxy.fail(list, Failing::Refuses(403, "no right to read them"));
    pin(&cluster, json!([{ "name": "a" }])).await;
    let is_down = |_, body: &str| watch_up(body, resource) == Some(false);
    page_until(listener, "/metrics", "the watch is down", is_down).await;
    let words =
        format!("{resource} can't be read: no right to read them (403); grant the controller's account");
    page_until(listener, "/readyz", &words, |code, text| code == 503 && text.contains(&words)).await;
    let text = format!("Pool worker does not have the counts of its pinned images: {words}");
    until_event(&cluster.client, "PinnedImagesNotWritten", "worker", &text).await;
    node_until(&cluster.client, "n1", "it is told", |node| pinned(node) == Some("a")).await;
    proxy.mend();
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    page_until(listener, "/metrics", "it is up", |_, body| watch_up(body, resource) == Some(true)).await;
    pin(&cluster, Value::Null).await;
    page_until(listener, "/metrics", "nobody needs it", |_, body| watch_up(body, resource).is_none()).await;
}

#[tokio::test]
async fn hanging_statuses_of_pools_delay_no_other_pool() {
    let pools = ["p1", "p2", "p3", "p4", "worker"];
    let (cluster, proxy, _controller, _) = rendered(&pools, &[]).await;
    let observed = |pool: &Value| pool["status"]["observedGeneration"].as_i64().unwrap_or_default();
    let is_settled = |pool: &Value| condition(pool, "Updated")["status"] == "True";
    let mut before = Vec::new();
    for pool in pools {
        before.push(observed(&cluster.until_pool(pool, "its status", is_settled).await));
    }
    for pool in &pools[..4] {
        let status = format!("/machineconfigpools/{pool}/status?");
        proxy.fail(patch(&status), Failing::NeverAnswers);
        cluster.patch_pool(pool, json!({ "spec": { "paused": true } })).await;
    }
    let start = Instant::now();
    cluster.patch_pool("worker", json!({ "spec": { "paused": true } })).await;
    cluster.until_pool("worker", "paused", |pool| observed(pool) > before[4]).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    proxy.all_failed().await;
    assert_eq!(proxy.mend(), [1; 4], "and nobody asks twice meanwhile");
    for (pool, before) in pools.iter().zip(before) {
        cluster.until_pool(pool, "paused", |pool| observed(pool) > before).await;
    }
}

/// A watch that is listed and ends at once, each time, is down all the time.
#[tokio::test]
async fn watch_of_leases_that_ends_at_once_is_steadily_down() {
    let (cluster, proxy, _controller, listener) = rendered(&["worker"], &[]).await;
    let resource = "leases.coordination.k8s.io";
    proxy.fail(Seam::new(Method::GET, &["/leases?", "watch="]), Failing::EndsAtOnce);
    cluster.bench.restart();
    cluster.served().await;
    let is_down = |_, body: &str| watch_up(body, resource) == Some(false);
    page_until(listener, "/metrics", "the watch is down", is_down).await;
    // Three Leases are watched, each of these twice.
    let mut seen = Vec::new();
    within("further tries", async {
        let more = async {
            proxy.failed_again(12).await;
        };
        let look = async {
            loop {
                seen.push(watch_up(&get(listener, "/metrics").1, resource));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = more => {}
            () = look => {}
        }
    })
    .await;
    assert!(seen.iter().all(|up| *up == Some(false)), "{seen:?}");
    proxy.mend();
    page_until(listener, "/metrics", "it is up", |_, body| watch_up(body, resource) == Some(true)).await;
}

/// The log has each cause of a node once, and its end. A page of a proxy is an answer: the next node has the place at once.
#[tokio::test]
async fn failing_target_of_node_is_logged_once() {
    let (cluster, proxy, controller, _) = with_nodes(3).await;
    let mut last = cluster.until_target("worker", "").await;
    let ways = [
        (Failing::Refuses(403, "a webhook says no"), "node n1: a webhook says no (403)"),
        (Failing::AnswersSomethingElse, "node n1: its answer can't be read, line 1"),
    ];
    for (failing, words) in ways {
        proxy.fail(patch("/nodes/n1?").with_body("desiredConfig"), failing);
        let start = Instant::now();
        cluster.config("worker", contents("worker", words)).await;
        last = cluster.until_target("worker", &last).await;
        let is_given = |node: &Node| node.annotations().get(&key("desiredConfig")) == Some(&last);
        let finishes = async |name: &str| {
            node_until(&cluster.client, name, "its target", is_given).await;
            let done = json!({ "metadata": { "annotations": { key("currentConfig"): last } } });
            node_api(&cluster.client)
                .patch(name, &PatchParams::default(), &Patch::Merge(done))
                .await
                .unwrap();
        };
        finishes("n2").await;
        assert!(start.elapsed() < SOON, "{failing:?}: {:?}", start.elapsed());
        finishes("n3").await;
        proxy.failed(3).await;
        let logged = |words: &str| controller.lines().iter().filter(|line| line.contains(words)).count();
        assert_eq!(logged(words), 1, "{:#?}", controller.lines());
        let before = logged("node n1: it is written again");
        proxy.mend();
        finishes("n1").await;
        let is_done = |pool: &Value| pool["status"]["updatedMachineCount"] == 3;
        cluster.until_pool("worker", "all have it", is_done).await;
        assert_eq!(logged("node n1: it is written again"), before + 1, "{:#?}", controller.lines());
    }
}
