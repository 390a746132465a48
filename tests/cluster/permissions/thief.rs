//! Attempts of a thief with the token of the agent of worker-a.

use serde_json::{Value, json};

use super::calls::{
    ALL_TRUST, Answer, BY_RBAC, CONFIG_NODES, CONFIGS, Call, annotations, config_node, config_node_object,
    config_node_status, event, node,
};

/// Refusals of the policies: another node, foreign annotations, the controllers' annotations, all else.
pub(crate) const NOT_OWN: Answer =
    Answer::Forbidden("Node worker-b is not this agent's: the token is bound to a pod of node worker-a");
pub(crate) const NOT_OWN_REPORT: Answer = Answer::Forbidden("MachineConfigNode worker-b is not this agent's");
pub(crate) const CONTROLLERS: Answer =
    Answer::Forbidden("these annotations are the controllers', the agent only reads them");
pub(crate) const ONLY_ANNOTATIONS: Answer =
    Answer::Forbidden("the agent may change only annotations of its Node, not ");
/// Refusal of the policy for kubelets: the controllers' annotations.
pub(crate) const NOT_A_KUBELETS: Answer =
    Answer::Forbidden("these annotations are the controllers', a kubelet only reads them");
const FOREIGN: Answer =
    Answer::Forbidden("may change only annotations of machineconfiguration.openshift.io/");

/// At other nodes, and at what is not the agent's.
pub(crate) fn at_others(namespace: &str, account: &str) -> Vec<(Call, Answer)> {
    let by_rbac =
        reading(namespace).into_iter().chain(writing(namespace, account)).map(|call| (call, BY_RBAC));
    by_rbac.chain(at_other_nodes()).collect()
}

