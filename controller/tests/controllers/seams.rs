//! Each way in which the API server can fail this controller, through a proxy before it.

pub mod drain;
mod lease;
mod policy;
mod reads;
pub mod refused;
mod registry;

use std::net::SocketAddr;

use http::Method;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, key, node_api, object_api};
use crate::connections::behind_proxy;
use crate::process::{Cluster, Controller, apply_definition, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::{failures, get, listener, page_until, until_has};
use crate::rollout::{Agents, ready_node};

/// The ways in which a list fails.
const WAYS: [Failing; 4] = [
    Failing::NeverAnswers,
    Failing::AnswersLate,
    Failing::Refuses(403, "the role has no right for it"),
    Failing::AnswersSomethingElse,
];

/// The objects that a controller decides by are not known: it is not ready, names the kind, and writes nothing. When the list comes, it
/// goes on by itself.
async fn list_fails(plural: &str) {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    for failing in WAYS {
        proxy.fail(Seam::new(Method::GET, &[&format!("/{plural}?")]).without("watch="), failing);
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        proxy.failed(1).await;
        let (code, text) = get(listener, "/readyz");
        assert_eq!((code, text.contains(plural)), (503, true), "{plural} {failing:?}: {text}");
        assert_eq!(targets(&cluster).await, [""], "{plural} {failing:?}");
        proxy.mend();
        cluster.until_target("worker", "").await;
        assert!(controller.terminate().await.success());
        cluster.patch_pool("worker", json!({ "spec": { "configuration": null } })).await;
    }
}

async fn targets(cluster: &Cluster) -> Vec<String> {
    let pools = object_api(&cluster.client, "machineconfigpools").list(&ListParams::default()).await.unwrap();
    let target = |pool: &DynamicObject| {
        let pool: &Value = &pool.data;
        pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned()
    };
    pools.items.iter().map(target).collect()
}

#[tokio::test]
async fn list_of_pools_fails() {
    list_fails("machineconfigpools").await;
}

#[tokio::test]
async fn list_of_machineconfigs_fails() {
    list_fails("machineconfigs").await;
}

#[tokio::test]
async fn list_of_nodes_fails() {
    list_fails("nodes").await;
}

/// Kinds that one controller or another decides by, and what a pool is rendered from last.
const KINDS: [&str; 10] = [
    "controllerconfigs",
    "machineconfigurations",
    "rolloutpolicies",
    "machineosconfigs",
    "machineosbuilds",
    "machineconfigpools",
    "machineconfigs",
    "nodes",
    "jobs",
    "secrets",
];

/// All kinds fail at once, and then one of those that a pool is rendered from alone: each is named, and nothing is written meanwhile.
#[tokio::test]
async fn lists_of_all_kinds_fail() {
    let (cluster, proxy) = behind_proxy().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    for (failing, last) in WAYS.into_iter().zip(KINDS) {
        for kind in KINDS {
            proxy.fail(Seam::new(Method::GET, &[&format!("/{kind}?")]).without("watch="), failing);
        }
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        proxy.all_failed().await;
        let names_all = |code, text: &str| code == 503 && KINDS.iter().all(|kind| text.contains(kind));
        page_until(listener, "/readyz", "all kinds are named", names_all).await;
        assert_eq!(targets(&cluster).await, [""], "{failing:?}");
        KINDS.iter().filter(|kind| **kind != last).for_each(|kind| proxy.mend_part(&format!("/{kind}?")));
        let names_last =
            |code, text: &str| code == 503 && text.lines().count() == 1 && text.starts_with(last);
        page_until(listener, "/readyz", last, names_last).await;
        assert_eq!(targets(&cluster).await, [""], "{last} {failing:?}");
        proxy.mend();
        cluster.until_target("worker", "").await;
        page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
        assert!(controller.terminate().await.success());
        cluster.patch_pool("worker", json!({ "spec": { "configuration": null } })).await;
    }
}

/// Kinds that builds alone need: each is named while it can't be read, and pools are rendered and given out meanwhile.
#[tokio::test]
async fn lists_of_kinds_of_builds_fail() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    let mut last = String::new();
    for kind in ["jobs", "secrets"] {
        for failing in WAYS {
            proxy.fail(Seam::new(Method::GET, &[&format!("/{kind}?")]).without("watch="), failing);
            let mut controller = cluster.start("a", &[]);
            let listener = listener(&mut controller).await;
            proxy.failed(1).await;
            let is_named = |code, text: &str| {
                code == 503 && text.lines().count() == 1 && text.lines().all(|line| line.contains(kind))
            };
            page_until(listener, "/readyz", &format!("{kind} {failing:?}"), is_named).await;
            cluster.config("worker", contents("worker", &format!("{kind} {failing:?}"))).await;
            last = cluster.until_target("worker", &last).await;
            let (code, text) = get(listener, "/readyz");
            assert!(is_named(code, &text), "{kind} {failing:?}: {text}");
            proxy.mend();
            page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
            assert!(controller.terminate().await.success());
        }
    }
}

