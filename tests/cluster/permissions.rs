//! Permissions of the agent's credentials, and their limits when they are stolen: the manifests on a real
//! kube-apiserver with the Node authorizer, RBAC, `NodeRestriction` and our admission policies (docs/permissions.md).

mod calls;
mod lifecycle;
mod setup;
mod thief;

use crate::cluster::scene::status;
use crate::cluster::{
    self, Agent, AgentOptions, Identity, MachineConfigBuilder, annotation, create_node, create_object,
    node_until, object_api, object_until, real_only, retarget,
};
use crate::plain_host::bare;
use calls::{
    Answer, BY_RBAC, CONFIG_NODES, CONFIGS, Call, all_done, annotations, check, config_node,
    config_node_object, config_node_status, event, everyday, node,
};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use setup::{Applied, apply};
use thief::{
    CONTROLLERS, NOT_A_KUBELETS, NOT_OWN, NOT_OWN_REPORT, ONLY_ANNOTATIONS, at_cordoned_by, at_others,
    at_own_node, at_the_controllers_annotations,
};

/// `NodeRestriction`: the Node authorizer lets a kubelet patch Nodes.
const OTHER_NODE: Answer = Answer::Forbidden("is not allowed to modify node");

fn cordon(value: bool) -> Call {
    Call::patch("cordon the own Node", node("worker-a"), json!({ "spec": { "unschedulable": value } }))
}

/// As an agent that drains by itself does it: with the actor, in one patch.
fn cordon_as_agent(value: bool) -> Call {
    let by = if value { json!("machine-config-agent") } else { Value::Null };
    let mut body = annotations(&json!({ "machine-config-agent.io/cordoned-by": by }));
    body["spec"] = json!({ "unschedulable": value });
    Call::patch("cordon the own Node and say so", node("worker-a"), body)
}

/// Pods and reviews, where the components do not allow them.
fn of_components() -> Vec<Call> {
    let review =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": "x" } });
    let access = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": "x", "nonResourceAttributes": { "path": "/metrics", "verb": "get" } },
    });
    vec![
        Call::post("review a token", "/apis/authentication.k8s.io/v1/tokenreviews", review),
        Call::post("review an access", "/apis/authorization.k8s.io/v1/subjectaccessreviews", access),
    ]
}

fn of_self_drain(namespace: &str, pod: &str) -> Vec<Call> {
    let pods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-a";
    let evicted = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": namespace } });
    vec![
        Call::get("list the own pods", pods),
        Call::get("watch the own pods", format!("{pods}&watch=true&timeoutSeconds=1")),
        Call::get("get a pod", evicted.clone()),
        Call::post("evict a pod", format!("{evicted}/eviction?dryRun=All"), eviction),
    ]
}

/// All that the refused calls asked for is in the audit log as refused, and what they aimed at is as it was.
async fn refused_and_logged(applied: &Applied, client: &kube::Client, calls: &[(Call, Answer)]) {
    let aimed_at =
        [node("worker-a"), node("worker-b"), config_node("worker-b"), format!("{CONFIGS}/rendered-worker-1")];
    let before = applied.versions(&aimed_at).await;
    let mark = applied.bench.mark().await;
    check(client, calls).await;
    let logged = applied.bench.requests_since(mark).await;
    let refused: Vec<_> = logged.iter().filter(|request| request.user == applied.user()).collect();
    assert_eq!(refused.len(), calls.len());
    for (request, (call, _)) in refused.iter().zip(calls) {
        assert_eq!(request.uri, call.path);
        assert_eq!(request.code, Some(403), "{}: {}", call.what, request.line());
    }
    assert_eq!(applied.versions(&aimed_at).await, before);
}

