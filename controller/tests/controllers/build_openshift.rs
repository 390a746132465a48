//! The builder `OpenShiftBuild`, with a Build controller of the test: Builds follow their phases, their inputs go with them.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::build::{Builds, spec};
use crate::build_course::{CONTAINERFILE, killed_until, settled};
use crate::build_jobs::{JobController, Plays, digest, this_one};
use crate::cluster::{Bench, Presence, call, changes, key, object_api, within};
use crate::pairs::Pairs;
use crate::process::NAMESPACE;
use crate::rollout::ready_node;

const IMAGE_BUILDER: &str = "machine-config-agent.io/image-builder";
const STARTED: &str = "machine-config-agent.io/started";

/// OpenShift serves Builds from an extension API server; here a definition does.
pub async fn define(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "builds.build.openshift.io" },
        "spec": {
            "group": "build.openshift.io", "scope": "Namespaced",
            "names": { "plural": "builds", "singular": "build", "kind": "Build", "listKind": "BuildList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = call(client, "POST", path, Some(("application/json", definition))).await;
    assert_eq!(code, 200, "{answer}");
    within("Builds are served", async {
        while api(client).list(&ListParams::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn api(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("build.openshift.io", "v1", "Build"));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// `MachineOSBuild`s with the UIDs of their Builds.
type Started = Arc<Mutex<Vec<(String, String)>>>;

/// OpenShift's Build controller, and the garbage collector of Builds and their inputs.
pub struct BuildController {
    plays: watch::Sender<Plays>,
    started: Started,
    client: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl BuildController {
    pub async fn start(bench: &Bench, plays: Plays) -> Self {
        let client = bench.client("build-controller").await;
        let plays = watch::channel(plays).0;
        let started = Started::default();
        let tasks = vec![
            tokio::spawn(follow(client.clone(), plays.subscribe(), Arc::clone(&started))),
            tokio::spawn(collect_builds(client.clone())),
        ];
        Self { plays, started, client, tasks }
    }

    /// The builds whose Builds ran, one entry for each Build.
    pub fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().iter().map(|(build, _)| build.clone()).collect()
    }

    fn play(&self, plays: Plays) {
        self.plays.send_replace(plays);
    }

    /// The Builds, by name.
    async fn builds(&self) -> Vec<DynamicObject> {
        api(&self.client).list(&ListParams::default()).await.unwrap().items
    }

    pub async fn until_gone(&self, jobs: &JobController) {
        within("Builds and their inputs are gone", async {
            while !self.builds().await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        jobs.until_gone().await;
    }
}

impl Drop for BuildController {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn follow(client: Client, mut plays: watch::Receiver<Plays>, started: Started) {
    let mut known = std::collections::BTreeMap::new();
    let mut changes = pin!(changes(&api(&client), &ListParams::default()).await.unwrap());
    loop {
        tokio::select! {
            change = changes.next() => match change.unwrap() {
                (build, Presence::There) => { known.insert(build.name_any(), build); }
                (build, Presence::Gone) => {
                    known.remove(&build.name_any());
                    remove_inputs(&client, &build.uid().unwrap()).await;
                }
            },
            changed = plays.changed() => if changed.is_err() { return },
        }
        let play = *plays.borrow_and_update();
        for build in known.values() {
            go_on(&client, build, play, &started).await;
        }
    }
}

/// The next phase. A pod of OpenShift waits for each Secret that it mounts.
async fn go_on(client: &Client, build: &DynamicObject, plays: Plays, started: &Started) {
    let name = build.labels()[&key("machine-os-build")].clone();
    let phase = build.data["status"]["phase"].as_str().unwrap_or_default();
    let status = match (phase, plays) {
        ("", _) => json!({ "phase": "New" }),
        ("New" | "Pending", Plays::Running | Plays::Well | Plays::Badly)
            if has_inputs(client, build).await =>
        {
            json!({ "phase": "Running" })
        }
        ("New", _) => json!({ "phase": "Pending", "reason": "waits for its pod" }),
        ("Running", Plays::Well) => {
            json!({ "phase": "Complete", "output": { "to": { "imageDigest": digest(&name) } } })
        }
        ("Running", Plays::Badly) => json!({
            "phase": "Failed", "reason": "DockerBuildFailed", "message": "Docker build strategy has failed.",
            "logSnippet": "STEP 9: RUN false\nerror: exit status 1",
        }),
        _ => return,
    };
    if status["phase"] == "Running" {
        let (mut started, uid) = (started.lock().unwrap(), build.uid().unwrap());
        // A status that could not be written is written again: that is no other start.
        if !started.iter().any(|(_, known)| *known == uid) {
            started.push((name, uid));
        }
    }
    let patch = json!({ "metadata": { "uid": build.uid() }, "status": status });
    let patched =
        api(client).patch_status(&build.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    // One that is gone by now.
    if let Err(error) = patched {
        assert!(matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409)), "{error}");
    }
}

async fn has_inputs(client: &Client, build: &DynamicObject) -> bool {
    let spec = &build.data["spec"];
    let files = spec["source"]["secrets"].as_array().unwrap().iter().map(|one| &one["secret"]["name"]);
    let credentials =
        [&spec["strategy"]["dockerStrategy"]["pullSecret"]["name"], &spec["output"]["pushSecret"]["name"]];
    let names: Vec<&Value> = files.chain(credentials).collect();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    for name in names {
        if secrets.get_opt(name.as_str().unwrap()).await.unwrap().is_none() {
            return false;
        }
    }
    // The last change of a Build before it runs: without it no event would follow the Secrets.
    build.annotations().contains_key(STARTED)
}

async fn remove_inputs(client: &Client, owner: &str) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    for secret in secrets.list(&ListParams::default()).await.unwrap().items {
        let owners = secret.owner_references();
        if owners.iter().any(|one| one.uid == owner && one.kind == "Build") {
            drop(secrets.delete(&secret.name_any(), &this_one(&secret)).await);
        }
    }
}

/// Removes the Build of a `MachineOSBuild` that is gone.
async fn collect_builds(client: Client) {
    let os_builds = object_api(&client, "machineosbuilds");
    let mut changes = pin!(changes(&os_builds, &ListParams::default()).await.unwrap());
    while let Some((gone, presence)) = changes.next().await {
        if presence != Presence::Gone {
            continue;
        }
        for build in api(&client).list(&ListParams::default()).await.unwrap().items {
            if build.owner_references().iter().any(|one| Some(&one.uid) == gone.uid().as_ref()) {
                drop(api(&client).delete(&build.name_any(), &this_one(&build)).await);
            }
        }
    }
}

/// Creates the `MachineOSConfig` with the annotation that chooses Builds.
pub async fn os_config(builds: &Builds) {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
        "metadata": { "name": "worker", "annotations": { IMAGE_BUILDER: "OpenShiftBuild" } },
        "spec": spec(CONTAINERFILE, &builds.repository),
    });
    let configs = object_api(&builds.cluster.client, "machineosconfigs");
    configs.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The chain with Builds: without their API the pool reports it; a Build waits for its inputs, a controller that is killed while it runs is
/// replaced by one that publishes its digest, and nothing of it stays.
#[tokio::test]
async fn openshift_build_becomes_image() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    let first = builds.start("a", &[]);
    let jobs = JobController::start(&cluster.bench, Plays::Well).await;
    builds.secret().await;
    os_config(&builds).await;
    let missing = builds.until_condition("True", "BuildPending").await;
    let message = missing["message"].as_str().unwrap();
    assert!(message.contains("builds.build.openshift.io can't be read"), "{message}");
    define(&cluster.client).await;
    let openshift = BuildController::start(&cluster.bench, Plays::Held).await;
    let name = builds.only_build().await;
    builds.until_state(&name, "Prepared").await;
    let [build] = &openshift.builds().await[..] else { panic!("one Build") };
    assert_eq!(build.name_any(), format!("build-{name}"));
    assert_eq!(build.owner_references()[0].kind, "MachineOSBuild");
    let dockerfile = build.data["spec"]["source"]["dockerfile"].as_str().unwrap();
    assert!(dockerfile.contains("AS configs") && dockerfile.contains(CONTAINERFILE), "{dockerfile}");
    openshift.play(Plays::Running);
    builds.until_state(&name, "Building").await;
    first.kill().await;
    cluster.free_lease().await;
    let second = builds.start("b", &[]);
    openshift.play(Plays::Well);
    let (published, image) = builds.until_published("").await;
    assert_eq!((&published, image), (&name, format!("registry.test/os/worker@{}", digest(&name))));
    builds.until_condition("False", "BuildSuccess").await;
    openshift.until_gone(&jobs).await;
    assert_eq!(jobs.started(), Vec::<String>::new(), "no Job");
    let object = serde_json::to_value(builds.builds().get(&name).await.unwrap()).unwrap();
    assert!(object["status"]["builder"].is_null(), "its definition knows Jobs alone: {object}");
    let namespace = &object["metadata"]["annotations"]["machine-config-agent.io/build-namespace"];
    assert_eq!(*namespace, NAMESPACE, "where `status` finds its pod");
    assert!(object["status"]["buildStart"].as_str() < object["status"]["buildEnd"].as_str(), "{object}");
    assert!(second.terminate().await.success());
}

/// A failed Build stays with its inputs, and its last lines are on the pool; a rebuild makes another one; another target deletes the one that
/// runs; all go with their `MachineOSConfig`.
#[tokio::test]
async fn openshift_build_fails_is_rebuilt_and_cancelled() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    define(&cluster.client).await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&cluster.bench, Plays::Held).await;
    let openshift = BuildController::start(&cluster.bench, Plays::Badly).await;
    builds.secret().await;
    os_config(&builds).await;
    let failed = builds.until_condition("True", "BuildFailed").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("RUN false") && message.contains("rebuild="), "{message}");
    let name = builds.only_build().await;
    let uid = |all: &[DynamicObject]| all.iter().map(|build| build.uid().unwrap()).collect::<Vec<_>>();
    let old = uid(&openshift.builds().await);
    assert_eq!((old.len(), jobs.objects().await.len()), (1, 3), "Build and Secrets stay");
    openshift.play(Plays::Running);
    builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
    builds.until_condition("False", "Building").await;
    let rebuilt = openshift.builds().await;
    assert_eq!(rebuilt.len(), 1);
    assert_ne!(uid(&rebuilt), old, "another Build");
    builds.kernel_argument("quiet").await;
    within("the Build that ran is deleted", async {
        while api(&cluster.client).get_opt(&format!("build-{name}")).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    openshift.play(Plays::Well);
    let (published, _) = builds.until_published("").await;
    assert_ne!(published, name);
    openshift.until_gone(&jobs).await;
    openshift.play(Plays::Running);
    builds.kernel_argument("debug").await;
    builds.until_condition("False", "Building").await;
    let configs = object_api(&cluster.client, "machineosconfigs");
    configs.delete("worker", &DeleteParams::default()).await.unwrap();
    openshift.until_gone(&jobs).await;
}

/// Controllers die one after the other, each one write further than the one before it: no Build is made twice, none is forgotten, nothing
/// of one stays, and no node sees a half pair.
#[tokio::test]
async fn openshift_build_recovers_from_kill_before_every_write() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    define(&cluster.client).await;
    let controller = builds.start("first", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    assert!(controller.terminate().await.success());
    let jobs = JobController::start(&cluster.bench, Plays::Held).await;
    let openshift = BuildController::start(&cluster.bench, Plays::Well).await;
    let pairs = Pairs::start(&cluster.bench).await;
    builds.secret().await;
    os_config(&builds).await;
    let mut killed = 0;
    for round in ["build", "rebuild"] {
        if round == "rebuild" {
            builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
        }
        let before = openshift.started().len();
        let gone = || openshift.until_gone(&jobs);
        killed =
            killed_until(&builds, killed, || settled(&builds, before, || openshift.started(), gone())).await;
    }
    let (last, image) = builds.until_published("").await;
    assert_eq!(openshift.started(), [last.clone(), last], "one Build a round");
    assert_eq!(jobs.started(), Vec::<String>::new(), "no Job");
    assert!(killed > 8, "{killed}");
    assert_eq!(pairs.of("n1").await, [(target.clone(), None), (target, Some(image))]);
}

/// A type without a builder is reported, not built by another one.
#[tokio::test]
async fn unknown_builder_is_reported() {
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
        "metadata": { "name": "worker", "annotations": { IMAGE_BUILDER: "kaniko" } },
        "spec": spec(CONTAINERFILE, "registry.test/os/worker"),
    });
    let configs = object_api(&builds.cluster.client, "machineosconfigs");
    configs
        .create(&PostParams::default(), &serde_json::from_value::<DynamicObject>(object).unwrap())
        .await
        .unwrap();
    let missing = builds.until_condition("True", "BuildPending").await;
    let message: &Value = &missing["message"];
    assert!(message.as_str().unwrap().contains("there is no builder \"kaniko\""), "{message}");
    assert_eq!(jobs.objects().await, Vec::<String>::new());
    // The annotation counts for the next build.
    builds
        .patch_os_config(
            json!({ "metadata": { "annotations": { IMAGE_BUILDER: null, key("rebuild"): "" } } }),
        )
        .await;
    let (published, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [published]);
}
