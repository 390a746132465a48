//! What pinned images cost a node: memory and requests, before its pool names a set and with its image pinned.

use std::path::Path;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::{Bench, create_node, create_object, node_api, object_api, object_until};
use super::{IDLE, REST, config, containerd, cri, mebibytes, own, settle};

/// A container runtime below a host's root.
enum ContainerRuntime {
    Containerd(tokio::process::Child),
    Double(cri::Runtime),
}

impl ContainerRuntime {
    /// Starts the real containerd where there is one; returns an image that it can pull, too.
    async fn start(root: &Path) -> (Self, String) {
        let Some(program) = containerd::program().filter(|_| rustix::process::geteuid().is_root()) else {
            let image = format!("registry.test/a@sha256:{}", "a".repeat(64));
            return (Self::Double(cri::Runtime::listen(root, cri::CONTAINERD)), image);
        };
        let image = containerd::Registry::new().serve().await;
        (Self::Containerd(containerd::containerd(&program, root).await), image)
    }

    fn name(&self) -> String {
        match self {
            Self::Containerd(_) => "a real containerd".to_owned(),
            Self::Double(runtime) => format!("the tests' runtime, {} pulls", runtime.state().pulled.len()),
        }
    }
}

/// What pinned images cost a node: the same agent before its pool names a set, and once the set's image is pinned.
pub(super) async fn pinned(bench: &Bench) {
    const WORKER: &str = "node-role.kubernetes.io/worker";
    let client = bench.client("cluster-bench").await;
    let dir = tempfile::tempdir().unwrap();
    config("rendered-pins-a", "a\n").create(&client).await;
    create_node(&client, "pins-0", &[("desiredConfig", "rendered-pins-a")]).await;
    let pool = json!({ "spec": { "nodeSelector": { "matchLabels": { WORKER: "" } },
        "machineConfigSelector": { "matchLabels": { "role": "worker" } } } });
    create_object(&client, "machineconfigpools", "worker", pool).await.unwrap();
    let agent = settle(bench, &client, dir.path(), ("pins-0", "rendered-pins-a")).await;
    let (runtime, image) = ContainerRuntime::start(dir.path()).await;
    let rest = async || {
        tokio::time::sleep(REST).await;
        let mark = bench.mark().await;
        tokio::time::sleep(IDLE).await;
        (mebibytes(agent.pid(), "VmRSS:"), own(&bench.requests_since(mark).await).len())
    };
    let without = rest().await;
    let mark = bench.mark().await;
    let set = json!({ "spec": { "pinnedImages": [{ "name": image }] } });
    create_object(&client, "pinnedimagesets", "set", set).await.unwrap();
    let named = Patch::Merge(json!({ "spec": { "pinnedImageSets": [{ "name": "set" }] } }));
    object_api(&client, "machineconfigpools").patch("worker", &PatchParams::default(), &named).await.unwrap();
    let asks = Patch::Merge(json!({ "metadata": { "labels": { WORKER: "" },
        "annotations": { "machine-config-agent.io/pinned-image-sets": "1" } } }));
    node_api(&client).patch("pins-0", &PatchParams::default(), &asks).await.unwrap();
    object_until(&object_api(&client, "machineconfignodes"), "pins-0", "pinned", |object| {
        let sets = object.data.pointer("/status/pinnedImageSets").and_then(|value| value.as_array());
        sets.is_some_and(|sets| sets.iter().any(|one| one["currentGeneration"] == 1))
    })
    .await;
    let sent = own(&bench.requests_since(mark).await);
    let watches = sent.iter().filter(|line| line.starts_with("watch")).count();
    let with = rest().await;
    println!("\n| pinned images, by {} | without | with |\n|---|---|---|", runtime.name());
    println!("| RSS connected, idle, MiB | {:.1} | {:.1} |", without.0, with.0);
    println!("| peak RSS, MiB | | {:.1} |", mebibytes(agent.pid(), "VmHWM:"));
    println!("| requests in an idle minute | {} | {} |", without.1, with.1);
    println!("| requests to learn, pull and report, of these watches | 0 | {}, {watches} |", sent.len());
    assert!(agent.terminate().await.success());
    if let ContainerRuntime::Containerd(mut child) = runtime {
        child.kill().await.unwrap();
    }
}
