//! The registry: it fails for one repository of two.

use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::build::{Builds, spec};
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays, digest};
use crate::build_registry::FakeRegistry;
use crate::cluster::{MachineConfigBuilder, create_object, object_api, object_until, within};
use crate::process::condition;
use crate::proxy::Failing;

/// A pool whose images are in the repository that does not fail.
pub async fn other_pool(builds: &Builds, registry: &str, secret: &str) {
    builds.cluster.pool("infra").await;
    other_config(builds, "0").await;
    let mut other = spec(CONTAINERFILE, &format!("{registry}/os/infra"));
    other["machineConfigPool"]["name"] = json!("infra");
    other["renderedImagePushSecret"]["name"] = json!(secret);
    let object = json!({ "spec": other });
    create_object(&builds.cluster.client, "machineosconfigs", "infra", object).await.unwrap();
}

pub async fn other_config(builds: &Builds, contents: &str) {
    let base = format!("registry.test/os@sha256:{}", "b".repeat(64));
    let config =
        MachineConfigBuilder::new("50-infra").file("/etc/a.conf", 0o644, contents).os_image_url(&base);
    builds.cluster.config("infra", config).await;
}

/// Waits until the other pool has another build with an image; returns it.
pub async fn until_other(builds: &Builds, other_than: &str) -> String {
    let of = |config: &DynamicObject| {
        config.data["status"]["machineOSBuild"]["name"].as_str().unwrap_or_default().to_owned()
    };
    let api = object_api(&builds.cluster.client, "machineosconfigs");
    let is_other = |config: &DynamicObject| !of(config).is_empty() && of(config) != other_than;
    of(&object_until(&api, "infra", "another image", is_other).await)
}

/// Whether an image is there is not answered, answered late, or with the page of a login: nothing is built in its place, the pool says why,
/// and the other pool has its image meanwhile.
#[tokio::test]
async fn queries_of_images_fail() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    other_pool(&builds, &registry.host, "push").await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (mut last, image) = builds.until_published("").await;
    let mut other = until_other(&builds, "").await;
    let started = jobs.started();
    let host = &registry.host;
    for (failing, words) in [
        (Failing::AnswersLate, String::new()),
        (Failing::AnswersSomethingElse, format!("registry {host} returned an HTML page")),
        (Failing::NeverAnswers, format!("registry {host} can't be reached")),
    ] {
        registry.fail("/os/worker/", failing);
        let contents = format!("{failing:?}");
        builds.config(&contents).await;
        other_config(&builds, &contents).await;
        other = until_other(&builds, &other).await;
        registry.failed().await;
        if failing == Failing::NeverAnswers {
            // Its connection breaks; that of a server that is silent for longer than 30 s ends so, too.
            registry.mend();
        }
        if !words.is_empty() {
            let is_told = |pool: &Value| {
                let found = condition(pool, "ImageBuildDegraded");
                found["reason"] == "BuildPending"
                    && found["message"].as_str().unwrap_or_default().contains(&words)
            };
            builds.cluster.until_pool("worker", &words, is_told).await;
        }
        registry.mend();
        // Another target is decided at once.
        builds.config(&format!("{contents} mended")).await;
        let (build, reused) = builds.until_published(&last).await;
        assert_eq!((jobs.started(), &reused), (started.clone(), &image), "{failing:?}");
        last = build;
    }
}

/// A page in place of the answer to a deletion is no deletion: the log says so, and the image goes once the registry answers.
#[tokio::test]
async fn deletion_of_image_is_answered_with_page() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let mut controller = builds.start("a", &[]);
    let _jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (build, _) = builds.until_published("").await;
    registry.fail("/os/worker/", Failing::AnswersSomethingElse);
    object_api(&builds.cluster.client, "machineosconfigs")
        .delete("worker", &DeleteParams::default())
        .await
        .unwrap();
    registry.failed().await;
    let line = controller.line("can't be deleted: ").await;
    assert!(line.contains("returned an HTML page"), "{line}");
    registry.mend();
    within("the build is gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(registry.deleted(), [digest(&build)]);
}
