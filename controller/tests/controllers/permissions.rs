//! The controller with the account of its manifests, on a real kube-apiserver: it is refused nothing.

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_openshift::{BuildController, define, os_config};
use crate::build_registry::FakeRegistry;
use crate::cluster::{
    DisruptionController, Identity, Kubelet, MachineConfigBuilder, Request, call, object_api, real_only,
    running_pod, within,
};
use crate::process::{Cluster, MANIFEST_NAMESPACE, NAMESPACE, apply_file_in, condition, target};
use crate::rollout::{Agents, ready_node};

const ACCOUNT: &str = "machine-config-controller";

/// Requests of a rollout: verb, resource, subresource.
const ROLLOUT: [(&str, &str, &str); 9] = [
    ("create", "leases", ""),
    ("update", "leases", ""),
    ("create", "machineconfigs", ""),
    ("patch", "machineconfigpools", ""),
    ("patch", "machineconfigpools", "status"),
    ("patch", "rolloutpolicies", "status"),
    ("patch", "nodes", ""),
    ("create", "pods", "eviction"),
    ("create", "events", ""),
];

/// Requests of both builders.
const BUILDS: [(&str, &str, &str); 19] = [
    ("create", "machineosbuilds", ""),
    ("patch", "machineosbuilds", ""),
    ("get", "machineosbuilds", ""),
    ("patch", "machineosbuilds", "status"),
    ("get", "controllerconfigs", ""),
    ("patch", "machineosconfigs", ""),
    ("patch", "machineosconfigs", "status"),
    ("create", "builds", ""),
    ("patch", "builds", ""),
    ("delete", "builds", ""),
    ("watch", "builds", ""),
    ("create", "jobs", ""),
    ("patch", "jobs", ""),
    ("delete", "jobs", ""),
    ("create", "configmaps", ""),
    ("get", "configmaps", ""),
    ("create", "secrets", ""),
    ("get", "secrets", ""),
    ("list", "pods", ""),
];

