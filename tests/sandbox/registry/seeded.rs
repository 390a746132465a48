//! A seed from end to end: the controller's objects, and a node that was installed with the image.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use machine_config_agent::sandbox::{AGENT, CONTROL};
use serde_json::{Value, json};

use super::server::{self, Registry};
use super::{node, pushed};
use crate::cluster::{
    Agent, Bench, Gates, Identity, MachineConfigBuilder, annotation, changes, create_node, create_object,
    key, node_api, node_until, object_api, object_until,
};
use crate::ran;
use crate::sandbox_node::Played;

const NAMESPACE: &str = "openshift-machine-config-operator";
const LEASE: &str = "machine-config-agent-controller";
const REBOOT_REQUIRED: i32 = 133;

/// Starts the controller that `./test` built beside the agent.
fn controller(bench: &Bench, name: &str, controllers: &str) -> Agent {
    let program =
        Path::new(env!("CARGO_BIN_EXE_machine-config-agent")).with_file_name("machine-config-controller");
    assert!(program.exists(), "{} is missing: cargo build --workspace --bins makes it", program.display());
    let mut command = Command::new(program);
    command.args(["run", "--name", name, "--metrics-listen", "127.0.0.1:0", "--lease-duration", "60"]);
    command.args(["--controllers", controllers, "--kubeconfig"]);
    command.arg(bench.kubeconfig(&Identity::Admin("controller".to_owned())));
    Agent::run(name, command)
}

/// A Lease without a holder, a pool, its config and the `MachineOSConfig` with the seed.
async fn create_pool(client: &Client, seed: &str) {
    let lease = json!({ "metadata": { "name": LEASE }, "spec": { "leaseDurationSeconds": 1 } });
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
        "metadata": { "name": "worker", "annotations": { key("pre-built-image"): seed } },
        "spec": {
            "machineConfigPool": { "name": "worker" }, "imageBuilder": { "imageBuilderType": "Job" },
            "renderedImagePushSecret": { "name": "push" }, "renderedImagePushSpec": "registry.test/os:1",
        },
    });
    let os_configs = object_api(client, "machineosconfigs");
    os_configs.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let mut config = MachineConfigBuilder::new("50-a").file("/etc/app.conf", 0o644, "a").object();
    config["metadata"]["labels"] = json!({ key("role"): "worker" });
    config["metadata"]["annotations"] = Value::Null;
    let configs = object_api(client, "machineconfigs");
    configs.create(&PostParams::default(), &serde_json::from_value(config).unwrap()).await.unwrap();
    let pool = json!({
        "machineConfigSelector": { "matchLabels": { key("role"): "worker" } },
        "nodeSelector": { "matchLabels": { "node-role.kubernetes.io/worker": "" } },
    });
    create_object(client, "machineconfigpools", "worker", json!({ "spec": pool })).await.unwrap();
}

fn read(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap()
}

async fn until(
    client: &Client,
    plural: &str,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    read(&object_until(&object_api(client, plural), name, what, |object| holds(&read(object))).await)
}

/// Installs the node as Ignition and the agent's first boot do: files, annotations, and the image of the rendered config.
async fn install(client: &Client, played: &mut Played, rendered: &str) {
    let mut encapsulated = read(&object_api(client, "machineconfigs").get(rendered).await.unwrap());
    encapsulated["spec"]["config"] = json!({ "ignition": { "version": "3.4.0" } });
    played.write("/etc/ignition-machine-config-encapsulated.json", &encapsulated.to_string());
    played.write("/etc/app.conf", "a");
    let annotations =
        json!({ key("currentConfig"): rendered, key("desiredConfig"): rendered, key("state"): "Done" });
    std::fs::create_dir_all(played.path("/etc/machine-config-daemon")).unwrap();
    played.write("/etc/machine-config-daemon/node-annotations.json", &annotations.to_string());
    let words = ["firstboot", "--os-backend", "ostree", "--reboot-by", "supervisor"];
    let ended = played.verb(&words);
    assert_eq!(ended.code, REBOOT_REQUIRED, "{}", ended.text);
    played.reboot();
    let ended = played.verb(&words);
    assert_eq!((ended.code, played.boots), (0, 2), "{}", ended.text);
}

/// Starts the agent inside the node.
fn daemon(bench: &Bench, played: &Played) -> Agent {
    let kubeconfig = bench.kubeconfig(&Identity::Admin("agent".to_owned()));
    std::fs::copy(kubeconfig, played.world.control().join("kubeconfig")).unwrap();
    let kubeconfig = format!("{CONTROL}/kubeconfig");
    let words = ["daemon", "--node-name", "n1", "--os-backend", "ostree", "--reboot-by", "supervisor"];
    let words =
        [&[AGENT], &words[..], &["--metrics-listen", "127.0.0.1:0", "--kubeconfig", &kubeconfig]].concat();
    Agent::run("n1", played.booted.as_ref().unwrap().command(words))
}

