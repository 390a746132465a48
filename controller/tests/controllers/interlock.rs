//! The controller beside the Machine Config Operator: it writes nothing while that is at work, and says how to hand over.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, call, object_api};
use crate::process::{Cluster, Controller, LEASE, NAMESPACE, target};

/// The Lease of the operator's controller.
const OPERATOR: &str = "machine-config-controller";

/// A version as the operator writes it.
const COMMIT: &str = "7ff337a4ffac8e7562692181178ede61e4b2eec5";

/// The annotation that has a pool be taken over.
const TAKE_OVER: &str = "machine-config-agent.io/take-over";

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// The operator's Lease with a renewal; its clock is years behind.
async fn renew(client: &Client, holder: Option<&str>, seconds: u32, number: u32) {
    let spec = json!({
        "holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": format!("2001-01-01T00:00:{number:02}.000000Z"),
    });
    let lease = json!({ "metadata": { "name": OPERATOR }, "spec": spec });
    let api = leases(client);
    if api.get_opt(OPERATOR).await.unwrap().is_some() {
        api.patch(OPERATOR, &PatchParams::default(), &Patch::Merge(lease)).await.unwrap();
    } else {
        api.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    }
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

/// Requests that write, but those to our own Lease.
async fn writes(cluster: &Cluster, mark: usize) -> Vec<String> {
    let all = cluster.bench.requests_since(mark).await;
    let is_write = |verb: &str| !matches!(verb, "get" | "list" | "watch");
    let writes = all.iter().filter(|one| one.user == "controller" && is_write(&one.verb));
    writes
        .filter(|one| one.resource != "leases")
        .map(|one| format!("{} {}", one.verb, one.resource))
        .collect()
}

async fn holder(client: &Client, name: &str) -> Option<String> {
    leases(client).get(name).await.unwrap().spec.unwrap().holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn nothing_is_written_while_operator_renews_its_lease() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    renew(&cluster.client, Some("mco"), 137, 0).await;
    let mark = cluster.bench.mark().await;
    let mut controller = cluster.start("a", &[]);
    let line = controller.line("waiting 13").await;
    assert!(line.contains("delete leases/machine-config-controller"), "{line}");
    renew(&cluster.client, Some("mco"), 137, 1).await;
    assert!(!controller.end().await.success());
    let lines = controller.lines().join("\n");
    for part in [
        "mco renews Lease openshift-machine-config-operator/machine-config-controller",
        "Hand the pools over",
        "--beside-mco",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert_eq!(writes(&cluster, mark).await, [""; 0]);
    assert_eq!(holder(&cluster.client, LEASE).await, None, "its own Lease is free");
}

/// It stops as well: somebody scales the operator up again.
#[tokio::test]
async fn running_controller_stops_when_operator_comes_back() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    // One that was killed and did not release it.
    renew(&cluster.client, Some("mco"), 1, 0).await;
    let controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    renew(&cluster.client, Some("mco-2"), 137, 1).await;
    assert!(!controller.end().await.success());
    assert!(controller.lines().join("\n").contains("mco-2 renews Lease"));
    assert_eq!(holder(&cluster.client, LEASE).await, None);
    // The operator ends well, and the next one begins at once.
    renew(&cluster.client, None, 137, 2).await;
    let _controller = cluster.start("b", &[]);
    cluster.config("worker", config("2")).await;
    cluster.until_target("worker", &first).await;
}

/// A rendered config as the operator makes it; returns its name.
async fn foreign_config(cluster: &Cluster, pool: &DynamicObject, digit: &str) -> String {
    let theirs = format!("rendered-worker-{}", digit.repeat(32));
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": theirs,
            "annotations": { "machineconfiguration.openshift.io/generated-by-controller-version": COMMIT },
            "ownerReferences": [{
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
                "uid": pool.metadata.uid, "controller": true,
            }],
        },
        "spec": { "config": { "ignition": { "version": "3.4.0" } } },
    });
    let configs = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
    assert_eq!(call(&cluster.client, "POST", configs, Some(("application/json", object))).await.0, 200);
    theirs
}

