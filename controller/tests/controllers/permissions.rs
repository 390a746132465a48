//! The controller with the account of its manifests, on a real kube-apiserver: it is refused nothing.

use serde_json::{Value, json};

use crate::cluster::{
    DisruptionController, Identity, Kubelet, MachineConfigBuilder, Request, call, real_only, running_pod,
    within,
};
use crate::process::{Cluster, apply_file, condition, target};
use crate::rollout::{Agents, ready_node};

const PLACE: &str = "machine-config-agent";
const ACCOUNT: &str = "machine-config-controller";

/// Applies the component's permissions; returns a token of the account once the server knows its roles. It learns of them by
/// watches of its own, without a signal.
async fn token(cluster: &Cluster) -> String {
    let client = &cluster.client;
    let namespace = json!({ "metadata": { "name": PLACE } });
    let (code, answer) =
        call(client, "POST", "/api/v1/namespaces", Some(("application/json", namespace))).await;
    assert_eq!(code, 200, "{answer}");
    for file in ["crds", "serviceaccount", "clusterrole", "role"] {
        apply_file(client, &format!("components/controller/{file}.yaml")).await;
    }
    let path = format!("/api/v1/namespaces/{PLACE}/serviceaccounts/{ACCOUNT}/token");
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let (code, answer) = call(client, "POST", &path, Some(("application/json", request))).await;
    assert_eq!(code, 200, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let own = cluster.bench.client_as(&Identity::Token(token.clone()), "probe").await;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{PLACE}/leases");
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
    let token = token(&cluster).await;
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
    let controller = cluster.start("a", &["--namespace", PLACE]);
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
    is_refused_nothing(&cluster.bench.requests_since(mark).await);
    let lines = controller.lines();
    assert!(!lines.iter().any(|line| line.contains("orbidden")), "{lines:#?}");
}

/// None of its requests was refused, and it has done all that its roles are for.
fn is_refused_nothing(all: &[Request]) {
    let user = format!("system:serviceaccount:{PLACE}:{ACCOUNT}");
    let own: Vec<_> = all.iter().filter(|one| one.user == user).collect();
    let refused = own.iter().filter(|one| matches!(one.code, Some(401 | 403)));
    assert_eq!(refused.map(|one| one.line()).collect::<Vec<_>>(), Vec::<String>::new());
    let did = |verb: &str, resource: &str, subresource: &str| {
        own.iter().any(|one| one.verb == verb && one.resource == resource && one.subresource == subresource)
    };
    for (verb, resource, subresource) in [
        ("create", "leases", ""),
        ("update", "leases", ""),
        ("create", "machineconfigs", ""),
        ("patch", "machineconfigpools", ""),
        ("patch", "machineconfigpools", "status"),
        ("patch", "rolloutpolicies", "status"),
        ("patch", "nodes", ""),
        ("create", "pods", "eviction"),
        ("create", "events", ""),
    ] {
        assert!(did(verb, resource, subresource), "{verb} {resource}/{subresource}: {own:#?}");
    }
}
