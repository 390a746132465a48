//! The agent as a process against a real API server: the Node's annotations, the one watch and the way back to it, the
//! drain hand-shake.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::cluster::scene::{DRAINED, QUIET, Scene, condition};
use crate::cluster::{
    Behaviour, Bench, Connections, DisruptionController, DrainController, Fault, Gates, Identity, Kubelet,
    Request, annotation, call, create_node, key, node_api, node_until, object_api, own_only, retarget,
    running_pod, within,
};
use crate::fake_control_plane::os::{Played, StageResult, image};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use machine_config_agent::agent::{Agent, ExitReason, ProcessSignals};
use machine_config_agent::control::kube::{Cluster, DrainBy, Identity as Access};
use machine_config_agent::host::{BoxFuture, FailPoints, Host, Root};
use machine_config_agent::journal::Journal;
use machine_config_agent::model::observation::{Booted, EmbeddedConfig, LocalPackages, ObservedOs};
use machine_config_agent::telemetry::metrics::{HostLabels, Metrics};
use machine_config_agent::telemetry::notify::Notify;
use machine_config_agent::telemetry::readiness::Readiness;
use machine_config_agent::telemetry::{LastReport, Telemetry};
use serde_json::{Value, json};

const SINGLE: [(&str, &str); 1] = [("controlPlaneTopology", "SingleReplica")];

fn lines(requests: &[Request]) -> Vec<String> {
    requests.iter().map(Request::line).collect()
}

fn text<'a>(patch: &'a serde_json::Map<String, Value>, key: &str) -> Option<&'a str> {
    patch.get(key).and_then(Value::as_str)
}

/// ANN-002, ANN-003, ANN-004, ANN-005, ANN-008, MCD-026, MCD-031, MCD-032, MCD-033, MCD-034, MCD-035: a file-only
/// update is Working alone, then Done in one patch; nothing of the controllers' is written; image keys that mean nothing
/// go.
#[tokio::test]
async fn update_is_two_patches_of_node() {
    let bench = Bench::shared();
    let stale = [("currentImage", "old.test/os"), ("desiredImage", ""), ("firstPivotConfig", "keep")];
    let scene = Scene::with_drained(bench, "link-update", &stale).await;
    let _agent = scene.agent(&[]);
    let node = scene.settled("a").await;
    assert_eq!(annotation(&node, "currentImage"), None);
    assert_eq!(annotation(&node, "desiredImage"), None);
    assert_eq!(annotation(&node, "firstPivotConfig"), Some("keep"));
    scene
        .patch(json!({ "metadata": { "annotations": { key("controlPlaneTopology"): "SingleReplica" } } }))
        .await;
    scene.want("b").await;
    scene.settled("b").await;
    let mark = bench.mark().await;
    // The drained file does not differ between b and c: this is the way without a drain.
    scene.want("c").await;
    scene.settled("c").await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("c"));
    let patches = scene.written(mark).await;
    assert_eq!(patches.len(), 2, "{patches:?}");
    assert_eq!(Value::Object(patches[0].clone()), json!({ "state": "Working" }));
    assert_eq!(text(&patches[1], "state"), Some("Done"));
    assert_eq!(text(&patches[1], "currentConfig"), Some(scene.config("c").as_str()));
    assert_eq!(patches[1].keys().collect::<Vec<_>>(), ["currentConfig", "state"]);
    let requests = scene.requests(mark).await;
    assert!(requests.len() <= 12, "{:?}", requests.iter().map(Request::line).collect::<Vec<_>>());
}

/// The policy is requested while the MachineConfig is on its way.
#[tokio::test]
async fn config_and_policy_are_requested_together() {
    if !own_only("config_and_policy_are_requested_together") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-together", &SINGLE).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    let configs = "/apis/machineconfiguration.openshift.io/v1/machineconfigs/";
    bench.fault(&Fault::held().path(&format!("{configs}{}", scene.config("b"))));
    let before: BTreeSet<String> = bench.audit().all().into_iter().map(|request| request.id).collect();
    scene.want("b").await;
    let user = format!("system:node:{}", scene.name);
    let policy = |request: &Request| {
        request.user == user && request.resource == "machineconfigurations" && !before.contains(&request.id)
    };
    bench.audit().until("the policy is requested", policy).await;
    bench.clear_faults();
    scene.settled("b").await;
}

