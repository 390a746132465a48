//! Another program that is at the same objects, and what only looks like one: nodes are not driven back and forth, and nobody is accused who
//! did nothing.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::cluster::{
    Bench, Kubelet, MachineConfigBuilder, create_object, key, node_api, node_until, object_api, running_pod,
};
use crate::connections::behind_proxy;
use crate::contested::rival;
use crate::drain::{Scene, own};
use crate::lost_answers::made;
use crate::opt_in::until_gone;
use crate::process::{Cluster, condition, target};
use crate::proxy::{Failing, Seam};
use crate::refusals::until_has;
use crate::rollout::{Agents, ready_node};
use crate::seams::drain::{request, until_done};

/// Length of a fight.
const FIGHT: Duration = Duration::from_secs(60);

/// Time for which a new leader is watched: it writes the target after 32 s.
const TAKEN_OVER: Duration = Duration::from_secs(20);

/// The annotation that has the rival set a pool's target back to its value.
const BACK: &str = "rival.test/back";

/// A program that sets the target of the pool back, as fast as it can.
async fn pool_rival(bench: &Bench) -> JoinSet<()> {
    let pools = object_api(&bench.client("rival").await, "machineconfigpools");
    rival(pools, "worker", false, |pool| {
        let back = pool["metadata"]["annotations"][BACK].as_str()?;
        (target(pool) != back).then(|| json!({ "spec": { "configuration": { "name": back } } }))
    })
}

/// The targets that nodes were given since a mark, and the drains that were requested.
async fn given(bench: &Bench, mark: usize) -> (Vec<String>, usize) {
    let (mut targets, mut drains) = (Vec::new(), 0);
    for one in bench.requests_since(mark).await {
        let is_node = one.line().starts_with("patch nodes");
        let Some(body) = one.body.filter(|_| is_node && one.code.is_some_and(|code| code < 300)) else {
            continue;
        };
        let annotations = &body["metadata"]["annotations"];
        targets.extend(annotations[key("desiredConfig")].as_str().map(str::to_owned));
        drains += usize::from(
            annotations[key("desiredDrain")].as_str().is_some_and(|request| request.starts_with("drain-")),
        );
    }
    (targets, drains)
}

/// A pool whose nodes have a config, and another one that is made now and set back.
async fn fought_over(cluster: &Cluster, nodes: &[&str]) -> String {
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let first = cluster.start("first", &["--controllers", "render"]);
    let target = cluster.until_target("worker", "").await;
    assert!(first.terminate().await.success());
    for name in nodes {
        ready_node(&cluster.client, name, &target).await;
    }
    cluster.patch_pool("worker", json!({ "metadata": { "annotations": { BACK: target } } })).await;
    cluster.config("worker", MachineConfigBuilder::new("60-b").karg("quiet")).await;
    target
}

fn is_contested(pool: &Value) -> bool {
    condition(pool, "RolloutProgressing")["reason"] == "Contested"
}

/// Nodes follow no value of the rival. They get the target once, when nobody sets it back any more.
#[tokio::test]
async fn nodes_follow_no_rival_of_their_pools_target() {
    let cluster = Cluster::new().await;
    let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let first = fought_over(&cluster, &names).await;
    let _agents = Agents::start(&cluster.bench).await;
    let mark = cluster.bench.mark().await;
    let _rival = pool_rival(&cluster.bench).await;
    let _controller = cluster.start("a", &[]);
    cluster.until_pool("worker", "the fight", is_contested).await;
    let fight = timeout(FIGHT, std::future::pending::<()>()).await;
    assert!(fight.is_err());
    let (targets, drains) = given(&cluster.bench, mark).await;
    assert!(!targets.contains(&first), "{targets:?}");
    assert!(targets.len() <= 3 && drains <= 3, "{drains} drains: {targets:?}");
    let writes = made(&cluster.bench, mark, "patch machineconfigpools worker").await;
    assert!(writes <= 12, "{writes}");
    cluster.patch_pool("worker", json!({ "metadata": { "annotations": { BACK: null } } })).await;
    let target = cluster.until_target("worker", &first).await;
    for name in names {
        until_has(&cluster, name, &target).await;
    }
    let (targets, _) = given(&cluster.bench, mark).await;
    assert_eq!(targets, vec![target; names.len()]);
}

