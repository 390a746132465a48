//! Writes that the API server refuses or does not answer, and kinds that it does not let be read: what is told, and that the others go
//! on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;

use futures_util::StreamExt as _;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::cluster::{
    Bench, Fault, MachineConfigBuilder, annotation, changes, node_api, node_until, object_api, own_only,
    within,
};
use crate::connections::behind_proxy;
use crate::lost_answers::made;
use crate::process::{Cluster, Controller, NAMESPACE, apply_definition, condition, target};
use crate::proxy::{Failing, Seam};
use crate::rollout::{Agents, ready_node};
use crate::seams::drain::until_event;
use crate::told;

/// The user agent of the controller.
const CONTROLLER: &str = "machine-config-controller";

const OS: &str = "/apis/machineconfiguration.openshift.io/v1/";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const POLICIES: &str = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies";

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

/// The listener of a controller's metrics and health.
pub async fn listener(controller: &mut Controller) -> SocketAddr {
    let line = controller.line("Serving metrics and health on").await;
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Status and body of one of its pages.
pub fn get(listener: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(listener).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Waits until a page is as desired: it has no event, and is asked.
pub async fn page_until(
    listener: SocketAddr,
    path: &str,
    what: &str,
    holds: impl Fn(u16, &str) -> bool,
) -> String {
    within(what, async {
        loop {
            let (code, body) = get(listener, path);
            if holds(code, &body) {
                return body;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// The failures of a write with an outcome, by the metrics.
pub fn failures(metrics: &str, write: &str, outcome: &str) -> u64 {
    let start = "machine_config_controller_write_failures_total{";
    let (write, outcome) = (format!("write=\"{write}\""), format!("outcome=\"{outcome}\""));
    let line = metrics
        .lines()
        .find(|line| line.starts_with(start) && line.contains(&write) && line.contains(&outcome));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits for an Event with a reason; returns its message.
async fn event(cluster: &Cluster, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let mut events = pin!(changes(&events, &ListParams::default()).await.unwrap());
    within(reason, async {
        loop {
            let (event, _) = events.next().await.unwrap();
            if event.reason.as_deref() == Some(reason) {
                return event.message.unwrap_or_default();
            }
        }
    })
    .await
}

/// A pool with three nodes that have its first config.
async fn three_nodes(cluster: &Cluster) -> String {
    let first = cluster.until_target("worker", "").await;
    for name in ["n1", "n2", "n3"] {
        ready_node(&cluster.client, name, &first).await;
    }
    cluster.until_pool("worker", "three nodes", |pool| pool["status"]["readyMachineCount"] == 3).await;
    first
}

pub async fn until_has(cluster: &Cluster, node: &str, config: &str) {
    let has = |node: &Node| annotation(node, "currentConfig") == Some(config);
    node_until(&cluster.client, node, "the config", has).await;
}

#[tokio::test]
async fn node_that_refuses_writes_stops_nobody() {
    if !own_only("refusals::node_that_refuses_writes_stops_nobody") {
        return;
    }
    // A webhook may refuse with the code of a conflict, or of an object that is gone.
    for code in [403, 404, 409] {
        Box::pin(refused_node_stops_nobody(code)).await;
    }
}

async fn refused_node_stops_nobody(code: u16) {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = three_nodes(&cluster).await;
    let _agents = Agents::start(&cluster.bench).await;
    let refused = Fault::status(code).method("PATCH").path("/api/v1/nodes/n1").agent(CONTROLLER);
    cluster.bench.fault(&refused);
    let mark = cluster.bench.mark().await;
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    // With maxUnavailable 1 the first one is n1.
    until_has(&cluster, "n2", &second).await;
    until_has(&cluster, "n3", &second).await;
    let is_named = |pool: &Value| {
        ["RolloutNodesNotWritten", "Degraded"].iter().all(|type_| {
            let found = condition(pool, type_);
            found["status"] == "True" && found["reason"] == "NodeWriteRefused"
        }) && pool["status"]["updatedMachineCount"] == 2
    };
    let pool = cluster.until_pool("worker", "the node is named", is_named).await;
    let message = condition(&pool, "Degraded")["message"].as_str().unwrap();
    let words = format!("node n1 can't be written: the test says so ({code})");
    assert!(message.contains(&words), "{message}");
    assert_eq!(condition(&pool, "Updated")["status"], "False");
    let tried = cluster.bench.requests_since(mark).await;
    let tried = tried.iter().filter(|one| one.user == "controller" && one.line().starts_with("patch nodes"));
    let tried = tried.filter(|one| one.name == "n1").count();
    assert!((1..=6).contains(&tried), "{tried} tries");
    // A change of the node is tried at once, whatever the pause has grown to.
    cluster.bench.clear_faults();
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "mended": "true" } } }));
    node_api(&cluster.client).patch("n1", &PatchParams::default(), &labels).await.unwrap();
    until_has(&cluster, "n1", &second).await;
    let is_over = |pool: &Value| {
        condition(pool, "RolloutNodesNotWritten")["status"] == "False"
            && condition(pool, "Degraded")["status"] == "False"
            && condition(pool, "Updated")["status"] == "True"
    };
    cluster.until_pool("worker", "all is well", is_over).await;
}

/// The rendered config of one pool is refused: the pool says so, it is tried with growing pauses, and the other pool goes on meanwhile.
#[tokio::test]
async fn refused_rendered_config_degrades_pool_until_input_changes() {
    for code in [422, 404, 409] {
        Box::pin(refused_rendered_config(code)).await;
    }
}

async fn refused_rendered_config(code: u16) {
    let (cluster, proxy) = behind_proxy().await;
    let file = |pool: &str, contents: &str| {
        MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, contents)
    };
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, file(pool, "1")).await;
    }
    let mut controller = cluster.start("a", &["--controllers", "render"]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    let mut other = cluster.until_target("infra", "").await;
    let words = "a webhook says no";
    let of_worker = Seam::new(Method::POST, &["/machineconfigs?"]).with_body("\"rendered-worker-");
    proxy.fail(of_worker, Failing::Refuses(code, words));
    cluster.config("worker", file("worker", "2")).await;
    let degraded = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "True";
    let pool = cluster.until_pool("worker", "degraded", degraded).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(message.contains("MachineConfig rendered-worker-"), "{message}");
    assert!(message.ends_with(&format!("is refused: {words} ({code})")), "{message}");
    assert_eq!(target(&pool), first);
    // The changes of the other pool are no reason to try again.
    let start = std::time::Instant::now();
    let mut changes = 0;
    while start.elapsed() < std::time::Duration::from_secs(12) {
        changes += 1;
        cluster.config("infra", file("infra", &format!("2 {changes}"))).await;
        other = cluster.until_target("infra", &other).await;
    }
    let (_, body) = get(listener, "/metrics");
    let alerts =
        |body: &str| body.contains("machine_config_controller_pool_render_degraded{pool=\"worker\"} 1");
    assert!(alerts(&body), "{code}: {body}");
    let tried = proxy.mend();
    assert!((2..=5).contains(&tried[0]), "{code}: {tried:?} tries beside {changes} changes");
    assert_eq!(failures(&body, "RenderedConfig", "refused"), tried[0], "{code}");
    // Another input is tried at once.
    cluster.config("worker", file("worker", "3")).await;
    cluster.until_target("worker", &first).await;
    cluster.until_pool("worker", "rendered", |pool| !degraded(pool)).await;
    assert!(!alerts(&get(listener, "/metrics").1), "{code}");
}

/// The target of one pool can't be written: its condition says so, it is tried with growing pauses, and the other pool goes on.
#[tokio::test]
async fn refused_target_of_pool_is_told_and_tried_rarely() {
    for code in [403, 404, 409] {
        Box::pin(refused_target(code)).await;
    }
}

async fn refused_target(code: u16) {
    let (cluster, proxy) = behind_proxy().await;
    let file = |pool: &str, contents: &str| {
        MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, contents)
    };
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, file(pool, "1")).await;
    }
    let mut controller = cluster.start("a", &["--controllers", "render"]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    let other = cluster.until_target("infra", "").await;
    let words = "a webhook says no";
    let target = Seam::new(Method::PATCH, &["/machineconfigpools/worker?"]).with_body("configuration");
    proxy.fail(target, Failing::Refuses(code, words));
    for pool in ["worker", "infra"] {
        cluster.config(pool, file(pool, "2")).await;
    }
    let message = format!("spec.configuration of pool worker is refused: {words} ({code})");
    let is_told = |pool: &Value| {
        let found = condition(pool, "RenderDegraded");
        found["status"] == "True" && found["message"].as_str().unwrap().ends_with(&message)
    };
    cluster.until_pool("worker", &message, is_told).await;
    cluster.until_target("infra", &other).await;
    proxy.failed(3).await;
    page_until(listener, "/metrics", "it is counted", |_, body| failures(body, "PoolTarget", "refused") >= 3)
        .await;
    let tried = proxy.mend();
    assert!(tried[0] <= 5, "{code}: {tried:?}");
    cluster.until_target("worker", &first).await;
    cluster
        .until_pool("worker", "rendered", |pool| condition(pool, "RenderDegraded")["status"] == "False")
        .await;
}

