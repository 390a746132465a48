//! The drain controller: cordons, evictions, pods, budgets and reports that fail, each on a node of its own.

use http::Method;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{
    DisruptionController, Kubelet, MachineConfigBuilder, annotation, create_object, key, node_api,
    node_until, object_until, pod_gone, running_pod, within,
};
use crate::connections::behind_proxy;
use crate::drain::{is_cordoned, own};
use crate::process::{Cluster, condition};
use crate::proxy::{Failing, Seam};
use crate::refusals::{failures, get, listener, page_until};
use crate::rollout::ready_node;

/// Ways in which a request fails, with their names and a text that tells.
const WAYS: [(&str, Failing, &str); 4] = [
    ("never", Failing::NeverAnswers, "no answer within 10 s"),
    ("late", Failing::AnswersLate, "no answer within 10 s"),
    ("refused", Failing::Refuses(403, "a webhook says no"), "a webhook says no"),
    ("else", Failing::AnswersSomethingElse, "its answer can't be read"),
];

/// Requests of a drain that fail, each at the nodes whose names begin so.
const KINDS: [&str; 4] = ["cordon", "list", "evict", "report"];

fn seam(kind: &str, node: &str) -> Seam {
    match kind {
        "cordon" => Seam::new(Method::PATCH, &[&format!("/api/v1/nodes/{node}?")]),
        "list" => {
            let selector = format!("spec.nodeName%3D{node}%2C");
            Seam::new(Method::GET, &["/api/v1/pods?", &selector]).without("watch=")
        }
        "evict" => Seam::new(Method::POST, &[&format!("/pods/{node}/eviction")]),
        _ => Seam::new(Method::PATCH, &[&format!("/machineconfignodes/{node}/status?")]),
    }
}

async fn request(client: &Client, node: &str, what: &str) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { key("desiredDrain"): what } } }));
    node_api(client).patch(node, &PatchParams::default(), &patch).await.unwrap();
}

async fn until_done(client: &Client, node: &str, what: &str) {
    node_until(client, node, what, |node| annotation(node, "lastAppliedDrain") == Some(what)).await;
}

async fn until_blocked(client: &Client, node: &str, words: &[&str]) {
    let is_told = |node: &Node| {
        own(node, "drain-blocked").is_some_and(|text| words.iter().all(|word| text.contains(word)))
    };
    node_until(client, node, &format!("{words:?}"), is_told).await;
}

