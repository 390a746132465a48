//! Start, end and repetition of a build, on a real API server; and its state after a controller or the server ended.

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::build::{Builds, spec};
use crate::build_jobs::{JobController, Plays, digest};
use crate::build_registry::FakeRegistry;
use crate::cluster::{Fault, Request, annotation, key, node_api, node_until, object_api, own_only, within};
use crate::pairs::Pairs;
use crate::rollout::ready_node;

pub const CONTAINERFILE: &str = "FROM configs AS final\nRUN true";

/// OCL-024 and OCL-025: four pods fail, all stays for a person to look at, nodes keep what they have; `rebuild` makes it again.
#[tokio::test]
async fn failed_build_is_reported_and_rebuilt() {
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let target = builds.cluster.until_target("worker", "").await;
    ready_node(&builds.cluster.client, "n1", &target).await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Badly).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let failed = builds.until_condition("True", "BuildFailed").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("no such command 3") && message.contains("rebuild="), "{message}");
    let name = builds.only_build().await;
    builds.until_state(&name, "Failed").await;
    let objects = jobs.objects().await;
    assert_eq!(objects.len(), 1 + 4 + 1 + 3, "Job, pods, ConfigMap, Secrets: {objects:?}");
    let node = node_api(&builds.cluster.client).get("n1").await.unwrap();
    assert_eq!(annotation(&node, "desiredImage"), None);
    jobs.play(Plays::Well);
    builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
    let (published, _) = builds.until_published("").await;
    assert_eq!(published, name);
    builds
        .until_os_config("the request is gone", |config| {
            config["metadata"]["annotations"].get(key("rebuild")).is_none()
        })
        .await;
    builds.until_condition("False", "BuildSuccess").await;
    assert_eq!(jobs.started(), [name.clone(), name], "once more, once");
}

/// What a failed build left for a person to look at goes when a later build has succeeded; the failed build keeps its message.
#[tokio::test]
async fn job_of_failed_build_goes_once_later_one_succeeded() {
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    builds.cluster.until_target("worker", "").await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Badly).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    builds.until_condition("True", "BuildFailed").await;
    let failed = builds.only_build().await;
    builds.until_state(&failed, "Failed").await;
    jobs.play(Plays::Well);
    builds.kernel_argument("quiet").await;
    let (published, _) = builds.until_published("").await;
    jobs.until_gone().await;
    let failed = builds.until_state(&failed, "Failed").await;
    assert!(failed.to_string().contains("no such command 3"), "{failed}");
    assert_ne!(failed["metadata"]["name"], published.as_str());
    builds.until_condition("False", "BuildSuccess").await;
}

/// Somebody writes to a build just before its status is: the status is decided again, and reported once.
#[tokio::test]
async fn status_is_reported_once_it_is_written() {
    if !own_only("build_course::status_is_reported_once_it_is_written") {
        return;
    }
    let builds = Builds::new().await;
    let bench = &builds.cluster.bench;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(bench, Plays::Held).await;
    let mark = bench.mark().await;
    let path = "/apis/machineconfiguration.openshift.io/v1/machineosbuilds/";
    bench.fault(&Fault::held().method("GET").path(path).agent("machine-config-controller"));
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let is_read = |request: &Request| {
        request.user == "controller" && request.line().starts_with("get machineosbuilds worker-")
    };
    let read = bench.audit().since(mark, "a build is read before its status is written", is_read).await;
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "test/note": "" } } }));
    builds.builds().patch(&read.name, &PatchParams::default(), &note).await.unwrap();
    bench.clear_faults();
    builds.until_state(&read.name, "Prepared").await;
    jobs.play(Plays::Well);
    builds.until_published("").await;
    let events: Api<Event> = Api::namespaced(builds.cluster.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let prepared = events.iter().filter(|event| event.reason.as_deref() == Some("BuildPreparing"));
    assert_eq!(prepared.map(|event| event.count).collect::<Vec<_>>(), [Some(1)], "{events:#?}");
}

