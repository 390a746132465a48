//! `status`: the screen of a cluster, once and as it changes.

use std::process::{Output, Stdio};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::cluster::{
    Identity, Kubelet, MachineConfigBuilder, create_object, key, node_api, object_api, running_pod, within,
};
use crate::process::{Cluster, condition};
use crate::rollout::ready_node;
use crate::schema_files;

fn command(kubeconfig: &std::path::Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
    command.arg("status").arg("--kubeconfig").arg(kubeconfig).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub async fn run(kubeconfig: &std::path::Path, more: &[&str]) -> Output {
    within("status ends", command(kubeconfig, more).output()).await.unwrap()
}

pub async fn text(cluster: &Cluster) -> String {
    let person = cluster.bench.kubeconfig(&Identity::Admin("person".to_owned()));
    let output = run(&person, &[]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A `status --watch --output json` on a pipe.
struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(cluster: &Cluster) -> Self {
        let mut child = command(&cluster.kubeconfig, &["--watch", "--output", "json"]).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { _child: child, lines }
    }

    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let reading = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                let view: Value = serde_json::from_str(&line).unwrap();
                schema_files::check("controller", "status", &view);
                if holds(&view) {
                    return view;
                }
            }
        };
        within(what, reading).await
    }
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

async fn annotate(cluster: &Cluster, node: &str, annotations: Value) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    node_api(&cluster.client).patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// A drain that a budget blocks: in the pool's condition, on the screen, and gone from it when it is over. Nothing is written.
#[tokio::test]
async fn screen_follows_rollout_and_names_blocker() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let _controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &first).await;
    }
    let mut watch = Watch::start(&cluster);
    let done = |view: &Value| view["pools"][0]["updated"] == 2 && view["pools"][0]["state"] == "Complete";
    let view = watch.until("two nodes", done).await;
    assert_eq!((&view["nodes"], &view["pools"][0]["target"]), (&json!([]), &json!(first)));
    let _kubelet = Kubelet::start(&cluster.bench, "n1").await;
    running_pod(&cluster.client, "default", "kept", "n1", json!({ "labels": { "app": "shop" } })).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "default");
    let budget = json!({
        "metadata": { "name": "one" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "shop" } } },
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    // An agent begins, reports its phase, and requests its drain.
    let mcn = json!({
        "spec": {
            "node": { "name": "n2" }, "pool": { "name": "worker" }, "configVersion": { "desired": first },
        },
    });
    create_object(&cluster.client, "machineconfignodes", "n2", mcn).await.unwrap();
    let request = json!({ key("state"): "Working", key("desiredDrain"): format!("drain-{first}") });
    annotate(&cluster, "n1", request).await;
    let blocked = |view: &Value| view["nodes"][0]["step"] == "DrainBlocked";
    let view = watch.until("blocked", blocked).await;
    let detail = view["nodes"][0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("pod default/kept is kept by PodDisruptionBudget default/one"), "{detail}");
    let is_named = |pool: &Value| {
        let message = condition(pool, "RolloutDrainBlocked")["message"].as_str().unwrap_or_default();
        message.starts_with("node n1: pod default/kept is kept by PodDisruptionBudget default/one")
    };
    cluster.until_pool("worker", "the blocked drain", is_named).await;
    annotate(&cluster, "n2", json!({ key("state"): "Working" })).await;
    let conditions = [json!({
        "type": "RebootedNode", "status": "Unknown", "reason": "Rebooting", "message": "-",
        "lastTransitionTime": "2026-11-23T12:00:00Z",
    })];
    let status = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    let mcns = object_api(&cluster.client, "machineconfignodes");
    mcns.patch_status("n2", &PatchParams::default(), &status).await.unwrap();
    watch.until("reboots", |view| view["nodes"][1]["step"] == "Rebooting").await;
    let mark = cluster.bench.mark().await;
    let screen = text(&cluster).await;
    assert!(screen.contains("DrainBlocked") && screen.contains("pod default/kept is kept by"), "{screen}");
    assert!(!screen.contains('\u{1b}'), "escape codes on a pipe: {screen:?}");
    let requests = cluster.bench.requests_since(mark).await;
    let requests: Vec<_> = requests.iter().filter(|one| one.user == "person").collect();
    let reads = |verb: &str| ["get", "list", "watch"].contains(&verb);
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|one| reads(&one.verb) && one.resource != "machineconfigs"), "{requests:?}");
    // Both take their updates back: nothing is left on the screen.
    for name in ["n1", "n2"] {
        let done = json!({ key("state"): "Done", key("desiredDrain"): format!("uncordon-{first}") });
        annotate(&cluster, name, done).await;
    }
    watch.until("nothing is left", |view| view["nodes"] == json!([])).await;
}