/// ANN-001, ANN-011, MCD-020: a heartbeat, a label, a foreign annotation, another node cost no request, and are not lost.
#[tokio::test]
async fn heartbeat_costs_nothing() {
    let bench = Bench::shared();
    let scene =
        Scene::with_drained(bench, "link-heartbeat", &[("controlPlaneTopology", "SingleReplica")]).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    scene.want("b").await;
    scene.settled("b").await;
    let mark = bench.mark().await;
    scene.want("c").await;
    scene.settled("c").await;
    let plain = scene.requests(mark).await.len();
    let mark = bench.mark().await;
    for beat in 0..5 {
        let metadata = json!({ "annotations": { "node.alpha/beat": beat.to_string() }, "labels": { "beat": beat.to_string() } });
        scene.patch(json!({ "metadata": metadata })).await;
    }
    create_node(&scene.client, "link-heartbeat-other", &[("desiredConfig", "rendered-none")]).await;
    // Behind all of these, the same work as before.
    scene.want("b").await;
    let node = scene.settled("b").await;
    let requests = scene.requests(mark).await;
    assert_eq!(requests.len(), plain, "{:?}", requests.iter().map(Request::line).collect::<Vec<_>>());
    assert_eq!(node.metadata.annotations.unwrap()["node.alpha/beat"], "4");
}

/// Item 14 of issue 10: after the first answer that takes longer than the limit the others are waited for, whatever comes
/// fast in between: nothing is sent twice, and no more than to a fast server.
#[tokio::test]
async fn slow_api_server_receives_no_request_twice() {
    if !own_only("slow_api_server_receives_no_request_twice") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-slow", &SINGLE).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    // Both configs once, so that their events are there already, and what was fetched is kept.
    for letter in ["b", "c", "b"] {
        scene.want(letter).await;
        scene.settled(letter).await;
    }
    let mark = bench.mark().await;
    scene.want("c").await;
    scene.settled("c").await;
    let fast = lines(&scene.requests(mark).await);
    // Longer than the first limit.
    let late = Fault::late(Duration::from_secs(12)).agent("machine-config-agent").count(1);
    bench.fault(&late.clone().path("/apis/machineconfiguration.openshift.io/v1/machineconfigs"));
    bench.fault(&late.path("/api/v1/nodes/").method("PATCH"));
    let mark = bench.mark().await;
    scene.want("b").await;
    scene.settled("b").await;
    let slow = lines(&scene.requests(mark).await);
    assert_eq!(bench.clear_faults(), [1, 1]);
    assert_eq!(slow.len(), fast.len(), "{slow:?}\n{fast:?}");
}

/// ANN-006, ANN-010, MCD-028: keys that disagree, and an image that is no digest, are reported with their values; the host
/// is as before; the correction leads straight to Done.
#[tokio::test]
async fn conflicting_image_keys_degrade_node() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-disagree", &[]).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let image = |digit: &str| format!("reg.test/os@sha256:{}", digit.repeat(64));
    let set = |image: Value, alias: Value| {
        json!({ "metadata": { "annotations": {
            key("desiredConfig"): scene.config("b"), key("desiredImage"): image, key("desiredOSImage"): alias } } })
    };
    let degraded = |node: &Node| annotation(node, "state") == Some("Degraded");
    scene.patch(set(json!(image("a")), json!(image("b")))).await;
    let node = scene.until("Degraded", degraded).await;
    let reason = annotation(&node, "reason").unwrap().to_owned();
    assert!(reason.contains("AmbiguousImage"), "{reason}");
    assert!(reason.contains(&image("a")) && reason.contains(&image("b")), "{reason}");
    scene.patch(set(json!("reg.test/os:latest"), Value::Null)).await;
    scene
        .until("the tag", |node| annotation(node, "reason").is_some_and(|reason| reason.contains("latest")))
        .await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    scene.patch(set(Value::Null, Value::Null)).await;
    scene.want("a").await;
    let node = scene.done("a").await;
    assert_eq!(annotation(&node, "reason"), Some(""));
}