#[tokio::test]
async fn list_of_definitions_fails() {
    list_fails("customresourcedefinitions").await;
}

/// A replica of the API server that is behind: what is written names the version that was read, so nothing newer is undone.
#[tokio::test]
async fn list_of_pools_is_older_than_pool() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    proxy.remember();
    let first = cluster.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    assert!(first.terminate().await.success());
    cluster.patch_pool("worker", json!({ "spec": { "configuration": null, "paused": true } })).await;
    proxy.fail(Seam::new(Method::GET, &["/machineconfigpools?"]), Failing::AnswersWithOlderNews);
    let _second = cluster.start("b", &[]);
    let pool = cluster
        .until_pool("worker", "its target", |pool| pool["spec"]["configuration"]["name"] == target.as_str());
    assert_eq!(pool.await["spec"]["paused"], true);
    assert!(proxy.mend().iter().sum::<u64>() > 0);
}

/// The ways in which a write has no answer that can be read. What the server refuses is in `refusals.rs`.
const UNANSWERED: [Failing; 3] = [Failing::NeverAnswers, Failing::AnswersLate, Failing::AnswersSomethingElse];

/// Two pools behind a proxy, with agents, and a controller that serves its metrics: nodes of the pool `worker`, and `i1` of `infra`.
struct TwoPools {
    cluster: Cluster,
    proxy: Proxy,
    listener: SocketAddr,
    /// The targets of both.
    worker: String,
    infra: String,
    _controller: Controller,
    _agents: Agents,
}

impl TwoPools {
    async fn new(workers: &[&str]) -> Self {
        let (cluster, proxy) = behind_proxy().await;
        apply_definition(&cluster.client, "rolloutpolicies").await;
        for pool in ["worker", "infra"] {
            cluster.pool(pool).await;
            cluster.config(pool, contents(pool, "0")).await;
        }
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        let worker = cluster.until_target("worker", "").await;
        let infra = cluster.until_target("infra", "").await;
        for name in workers {
            ready_node(&cluster.client, name, &worker).await;
        }
        ready_node(&cluster.client, "i1", &infra).await;
        let labels = json!({ "metadata": { "labels": { "node-role.kubernetes.io/infra": "" } } });
        node_api(&cluster.client).patch("i1", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
        let agents = Agents::start(&cluster.bench).await;
        Self { cluster, proxy, listener, worker, infra, _controller: controller, _agents: agents }
    }
}

/// A write of the pool `worker` has no answer: the metric counts it, the other pool goes on, and the write is made once it can
/// be.
async fn write_fails(write: &str, seam: Seam) {
    let TwoPools { cluster, proxy, listener, mut worker, mut infra, _controller, _agents } =
        TwoPools::new(&["w1"]).await;
    for failing in UNANSWERED {
        let before = failures(&get(listener, "/metrics").1, write, "unanswered");
        proxy.fail(seam.clone(), failing);
        let words = format!("{failing:?}");
        cluster.config("worker", contents("worker", &words)).await;
        proxy.failed(1).await;
        cluster.config("infra", contents("infra", &words)).await;
        infra = cluster.until_target("infra", &infra).await;
        until_has(&cluster, "i1", &infra).await;
        let told = |_, body: &str| failures(body, write, "unanswered") > before;
        page_until(listener, "/metrics", "the failure is counted", told).await;
        proxy.mend();
        worker = cluster.until_target("worker", &worker).await;
        until_has(&cluster, "w1", &worker).await;
    }
}

fn contents(pool: &str, text: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, text)
}

#[tokio::test]
async fn target_of_node_has_no_answer() {
    write_fails("NodeTarget", Seam::new(Method::PATCH, &["/api/v1/nodes/w1?"])).await;
}