/// Pods that do not end, one held by a finalizer and one by its kubelet, which is dead: on the screen, the pool, and in an Event.
#[tokio::test]
async fn pods_that_do_not_end_are_named_everywhere() {
    for (metadata, is_held_by, words) in [
        (json!({ "finalizers": ["example.test/hold"] }), true, "is held by finalizers: example.test/hold"),
        (json!({}), false, "its kubelet has not reported that"),
    ] {
        let cluster = Cluster::new().await;
        cluster.pool("worker").await;
        cluster.config("worker", config("1")).await;
        let _controller = cluster.start("a", &[]);
        let first = cluster.until_target("worker", "").await;
        ready_node(&cluster.client, "n1", &first).await;
        let _kubelet = if is_held_by { Some(Kubelet::start(&cluster.bench, "n1").await) } else { None };
        running_pod(&cluster.client, "default", "kept", "n1", metadata).await;
        if !is_held_by {
            // Its grace is over: only the kubelet, which is dead, could end it.
            let pods: Api<k8s_openapi::api::core::v1::Pod> =
                Api::namespaced(cluster.client.clone(), "default");
            let how = kube::api::DeleteParams { grace_period_seconds: Some(1), ..Default::default() };
            pods.delete("kept", &how).await.unwrap();
        }
        let mut watch = Watch::start(&cluster);
        // The drain has lasted for long: an Event is due.
        let desired = format!("drain-{first}");
        let request = json!({
            key("state"): "Working", key("desiredDrain"): desired,
            "machine-config-agent.io/drain-since": format!("{desired} 2026-01-01T00:00:00Z"),
        });
        annotate(&cluster, "n1", request).await;
        let is_shown = |view: &Value| {
            view["nodes"][0]["step"] == "DrainBlocked"
                && view["nodes"][0]["detail"].as_str().unwrap().starts_with("pod default/kept")
                && view["nodes"][0]["detail"].as_str().unwrap().contains(words)
        };
        watch.until(words, is_shown).await;
        let is_named = |pool: &Value| {
            let found = condition(pool, "RolloutDrainBlocked");
            let message = found["message"].as_str().unwrap_or_default();
            found["status"] == "True"
                && message.starts_with("node n1: pod default/kept")
                && message.contains(words)
        };
        cluster.until_pool("worker", words, is_named).await;
        crate::seams::drain::until_event(&cluster.client, "DrainThresholdExceeded", "n1", words).await;
    }
}

/// An error names the object, the cause and the next step, and nothing is shown that is half read.
#[tokio::test]
async fn unreadable_kinds_are_named() {
    let cluster = Cluster::new().await;
    let nobody = Identity::User { name: "guest".to_owned(), groups: vec![] };
    let output = run(&cluster.bench.kubeconfig(&nobody), &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{error}");
    assert!(
        error.contains(" can't be read: ")
            && error.contains("(403)")
            && error.contains("name a user with --kubeconfig that may list and watch them"),
        "{error}"
    );
    let output = run("/nowhere/kubeconfig".as_ref(), &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("/nowhere/kubeconfig: ") && output.status.code() == Some(2), "{error}");
    // An empty cluster, and one without a server.
    assert!(text(&cluster).await.contains("There is no MachineConfigPool"));
    cluster.bench.stop();
    let output = run(&cluster.kubeconfig, &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("check whether the API server answers") && output.status.code() == Some(4),
        "{error}"
    );
}
