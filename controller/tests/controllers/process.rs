//! The controller as a process, and requests of tests to a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::{
    Agent, Bench, Gates, Identity, MachineConfigBuilder, call, create_object, key, object_api, object_until,
    within,
};

pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// Memory settings of the Deployment.
pub const MALLOC: [(&str, &str); 5] = [
    ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"),
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
    ("MALLOC_TOP_PAD_", "0"),
];
/// The component's own namespace.
pub const MANIFEST_NAMESPACE: &str = "machine-config-agent";
pub const LEASE: &str = "machine-config-agent-controller";

/// A Lease whose end a test waits for.
pub const SHORT_LEASE: [&str; 2] = ["--lease-duration", "6"];

/// An API server with the controller's access to it.
pub struct Cluster {
    pub bench: Bench,
    pub client: Client,
    pub kubeconfig: PathBuf,
}

/// A running controller; dropping it kills it.
pub struct Controller(pub Agent);

impl Cluster {
    pub async fn new() -> Self {
        Self::on(Bench::private(Gates::Default)).await
    }

    pub async fn on(bench: Bench) -> Self {
        let kubeconfig = bench.kubeconfig(&Identity::Admin("controller".to_owned()));
        let client = bench.client("test").await;
        let cluster = Self { bench, client, kubeconfig };
        cluster.lease(LEASE).await;
        cluster
    }

    /// Leaves a Lease without a holder, so that the first controller need not wait.
    pub async fn lease(&self, name: &str) {
        let lease = json!({ "metadata": { "name": name }, "spec": { "leaseDurationSeconds": 1 } });
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    }