/// MCD-021, MCD-023: while there is no Node nothing is written; the one that is created again gets what is committed.
#[tokio::test]
async fn node_is_created_again() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-again", &[]).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let mark = bench.mark().await;
    node_api(&scene.client).delete(&scene.name, &DeleteParams::default()).await.unwrap();
    create_node(&scene.client, &scene.name, &[]).await;
    scene.done("a").await;
    let patches = scene.written(mark).await;
    assert_eq!(patches.len(), 1, "{patches:?}");
    scene.want("a").await;
}

/// MCD-021: a Node that is being deleted is not written, whatever its annotations; its successor is.
#[tokio::test]
async fn terminating_node_is_not_written() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-deleting", &SINGLE).await;
    scene.patch(json!({ "metadata": { "finalizers": ["bench.test/keep"] } })).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    node_api(&scene.client).delete(&scene.name, &DeleteParams::default()).await.unwrap();
    let mark = bench.mark().await;
    scene.want("b").await;
    scene.patch(json!({ "metadata": { "finalizers": null } })).await;
    let desired = scene.config("c");
    let created = create_node(&scene.client, &scene.name, &[SINGLE[0], ("desiredConfig", &desired)]).await;
    scene.settled("c").await;
    let uid = created.metadata.uid.unwrap();
    let requests = scene.requests(mark).await;
    let patches = requests.iter().filter(|one| one.verb == "patch" && one.resource == "nodes");
    let uids: Vec<_> = patches.map(|one| one.body.as_ref().unwrap()["metadata"]["uid"].clone()).collect();
    assert!(!uids.is_empty() && uids.iter().all(|one| *one == uid.as_str()), "{uids:?}");
}

/// ANN-003: `Working` is in the cluster before anything of the update is on the host: while it is not answered, nothing is.
#[tokio::test]
async fn working_is_visible_before_first_change() {
    if !own_only("working_is_visible_before_first_change") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-first", &SINGLE).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    let agent = "machine-config-agent";
    bench.fault(&Fault::held().method("PATCH").path("/api/v1/nodes/link-first").agent(agent));
    let mark = bench.mark().await;
    scene.want("b").await;
    let held = |one: &Request| {
        one.verb == "patch" && one.name == scene.name && one.code.is_none() && one.agent.starts_with(agent)
    };
    bench.audit().until("the patch", held).await;
    // The kernel's time of a file may be a tick behind.
    let before = std::time::SystemTime::now() - std::time::Duration::from_millis(10);
    bench.clear_faults();
    scene.settled("b").await;
    let written = std::fs::metadata(scene.path(&format!("{QUIET}/{}", scene.name))).unwrap();
    assert!(written.modified().unwrap() >= before, "{written:?} {before:?}");
    let patches = scene.written(mark).await;
    assert_eq!(text(&patches[0], "state"), Some("Working"), "{patches:?}");
}

/// MCD-022, MCD-025, MCD-229, W-11: a new Node gets every annotation of its provisioning, and the file serves once.
#[tokio::test]
async fn provisioning_names_first_config() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-provisioned", &[]).await;
    node_api(&scene.client).delete(&scene.name, &DeleteParams::default()).await.unwrap();
    create_node(&scene.client, &scene.name, &[]).await;
    let directory = scene.host.path().join("etc/machine-config-daemon");
    std::fs::create_dir_all(&directory).unwrap();
    let first = scene.config("a");
    let file = json!({ key("currentConfig"): first, key("desiredConfig"): first, key("firstPivotConfig"): first,
        key("state"): "Done" });
    std::fs::write(directory.join("node-annotations.json"), file.to_string()).unwrap();
    let _agent = scene.agent(&[]);
    scene.until("its annotations", |node| annotation(node, "firstPivotConfig") == Some(first.as_str())).await;
    // Before there is work: a drain that has begun is awaited.
    scene
        .patch(json!({ "metadata": { "annotations": { key("controlPlaneTopology"): "SingleReplica" } } }))
        .await;
    scene.want("b").await;
    scene.done("b").await;
    // It is put away before the next work begins.
    scene.want("c").await;
    scene.done("c").await;
    assert!(!directory.join("node-annotations.json").exists());
    assert!(directory.join("node-annotation.json.bak").exists());
}