#[tokio::test]
async fn target_of_pool_has_no_answer() {
    write_fails("PoolTarget", Seam::new(Method::PATCH, &["/machineconfigpools/worker?"])).await;
}

#[tokio::test]
async fn status_of_pool_has_no_answer() {
    write_fails("PoolStatus", Seam::new(Method::PATCH, &["/machineconfigpools/worker/status?"])).await;
}

#[tokio::test]
async fn rendered_config_has_no_answer() {
    let of_worker = Seam::new(Method::POST, &["/machineconfigs?"]).with_body("\"rendered-worker-");
    write_fails("RenderedConfig", of_worker).await;
}

#[tokio::test]
async fn event_has_no_answer() {
    write_fails("Event", Seam::new(Method::POST, &["/events?"])).await;
}

/// All lists pass, and no watch does: each kind is named by the metric, and by `/readyz` where the server refuses. Once they pass, what
/// changed meanwhile is known.
#[tokio::test]
async fn watches_of_all_kinds_fail() {
    let (cluster, proxy) = behind_proxy().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    let mut last = String::new();
    for failing in [Failing::Refuses(403, "the role has no right for it"), Failing::AnswersSomethingElse] {
        for kind in KINDS {
            proxy.fail(Seam::new(Method::GET, &[&format!("/{kind}?"), "watch="]), failing);
        }
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        proxy.all_failed().await;
        let is_down = |body: &str, kind: &str| {
            let start = format!("machine_config_controller_watch_up{{resource=\"{kind}");
            body.lines().any(|line| line.starts_with(&start) && line.ends_with(" 0"))
        };
        let all_down = |_, body: &str| KINDS.iter().all(|kind| is_down(body, kind));
        page_until(listener, "/metrics", "all watches are down", all_down).await;
        // What is read once is held where the server may come back.
        let is_refused = matches!(failing, Failing::Refuses(..));
        let (code, text) = get(listener, "/readyz");
        assert_eq!(code, if is_refused { 503 } else { 200 }, "{failing:?}: {text}");
        assert!(!is_refused || KINDS.iter().all(|kind| text.contains(kind)), "{text}");
        cluster.config("worker", contents("worker", &format!("{failing:?}"))).await;
        proxy.mend();
        last = cluster.until_target("worker", &last).await;
        page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
        page_until(listener, "/metrics", "all are up", |_, body| {
            KINDS.iter().all(|kind| !is_down(body, kind))
        })
        .await;
        assert!(controller.terminate().await.success());
    }
}

/// The settings of image mode can't be read: the metric names them, the other pool goes on, and the pool opts in once they can.
#[tokio::test]
async fn lists_of_configmaps_fail() {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
    }
    let labels = json!({ "metadata": { "labels": { key("layering-enabled"): "" } } });
    cluster.patch_pool("worker", labels).await;
    let mut last = String::new();
    for failing in WAYS {
        proxy.fail(Seam::new(Method::GET, &["/configmaps?"]).without("watch="), failing);
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        proxy.failed(1).await;
        if matches!(failing, Failing::Refuses(..) | Failing::AnswersSomethingElse) {
            let is_down = |_, body: &str| {
                let start = "machine_config_controller_watch_up{resource=\"configmaps";
                body.lines().any(|line| line.starts_with(start) && line.ends_with(" 0"))
            };
            page_until(listener, "/metrics", "the watch is down", is_down).await;
        }
        if matches!(failing, Failing::Refuses(..)) {
            let named =
                |code, text: &str| code == 503 && text.contains("configmaps (") && text.contains("; grant");
            page_until(listener, "/readyz", "the settings are named", named).await;
            drain::until_event(&cluster.client, "OptInRefused", "worker", "configmaps (").await;
        }
        cluster.config("infra", contents("infra", &format!("{failing:?}"))).await;
        last = cluster.until_target("infra", &last).await;
        let is_told = |pool: &Value| condition(pool, "BuildPending")["status"] == "True";
        let pool = cluster.until_pool("worker", "it is there", |_| true).await;
        assert!(!is_told(&pool), "{failing:?}: nothing is known");
        proxy.mend();
        cluster.until_pool("worker", "what is missing", is_told).await;
        assert!(controller.terminate().await.success());
        let nothing = json!([]);
        let pools = object_api(&cluster.client, "machineconfigpools");
        let patch = Patch::Merge(json!({ "status": { "conditions": nothing } }));
        pools.patch_status("worker", &PatchParams::default(), &patch).await.unwrap();
    }
}

