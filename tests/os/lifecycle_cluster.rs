//! The stages of an image-based upgrade by the ImageBasedUpgrade of a real API server, carried out by the daemon on a real sysroot.

use std::fs;
use std::process::{Child, Stdio};

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use machine_config_agent::model::yaml;
use serde_json::{Value, json};

use crate::activation::{TRIAL, is_in, prepared_seed};
use crate::backend_env::Machine;
use crate::cluster::{Bench, Gates, Identity, Request, create_node, object_until, within};
use crate::lifecycle::last;
use crate::stateroot::{NAME, nothing_left, stateroot};

/// A cluster with this node, and with the definitions.
pub async fn cluster(bench: &Bench, node: &str) -> Client {
    let client = bench.client("test-lifecycle").await;
    let crds = fs::read_to_string("dist/manifests/components/lifecycle/crds.yaml").unwrap();
    for crd in crds.split("\n---\n") {
        let crd = yaml::tree(crd).unwrap();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(crd.to_string().into_bytes())
            .unwrap();
        client.request_text(request).await.unwrap();
    }
    served(&client).await;
    create_node(&client, node, &[]).await;
    client
}

/// Waits until the server serves the definitions, for which it has no event. Their watches are the last.
pub async fn served(client: &Client) {
    let served = async {
        for kind in ["ImageBasedUpgrade", "SeedGenerator"] {
            while let Err(error) = of_kind(client, kind).watch(&WatchParams::default().timeout(1), "0").await
            {
                assert!(matches!(error, kube::Error::Api(_)), "{error}");
                tokio::task::yield_now().await;
            }
        }
    };
    within("the definitions are served", served).await;
}

pub fn of_kind(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("lca.openshift.io", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

fn api(client: &Client) -> Api<DynamicObject> {
    of_kind(client, "ImageBasedUpgrade")
}

struct Daemon(Child);

impl Daemon {
    fn start(bench: &Bench, boot: &Machine, flags: &[&str]) -> Self {
        let kubeconfig = fs::read(bench.kubeconfig(&Identity::Kubelet("a".to_owned()))).unwrap();
        fs::write(boot.run_dir().join("kubeconfig"), kubeconfig).unwrap();
        let words = ["daemon", "--kubeconfig", "/run/kubeconfig", "--node-name", "a", "--os-backend", "none"];
        let more = ["--metrics-listen", "off", "--reboot-by", "supervisor"];
        let log = fs::File::options().create(true).append(true).open(boot.run_dir().join("log")).unwrap();
        let mut command = boot.agent(&[&words[..], &more, flags].concat());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.0.try_wait().unwrap().is_none() {
            let pid = rustix::process::Pid::from_child(&self.0);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            self.0.wait().unwrap();
        }
    }
}

async fn condition(client: &Client, expected: [&str; 4]) -> Value {
    let is = |ibu: &DynamicObject| last(&ibu.data["status"], expected);
    object_until(&api(client), "upgrade", &expected.join(" "), is).await.data
}

async fn want(client: &Client, spec: Value) -> Result<DynamicObject, kube::Error> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    api(client).patch("upgrade", &PatchParams::default(), &patch).await
}

fn about(requests: &[Request]) -> Vec<String> {
    let of_lca = requests.iter().filter(|request| request.uri.contains("lca.openshift.io"));
    of_lca.map(|request| request.verb.clone()).collect()
}

const IDLE: [&str; 4] = ["Idle", "True", "Idle", "Idle"];

/// The object leads through the stages; each cluster gets it from the node's state, because none has that of the other.
#[tokio::test]
async fn object_leads_through_the_stages_in_both_clusters() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let old = Bench::private(Gates::Default);
    let client = cluster(&old, "a").await;
    let daemon = Daemon::start(&old, &boot, &["--lifecycle"]);
    // It is made where there is none.
    let ibu = condition(&client, IDLE).await;
    assert_eq!(
        (&ibu["spec"]["stage"], &ibu["status"]["validNextStages"]),
        (&json!("Idle"), &json!(["Prep"]))
    );
    // The API server itself refuses, by what the agent says.
    assert!(want(&client, json!({ "stage": "Upgrade" })).await.is_err());
    let seed = json!({ "image": image, "version": "4.17.2" });
    let trial = json!({ "initMonitorTimeoutSeconds": 60 });
    want(&client, json!({ "stage": "Prep", "seedImageRef": seed, "autoRollbackOnFailure": trial }))
        .await
        .unwrap();
    let prepared = ["PrepCompleted", "True", "Completed", "Prep stage completed successfully"];
    let ibu = condition(&client, prepared).await;
    assert_eq!(ibu["status"]["validNextStages"], json!(["Idle", "Upgrade"]));
    // An abort, and again.
    want(&client, json!({ "stage": "Idle" })).await.unwrap();
    condition(&client, IDLE).await;
    nothing_left(&lab);
    want(&client, json!({ "stage": "Prep" })).await.unwrap();
    condition(&client, prepared).await;
    want(&client, json!({ "stage": "Upgrade" })).await.unwrap();
    assert_eq!(daemon.end(), Some(133));
    boot.shutdown();

    let second = lab.boot();
    assert!(is_in(&second, NAME));
    let new = Bench::private(Gates::Default);
    let client = cluster(&new, "a").await;
    let daemon = Daemon::start(&new, &second, &["--lifecycle"]);
    let ibu = condition(&client, ["UpgradeInProgress", "True", "InProgress", "In progress"]).await;
    assert_eq!((&ibu["spec"]["stage"], &ibu["spec"]["seedImageRef"]), (&json!("Upgrade"), &seed));
    assert_eq!(ibu["status"]["validNextStages"], json!(["Rollback"]));
    assert_eq!(stateroot(&second, &TRIAL).code, 0);
    let upgraded = ["UpgradeCompleted", "True", "Completed", "Upgrade completed"];
    condition(&client, upgraded).await;
    want(&client, json!({ "stage": "Rollback" })).await.unwrap();
    assert_eq!(daemon.end(), Some(133));
    second.shutdown();

    // The old cluster's object still says `Upgrade`: it is made again.
    let third = lab.boot();
    assert!(is_in(&third, "sandbox"));
    assert_eq!(stateroot(&third, &TRIAL).code, 0);
    let client = old.client("test-again").await;
    let _daemon = Daemon::start(&old, &third, &["--lifecycle"]);
    let ibu = condition(&client, ["RollbackCompleted", "True", "Completed", "Rollback completed"]).await;
    assert_eq!(
        (&ibu["spec"]["stage"], &ibu["status"]["validNextStages"]),
        (&json!("Rollback"), &json!(["Idle"]))
    );
    want(&client, json!({ "stage": "Idle" })).await.unwrap();
    condition(&client, IDLE).await;
    nothing_left(&lab);
}