/// A power cut leaves an empty file of annotations: a new Node gets those of the host's config, and its state; without a config
/// the file is named, and serves once it is valid.
#[tokio::test]
async fn damaged_annotations_of_provisioning_hold_nothing_back() {
    let bench = Bench::shared();
    for (name, committed) in [("link-damaged", true), ("link-damaged-new", false)] {
        let scene = Scene::with_drained(bench, name, &SINGLE).await;
        let first = scene.config("a");
        if committed {
            let _agent = scene.agent(&[]);
            scene.done("a").await;
        }
        node_api(&scene.client).delete(&scene.name, &DeleteParams::default()).await.unwrap();
        create_node(&scene.client, &scene.name, &SINGLE).await;
        let directory = scene.host.path().join("etc/machine-config-daemon");
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("node-annotations.json");
        std::fs::write(&file, "").unwrap();
        let mut agent = scene.agent(&[]);
        if !committed {
            agent.line("the damaged file", |line| line.contains("node-annotations.json")).await;
            let file_again = json!({ key("currentConfig"): first, key("desiredConfig"): first });
            std::fs::write(&file, file_again.to_string()).unwrap();
        }
        scene.until("its config", |node| annotation(node, "desiredConfig") == Some(first.as_str())).await;
        scene.done("a").await;
        // It is put away before the next work begins.
        scene.want("b").await;
        scene.done("b").await;
        assert!(!file.exists());
    }
}

/// W-8's counterpart, MCD-048, MCD-050, MCD-055, DRN-006: nothing is written before the answer, however another request
/// was answered; afterwards the node takes workload again before it is Done.
#[tokio::test]
async fn drain_is_requested_and_awaited() {
    for (name, behaviour) in [("link-delay", Behaviour::Delay), ("link-stale", Behaviour::Stale)] {
        let bench = Bench::shared();
        let scene = Scene::with_drained(bench, name, &[]).await;
        let mut drains = DrainController::start(bench, name, behaviour).await;
        let _agent = scene.agent(&[]);
        scene.done("a").await;
        scene.want("b").await;
        drains.until(&format!("drain-{}", scene.config("b"))).await;
        if name == "link-stale" {
            let other = Some("drain-rendered-of-another-time");
            scene.until("the stale answer", |node| annotation(node, "lastAppliedDrain") == other).await;
        }
        assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
        drains.release();
        let node = scene.done("b").await;
        assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("later"));
        assert_ne!(node.spec.unwrap().unschedulable, Some(true));
        let asked = ["drain", "uncordon"].map(|verb| format!("{verb}-{}", scene.config("b")));
        assert_eq!(drains.requests(), asked);
    }
}

/// Something comes in the way of the update while its drain is open: the update is undone, the node takes its workload back, and the
/// fault stays until it is gone.
#[tokio::test]
async fn node_is_uncordoned_when_obstacle_comes_during_drain() {
    let bench = Bench::shared();
    for mode in ["controller", "self"] {
        let scene = Scene::with_drained(bench, &format!("link-way-{mode}"), &[]).await;
        let way = format!("{DRAINED}/{}-way", scene.name);
        scene.builder("way", "a", "a").file(&way, 0o644, "new").create(&scene.client).await;
        let mut agent = scene.agent(&["--drain", mode]);
        agent.host_changes_meanwhile();
        scene.settled("a").await;
        let mut open = OpenDrain::start(&scene, mode == "self").await;
        let mark = bench.mark().await;
        scene.want("way").await;
        open.until_open(&scene).await;
        std::fs::create_dir_all(scene.path(&format!("{way}/in"))).unwrap();
        open.end(&scene).await;
        let is_held = |node: &Node| {
            let reason = annotation(node, "reason").unwrap_or_default();
            let is_schedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true);
            is_schedulable && annotation(node, "state") != Some("Working") && reason.contains(&way)
        };
        let node = scene.until("the node is held and schedulable", is_held).await;
        let state = annotation(&node, "state").unwrap().to_owned();
        assert!(["Degraded", "Unreconcilable"].contains(&state.as_str()), "{mode}: {state}");
        assert_eq!(annotation(&node, "currentConfig"), Some(scene.config("a").as_str()), "{mode}");
        assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"), "{mode}");
        let cordoned_by = "machine-config-agent.io/cordoned-by";
        assert!(!node.metadata.annotations.as_ref().unwrap().contains_key(cordoned_by), "{mode}");
        if mode == "controller" {
            let requested = scene.written(mark).await;
            let uncordon = format!("uncordon-{}", scene.config("a"));
            let is_it = |patch: &serde_json::Map<_, _>| text(patch, "desiredDrain") == Some(&uncordon);
            assert!(requested.iter().any(is_it), "{requested:?}");
        }
        std::fs::remove_dir_all(scene.path(&way)).unwrap();
        let node = scene.done("way").await;
        assert_eq!(annotation(&node, "reason"), Some(""), "{mode}");
        assert_eq!(std::fs::read_to_string(scene.path(&way)).unwrap(), "new", "{mode}");
    }
}

