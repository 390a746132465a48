//! Objects of the cluster, the node controller's hand-over, and waiting for a state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::pin::pin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{Stream, StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An annotation or label of the contract: `key("state")`.
pub fn key(name: &str) -> String {
    format!("machineconfiguration.openshift.io/{name}")
}

/// The nodes.
pub fn node_api(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

/// An annotation of the contract on a node.
pub fn annotation<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(&key(name)).map(String::as_str)
}

/// Creates a worker node with annotations of the contract.
pub async fn create_node(client: &Client, name: &str, annotations: &[(&str, &str)]) -> Node {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(name, value)| (key(name), *value)).collect();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": name },
            "annotations": annotations,
        },
    });
    let node = serde_json::from_value(node).unwrap();
    node_api(client).create(&PostParams::default(), &node).await.unwrap()
}

/// Writes the desired config and image of a node in one patch, as the node controller does.
pub async fn retarget(client: &Client, node: &str, config: &str, image: Option<&str>) -> Node {
    let patch = json!({ "metadata": { "annotations": { key("desiredConfig"): config, key("desiredImage"): image } } });
    node_api(client).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// The objects of one of the CRDs by its plural, without their types.
pub fn object_api(client: &Client, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(plural))
}

fn resource(plural: &str) -> ApiResource {
    let (group, kind) = match plural {
        "machineconfigs" => ("machineconfiguration.openshift.io", "MachineConfig"),
        "machineconfigpools" => ("machineconfiguration.openshift.io", "MachineConfigPool"),
        "machineconfignodes" => ("machineconfiguration.openshift.io", "MachineConfigNode"),
        "controllerconfigs" => ("machineconfiguration.openshift.io", "ControllerConfig"),
        "machineosconfigs" => ("machineconfiguration.openshift.io", "MachineOSConfig"),
        "machineosbuilds" => ("machineconfiguration.openshift.io", "MachineOSBuild"),
        "pinnedimagesets" => ("machineconfiguration.openshift.io", "PinnedImageSet"),
        "machineconfigurations" => ("operator.openshift.io", "MachineConfiguration"),
        "featuregates" => ("config.openshift.io", "FeatureGate"),
        "clusterversions" => ("config.openshift.io", "ClusterVersion"),
        other => panic!("{other} is no CRD of the bench"),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

/// Creates an object of one of the CRDs from its spec and what else it has besides name and type.
pub async fn create_object(
    client: &Client,
    plural: &str,
    name: &str,
    fields: Value,
) -> kube::Result<DynamicObject> {
    let object = DynamicObject::new(name, &resource(plural)).data(fields);
    object_api(client, plural).create(&PostParams::default(), &object).await
}

/// Presence of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    There,
    Gone,
}

/// All objects as they are, and from there on every change; ends when the server ends the watch. A list and a watch from
/// its version, because a watch alone begins somewhere in the past.
pub async fn changes<K>(
    api: &Api<K>,
    which: &ListParams,
) -> kube::Result<impl Stream<Item = (K, Presence)> + use<K>>
where
    K: Clone + Debug + DeserializeOwned + Send + 'static,
{
    let listed = api.list(which).await?;
    let mut params = WatchParams::default();
    params.field_selector.clone_from(&which.field_selector);
    params.label_selector.clone_from(&which.label_selector);
    let version = listed.metadata.resource_version.unwrap_or_default();
    let later = api.watch(&params, &version).await?;
    let later = later.take_while(|change| future::ready(change.is_ok())).filter_map(|change| {
        future::ready(match change {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Some((object, Presence::There)),
            Ok(WatchEvent::Deleted(object)) => Some((object, Presence::Gone)),
            Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => None,
        })
    });
    Ok(stream::iter(listed.items.into_iter().map(|object| (object, Presence::There))).chain(later))
}

/// Waits until a node is as desired.
pub async fn node_until(client: &Client, name: &str, what: &str, desired: impl FnMut(&Node) -> bool) -> Node {
    object_until(&node_api(client), name, what, desired).await
}

/// Waits until an object is as desired, by a watch.
pub async fn object_until<K>(api: &Api<K>, name: &str, what: &str, mut desired: impl FnMut(&K) -> bool) -> K
where
    K: Clone + Debug + DeserializeOwned + Send + 'static,
{
    let which = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut last = None;
    let waiting = async {
        loop {
            let mut changes = pin!(changes(api, &which).await.unwrap());
            // A watch that ends is begun again: a test may cut connections.
            while let Some((object, presence)) = changes.next().await {
                if presence == Presence::There && desired(&object) {
                    return object;
                }
                last = Some((object, presence));
            }
        }
    };
    let found = tokio::time::timeout(super::LIMIT, waiting).await.ok();
    found.unwrap_or_else(|| panic!("{name} was not so in time: {what}; last seen: {last:#?}"))
}

/// Makes a MachineConfig.
#[derive(Debug, Clone)]
pub struct MachineConfigBuilder {
    name: String,
    files: Vec<Value>,
    links: Vec<Value>,
    units: Vec<Value>,
    users: Vec<Value>,
    spec: serde_json::Map<String, Value>,
}

impl MachineConfigBuilder {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        let spec = json!({ "kernelArguments": [], "extensions": [], "fips": false, "kernelType": "default" });
        Self {
            name: name.to_owned(),
            files: vec![],
            links: vec![],
            units: vec![],
            users: vec![],
            spec: spec.as_object().unwrap().clone(),
        }
    }

    /// With a file.
    pub fn file(mut self, path: &str, mode: u32, contents: impl AsRef<[u8]>) -> Self {
        let source = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(contents));
        self.files
            .push(json!({ "path": path, "mode": mode, "overwrite": true, "contents": { "source": source } }));
        self
    }

    /// With a file whose contents are given as in Ignition.
    pub fn contents(mut self, path: &str, contents: &Value) -> Self {
        self.files.push(json!({ "path": path, "mode": 0o644, "overwrite": true, "contents": contents }));
        self
    }

    /// With a link.
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.links.push(json!({ "path": path, "target": target }));
        self
    }

    /// With a unit.
    pub fn unit(mut self, name: &str, contents: &str, enabled: bool) -> Self {
        self.units.push(json!({ "name": name, "contents": contents, "enabled": enabled }));
        self
    }

    /// With a key for the user `core`.
    pub fn ssh_key(mut self, key: &str) -> Self {
        self.users.push(json!({ "name": "core", "sshAuthorizedKeys": [key] }));
        self
    }

    /// With the user `core`, who has neither a key nor a password.
    pub fn empty_user(mut self) -> Self {
        self.users.push(json!({ "name": "core", "sshAuthorizedKeys": [] }));
        self
    }

    /// With a kernel argument.
    pub fn karg(mut self, argument: &str) -> Self {
        self.spec["kernelArguments"].as_array_mut().unwrap().push(json!(argument));
        self
    }

    /// With an OS image.
    pub fn os_image_url(self, url: &str) -> Self {
        self.field("osImageURL", json!(url))
    }

    /// With any field of the spec.
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.spec.insert(name.to_owned(), value);
        self
    }

    /// The object.
    pub fn object(self) -> Value {
        let mut spec = self.spec;
        let config = json!({
            "ignition": { "version": "3.4.0" },
            "storage": { "files": self.files, "links": self.links },
            "systemd": { "units": self.units },
            "passwd": { "users": self.users },
        });
        spec.insert("config".to_owned(), config);
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": self.name,
                "annotations": { key("generated-by-controller-version"): "bench" },
            },
            "spec": spec,
        })
    }

    /// Creates it.
    pub async fn create(self, client: &Client) -> DynamicObject {
        let object = serde_json::from_value(self.object()).unwrap();
        object_api(client, "machineconfigs").create(&PostParams::default(), &object).await.unwrap()
    }
}

