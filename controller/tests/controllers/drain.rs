//! The drain controller: DRN-001 to DRN-003 from the controller's side.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{
    DisruptionController, Fault, Kubelet, Request, annotation, changes, create_node, create_object, key,
    node_api, node_until, object_api, own_only, pod_gone, running_pod, within,
};
use crate::connections::behind_proxy;
use crate::process::Cluster;
use crate::proxy::Proxy;

pub const NODE: &str = "n";

pub struct Scene {
    pub cluster: Cluster,
    _kubelet: Kubelet,
    _disruption: Option<DisruptionController>,
}

impl Scene {
    pub async fn new() -> Self {
        let scene = Self::without_disruption_controller().await;
        let disruption = DisruptionController::start(&scene.cluster.bench, "default").await;
        Self { _disruption: Some(disruption), ..scene }
    }

    /// With a proxy before the API server.
    pub async fn behind_proxy() -> (Self, Proxy) {
        let (cluster, proxy) = behind_proxy().await;
        let scene = Self::on(cluster).await;
        let disruption = DisruptionController::start(&scene.cluster.bench, "default").await;
        (Self { _disruption: Some(disruption), ..scene }, proxy)
    }

    /// With budgets whose status a test writes.
    async fn without_disruption_controller() -> Self {
        Self::on(Cluster::new().await).await
    }

    async fn on(cluster: Cluster) -> Self {
        create_node(&cluster.client, NODE, &[]).await;
        let kubelet = Kubelet::start(&cluster.bench, NODE).await;
        Self { cluster, _kubelet: kubelet, _disruption: None }
    }

    pub async fn patch(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        node_api(&self.cluster.client).patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn request(&self, what: &str) {
        self.patch(json!({ "metadata": { "annotations": { key("desiredDrain"): what } } })).await;
    }

    pub async fn pod(&self, name: &str, metadata: Value) {
        running_pod(&self.cluster.client, "default", name, NODE, metadata).await;
    }

    pub async fn budget(&self, name: &str, app: &str) {
        let budget = json!({
            "metadata": { "name": name },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } },
        });
        self.budgets()
            .create(&PostParams::default(), &serde_json::from_value(budget).unwrap())
            .await
            .unwrap();
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    /// Makes what the node's agent reports in its MachineConfigNode.
    async fn config_node(&self) {
        let spec = json!({ "node": { "name": NODE }, "pool": { "name": "worker" }, "configVersion": { "desired": "rendered-b" } });
        create_object(&self.cluster.client, "machineconfignodes", NODE, json!({ "spec": spec }))
            .await
            .unwrap();
        let drained = json!({ "type": "Drained", "status": "Unknown", "reason": "UpdateExecutedDrained", "message": "asked",
            "lastTransitionTime": "2026-11-23T12:00:00Z" });
        let agents = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
            "status": { "conditions": [drained] } });
        let api = object_api(&self.cluster.client, "machineconfignodes");
        api.patch_status(NODE, &PatchParams::apply("agent").force(), &Patch::Apply(&agents)).await.unwrap();
    }

    /// Returns type and status of the conditions of the MachineConfigNode.
    async fn conditions(&self) -> Vec<(&'static str, &'static str)> {
        let stored = object_api(&self.cluster.client, "machineconfignodes").get(NODE).await.unwrap();
        let word = |value: &Value| -> &'static str {
            let words = ["Cordoned", "Uncordoned", "Drained", "True", "False", "Unknown"];
            words.into_iter().find(|word| value == word).unwrap()
        };
        let listed = stored.data["status"]["conditions"].as_array().unwrap().clone();
        let mut found: Vec<_> = listed.iter().map(|one| (word(&one["type"]), word(&one["status"]))).collect();
        found.sort_unstable();
        found
    }

    /// Returns how many evictions were requested since a mark.
    pub async fn evictions(&self, mark: usize) -> usize {
        let all = self.cluster.bench.requests_since(mark).await;
        all.iter().filter(|request| request.subresource == "eviction").count()
    }

    /// Cordons, answers and uncordons since a mark name the version of the Node that was seen: a concurrent one of somebody else is not undone.
    async fn assert_writes_name_version(&self, mark: usize) {
        let all = self.cluster.bench.requests_since(mark).await;
        let is_own = |one: &&Request| one.user == "controller" && one.line() == format!("patch nodes {NODE}");
        let own: Vec<&Value> = all.iter().filter(is_own).filter_map(|one| one.body.as_ref()).collect();
        for is_cordon in [true, false] {
            let is_it = |body: &&Value| {
                body["spec"].get("unschedulable").is_some_and(|value| (*value == true) == is_cordon)
            };
            assert!(own.iter().any(is_it), "{is_cordon}: {own:#?}");
        }
        for body in own {
            assert!(body["metadata"]["resourceVersion"].is_string(), "{body}");
        }
    }

    pub async fn until(&self, what: &str, holds: impl FnMut(&Node) -> bool) -> Node {
        node_until(&self.cluster.client, NODE, what, holds).await
    }

    pub async fn until_done(&self, what: &str) -> Node {
        self.until(what, |node| annotation(node, "lastAppliedDrain") == Some(what)).await
    }
}

