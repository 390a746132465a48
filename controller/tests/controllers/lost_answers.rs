//! Writes that are made and whose answer is lost, while the controller lives: it learns of each by reading, makes none twice and forgets none.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_openshift::{self, BuildController};
use crate::build_registry::FakeRegistry;
use crate::cluster::{
    Bench, Connections, Fault, MachineConfigBuilder, Request, annotation, call, key, node_until, object_api,
    own_only, within,
};
use crate::pairs::{Pairs, until_image};
use crate::process::{Cluster, NAMESPACE, condition};
use crate::rollout::{Agents, ready_node, watch_rollout};

/// The user agent of the controller.
const CONTROLLER: &str = "machine-config-controller";

/// All that it writes, but for its Lease: one that it can't renew is lost.
const WRITTEN: [&str; 6] = [
    "/apis/machineconfiguration.openshift.io/",
    "/apis/batch/",
    "/apis/build.openshift.io/",
    "/api/v1/namespaces/openshift-machine-config-operator/",
    "/api/v1/namespaces/default/events",
    "/api/v1/nodes/",
];

/// Has all answers to its writes lost, for as long as the faults are set.
pub fn lose_all(bench: &Bench) {
    for path in WRITTEN {
        bench.fault(&Fault::answer_lost().path(path).agent(CONTROLLER));
    }
}

/// The writes of a kind that were made: since a mark, of the controller, by verb and resource.
pub async fn made(bench: &Bench, mark: usize, line: &str) -> usize {
    let all = bench.requests_since(mark).await;
    let is_made = |code: Option<u64>| code.is_some_and(|code| code < 300);
    all.iter()
        .filter(|one| one.user == "controller" && is_made(one.code) && one.line().starts_with(line))
        .count()
}

/// The switch itself: a write that was made, and no other, and as many as are meant.
#[tokio::test]
async fn lost_answer_is_one_of_write_that_was_made() {
    if !own_only("lost_answers::lost_answer_is_one_of_write_that_was_made") {
        return;
    }
    let bench = Bench::without_crds();
    let client = bench.client("losing").await;
    bench.fault(&Fault::answer_lost().path("/api/v1/namespaces").agent("losing").skip(1).count(1));
    let mark = bench.mark().await;
    let create = async |name: &str| {
        let body = json!({ "metadata": { "name": name } }).to_string().into_bytes();
        let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
        client.request::<serde_json::Value>(request.body(body).unwrap()).await
    };
    assert!(create("one").await.is_ok(), "the first is answered");
    let refused = create("one").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 409), "so is a refusal");
    let error = create("two").await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    assert_eq!(call(&client, "GET", "/api/v1/namespaces/two", None).await.0, 200);
    assert!(create("three").await.is_ok(), "one was to be lost");
    assert_eq!(bench.clear_faults(), [1]);
    let all = bench.requests_since(mark).await;
    let codes = all.iter().filter(|request| request.verb == "create").filter_map(|request| request.code);
    assert_eq!(codes.collect::<Vec<_>>(), [201, 409, 201, 201]);
}

