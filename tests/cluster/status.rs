//! Reports to the cluster beside the Node: the MachineConfigNode, the Events; and the agent's own drain.

use std::sync::OnceLock;
use std::time::Duration;

use crate::cluster::scene::{DRAINED, QUIET, REBOOTED, Scene, condition, status};
use crate::cluster::{
    self, Behaviour, Bench, DisruptionController, DrainController, Gates, Kubelet, annotation, call,
    create_object, key, node_api, node_until, object_api, retarget, running_pod,
};
use crate::mcn_asserts::{APPLY, MCN, in_order, lines, scene, statuses};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

/// MCN-001, MCD-113, MCD-247, MCD-248, MCD-249: a change of a file without a drain or a reboot, in few writes.
#[tokio::test]
async fn quiet_update_is_reported_from_prepared_to_updated() {
    let scene = scene(Bench::shared(), "mcn-quiet", QUIET).await;
    let agent = scene.agent(&[]);
    let mcn = scene.updated("a").await;
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    let owner = &mcn["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!(scene.name)));
    assert_eq!(owner["uid"], json!(node.metadata.uid.unwrap()));
    assert_eq!(mcn["spec"]["node"]["name"], scene.name.as_str());
    assert_eq!(mcn["spec"]["pool"]["name"], "worker");
    let mark = scene.bench.mark().await;
    scene.want("b").await;
    scene.done("b").await;
    let mcn = scene.updated("b").await;
    let requests = scene.requests(mark).await;
    let told = statuses(&requests);
    let passed = [
        "UpdatePrepared",
        "AppliedFilesAndOS",
        "UpdateExecuted",
        "UpdatePostActionComplete",
        "Resumed",
        "UpdateComplete",
        "Updated",
    ];
    in_order(&told, &passed);
    assert!(told.len() <= 5, "{}", lines(&requests));
    assert!(requests.len() <= 12, "{}", lines(&requests));
    // The first one is that of the target alone.
    let mut drained = told.iter().map(|one| condition(one, "Drained")["reason"].clone());
    assert_eq!(drained.find(|reason| reason != "NotYetOccurred").unwrap(), "UpdateExecutedDrained");
    assert_eq!(mcn["spec"]["configVersion"]["desired"], scene.config("b").as_str());
    let prefix = format!("Action during update to {}: ", scene.config("b"));
    for kind in &passed[..6] {
        let one = condition(&mcn, kind);
        assert_eq!(one["status"], "False", "{kind}");
        assert!(one["message"].as_str().unwrap().starts_with(&prefix), "{one}");
    }
    // The agent restarts and finds its own writes.
    let mark = scene.bench.mark().await;
    agent.terminate().await;
    let mut again = scene.agent(&[]);
    again.line("it is connected", |line| line.contains("Connected")).await;
    let user = format!("system:node:{}", scene.name);
    // The first agent found none.
    let looked = |one: &cluster::Request| {
        one.resource == "machineconfignodes" && one.verb == "get" && one.code == Some(200) && one.user == user
    };
    scene.bench.audit().until("the agent looks at its MachineConfigNode", looked).await;
    again.terminate().await;
    assert_eq!(statuses(&scene.requests(mark).await), Vec::<Value>::new());
}

/// MCD-219, MCN-002, OBS-002, OBS-003: with a drain and a reboot none is skipped; those before the reboot come before it.
#[tokio::test]
async fn rebooting_update_passes_every_condition() {
    let scene = scene(Bench::shared(), "mcn-reboot", REBOOTED).await;
    let drains = DrainController::start(scene.bench, &scene.name, Behaviour::Echo).await;
    let agent = scene.agent(&[]);
    scene.updated("a").await;
    let mark = scene.bench.mark().await;
    scene.want("b").await;
    assert_eq!(agent.end().await.code(), Some(133));
    let before = scene.requests(mark).await;
    let event = |desired: &str| {
        let events =
            before.iter().filter(|request| request.resource == "events" && request.code == Some(201));
        let mut bodies = events.map(|request| request.body.clone().unwrap());
        bodies
            .find(|body| body["reason"] == desired)
            .unwrap_or_else(|| panic!("{desired}: {}", lines(&before)))
    };
    for reason in ["Cordon", "Drain", "Reboot"] {
        let event = event(reason);
        assert_eq!(event["source"], json!({ "component": "machineconfigdaemon", "host": scene.name }));
        assert_eq!(event["involvedObject"]["kind"], "Node");
        assert_eq!(event["metadata"]["namespace"], "openshift-machine-config-operator");
    }
    assert_eq!(status(statuses(&before).last().unwrap(), "RebootedNode"), "Unknown");
    scene.boot(2);
    let _agent = scene.agent(&[]);
    scene.updated("b").await;
    let requests = scene.requests(mark).await;
    let order = [
        "UpdatePrepared",
        "Drained",
        "AppliedFilesAndOS",
        "RebootedNode",
        "Resumed",
        "UpdateComplete",
        "Updated",
    ];
    in_order(&statuses(&requests), &order);
    let told = |reason: &str| {
        requests.iter().any(|one| {
            one.resource == "events" && one.body.as_ref().is_some_and(|body| body["reason"] == reason)
        })
    };
    assert!(told("Uncordon") && told("NodeDone"), "{}", lines(&requests));
    let body_of = |one: &cluster::Request| one.body.as_ref().map(ToString::to_string).unwrap_or_default();
    let place = |what: &str| requests.iter().rposition(|one| body_of(one).contains(what)).unwrap();
    let resumed = requests.iter().position(|one| body_of(one).contains(r#""reason":"Resumed""#)).unwrap();
    let order = [resumed, place(r#""reason":"Uncordon""#), place(r#""reason":"NodeDone""#)];
    assert!(order.is_sorted(), "{order:?}: {}", lines(&requests));
    drop(drains);
}

/// MCN-003, W-43: fields of others stay, also those written since the agent's last read.
#[tokio::test]
async fn others_conditions_stay() {
    let scene = scene(Bench::shared(), "mcn-shared", DRAINED).await;
    let mut drains = DrainController::start(scene.bench, &scene.name, Behaviour::Delay).await;
    let spec = json!({ "node": { "name": scene.name }, "pool": { "name": "worker" }, "configVersion": { "desired": "old" } });
    create_object(&scene.client, "machineconfignodes", &scene.name, json!({ "spec": spec })).await.unwrap();
    let apply = async |manager: &str, status: Value| {
        let path = format!("{MCN}/{}/status?fieldManager={manager}&force=true", scene.name);
        let body = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
            "metadata": { "name": scene.name }, "status": status });
        let (code, answer) = call(&scene.client, "PATCH", &path, Some((APPLY, body))).await;
        assert_eq!(code, 200, "{answer}");
    };
    let one = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "Other", "message": "o",
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    // As MCD left it.
    let pinned = json!([{ "name": "pins", "desiredGeneration": 3, "currentGeneration": 2 }]);
    let left = json!({ "observedGeneration": 7, "conditions": [one("PinnedImageSetsProgressing"), one("AppliedFiles")],
        "configVersion": { "desired": "old", "current": "old" }, "pinnedImageSets": pinned });
    apply("machine-config-operator", left).await;
    apply("someone", json!({ "conditions": [one("TheirsBefore")] })).await;
    let _agent = scene.agent(&[]);
    let mcn = scene.updated("a").await;
    assert_eq!(mcn["status"]["pinnedImageSets"], pinned);
    assert!(mcn["status"]["observedGeneration"].as_u64().unwrap() >= 7);
    for kind in ["TheirsBefore", "PinnedImageSetsProgressing"] {
        assert_eq!(status(&mcn, kind), "True", "{kind}");
    }
    assert_eq!(status(&mcn, "AppliedFiles"), "", "the other form's goes");
    // The agent does not see these come, in the middle of its update. The drain controller and the pinning write under
    // the agent's manager's name, with the whole list.
    scene.want("b").await;
    drains.until(&format!("drain-{}", scene.config("b"))).await;
    let mcn = scene
        .mcn("draining", |mcn| condition(mcn, "Drained")["message"].to_string().contains("answer"))
        .await;
    apply("someone", json!({ "conditions": [one("TheirsBefore"), one("TheirsSince")] })).await;
    let kept = mcn["status"]["conditions"].as_array().unwrap().iter().filter(|held| {
        !["TheirsBefore", "PinnedImageSetsDegraded"].contains(&held["type"].as_str().unwrap())
    });
    let all: Vec<Value> = kept.cloned().chain([one("PinnedImageSetsDegraded")]).collect();
    let mut whole = mcn["status"].clone();
    whole["conditions"] = json!(all);
    apply("machine-config-operator", whole).await;
    drains.release();
    let mcn = scene.updated("b").await;
    for kind in ["TheirsBefore", "TheirsSince", "PinnedImageSetsDegraded"] {
        assert_eq!(status(&mcn, kind), "True", "{kind}");
    }
    assert_eq!(mcn["status"]["pinnedImageSets"], pinned);
}

/// MCN-005: the images and the finer conditions are reported where the CRD has them, and nowhere else.
#[tokio::test]
async fn condition_layout_follows_crd() {
    let image = format!("registry.test/os@sha256:{}", "ab".repeat(32));
    for (bench, split) in [(Bench::shared(), false), (Bench::shared_preview(), true)] {
        let scene = scene(bench, "mcn-form", QUIET).await;
        let mark = bench.mark().await;
        let _agent = scene.agent(&[]);
        let mcn = scene.updated("a").await;
        let finer =
            ["AppliedFiles", "AppliedOSImage", "ImagePulledFromRegistry"].map(|kind| status(&mcn, kind));
        assert_eq!(finer, if split { ["False"; 3] } else { [""; 3] });
        assert_eq!(status(&mcn, "AppliedFilesAndOS"), if split { "" } else { "False" });
        // A host without an image can't be switched to one: it is desired, and reported as desired.
        retarget(&scene.client, &scene.name, &scene.config("b"), Some(&image)).await;
        let told = |mcn: &Value| status(mcn, "NodeDegraded") == "True";
        let mcn = scene.mcn("an image is desired", told).await;
        let desired = mcn.pointer("/status/configImage/desiredImage").and_then(Value::as_str);
        assert_eq!(desired, split.then_some(image.as_str()), "{mcn}");
        let asked = |one: &cluster::Request| one.uri.contains("dryRun=All");
        let sent = |one: &cluster::Request| {
            one.body.as_ref().is_some_and(|body| body.to_string().contains("configImage"))
        };
        let requests = scene.requests(mark).await;
        let sent =
            requests.iter().filter(|one| one.resource == "machineconfignodes" && !asked(one)).any(sent);
        assert_eq!(sent, split, "{}", lines(&requests));
        assert!(requests.iter().filter(|one| asked(one)).count() <= 1, "{}", lines(&requests));
    }
}

/// MCN-006, MCD-092, MCD-250: a refused config is not prepared, and the reason is the annotation's; a new target mends it.
/// FIL-005: the node reports `Unreconcilable`.
#[tokio::test]
async fn failure_is_reported_and_rolled_back() {
    let scene = scene(Bench::shared(), "mcn-failure", QUIET).await;
    let _agent = scene.agent(&[]);
    scene.updated("a").await;
    let mark = scene.bench.mark().await;
    scene.want("bad").await;
    let mcn = scene.mcn("degraded", |mcn| status(mcn, "NodeDegraded") == "True").await;
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    assert_eq!(annotation(&node, "state"), Some("Unreconcilable"));
    let reason = annotation(&node, "reason").unwrap();
    let degraded = condition(&mcn, "NodeDegraded");
    assert_eq!(degraded["message"], reason);
    assert!(reason.starts_with(degraded["reason"].as_str().unwrap()), "{degraded} {reason}");
    assert_eq!(status(&mcn, "UpdatePrepared"), "Unknown");
    assert_eq!(status(&mcn, "Updated"), "False");
    assert_eq!(mcn["status"]["configVersion"]["desired"], "not-yet-set");
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    let events = scene.requests(mark).await.into_iter().filter(|one| one.resource == "events");
    let reasons: Vec<_> = events.filter_map(|one| one.body).map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["FailedToReconcile"]);
    scene.want("b").await;
    let mcn = scene.updated("b").await;
    assert_eq!(status(&mcn, "NodeDegraded"), "False");
    assert_eq!(mcn["status"]["configVersion"]["desired"], scene.config("b").as_str());
}

/// A field that nobody knows refuses no config of a cluster: the update is made, and the condition and `status` name the field until
/// a config without it.
#[tokio::test]
async fn unknown_field_is_condition_and_in_status() {
    let scene = scene(Bench::shared(), "mcn-unknown", QUIET).await;
    let mut object = scene.builder("typo", "typo", "a").object();
    object["spec"]["config"]["storge"] = json!({ "files": [] });
    let object = serde_json::from_value(object).unwrap();
    object_api(&scene.client, "machineconfigs").create(&PostParams::default(), &object).await.unwrap();
    let _agent = scene.agent(&[]);
    let mcn = scene.updated("a").await;
    assert_eq!(status(&mcn, "FieldsNotApplied"), "False", "{mcn}");
    scene.want("typo").await;
    let mcn = scene.updated("typo").await;
    let found = condition(&mcn, "FieldsNotApplied");
    assert_eq!((&found["status"], &found["reason"]), (&json!("True"), &json!("UnknownField")), "{found}");
    let words = "spec.config.storge: there is no such field (did you mean storage?)";
    assert!(found["message"].as_str().unwrap().contains(words), "{found}");
    assert_eq!(
        (status(&mcn, "NodeDegraded"), scene.on_disk(QUIET).as_deref()),
        ("False".to_owned(), Some("typo"))
    );
    let named = format!("not applied  {words}");
    scene.status(|text| text.contains(&named)).await;
    scene.want("a").await;
    let mcn = scene.updated("a").await;
    assert_eq!(status(&mcn, "FieldsNotApplied"), "False", "{mcn}");
    scene.status(|text| !text.contains("not applied")).await;
}

/// MCN-007: neither a missing object nor a missing CRD stops an update.
#[tokio::test]
async fn updates_do_not_need_machine_config_node() {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    let bench = BENCH.get_or_init(|| Bench::private(Gates::Default));
    let scene = scene(bench, "mcn-absent", QUIET).await;
    let _agent = scene.agent(&[]);
    scene.updated("a").await;
    scene.mcns().delete(&scene.name, &DeleteParams::default()).await.unwrap();
    scene.want("b").await;
    scene.updated("b").await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/machineconfignodes.machineconfiguration.openshift.io";
    assert_eq!(call(&scene.client, "DELETE", crd, None).await.0, 200);
    scene.want("a").await;
    scene.done("a").await;
    scene.want("b").await;
    scene.done("b").await;
}

/// OBS-002: an occurrence that comes again is counted in its event.
#[tokio::test]
async fn repeated_events_are_counted() {
    let scene = scene(Bench::shared(), "event-drift", QUIET).await;
    let agent = scene.agent(&[]);
    scene.done("a").await;
    let path = format!("etc/mca-quiet/{}", scene.name);
    let state = async |desired: &'static str| {
        node_until(&scene.client, &scene.name, desired, |node| annotation(node, "state") == Some(desired))
            .await;
    };
    for _ in 0..2 {
        scene.write(&path, "drifted");
        state("Degraded").await;
        scene.write(&path, "a");
        state("Done").await;
    }
    // Events are written beside the state; the agent's end waits for them.
    agent.terminate().await;
    let events = "/api/v1/namespaces/openshift-machine-config-operator/events";
    let (_, all) = call(&scene.client, "GET", events, None).await;
    let drifts: Vec<&Value> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| {
            one["reason"] == "ConfigDriftDetected" && one["involvedObject"]["name"] == scene.name.as_str()
        })
        .collect();
    assert_eq!(drifts.len(), 1, "{drifts:#?}");
    assert_eq!((&drifts[0]["count"], &drifts[0]["type"]), (&json!(2), &json!("Warning")));
}