/// One request as it goes over the wire: the code of the answer (200 for every success) and its body.
pub async fn call(client: &Client, method: &str, path: &str, body: Option<(&str, Value)>) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    let mut bytes = vec![];
    if let Some((kind, body)) = body {
        request = request.header("content-type", kind);
        bytes = body.to_string().into_bytes();
    }
    match client.request::<Value>(request.body(bytes).unwrap()).await {
        Ok(answer) => (200, answer),
        Err(kube::Error::Api(status)) => (status.code, serde_json::to_value(&*status).unwrap()),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// Applies the permissions of an agent with the kubelet's certificate, and the policies that bound it, on a real server.
pub async fn grant_kubelets(client: &Client) {
    if !super::is_real() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|path| path.join("dist").exists());
    let manifests = root.unwrap().join("dist/manifests");
    for file in [
        "components/kubelet-identity/clusterrole.yaml",
        "base/policy-kubelet.yaml",
        "base/policy-machineconfignode.yaml",
    ] {
        let text = std::fs::read_to_string(manifests.join(file)).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let (group, kinds) = match object["kind"].as_str().unwrap() {
                "ClusterRole" => ("rbac.authorization.k8s.io", "clusterroles"),
                "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "clusterrolebindings"),
                "ValidatingAdmissionPolicy" => {
                    ("admissionregistration.k8s.io", "validatingadmissionpolicies")
                }
                "ValidatingAdmissionPolicyBinding" => {
                    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
                }
                other => panic!("{file}: {other}"),
            };
            let path = format!("/apis/{group}/v1/{kinds}");
            let (code, answer) = call(client, "POST", &path, Some(("application/json", object))).await;
            assert_eq!(code, 200, "{answer}");
        }
    }
}