/// A drain that ends when the test says so: by its controller's answer, or by the budget of a pod.
enum OpenDrain {
    Controller(DrainController),
    Pod { space: String, _kubelet: Kubelet, _disruptions: DisruptionController },
}

impl OpenDrain {
    async fn start(scene: &Scene<'_>, by_itself: bool) -> Self {
        if !by_itself {
            return Self::Controller(
                DrainController::start(scene.bench, &scene.name, Behaviour::Delay).await,
            );
        }
        let space = format!("{}-pods", scene.name);
        let create = async |path: &str, body: Value| {
            let (code, answer) = call(&scene.client, "POST", path, Some(("application/json", body))).await;
            assert_eq!(code, 200, "{answer}");
        };
        create("/api/v1/namespaces", json!({ "metadata": { "name": space } })).await;
        let kubelet = Kubelet::start(scene.bench, &scene.name).await;
        let disruptions = DisruptionController::start(scene.bench, &space).await;
        let labels = json!({ "labels": { "app": "kept" } });
        running_pod(&scene.client, &space, "kept", &scene.name, labels).await;
        let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "kept" } } });
        let budget = json!({ "metadata": { "name": "budget" }, "spec": spec });
        create(&budgets(&space), budget).await;
        Self::Pod { space, _kubelet: kubelet, _disruptions: disruptions }
    }

    async fn until_open(&mut self, scene: &Scene<'_>) {
        match self {
            Self::Controller(drains) => drains.until(&format!("drain-{}", scene.config("way"))).await,
            Self::Pod { space, .. } => {
                let kept = format!("pod {space}/kept is kept by its PodDisruptionBudget");
                let waits = |mcn: &Value| {
                    condition(mcn, "Drained")["message"].as_str().is_some_and(|text| text.contains(&kept))
                };
                scene.mcn("the budget's pod is named", waits).await;
            }
        }
    }

    /// Ends it, and lets later ones pass.
    async fn end(&self, scene: &Scene<'_>) {
        match self {
            Self::Controller(drains) => (0..2).for_each(|_| drains.release()),
            Self::Pod { space, .. } => {
                let budget = format!("{}/budget", budgets(space));
                assert_eq!(call(&scene.client, "DELETE", &budget, None).await.0, 200);
            }
        }
    }
}

fn budgets(space: &str) -> String {
    format!("/apis/policy/v1/namespaces/{space}/poddisruptionbudgets")
}

/// W-8: a node that takes workload again with its drain's answer is drained once more, in a way that is answered.
#[tokio::test]
async fn uncordoned_node_is_drained_once_more() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-uncordoned", &[]).await;
    let mut drains = DrainController::start(bench, &scene.name, Behaviour::AdminUncordons).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    scene.want("b").await;
    drains.until(&format!("uncordon-{}", scene.config("b"))).await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
    let drain = format!("drain-{}", scene.config("b"));
    assert_eq!(drains.requests()[0], drain);
}