/// An Event names the pod that came to the cordoned node.
fn assert_late_is_told(requests: &[cluster::Request], space: &str) {
    let mut events =
        requests.iter().filter(|one| one.resource == "events").filter_map(|one| one.body.as_ref());
    let late = events.find(|event| event["reason"] == "PodsNotEvicted").unwrap();
    let words = format!("pods {space}/late came to the cordoned node and are not evicted");
    assert!(late["message"].as_str().unwrap().starts_with(&words) && late["type"] == "Warning", "{late}");
}

/// `--drain self` evicts what has to go, honours a budget and names its pod, and leaves the rest alone.
#[tokio::test]
async fn agent_drains_by_itself() {
    let bench = Bench::shared();
    let scene = scene(bench, "evictor", DRAINED).await;
    let space = "evictor-pods";
    let body = json!({ "metadata": { "name": space } });
    assert_eq!(
        call(&scene.client, "POST", "/api/v1/namespaces", Some(("application/json", body))).await.0,
        200
    );
    let _kubelet = Kubelet::start(bench, &scene.name).await;
    let _disruptions = DisruptionController::start(bench, space).await;
    let owner = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] });
    let mirror = json!({ "annotations": { "kubernetes.io/config.mirror": "x" } });
    for (name, metadata) in [
        ("daemon", owner),
        ("mirror", mirror),
        ("plain", json!({})),
        ("kept", json!({ "labels": { "app": "kept" } })),
    ] {
        running_pod(&scene.client, space, name, &scene.name, metadata).await;
    }
    let budgets = format!("/apis/policy/v1/namespaces/{space}/poddisruptionbudgets");
    let budget = json!({ "metadata": { "name": "budget" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "kept" } } } });
    assert_eq!(call(&scene.client, "POST", &budgets, Some(("application/json", budget))).await.0, 200);
    let agent = scene.agent(&["--drain", "self"]);
    scene.updated("a").await;
    let mark = bench.mark().await;
    scene.want("b").await;
    let kept = format!("pod {space}/kept is kept by its PodDisruptionBudget");
    let waits =
        |mcn: &Value| condition(mcn, "Drained")["message"].as_str().is_some_and(|text| text.contains(&kept));
    let mcn = scene.mcn("the budget's pod is named", waits).await;
    assert_eq!((status(&mcn, "Drained"), status(&mcn, "Cordoned")), ("Unknown".into(), "True".into()));
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    // It tolerates the cordon, as whatever would come in its place. Creations have seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    running_pod(&scene.client, space, "late", &scene.name, json!({})).await;
    // Another process goes on where this one stopped.
    agent.kill().await;
    let _agent = scene.agent(&["--drain", "self"]);
    assert_eq!(call(&scene.client, "DELETE", &format!("{budgets}/budget"), None).await.0, 200);
    scene.updated("b").await;
    let (_, pods) = call(&scene.client, "GET", &format!("/api/v1/namespaces/{space}/pods"), None).await;
    let names: Vec<&str> =
        pods["items"].as_array().unwrap().iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["daemon", "late", "mirror"]);
    let requests = scene.requests(mark).await;
    assert_late_is_told(&requests, space);
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    assert_eq!(node.spec.unwrap_or_default().unschedulable, None);
    let annotations = node.metadata.annotations.unwrap();
    for key in ["cordoned-by", "drains-until"] {
        assert!(!annotations.contains_key(&format!("machine-config-agent.io/{key}")), "{key}");
    }
    assert!(annotation_is_absent(&scene, "desiredDrain").await);
    // A cordon or uncordon of somebody else meanwhile is not undone.
    let bodies = requests.iter().filter(|one| one.verb == "patch" && one.resource == "nodes");
    let bodies: Vec<&Value> = bodies.filter_map(|one| one.body.as_ref()).collect();
    let cordons: Vec<_> = bodies.iter().filter(|body| body["spec"].get("unschedulable").is_some()).collect();
    assert_eq!(cordons.len(), 2, "{bodies:#?}");
    assert!(cordons.iter().all(|body| body["metadata"]["resourceVersion"].is_string()), "{cordons:#?}");
}

