//! A role that lacks one right, before the controller has read anything: it is not ready, says which right is missing once, and so do the
//! pools that were well before.

use http::Method;
use serde_json::Value;

use crate::cluster::{Identity, MachineConfigBuilder, object_api};
use crate::connections::behind_proxy;
use crate::process::{Cluster, LEASE, NAMESPACE, SHORT_LEASE, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::{get, listener, page_until};
use crate::rollout::ready_node;
use crate::rollout_edges::{desired, until_desired};
use kube::api::ListParams;

const NO: Failing = Failing::Refuses(403, "the role has no right for it");

/// The kinds, as requests and messages name them.
const KINDS: [(&str, &str); 3] = [
    ("nodes", "nodes"),
    ("machineconfigs", "machineconfigs.machineconfiguration.openshift.io"),
    ("customresourcedefinitions", "customresourcedefinitions.apiextensions.k8s.io"),
];

fn is_updated(pool: &Value) -> bool {
    condition(pool, "Updated")["status"] == "True" && pool["status"]["machineCount"] == 1
}

/// A pool whose one node is updated, and whose controller has ended. Returns the target, too.
async fn updated() -> (Cluster, Proxy, String) {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    let first = cluster.start("first", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    cluster.until_pool("worker", "updated", is_updated).await;
    assert!(first.terminate().await.success());
    (cluster, proxy, target)
}

#[tokio::test]
async fn missing_right_is_named_on_pools_and_readyz() {
    let (cluster, proxy, _) = updated().await;
    for (plural, resource) in KINDS {
        proxy.fail(Seam::new(Method::GET, &[&format!("/{plural}?")]).without("watch="), NO);
        let mut controller = cluster.start(plural, &[]);
        let listener = listener(&mut controller).await;
        let words = format!(
            "{resource} can't be read: the role has no right for it (403); grant the controller's account"
        );
        let is_named = |pool: &Value| {
            let (degraded, progressing) =
                (condition(pool, "Degraded"), condition(pool, "RolloutProgressing"));
            degraded["status"] == "True"
                && degraded["reason"] == "Unread"
                && degraded["message"].as_str().unwrap().contains(&words)
                && progressing["reason"] == "Unread"
                && condition(pool, "Updated")["status"] == "False"
        };
        let pool = cluster.until_pool("worker", &words, is_named).await;
        assert_eq!(pool["status"]["machineCount"], 1, "what is not known is left");
        let (code, body) = get(listener, "/readyz");
        assert_eq!((code, body.matches(&words).count()), (503, 1), "{body}");
        // Several tries are one line.
        proxy.failed(3).await;
        let lines = controller.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(&words)).count(), 1, "{lines:#?}");
        proxy.mend();
        page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
        cluster.until_pool("worker", "updated", is_updated).await;
        assert!(controller.terminate().await.success());
    }
}

/// Nobody knows whether the Machine Config Operator is at work: each pool says so in a condition that is not the operator's, and nothing else is
/// written. The replica that holds the Lease leads nothing.
#[tokio::test]
async fn missing_right_to_leases_of_operator_is_named_on_pools() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    for name in ["machine-config", "machine-config-controller"] {
        proxy.fail(Seam::new(Method::GET, &["/leases?", &format!("metadata.name%3D{name}&")]), NO);
    }
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let words = "leases.coordination.k8s.io can't be read: the role has no right for it (403); grant the controller's account";
    let is_named = |pool: &Value| {
        let progressing = condition(pool, "RolloutProgressing");
        progressing["reason"] == "Unread" && progressing["message"].as_str().unwrap().contains(words)
    };
    let pool = cluster.until_pool("worker", words, is_named).await;
    assert_eq!(pool["status"]["conditions"].as_array().unwrap().len(), 1, "{pool}");
    assert_eq!(pool["spec"]["configuration"]["name"], Value::Null);
    let (code, body) = get(listener, "/readyz");
    assert_eq!((code, body.matches(words).count()), (503, 1), "{body}");
    controller.line("holds Lease").await;
    assert!(get(listener, "/metrics").1.contains("machine_config_controller_leading 0"));
    assert!(!controller.lines().iter().any(|line| line.contains(" leads")), "{:?}", controller.lines());
    proxy.mend();
    controller.line(" leads").await;
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let is_updated = |pool: &Value| condition(pool, "Updated")["status"] == "True";
    cluster.until_pool("worker", "updated", is_updated).await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
}

/// The operator may begin to work unseen: no node is given a target until its Leases are watched, and the pool says why.
#[tokio::test]
async fn unwatched_leases_of_operator_give_no_target() {
    let words = "no node is given a target: leases.coordination.k8s.io can't be read: the role has no right for it (403)";
    unwatched_leases(NO, &[words]).await;
}

/// A watch that breaks for long is no news of the operator.
#[tokio::test]
async fn broken_watch_of_operators_leases_gives_no_target() {
    let words = ["no node is given a target: leases.coordination.k8s.io have not been watched for ", " s: "];
    unwatched_leases(Failing::Refuses(500, "etcd has no leader"), &words).await;
}