/// Has the image built once more; waits until so many builds have run in all, and everything is cleared up.
async fn rebuilt(
    builds: &Builds,
    count: usize,
    started: impl Fn() -> Vec<String>,
    gone: impl Future<Output = ()>,
) {
    builds.until_condition("False", "BuildSuccess").await;
    builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
    within("it is built once more", async {
        while started().len() < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let is_over =
        |config: &serde_json::Value| config["metadata"]["annotations"].get(key("rebuild")).is_none();
    builds.until_os_config("the request is gone", is_over).await;
    gone.await;
    builds.until_condition("False", "BuildSuccess").await;
}

/// No write is answered, from the first rendered config to the last object that is deleted: a build, a rebuild, a build of another
/// target, the rollout of both images, and the end of image mode.
#[tokio::test]
async fn build_converges_without_answer_to_any_write() {
    if !own_only("lost_answers::build_converges_without_answer_to_any_write") {
        return;
    }
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let (cluster, bench) = (&builds.cluster, &builds.cluster.bench);
    let mark = bench.mark().await;
    lose_all(bench);
    let _controller = builds.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let pairs = Pairs::start(bench).await;
    let _agents = Agents::start(bench).await;
    let jobs = JobController::start(bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (first, earlier) = builds.until_published("").await;
    until_image(&cluster.client, "n1", &earlier).await;
    rebuilt(&builds, 2, || jobs.started(), jobs.until_gone()).await;
    builds.kernel_argument("quiet").await;
    let (second, image) = builds.until_published(&first).await;
    jobs.until_gone().await;
    until_image(&cluster.client, "n1", &image).await;
    let next = cluster.until_target("worker", &target).await;
    assert_eq!(jobs.started(), [first.clone(), first, second], "each once");
    object_api(&cluster.client, "machineosconfigs").delete("worker", &DeleteParams::default()).await.unwrap();
    builds.until_condition("False", "NoLayeredObjects").await;
    within("all builds are gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    node_until(&cluster.client, "n1", "no image", |node| annotation(node, "currentImage").is_none()).await;
    let expected =
        [(target.clone(), None), (target, Some(earlier)), (next.clone(), Some(image)), (next, None)];
    assert_eq!(pairs.of("n1").await, expected);
    let lost = bench.clear_faults();
    // No Build of OpenShift was made.
    assert!(
        lost.iter().zip(WRITTEN).all(|(lost, path)| *lost > 0 || path.contains("build.openshift")),
        "{lost:?}"
    );
    for (line, count) in [
        ("create machineosbuilds", 3),
        ("create jobs", 3),
        ("create configmaps", 3),
        ("create secrets", 9),
        ("create machineconfigs", 2),
    ] {
        assert_eq!(made(bench, mark, line).await, count, "{line}");
    }
}

/// Rebuild after rebuild, each one with the answer to one write more: whichever answer is lost, it is one build a round.
#[tokio::test]
async fn rebuild_survives_loss_of_any_one_answer() {
    if !own_only("lost_answers::rebuild_survives_loss_of_any_one_answer") {
        return;
    }
    let builds = Builds::new().await;
    let (cluster, bench) = (&builds.cluster, &builds.cluster.bench);
    let _controller = builds.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let pairs = Pairs::start(bench).await;
    let jobs = JobController::start(bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    builds.until_published("").await;
    // The second: a ConfigMap and three Secrets. Statuses of the pool that come together are one write.
    for (path, writes) in [("/apis/", 10), (&*format!("/api/v1/namespaces/{NAMESPACE}/"), 4)] {
        let mut rounds = 0;
        loop {
            bench.fault(&Fault::answer_lost().path(path).agent(CONTROLLER).skip(rounds).count(1));
            let count = jobs.started().len() + 1;
            rebuilt(&builds, count, || jobs.started(), jobs.until_gone()).await;
            assert_eq!(jobs.started().len(), count, "{path} round {rounds}");
            if bench.clear_faults() == [0] {
                break;
            }
            rounds += 1;
        }
        assert!(rounds >= writes, "{path} {rounds}");
    }
    let (name, image) = builds.until_published("").await;
    assert!(jobs.started().iter().all(|build| *build == name));
    assert_eq!(builds.only_build().await, name);
    assert_eq!(pairs.of("n1").await, [(target.clone(), None), (target, Some(image))]);
}

/// The same of a Build of OpenShift.
#[tokio::test]
async fn openshift_build_converges_without_answer_to_any_write() {
    if !own_only("lost_answers::openshift_build_converges_without_answer_to_any_write") {
        return;
    }
    let builds = Builds::new().await;
    let bench = &builds.cluster.bench;
    build_openshift::define(&builds.cluster.client).await;
    let mark = bench.mark().await;
    lose_all(bench);
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(bench, Plays::Held).await;
    let openshift = BuildController::start(bench, Plays::Well).await;
    builds.secret().await;
    build_openshift::os_config(&builds).await;
    let (name, _) = builds.until_published("").await;
    rebuilt(&builds, 2, || openshift.started(), openshift.until_gone(&jobs)).await;
    assert_eq!(openshift.started(), [name.clone(), name], "one Build a round");
    bench.clear_faults();
    for (line, count) in [("create machineosbuilds", 2), ("create builds", 2), ("create jobs", 0)] {
        assert_eq!(made(bench, mark, line).await, count, "{line}");
    }
}

/// Rendering, target, node patches, cordon and acknowledgement: no more nodes at once than allowed, and each is told once.
#[tokio::test]
async fn rollout_converges_without_answer_to_any_write() {
    if !own_only("lost_answers::rollout_converges_without_answer_to_any_write") {
        return;
    }
    let cluster = Cluster::new().await;
    let bench = &cluster.bench;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    lose_all(bench);
    let mark = bench.mark().await;
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    let names = ["n1", "n2", "n3"];
    for name in names {
        ready_node(&cluster.client, name, &first).await;
    }
    let pairs = Pairs::start(bench).await;
    let _agents = Agents::start(bench).await;
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    let most = watch_rollout(bench.client("watcher").await, second.clone(), names.len()).await;
    assert_eq!(most, 1, "nodes out of service at once");
    let updated = |pool: &serde_json::Value| {
        condition(pool, "Updated")["status"] == "True"
            && pool["status"]["configuration"]["name"] == second.as_str()
    };
    cluster.until_pool("worker", "updated", updated).await;
    for name in names {
        assert_eq!(pairs.of(name).await, [(first.clone(), None), (second.clone(), None)]);
    }
    bench.clear_faults();
    assert_eq!(made(bench, mark, "create machineconfigs").await, 2, "rendered once each");
}

/// The answer to a node's target is lost, and the controller can't read what became of it: no other node is told instead, whatever the
/// pool wants by then.
#[tokio::test]
async fn node_of_unknown_state_holds_its_place() {
    if !own_only("lost_answers::node_of_unknown_state_holds_its_place") {
        return;
    }
    let mut cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.patch_pool("worker", json!({ "spec": { "paused": true } })).await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &first).await;
    }
    cluster.until_pool("worker", "two nodes", |pool| pool["status"]["readyMachineCount"] == 2).await;
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    let pairs = Pairs::start(&cluster.bench).await;
    cluster.bench.fault(&Fault::answer_lost().path("/api/v1/nodes/").agent(CONTROLLER));
    cluster.bench.fault(&Fault::held().method("GET").path("/api/v1/nodes").agent(CONTROLLER));
    cluster.bench.connections(Connections::Dropped);
    cluster.client = cluster.bench.client("test").await;
    let bench = &cluster.bench;
    cluster.patch_pool("worker", json!({ "spec": { "paused": false } })).await;
    // The other gets its taint in the same decision: a patch alone does not tell which node is given the target.
    let has_target = |node: &Node| annotation(node, "desiredConfig") == Some(&second);
    node_until(&cluster.client, "n1", "its target", has_target).await;
    cluster.config("worker", config("3")).await;
    let third = cluster.until_target("worker", &second).await;
    let is_refused = |request: &Request| {
        request.user == "controller"
            && request.line().starts_with("patch nodes")
            && request.name == "n1"
            && request.code == Some(409)
    };
    bench.audit().since(bench.mark().await, "its target is written once more", is_refused).await;
    assert_eq!(pairs.of("n2").await, [(first.clone(), None)]);
    bench.clear_faults();
    let _agents = Agents::start(bench).await;
    let most = watch_rollout(bench.client("watcher").await, third.clone(), 2).await;
    assert_eq!(most, 1, "nodes out of service at once");
    assert_eq!(pairs.of("n2").await, [(first, None), (third, None)]);
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}