/// The cordon of one node is refused: the pool says so, as of other writes to nodes.
#[tokio::test]
async fn refused_cordon_is_named_on_pool() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = three_nodes(&cluster).await;
    let _agents = Agents::start(&cluster.bench).await;
    let cordon = Seam::new(Method::PATCH, &["/api/v1/nodes/n1?"]).with_body("unschedulable");
    proxy.fail(cordon, Failing::Refuses(403, "a webhook says no"));
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    let words = "node n1 can't be cordoned or uncordoned, or its agent's request can't be answered: a webhook says no (403)";
    let is_named = |pool: &Value| {
        ["RolloutNodesNotWritten", "Degraded"].iter().all(|type_| {
            let found = condition(pool, type_);
            found["status"] == "True"
                && found["reason"] == "NodeWriteRefused"
                && found["message"].as_str().unwrap().contains(words)
        })
    };
    cluster.until_pool("worker", words, is_named).await;
    proxy.mend();
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "mended": "true" } } }));
    node_api(&cluster.client).patch("n1", &PatchParams::default(), &labels).await.unwrap();
    until_has(&cluster, "n1", &second).await;
    let is_over = |pool: &Value| condition(pool, "RolloutNodesNotWritten")["status"] == "False";
    cluster.until_pool("worker", "all is well", is_over).await;
}

