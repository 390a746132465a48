//! A cluster with the manifests applied, two nodes, a pod of the DaemonSet on each, and their tokens.

use kube::Client;
use serde_json::{Value, json};

use super::calls::{Answer, Call, annotations, check, node};
use crate::cluster::{Bench, Gates, Identity, MachineConfigBuilder, create_node, create_object, within};
use crate::rendered::{account, render, text};

/// A server with the manifests in force.
pub(crate) struct Applied {
    pub(crate) bench: Bench,
    pub(crate) admin: Client,
    /// The namespace and the name of the DaemonSet's service account.
    pub(crate) namespace: String,
    pub(crate) account: String,
}

/// The plural and the scope of what the manifests hold.
fn plural_and_scope(kind: &str) -> (&'static str, bool) {
    match kind {
        "Namespace" => ("namespaces", false),
        "ServiceAccount" => ("serviceaccounts", true),
        "Service" => ("services", true),
        "DaemonSet" => ("daemonsets", true),
        "Deployment" => ("deployments", true),
        "NetworkPolicy" => ("networkpolicies", true),
        "PodDisruptionBudget" => ("poddisruptionbudgets", true),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "ValidatingAdmissionPolicy" => ("validatingadmissionpolicies", false),
        "ValidatingAdmissionPolicyBinding" => ("validatingadmissionpolicybindings", false),
        other => panic!("{other} has no place in this table"),
    }
}

/// Applies an object as `kubectl apply --server-side` does.
pub(crate) async fn apply(admin: &Client, object: Value) {
    let version = text(&object, "/apiVersion").to_owned();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let (plural, namespaced) = plural_and_scope(text(&object, "/kind"));
    let within = match (namespaced, text(&object, "/metadata/namespace")) {
        (true, namespace) => format!("/namespaces/{namespace}"),
        (false, _) => String::new(),
    };
    let path = format!("{root}/{version}{within}/{plural}/{}", text(&object, "/metadata/name"));
    let call = Call::apply("apply a manifest", path, object);
    check(admin, &[(call, Answer::Done)]).await;
}

impl Applied {
    /// Starts a server and applies the rendered objects, but for those of the Prometheus operator: its CRDs are not here.
    pub(crate) async fn new(directory: &str, components: &[&str]) -> Self {
        let bench = Bench::private(Gates::Default);
        let admin = bench.client("administrator").await;
        let objects = render(directory, components);
        let (namespace, account) = account(&objects);
        for object in objects {
            // The server has the definitions of the kinds.
            let is_definition = text(&object, "/kind") == "CustomResourceDefinition";
            if !is_definition && !text(&object, "/apiVersion").starts_with("monitoring.coreos.com/") {
                apply(&admin, object).await;
            }
        }
        for name in ["worker-a", "worker-b"] {
            let given = [
                ("desiredConfig", "rendered-worker-1"),
                ("desiredImage", ""),
                ("lastAppliedDrain", "uncordon-x"),
            ];
            create_node(&admin, name, &given).await;
        }
        MachineConfigBuilder::new("rendered-worker-1").create(&admin).await;
        let policy = json!({ "spec": { "managementState": "Managed" } });
        create_object(&admin, "machineconfigurations", "cluster", policy).await.unwrap();
        Self { bench, admin, namespace, account }
    }

    /// A pod of the DaemonSet on a node, and the token that its kubelet gets for it.
    pub(crate) async fn token_on(&self, on: &str) -> String {
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let pod = json!({
            "metadata": { "name": format!("agent-{on}") },
            "spec": {
                "nodeName": on,
                "serviceAccountName": self.account,
                "containers": [{ "name": "agent", "image": "agent" }],
            },
        });
        self.request("POST", &pods, &pod).await;
        self.token_of(on).await
    }

    /// Another token for the pod on a node.
    pub(crate) async fn token_of(&self, on: &str) -> String {
        let name = format!("agent-{on}");
        let path = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
        let made = self.request("GET", &path, &Value::Null).await;
        let bound =
            json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": text(&made, "/metadata/uid") });
        self.token(&json!({ "boundObjectRef": bound })).await
    }

    /// A token of the service account.
    pub(crate) async fn token(&self, spec: &Value) -> String {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, self.account);
        let request =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        text(&self.request("POST", &path, &request).await, "/status/token").to_owned()
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { vec![] } else { serde_json::to_vec(body).unwrap() };
        self.admin.request(request.body(body).unwrap()).await.unwrap()
    }

    /// A client with a token, once the server enforces what was applied. It learns of roles and policies by watches of
    /// its own without a signal: requests are repeated until it refuses by the policy, which comes after the role.
    pub(crate) async fn client(&self, token: &str) -> Client {
        let client = self.bench.client_as(&Identity::Token(token.to_owned()), "the-agent").await;
        let beyond = annotations(&json!({ "example.com/beyond": "x" }));
        let probe = Call::patch("probe", format!("{}?dryRun=All", node("worker-a")), beyond);
        within("the manifests are in force", async {
            while !probe
                .send(&client)
                .await
                .1
                .contains("ValidatingAdmissionPolicy 'machine-config-agent-node'")
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        client
    }

    /// The user that the audit log shows.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// Versions of objects that must not change when others write to them.
    pub(crate) async fn versions(&self, paths: &[String]) -> Vec<String> {
        let mut versions = vec![];
        for path in paths {
            let object = self.request("GET", path, &Value::Null).await;
            versions.push(format!("{path} {}", text(&object, "/metadata/resourceVersion")));
        }
        versions
    }
}
