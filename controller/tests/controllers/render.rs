//! The render controller.

use kube::api::ListParams;
use serde_json::json;

use crate::cluster::{Fault, MachineConfigBuilder, call, create_node, object_api, own_only};
use crate::process::{Cluster, condition, target};

fn config(name: &str, contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(name).file("/etc/a.conf", 0o644, contents)
}

/// BOOT-015: the name is that of the same objects offline.
#[tokio::test]
async fn pool_targets_its_rendered_config() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-a", "1")).await;
    let controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    let pool = cluster
        .until_pool("worker", "not degraded", |pool| condition(pool, "RenderDegraded")["status"] == "False")
        .await;
    assert_eq!(pool["spec"]["configuration"]["source"][0]["name"], "50-a");
    let api = object_api(&cluster.client, "machineconfigs");
    let rendered = api.get(&first).await.unwrap();
    let owner = &rendered.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.name.as_str(), owner.controller), ("worker", Some(true)));
    // Another config; then the first one again: the same name, and no second object.
    cluster.config("worker", config("50-a", "2")).await;
    let second = cluster.until_target("worker", &first).await;
    cluster.config("worker", config("50-a", "1")).await;
    assert_eq!(cluster.until_target("worker", &second).await, first);
    // Equal objects are not written again: after a restart there is nothing to do.
    assert!(controller.terminate().await.success());
    let mark = cluster.bench.mark().await;
    let mut controller = cluster.start("b", &["--controllers", "render"]);
    controller.line("The render controller runs").await;
    cluster.config("worker", config("50-a", "3")).await;
    cluster.until_target("worker", &first).await;
    let all = cluster.bench.requests_since(mark).await;
    let written = |resource: &str, verb: &str| {
        all.iter()
            .filter(|one| one.user == "controller" && one.resource == resource && one.verb == verb)
            .count()
    };
    assert_eq!((written("machineconfigs", "create"), written("machineconfigpools", "patch")), (1, 1));
}

/// Two configs that each fit are together more than etcd stores: the pool keeps its target, and says what is too large.
#[tokio::test]
async fn config_that_etcd_would_refuse_degrades_pool() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-a", &"a".repeat(900_000))).await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    let second = MachineConfigBuilder::new("51-b").file("/etc/b.conf", 0o644, "b".repeat(900_000));
    cluster.config("worker", second).await;
    let degraded = |pool: &serde_json::Value| condition(pool, "RenderDegraded")["status"] == "True";
    let pool = cluster.until_pool("worker", "degraded", degraded).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    for part in ["etcd takes at most 1572864", "50-a (", "51-b ("] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(target(&pool), first);
    // Just below the limit it is stored: the check refuses no more than etcd does.
    let fits = MachineConfigBuilder::new("51-b").file("/etc/b.conf", 0o644, "b".repeat(275_000));
    cluster.config("worker", fits).await;
    cluster.until_target("worker", &first).await;
    cluster.until_pool("worker", "not degraded", |pool| !degraded(pool)).await;
}

#[tokio::test]
async fn irreconcilable_config_degrades_pool_and_keeps_target() {
    let cluster = Cluster::new().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(&format!("50-{pool}"), "1")).await;
    }
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    let refused = config("50-worker", "1").field("fips", json!(true));
    cluster.config("worker", refused).await;
    let degraded = |pool: &serde_json::Value| condition(pool, "RenderDegraded")["status"] == "True";
    let pool = cluster.until_pool("worker", "degraded", degraded).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(
        message.contains("fips") && message.starts_with("Failed to render configuration for pool worker"),
        "{message}"
    );
    assert_eq!(target(&pool), first);
    // Other pools go on.
    let infra = cluster.until_target("infra", "").await;
    cluster.config("infra", config("50-infra", "2")).await;
    cluster.until_target("infra", &infra).await;
    // Corrected: it has a new target, and is not degraded any more.
    cluster.config("worker", config("50-worker", "2").field("fips", json!(false))).await;
    cluster.until_target("worker", &first).await;
    cluster.until_pool("worker", "not degraded", |pool| !degraded(pool)).await;
    // An image by tag, named with its object.
    cluster.config("worker", config("50-worker", "2").os_image_url("example.com/os:latest")).await;
    let pool = cluster.until_pool("worker", "degraded", degraded).await;
    let message = condition(&pool, "RenderDegraded")["message"].as_str().unwrap();
    assert!(message.contains("50-worker") && message.contains("example.com/os:latest"), "{message}");
}