/// The fight goes on as it was before: no node is touched, and the target is not written at once again.
#[tokio::test]
async fn new_leader_does_not_begin_fight_again() {
    let cluster = Cluster::new().await;
    let names = ["n1", "n2", "n3"];
    let first = fought_over(&cluster, &names).await;
    let _rival = pool_rival(&cluster.bench).await;
    let old = cluster.start("a", &[]);
    cluster.until_pool("worker", "the fight", is_contested).await;
    assert!(old.terminate().await.success());
    let mark = cluster.bench.mark().await;
    let _agents = Agents::start(&cluster.bench).await;
    let mut new = cluster.start("b", &[]);
    new.line("The render controller runs").await;
    assert!(timeout(TAKEN_OVER, std::future::pending::<()>()).await.is_err());
    let writes = made(&cluster.bench, mark, "patch machineconfigpools worker").await;
    let (targets, _) = given(&cluster.bench, mark).await;
    assert_eq!((writes, targets), (0, Vec::new()));
    cluster.until_pool("worker", "the fight", is_contested).await;
    cluster.patch_pool("worker", json!({ "metadata": { "annotations": { BACK: null } } })).await;
    let target = cluster.until_target("worker", &first).await;
    for name in names {
        until_has(&cluster, name, &target).await;
    }
}

async fn no_field_is_contested(cluster: &Cluster) {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let told: Vec<_> =
        events.items.into_iter().filter(|one| one.reason.as_deref() == Some("FieldContested")).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// Each time it is another pool, whose rendered config goes with it.
#[tokio::test]
async fn pool_that_is_made_again_is_no_rivals_doing() {
    let cluster = Cluster::new().await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let _controller = cluster.start("a", &[]);
    for _ in 0..6 {
        cluster.pool("worker").await;
        let config = cluster.until_target("worker", "").await;
        let is_rendered =
            |pool: &Value| condition(pool, "RenderDegraded")["status"] == "False" && !is_contested(pool);
        cluster.until_pool("worker", "it is rendered", is_rendered).await;
        for (kind, name) in [("machineconfigpools", "worker"), ("machineconfigs", &*config)] {
            let api = object_api(&cluster.client, kind);
            api.delete(name, &DeleteParams::default()).await.unwrap();
            until_gone(&api, name).await;
        }
    }
    no_field_is_contested(&cluster).await;
}

/// Two programs edit a MachineConfig in turn: its pool keeps a target and says so, until the MachineConfig stays as it is.
#[tokio::test]
async fn machine_config_that_goes_back_and_forth_moves_its_pool_rarely() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    let config = |contents: &str| MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents);
    cluster.config("worker", config("0")).await;
    let _controller = cluster.start("a", &[]);
    let mut targets = vec![cluster.until_target("worker", "").await];
    ready_node(&cluster.client, "n", &targets[0]).await;
    let _agents = Agents::start(&cluster.bench).await;
    for contents in ["1", "0", "1"] {
        cluster.config("worker", config(contents)).await;
        targets.push(cluster.until_target("worker", targets.last().unwrap()).await);
        until_has(&cluster, "n", targets.last().unwrap()).await;
    }
    let mark = cluster.bench.mark().await;
    let is_told = |pool: &Value| {
        let found = condition(pool, "RenderDegraded");
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == "True" && message.contains("its MachineConfigs change back and forth")
    };
    for _ in 0..5 {
        for contents in ["0", "1"] {
            cluster.config("worker", config(contents)).await;
            cluster.until_pool("worker", "why it keeps its target", is_told).await;
            assert!(timeout(Duration::from_secs(1), std::future::pending::<()>()).await.is_err());
        }
    }
    let (given, _) = given(&cluster.bench, mark).await;
    let writes = made(&cluster.bench, mark, "patch machineconfigpools worker").await;
    assert_eq!((given, writes), (Vec::new(), 0));
    cluster.config("worker", config("0")).await;
    until_has(&cluster, "n", &targets[0]).await;
    let is_well = |pool: &Value| condition(pool, "RenderDegraded")["status"] == "False";
    cluster.until_pool("worker", "it is rendered", is_well).await;
}