/// A write to one node that hangs delays neither the other nodes nor the other pool.
#[tokio::test]
async fn hanging_write_to_node_delays_nobody() {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
    }
    let file = |pool: &str, contents: &str| {
        MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, contents)
    };
    cluster.config("worker", file("worker", "1")).await;
    cluster.config("infra", file("infra", "1")).await;
    cluster.patch_pool("worker", json!({ "spec": { "maxUnavailable": 2 } })).await;
    let _controller = cluster.start("a", &[]);
    let first = three_nodes(&cluster).await;
    let infra = cluster.until_target("infra", "").await;
    ready_node(&cluster.client, "i1", &infra).await;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "node-role.kubernetes.io/infra": "" } } }));
    node_api(&cluster.client).patch("i1", &PatchParams::default(), &label).await.unwrap();
    cluster.until_pool("infra", "its node", |pool| pool["status"]["readyMachineCount"] == 1).await;
    let _agents = Agents::start(&cluster.bench).await;
    proxy.fail(
        Seam::new(Method::PATCH, &["/api/v1/nodes/n1?"]).with_body("desiredConfig"),
        Failing::NeverAnswers,
    );
    cluster.config("worker", file("worker", "2")).await;
    let second = cluster.until_target("worker", &first).await;
    proxy.failed(1).await;
    let start = std::time::Instant::now();
    until_has(&cluster, "n2", &second).await;
    until_has(&cluster, "n3", &second).await;
    cluster.config("infra", file("infra", "2")).await;
    let next = cluster.until_target("infra", &infra).await;
    until_has(&cluster, "i1", &next).await;
    // A request is given up after 10 s.
    assert!(start.elapsed() < std::time::Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(proxy.mend(), [1], "and nobody asks twice meanwhile");
    until_has(&cluster, "n1", &second).await;
}