/// Notes each state of the node in which it is out of service, or asks to be.
async fn note_drains(client: Client, noted: Arc<Mutex<Vec<String>>>) {
    let mut changes = pin!(changes(&node_api(&client), &ListParams::default()).await.unwrap());
    while let Some((node, _)) = changes.next().await {
        let asked = annotation(&node, "desiredDrain").unwrap_or_default();
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        if is_cordoned || asked.starts_with("drain-") {
            noted.lock().unwrap().push(format!("{asked} {is_cordoned}"));
        }
    }
}

/// SEED-005, SEED-006, SEED-007: a build that has succeeded without a Job, and the image on the `MachineOSConfig`.
async fn is_seeded(client: &Client, seed: &str) {
    let os_config = until(client, "machineosconfigs", "worker", "seeded", |config| {
        let named = config["metadata"]["annotations"][key("current-machine-os-build")].is_string();
        named && config["status"]["currentImagePullSpec"] == seed
    })
    .await;
    let is = |object: &Value, kind: &str| -> Value {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == kind && one["status"] == "True").unwrap_or_default()
    };
    assert!(is(&os_config, "Seeded").is_object(), "{os_config}");
    assert_eq!(os_config["metadata"]["annotations"][key("pre-built-image")], seed, "it stays");
    let name = os_config["metadata"]["annotations"][key("current-machine-os-build")].as_str().unwrap();
    let build = read(&object_api(client, "machineosbuilds").get(name).await.unwrap());
    assert_eq!(build["metadata"]["labels"][key("pre-built-image")], "true");
    assert_eq!(is(&build, "Succeeded")["reason"], "PreBuiltImageSeeded", "{build}");
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(jobs.list(&ListParams::default()).await.unwrap().items.is_empty(), "no Job");
}

/// SEED-005 to SEED-007, SEED-009 to SEED-012: a node that was installed with the seed gets the pair of config and image and is Done, without a
/// drain and without a reboot; the seed's component goes with its `MachineOSConfig`.
#[tokio::test]
async fn node_installed_with_seed_adopts_it() {
    if !server::is_here() {
        ran::not_run("node_installed_with_seed_adopts_it", "docker-registry");
        return;
    }
    let registry = Registry::start(false);
    let mut played = node(&registry);
    let seed = pushed(&played, &registry, "v2", "v2").to_string();
    let bench = Bench::private(Gates::Default);
    let client = bench.client("test").await;
    create_pool(&client, &seed).await;
    let render = controller(&bench, "first", "render");
    let pool = until(&client, "machineconfigpools", "worker", "a target", |pool| {
        pool["spec"]["configuration"]["name"].as_str().is_some_and(|name| !name.is_empty())
    })
    .await;
    let rendered = pool["spec"]["configuration"]["name"].as_str().unwrap().to_owned();
    // SEED-010: no node is there yet, and nothing was looked up by an empty name.
    assert!(pool["status"]["configuration"]["name"].as_str().unwrap_or_default().is_empty());
    install(&client, &mut played, &rendered).await;
    create_node(&client, "n1", &[]).await;
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    node_api(&client).patch_status("n1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let agent = daemon(&bench, &played);
    let is_done = |node: &Node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(&rendered)
    };
    let first = node_until(&client, "n1", "Done", is_done).await;
    assert_eq!(annotation(&first, "desiredImage"), None, "not seeded yet");

    let noted = Arc::<Mutex<Vec<String>>>::default();
    let watcher = tokio::spawn(note_drains(bench.client("watcher").await, Arc::clone(&noted)));
    assert!(render.terminate().await.success(), "{:#?}", render.lines());
    let all = controller(&bench, "second", "render,node,drain,build");
    is_seeded(&client, &seed).await;
    let adopted = |node: &Node| {
        is_done(node)
            && annotation(node, "desiredImage") == Some(&seed)
            && annotation(node, "currentImage") == Some(&seed)
    };
    node_until(&client, "n1", "adopted", adopted).await;
    until(&client, "machineconfigpools", "worker", "updated", |pool| {
        let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Updated" && one["status"] == "True")
            && pool["status"]["configuration"]["name"] == rendered.as_str()
    })
    .await;
    watcher.abort();
    assert_eq!(*noted.lock().unwrap(), Vec::<String>::new(), "no drain");
    // One that wanted a reboot would have ended.
    assert!(agent.terminate().await.success(), "{:#?}", agent.lines());
    assert_eq!(played.read("/usr/share/v2").unwrap(), "v2");
    assert!(all.terminate().await.success(), "{:#?}", all.lines());
}