/// A drain that is answered without a cordon, again and again, is not requested without end: each further request waits
/// longer, the node says who is to be looked at, and it goes on once the node is cordoned.
#[tokio::test]
async fn drains_without_cordon_become_fault() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-unheld", &[]).await;
    let drains = DrainController::start(bench, &scene.name, Behaviour::AdminUncordons).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let mark = bench.mark().await;
    scene.want("b").await;
    let node = scene.until("Degraded", |node| annotation(node, "state") == Some("Degraded")).await;
    let reason = annotation(&node, "reason").unwrap();
    assert!(reason.starts_with("FailedToDrain") && reason.contains("is schedulable after each"), "{reason}");
    // Four drains, each with its uncordon between.
    let requests = scene.requests(mark).await;
    let asked = scene.written(mark).await.iter().filter(|patch| patch.contains_key("desiredDrain")).count();
    assert_eq!((asked, drains.requests().len()), (7, 7), "{:?}", drains.requests());
    assert!(requests.len() <= 45, "{:?}", requests.iter().map(Request::line).collect::<Vec<_>>());
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
    drop(drains);
    // The mended controller answers what is asked next.
    let _mended = DrainController::start(bench, &scene.name, Behaviour::Echo).await;
    let node = scene.done("b").await;
    assert_eq!(annotation(&node, "reason"), Some(""));
}

/// ANN-012: a new target during the wait for the drain is taken at once; of the old one nothing was written.
#[tokio::test]
async fn new_target_during_drain_is_noticed() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "link-retarget", &[]).await;
    let mut drains = DrainController::start(bench, &scene.name, Behaviour::Late).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    scene.want("b").await;
    drains.until(&format!("drain-{}", scene.config("b"))).await;
    scene.want("c").await;
    // The controller answers the first request only when this one is there.
    drains.until(&format!("drain-{}", scene.config("c"))).await;
    scene.done("c").await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("c"));
}

/// MCD-052: an API server that fails or goes away while a drain is waited for ends neither the wait nor the drain, which is
/// asked for once.
#[tokio::test]
async fn errors_do_not_end_wait_for_drain() {
    if !own_only("errors_do_not_end_wait_for_drain") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-waits", &[]).await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let mark = bench.mark().await;
    scene.want("b").await;
    let asked = format!("drain-{}", scene.config("b"));
    scene.until("the drain", |node| annotation(node, "desiredDrain") == Some(asked.as_str())).await;
    bench.fault(&Fault::status(500).path("/api/v1/nodes").agent("machine-config-agent"));
    bench.connections(Connections::Dropped);
    let failed = |one: &Request| one.code == Some(500) && one.agent.starts_with("machine-config-agent");
    bench.audit().until("a look that fails", failed).await;
    bench.clear_faults();
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
    let drains = DrainController::start(&bench, "link-waits", Behaviour::Echo).await;
    scene.done("b").await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("later"));
    let written = scene.written(mark).await;
    let drain = written.iter().filter(|patch| text(patch, "desiredDrain") == Some(asked.as_str()));
    assert_eq!(drain.count(), 1, "{written:?}");
    assert!(!written.iter().any(|patch| text(patch, "state") == Some("Degraded")), "{written:?}");
    assert_eq!(drains.requests(), [asked, format!("uncordon-{}", scene.config("b"))]);
}

/// MCD-094: a policy whose last change the operator has not merged is waited for, however long; nothing is written.
#[tokio::test]
async fn policy_is_awaited_until_it_is_merged() {
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-policy", &SINGLE).await;
    let mut agent = scene.agent(&[]);
    scene.settled("a").await;
    let api = object_api(&scene.client, "machineconfigurations");
    let entry = |path: &str| json!({ "path": path, "actions": [{ "type": "None" }] });
    let files = json!({ "files": [entry(QUIET), entry(DRAINED), entry("/etc/mca-other")] });
    let patch = Patch::Merge(json!({ "spec": { "nodeDisruptionPolicy": files } }));
    let changed = api.patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    let generation = changed.metadata.generation.unwrap();
    assert!(generation > 1, "{generation}");
    let merged = async |generation: i64| {
        let policy = json!({ "clusterPolicies": files });
        let status = json!({ "observedGeneration": generation, "nodeDisruptionPolicyStatus": policy });
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
    };
    merged(generation - 1).await;
    let before = bench.audit().all().iter().filter(|one| one.resource == "machineconfigurations").count();
    scene.want("b").await;
    agent.line("the wait", |line| line.contains("the operator has not merged its last change yet")).await;
    // It is fetched again meanwhile, without an event.
    let mut seen = BTreeSet::new();
    let looks = |one: &Request| {
        if one.verb == "get" && one.resource == "machineconfigurations" && one.code == Some(200) {
            seen.insert(one.id.clone());
        }
        seen.len() >= before + 3
    };
    bench.audit().until("three more looks", looks).await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    assert_ne!(annotation(&node, "state"), Some("Degraded"));
    merged(generation).await;
    scene.done("b").await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("b"));
}