/// An API server that never answers for them is told, too: at first it may be slow.
#[tokio::test]
async fn silent_leases_of_operator_are_named_on_pools() {
    let (cluster, proxy, target) = updated().await;
    let leases = Seam::new(Method::GET, &["/leases?", "metadata.name%3Dmachine-config"]);
    proxy.fail(leases.without("machine-config-agent"), Failing::NeverAnswers);
    let _controller = cluster.start("a", &[]);
    let words =
        "no node is given a target: leases.coordination.k8s.io can't be read: the API server does not answer";
    let is_named = |pool: &Value| {
        let progressing = condition(pool, "RolloutProgressing");
        progressing["reason"] == "Unread"
            && progressing["message"].as_str().unwrap_or_default().contains(words)
    };
    cluster.until_pool("worker", words, is_named).await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    proxy.mend();
    let second = cluster.until_target("worker", &target).await;
    until_desired(&cluster.client, "n1", &second).await;
}

/// The Leases of the operator are not watched; the pool says so with these words.
async fn unwatched_leases(failing: Failing, words: &[&str]) {
    let (cluster, proxy, target) = updated().await;
    for name in ["machine-config", "machine-config-controller"] {
        let parts = ["/leases?", &format!("metadata.name%3D{name}&"), "watch="];
        proxy.fail(Seam::new(Method::GET, &parts), failing);
    }
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    proxy.all_failed().await;
    let is_named = |pool: &Value| {
        let degraded = condition(pool, "Degraded");
        let message = degraded["message"].as_str().unwrap_or_default();
        degraded["reason"] == "Unread" && words.iter().all(|words| message.contains(words))
    };
    cluster.until_pool("worker", words[0], is_named).await;
    cluster.config("worker", MachineConfigBuilder::new("50-a").karg("quiet")).await;
    let second = cluster.until_target("worker", &target).await;
    proxy.failed(2).await;
    assert_eq!(desired(&cluster.client, "n1").await, Some(target));
    assert_eq!(get(listener, "/readyz").0, 503);
    proxy.mend();
    until_desired(&cluster.client, "n1", &second).await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
}

/// A replica that may read the Lease and not write it never leads: it is not ready, says once what to grant, and leads as soon as it may.
#[tokio::test]
async fn replica_that_may_not_write_lease_says_so() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", MachineConfigBuilder::new("50-a")).await;
    for (method, lease, what) in [(Method::PUT, LEASE, "written"), (Method::POST, "new", "created")] {
        proxy.fail(Seam::new(method, &["/leases"]), NO);
        let mut controller = cluster.start("a", &["--lease", lease, "--lease-duration", "6"]);
        let listener = listener(&mut controller).await;
        let words = format!(
            "Lease {NAMESPACE}/{lease} can't be {what}, so this replica can't lead and writes nothing: the role has no right for it \
             (403); grant the controller's account the verbs create and update of leases.coordination.k8s.io in namespace {NAMESPACE}"
        );
        let named = |code, body: &str| code == 503 && body.matches(&words).count() == 1;
        page_until(listener, "/readyz", "the right is named", named).await;
        proxy.failed(3).await;
        let lines = controller.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(&words)).count(), 1, "{lines:#?}");
        assert!(get(listener, "/metrics").1.contains("machine_config_controller_leading 0"));
        proxy.mend();
        controller.line(" leads").await;
        page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
        cluster.until_target("worker", "").await;
        assert!(controller.terminate().await.success());
    }
}

/// Another replica has the right and leads: the one without it waits as any other, since it may have it by the time of its next try.
#[tokio::test]
async fn replica_that_may_not_write_lease_is_ready_while_other_leads() {
    let (mut cluster, proxy) = behind_proxy().await;
    proxy.fail(Seam::new(Method::PUT, &["/leases"]), NO);
    let mut waiting = cluster.start("waiting", &SHORT_LEASE);
    let listener = listener(&mut waiting).await;
    let refused = |code, body: &str| code == 503 && body.contains("so this replica can't lead");
    page_until(listener, "/readyz", "the right is named", refused).await;
    cluster.kubeconfig = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
    let leader = cluster.start("leader", &SHORT_LEASE);
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    assert_eq!(leader.kill().await.code(), None);
    page_until(listener, "/readyz", "the right is named again", refused).await;
}

/// The Leases show whether the Machine Config Operator is at work, and who leads.
#[tokio::test]
async fn missing_right_to_leases_is_named_by_readyz() {
    let (cluster, proxy) = behind_proxy().await;
    for part in ["/leases?"] {
        proxy.fail(Seam::new(Method::GET, &[part]), NO);
        let mut controller = cluster.start("a", &[]);
        let listener = listener(&mut controller).await;
        let words = "leases.coordination.k8s.io can't be read: the role has no right for it (403); grant the controller's account";
        let named = |code, body: &str| code == 503 && body.matches(words).count() == 1;
        page_until(listener, "/readyz", "the right is named", named).await;
        proxy.mend();
        page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
        assert!(controller.terminate().await.success());
    }
    let pools = object_api(&cluster.client, "machineconfigpools");
    assert!(pools.list(&ListParams::default()).await.unwrap().items.is_empty());
}
