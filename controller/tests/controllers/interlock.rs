//! The controller beside the Machine Config Operator: it writes nothing while that is at work, and says how to hand over.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{MachineConfigBuilder, call, object_api};
use crate::process::{Cluster, LEASE, NAMESPACE, target};

/// The Lease of the operator's controller.
const OPERATOR: &str = "machine-config-controller";

/// A version as the operator writes it.
const COMMIT: &str = "7ff337a4ffac8e7562692181178ede61e4b2eec5";

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

#[tokio::test]
async fn target_of_another_program_is_taken_over_by_annotation_alone() {
    let cluster = Cluster::new().await;
    let pool = cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    let theirs = format!("rendered-worker-{}", "a".repeat(32));
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
