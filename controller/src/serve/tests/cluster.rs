//! The cluster as source: a server that lists, gives and goes away.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::serve::authorities::KUBELET_CA;
use crate::serve::ignition::Joining;
use crate::serve::{Cluster, NoConfig};

const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1/";

/// Objects by path: a list by its plural, one object by its name behind that. A watch stays open and sends nothing.
#[derive(Clone, Default)]
struct ApiServer(Arc<Mutex<BTreeMap<String, Value>>>);

impl ApiServer {
    fn set(&self, path: &str, value: Value) {
        self.0.lock().unwrap().insert(path.to_owned(), value);
    }

    fn list(&self, plural: &str, kind: &str, items: &Value) {
        let list = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": format!("{kind}List"),
            "metadata": { "resourceVersion": "1" }, "items": items });
        self.set(plural, list);
    }

    async fn answer(self, path: String, is_watch: bool) -> Result<Response<Full<Bytes>>, Infallible> {
        let found = self.0.lock().unwrap().get(path.trim_start_matches(GROUP)).cloned();
        if is_watch && found.is_some() {
            std::future::pending::<()>().await;
        }
        let status = if found.is_some() { 200 } else { 404 };
        let missing = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
        let body = found.unwrap_or(missing).to_string();
        let response = Response::builder().status(status).header("content-type", "application/json");
        Ok(response.body(Full::new(Bytes::from(body))).unwrap())
    }

    /// Serves until the set is dropped.
    async fn start(&self) -> (kube::Client, JoinSet<()>) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (server, mut tasks) = (self.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                let server = server.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                    server.clone().answer(request.uri().path().to_owned(), is_watch)
                });
                connections.spawn(async move {
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        (kube::Client::try_from(config).unwrap(), tasks)
    }
}

fn pool(status: &Value) -> Value {
    json!([{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": { "name": "worker", "resourceVersion": "1" },
        "spec": { "configuration": { "name": "rendered-worker-new" } }, "status": status }])
}

async fn ready(cluster: &Cluster) {
    // The list is an event of the watch; there is nothing else to wait for.
    while !cluster.is_ready() {
        tokio::task::yield_now().await;
    }
}

fn not_yet(result: Result<Joining, NoConfig>) -> String {
    match result {
        Err(NoConfig::NotYet(cause)) => cause,
        Err(NoConfig::NoPool { .. }) | Ok(_) => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn pool_config_and_certificates_come_from_cluster() {
    let api = ApiServer::default();
    api.list("machineconfigpools", "MachineConfigPool", &pool(&json!({ "updatedMachineCount": 1 })));
    // This cluster has no kinds of builds; the ControllerConfig holds "new" in base64.
    api.list(
        "controllerconfigs",
        "ControllerConfig",
        &json!([{ "metadata": { "name": "machine-config-controller" },
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "spec": { "kubeAPIServerServingCAData": "bmV3", "cloudProviderCAData": null } }]),
    );
    let (client, tasks) = api.start().await;
    let cluster = Cluster::watch(client);
    ready(&cluster).await;
    assert_eq!(not_yet(cluster.joining("infra").await), "there is no MachineConfigPool infra in the cluster");
    assert_eq!(
        not_yet(cluster.joining("worker").await),
        "there is no MachineConfig rendered-worker-new in the cluster"
    );
    let config = super::rendered("rendered-worker-new", &json!({ "ignition": { "version": "3.5.0" } }));
    api.set("machineconfigs/rendered-worker-new", config);
    let joining = cluster.joining("worker").await.unwrap();
    assert_eq!((joining.name(), joining.image.as_deref()), ("rendered-worker-new", None));
    assert_eq!(joining.authorities, BTreeMap::from([(KUBELET_CA.to_owned(), "new".to_owned())]));
    // The API server goes away: the last config is still served.
    drop(tasks);
    assert_eq!(cluster.joining("worker").await.unwrap(), joining);
}

#[tokio::test]
async fn nothing_is_served_before_pools_are_known() {
    let api = ApiServer::default();
    let (client, _tasks) = api.start().await;
    let cluster = Cluster::watch(client);
    assert!(not_yet(cluster.joining("worker").await).contains("has not listed the pools yet"));
}

/// One object that can't be read is named to its own nodes, and the others are served.
#[tokio::test]
async fn object_that_cannot_be_read_fails_alone() {
    let api = ApiServer::default();
    let mut pools = pool(&json!({ "updatedMachineCount": 1 }));
    let bad = json!({ "metadata": { "name": "bad", "resourceVersion": "1" }, "spec": { "configuration": { "name": 5 } } });
    pools.as_array_mut().unwrap().push(bad);
    api.list("machineconfigpools", "MachineConfigPool", &pools);
    api.list("controllerconfigs", "ControllerConfig", &json!([]));
    let config = super::rendered("rendered-worker-new", &json!({ "ignition": { "version": "3.5.0" } }));
    api.set("machineconfigs/rendered-worker-new", config);
    let (client, _tasks) = api.start().await;
    let cluster = Cluster::watch(client);
    ready(&cluster).await;
    let cause = not_yet(cluster.joining("bad").await);
    assert!(cause.starts_with("MachineConfigPool bad can't be read: spec.configuration.name: "), "{cause}");
    assert_eq!(cluster.joining("worker").await.unwrap().name(), "rendered-worker-new");
    let wrong =
        json!({ "metadata": { "name": "rendered-worker-new" }, "spec": { "kernelArguments": "top-secret" } });
    api.set("machineconfigs/rendered-worker-new", wrong);
    let cause = not_yet(cluster.joining("worker").await);
    assert!(
        cause.starts_with("MachineConfig rendered-worker-new can't be read: spec.kernelArguments: ")
            && !cause.contains("top-secret"),
        "{cause}"
    );
}
