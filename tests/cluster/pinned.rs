//! Pinned images from a real API server's PinnedImageSets to a container runtime, and back into the MachineConfigNode.

use crate::cluster::scene::{Scene, condition, status};
use crate::cluster::{Bench, Fault, Gates, Request, create_object, object_api, within};
use crate::cri::{CONTAINERD, CRIO, Runtime, id};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const ASK: &str = "machine-config-agent.io/pinned-image-sets";

fn image(letter: &str) -> String {
    format!("registry.test/{letter}@sha256:{}", letter.repeat(64))
}

fn images(letters: &[&str]) -> Value {
    let images: Vec<Value> = letters.iter().map(|letter| json!({ "name": image(letter) })).collect();
    json!({ "pinnedImages": images })
}

/// A node of the pool `worker`, with a container runtime.
struct Pinning<'b> {
    scene: Scene<'b>,
    runtime: Runtime,
}

impl<'b> Pinning<'b> {
    async fn set(bench: &'b Bench, name: &str, socket: &str) -> Self {
        let scene = Scene::set(bench, name, &[]).await;
        let runtime = Runtime::listen(scene.host.path(), socket);
        scene.patch(json!({ "metadata": { "labels": { "node-role.kubernetes.io/worker": "" } } })).await;
        let spec = json!({
            "nodeSelector": { "matchLabels": { "node-role.kubernetes.io/worker": "" } },
            "machineConfigSelector": { "matchLabels": { "role": "worker" } },
        });
        create_object(&scene.client, "machineconfigpools", "worker", json!({ "spec": spec })).await.unwrap();
        Self { scene, runtime }
    }

    async fn create(&self, name: &str, letters: &[&str]) {
        let spec = json!({ "spec": images(letters) });
        create_object(&self.scene.client, "pinnedimagesets", name, spec).await.unwrap();
    }