/// OCL-023: text that can't be built is refused with its line before any object is there, and a request for a rebuild with it; the
/// corrected one is built. The image of the text before stays.
#[tokio::test]
async fn invalid_containerfile_is_refused_before_any_object() {
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config("FROM configs AS final\nRUNN true").await;
    let failed = builds.until_condition("True", "BuildFailed").await;
    assert!(failed["message"].as_str().unwrap().contains("line 2"), "{failed}");
    assert_eq!(names(&builds).await, Vec::<String>::new());
    assert_eq!(jobs.objects().await, Vec::<String>::new());
    let text = |text: &str| json!({ "spec": spec(text, "registry.test/os/worker") });
    builds.patch_os_config(text(CONTAINERFILE)).await;
    let (first, _) = builds.until_published("").await;
    builds.until_condition("False", "BuildSuccess").await;
    builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } }, "spec": text("FROM configs\n\nRUNN true")["spec"] })).await;
    let failed = builds.until_condition("True", "BuildFailed").await;
    assert!(failed["message"].as_str().unwrap().contains("line 3"), "{failed}");
    assert_eq!(names(&builds).await, [first.as_str()]);
    builds.patch_os_config(text("FROM configs AS final\nRUN false || true")).await;
    let (second, _) = builds.until_published(&first).await;
    builds.until_condition("False", "BuildSuccess").await;
    assert_eq!(jobs.started(), [first, second]);
}

/// Names of the builds.
async fn names(builds: &Builds) -> Vec<String> {
    builds
        .builds()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect()
}

