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
use crate::process::{Cluster, Controller, condition};
use crate::proxy::{Failing, Proxy, Seam};
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
const KINDS: [&str; 5] = ["cordon", "list", "evict", "read", "report"];

fn seam(kind: &str, node: &str) -> Seam {
    match kind {
        "cordon" => Seam::new(Method::PATCH, &[&format!("/api/v1/nodes/{node}?")]),
        "list" => {
            let selector = format!("spec.nodeName%3D{node}%2C");
            Seam::new(Method::GET, &["/api/v1/pods?", &selector]).without("watch=")
        }
        "evict" => Seam::new(Method::POST, &[&format!("/pods/{node}/eviction")]),
        "read" => Seam::new(Method::GET, &[&format!("/machineconfignodes/{node}")]),
        _ => Seam::new(Method::PATCH, &[&format!("/machineconfignodes/{node}/status?")]),
    }
}

pub async fn request(client: &Client, node: &str, what: &str) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { key("desiredDrain"): what } } }));
    node_api(client).patch(node, &PatchParams::default(), &patch).await.unwrap();
}

pub async fn until_done(client: &Client, node: &str, what: &str) {
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

/// A pool of one node, which has its config, and a controller that reaches the API server by the proxy.
async fn with_node(name: &str) -> (Cluster, Proxy, Controller, Vec<Kubelet>) {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let controller = cluster.start("a", &[]);
    let config = cluster.until_target("worker", "").await;
    let kubelets = nodes(&cluster, &[name.to_owned()], &config).await;
    (cluster, proxy, controller, kubelets)
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
        let said = if way == "refused" { "can't be evicted" } else { "is not evicted yet" };
        let pod = format!("pod default/evict-{way} {said}: ");
        until_blocked(client, &format!("evict-{way}"), &[&pod, words]).await;
        until_blocked(client, &format!("list-{way}"), &["its pods can't be listed: ", words]).await;
        // No drain waits for the report.
        for kind in ["read", "report"] {
            until_done(client, &format!("{kind}-{way}"), "drain-b").await;
        }
    }
    let names_all = |pool: &Value| {
        let message = condition(pool, "RolloutDrainBlocked")["message"].as_str().unwrap_or_default();
        let is_named = |kind: &str| WAYS.iter().all(|(way, ..)| message.contains(&format!("{kind}-{way}: ")));
        ["evict", "list"].into_iter().all(is_named)
    };
    cluster.until_pool("worker", "each node that is blocked is named", names_all).await;
    for (way, _, words) in WAYS {
        until_event(client, "DrainNotWritten", &format!("cordon-{way}"), words).await;
    }
    let is_counted = |_, body: &str| {
        ["NodeDrain", "ConfigNodeStatus"]
            .iter()
            .all(|write| failures(body, write, "unanswered") >= 3 && failures(body, write, "refused") > 0)
            && failures(body, "Eviction", "unanswered") >= 3
            && failures(body, "Eviction", "refused") > 0
            && body.contains("machine_config_controller_evictions_total{outcome=\"failed\"}")
    };
    page_until(listener, "/metrics", "each failure is counted", is_counted).await;
    let (code, body) = get(listener, "/readyz");
    assert_eq!((code, body.lines().count()), (503, 1), "{body}");
    assert!(body.starts_with("pods can't be read: a webhook says no (403); grant"), "{body}");
    proxy.mend();
    for name in &names {
        until_done(client, name, "drain-b").await;
        pod_gone(client, "default", name).await;
    }
    let told = |pool: &Value| condition(pool, "RolloutDrainBlocked")["status"] == "True";
    cluster.until_pool("worker", "nothing is blocked", |pool| !told(pool)).await;
}

/// Each status that an eviction without a budget may be answered with: the words are those of its cause, and the node is drained once the
/// server answers well. A refusal alone is counted as one.
#[tokio::test]
async fn failed_evictions_are_told_by_their_cause() {
    const BUSY: &str = "is not evicted yet: the API server is busy: ";
    const FAILED: &str = "is not evicted yet: the API server failed: ";
    let codes =
        [(429, BUSY), (503, BUSY), (500, FAILED), (502, FAILED), (504, FAILED), (403, "can't be evicted: ")];
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    let mut controller = cluster.start("a", &["--controllers", "drain"]);
    let listener = listener(&mut controller).await;
    let mut kubelets = Vec::new();
    for (code, _) in codes {
        let name = format!("of-{code}");
        crate::cluster::create_node(client, &name, &[]).await;
        running_pod(client, "default", &name, &name, json!({})).await;
        kubelets.push(Kubelet::start(&cluster.bench, &name).await);
        proxy.fail(seam("evict", &name), Failing::Refuses(code, "the words of the server"));
        request(client, &name, "drain-b").await;
    }
    for (code, said) in codes {
        let name = format!("of-{code}");
        let text = format!("pod default/{name} {said}the words of the server ({code})");
        until_blocked(client, &name, &[&text]).await;
    }
    let count = |body: &str, outcome: &str| {
        let name = format!("machine_config_controller_evictions_total{{outcome=\"{outcome}\"}} ");
        let line = body.lines().find_map(|line| line.strip_prefix(&*name)?.parse::<u64>().ok());
        line.unwrap_or(0)
    };
    let are_counted = |_, body: &str| count(body, "failed") >= 5 && count(body, "refused") >= 1;
    page_until(listener, "/metrics", "failures and refusals", are_counted).await;
    let (_, body) = get(listener, "/metrics");
    let asked = proxy.mend();
    let refused = asked.last().copied().unwrap_or(0);
    assert!(count(&body, "refused") <= refused, "one of six is refused: {refused} of {asked:?}: {body}");
    for (code, _) in codes {
        let name = format!("of-{code}");
        until_done(client, &name, "drain-b").await;
        assert_eq!(own(&node_api(client).get(&name).await.unwrap(), "drain-blocked"), None);
    }
}