/// The target that a pool has can't be read, so that nobody knows whether its nodes could reconcile the next one: the pool keeps it and says why,
/// and the other pool goes on.
#[tokio::test]
async fn reads_of_rendered_configs_fail() {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, contents(pool, "0")).await;
    }
    let _controller = cluster.start("a", &[]);
    let mut infra = cluster.until_target("infra", "").await;
    let mut target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let _agents = Agents::start(&cluster.bench).await;
    for (failing, words) in [
        (
            Failing::Refuses(403, "the role has no right for it"),
            "is refused: the role has no right for it (403)",
        ),
        (Failing::AnswersSomethingElse, "its answer can't be read"),
        (Failing::AnswersLate, ""),
    ] {
        proxy.fail(Seam::new(Method::GET, &[&format!("/machineconfigs/{target}")]), failing);
        for pool in ["worker", "infra"] {
            cluster.config(pool, contents(pool, &format!("{failing:?}"))).await;
        }
        proxy.failed(1).await;
        if failing != Failing::AnswersLate {
            infra = cluster.until_target("infra", &infra).await;
            let words = format!(
                "reading of MachineConfig {target}{}{words}",
                if words.starts_with("is") { " " } else { ": " }
            );
            let is_told = |pool: &Value| {
                let found = condition(pool, "RenderDegraded");
                found["status"] == "True" && found["message"].as_str().unwrap().contains(&words)
            };
            let pool = cluster.until_pool("worker", &words, is_told).await;
            assert_eq!(pool["spec"]["configuration"]["name"], target.as_str());
        }
        proxy.mend();
        cluster.config("worker", contents("worker", &format!("{failing:?} mended"))).await;
        target = cluster.until_target("worker", &target).await;
        until_has(&cluster, "n1", &target).await;
    }
}

/// A watch that is open and brings nothing, such as that of a replica of the API server without its etcd: what the controller
/// wrote itself is known by the answers, and what others wrote by the conflicts.
#[tokio::test]
async fn watch_of_pools_brings_nothing() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "0")).await;
    proxy.fail(Seam::new(Method::GET, &["/machineconfigpools?", "watch="]), Failing::AnswersWithOlderNews);
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "w1", &first).await;
    let _agents = Agents::start(&cluster.bench).await;
    cluster.config("worker", contents("worker", "1")).await;
    let second = cluster.until_target("worker", &first).await;
    until_has(&cluster, "w1", &second).await;
    assert!(proxy.mend().iter().sum::<u64>() > 0);
}

/// Reads that never answer delay no decision: what nodes report is counted meanwhile, they are made again after growing pauses alone, and the
/// log says what is not known.
#[tokio::test]
async fn reads_that_never_answer_delay_no_decision() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "0")).await;
    let first = cluster.start("a", &["--controllers", "render"]);
    let config = cluster.until_target("worker", "").await;
    cluster.config("worker", contents("worker", "1")).await;
    let target = cluster.until_target("worker", &config).await;
    assert!(first.terminate().await.success());
    cluster.patch_pool("worker", json!({ "spec": { "paused": true } })).await;
    ready_node(&cluster.client, "w1", &config).await;
    let definition = "/customresourcedefinitions/machineconfigpools.machineconfiguration.openshift.io";
    for path in [&*format!("/machineconfigs/{target}"), definition] {
        proxy.fail(Seam::new(Method::GET, &[path]), Failing::NeverAnswers);
    }
    let mut controller = cluster.start("b", &[]);
    let nodes = node_api(&cluster.client);
    for change in 0..8 {
        let unavailable = change % 2;
        let status = if unavailable == 0 { "True" } else { "False" };
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        nodes.patch_status("w1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let is_counted = |pool: &Value| {
            pool["status"]["machineCount"] == 1
                && pool["status"]["unavailableMachineCount"].as_i64().unwrap_or(0) == unavailable
        };
        cluster.until_pool("worker", "its node is counted", is_counted).await;
    }
    controller.line(&format!("MachineConfig {target} of pool worker can't be read")).await;
    controller.line("pools have no status.plan until it can").await;
    let asked = proxy.mend();
    assert!(asked.iter().all(|asked| (1..4).contains(asked)), "one in each decision: {asked:?}");
}