/// An edited rendered config is restored; and unused ones are deleted but for ten. A person's MachineConfig that goes with its pool
/// is rendered like any other, and never deleted.
#[tokio::test]
async fn rendered_configs_are_restored_and_collected() {
    let cluster = Cluster::new().await;
    let pool = cluster.pool("worker").await;
    let owner = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
        "uid": pool.metadata.uid,
    });
    let labels = json!({ "machineconfiguration.openshift.io/role": "worker" });
    let mine = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "spec": {},
        "metadata": { "name": "40-mine", "ownerReferences": [owner], "labels": labels },
    });
    let configs = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
    assert_eq!(call(&cluster.client, "POST", configs, Some(("application/json", mine))).await.0, 200);
    cluster.config("worker", config("50-a", "0")).await;
    let mut controller = cluster.start("a", &["--controllers", "render"]);
    let first = cluster.until_target("worker", "").await;
    create_node(&cluster.client, "n", &[("currentConfig", &first), ("desiredConfig", &first)]).await;
    let path = format!("/apis/machineconfiguration.openshift.io/v1/machineconfigs/{first}");
    let edit = json!({ "spec": { "kernelArguments": ["debug"] } });
    assert_eq!(
        call(&cluster.client, "PATCH", &path, Some(("application/merge-patch+json", edit))).await.0,
        200
    );
    controller.line("was edited and is restored").await;
    let mut all = vec![first.clone()];
    for number in 1..=12 {
        cluster.config("worker", config("50-a", &number.to_string())).await;
        all.push(cluster.until_target("worker", &all[number - 1]).await);
    }
    // The node has the first; the last is the target; of the eleven between them ten stay.
    controller.line(": no node and no pool uses it").await;
    let api = object_api(&cluster.client, "machineconfigs");
    for kept in [&all[0], &all[12]] {
        assert!(api.get_opt(kept).await.unwrap().is_some(), "{kept}");
    }
    let pool = object_api(&cluster.client, "machineconfigpools").get("worker").await.unwrap();
    assert_eq!(pool.data["spec"]["configuration"]["source"][0]["name"], "40-mine");
    assert!(api.get_opt("40-mine").await.unwrap().is_some());
    let left = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(
        left.iter().filter(|one| one.metadata.name.as_ref().unwrap().starts_with("rendered-")).count(),
        12
    );
}

/// A server that restarts, watches that are too old: changes meanwhile are seen.
#[tokio::test]
async fn change_during_outage_is_seen_after_it() {
    if !own_only("change_during_outage_is_seen_after_it") {
        return;
    }
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("50-a", "1")).await;
    let _controller = cluster.start("a", &["--controllers", "render"]);
    let lead = cluster.until_leader(|name| name.starts_with("a_")).await;
    let first = cluster.until_target("worker", "").await;
    cluster
        .bench
        .fault(&Fault::expired().path("/apis/machineconfiguration.openshift.io/v1/machineconfigs").count(2));
    cluster.bench.restart();
    let client = cluster.bench.client("test").await;
    let cluster = Cluster { client, ..cluster };
    cluster.served().await;
    cluster.config("worker", config("50-a", "2")).await;
    cluster.until_target("worker", &first).await;
    assert_eq!(cluster.until_leader(|_| true).await, lead);
}