    async fn name_in_pool(&self, names: &[&str]) {
        let names: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        let patch = json!({ "spec": { "pinnedImageSets": names } });
        let api = object_api(&self.scene.client, "machineconfigpools");
        api.patch("worker", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Has the node ask.
    async fn ask(&self, value: &str) {
        self.scene.patch(json!({ "metadata": { "annotations": { ASK: value } } })).await;
    }

    async fn pinned(&self, what: &str, sets: Value) -> Value {
        let is = |mcn: &Value| {
            let said = mcn["status"]["pinnedImageSets"].as_array().cloned().unwrap_or_default();
            status(mcn, "PinnedImageSetsProgressing") == "False" && json!(said) == sets
        };
        self.scene.mcn(what, is).await
    }
}

fn set(generation: u64) -> Value {
    json!([{ "name": "set", "desiredGeneration": generation, "currentGeneration": generation }])
}

fn of_pins(requests: &[Request]) -> Vec<&Request> {
    let about = |request: &&Request| {
        ["/pinnedimagesets", "/machineconfigpools"].iter().any(|path| request.uri.contains(path))
    };
    requests.iter().filter(about).collect()
}

/// MCD-243, MCD-244, MCD-245: from a set to the runtime and the MachineConfigNode; a failure is told with its generation, and
/// the last set's end ends the watches.
#[tokio::test]
async fn images_of_pool_are_pinned_and_reported() {
    let bench = Bench::private(Gates::Default);
    let node = Pinning::set(&bench, "pinned", CONTAINERD).await;
    node.create("set", &["a"]).await;
    node.name_in_pool(&["set"]).await;
    let _agent = node.scene.agent(&[]);
    node.scene.updated("a").await;
    node.ask("1").await;
    let mcn = node.pinned("pinned", set(1)).await;
    assert_eq!(status(&mcn, "PinnedImageSetsDegraded"), "False");
    let mut expected = vec![image("a"), id(&image("a"))];
    expected.sort();
    assert_eq!(node.runtime.pinned(), expected);

    node.runtime.state().refuses = Some("it is a test".to_owned());
    let api = object_api(&node.scene.client, "pinnedimagesets");
    let change = Patch::Merge(json!({ "spec": images(&["a", "b"]) }));
    api.patch("set", &PatchParams::default(), &change).await.unwrap();
    let mcn = node.scene.mcn("degraded", |mcn| status(mcn, "PinnedImageSetsDegraded") == "True").await;
    assert_eq!(condition(&mcn, "PinnedImageSetsDegraded")["reason"], "PrefetchFailed");
    let said = &mcn["status"]["pinnedImageSets"][0];
    assert_eq!((&said["currentGeneration"], &said["lastFailedGeneration"]), (&json!(1), &json!(2)));
    let why = said["lastFailedGenerationError"].as_str().unwrap();
    assert!(why.contains(&image("b")) && why.contains("it is a test"), "{why}");
    assert_eq!(status(&mcn, "Updated"), "True");

    node.runtime.state().refuses = None;
    node.pinned("pinned again", set(2)).await;
    assert_eq!(node.runtime.pinned().len(), 4);
    node.name_in_pool(&[]).await;
    node.pinned("unpinned", json!([])).await;
    assert!(node.runtime.pinned().is_empty());
    // Whatever comes now comes without being watched.
    let mark = bench.mark().await;
    api.delete("set", &DeleteParams::default()).await.unwrap();
    node.scene.want("a").await;
    node.scene.updated("a").await;
    assert_eq!(of_pins(&node.scene.requests(mark).await).len(), 0);
}

/// A node that may not ask says so, and asks again by itself: permissions come with no event.
#[tokio::test]
async fn refused_request_for_sets_is_tried_again() {
    let bench = Bench::private(Gates::Default);
    let node = Pinning::set(&bench, "pins-refused", CONTAINERD).await;
    node.create("set", &["a"]).await;
    node.name_in_pool(&["set"]).await;
    let agent = node.scene.agent(&[]);
    node.scene.updated("a").await;
    let path = "/apis/machineconfiguration.openshift.io/v1/pinnedimagesets";
    bench.fault(&Fault::status(403).path(path).count(1));
    node.ask("1").await;
    node.pinned("pinned", set(1)).await;
    let log = agent.lines().join("\n");
    assert!(
        log.contains("PinnedImageSets can't be queried: ") && log.contains("Grant the agent's identity"),
        "{log}"
    );
}

/// A node learns of its first set without a watch: it asks once, when its annotation or its labels change.
#[tokio::test]
async fn node_without_sets_has_no_watch_for_them() {
    let bench = Bench::private(Gates::Default);
    let node = Pinning::set(&bench, "unpinned", CRIO).await;
    let mark = bench.mark().await;
    let agent = node.scene.agent(&[]);
    node.scene.updated("a").await;
    assert_eq!(
        of_pins(&node.scene.requests(mark).await).len(),
        0,
        "no ControllerConfig, no annotation: not asked"
    );
    node.ask("1").await;
    let asked = async {
        loop {
            let requests = node.scene.requests(mark).await;
            if !of_pins(&requests).is_empty() {
                return requests;
            }
        }
    };
    let requests = within("the node asks", asked).await;
    let request = of_pins(&requests)[0];
    assert!(request.verb == "list" && request.uri.contains("limit=1"), "{}", request.uri);
    node.create("set", &["a"]).await;
    node.name_in_pool(&["set"]).await;
    assert_eq!(of_pins(&node.scene.requests(mark).await).len(), 1);
    node.ask("2").await;
    node.pinned("pinned", set(1)).await;
    let text = std::fs::read_to_string(node.scene.path("/etc/crio/crio.conf.d/50-pinned-images")).unwrap();
    assert!(text.contains(&image("a")), "{text}");
    let requests = node.scene.requests(mark).await;
    let verbs: Vec<&str> = of_pins(&requests).iter().map(|request| request.verb.as_str()).collect();
    assert_eq!(verbs.iter().filter(|verb| **verb == "watch").count(), 2, "{verbs:?}");
    assert_eq!(verbs.len(), 1 + 1 + 2 + 2, "{verbs:?}");
    // Another process finds all of it as it is: nothing is pulled again.
    drop(agent);
    let pulled = node.runtime.state().pulled.len();
    let _agent = node.scene.agent(&[]);
    node.ask("3").await;
    node.name_in_pool(&[]).await;
    node.pinned("unpinned", json!([])).await;
    assert_eq!(node.runtime.state().pulled.len(), pulled);
    assert!(!node.scene.path("/etc/crio/crio.conf.d/50-pinned-images").exists());
}