/// A leader that ends while the API server may still give a node its target keeps the Lease: the next one does not know of that write.
#[tokio::test]
async fn lease_is_not_released_over_open_target() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let controller = cluster.start("a", &["--lease", "open-target"]);
    let first = three_nodes(&cluster).await;
    let seam = Seam::new(Method::PATCH, &["/api/v1/nodes/"]).with_body("desiredConfig");
    proxy.fail(seam, Failing::AnswersLate);
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    proxy.failed(1).await;
    assert!(controller.terminate().await.success());
    let words =
        "Lease open-target is not released: the API server has not answered the write of a target to node n1";
    let lines = controller.lines();
    assert_eq!(lines.iter().filter(|line| line.contains(words)).count(), 1, "{lines:#?}");
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let lease = leases.get("open-target").await.unwrap();
    assert!(lease.spec.unwrap().holder_identity.unwrap().starts_with("a_"));
    // It comes after the end of who sent it.
    proxy.mend();
    let has_it = |node: &Node| annotation(node, "desiredConfig") == Some(&second);
    node_until(&cluster.client, "n1", "the target of the write that came late", has_it).await;
}

#[tokio::test]
async fn kind_that_may_not_be_read_is_named_and_makes_controller_unready() {
    if !own_only("refusals::kind_that_may_not_be_read_is_named_and_makes_controller_unready") {
        return;
    }
    let cluster = Cluster::new().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    cluster.bench.fault(&Fault::status(403).path(POLICIES).agent(CONTROLLER));
    let mark = cluster.bench.mark().await;
    let mut controller = cluster.start("a", &["--controllers", "node"]);
    let listener = listener(&mut controller).await;
    let unread = |pool: &Value| condition(pool, "RolloutProgressing")["reason"] == "Unread";
    let pool = cluster.until_pool("worker", "unread", unread).await;
    let words = "rolloutpolicies.machine-config-agent.io can't be read: the test says so (403); grant the controller's account";
    let message = condition(&pool, "Degraded")["message"].as_str().unwrap();
    assert!(message.contains(words), "{message}");
    assert_eq!(condition(&pool, "Degraded")["reason"], "Unread");
    let (code, body) = get(listener, "/readyz");
    assert_eq!(code, 503);
    assert!(body.contains(words), "{body}");
    let down = "machine_config_controller_watch_up{resource=\"rolloutpolicies.machine-config-agent.io\"} 0";
    page_until(listener, "/metrics", "the watch is down", |_, body| body.contains(down)).await;
    // Several tries are one line.
    let mut tries = 0;
    let is_third = |one: &crate::cluster::Request| {
        tries += usize::from(one.user == "controller" && one.resource == "rolloutpolicies");
        tries >= 3
    };
    cluster.bench.audit().since(mark, "the third try", is_third).await;
    let lines = controller.lines();
    let told = lines.iter().filter(|line| line.contains("rolloutpolicies")).count();
    assert_eq!(told, 1, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("recovered")), "{lines:#?}");
    cluster.bench.clear_faults();
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    cluster.until_pool("worker", "read", |pool| !unread(pool)).await;
    let up = down.replace("} 0", "} 1");
    page_until(listener, "/metrics", "the watch is up", |_, body| body.contains(&up)).await;
}

/// The Secrets of builds may not be read: `/readyz` and an Event of each `MachineOSConfig` say so, with the right to grant.
#[tokio::test]
async fn secrets_of_builds_that_may_not_be_read_are_named() {
    if !own_only("refusals::secrets_of_builds_that_may_not_be_read_are_named") {
        return;
    }
    let builds = Builds::new().await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    builds.cluster.bench.fault(&Fault::status(403).path(&path).agent(CONTROLLER));
    let mut controller = builds.start("a", &[]);
    let listener = listener(&mut controller).await;
    let words = "secrets can't be read: the test says so (403); grant the controller's account";
    page_until(listener, "/readyz", words, |code, text| code == 503 && text.contains(words)).await;
    let text = format!("MachineOSConfig worker is not built: {words}");
    until_event(&builds.cluster.client, "ConfigReconcileFailed", "worker", &text).await;
    builds.cluster.bench.clear_faults();
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    controller.line("The build controller runs").await;
}