/// A pod whose eviction the server fails on, since two budgets cover it, is named with the cause; the others leave, and
/// the drain goes on once one of the budgets is gone.
#[tokio::test]
async fn blocked_pod_does_not_delay_others() {
    let bench = Bench::shared();
    let scene = scene(bench, "evictor-two", DRAINED).await;
    let space = "evictor-two-pods";
    let body = json!({ "metadata": { "name": space } });
    let (code, answer) =
        call(&scene.client, "POST", "/api/v1/namespaces", Some(("application/json", body))).await;
    assert_eq!(code, 200, "{answer}");
    let _kubelet = Kubelet::start(bench, &scene.name).await;
    let _disruptions = DisruptionController::start(bench, space).await;
    for name in ["one", "two", "three"] {
        running_pod(&scene.client, space, name, &scene.name, json!({})).await;
    }
    running_pod(&scene.client, space, "doubled", &scene.name, json!({ "labels": { "app": "doubled" } }))
        .await;
    let budgets = format!("/apis/policy/v1/namespaces/{space}/poddisruptionbudgets");
    for name in ["first", "second"] {
        let spec = json!({ "minAvailable": 0, "selector": { "matchLabels": { "app": "doubled" } } });
        let budget = json!({ "metadata": { "name": name }, "spec": spec });
        let (code, answer) = call(&scene.client, "POST", &budgets, Some(("application/json", budget))).await;
        assert_eq!(code, 200, "{answer}");
    }
    let _agent = scene.agent(&["--drain", "self"]);
    scene.updated("a").await;
    scene.want("b").await;
    let named = |mcn: &Value| {
        let text = condition(mcn, "Drained")["message"].as_str().unwrap_or_default();
        text.contains(&format!("pod {space}/doubled is kept by its PodDisruptionBudget"))
            && text.contains("more than one PodDisruptionBudget")
    };
    scene.mcn("the pod is named with the cause", named).await;
    for name in ["one", "two", "three"] {
        cluster::pod_gone(&scene.client, space, name).await;
    }
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"));
    assert_eq!(call(&scene.client, "DELETE", &format!("{budgets}/second"), None).await.0, 200);
    scene.updated("b").await;
}

async fn annotation_is_absent(scene: &Scene<'_>, name: &str) -> bool {
    let node = node_api(&scene.client).get(&scene.name).await.unwrap();
    !node.metadata.annotations.unwrap().contains_key(&key(name))
}
