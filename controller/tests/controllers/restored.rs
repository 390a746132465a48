//! An API server whose etcd came back from a backup: versions go back, and what a controller knows is newer than what there is.

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{
    MachineConfigBuilder, Request, annotation, node_api, node_until, object_api, object_until,
};
use crate::connections::behind_proxy;
use crate::process::{Cluster, LEASE, NAMESPACE, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::until_has;
use crate::rollout::{Agents, ready_node};

fn config(pool: &str, contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, contents)
}

/// A leader that stays: a pool for which it writes nothing takes the next MachineConfig, and what its node reports is counted.
#[tokio::test]
async fn leader_that_stays_takes_state_before_restore() {
    let cluster = Cluster::new().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, config(pool, "1")).await;
    }
    let mut controller = cluster.start("a", &[]);
    let first = cluster.until_target("worker", "").await;
    cluster.until_target("infra", "").await;
    ready_node(&cluster.client, "w1", &first).await;
    cluster.until_pool("worker", "its node", |pool| pool["status"]["readyMachineCount"] == 1).await;
    cluster.bench.save();
    cluster.served().await;
    let agents = Agents::start(&cluster.bench).await;
    cluster.config("worker", config("worker", "2")).await;
    let second = cluster.until_target("worker", &first).await;
    until_has(&cluster, "w1", &second).await;
    let is_updated = |pool: &Value| condition(pool, "Updated")["status"] == "True";
    cluster.until_pool("worker", "updated", is_updated).await;
    drop(agents);
    // Versions that the server does not reach again.
    for count in 0..300 {
        let label = Patch::Merge(json!({ "metadata": { "labels": { "count": count.to_string() } } }));
        node_api(&cluster.client).patch("w1", &PatchParams::default(), &label).await.unwrap();
    }
    let name = |pool: &Value| pool["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let before = name(&cluster.until_pool("worker", "it is there", |_| true).await);
    cluster.bench.restore();
    cluster.served().await;
    let pool = cluster.until_pool("worker", "it is there", |_| true).await;
    assert!(name(&pool) < before, "the server has gone back");
    let _agents = Agents::start(&cluster.bench).await;
    cluster.config("worker", config("worker", "3")).await;
    let third = cluster.until_target("worker", &first).await;
    assert_ne!(third, second);
    until_has(&cluster, "w1", &third).await;
    cluster.until_pool("worker", "updated again", is_updated).await;
    controller.line("went back to an earlier state").await;
}

/// The leader dies, and etcd comes back from a backup with a Lease that it held and renewed since: the standby saw a newer one, and leads
/// all the same.
#[tokio::test]
async fn standby_that_saw_restore_leads() {
    const LASTS: [&str; 2] = ["--lease-duration", "15"];
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", config("worker", "1")).await;
    let leader = cluster.start("leader", &LASTS);
    let first = cluster.until_target("worker", "").await;
    let mut standby = cluster.start("standby", &LASTS);
    standby.line("Serving metrics and health on").await;
    cluster.bench.save();
    cluster.served().await;
    cluster.config("worker", config("worker", "lost")).await;
    cluster.until_target("worker", &first).await;
    until_renewed(&cluster).await;
    until_renewed(&cluster).await;
    leader.kill().await;
    cluster.bench.restore();
    cluster.served().await;
    let holder = cluster.until_leader(|_| true).await;
    assert!(holder.starts_with("leader_"), "{holder}: as in the backup");
    cluster.until_leader(|name| name.starts_with("standby_")).await;
    cluster.config("worker", config("worker", "2")).await;
    let second = cluster.until_target("worker", &first).await;
    let text = object_api(&cluster.client, "machineconfigs").get(&second).await.unwrap().data.to_string();
    assert!(!text.contains("lost"), "{text}");
}

/// Has nothing of the controller reach the API server. The last fault is that of the reads.
pub fn cut(proxy: &Proxy) {
    for method in [Method::PUT, Method::PATCH, Method::POST, Method::DELETE, Method::GET] {
        proxy.fail(Seam::new(method, &[]), Failing::Refuses(503, "the API server is away"));
    }
}

/// Others write until the server's versions have passed one.
async fn write_beyond(cluster: &Cluster, version: u64) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    for count in 0_i32.. {
        let patch = Patch::Merge(json!({ "spec": { "leaseTransitions": count } }));
        let written = leases.patch("others", &PatchParams::default(), &patch).await.unwrap();
        if written.metadata.resource_version.unwrap().parse::<u64>().unwrap() > version {
            return;
        }
    }
}

/// Waits until the leader has renewed its Lease.
async fn until_renewed(cluster: &Cluster) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let since = version(cluster).await;
    let is_new =
        |lease: &Lease| lease.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap() > since;
    object_until(&leases, LEASE, "a renewal after the backup", is_new).await;
}

/// Restores the backup while the controller is cut off, and has the server's versions pass those that it knows.
async fn restore_beyond(cluster: &Cluster, proxy: &Proxy) {
    let reached = version(cluster).await;
    cut(proxy);
    cluster.bench.restore();
    cluster.served().await;
    write_beyond(cluster, reached + 200).await;
}

async fn version(cluster: &Cluster) -> u64 {
    let pools = object_api(&cluster.client, "machineconfigpools");
    let pools = pools.list(&ListParams::default()).await.unwrap();
    pools.metadata.resource_version.unwrap().parse().unwrap()
}