/// A watch that starts again and has no change to tell is up all the same.
#[tokio::test]
async fn watch_without_changes_is_up_after_outage() {
    let cluster = Cluster::new().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    let mut controller = cluster.start("a", &["--controllers", "node"]);
    let listener = listener(&mut controller).await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    let state = |state: &str| {
        format!(
            "machine_config_controller_watch_up{{resource=\"rolloutpolicies.machine-config-agent.io\"}} {state}"
        )
    };
    cluster.bench.stop();
    page_until(listener, "/metrics", "the watch is down", |_, body| body.contains(&state("0"))).await;
    // What was read holds; nobody takes the replica away for an outage.
    assert_eq!(get(listener, "/readyz").0, 200);
    cluster.bench.start();
    page_until(listener, "/metrics", "the watch is up", |_, body| body.contains(&state("1"))).await;
}

#[tokio::test]
async fn program_that_sets_target_of_pool_back_is_named() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    cluster.config("worker", config("2")).await;
    cluster.until_target("worker", &first).await;
    let mark = cluster.bench.mark().await;
    let rival = cluster.bench.client("rival").await;
    let old = first.clone();
    let rival = tokio::spawn(async move {
        let pools = object_api(&rival, "machineconfigpools");
        let mut changes = pin!(changes(&pools, &ListParams::default()).await.unwrap());
        while let Some((pool, _)) = changes.next().await {
            if pool.data["spec"]["configuration"]["name"] != old.as_str() {
                let back = Patch::Merge(json!({ "spec": { "configuration": { "name": old } } }));
                drop(pools.patch("worker", &PatchParams::default(), &back).await);
            }
        }
    });
    let message = event(&cluster, "FieldContested").await;
    assert!(
        message.contains("spec.configuration of pool worker was written several times in a row"),
        "{message}"
    );
    let written = made(&cluster.bench, mark, "patch machineconfigpools").await;
    assert!(written <= 6, "{written} writes");
    rival.abort();
    // What nobody sets back any more is written.
    cluster.until_target("worker", &first).await;
}

/// The status of a policy can't be recorded: no node is given a target, and the pool says why.
#[tokio::test]
async fn refused_status_of_policy_stops_rollout_and_is_told_on_pool() {
    if !own_only("refusals::refused_status_of_policy_stops_rollout_and_is_told_on_pool") {
        return;
    }
    let cluster = Cluster::new().await;
    apply_definition(&cluster.client, "rolloutpolicies").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = three_nodes(&cluster).await;
    cluster.bench.fault(&Fault::status(403).method("PATCH").path(POLICIES).agent(CONTROLLER));
    let policy = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "worker" }, "spec": { "canary": { "nodes": 1 } },
    });
    let (code, answer) =
        crate::cluster::call(&cluster.client, "POST", POLICIES, Some(("application/json", policy))).await;
    assert_eq!(code, 200, "{answer}");
    let unrecorded = |pool: &Value| {
        condition(pool, "RolloutProgressing")["reason"] == "Unrecorded"
            && condition(pool, "Degraded")["reason"] == "Unrecorded"
    };
    let pool = cluster.until_pool("worker", "unrecorded", unrecorded).await;
    let message = condition(&pool, "Degraded")["message"].as_str().unwrap();
    assert!(message.contains("RolloutPolicy worker: its status can't be written"), "{message}");
    assert!(message.contains("the test says so (403)"), "{message}");
    assert!(event(&cluster, "StatusNotWritten").await.contains("RolloutPolicy worker"));
    cluster.config("worker", config("2")).await;
    let second = cluster.until_target("worker", &first).await;
    cluster.bench.clear_faults();
    let _agents = Agents::start(&cluster.bench).await;
    until_has(&cluster, "n1", &second).await;
    cluster.until_pool("worker", "recorded", |pool| !unrecorded(pool)).await;
}

