//! Seeds by the SeedGenerator of a real API server, made by the daemon on a real sysroot; services are those of a double of systemd.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use machine_config_agent::host::Root;
use machine_config_agent::host::watch::Watch;
use serde_json::{Value, json};

use crate::backend_env::{Lab, Machine};
use crate::cluster::{Bench, Gates, Identity, create_object, object_api, object_until, within};
use crate::lifecycle::last;
use crate::lifecycle_cluster::{cluster, of_kind, served};
use crate::registry;
use crate::seed::{SECRET, as_it_was, boot, host, host_of, put, refusing_registry, states};
use crate::seed_cut::{Aside, INACTIVE, LARGE_BYTES, LAYER, Running, bytes_in, node_name};

const BOOTC: &str = "unsupported-experimental.lca.openshift.io/use-bootc";
const NAMESPACE: &str = "openshift-lifecycle-agent";

/// Credentials that a registry refuses.
const HUNTER: &str = "aHVudGVyMjpodW50ZXIy";

/// A host, the cluster of it alone, and the Secret of the push.
pub struct Scene {
    lab: Lab,
    pub boot: Machine,
    pub bench: Bench,
    client: Client,
    node: String,
}

impl Scene {
    pub async fn new(auth: &Value) -> Self {
        let lab = host_of("A");
        let boot = boot(&lab);
        let (bench, node) = (Bench::private(Gates::Default), node_name());
        let client = cluster(&bench, &node).await;
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(NAMESPACE.to_owned());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let scene = Self { lab, boot, bench, client, node };
        scene.secret("seedAuth", auth).await;
        let spec = json!({ "spec": { "clusterID": "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0" } });
        create_object(&scene.client, "clusterversions", "version", spec).await.unwrap();
        scene.changes_version(None).await;
        scene
    }