/// Nothing is asked without the flag, and on a cluster of more than one node.
#[tokio::test]
async fn object_is_not_watched_without_flag_or_with_other_nodes() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let bench = Bench::private(Gates::Default);
    let client = cluster(&bench, "a").await;
    let seed = json!({ "apiVersion": "lca.openshift.io/v1", "kind": "SeedGenerator",
        "metadata": { "name": "seedimage" }, "spec": { "seedImage": "registry.test/seed:1" } });
    let seeds = of_kind(&client, "SeedGenerator");
    seeds.create(&PostParams::default(), &serde_json::from_value(seed).unwrap()).await.unwrap();
    let mark = bench.mark().await;
    for (flags, asks) in [(&[][..], "watch="), (&["--lifecycle"], "limit=2")] {
        let _daemon = Daemon::start(&bench, &boot, flags);
        let asked = async {
            let is = |request: &Request| request.uri.contains("/api/v1/nodes?") && request.uri.contains(asks);
            while !bench.requests_since(mark).await.iter().any(is) {}
        };
        within("the agent asks for nodes", asked).await;
        if flags.is_empty() {
            create_node(&client, "b", &[]).await;
        }
    }
    assert_eq!(about(&bench.requests_since(mark).await), [""; 0]);
}

/// While the API server is away the stage under way goes on, and its end is written when it is back.
#[tokio::test]
async fn stage_goes_on_without_the_api_server() {
    let lab = crate::activation::lab();
    let boot = lab.boot();
    let image = prepared_seed(&lab, false);
    let bench = Bench::private(Gates::Default);
    let client = cluster(&bench, "a").await;
    let daemon = Daemon::start(&bench, &boot, &["--lifecycle"]);
    condition(&client, IDLE).await;
    let seed = json!({ "image": image, "version": "4.17.2" });
    want(&client, json!({ "stage": "Prep", "seedImageRef": seed })).await.unwrap();
    condition(&client, ["PrepInProgress", "True", "InProgress", "In progress"]).await;
    bench.stop();
    // Another process, which never sees the object, goes on from the state.
    drop(daemon);
    let _daemon = Daemon::start(&bench, &boot, &["--lifecycle"]);
    bench.start();
    let client = bench.client("test-back").await;
    served(&client).await;
    condition(&client, ["PrepCompleted", "True", "Completed", "Prep stage completed successfully"]).await;
}