/// The pool's own status is refused: an Event tells, and it is not written again and again.
#[tokio::test]
async fn refused_status_of_pool_is_told_as_event() {
    if !own_only("refusals::refused_status_of_pool_is_told_as_event") {
        return;
    }
    let cluster = Cluster::new().await;
    cluster.bench.fault(&Fault::status(403).method("PATCH").path(POOLS).agent(CONTROLLER));
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let mut controller = cluster.start("a", &["--controllers", "node"]);
    let listener = listener(&mut controller).await;
    let message = event(&cluster, "StatusNotWritten").await;
    assert_eq!(message, "The status of MachineConfigPool worker is refused: the test says so (403)");
    page_until(listener, "/metrics", "it is counted", |_, body| failures(body, "PoolStatus", "refused") > 0)
        .await;
    cluster.bench.clear_faults();
    let told = |pool: &Value| condition(pool, "RolloutProgressing")["reason"] == "NotRendered";
    cluster.until_pool("worker", "its status", told).await;
}

/// Without the namespace of Events, and beside a webhook that says no with a conflict: counted, and nothing waits for it.
#[tokio::test]
async fn refused_event_is_counted_and_holds_nothing() {
    for code in [404, 409] {
        let (cluster, proxy) = behind_proxy().await;
        cluster.pool("worker").await;
        let mut controller = cluster.start("a", &["--controllers", "render"]);
        let listener = listener(&mut controller).await;
        proxy.fail(Seam::new(Method::POST, &["/events?"]), Failing::Refuses(code, "no"));
        cluster.config("worker", config("1")).await;
        let first = cluster.until_target("worker", "").await;
        let bad = MachineConfigBuilder::new("70-bad").file("relative", 0o644, "1");
        cluster.config("worker", bad).await;
        cluster
            .until_pool("worker", "degraded", |pool| condition(pool, "RenderDegraded")["status"] == "True")
            .await;
        page_until(listener, "/metrics", "it is counted", |_, body| failures(body, "Event", "refused") > 0)
            .await;
        proxy.mend();
        cluster.config("worker", MachineConfigBuilder::new("70-bad").file("/etc/b", 0o644, "1")).await;
        cluster.until_target("worker", &first).await;
    }
}

/// Every write of the page that a rollout or a build makes is refused, counted by its name, told as the page says, and made afterwards.
#[tokio::test]
async fn each_write_that_is_refused_is_counted_and_made_later() {
    if own_only("refusals::each_write_that_is_refused_is_counted_and_made_later") {
        Box::pin(each_write_is_refused(403)).await;
    }
}

/// As that, with the codes of an object that is gone and of a conflict, while nothing else is there than what each write was decided by.
#[tokio::test]
async fn each_write_without_conflict_is_counted_and_made_later() {
    if own_only("refusals::each_write_without_conflict_is_counted_and_made_later") {
        for code in [404, 409] {
            Box::pin(each_write_is_refused(code)).await;
        }
    }
}