pub fn own<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(&format!("machine-config-agent.io/{name}")).map(String::as_str)
}

pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// DRN-001, DRN-002: cordoned, emptied, answered. DaemonSet pods and the kubelet's own stay.
#[tokio::test]
async fn node_is_drained_and_takes_pods_again() {
    let scene = Scene::new().await;
    scene.pod("plain", json!({})).await;
    scene.pod("mirror", json!({ "annotations": { "kubernetes.io/config.mirror": "x" } })).await;
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }]);
    scene.pod("daemon", json!({ "ownerReferences": owner })).await;
    scene.config_node().await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    let mark = scene.cluster.bench.mark().await;
    scene.request("drain-rendered-b").await;
    let node = scene.until_done("drain-rendered-b").await;
    assert!(is_cordoned(&node));
    assert_eq!(
        scene.conditions().await,
        [("Cordoned", "True"), ("Drained", "Unknown"), ("Uncordoned", "False")]
    );
    assert_eq!(
        (own(&node, "cordoned-by"), own(&node, "drain-since")),
        (Some("machine-config-controller"), None)
    );
    let left: Vec<_> = scene
        .pods()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|pod| pod.metadata.name.unwrap())
        .collect();
    assert_eq!(left, ["daemon", "mirror"]);
    scene.request("uncordon-rendered-b").await;
    let node = scene.until_done("uncordon-rendered-b").await;
    assert!(!is_cordoned(&node) && own(&node, "cordoned-by").is_none());
    assert_eq!(
        scene.conditions().await,
        [("Cordoned", "True"), ("Drained", "Unknown"), ("Uncordoned", "True")]
    );
    scene.assert_writes_name_version(mark).await;
    // A node that an administrator cordoned stays so: an agent that starts asks for nothing else.
    scene.patch(json!({ "spec": { "unschedulable": true } })).await;
    scene.request("uncordon-rendered-c").await;
    assert!(is_cordoned(&scene.until_done("uncordon-rendered-c").await));
}

/// The pod and its budgets are named on the Node; the end of the block is noticed, also after another process took over.
#[tokio::test]
async fn blocked_drain_names_pod_and_budgets_and_goes_on_by_itself() {
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let mut controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    let blocked = |words: &'static str| {
        move |node: &Node| own(node, "drain-blocked").is_some_and(|blocked| blocked.contains(words))
    };
    scene.until("blocked", blocked("pod default/kept is kept by PodDisruptionBudget default/one")).await;
    // Two budgets on one pod: the API server evicts no such pod. Another process goes on where this one stopped.
    controller.line("the drain waits: pod default/kept").await;
    controller.kill().await;
    scene.cluster.free_lease().await;
    scene.budget("two", "shop").await;
    let controller = scene.cluster.start("b", &["--controllers", "drain"]);
    let node =
        scene.until("blocked by two", blocked("2 PodDisruptionBudgets, default/one and default/two")).await;
    assert!(is_cordoned(&node) && annotation(&node, "lastAppliedDrain").is_none());
    // One of them goes, and the other one lets the pod go as soon as there is another one.
    scene.budgets().delete("two", &DeleteParams::default()).await.unwrap();
    scene.until("blocked by one", blocked("is kept by PodDisruptionBudget default/one")).await;
    running_pod(
        &scene.cluster.client,
        "default",
        "other",
        "elsewhere",
        json!({ "labels": { "app": "shop" } }),
    )
    .await;
    pod_gone(&scene.cluster.client, "default", "kept").await;
    let node = scene.until_done("drain-rendered-b").await;
    assert_eq!(own(&node, "drain-blocked"), None);
    assert!(controller.terminate().await.success());
}

/// Uncordoned in the middle: cordoned again, and the answer is of a node without pods.
#[tokio::test]
async fn node_uncordoned_during_drain_is_cordoned_again() {
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    scene.until("blocked", |node| own(node, "drain-blocked").is_some()).await;
    scene.patch(json!({ "spec": { "unschedulable": null } })).await;
    scene.until("cordoned again", is_cordoned).await;
    // The agent asks for something else: the drain is over.
    scene.request("uncordon-rendered-a").await;
    let node = scene.until_done("uncordon-rendered-a").await;
    assert!(!is_cordoned(&node) && own(&node, "drain-blocked").is_none());
    assert!(scene.pods().get_opt("kept").await.unwrap().is_some());
}