/// One build of a `MachineOSConfig` runs at a time: another target cancels the one before it.
#[tokio::test]
async fn changed_target_cancels_running_build() {
    let builds = Builds::new().await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    builds.until_condition("False", "Building").await;
    let first = builds.only_build().await;
    builds.kernel_argument("quiet").await;
    within("the first build is deleted", async {
        while builds.builds().get_opt(&first).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    jobs.play(Plays::Well);
    let (second, _) = builds.until_published("").await;
    assert_ne!(first, second);
    assert_eq!(jobs.started(), [first, second]);
    builds.until_condition("False", "BuildSuccess").await;
}

/// A pool that is degraded gets no new build, and reports it; once it is not, it is built.
#[tokio::test]
async fn degraded_pool_is_built_once_it_is_mended() {
    let builds = Builds::new().await;
    let controller = builds.start("a", &[]);
    builds.cluster.until_target("worker", "").await;
    assert!(controller.terminate().await.success());
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    degrade(&builds, "True").await;
    builds.os_config(CONTAINERFILE).await;
    // Two watches have no order: this one begins with both.
    let _controller = builds.start("b", &[]);
    let pending = builds.until_condition("False", "BuildPending").await;
    assert!(pending["message"].as_str().unwrap().contains("PinnedImageSetsDegraded"), "{pending}");
    assert!(builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty());
    degrade(&builds, "False").await;
    let (published, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [published]);
}

/// Writes a condition of another controller, beside those that are there.
async fn degrade(builds: &Builds, status: &str) {
    let api = object_api(&builds.cluster.client, "machineconfigpools");
    let writing = async {
        loop {
            let pool = api.get("worker").await.unwrap();
            let mut conditions = pool.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|one| one["type"] != "PinnedImageSetsDegraded");
            let now = "2026-01-01T00:00:00Z";
            conditions.push(json!({ "type": "PinnedImageSetsDegraded", "status": status, "reason": "", "message": "", "lastTransitionTime": now }));
            let body = json!({
                "metadata": { "resourceVersion": pool.resource_version() },
                "status": { "conditions": conditions },
            });
            // The other controllers write, too.
            match api.patch_status("worker", &PatchParams::default(), &Patch::Merge(body)).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    within("the condition is written", writing).await;
}

/// A change of files is another build with the same image, if the registry still has it; else it is built. OCL-026: with the
/// `MachineOSConfig` go its builds, and the images that no node has.
#[tokio::test]
async fn image_is_reused_and_removed_with_its_builds() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let client = &builds.cluster.client;
    let _controller = builds.start("a", &[]);
    let target = builds.cluster.until_target("worker", "").await;
    ready_node(client, "n1", &target).await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (first, image) = builds.until_published("").await;
    builds.config("2").await;
    let (second, reused) = builds.until_published(&first).await;
    assert_eq!((jobs.started(), &reused), (vec![first.clone()], &image), "{second} has the image of {first}");
    // The registry has lost it: a build.
    registry.lose(&digest(&first));
    builds.config("3").await;
    let (third, other) = builds.until_published(&second).await;
    assert_ne!(other, image);
    assert_eq!(jobs.started(), [first.clone(), third.clone()]);
    let patch =
        json!({ "metadata": { "annotations": { key("currentImage"): other, key("desiredImage"): other } } });
    node_api(client).patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    object_api(client, "machineosconfigs").delete("worker", &DeleteParams::default()).await.unwrap();
    builds.until_condition("False", "NoLayeredObjects").await;
    within("all builds are gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(registry.deleted(), [digest(&first)], "a node has the other one");
    node_until(client, "n1", "no image", |node| annotation(node, "desiredImage").is_none()).await;
    jobs.until_gone().await;
}

/// Controllers die one after the other, each one write further than the one before it: no build is made twice, none is
/// forgotten, and no node sees a half pair.
#[tokio::test]
async fn recovers_from_kill_before_every_write() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    let controller = builds.start("first", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    assert!(controller.terminate().await.success());
    let jobs = JobController::start(&cluster.bench, Plays::Well).await;
    let pairs = Pairs::start(&cluster.bench).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let mut killed = 0;
    for round in ["build", "rebuild"] {
        if round == "rebuild" {
            builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
        }
        let before = jobs.started().len();
        // The start of a Job is five writes, of which four may have been made.
        killed =
            killed_until(&builds, killed, || settled(&builds, before, || jobs.started(), jobs.until_gone()))
                .await;
    }
    let (last, image) = builds.until_published("").await;
    assert_eq!(jobs.started(), [last.clone(), last], "one build a round");
    assert!(killed > 8, "{killed}");
    assert_eq!(pairs.of("n1").await, [(target.clone(), None), (target, Some(image))]);
}

/// Kills controllers, each one write further than the one before it, until all is settled; returns the number of those killed so far.
pub async fn killed_until<Settled: Future<Output = ()>>(
    builds: &Builds,
    mut killed: u32,
    settled: impl Fn() -> Settled,
) -> u32 {
    loop {
        let writes = (killed % 7 + 1).to_string();
        let controller = builds.start(&format!("c{killed}"), &["--abort-at-write", &writes]);
        tokio::select! {
            status = controller.end() => {
                assert_eq!(status.code(), None, "{:?}", controller.lines());
                killed += 1;
                builds.cluster.free_lease().await;
            }
            () = settled() => {
                controller.kill().await;
                builds.cluster.free_lease().await;
                return killed;
            }
        }
    }
}

/// Waits until a build more has run, its image is published, and all of it is cleared up.
pub async fn settled(
    builds: &Builds,
    before: usize,
    started: impl Fn() -> Vec<String>,
    gone: impl Future<Output = ()>,
) {
    builds
        .until_os_config("published", |config| {
            let started = started();
            let is_new = started.len() > before;
            let of = config["status"]["machineOSBuild"]["name"].as_str().unwrap_or_default();
            is_new
                && started.last().is_some_and(|last| last == of)
                && config["metadata"]["annotations"][key("current-machine-os-build")] == of
                && config["metadata"]["annotations"].get(key("rebuild")).is_none()
        })
        .await;
    gone.await;
    builds.until_condition("False", "BuildSuccess").await;
}

/// Two controllers: the one that leads is killed while a build runs, the other one goes on with it.
#[tokio::test]
async fn second_controller_goes_on_with_build() {
    let builds = Builds::new().await;
    let (first, second) = (builds.start("a", &[]), builds.start("b", &[]));
    let jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    builds.until_condition("False", "Building").await;
    let leader = builds.cluster.until_leader(|name| !name.is_empty()).await;
    let (leading, _other) = if leader.starts_with("a_") { (first, second) } else { (second, first) };
    leading.kill().await;
    builds.cluster.free_lease().await;
    jobs.play(Plays::Well);
    let (published, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [published]);
}