/// Makes a policy of the pool, and its kind.
async fn make_policy(client: &kube::Client) {
    apply_definition(client, "rolloutpolicies").await;
    let policy = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "worker" }, "spec": {},
    });
    // The server serves a new kind a moment later.
    within("the policy is there", async {
        let body = || Some(("application/json", policy.clone()));
        while !matches!(crate::cluster::call(client, "POST", POLICIES, body()).await.0, 200 | 409) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns true for a node whose agent got its last answer.
fn is_answered(node: &Node) -> bool {
    annotation(node, "lastAppliedDrain").is_some_and(|last| last.starts_with("uncordon-"))
}

/// Another pool is made and rendered, and once more.
async fn other_goes_on(cluster: &Cluster) {
    cluster.pool("infra").await;
    let mut last = String::new();
    for contents in ["1", "2"] {
        let config = MachineConfigBuilder::new("50-infra").file("/etc/a.conf", 0o644, contents);
        cluster.config("infra", config).await;
        last = cluster.until_target("infra", &last).await;
    }
}

async fn each_write_is_refused(code: u16) {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let (cluster, bench) = (&builds.cluster, &builds.cluster.bench);
    make_policy(&cluster.client).await;
    let mut controller = builds.start("a", &[]);
    let listener = listener(&mut controller).await;
    refuse_each(bench, code);
    let target = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &target).await;
    }
    let _agents = Agents::start(bench).await;
    for name in ["n1", "n2"] {
        node_until(&cluster.client, name, "the answer to its agent", is_answered).await;
    }
    // The other pool goes on.
    other_goes_on(cluster).await;
    // The next write to a node is its target.
    refuse(bench, code, "PATCH", "/api/v1/nodes/", 1);
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    // Without a Job's result the build goes no further than that.
    let build = first_build(&builds).await;
    let started = |one: &crate::cluster::Request| {
        one.user == "controller" && one.line().starts_with("patch jobs") && one.code == Some(200)
    };
    bench.audit().until("the Job is started", started).await;
    refuse(bench, code, "PATCH", &format!("{OS}machineosbuilds/{build}/status"), 1);
    let jobs = JobController::start(bench, Plays::Well).await;
    let (_, image) = builds.until_published("").await;
    for name in ["n1", "n2"] {
        let has = |node: &Node| annotation(node, "currentImage") == Some(&image);
        node_until(&cluster.client, name, "the image", has).await;
    }
    jobs.until_gone().await;
    builds.until_condition("False", "BuildSuccess").await;
    // A rebuild begins with an annotation.
    refuse(bench, code, "PATCH", &format!("{OS}machineosconfigs/worker"), 1);
    let rebuild = json!({ "metadata": { "annotations": { crate::cluster::key("rebuild"): "" } } });
    builds.patch_os_config(rebuild).await;
    page_until(listener, "/metrics", "the annotation is refused", |_, body| {
        failures(body, "OsConfigAnnotations", "refused") > 0
    })
    .await;
    told::until_all_are_told(&cluster.client, code).await;
    // The last one, so that none of those is lost.
    refuse(bench, code, "POST", "/api/v1/namespaces/default/events", 1);
    builds
        .until_os_config("it is made again", |config| {
            config["metadata"]["annotations"]["machineconfiguration.openshift.io/rebuild"].is_null()
        })
        .await;
    if code == 403 {
        page_until(listener, "/metrics", "an Event is refused", |_, body| {
            failures(body, "Event", "refused") > 0
        })
        .await;
    }
    bench.clear_faults();
    let (_, body) = get(listener, "/metrics");
    let mut unplayed = told::unplayed(&body);
    // A conflict of an Event is one that repeats.
    unplayed.retain(|write| code == 403 || *write != "Event");
    assert_eq!(unplayed, [""; 0], "{code}");
}

/// Waits for a build; returns its name.
async fn first_build(builds: &Builds) -> String {
    let all = builds.builds();
    within("a build", async {
        loop {
            let found = all.list(&ListParams::default()).await.unwrap().items.pop();
            match found.and_then(|build| build.metadata.name) {
                Some(name) => break name,
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

fn refuse(bench: &Bench, code: u16, method: &str, path: &str, count: u32) {
    bench.fault(&Fault::status(code).method(method).path(path).agent(CONTROLLER).count(count));
}

/// Refuses the first writes to each object; a path with a longer one before it is met by what that one leaves.
fn refuse_each(bench: &Bench, code: u16) {
    for (method, path, count) in [
        ("PATCH", format!("{POOLS}worker/status"), 12),
        ("PATCH", format!("{POOLS}worker"), 1),
        ("PATCH", format!("{POLICIES}/worker/status"), 1),
        ("POST", CONFIGS.to_owned(), 1),
        ("PATCH", "/api/v1/nodes/".to_owned(), 4),
        ("POST", format!("{OS}machineosbuilds"), 1),
        ("PATCH", format!("{OS}machineosbuilds/"), 1),
        ("PATCH", format!("{OS}machineosconfigs/worker/status"), 1),
        ("POST", "/apis/batch/v1/".to_owned(), 1),
        ("POST", "/api/v1/namespaces/openshift-machine-config-operator/".to_owned(), 1),
    ] {
        refuse(bench, code, method, &path, count);
    }
}