/// A label that goes back and forth takes the node from one pool to another one, and rarely after some turns.
#[tokio::test]
async fn node_that_goes_back_and_forth_between_pools_is_given_targets_rarely() {
    let cluster = Cluster::new().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, MachineConfigBuilder::new(&format!("50-{pool}"))).await;
    }
    let _controller = cluster.start("a", &[]);
    let worker = cluster.until_target("worker", "").await;
    let infra = cluster.until_target("infra", "").await;
    ready_node(&cluster.client, "n", &worker).await;
    let nodes = node_api(&cluster.client);
    let labels = |infra: Value| {
        let prefix = "node-role.kubernetes.io";
        Patch::Merge(
            json!({ "metadata": { "labels": { format!("{prefix}/infra"): infra, format!("{prefix}/worker"): "" } } }),
        )
    };
    let _agents = Agents::start(&cluster.bench).await;
    for (label, target) in
        [(json!(""), &infra), (Value::Null, &worker), (json!(""), &infra), (Value::Null, &worker)]
    {
        nodes.patch("n", &PatchParams::default(), &labels(label)).await.unwrap();
        until_has(&cluster, "n", target).await;
    }
    let mark = cluster.bench.mark().await;
    nodes.patch("n", &PatchParams::default(), &labels(json!(""))).await.unwrap();
    let is_told = |pool: &Value| {
        let found = condition(pool, "RolloutNodesNotWritten");
        let message = found["message"].as_str().unwrap_or_default();
        found["reason"] == "NodeTargetAlternates"
            && message.contains("node n: it was given several targets in turn")
    };
    cluster.until_pool("infra", "why the node keeps its config", is_told).await;
    assert_eq!(given(&cluster.bench, mark).await, (Vec::new(), 0));
    until_has(&cluster, "n", &infra).await;
}

/// Each drain says for itself what it waits for.
#[tokio::test]
async fn drains_that_wait_for_same_pod_are_no_rivals_doing() {
    let scene = Scene::new().await;
    scene.pod("kept", json!({ "labels": { "app": "shop" } })).await;
    scene.budget("one", "shop").await;
    let _controller = scene.cluster.start("a", &["--controllers", "drain"]);
    for _ in 0..5 {
        scene.request("drain-rendered-b").await;
        scene.until("what it waits for", |node| own(node, "drain-blocked").is_some()).await;
        scene.request("uncordon-rendered-b").await;
        scene.until("it takes pods", |node| own(node, "drain-since").is_none()).await;
    }
    no_field_is_contested(&scene.cluster).await;
}

/// What is reported there is nothing that a drain needs.
#[tokio::test]
async fn config_node_without_answer_delays_no_drain() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let _controller = cluster.start("a", &[]);
    let config = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n", &config).await;
    running_pod(&cluster.client, "default", "p", "n", json!({})).await;
    let spec = json!({ "node": { "name": "n" }, "pool": { "name": "worker" }, "configVersion": { "desired": config } });
    create_object(&cluster.client, "machineconfignodes", "n", json!({ "spec": spec })).await.unwrap();
    let _kubelet = Kubelet::start(&cluster.bench, "n").await;
    cluster.until_pool("worker", "its node", |pool| pool["status"]["readyMachineCount"] == 1).await;
    proxy.fail(Seam::new(Method::GET, &["/machineconfignodes/n"]).without("watch="), Failing::NeverAnswers);
    let begun = Instant::now();
    request(&cluster.client, "n", "drain-rendered-b").await;
    until_done(&cluster.client, "n", "drain-rendered-b").await;
    let lasted = begun.elapsed();
    assert!(lasted < Duration::from_secs(8), "{lasted:?}");
    proxy.failed(1).await;
    proxy.mend();
}

/// Its nodes are none of its own any more, so it is not up to date.
#[tokio::test]
async fn pool_in_deletion_says_so() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let _controller = cluster.start("a", &[]);
    let config = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n", &config).await;
    let is_updated = |pool: &Value| condition(pool, "Updated")["status"] == "True";
    cluster.until_pool("worker", "it is updated", is_updated).await;
    cluster.patch_pool("worker", json!({ "metadata": { "finalizers": ["example.com/kept"] } })).await;
    let pools = object_api(&cluster.client, "machineconfigpools");
    pools.delete("worker", &DeleteParams::default()).await.unwrap();
    let is_told = |pool: &Value| {
        let progress = condition(pool, "RolloutProgressing");
        let message = progress["message"].as_str().unwrap_or_default();
        condition(pool, "Updated")["status"] == "False"
            && progress["reason"] == "Deleting"
            && message.contains("is being deleted")
            && message.contains("example.com/kept")
    };
    cluster.until_pool("worker", "that it is being deleted", is_told).await;
    cluster.patch_pool("worker", json!({ "metadata": { "finalizers": null } })).await;
    until_gone(&pools, "worker").await;
    node_until(&cluster.client, "n", "it stays", |_| true).await;
}
