//! A node of a hosted cluster (HyperShift): its config is mounted into the pod of an update, and the Node names it by hash.

use std::fs;
use std::os::unix::fs::symlink;

use crate::cluster::scene::{DRAINED, QUIET, Scene};
use crate::cluster::{Agent, Behaviour, Bench, DrainController, MachineConfigBuilder, annotation, key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const SERVED: &str = "/etc/mcs-machine-config-content.json";
const CURRENT: &str = "/etc/mcd-currentconfig.json";

/// A mounted `ConfigMap`, written as the kubelet writes it: each state is a directory, and one link changes.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new() -> Self {
        let mount = Self(tempfile::tempdir().unwrap());
        for name in ["config", "hash"] {
            symlink(format!("..data/{name}"), mount.0.path().join(name)).unwrap();
        }
        mount
    }

    /// Mounts what a new node would be served with this MachineConfig.
    fn set(&self, hash: &str, config: &Value) {
        let at = |name: &str| self.0.path().join(name);
        let source = format!("data:;base64,{}", STANDARD.encode(config.to_string()));
        let file = json!({ "path": SERVED, "mode": 0o600, "contents": { "source": source } });
        let served = json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [file] } });
        let state = format!("..{hash}");
        fs::create_dir(at(&state)).unwrap();
        fs::write(at(&state).join("config"), STANDARD.encode(served.to_string())).unwrap();
        fs::write(at(&state).join("hash"), hash).unwrap();
        symlink(&state, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    }

    fn agent(&self, scene: &Scene<'_>) -> Agent {
        scene.agent(&["--desired-configmap", self.0.path().to_str().unwrap()])
    }
}

/// A rendered config of the hosted cluster's pool: its object is not in the cluster.
fn rendered(scene: &Scene<'_>, letter: &str) -> Value {
    let file = |directory: &str| format!("{directory}/{}", scene.name);
    let config = MachineConfigBuilder::new(&format!("hosted-{letter}"));
    config.file(&file(QUIET), 0o644, letter).file(&file(DRAINED), 0o644, letter).object()
}

async fn desired(scene: &Scene<'_>, hash: &str) {
    scene.patch(json!({ "metadata": { "annotations": { key("desiredConfig"): hash } } })).await;
}

/// MCD-255: the mounted config counts once it is the one that the Node names. The drain's request holds its hash, and the
/// node is done with it; no MachineConfig is read from the cluster.
#[tokio::test]
async fn mounted_config_is_applied_by_its_hash() {
    let scene = Scene::set(Bench::shared(), "hosted", &[("currentConfig", "1a")]).await;
    scene.write(SERVED, &rendered(&scene, "a").to_string());
    let mount = Mount::new();
    mount.set("1a", &rendered(&scene, "a"));
    let mut drains = DrainController::start(scene.bench, "hosted", Behaviour::Echo).await;
    desired(&scene, "2b").await;
    let mark = scene.bench.mark().await;
    let mut agent = mount.agent(&scene);
    agent.line("what it waits for", |line| line.contains("it is \"1a\", and the Node desires 2b")).await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    mount.set("2b", &rendered(&scene, "b"));
    drains.until("drain-2b").await;
    let done = |node: &k8s_openapi::api::core::v1::Node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some("2b")
    };
    let node = scene.until("Done with 2b", done).await;
    assert_eq!(annotation(&node, "desiredDrain"), Some("uncordon-2b"));
    for directory in [QUIET, DRAINED] {
        assert_eq!(scene.on_disk(directory).as_deref(), Some("b"));
    }
    // MCD would continue from here.
    let current: Value = serde_json::from_str(&fs::read_to_string(scene.path(CURRENT)).unwrap()).unwrap();
    assert_eq!(current["spec"], rendered(&scene, "b")["spec"]);
    assert!(agent.terminate().await.success());
    let read = scene.requests(mark).await;
    assert!(read.iter().all(|request| request.resource != "machineconfigs"), "{read:?}");
}

/// MCD-256: a node that has what it desires is not touched, also when another config is mounted already.
#[tokio::test]
async fn hosted_node_without_update_is_unchanged() {
    let scene = Scene::set(Bench::shared(), "hosted-idle", &[("currentConfig", "1a")]).await;
    scene.write(CURRENT, &rendered(&scene, "a").to_string());
    // What it was served is older.
    scene.write(SERVED, &rendered(&scene, "z").to_string());
    let mount = Mount::new();
    mount.set("1a", &rendered(&scene, "a"));
    desired(&scene, "1a").await;
    let drains = DrainController::start(scene.bench, "hosted-idle", Behaviour::Refuse).await;
    let agent = mount.agent(&scene);
    let done = |node: &k8s_openapi::api::core::v1::Node| annotation(node, "state") == Some("Done");
    scene.until("Done with 1a", done).await;
    assert!(agent.terminate().await.success());
    mount.set("2b", &rendered(&scene, "b"));
    let mark = scene.bench.mark().await;
    let mut agent = mount.agent(&scene);
    agent.line("the idle node", |line| line.ends_with("watching against 1a")).await;
    assert!(agent.terminate().await.success());
    let written = scene.written(mark).await;
    assert!(
        written.iter().all(|patch| patch.get("state").is_none_or(|state| state == "Done")),
        "{written:?}"
    );
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    assert_eq!(drains.requests(), Vec::<String>::new());
}