/// The list of pods is from before one was removed: its eviction finds nothing, and the drain ends.
#[tokio::test]
async fn list_of_pods_is_older_than_pod() {
    let (cluster, proxy, _controller, kubelets) = with_node("old").await;
    let client = &cluster.client;
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

/// 404 for a pod that runs: a webhook may answer so. It is named, asked for again, and the node is not drained before it left.
#[tokio::test]
async fn eviction_of_running_pod_is_said_to_find_nothing() {
    let (cluster, proxy, _controller, _kubelets) = with_node("old").await;
    let client = &cluster.client;
    proxy.fail(seam("evict", "old"), Failing::Refuses(404, "not found, says a webhook"));
    request(client, "old", "drain-b").await;
    until_blocked(client, "old", &["the API server reports that the pod is gone, but it exists"]).await;
    let node = node_api(client).get("old").await.unwrap();
    assert_ne!(annotation(&node, "lastAppliedDrain"), Some("drain-b"));
    proxy.mend();
    until_done(client, "old", "drain-b").await;
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

/// Budgets that may not be read, or that the server does not have: the node, its pool and `/readyz` say so, with the next step, the metric
/// shows it, and all of it ends with the fault.
#[tokio::test]
async fn budgets_that_cannot_be_read_are_named() {
    let (cluster, proxy) = behind_proxy().await;
    let client = &cluster.client;
    let _disruption = DisruptionController::start(&cluster.bench, "default").await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let config = cluster.until_target("worker", "").await;
    let gauge = "machine_config_controller_watch_up{resource=\"poddisruptionbudgets\"}";
    for (code, next) in
        [(403, "; grant the controller's account the verbs list and watch of them"), (404, "")]
    {
        let (kept, app) = (format!("kept-{code}"), format!("app-{code}"));
        ready_node(client, &kept, &config).await;
        running_pod(client, "default", &kept, &kept, json!({ "labels": { "app": app } })).await;
        let _kubelet = Kubelet::start(&cluster.bench, &kept).await;
        budget(client, &app).await;
        proxy.fail(
            Seam::new(Method::GET, &["/poddisruptionbudgets?"]),
            Failing::Refuses(code, "no budgets here"),
        );
        request(client, &kept, "drain-b").await;
        let words = format!("poddisruptionbudgets can't be read: no budgets here ({code}){next}");
        let pod = format!("pod default/{kept} is kept by its PodDisruptionBudget: ");
        until_blocked(client, &kept, &[&pod, &words]).await;
        let is_named = |pool: &Value| {
            let message = condition(pool, "RolloutDrainBlocked")["message"].as_str().unwrap_or_default();
            message.contains(&format!("no budgets here ({code})"))
        };
        cluster.until_pool("worker", "the budgets are named", is_named).await;
        let named = |answer, text: &str| answer == 503 && text.contains(&words);
        page_until(listener, "/readyz", "the budgets are named", named).await;
        let is = |value: &'static str| {
            move |_, body: &str| body.lines().any(|line| line == format!("{gauge} {value}"))
        };
        page_until(listener, "/metrics", "they are not watched", is("0")).await;
        proxy.mend();
        page_until(listener, "/metrics", "they are watched", is("1")).await;
        page_until(listener, "/readyz", "ready", |answer, _| answer == 200).await;
        until_blocked(client, &kept, &[&format!("is kept by PodDisruptionBudget default/{app}: ")]).await;
        running_pod(
            client,
            "default",
            &format!("other-{code}"),
            "elsewhere",
            json!({ "labels": { "app": app } }),
        )
        .await;
        until_done(client, &kept, "drain-b").await;
        let is_gone = |_, body: &str| !body.contains(gauge);
        page_until(listener, "/metrics", "nobody needs them", is_gone).await;
    }
}

/// The role lacks the right to list pods, or to watch them: the node, its pool, the metric and `/readyz` say so with what to grant, the log
/// once, and all of it ends with the fault, also where the drain goes on.
#[tokio::test]
async fn pods_that_may_not_be_read_are_named() {
    const NO: Failing = Failing::Refuses(403, "the role has no right for it");
    let (cluster, proxy, mut controller, _kubelets) = with_node("old").await;
    let client = &cluster.client;
    let listener = listener(&mut controller).await;
    let metric = "machine_config_controller_drain_blocked{node=\"old\",pod=\"\",budget=\"\"} 1\n";
    let grant =
        "the role has no right for it (403); grant the controller's account the verbs list and watch of";
    let named =
        move |code, body: &str| code == 503 && body.contains(&format!("pods can't be read: {grant} them"));
    proxy.fail(seam("list", "old"), NO);
    request(client, "old", "drain-b").await;
    let words = format!("its pods can't be listed: {grant} pods");
    until_blocked(client, "old", &[&words]).await;
    let is_named = |pool: &Value| {
        condition(pool, "RolloutDrainBlocked")["message"].as_str().is_some_and(|text| text.contains(&words))
    };
    cluster.until_pool("worker", &words, is_named).await;
    page_until(listener, "/readyz", "the right is named", named).await;
    page_until(listener, "/metrics", metric, |_, body| body.contains(metric)).await;
    proxy.failed(3).await;
    let count = |what: &str| controller.lines().iter().filter(|line| line.contains(what)).count();
    assert_eq!(count("Could not list the pods of node old"), 1, "{:#?}", controller.lines());
    // The drain goes on as far as it can.
    proxy.mend();
    proxy.fail(seam("evict", "old"), Failing::Refuses(403, "not yet"));
    until_blocked(client, "old", &["not yet"]).await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    page_until(listener, "/metrics", "the pod is named", |_, body| !body.contains(metric)).await;
    proxy.mend();
    until_done(client, "old", "drain-b").await;
    request(client, "old", "uncordon-b").await;
    until_done(client, "old", "uncordon-b").await;

    let _kubelet = Kubelet::start(&cluster.bench, "old").await;
    running_pod(client, "default", "next", "old", json!({})).await;
    proxy.fail(Seam::new(Method::POST, &["/pods/next/eviction"]), Failing::Refuses(403, "not yet"));
    proxy.fail(Seam::new(Method::GET, &["/api/v1/pods?", "spec.nodeName%3Dold%2C", "watch="]), NO);
    request(client, "old", "drain-c").await;
    until_blocked(client, "old", &["not yet"]).await;
    proxy.failed(3).await;
    assert!(named(503, &page_until(listener, "/readyz", "the right is named", named).await));
    assert_eq!(count("Watch of the pods of node old failed"), 1, "{:#?}", controller.lines());
    proxy.mend_part("watch=");
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    proxy.mend();
    until_done(client, "old", "drain-c").await;
}

/// The budgets may be listed, and not watched: told once, and ready again as soon as they may.
#[tokio::test]
async fn budgets_that_may_not_be_watched_are_named() {
    let (cluster, proxy, mut controller, _kubelets) = with_node("old").await;
    let client = &cluster.client;
    let listener = listener(&mut controller).await;
    proxy.fail(seam("evict", "old"), Failing::Refuses(403, "not yet"));
    proxy.fail(
        Seam::new(Method::GET, &["/poddisruptionbudgets?", "watch="]),
        Failing::Refuses(403, "the role has no right for it"),
    );
    request(client, "old", "drain-b").await;
    until_blocked(client, "old", &["not yet"]).await;
    proxy.failed(3).await;
    let words = "poddisruptionbudgets can't be read: the role has no right for it (403); grant the controller's account";
    // Also while they are listed again and again.
    for _ in 0..100 {
        let (code, body) = get(listener, "/readyz");
        assert_eq!((code, body.contains(words)), (503, true), "{body}");
    }
    let lines = controller.lines();
    let told = lines.iter().filter(|line| line.contains("PodDisruptionBudgets can't be watched")).count();
    assert_eq!(told, 1, "{lines:#?}");
    proxy.mend_part("/poddisruptionbudgets?");
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    proxy.mend();
    until_done(client, "old", "drain-b").await;
}

/// A watch of budgets that breaks and is answered again without a change counts as watched.
#[tokio::test]
async fn watch_of_budgets_breaks() {
    let (cluster, proxy, mut controller, _kubelets) = with_node("old").await;
    let client = &cluster.client;
    let listener = listener(&mut controller).await;
    proxy.fail(seam("evict", "old"), Failing::Refuses(403, "not yet"));
    let watch = || Seam::new(Method::GET, &["/poddisruptionbudgets?", "watch="]);
    request(client, "old", "drain-b").await;
    until_blocked(client, "old", &["not yet"]).await;
    let gauge = |value: &str| format!("watch_up{{resource=\"poddisruptionbudgets\"}} {value}\n");
    page_until(listener, "/metrics", "they are watched", |_, body| body.contains(&gauge("1"))).await;
    proxy.fail(watch(), Failing::AnswersSomethingElse);
    cluster.bench.restart();
    cluster.served().await;
    page_until(listener, "/metrics", "they are not watched", |_, body| body.contains(&gauge("0"))).await;
    proxy.mend_part("/poddisruptionbudgets?");
    page_until(listener, "/metrics", "they are watched", |_, body| body.contains(&gauge("1"))).await;
    proxy.mend();
    until_done(client, "old", "drain-b").await;
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