fn reading(namespace: &str) -> Vec<Call> {
    let secret = "/api/v1/namespaces/openshift-machine-config-operator/secrets/pull";
    vec![
        Call::get("list MachineConfigs", CONFIGS),
        Call::get("watch MachineConfigs", format!("{CONFIGS}?watch=true&timeoutSeconds=1")),
        Call::get("list MachineConfigNodes", CONFIG_NODES),
        Call::get("list ControllerConfigs", ALL_TRUST),
        Call::get("read all secrets", "/api/v1/secrets"),
        Call::get("read a namespace's secrets", format!("/api/v1/namespaces/{namespace}/secrets")),
        Call::get("read a secret", secret),
        Call::get("read a configmap", format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")),
        Call::get("list configmaps", "/api/v1/configmaps"),
        Call::get("read another policy", "/apis/operator.openshift.io/v1/machineconfigurations/other"),
        Call::get("read the kubelet's API", "/api/v1/nodes/worker-a/proxy/pods"),
        Call::get("list events", "/api/v1/events"),
    ]
}

fn writing(namespace: &str, account: &str) -> Vec<Call> {
    let state = annotations(&json!({ "machineconfiguration.openshift.io/state": "Done" }));
    let token = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let events = "/api/v1/namespaces/kube-system/events";
    let policy =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/machine-config-agent-node";
    vec![
        Call::post("create a token", token, json!({ "spec": {} })),
        Call::post("create a pod", pods, json!({ "metadata": { "name": "x" } })),
        Call::delete("delete a Node", node("worker-b")),
        Call::put("replace the own Node", node("worker-a"), json!({})),
        Call::patch("write the own Node's status", format!("{}/status", node("worker-a")), state.clone()),
        Call::delete("delete the own MachineConfigNode", config_node("worker-a")),
        Call::patch("write a MachineConfig", format!("{CONFIGS}/rendered-worker-1"), state),
        Call::post("write events elsewhere", events, event("kube-system", "x", "worker-a")),
        Call::patch("drop the policy", policy, json!({ "spec": { "failurePolicy": "Ignore" } })),
    ]
}

fn at_other_nodes() -> Vec<(Call, Answer)> {
    let state = annotations(&json!({ "machineconfiguration.openshift.io/state": "Done" }));
    let cordon = json!({ "spec": { "unschedulable": true } });
    let (object, status) = (config_node_object("worker-b"), config_node_status("worker-b"));
    let place = config_node("worker-b");
    vec![
        (Call::patch("report on another Node", node("worker-b"), state), NOT_OWN),
        (Call::patch("cordon another Node", node("worker-b"), cordon), NOT_OWN),
        (Call::apply("apply another MachineConfigNode", place.clone(), object), NOT_OWN_REPORT),
        (Call::apply("apply another one's status", format!("{place}/status"), status), NOT_OWN_REPORT),
        (
            Call::post("create another MachineConfigNode", CONFIG_NODES, config_node_object("worker-c")),
            Answer::Forbidden("MachineConfigNode worker-c is not this agent's"),
        ),
    ]
}

fn own(what: &'static str, body: Value) -> Call {
    Call::patch(what, node("worker-a"), body)
}

/// At the own Node.
pub(crate) fn at_own_node() -> Vec<(Call, Answer)> {
    let annotation = |what, name: &str| own(what, annotations(&json!({ name: "y" })));
    let labels = |what, labels: Value| own(what, json!({ "metadata": { "labels": labels } }));
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "worker-b", "uid": "0" }]);
    let taint = json!([{ "key": "x", "effect": "NoExecute" }]);
    let foreign = [
        annotation("write a foreign annotation", "example.com/x"),
        annotation("write what only begins alike", "machineconfiguration.openshift.io.example.com/x"),
    ];
    let other = [
        labels("write a label", json!({ "node-role.kubernetes.io/master": "" })),
        labels("write a label of ours", json!({ "machine-config-agent.io/x": "" })),
        labels("drop a label", json!({ "node-role.kubernetes.io/worker": null })),
        own("add a finalizer", json!({ "metadata": { "finalizers": ["example.com/x"] } })),
        own("add an owner", json!({ "metadata": { "ownerReferences": owner } })),
        own("add a taint", json!({ "spec": { "taints": taint } })),
        own("name a provider", json!({ "spec": { "providerID": "x://y" } })),
    ];
    let foreign = foreign.map(|call| (call, FOREIGN)).into_iter();
    foreign
        .chain(other.map(|call| (call, ONLY_ANNOTATIONS)))
        .chain(at_the_controllers_annotations().into_iter().map(|call| (call, CONTROLLERS)))
        .collect()
}

/// An attack on the annotation that an agent writes which drains by itself.
pub(crate) fn at_cordoned_by() -> Call {
    at_our_controller("cordoned-by")
}

fn at_our_controller(name: &str) -> Call {
    let key = format!("machine-config-agent.io/{name}");
    own("write what our controller writes", annotations(&json!({ key: "x" })))
}

/// Attacks on the controllers' annotations of the own Node.
pub(crate) fn at_the_controllers_annotations() -> Vec<Call> {
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let annotation = |what, name: &str, value: Value| own(what, annotations(&json!({ key(name): value })));
    let anew = json!({ key("desiredConfig"): "rendered-x", key("currentConfig"): "rendered-x" });
    let mut calls = vec![
        annotation("change desiredConfig", "desiredConfig", json!("rendered-master-1")),
        annotation("remove desiredConfig", "desiredConfig", Value::Null),
        annotation("answer the own drain", "lastAppliedDrain", json!("drain-x")),
        annotation("forget the own drain", "lastAppliedDrain", Value::Null),
        own("become new", annotations(&anew)),
    ];
    calls.extend(
        [
            "desired-since",
            "drain-blocked",
            "drain-failed",
            "drain-since",
            "excluded-from-load-balancers",
            "left-pool-at-work",
            "prefetch-image",
            "prefetch-since",
        ]
        .map(at_our_controller),
    );
    for name in [
        "desiredImage",
        "desiredOSImage",
        "desiredOSimage",
        "controlPlaneTopology",
        "customPoolLabelsApplied",
    ] {
        calls.push(annotation("write what a controller writes", name, json!("x")));
    }
    calls
}
