//! Requests of the agent that fail (`tests/SEAMS.md`): one of many is refused, or never answered. The rest goes on, it is told, and
//! it is made later.

use crate::cluster::scene::{DRAINED, Scene};
use crate::cluster::{Bench, Fault, Gates, Kubelet, Request, call, own_only, pod_gone, running_pod};
use crate::mcn_asserts::scene;
use serde_json::json;

const SINGLE: [(&str, &str); 1] = [("controlPlaneTopology", "SingleReplica")];

/// A patch of the Node that the server refuses: the update goes on, log and `status` have the server's words as long as the cluster has an
/// older report, and it is written with pauses until it is taken.
#[tokio::test]
async fn refused_report_is_told_and_written_again() {
    if !own_only("refused_report_is_told_and_written_again") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "seams-refused", &SINGLE).await;
    let mut agent = scene.agent(&[]);
    scene.settled("a").await;
    bench.fault(&Fault::status(403).path("/api/v1/nodes/").method("PATCH").agent("machine-config-agent"));
    scene.want("b").await;
    agent.line("the refusal", |line| line.contains("403") && line.contains("the test says so")).await;
    let refused = "  report   not published since ";
    let status = scene.status(|text| text.contains(refused) && text.contains("is Done")).await;
    assert!(status.contains("403") && status.contains("the test says so"), "{status}");
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("later"));
    let hint = std::fs::read_to_string(scene.path("run/motd.d/90-machine-config-agent.motd")).unwrap();
    assert!(hint.contains("this node's report is not published since "), "{hint}");
    let met: u64 = bench.clear_faults().iter().sum();
    assert!((1..=30).contains(&met), "it is repeated, with pauses: {met}");
    scene.settled("b").await;
    scene.status(|text| !text.contains(refused)).await;
}

/// Requests of the agent's own drain that are never answered: each ends after its limit, the other pods leave meanwhile, and the drain
/// ends by itself once the server answers.
#[tokio::test]
async fn own_drain_goes_on_past_requests_without_answer() {
    if !own_only("own_drain_goes_on_past_requests_without_answer") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = scene(&bench, "seams-drain", DRAINED).await;
    let space = "seams-drain-pods";
    let body = json!({ "metadata": { "name": space } });
    assert_eq!(
        call(&scene.client, "POST", "/api/v1/namespaces", Some(("application/json", body))).await.0,
        200
    );
    let _kubelet = Kubelet::start(&bench, &scene.name).await;
    for name in ["one", "two", "silent"] {
        running_pod(&scene.client, space, name, &scene.name, json!({})).await;
    }
    let _agent = scene.agent(&["--drain", "self"]);
    scene.updated("a").await;
    let of_agent = |fault: Fault| fault.agent("machine-config-agent");
    // The list of the pods, once, and each eviction of one of them.
    bench.fault(&of_agent(Fault::held().method("GET").path("/api/v1/pods")).count(1));
    let eviction = format!("/api/v1/namespaces/{space}/pods/silent/eviction");
    bench.fault(&of_agent(Fault::held().method("POST").path(&eviction)));
    let mark = bench.mark().await;
    scene.want("b").await;
    for name in ["one", "two"] {
        pod_gone(&scene.client, space, name).await;
    }
    let waits = |text: &str| text.contains("silent");
    scene.status(waits).await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
    assert!(bench.clear_faults().iter().all(|met| *met >= 1));
    pod_gone(&scene.client, space, "silent").await;
    scene.updated("b").await;
    let evictions = |one: &&Request| one.subresource == "eviction";
    let requested = scene.requests(mark).await;
    let count = requested.iter().filter(evictions).count();
    assert!(count <= 6, "{count} evictions of three pods");
}

/// An eviction of a pod that runs is answered with 404, as a webhook may: the pod is looked at, named, and evicted once the answer is
/// another one; the update waits for it.
#[tokio::test]
async fn own_drain_waits_for_pod_that_is_said_to_be_gone() {
    if !own_only("own_drain_waits_for_pod_that_is_said_to_be_gone") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = scene(&bench, "seams-gone", DRAINED).await;
    let _kubelet = Kubelet::start(&bench, &scene.name).await;
    for name in ["leaves", "stays"] {
        running_pod(&scene.client, "default", name, &scene.name, json!({})).await;
    }
    let _agent = scene.agent(&["--drain", "self"]);
    scene.updated("a").await;
    let eviction = "/api/v1/namespaces/default/pods/stays/eviction";
    bench.fault(&Fault::status(404).method("POST").path(eviction).agent("machine-config-agent"));
    scene.want("b").await;
    pod_gone(&scene.client, "default", "leaves").await;
    scene.status(|text| text.contains("stays") && text.contains("but it exists")).await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"), "nothing is written beside the pod");
    assert!(bench.clear_faults().iter().all(|met| *met >= 1));
    pod_gone(&scene.client, "default", "stays").await;
    scene.updated("b").await;
}

/// Each status that an eviction without a budget may be answered with: `status` has the words of its cause, never that the server can't be
/// reached, and the pod leaves once it is answered well.
#[tokio::test]
async fn own_drain_tells_failed_evictions_by_their_cause() {
    const BUSY: &str = "is not evicted yet: the API server is busy: ";
    const FAILED: &str = "is not evicted yet: the API server failed: ";
    if !own_only("own_drain_tells_failed_evictions_by_their_cause") {
        return;
    }
    let codes = [(429, BUSY), (503, BUSY), (500, FAILED), (504, FAILED), (403, "can't be evicted: ")];
    let bench = Bench::private(Gates::Default);
    let scene = scene(&bench, "seams-codes", DRAINED).await;
    let _kubelet = Kubelet::start(&bench, &scene.name).await;
    let _agent = scene.agent(&["--drain", "self"]);
    scene.updated("a").await;
    for ((code, said), letter) in codes.into_iter().zip(["b", "a"].into_iter().cycle()) {
        let pod = format!("of-{code}");
        running_pod(&scene.client, "default", &pod, &scene.name, json!({})).await;
        let eviction = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        bench.fault(&Fault::status(code).method("POST").path(&eviction).agent("machine-config-agent"));
        scene.want(letter).await;
        let words = format!("pod default/{pod} {said}the test says so ({code})");
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let status = scene.status(|text| flat(text).contains(&words)).await;
        assert!(!flat(&status).contains("can't be reached"), "{status}");
        assert!(bench.clear_faults().iter().all(|met| *met >= 1));
        pod_gone(&scene.client, "default", &pod).await;
        scene.updated(letter).await;
    }
}