/// The server's versions have passed those that the leader's watches go on from before they are answered: nothing is rendered from a
/// MachineConfig of the lost state beside those of the restored one.
async fn versions_pass(times: &[&str], is_lease_renewed: bool) {
    let (cluster, proxy) = behind_proxy().await;
    cluster.lease("others").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("worker", "1")).await;
    let mut controller = cluster.start("a", times);
    let first = cluster.until_target("worker", "").await;
    cluster.bench.save();
    cluster.served().await;
    let lost = MachineConfigBuilder::new("60-lost").file("/etc/lost.conf", 0o644, "lost");
    cluster.config("worker", lost).await;
    cluster.until_target("worker", &first).await;
    if is_lease_renewed {
        until_renewed(&cluster).await;
    }
    restore_beyond(&cluster, &proxy).await;
    cluster.config("worker", config("worker", "2")).await;
    let mark = cluster.bench.mark().await;
    proxy.mend();
    cluster.until_target("worker", &first).await;
    let configs = object_api(&cluster.client, "machineconfigs").list(&ListParams::default()).await.unwrap();
    let is_mixed = |config: &&DynamicObject| config.data.to_string().contains("/etc/lost.conf");
    let mixed: Vec<_> = configs.iter().filter(is_mixed).map(|config| &config.metadata.name).collect();
    assert!(mixed.is_empty(), "{mixed:?} of two states: {:#?}", controller.lines());
    if is_lease_renewed {
        controller.line("is not as this leader wrote it last").await;
    }
    let requests = cluster.bench.requests_since(mark).await;
    let refused: Vec<String> = requests
        .iter()
        // Two controllers write a pool's status.
        .filter(|one| one.code == Some(409) && one.resource != "leases" && one.subresource != "status")
        .map(Request::line)
        .collect();
    assert!(refused.is_empty(), "decided by the lost state: {refused:?}");
}

#[tokio::test]
async fn restore_is_noticed_by_lease_where_versions_have_passed() {
    versions_pass(&["--lease-duration", "60", "--lease-retry-period", "1"], true).await;
}

/// The Lease is in the backup, and what changed afterwards is not.
#[tokio::test]
async fn restore_of_backup_younger_than_lease_leaves_nothing_of_lost_state() {
    versions_pass(&["--lease-duration", "600"], false).await;
}

/// An API server that has just started answers one kind after another: nodes are given no target by the pools of the lost state.
#[tokio::test]
async fn kinds_that_answer_late_after_restore_are_awaited() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.lease("others").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("worker", "1")).await;
    let _controller = cluster.start("a", &["--lease-duration", "600", "--lease-retry-period", "120"]);
    let first = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "w1", &first).await;
    cluster.until_pool("worker", "its node", |pool| pool["status"]["readyMachineCount"] == 1).await;
    cluster.bench.save();
    cluster.served().await;
    cluster.config("worker", config("worker", "lost")).await;
    let lost = cluster.until_target("worker", &first).await;
    node_until(&cluster.client, "w1", "the target", |node| annotation(node, "desiredConfig") == Some(&lost))
        .await;
    restore_beyond(&cluster, &proxy).await;
    let mark = cluster.bench.mark().await;
    proxy.mend();
    for kind in ["/machineconfigs?", "/machineconfigpools?"] {
        let starting = Failing::Refuses(429, "storage is (re)initializing");
        proxy.fail(Seam::new(Method::GET, &[kind]), starting);
    }
    proxy.failed(2).await;
    proxy.mend();
    cluster.config("worker", config("worker", "2")).await;
    let second = cluster.until_target("worker", &first).await;
    node_until(&cluster.client, "w1", "the new target", |node| {
        annotation(node, "desiredConfig") == Some(&second)
    })
    .await;
    let requests = cluster.bench.requests_since(mark).await;
    let of_lost = requests.iter().filter(|one| one.verb == "patch" && one.resource == "nodes");
    let of_lost: Vec<String> = of_lost
        .filter(|one| one.body.as_ref().is_some_and(|body| body.to_string().contains(&lost)))
        .map(Request::line)
        .collect();
    assert!(of_lost.is_empty(), "a target of the lost state: {of_lost:?}");
}

/// An API server that is restored answers the list that the restore asks for, and is busy at the watch after it: the list counts all the same,
/// and decisions go on once the watch is answered.
#[tokio::test]
async fn busy_watch_after_list_delays_decisions_and_ends_none() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.lease("others").await;
    cluster.pool("worker").await;
    cluster.config("worker", config("worker", "1")).await;
    let mut controller = cluster.start("a", &["--lease-duration", "60", "--lease-retry-period", "1"]);
    let first = cluster.until_target("worker", "").await;
    cluster.bench.save();
    cluster.served().await;
    until_renewed(&cluster).await;
    restore_beyond(&cluster, &proxy).await;
    let mark = cluster.bench.mark().await;
    proxy.mend();
    let busy = Failing::Refuses(429, "storage is (re)initializing");
    proxy.fail(Seam::new(Method::GET, &["/nodes?", "watch="]), busy);
    controller.line("is not as this leader wrote it last").await;
    // The list, and not the question for the server's version.
    let is_list = |request: &Request| request.resource == "nodes" && request.uri.contains("limit=100");
    cluster.bench.audit().since(mark, "the list of nodes", is_list).await;
    proxy.failed_again(2).await;
    proxy.mend();
    cluster.config("worker", config("worker", "2")).await;
    cluster.until_target("worker", &first).await;
}