    /// The cluster's version: at rest, or on its way, with a message.
    pub async fn changes_version(&self, message: Option<&str>) {
        let condition = message.map(|message| {
            json!({ "type": "Progressing", "status": "True", "reason": "x", "message": message,
                "lastTransitionTime": "2026-11-24T09:00:00Z" })
        });
        let status = json!({ "status": {
            "desired": { "version": "4.17.2", "image": "registry.test/release" }, "history": [],
            "observedGeneration": 1, "versionHash": "x", "availableUpdates": [],
            "conditions": Vec::from_iter(condition),
        } });
        let versions = object_api(&self.client, "clusterversions");
        versions.patch_status("version", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The Secret of the push, made again.
    async fn secret(&self, key: &str, auth: &Value) {
        drop(self.secrets().delete("seedgen", &DeleteParams::default()).await);
        let secret = json!({ "metadata": { "name": "seedgen" }, "type": "Opaque",
            "data": { key: STANDARD.encode(auth.to_string()) } });
        let secret = serde_json::from_value(secret).unwrap();
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
    }

    fn start(&self, point: Option<&str>) -> Running {
        self.start_with(point.map(|point| ("MCA_FAIL_POINT", point)))
    }

    /// Starts the daemon with a variable of its environment.
    pub fn start_with(&self, variable: Option<(&str, &str)>) -> Running {
        let kubelet = self.bench.kubeconfig(&Identity::Kubelet(self.node.clone()));
        fs::write(self.boot.run_dir().join("kubeconfig"), fs::read(kubelet).unwrap()).unwrap();
        let words =
            ["bash", "/run/doubles/with", "machine-config-agent", "daemon", "--node-name", &self.node];
        let more = ["--kubeconfig", "/run/kubeconfig", "--os-backend", "none", "--metrics-listen", "off"];
        let rest = ["--reboot-by", "supervisor", "--log-format", "json", "--lifecycle"];
        let mut command = self.boot.command(words.iter().chain(&more).chain(&rest));
        command.envs(variable);
        Running::start(command, "daemon", &self.node)
    }

    fn objects(&self) -> Api<DynamicObject> {
        of_kind(&self.client, "SeedGenerator")
    }

    /// Makes the object, in the place of an earlier one.
    pub async fn create(&self, image: &str, bootc: Option<&str>) {
        drop(self.objects().delete("seedimage", &DeleteParams::default()).await);
        let annotations = bootc.map(|value| json!({ BOOTC: value }));
        let object = json!({ "apiVersion": "lca.openshift.io/v1", "kind": "SeedGenerator",
            "metadata": { "name": "seedimage", "annotations": annotations }, "spec": { "seedImage": image } });
        let object = serde_json::from_value(object).unwrap();
        self.objects().create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn condition(&self, expected: [&str; 4]) -> Value {
        let is = |object: &DynamicObject| last(&object.data["status"], expected);
        object_until(&self.objects(), "seedimage", &expected.join(" "), is).await.data
    }

    pub async fn failed(&self, why: &str) {
        let status = self.condition(["SeedGenInProgress", "False", "Failed", why]).await;
        let completed = ["SeedGenCompleted", "False", "Failed", "Seed generation failed: "];
        assert!(last(&status["status"], completed), "{status:#}");
        as_it_was(&self.lab, &self.boot, why);
        self.shows_no_secret();
    }

    /// Nothing that the agent keeps on the disk holds the credentials.
    fn shows_no_secret(&self) {
        let state = host(&self.lab, "var/lib/machine-config-agent");
        for entry in fs::read_dir(state).unwrap() {
            let text = fs::read(entry.unwrap().path()).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(HUNTER));
        }
        assert!(!self.boot.run_dir().join("machine-config-agent-seed-auth.json").exists());
    }

    /// Waits until a file of the agent's state has these words; an absent one has none.
    async fn state(&self, name: &str, words: Option<&str>) {
        let path = host(&self.lab, "var/lib/machine-config-agent");
        let mut watch = Watch::new(&Root::open(&path).unwrap(), [&*format!("/{name}")], []).unwrap();
        let is = || match (fs::read_to_string(path.join(name)), words) {
            (Ok(text), Some(words)) => text.contains(words),
            (found, words) => found.is_err() && words.is_none(),
        };
        while !is() {
            within(name, watch.changed()).await.unwrap();
        }
    }

    /// Waits until services rest, and the archive grows.
    async fn at_rest(&self) {
        bytes_in(&self.lab, LAYER).await;
        assert_eq!(states(&self.boot), INACTIVE.map(str::to_owned));
    }

    fn large(&self, bytes: u64) -> Aside {
        Aside::sparse(host(&self.lab, "var/lib/large"), bytes)
    }
}

pub fn refused_credentials() -> Value {
    json!({ "auths": { "127.0.0.1": { "auth": HUNTER } } })
}

/// A registry that refuses every image, and the host that trusts it.
pub fn refusing(scene: &Scene) -> String {
    let address = refusing_registry("401 Unauthorized");
    let trusted = format!("[[registry]]\nlocation = \"{address}\"\ninsecure = true\n");
    put(&scene.lab, "etc/containers/registries.conf", &trusted);
    format!("{address}/seed:1")
}

/// LCA-015, LCA-020: an object becomes a seed at the registry, by the Secret's credentials, also where the API server rests
/// meanwhile. Pull secret, Secret and object stay.
#[tokio::test]
async fn seed_of_object_is_at_the_registry() {
    if !registry::is_here() {
        crate::ran::not_run("seed_of_object_is_at_the_registry", "docker-registry");
        return;
    }
    let server = registry::Registry::start(true);
    let login = format!("{}:{}", registry::USER, registry::PASSWORD);
    let login = STANDARD.encode(login);
    let auth = json!({ "auths": { (&*server.address): { "auth": login } } });
    let mut scene = Scene::new(&auth).await;
    let trusted = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", server.address);
    put(&scene.lab, "etc/containers/registries.conf", &trusted);
    let pull_secret = host(&scene.lab, "var/lib/kubelet/config.json");
    let before = (fs::read(&pull_secret).unwrap(), scene.secrets().get("seedgen").await.unwrap());
    let _daemon = scene.start(None);
    for (form, bootc) in [("classic", None), ("bootc", Some("Use"))] {
        let large = scene.large(LARGE_BYTES / 28);
        let image = format!("{}/seeds/{form}:1", server.address);
        scene.create(&image, bootc).await;
        scene.at_rest().await;
        scene.bench.stop();
        scene.state("seed-generation.json", Some("\"completed\"")).await;
        scene.bench.start();
        scene.client = scene.bench.client("test-back").await;
        served(&scene.client).await;
        drop(large);
        let done = ["SeedGenCompleted", "True", "Completed", "Seed Generation completed"];
        let object = scene.condition(done).await;
        assert!(last(&object["status"], ["SeedGenInProgress", "False", "Completed", done[3]]), "{object:#}");
        assert_eq!(object["status"]["observedGeneration"], 1);
        as_it_was(&scene.lab, &scene.boot, form);
        scene.shows_no_secret();
        // The host's own pull secret reaches no registry of this test: the labels are read with the one of the push.
        put(&scene.lab, "etc/push.json", &auth.to_string());
        let inspect = ["skopeo", "inspect", "--config", "--authfile", "/etc/push.json"];
        let shown =
            scene.boot.command(inspect.iter().chain(&[&*format!("docker://{image}")])).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
        let labels = &shown["config"]["Labels"];
        assert_eq!(labels["com.openshift.lifecycle-agent.seed_format_version"], "4", "{shown:#}");
        assert_eq!(labels["com.openshift.lifecycle-agent.seed_use_bootc"].is_string(), bootc.is_some());
        let info = labels["com.openshift.lifecycle-agent.seed_cluster_info"].as_str().unwrap();
        assert!(info.contains("4.17.2") && !shown.to_string().contains(SECRET), "{shown:#}");
        fs::remove_file(host(&scene.lab, "etc/push.json")).unwrap();
    }
    assert_eq!((fs::read(&pull_secret).unwrap(), scene.secrets().get("seedgen").await.unwrap()), before);
}

/// LCA-015, LCA-020: what is refused has failed, changes nothing, and is over until the object is made again.
#[tokio::test]
async fn refused_seed_leaves_the_host_as_it_was() {
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let _daemon = scene.start(None);
    for value in ["use", "DontUse"] {
        scene.create(&image, Some(value)).await;
        scene.failed("the only valid value is Use").await;
    }
    scene.create("docker://registry.test/seed", None).await;
    scene.failed("is not the name of an image").await;
    scene.create(&image, None).await;
    scene.failed(&image).await;
    assert_eq!(states(&scene.boot), ["active", "active"]);
    for key in ["other", "seedAuth"] {
        scene.secret(key, &json!("hunter2")).await;
        scene.create(&image, None).await;
        scene.failed("seedAuth").await;
    }
    scene.secrets().delete("seedgen", &DeleteParams::default()).await.unwrap();
    scene.create(&image, None).await;
    scene.failed("could not access secret seedgen in openshift-lifecycle-agent").await;
    let emptied = "{\"auths\":{\"registry.connect.redhat.com\":{\"username\":\"empty\",\"password\":\"empty\",\
        \"auth\":\"ZW1wdHk6ZW1wdHk=\",\"email\":\"\"}}}";
    put(&scene.lab, "var/lib/kubelet/config.json", emptied);
    scene.create(&image, None).await;
    scene.failed("previously sanitized without proper restore").await;
}

/// Each object that waits says for what, also when the one before it waited for the same, and says it once.
#[tokio::test]
async fn cause_of_a_wait_is_logged_once_for_each_object() {
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let daemon = scene.start(None);
    let cause = "the cluster version is changing: Working";
    for _ in 0..2 {
        scene.changes_version(Some("Working")).await;
        scene.create(&image, None).await;
        scene.condition(["SeedGenInProgress", "True", "InProgress", cause]).await;
        scene.changes_version(None).await;
        scene.failed(&image).await;
    }
    let log = daemon.stop_and_read();
    assert_eq!(log.matches(&format!("seedimage waits: {cause}")).count(), 2, "{log}");
}

/// Killed wherever it could stop, another process restores the host, and then says so; what was not begun goes on.
#[tokio::test]
async fn seed_cut_short_is_restored_and_has_failed() {
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let cut = "it was interrupted; the host is restored";
    for (point, outcome) in [("generation-recorded", &*image), ("seed-recorded", cut), ("seed-ran", cut)] {
        let daemon = scene.start(Some(&format!("kill:{point}")));
        scene.create(&image, None).await;
        assert_eq!(daemon.end(), Some(128 + 9), "{point}");
        let daemon = scene.start(None);
        scene.failed(outcome).await;
        daemon.stop();
    }
    // In the middle of the archive.
    let large = scene.large(LARGE_BYTES);
    let daemon = scene.start(None);
    scene.create(&image, None).await;
    scene.at_rest().await;
    daemon.kill();
    assert_eq!(states(&scene.boot), INACTIVE.map(str::to_owned));
    let daemon = scene.start(None);
    scene.failed(cut).await;
    // One that is stopped restores the host itself: nothing starts it again.
    scene.create(&image, None).await;
    scene.at_rest().await;
    daemon.stop();
    as_it_was(&scene.lab, &scene.boot, "after a stop");
    let daemon = scene.start(None);
    scene.failed(cut).await;
    daemon.stop();
    drop(large);
}

/// An object that is deleted in the middle ends its seed; another one begins another.
#[tokio::test]
async fn deleted_object_ends_its_seed() {
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let large = scene.large(LARGE_BYTES);
    let _daemon = scene.start(None);
    scene.create(&image, None).await;
    scene.at_rest().await;
    scene.objects().delete("seedimage", &DeleteParams::default()).await.unwrap();
    scene.state("seed-generation.json", None).await;
    as_it_was(&scene.lab, &scene.boot, "after the deletion");
    scene.shows_no_secret();
    drop(large);
    scene.create(&image, None).await;
    scene.failed(&image).await;
}

/// A seed of another agent is left alone: one that is over stays as it is, one that is under way has failed.
#[tokio::test]
async fn seed_of_another_agent_is_not_taken_over() {
    let scene = Scene::new(&refused_credentials()).await;
    let image = refusing(&scene);
    let status = |kind: &str, status: &str, reason: &str| {
        json!({ "status": { "conditions": [{ "type": kind, "status": status, "reason": reason,
            "message": "Of another agent", "lastTransitionTime": "2026-11-24T09:00:00Z" }] } })
    };
    let write = async |status: Value| {
        scene.create(&image, None).await;
        let params = PatchParams::default();
        scene.objects().patch_status("seedimage", &params, &Patch::Merge(status)).await.unwrap()
    };
    let over = write(status("SeedGenCompleted", "True", "Completed")).await;
    let daemon = scene.start(None);
    let mark = scene.bench.mark().await;
    // Another object of lifecycle-agent is made, so the agent follows both.
    let upgrades = of_kind(&scene.client, "ImageBasedUpgrade");
    object_until(&upgrades, "upgrade", "it is idle", |ibu| ibu.data["status"].is_object()).await;
    let wrote = scene.bench.requests_since(mark).await;
    assert!(!wrote.iter().any(|request| request.uri.contains("seedgenerators/seedimage/status")));
    assert_eq!(
        scene.objects().get("seedimage").await.unwrap().metadata.resource_version,
        over.metadata.resource_version
    );
    daemon.stop();
    write(status("SeedGenInProgress", "True", "InProgress")).await;
    let daemon = scene.start(None);
    scene.failed("another agent has begun this seed").await;
    daemon.stop();
}