/// Waits for an Event about an object; it is looked for, since it may be there already.
pub async fn until_event(client: &Client, reason: &str, name: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.involved_object.name.as_deref() == Some(name)
            && event.message.as_deref().is_some_and(|message| message.contains(words))
    };
    within(&format!("the Event {reason} of {name}"), async {
        while !events.list(&ListParams::default()).await.unwrap().items.iter().any(is_it) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Nodes of a pool, each with a pod of its own name and a `MachineConfigNode`.
async fn nodes(cluster: &Cluster, names: &[String], config: &str) -> Vec<Kubelet> {
    let mut kubelets = Vec::new();
    for name in names {
        ready_node(&cluster.client, name, config).await;
        running_pod(&cluster.client, "default", name, name, json!({})).await;
        let spec = json!({ "node": { "name": name }, "pool": { "name": "worker" }, "configVersion": { "desired": config } });
        create_object(&cluster.client, "machineconfignodes", name, json!({ "spec": spec })).await.unwrap();
        kubelets.push(Kubelet::start(&cluster.bench, name).await);
    }
    let count = names.len();
    cluster.until_pool("worker", "its nodes", |pool| pool["status"]["readyMachineCount"] == count).await;
    kubelets
}

/// Each request of a drain fails in each way, at a node of its own, all at the same time: each is told, the node beside them is drained
/// meanwhile, and all are once it is over.
#[tokio::test]
async fn requests_of_drains_fail() {
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let config = cluster.until_target("worker", "").await;
    let failing = KINDS.iter().flat_map(|kind| WAYS.map(|(way, ..)| format!("{kind}-{way}")));
    let mut names: Vec<String> = failing.collect();
    names.push("well".to_owned());
    let _kubelets = nodes(&cluster, &names, &config).await;
    for kind in KINDS {
        for (way, failing, _) in WAYS {
            proxy.fail(seam(kind, &format!("{kind}-{way}")), failing);
        }
    }
    for name in &names {
        request(client, name, "drain-b").await;
    }
    proxy.all_failed().await;
    until_done(client, "well", "drain-b").await;
    for (way, _, words) in WAYS {
        let pod = format!("pod default/evict-{way} can't be evicted: ");
        until_blocked(client, &format!("evict-{way}"), &[&pod, words]).await;
        until_blocked(client, &format!("list-{way}"), &["its pods can't be listed: ", words]).await;
        // No drain waits for the report.
        until_done(client, &format!("report-{way}"), "drain-b").await;
    }
    let names_all = |pool: &Value| {
        let message = condition(pool, "RolloutDrainBlocked")["message"].as_str().unwrap_or_default();
        let is_named = |kind: &str| WAYS.iter().all(|(way, ..)| message.contains(&format!("{kind}-{way}: ")));
        ["evict", "list"].into_iter().all(is_named)
    };
    cluster.until_pool("worker", "each node that is blocked is named", names_all).await;
    until_event(client, "DrainNotWritten", "cordon-refused", "a webhook says no").await;
    let is_counted = |_, body: &str| {
        ["NodeDrain", "ConfigNodeStatus"]
            .iter()
            .all(|write| failures(body, write, "unanswered") >= 3 && failures(body, write, "refused") > 0)
            && failures(body, "Eviction", "unanswered") >= 3
            && failures(body, "Eviction", "refused") > 0
    };
    page_until(listener, "/metrics", "each failure is counted", is_counted).await;
    assert_eq!(get(listener, "/readyz").0, 200);
    proxy.mend();
    for name in &names {
        until_done(client, name, "drain-b").await;
        pod_gone(client, "default", name).await;
    }
    let told = |pool: &Value| condition(pool, "RolloutDrainBlocked")["status"] == "True";
    cluster.until_pool("worker", "nothing is blocked", |pool| !told(pool)).await;
}

/// The list of pods is from before one was removed: its eviction finds nothing, and the drain ends.
#[tokio::test]
async fn list_of_pods_is_older_than_pod() {
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let _controller = cluster.start("a", &[]);
    let config = cluster.until_target("worker", "").await;
    let kubelets = nodes(&cluster, &["old".to_owned()], &config).await;
    proxy.remember();
    proxy.fail(seam("evict", "old"), Failing::Refuses(403, "not yet"));
    request(client, "old", "drain-b").await;
    until_blocked(client, "old", &["not yet"]).await;
    request(client, "old", "uncordon-a").await;
    until_done(client, "old", "uncordon-a").await;
    proxy.mend();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    pods.delete("old", &DeleteParams::default()).await.unwrap();
    pod_gone(client, "default", "old").await;
    drop(kubelets);
    proxy.fail(
        Seam::new(Method::GET, &["/api/v1/pods?", "spec.nodeName%3Dold%2C"]),
        Failing::AnswersWithOlderNews,
    );
    request(client, "old", "drain-b").await;
    until_done(client, "old", "drain-b").await;
    assert!(is_cordoned(&node_api(client).get("old").await.unwrap()));
    assert!(proxy.mend().iter().sum::<u64>() > 0);
}

/// Budgets are not known, or as they were: the API server refuses the eviction all the same, it is asked rarely, the other node is
/// drained, and the budget is named once it is known.
#[tokio::test]
async fn list_of_budgets_fails() {
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    let _disruption = DisruptionController::start(&cluster.bench, "default").await;
    let mut controller = cluster.start("a", &["--controllers", "drain"]);
    let listener = listener(&mut controller).await;
    proxy.remember();
    let list = Seam::new(Method::GET, &["/poddisruptionbudgets?"]);
    let older = [("old", Failing::AnswersWithOlderNews, "")];
    for (way, failing, _) in WAYS.into_iter().chain(older) {
        let (kept, well) = (format!("kept-{way}"), format!("well-{way}"));
        let mut kubelets = Vec::new();
        for name in [&kept, &well] {
            crate::cluster::create_node(client, name, &[]).await;
            let labels = if *name == kept { json!({ "labels": { "app": way } }) } else { json!({}) };
            running_pod(client, "default", name, name, labels).await;
            kubelets.push(Kubelet::start(&cluster.bench, name).await);
        }
        budget(client, way).await;
        // Budgets are watched while a drain lasts.
        let is_idle = |_, body: &str| body.contains("machine_config_controller_drains 0");
        page_until(listener, "/metrics", "no drain", is_idle).await;
        // A list that is late is one that is made later; the older one has a watch without news.
        let seam = if way == "old" { list.clone() } else { list.clone().without("watch=") };
        proxy.fail(seam, failing);
        let mark = cluster.bench.mark().await;
        request(client, &kept, "drain-b").await;
        request(client, &well, "drain-b").await;
        proxy.failed(1).await;
        until_done(client, &well, "drain-b").await;
        let pod = format!("pod default/{kept} is kept by its PodDisruptionBudget: ");
        until_blocked(client, &kept, &[&pod]).await;
        proxy.mend();
        until_blocked(client, &kept, &[&format!("is kept by PodDisruptionBudget default/{way}: ")]).await;
        let other = format!("other-{way}");
        running_pod(client, "default", &other, "elsewhere", json!({ "labels": { "app": way } })).await;
        until_done(client, &kept, "drain-b").await;
        let all = cluster.bench.requests_since(mark).await;
        let evictions = all.iter().filter(|one| one.subresource == "eviction" && one.name == kept).count();
        assert!((2..=4).contains(&evictions), "{way}: {evictions}");
    }
}

/// A budget that allows no eviction now, and whose status says so.
async fn budget(client: &Client, app: &str) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    let budget = json!({
        "metadata": { "name": app },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } },
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    let is_full = |budget: &PodDisruptionBudget| {
        budget
            .status
            .as_ref()
            .is_some_and(|status| status.expected_pods == Some(1) && status.disruptions_allowed == Some(0))
    };
    object_until(&budgets, app, "its status", is_full).await;
}
