//! Builds while a registry refuses.

use kube::api::{DeleteParams, ListParams};

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::cluster::{object_api, within};
use crate::process::condition;

/// While a registry refuses, nothing is built in place of an image that may be there; the pool says why. When it answers again, the image
/// is taken without anybody's help.
#[tokio::test]
async fn registry_that_refuses_delays_and_costs_no_build() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let _controller = builds.start("a", &[]);
    builds.cluster.until_target("worker", "").await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (first, image) = builds.until_published("").await;
    for (number, (status, words)) in [
        ("401 Unauthorized", "(401)"),
        ("403 Forbidden", "(403)"),
        ("429 Too Many Requests\r\nRetry-After: 1", "too many requests (429)"),
        ("500 Internal Server Error", "fails (500)"),
    ]
    .into_iter()
    .enumerate()
    {
        registry.refuse(Some(status));
        // Another target, whose image is the same: the registry is asked.
        builds.config(&format!("refused {number}")).await;
        let told = |pool: &serde_json::Value| {
            let condition = condition(pool, "ImageBuildDegraded");
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "BuildPending" && message.contains(words)
        };
        let pool = builds.cluster.until_pool("worker", words, told).await;
        assert!(condition(&pool, "ImageBuildDegraded")["message"].as_str().unwrap().contains(&registry.host));
    }
    registry.refuse(None);
    let (last, reused) = builds.until_published(&first).await;
    assert_ne!(last, first);
    assert_eq!((jobs.started(), reused), (vec![first.clone()], image), "one build, whatever was answered");
    // It refuses to delete, too: that holds nothing up.
    registry.refuse(Some("401 Unauthorized"));
    let configs = object_api(&builds.cluster.client, "machineosconfigs");
    configs.delete("worker", &DeleteParams::default()).await.unwrap();
    within("all builds are gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(registry.deleted(), Vec::<String>::new());
}