/// Runs the agent's loop on a fake OS in this process, until the loop ends or the node is Done and all is reported.
async fn lived(scene: &Scene<'_>, os: Played, letter: &str) -> Option<ExitReason> {
    let root = Root::open(scene.host.path()).unwrap();
    let host = Host { os: Box::new(os), ..Host::in_directory(root, FailPoints::off()) };
    let access = Access::kubeconfig(std::slice::from_ref(&scene.kubeconfig)).unwrap();
    let cluster = Cluster::start(access, &scene.name, host.root.clone(), DrainBy::Controller).unwrap();
    let journal = Journal::open(host.root.clone(), FailPoints::off()).unwrap();
    let telemetry = Telemetry {
        notify: Notify::default(),
        metrics: Metrics::new(HostLabels::default(), Vec::new()),
        readiness: Readiness::default(),
        last: LastReport::default(),
    };
    let mut agent = Agent::new(host, journal, cluster, telemetry, ProcessSignals::never(), &scene.name);
    tokio::select! {
        end = Box::pin(agent.run()) => Some(end.unwrap()),
        _ = scene.settled(letter) => None,
    }
}

/// MCD-228: where the provisioned config names another image than the one that runs, the node is switched to it and
/// rebooted; what the provisioning left stays until the node runs it. OCL-020: for an image the agent requests neither a
/// `MachineOSConfig` nor a `MachineOSBuild`, so it needs no such kinds.
#[tokio::test]
async fn provisioned_image_is_switched_to_before_file_goes() {
    let bench = Bench::shared();
    let scene = Scene::set(bench, "link-first-image", &[]).await;
    let (runs, desired, mark) = (image("a"), image("b"), bench.mark().await);
    scene.builder("first", "a", "a").os_image_url(&desired.to_string()).create(&scene.client).await;
    node_api(&scene.client).delete(&scene.name, &DeleteParams::default()).await.unwrap();
    // The controllers' word, not the file's: the policy for kubelets refuses it from the agent.
    create_node(&scene.client, &scene.name, &SINGLE).await;
    let directory = scene.host.path().join("etc/machine-config-daemon");
    std::fs::create_dir_all(&directory).unwrap();
    let first = scene.config("first");
    let file = json!({ key("currentConfig"): first, key("desiredConfig"): first, key("state"): "Done" });
    let (pending, kept) =
        (directory.join("node-annotations.json"), directory.join("node-annotation.json.bak"));
    std::fs::write(&pending, file.to_string()).unwrap();

    let pulled = Rc::new(Cell::new(0));
    let counted = Rc::clone(&pulled);
    let pull = move || {
        counted.set(counted.get() + 1);
        let done: BoxFuture<'static, StageResult> = Box::pin(async { Ok(()) });
        done
    };
    let os = Played { pulled: Box::new(pull), ..Played::running(runs) };
    assert_eq!(Box::pin(within("the reboot", lived(&scene, os, "first"))).await, Some(ExitReason::Reboot));
    assert_eq!(pulled.get(), 1);
    assert!(pending.exists() && !kept.exists(), "it is needed until the node runs the image");
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    assert_eq!(annotation(&node, "currentConfig"), Some(first.as_str()));
    assert_ne!(annotation(&node, "state"), Some("Done"));

    scene.boot(2);
    let os = Played::running(desired.clone());
    let booted = Booted {
        image: Some(desired),
        deployment: "os-2.0".to_owned(),
        carries: EmbeddedConfig::Unknown,
        local: LocalPackages::default(),
    };
    *os.seen.borrow_mut() = ObservedOs::Deployments { booted, staged: None, next: None };
    assert_eq!(Box::pin(within("Done", lived(&scene, os, "first"))).await, None);
    assert!(!pending.exists() && kept.exists(), "it has served");
    let requests = scene.requests(mark).await;
    assert!(!requests.is_empty() && requests.iter().all(|one| !one.resource.starts_with("machineos")));
}