    /// Takes the Lease from a holder that is dead, so that the next one need not wait.
    pub async fn free_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let nobody = Patch::Merge(json!({ "spec": { "holderIdentity": null } }));
        leases.patch(LEASE, &PatchParams::default(), &nobody).await.unwrap();
    }

    /// Starts a controller. Its Lease is long: what a loaded machine keeps waiting still leads. The next one of a dead holder
    /// waits for [`Cluster::free_lease`].
    pub fn start(&self, name: &str, more: &[&str]) -> Controller {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machine-config-controller"));
        command.args(["run", "--name", name, "--metrics-listen", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(more).envs(MALLOC);
        if !more.contains(&SHORT_LEASE[0]) {
            command.args([SHORT_LEASE[0], "60"]);
        }
        Controller(Agent::run(name, command))
    }

    /// Waits until the server that came back serves the pools; it has no event for that, and is asked.
    pub async fn served(&self) {
        let pools = object_api(&self.client, "machineconfigpools");
        let polling = async {
            while pools.list(&ListParams::default()).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        within("the pools are served", polling).await;
    }

    pub async fn pool(&self, name: &str) -> DynamicObject {
        let label = |label: &str| json!({ "matchLabels": { label: name } });
        let spec = json!({
            "machineConfigSelector": label(&key("role")),
            "nodeSelector": { "matchLabels": { format!("node-role.kubernetes.io/{name}"): "" } },
        });
        create_object(&self.client, "machineconfigpools", name, json!({ "spec": spec })).await.unwrap()
    }

    /// The `ControllerConfig` of a cluster, with more fields of its spec.
    pub async fn controller_config(&self, more: &Value) {
        let mut spec = json!({
            "additionalTrustBundle": null, "baseOSContainerImage": "", "cloudProviderConfig": "", "clusterDNSIP": "",
            "dns": null, "images": {}, "infra": null, "ipFamilies": "IPv4", "kubeAPIServerServingCAData": "cm9vdA==",
            "cloudProviderCAData": "cm9vdA==",
            "network": null, "proxy": null, "releaseImage": "", "rootCAData": "cm9vdA==",
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let name = "machine-config-controller";
        create_object(&self.client, "controllerconfigs", name, json!({ "spec": spec })).await.unwrap();
    }

    pub async fn patch_pool(&self, name: &str, patch: Value) {
        let api = object_api(&self.client, "machineconfigpools");
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Creates a MachineConfig for a pool.
    pub async fn config(&self, pool: &str, config: MachineConfigBuilder) {
        let mut object = config.object();
        object["metadata"]["labels"] = json!({ key("role"): pool });
        object["metadata"]["annotations"] = Value::Null;
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api = object_api(&self.client, "machineconfigs");
        api.patch(&object.name_any(), &PatchParams::apply("test").force(), &Patch::Apply(&object))
            .await
            .unwrap();
    }

    pub async fn until_pool(&self, name: &str, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let api = object_api(&self.client, "machineconfigpools");
        let read = |pool: &DynamicObject| serde_json::to_value(pool).unwrap();
        read(&object_until(&api, name, what, |pool| holds(&read(pool))).await)
    }

    /// Waits until a pool has another target; returns it.
    pub async fn until_target(&self, pool: &str, other_than: &str) -> String {
        let pool = self.until_pool(pool, "another target", |pool| {
            let target = target(pool);
            !target.is_empty() && target != other_than
        });
        target(&pool.await).to_owned()
    }

    /// Waits for a leader; returns its name.
    pub async fn until_leader(&self, holds: impl Fn(&str) -> bool) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone();
        let lease =
            object_until(&leases, LEASE, "a leader", |lease| holder(lease).is_some_and(|name| holds(&name)));
        holder(&lease.await).unwrap()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let lines = self.0.lines();
        let unnamed = lines.iter().find(|line| line.contains("Write without a row"));
        assert!(std::thread::panicking() || unnamed.is_none(), "{unnamed:?}");
    }
}

impl Controller {
    pub async fn line(&mut self, what: &str) -> String {
        self.0.line(what, |line| line.contains(what)).await
    }

    /// Waits for its end after a signal.
    pub async fn terminate(&self) -> ExitStatus {
        self.0.terminate().await
    }

    pub async fn kill(&self) -> ExitStatus {
        self.0.kill().await
    }

    pub async fn end(&self) -> ExitStatus {
        self.0.end().await
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lines()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.pid().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

pub fn target(pool: &Value) -> &str {
    pool["spec"]["configuration"]["name"].as_str().unwrap_or_default()
}

/// The objects of a file of `dist/manifests`.
pub fn document(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/manifests").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Applies the objects of a file of `dist/manifests`, as `kubectl apply --server-side` does.
pub async fn apply_file(client: &Client, file: &str) {
    apply_file_in(client, file, MANIFEST_NAMESPACE).await;
}

/// The same with another namespace of the component, as an overlay sets it.
pub async fn apply_file_in(client: &Client, file: &str, namespace: &str) {
    for mut object in document(file) {
        for pointer in ["/metadata/namespace", "/subjects/0/namespace"] {
            if let Some(place) = object.pointer_mut(pointer).filter(|place| **place == MANIFEST_NAMESPACE) {
                *place = json!(namespace);
            }
        }
        apply_document(client, file, &object).await;
    }
}

/// Applies the definition of one kind, and waits until the kind is served: that is a moment later, without an event.
pub async fn apply_definition(client: &Client, plural: &str) {
    let file = "components/controller/crds.yaml";
    let all = document(file);
    let definition = all.iter().find(|one| one["spec"]["names"]["plural"] == plural).unwrap();
    apply_document(client, file, definition).await;
    let (group, version) = (&definition["spec"]["group"], &definition["spec"]["versions"][0]["name"]);
    let path = format!("/apis/{}/{}/{plural}?limit=1", group.as_str().unwrap(), version.as_str().unwrap());
    within("the kind is served", async {
        while call(client, "GET", &path, None).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn apply_document(client: &Client, file: &str, object: &Value) {
    let (group, plural) = match object["kind"].as_str().unwrap() {
        "CustomResourceDefinition" => ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        "ServiceAccount" => ("/api/v1", "serviceaccounts"),
        "ClusterRole" => ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        "ClusterRoleBinding" => ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        "Role" => ("/apis/rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding" => ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
        other => panic!("{file}: {other} has no place in this table"),
    };
    let metadata = &object["metadata"];
    let within = metadata["namespace"].as_str().map(|place| format!("/namespaces/{place}"));
    let name = metadata["name"].as_str().unwrap();
    let path = format!("{group}{}/{plural}/{name}?fieldManager=test&force=true", within.unwrap_or_default());
    let (code, answer) =
        call(client, "PATCH", &path, Some(("application/apply-patch+yaml", object.clone()))).await;
    assert_eq!(code, 200, "{path}: {answer}");
}

/// A condition of a pool.
pub fn condition<'a>(pool: &'a Value, kind: &str) -> &'a Value {
    let all = pool["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}