/// Applies the component's permissions in a namespace; returns a token of the account once the server knows its roles. It learns of them
/// by watches of its own, without a signal.
async fn token(cluster: &Cluster, place: &str) -> String {
    let client = &cluster.client;
    for file in ["crds", "serviceaccount", "clusterrole", "role"] {
        apply_file_in(client, &format!("components/controller/{file}.yaml"), place).await;
    }
    let path = format!("/api/v1/namespaces/{place}/serviceaccounts/{ACCOUNT}/token");
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let (code, answer) = call(client, "POST", &path, Some(("application/json", request))).await;
    assert_eq!(code, 200, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let own = cluster.bench.client_as(&Identity::Token(token.clone()), "probe").await;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{place}/leases");
    let lease = format!("{leases}?fieldSelector=metadata.name%3Dmachine-config-agent-controller");
    let policies = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies";
    within("the roles are in force", async {
        // The last one is in the second role; an event that is not there is no refusal.
        for path in ["/api/v1/nodes", policies, &lease, "/api/v1/namespaces/default/events/none"] {
            while matches!(call(&own, "GET", path, None).await, (401 | 403 | 503, _))
                || (path == policies && call(&own, "GET", path, None).await.0 != 200)
            {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    token
}

fn config(contents: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents)
}

#[tokio::test]
async fn controller_has_every_permission_for_rollout() {
    if !real_only("permissions::controller_has_every_permission_for_rollout") {
        return;
    }
    let mut cluster = Cluster::new().await;
    let namespace = json!({ "metadata": { "name": MANIFEST_NAMESPACE } });
    let (code, answer) =
        call(&cluster.client, "POST", "/api/v1/namespaces", Some(("application/json", namespace))).await;
    assert_eq!(code, 200, "{answer}");
    let token = token(&cluster, MANIFEST_NAMESPACE).await;
    cluster.kubeconfig = cluster.bench.kubeconfig(&Identity::Token(token));
    let mark = cluster.bench.mark().await;
    cluster.pool("worker").await;
    let policy = json!({
        "apiVersion": "machine-config-agent.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "worker" }, "spec": { "canary": { "nodes": 1 } },
    });
    let path = "/apis/machine-config-agent.io/v1alpha1/rolloutpolicies";
    let (code, answer) = call(&cluster.client, "POST", path, Some(("application/json", policy))).await;
    assert_eq!(code, 200, "{answer}");
    cluster.config("worker", config("1")).await;
    let controller = cluster.start("a", &["--namespace", MANIFEST_NAMESPACE]);
    let mut last = cluster.until_target("worker", "").await;
    let _disruption = DisruptionController::start(&cluster.bench, "default").await;
    let mut kubelets = Vec::new();
    for name in ["n1", "n2"] {
        ready_node(&cluster.client, name, &last).await;
        kubelets.push(Kubelet::start(&cluster.bench, name).await);
        running_pod(
            &cluster.client,
            "default",
            &format!("p-{name}"),
            name,
            json!({ "labels": { "app": "a" } }),
        )
        .await;
    }
    let _agents = Agents::start(&cluster.bench).await;
    for contents in ["2", "3"] {
        cluster.config("worker", config(contents)).await;
        let next = cluster.until_target("worker", &last).await;
        let updated = |pool: &Value| {
            condition(pool, "Updated")["status"] == "True"
                && pool["status"]["configuration"]["name"] == next.as_str()
                && target(pool) == next
        };
        cluster.until_pool("worker", "updated", updated).await;
        last = next;
    }
    // In its pod, a person asks with the same account.
    let shown = crate::status::run(&cluster.kubeconfig, &[]).await;
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(controller.terminate().await.success());
    is_refused_nothing(&cluster.bench.requests_since(mark).await, MANIFEST_NAMESPACE, &ROLLOUT);
    let lines = controller.lines();
    assert!(!lines.iter().any(|line| line.contains("orbidden")), "{lines:#?}");
}

/// Both builders, in a namespace with their roles: the Builds' are a component of their own.
#[tokio::test]
async fn controller_has_every_permission_for_builds() {
    if !real_only("permissions::controller_has_every_permission_for_builds") {
        return;
    }
    let registry = FakeRegistry::start().await;
    let mut builds = Builds::pushing_to(&registry.host).await;
    let client = builds.cluster.client.clone();
    define(&client).await;
    apply_file_in(&client, "components/openshift-builds/role.yaml", NAMESPACE).await;
    let token = token(&builds.cluster, NAMESPACE).await;
    let own = builds.cluster.bench.client_as(&Identity::Token(token.clone()), "probe").await;
    let path = format!("/apis/build.openshift.io/v1/namespaces/{NAMESPACE}/builds");
    within("the role of Builds is in force", async {
        while call(&own, "GET", &path, None).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    builds.cluster.kubeconfig = builds.cluster.bench.kubeconfig(&Identity::Token(token));
    builds.served().await;
    let mark = builds.cluster.bench.mark().await;
    let controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    let openshift = BuildController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    os_config(&builds).await;
    builds.until_published("").await;
    builds.until_condition("False", "BuildSuccess").await;
    openshift.until_gone(&jobs).await;
    let configs = object_api(&client, "machineosconfigs");
    configs.delete("worker", &DeleteParams::default()).await.unwrap();
    builds.until_condition("False", "NoLayeredObjects").await;
    within("the build is gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    builds.os_config(CONTAINERFILE).await;
    let (published, _) = builds.until_published("").await;
    builds.until_condition("False", "BuildSuccess").await;
    jobs.until_gone().await;
    assert_eq!(jobs.started(), [published]);
    assert!(controller.terminate().await.success());
    is_refused_nothing(&builds.cluster.bench.requests_since(mark).await, NAMESPACE, &BUILDS);
}

/// None of its requests was refused, and it has done all that its roles are for.
fn is_refused_nothing(all: &[Request], place: &str, done: &[(&str, &str, &str)]) {
    let user = format!("system:serviceaccount:{place}:{ACCOUNT}");
    let own: Vec<_> = all.iter().filter(|one| one.user == user).collect();
    let refused = own.iter().filter(|one| matches!(one.code, Some(401 | 403)));
    assert_eq!(refused.map(|one| one.line()).collect::<Vec<_>>(), Vec::<String>::new());
    let did = |verb: &str, resource: &str, subresource: &str| {
        own.iter().any(|one| one.verb == verb && one.resource == resource && one.subresource == subresource)
    };
    for &(verb, resource, subresource) in done {
        assert!(did(verb, resource, subresource), "{verb} {resource}/{subresource}: {own:#?}");
    }
}