/// The link: an expired watch, dropped connections, an API server that is busy, and one that restarts; each
/// time the next target is carried out, and there is one connection in the end.
#[tokio::test]
async fn link_comes_back() {
    if !own_only("link_comes_back") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "link-back", &[("controlPlaneTopology", "SingleReplica")]).await;
    let mut agent = scene.agent(&[]);
    scene.done("a").await;
    bench.fault(&Fault::expired().count(1).path("/api/v1/nodes").agent("machine-config-agent"));
    bench.connections(Connections::Dropped);
    scene.want("b").await;
    scene.done("b").await;
    assert_eq!(bench.clear_faults(), [1]);
    bench.fault(
        &Fault::status(429)
            .retry_after(1)
            .count(1)
            .method("GET")
            .path("/apis/machineconfiguration.openshift.io/v1/machineconfigs/")
            .agent("machine-config-agent"),
    );
    scene.want("c").await;
    scene.done("c").await;
    assert_eq!(bench.clear_faults(), [1]);
    agent.line("the busy answer", |line| line.contains("429") && line.contains("MachineConfig")).await;
    bench.restart();
    scene.want("b").await;
    scene.done("b").await;
    let ours = bench.connected().into_values().filter(|agent| agent.starts_with("machine-config-agent/"));
    assert_eq!(ours.count(), 1);
}

/// Tokens and authorities are read again when they are refused; nothing is restarted.
#[tokio::test]
async fn credentials_are_rotated() {
    if !own_only("credentials_are_rotated") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let mut scene =
        Scene::with_drained(&bench, "link-rotated", &[("controlPlaneTopology", "SingleReplica")]).await;
    let user = format!("system:node:{}", scene.name);
    let token = scene.host.path().join("token");
    bench.set_token("first", &user, &["system:nodes"]);
    std::fs::write(&token, "first").unwrap();
    let identity = Identity::TokenFile(token.clone());
    scene.kubeconfig = bench.kubeconfig(&identity);
    let mut agent = scene.agent(&[]);
    scene.done("a").await;
    bench.set_token("second", &user, &["system:nodes"]);
    std::fs::write(&token, "second").unwrap();
    bench.revoke_token("first");
    scene.want("b").await;
    scene.done("b").await;
    bench.rotate_authority();
    agent.line("the refusal", |line| line.contains("can't be reached")).await;
    bench.write_kubeconfig(&scene.kubeconfig, &identity);
    let client = bench.client("test-rotated").await;
    retarget(&client, &scene.name, &scene.config("c"), None).await;
    let config = scene.config("c");
    let is = |node: &Node| {
        annotation(node, "state") == Some("Done")
            && annotation(node, "currentConfig") == Some(config.as_str())
    };
    node_until(&client, &scene.name, "Done with the third", is).await;
    let lines = agent.lines().join("\n");
    assert!(!lines.contains("first") && !lines.contains("second"), "{lines}");
}

/// A renewed client certificate is the next connection's; nothing is restarted.
#[tokio::test]
async fn certificate_is_renewed() {
    if !own_only("certificate_is_renewed") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene =
        Scene::with_drained(&bench, "link-renewed", &[("controlPlaneTopology", "SingleReplica")]).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    // Another user, which is no other node: so the audit log distinguishes the two certificates.
    let name = "link-renewed-again".to_owned();
    let renewed = Identity::User { name: name.clone(), groups: vec!["system:nodes".to_owned()] };
    bench.write_kubeconfig(&scene.kubeconfig, &renewed);
    let mark = bench.mark().await;
    bench.connections(Connections::Dropped);
    scene.want("b").await;
    scene.done("b").await;
    let ours = bench.requests_since(mark).await;
    let ours = ours.iter().filter(|request| request.agent.starts_with("machine-config-agent/"));
    let users: std::collections::BTreeSet<&str> = ours.map(|request| request.user.as_str()).collect();
    assert_eq!(users, [name.as_str()].into());
}
