//! Builds while a registry refuses, and while two controllers lead at once.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays, digest};
use crate::build_registry::FakeRegistry;
use crate::cluster::{key, object_api, within};
use crate::pairs::{Pairs, until_image};
use crate::process::condition;
use crate::rollout::{Agents, ready_node};

/// While a registry refuses, nothing is built in place of an image that may be there; the pool says why. When it answers again, the image
/// is taken without anybody's help.
#[tokio::test]
async fn registry_that_refuses_delays_and_costs_no_build() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let mut controller = builds.start("a", &[]);
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
        let has_condition = |pool: &serde_json::Value| {
            let condition = condition(pool, "ImageBuildDegraded");
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "BuildPending" && message.contains(words)
        };
        let pool = builds.cluster.until_pool("worker", words, has_condition).await;
        assert!(condition(&pool, "ImageBuildDegraded")["message"].as_str().unwrap().contains(&registry.host));
    }
    registry.refuse(None);
    let (last, reused) = builds.until_published(&first).await;
    assert_ne!(last, first);
    assert_eq!((jobs.started(), reused), (vec![first.clone()], image), "one build, whatever was answered");
    // It does not answer whether it deletes: that is said. Then it refuses: that holds nothing up.
    registry.refuse(Some("503 Service Unavailable"));
    let configs = object_api(&builds.cluster.client, "machineosconfigs");
    configs.delete("worker", &DeleteParams::default()).await.unwrap();
    controller.line("can't be deleted: ").await;
    // The other one, whose image this is as well, is gone.
    builds.only_build().await;
    registry.refuse(Some("401 Unauthorized"));
    controller.line("stays in the registry: ").await;
    within("all builds are gone", async {
        while !builds.builds().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(registry.deleted(), Vec::<String>::new());
}

/// A wrong account for the push is told before anything is built, and nothing waits for a person once it is corrected.
#[tokio::test]
async fn refused_push_costs_no_build() {
    let registry = FakeRegistry::start().await;
    let builds = Builds::pushing_to(&registry.host).await;
    let _controller = builds.start("a", &[]);
    builds.cluster.until_target("worker", "").await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.secret().await;
    registry.refuse(Some("401 Unauthorized"));
    builds.os_config(CONTAINERFILE).await;
    let condition = builds.until_condition("True", "BuildPending").await;
    let message = condition["message"].as_str().unwrap();
    for words in ["can't be pushed", "(401)", &registry.host, "Secret"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(jobs.started(), Vec::<String>::new());
    registry.refuse(None);
    let (build, _) = builds.until_published("").await;
    assert_eq!(jobs.started(), [build]);
}

/// Two controllers that both lead, as when a Lease is edited by hand: each write is refused to one of them, so each image is built once,
/// what they leave is as one would leave it, and no node sees a half pair.
#[tokio::test]
async fn two_leaders_at_once_make_no_build_twice() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    cluster.lease("another-lease").await;
    let mut one = builds.start("one", &[]);
    let mut two = builds.start("two", &["--lease", "another-lease"]);
    one.line("The build controller runs").await;
    two.line("The build controller runs").await;
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let pairs = Pairs::start(&cluster.bench).await;
    let _agents = Agents::start(&cluster.bench).await;
    let jobs = JobController::start(&cluster.bench, Plays::Well).await;
    builds.secret().await;
    builds.os_config(CONTAINERFILE).await;
    let (first, earlier) = builds.until_published("").await;
    until_image(&cluster.client, "n1", &earlier).await;
    builds.patch_os_config(json!({ "metadata": { "annotations": { key("rebuild"): "" } } })).await;
    within("its Job runs once more", async {
        while jobs.started().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    builds.until_condition("False", "BuildSuccess").await;
    builds.kernel_argument("quiet").await;
    let (second, image) = builds.until_published(&first).await;
    builds.until_condition("False", "BuildSuccess").await;
    jobs.until_gone().await;
    until_image(&cluster.client, "n1", &image).await;
    let next = cluster.until_target("worker", &target).await;
    let expected = [(target.clone(), None), (target, Some(earlier)), (next, Some(image.clone()))];
    assert_eq!(pairs.of("n1").await, expected);
    assert_eq!(image, format!("registry.test/os/worker@{}", digest(&second)));
    assert_eq!(jobs.started(), [first.clone(), first.clone(), second.clone()], "each once");
    let listed = builds.builds().list(&ListParams::default()).await.unwrap();
    let mut names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    let mut expected = [first, second];
    expected.sort();
    assert_eq!(names, expected);
    for controller in [&one, &two] {
        assert!(controller.terminate().await.success(), "{:?}", controller.lines());
    }
}