/// The owner of a pod that tolerates the cordon puts each evicted one back. A pod that does not end is named with what holds it.
#[tokio::test]
async fn pods_that_come_to_cordoned_node_are_named_and_left() {
    let scene = Scene::new().await;
    scene.pod("first", json!({})).await;
    scene.pod("held", json!({ "finalizers": ["example.test/hold"] })).await;
    let mark = scene.cluster.bench.mark().await;
    let mut controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    pod_gone(&scene.cluster.client, "default", "first").await;
    for name in ["again-1", "again-2", "again-3"] {
        scene.pod(name, json!({})).await;
    }
    let held = "is held by finalizers: example.test/hold";
    let node = scene
        .until("held", |node| own(node, "drain-blocked").is_some_and(|blocked| blocked.contains(held)))
        .await;
    assert!(annotation(&node, "lastAppliedDrain").is_none());
    let released = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.pods().patch("held", &PatchParams::default(), &released).await.unwrap();
    let node = scene.until_done("drain-rendered-b").await;
    assert_eq!(own(&node, "drain-blocked"), None);
    let late = "pods default/again-1, default/again-2, default/again-3 came to the cordoned node and are not evicted";
    controller.line(late).await;
    let events: Api<Event> = Api::namespaced(scene.cluster.client.clone(), "default");
    let mut events = pin!(changes(&events, &ListParams::default()).await.unwrap());
    let told = async {
        loop {
            let (event, _) = events.next().await.unwrap();
            if event.reason.as_deref() == Some("PodsNotEvicted") {
                break event.message.unwrap();
            }
        }
    };
    assert!(within("an Event of the node", told).await.starts_with(late));
    assert_eq!(scene.evictions(mark).await, 2);
}

/// The controller dies in the middle of a drain: the next one evicts the pods that were there at the cordon, and none that came later.
#[tokio::test]
async fn next_controller_leaves_pods_that_came_to_cordoned_node() {
    let scene = Scene::new().await;
    scene.pod("first", json!({})).await;
    scene.pod("held", json!({ "finalizers": ["example.test/hold"] })).await;
    let mark = scene.cluster.bench.mark().await;
    let controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    pod_gone(&scene.cluster.client, "default", "first").await;
    // Creations have seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    scene.pod("again", json!({})).await;
    controller.kill().await;
    scene.cluster.free_lease().await;
    let mut controller = scene.cluster.start("b", &["--controllers", "drain"]);
    controller.line("The drain controller runs").await;
    let released = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.pods().patch("held", &PatchParams::default(), &released).await.unwrap();
    scene.until_done("drain-rendered-b").await;
    controller.line("pods default/again came to the cordoned node and are not evicted").await;
    assert!(
        scene.pods().get("again").await.unwrap().metadata.deletion_timestamp.is_none(),
        "it is not evicted"
    );
    assert_eq!(scene.evictions(mark).await, 2);
}

/// A budget that is not known is not a free one: the eviction is requested once, and not again before something changes.
#[tokio::test]
async fn unknown_budgets_cause_no_evictions() {
    if !own_only("drain::unknown_budgets_cause_no_evictions") {
        return;
    }
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let list = "/apis/policy/v1/poddisruptionbudgets";
    scene.cluster.bench.fault(&Fault::status(403).path(list).agent("machine-config-controller"));
    let mark = scene.cluster.bench.mark().await;
    let mut controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    let blocked = |words: &'static str| {
        move |node: &Node| own(node, "drain-blocked").is_some_and(|blocked| blocked.contains(words))
    };
    scene.until("blocked", blocked("pod default/kept is kept by its PodDisruptionBudget: ")).await;
    for _ in 0..4 {
        controller.line("PodDisruptionBudgets can't be watched").await;
    }
    assert_eq!(scene.evictions(mark).await, 1);
    scene.cluster.bench.clear_faults();
    scene.until("named", blocked("is kept by PodDisruptionBudget default/one: ")).await;
    running_pod(
        &scene.cluster.client,
        "default",
        "other",
        "elsewhere",
        json!({ "labels": { "app": "shop" } }),
    )
    .await;
    pod_gone(&scene.cluster.client, "default", "kept").await;
    scene.until_done("drain-rendered-b").await;
    let evictions = scene.evictions(mark).await;
    assert!((2..=4).contains(&evictions), "{evictions}");
}

/// The status of a budget is of its spec before: the server says when to come back (10 s), which is when the pod is evicted again, or at once
/// when the status is of this spec.
#[tokio::test]
async fn budget_that_is_behind_its_spec_is_asked_again_when_server_says() {
    let scene = Scene::without_disruption_controller().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let status = async |generation: i64| {
        let status = json!({ "observedGeneration": generation, "disruptionsAllowed": 1, "currentHealthy": 2,
            "desiredHealthy": 1, "expectedPods": 2 });
        let patch = Patch::Merge(json!({ "status": status }));
        scene.budgets().patch_status("one", &PatchParams::default(), &patch).await.unwrap();
    };
    status(1).await;
    let spec = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    scene.budgets().patch("one", &PatchParams::default(), &spec).await.unwrap();
    let mark = scene.cluster.bench.mark().await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    scene.request("drain-rendered-b").await;
    let is_named = |node: &Node| own(node, "drain-blocked").is_some_and(|blocked| blocked.contains("kept"));
    scene.until("blocked", is_named).await;
    let start = Instant::now();
    assert_eq!(scene.evictions(mark).await, 1);
    within("the second eviction", async {
        while scene.evictions(mark).await < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(7), "{waited:?}");
    let start = Instant::now();
    status(2).await;
    pod_gone(&scene.cluster.client, "default", "kept").await;
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    scene.until_done("drain-rendered-b").await;
    let evictions = scene.evictions(mark).await;
    assert!((3..=4).contains(&evictions), "{evictions}");
}