async fn steal(directory: &str, components: &[&str]) {
    let applied = Applied::new(directory, components).await;
    let (namespace, account) = (applied.namespace.clone(), applied.account.clone());
    create_object(&applied.admin, "machineconfignodes", "worker-b", config_node_object("worker-b"))
        .await
        .unwrap();
    let token = applied.token_on("worker-a").await;
    let client = applied.client(&token).await;

    let mark = applied.bench.mark().await;
    let desired = everyday("worker-a", "first");
    let count = desired.len();
    check(&client, &all_done(desired)).await;
    let logged = applied.bench.requests_since(mark).await;
    let own: Vec<_> = logged.iter().filter(|request| request.user == applied.user()).collect();
    assert_eq!(own.len(), count);
    assert!(own.iter().all(|request| request.code.is_some_and(|code| code < 300)), "{own:?}");

    let mut refused = [at_others(&namespace, &account), at_own_node()].concat();
    if components.contains(&"self-drain") {
        let cordons = [cordon(true), cordon(false), cordon_as_agent(true), cordon_as_agent(false)];
        check(&client, &all_done(cordons.into())).await;
        check(&client, &all_done(of_self_drain(&namespace, "agent-worker-a"))).await;
    } else {
        refused.push((
            cordon(true),
            Answer::Forbidden("not spec.unschedulable (the component self-drain allows"),
        ));
        refused.push((at_cordoned_by(), CONTROLLERS));
        refused.extend(of_self_drain(&namespace, "agent-worker-a").into_iter().map(|call| (call, BY_RBAC)));
    }
    if directory == "overlays/openshift" {
        let place = format!("/api/v1/namespaces/{namespace}/events");
        let told = Call::post("create an event beside MCD's", place, event(&namespace, "second", "worker-a"));
        check(&client, &all_done([of_components(), vec![told]].concat())).await;
    } else {
        refused.extend(of_components().into_iter().map(|call| (call, BY_RBAC)));
    }
    refused_and_logged(&applied, &client, &refused).await;

    // A token ends with its pod. One that was not used yet: the server remembers an accepted one for 10 s.
    let unused = applied.token_of("worker-a").await;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/agent-worker-a");
    applied.request("DELETE", &pod, &json!({ "gracePeriodSeconds": 0 })).await;
    let late = applied.bench.client_as(&Identity::Token(unused), "late").await;
    let again = Call::get("use a token whose pod is gone", node("worker-a"));
    // The server reads the pod from a cache of its own.
    cluster::within("the token has ended", async {
        while again.send(&late).await.0 != 401 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn token_is_of_use_on_its_own_node_only() {
    if real_only("permissions::token_is_of_use_on_its_own_node_only") {
        steal("base", &[]).await;
    }
}

#[tokio::test]
async fn stolen_token_denied_on_kubernetes() {
    if real_only("permissions::stolen_token_denied_on_kubernetes") {
        steal("overlays/kubernetes", &[]).await;
    }
}

#[tokio::test]
async fn stolen_token_denied_with_self_drain() {
    if real_only("permissions::stolen_token_denied_with_self_drain") {
        steal("base", &["self-drain"]).await;
    }
}

#[tokio::test]
async fn stolen_token_denied_on_openshift() {
    if real_only("permissions::stolen_token_denied_on_openshift") {
        steal("overlays/openshift", &[]).await;
    }
}

/// The agent itself, with the account of the manifests: from its start to the end of an update nothing that it asks for is
/// refused. Its events are where the manifests let them be.
async fn lives_unrefused(directory: &str, place: &str) {
    let applied = Applied::new(directory, &[]).await;
    let token = applied.token_on("worker-a").await;
    applied.client(&token).await;
    MachineConfigBuilder::new("rendered-worker-2").create(&applied.admin).await;
    let host = tempfile::tempdir().unwrap();
    bare(host.path());
    let mark = applied.bench.mark().await;
    let kubeconfig = applied.bench.kubeconfig(&Identity::Token(token));
    let agent = Agent::start(&AgentOptions::new(&kubeconfig, "worker-a", host.path()));
    let nodes = object_api(&applied.admin, "machineconfignodes");
    for config in ["rendered-worker-1", "rendered-worker-2"] {
        retarget(&applied.admin, "worker-a", config, None).await;
        // The last word of an update, after the Node's and the events.
        let told = |one: &DynamicObject| {
            let one = serde_json::to_value(one).unwrap();
            let current = one.pointer("/status/configVersion/current").and_then(Value::as_str);
            status(&one, "Updated") == "True" && current == Some(config)
        };
        object_until(&nodes, "worker-a", config, told).await;
    }
    let all = applied.bench.requests_since(mark).await;
    let own = all.iter().filter(|one| one.agent.starts_with("machine-config-agent/"));
    let (own, user) = (own.collect::<Vec<_>>(), applied.user());
    assert!(own.len() > 5 && own.iter().all(|one| one.user == user), "{own:#?}");
    let refused = own.iter().filter(|one| matches!(one.code, Some(401 | 403)));
    assert_eq!(refused.map(|one| one.line()).collect::<Vec<_>>(), Vec::<String>::new());
    let events = own.iter().filter(|one| one.resource == "events" && one.verb == "create");
    let places: std::collections::BTreeSet<&str> = events.map(|one| one.namespace.as_str()).collect();
    assert_eq!(places, [place].into());
    let lines = agent.lines();
    assert!(!lines.iter().any(|line| line.contains("refuse") || line.contains("Failed to")), "{lines:#?}");
}

#[tokio::test]
async fn agent_is_refused_nothing() {
    if real_only("permissions::agent_is_refused_nothing") {
        lives_unrefused("base", "default").await;
    }
}

#[tokio::test]
async fn agent_is_refused_nothing_in_place_of_mcd() {
    if real_only("permissions::agent_is_refused_nothing_in_place_of_mcd") {
        lives_unrefused("overlays/openshift", "openshift-machine-config-operator").await;
    }
}

/// BOOT-007, MCD-022: the first report of a new node has the target that the node was installed with.
#[tokio::test]
async fn new_node_gets_its_first_target_once() {
    if !real_only("permissions::new_node_gets_its_first_target_once") {
        return;
    }
    let applied = Applied::new("base", &[]).await;
    create_node(&applied.admin, "worker-new", &[]).await;
    let client = applied.client(&applied.token_on("worker-new").await).await;
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let first = |current: &str, image: &str| {
        Call::patch(
            "report on a new Node",
            node("worker-new"),
            annotations(&json!({
                key("currentConfig"): current, key("desiredConfig"): "rendered-worker-1",
                key("currentImage"): image, key("desiredImage"): "example.com/os@sha256:00",
                key("firstPivotConfig"): "rendered-worker-1", key("state"): "Done",
            })),
        )
    };
    check(
        &client,
        &[
            (first("rendered-worker-0", "example.com/os@sha256:00"), CONTROLLERS),
            (first("rendered-worker-1", "example.com/os@sha256:11"), CONTROLLERS),
            (first("rendered-worker-1", "example.com/os@sha256:00"), Answer::Done),
            (
                Call::patch(
                    "take another target",
                    node("worker-new"),
                    annotations(&json!({
            key("currentConfig"): "rendered-worker-2", key("desiredConfig"): "rendered-worker-2" })),
                ),
                CONTROLLERS,
            ),
        ],
    )
    .await;
}

/// The policies hold also when the account is given too many permissions.
#[tokio::test]
async fn role_too_many_changes_nothing_for_other_nodes() {
    if !real_only("permissions::role_too_many_changes_nothing_for_other_nodes") {
        return;
    }
    let applied = Applied::new("base", &[]).await;
    create_object(&applied.admin, "machineconfignodes", "worker-b", config_node_object("worker-b"))
        .await
        .unwrap();
    apply(&applied.admin, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "careless" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": applied.account, "namespace": applied.namespace }],
    }))
    .await;
    let client = applied.client(&applied.token_on("worker-a").await).await;
    let secrets = Call::get("see that the role is in force", "/api/v1/secrets");
    cluster::within("the careless role is in force", async {
        while secrets.send(&client).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let status = |name: &str, body| Call::patch("write a status", format!("{}/status", node(name)), body);
    let mut calls = vec![
        (
            status("worker-b", annotations(&json!({ "machineconfiguration.openshift.io/state": "Done" }))),
            NOT_OWN,
        ),
        (
            status("worker-a", json!({ "status": { "phase": "Running" } })),
            Answer::Forbidden("not its status"),
        ),
        (status("worker-a", json!({ "metadata": { "labels": { "x": "y" } } })), ONLY_ANNOTATIONS),
        (
            Call::patch("patch a MachineConfigNode", config_node("worker-b"), config_node_object("worker-b")),
            NOT_OWN_REPORT,
        ),
    ];
    calls.extend(at_own_node());
    check(&client, &calls).await;

    // A token that no pod has: it names no node, so it is of no use to any.
    let unbound = applied.bench.client_as(&Identity::Token(applied.token(&json!({})).await), "unbound").await;
    let state = annotations(&json!({ "machineconfiguration.openshift.io/state": "Done" }));
    check(
        &unbound,
        &[
            (
                Call::patch("report without a node", node("worker-a"), state),
                Answer::Forbidden("bound to no node"),
            ),
            (
                Call::apply("apply without a node", config_node("worker-b"), config_node_object("worker-b")),
                Answer::Forbidden("bound to no node"),
            ),
        ],
    )
    .await;
}

/// ANN-009, MCN-004: the agent on the host, with the kubelet's certificate.
#[tokio::test]
async fn kubelet_reports_for_its_own_node_only() {
    if !real_only("permissions::kubelet_reports_for_its_own_node_only") {
        return;
    }
    let applied = Applied::new("base", &["kubelet-identity"]).await;
    create_object(&applied.admin, "machineconfignodes", "worker-b", config_node_object("worker-b"))
        .await
        .unwrap();
    // The policies are in force when they are for the DaemonSet's account.
    applied.client(&applied.token_on("worker-a").await).await;
    let client = applied.bench.client_as(&Identity::Kubelet("worker-a".to_owned()), "the-agent").await;
    check(&client, &all_done(everyday("worker-a", "first"))).await;
    let state = annotations(&json!({ "machineconfiguration.openshift.io/state": "Done" }));
    let label = json!({ "metadata": { "labels": { "node-restriction.kubernetes.io/x": "y" } } });
    let taint = json!({ "spec": { "taints": [{ "key": "x", "effect": "NoExecute" }] } });
    let restricted = Answer::Forbidden("not allowed to modify");
    check(
        &client,
        &[
            (Call::patch("report on another Node", node("worker-b"), state), OTHER_NODE),
            (
                Call::patch("write a restricted label", node("worker-a"), label),
                Answer::Forbidden("is not allowed to modify labels"),
            ),
            (Call::patch("add a taint", node("worker-a"), taint), restricted),
            (
                Call::apply(
                    "apply another MachineConfigNode",
                    config_node("worker-b"),
                    config_node_object("worker-b"),
                ),
                NOT_OWN_REPORT,
            ),
            (
                Call::apply(
                    "apply another one's status",
                    format!("{}/status", config_node("worker-b")),
                    config_node_status("worker-b"),
                ),
                NOT_OWN_REPORT,
            ),
            (Call::get("get another Node", node("worker-b")), BY_RBAC),
            (Call::get("list all Nodes", "/api/v1/nodes"), BY_RBAC),
            (Call::get("list MachineConfigs", CONFIGS), BY_RBAC),
            (Call::get("list MachineConfigNodes", CONFIG_NODES), BY_RBAC),
            (Call::get("list secrets", "/api/v1/secrets"), BY_RBAC),
            (
                Call::get("read a secret of no pod of its own", "/api/v1/namespaces/default/secrets/x"),
                BY_RBAC,
            ),
            (
                Call::get("list another node's pods", "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-b"),
                BY_RBAC,
            ),
        ],
    )
    .await;
}

/// Item 15 of issue 10: a kubelet's certificate can't give its node a target, or answer its drain; a new Node still gets the
/// target that it was installed with, and other requests of kubelets work as before.
#[tokio::test]
async fn kubelet_certificate_cannot_set_target() {
    if !real_only("permissions::kubelet_certificate_cannot_set_target") {
        return;
    }
    let applied = Applied::new("base", &[]).await;
    create_node(&applied.admin, "worker-new", &[]).await;
    applied.client(&applied.token_on("worker-a").await).await;
    let kubelet =
        async |name: &str| applied.bench.client_as(&Identity::Kubelet(name.to_owned()), "a-kubelet").await;
    let (client, new) = (kubelet("worker-a").await, kubelet("worker-new").await);
    let all: Vec<_> =
        at_the_controllers_annotations().into_iter().map(|call| (call, NOT_A_KUBELETS)).collect();
    check(&client, &all).await;
    // It may cordon its Node, and drains it by itself where nobody else does.
    check(&client, &all_done(vec![cordon_as_agent(true), cordon_as_agent(false)])).await;
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let given = json!({ key("desiredConfig"): "rendered-x" });
    let beat = json!({ "status": { "nodeInfo": { "machineID": "x" } } });
    let report =
        json!({ key("state"): "Done", key("desiredImage"): null, "volumes.kubernetes.io/attach": "true" });
    let status = |name: &str, body| Call::patch("write a status", format!("{}/status", node(name)), body);
    let first = |config: &str| {
        let body = json!({ key("currentConfig"): "rendered-worker-1", key("desiredConfig"): config });
        Call::patch("report on a new Node", node("worker-new"), annotations(&body))
    };
    let made = json!({ "metadata": { "name": "worker-made", "annotations": given.clone() } });
    check(
        &client,
        &[
            (status("worker-a", annotations(&given)), NOT_A_KUBELETS),
            (status("worker-a", beat), Answer::Done),
            (Call::patch("report", node("worker-a"), annotations(&report)), Answer::Done),
        ],
    )
    .await;
    check(&new, &[(first("rendered-worker-2"), NOT_A_KUBELETS), (first("rendered-worker-1"), Answer::Done)])
        .await;
    let made = Call::post("create a Node with a target", "/api/v1/nodes", made);
    check(&kubelet("worker-made").await, &[(made, NOT_A_KUBELETS)]).await;
}

/// Item 14 of issue 10: an agent with the base permissions asks where it may write events, and is refused nothing.
#[tokio::test]
async fn agent_with_base_permissions_is_refused_nothing() {
    if !real_only("permissions::agent_with_base_permissions_is_refused_nothing") {
        return;
    }
    let applied = Applied::new("base", &[]).await;
    let token = applied.token_on("worker-a").await;
    applied.client(&token).await;
    let host = tempfile::tempdir().unwrap();
    bare(host.path());
    let kubeconfig = applied.bench.kubeconfig(&Identity::Token(token));
    let mark = applied.bench.mark().await;
    let agent = Agent::start(&AgentOptions::new(&kubeconfig, "worker-a", host.path()));
    let is = async |state: &'static str| {
        node_until(&applied.admin, "worker-a", state, |node| annotation(node, "state") == Some(state)).await
    };
    is("Done").await;
    // A refusal emits an event at once.
    MachineConfigBuilder::new("rendered-fips").field("fips", json!(true)).create(&applied.admin).await;
    retarget(&applied.admin, "worker-a", "rendered-fips", None).await;
    is("Unreconcilable").await;
    assert!(agent.terminate().await.success(), "{:?}", agent.lines());
    let mut requests = applied.bench.requests_since(mark).await;
    requests.retain(|request| request.user == applied.user());
    let lines = requests.iter().map(|one| format!("{} {:?}", one.line(), one.code)).collect::<Vec<_>>();
    assert!(!requests.iter().any(|one| matches!(one.code, Some(401 | 403))), "{lines:?}");
    let of = |resource: &str| requests.iter().filter(|one| one.resource == resource).collect::<Vec<_>>();
    assert_eq!(of("selfsubjectaccessreviews").len(), 1, "{lines:?}");
    assert!(
        !of("events").is_empty() && of("events").iter().all(|one| one.namespace == "default"),
        "{lines:?}"
    );
}