/// The operator comes back, and its Lease is not seen: another namespace, another name. It gives a pool its target, and the running
/// controller stops, says how to hand over, and lets the target be; also in a pool that was taken over before.
#[tokio::test]
async fn running_controller_stops_at_target_of_another_program() {
    let cluster = Cluster::new().await;
    let pool = cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let first = cluster.start("a", &[]);
    cluster.until_target("worker", "").await;
    let theirs = foreign_config(&cluster, &pool, "a").await;
    is_stopped_by(&cluster, &first, &theirs).await;
    cluster.patch_pool("worker", json!({ "metadata": { "annotations": { TAKE_OVER: "" } } })).await;
    let second = cluster.start("b", &[]);
    cluster.until_target("worker", &theirs).await;
    let pool = cluster
        .until_pool("worker", "taken over", |pool| pool["metadata"]["annotations"][TAKE_OVER].is_null());
    let pool = serde_json::from_value(pool.await).unwrap();
    let theirs = foreign_config(&cluster, &pool, "b").await;
    is_stopped_by(&cluster, &second, &theirs).await;
}

async fn is_stopped_by(cluster: &Cluster, controller: &Controller, theirs: &str) {
    cluster.patch_pool("worker", json!({ "spec": { "configuration": { "name": theirs } } })).await;
    assert!(!controller.end().await.success());
    let lines = controller.lines().join("\n");
    let command = "kubectl annotate machineconfigpool worker machine-config-agent.io/take-over=";
    for part in [theirs, COMMIT, command, "Hand the pools over"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert_eq!(holder(&cluster.client, LEASE).await, None, "its Lease is free");
    cluster.until_pool("worker", "their target", |pool| target(pool) == theirs).await;
}

#[tokio::test]
async fn target_of_another_program_is_taken_over_by_annotation_alone() {
    let cluster = Cluster::new().await;
    let pool = cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let theirs = foreign_config(&cluster, &pool, "a").await;
    cluster.patch_pool("worker", json!({ "spec": { "configuration": { "name": theirs } } })).await;
    let mark = cluster.bench.mark().await;
    let controller = cluster.start("a", &[]);
    assert!(!controller.end().await.success());
    let lines = controller.lines().join("\n");
    for part in
        [&*theirs, COMMIT, "kubectl annotate machineconfigpool worker machine-config-agent.io/take-over="]
    {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert_eq!(writes(&cluster, mark).await, [""; 0]);
    let annotation: Value =
        json!({ "metadata": { "annotations": { "machine-config-agent.io/take-over": "" } } });
    cluster.patch_pool("worker", annotation).await;
    let _controller = cluster.start("b", &[]);
    let ours = cluster.until_target("worker", &theirs).await;
    assert!(object_api(&cluster.client, "machineconfigs").get_opt(&theirs).await.unwrap().is_some());
    let pool = cluster.until_pool("worker", "our target", |pool| target(pool) == ours).await;
    assert_eq!(pool["spec"]["configuration"]["source"][0]["name"], "50-a");
}

/// Each says what it takes over, as the table of docs/replace-mcd.md does.
#[tokio::test]
async fn each_controller_says_what_it_takes_over() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/replace-mcd.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| controller | takes over from the operator |\n|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows: Vec<(String, String)> =
        rows.map(|(name, parts)| (name.replace('`', ""), parts.replace('`', ""))).collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    let cluster = Cluster::new().await;
    for (name, parts) in rows {
        let mut controller = cluster.start("a", &["--beside-mco", "--controllers", &name]);
        let line = controller.line("--beside-mco").await;
        let split = parts.trim_end_matches(')').replace(" (", ", ").replace(": ", ", ");
        for part in split.split(", ").filter(|part| *part != "nothing") {
            assert!(line.contains(part), "{name}: {part:?} is not in {line}");
        }
        controller.kill().await;
        cluster.free_lease().await;
    }
}

/// One controller, which says what it takes over.
#[tokio::test]
async fn single_controller_runs_beside_operator() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    renew(&cluster.client, Some("mco"), 137, 0).await;
    let mut controller = cluster.start("a", &["--beside-mco", "--controllers", "render"]);
    let line = controller.line("--beside-mco").await;
    assert!(line.contains("takes over the rendered MachineConfigs and spec.configuration"), "{line}");
    renew(&cluster.client, Some("mco"), 137, 1).await;
    cluster.until_target("worker", "").await;
    drop(controller);
    let refused = cluster.start("b", &["--beside-mco"]);
    assert!(!refused.end().await.success());
    assert!(refused.lines().join("\n").contains("--beside-mco runs one controller"));
}
