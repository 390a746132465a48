//! Requests of the holder of a credential, and the expected answers.

use kube::Client;
use serde_json::{Value, json};

/// The expected answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It is forbidden, with these words in the message.
    Forbidden(&'static str),
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) what: &'static str,
    method: &'static str,
    pub(crate) path: String,
    content: &'static str,
    body: Value,
}

impl Call {
    pub(crate) fn get(what: &'static str, path: impl Into<String>) -> Self {
        Self { what, method: "GET", path: path.into(), content: "application/json", body: Value::Null }
    }

    pub(crate) fn post(what: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { what, method: "POST", path: path.into(), content: "application/json", body }
    }

    pub(crate) fn put(what: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { what, method: "PUT", path: path.into(), content: "application/json", body }
    }

    pub(crate) fn delete(what: &'static str, path: impl Into<String>) -> Self {
        Self { what, method: "DELETE", path: path.into(), content: "application/json", body: Value::Null }
    }

    pub(crate) fn patch(what: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { what, method: "PATCH", path: path.into(), content: "application/merge-patch+json", body }
    }

    /// Server-side apply.
    pub(crate) fn apply(what: &'static str, path: impl Into<String>, body: Value) -> Self {
        let path = format!("{}?fieldManager=machine-config-agent&force=true", path.into());
        Self { what, method: "PATCH", path, content: "application/apply-patch+yaml", body }
    }

    /// Sends it: the answer's code, and its message where it is an error.
    pub(crate) async fn send(&self, client: &Client) -> (u16, String) {
        let body = if self.body.is_null() { vec![] } else { serde_json::to_vec(&self.body).unwrap() };
        let request =
            http::Request::builder().method(self.method).uri(&self.path).header("content-type", self.content);
        match client.request_text(request.body(body).unwrap()).await {
            Ok(_) => (200, String::new()),
            Err(kube::Error::Api(status)) => (status.code, status.message),
            Err(error) => panic!("{}: {error}", self.what),
        }
    }
}

/// Sends all of them, and fails with every one that was not answered as it should be.
pub(crate) async fn check(client: &Client, calls: &[(Call, Answer)]) {
    assert!(!calls.is_empty());
    let mut wrong = vec![];
    for (call, answer) in calls {
        let (code, message) = call.send(client).await;
        let right = match answer {
            Answer::Done => code == 200,
            Answer::Forbidden(words) => code == 403 && message.contains(words),
        };
        if !right {
            wrong.push(format!("{} ({}): {code} {message}, desired {answer:?}", call.what, call.path));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

pub(crate) fn all_done(calls: Vec<Call>) -> Vec<(Call, Answer)> {
    calls.into_iter().map(|call| (call, Answer::Done)).collect()
}

/// The words of RBAC and the Node authorizer.
pub(crate) const BY_RBAC: Answer = Answer::Forbidden("cannot ");

pub(crate) const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
pub(crate) const CONFIG_NODES: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";

pub(crate) const ALL_TRUST: &str = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
const TRUST: &str = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs\
    ?fieldSelector=metadata.name%3Dmachine-config-controller";

pub(crate) fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub(crate) fn config_node(name: &str) -> String {
    format!("{CONFIG_NODES}/{name}")
}

/// A patch of annotations.
pub(crate) fn annotations(annotations: &Value) -> Value {
    json!({ "metadata": { "annotations": annotations } })
}

/// A `MachineConfigNode` as the agent creates and applies it.
pub(crate) fn config_node_object(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigNode",
        "metadata": { "name": name },
        "spec": {
            "node": { "name": name },
            "pool": { "name": "worker" },
            "configVersion": { "desired": "rendered-worker-1" },
        },
    })
}

/// Its status as the agent applies it.
pub(crate) fn config_node_status(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigNode",
        "metadata": { "name": name },
        "status": {
            "observedGeneration": 2,
            "configVersion": { "desired": "rendered-worker-1" },
            "conditions": [{
                "type": "Updated", "status": "True", "reason": "Updated", "message": "Node has been updated",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// An event about a node. Only in `default` may it be about an object without namespace.
pub(crate) fn event(namespace: &str, name: &str, about: &str) -> Value {
    let within = if namespace == "default" { "" } else { namespace };
    let node = json!({ "apiVersion": "v1", "kind": "Node", "name": about, "namespace": within });
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": node,
        "reason": "Reboot",
        "type": "Normal",
        "message": "Node will reboot into config rendered-worker-1",
        "source": { "component": "machineconfigdaemon", "host": about },
        "count": 1,
    })
}

/// Reads of objects, and writes to those of a node, by kubelet or by service account.
pub(crate) fn everyday(name: &str, event_name: &str) -> Vec<Call> {
    let own = format!("/api/v1/nodes?fieldSelector=metadata.name%3D{name}");
    let events = "/api/v1/namespaces/default/events";
    vec![
        Call::get("list the own Node", own.clone()),
        Call::get(
            "watch the own Node",
            format!("{own}&watch=true&timeoutSeconds=1&allowWatchBookmarks=true"),
        ),
        Call::get("get the own Node", node(name)),
        Call::patch(
            "report on the own Node",
            node(name),
            annotations(&json!({
                "machineconfiguration.openshift.io/state": "Working",
                "machineconfiguration.openshift.io/reason": "",
                "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
                "machineconfiguration.openshift.io/currentImage": null,
                "machineconfiguration.openshift.io/desiredDrain": "drain-rendered-worker-1",
                "machineconfiguration.openshift.io/post-config-action": "Rebooting",
                "machineconfiguration.openshift.io/ostree-finalize-staged-failure": "",
                "machine-config-agent.io/phase": "Draining",
            })),
        ),
        Call::patch(
            "delete the empty desiredImage, as MCD does",
            node(name),
            annotations(&json!({ "machineconfiguration.openshift.io/desiredImage": null })),
        ),
        Call::get("get a MachineConfig by name", format!("{CONFIGS}/rendered-worker-1")),
        Call::get(
            "get the disruption policy",
            "/apis/operator.openshift.io/v1/machineconfigurations/cluster".to_owned(),
        ),
        Call::get("list the ControllerConfig by name", TRUST),
        Call::get("watch the ControllerConfig by name", format!("{TRUST}&watch=true&timeoutSeconds=1")),
        Call::post("create the own MachineConfigNode", CONFIG_NODES, config_node_object(name)),
        Call::get("get the own MachineConfigNode", config_node(name)),
        Call::apply("apply the own MachineConfigNode", config_node(name), config_node_object(name)),
        Call::apply(
            "apply the own MachineConfigNode's status",
            format!("{}/status", config_node(name)),
            config_node_status(name),
        ),
        Call::post("create an event", events, event("default", event_name, name)),
        Call::patch("count an event", format!("{events}/{event_name}"), json!({ "count": 2 })),
    ]
}
