//! Reads of builds and of drains: they fail for one object of two.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::drain::until_event;
use super::registry::{other_config, other_pool, until_other};
use crate::build::Builds;
use crate::build_course::CONTAINERFILE;
use crate::build_jobs::{JobController, Plays};
use crate::build_registry::FakeRegistry;
use crate::cluster::{MachineConfigBuilder, key, node_api, within};
use crate::connections::put_before;
use crate::proxy::{Failing, Proxy, Seam};
use crate::rollout_edges::{finish, until_desired};

/// The reads of a build by name, or by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Secret,
    Pods,
    Job,
    Build,
    Config,
}

impl Read {
    const ALL: [Self; 5] = [Self::Secret, Self::Pods, Self::Job, Self::Build, Self::Config];

    fn fail(self, proxy: &Proxy, failing: Failing) {
        let parts: &[&str] = match self {
            Self::Secret => &["/secrets/push"],
            Self::Pods => &["/pods?", "worker-"],
            Self::Job => &["/jobs/build-worker-"],
            Self::Build => &["/machineosbuilds/worker-"],
            Self::Config => &["/machineosconfigs/worker"],
        };
        if self == Self::Config {
            // It is read after a write that failed.
            let build = Seam::new(Method::POST, &["/machineosbuilds?"]).with_body("\"worker-");
            proxy.fail(build, Failing::Refuses(403, "not now"));
        }
        proxy.fail(Seam::new(Method::GET, parts), failing);
    }

    /// How an error begins.
    fn words(self) -> &'static str {
        match self {
            Self::Secret => "reading of Secret openshift-machine-config-operator/push",
            Self::Pods => "list of the pods of build worker-",
            Self::Job => "reading of Job build-worker-",
            Self::Build => "reading of MachineOSBuild worker-",
            Self::Config => "reading of MachineOSConfig worker",
        }
    }
}

/// Each read of one build is refused: an Event of its `MachineOSConfig` names the object, the other pool has its image meanwhile, it is asked
/// for again after a pause, and the build goes on where it was.
#[tokio::test]
async fn reads_of_builds_fail() {
    let registry = FakeRegistry::start().await;
    let mut builds = Builds::pushing_to(&registry.host).await;
    let proxy = put_before(&mut builds.cluster).await;
    builds.secret().await;
    builds.secret_named("other").await;
    other_pool(&builds, &registry.host, "other").await;
    let _controller = builds.start("a", &[]);
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.os_config(CONTAINERFILE).await;
    let (mut last, _) = builds.until_published("").await;
    let mut other = until_other(&builds, "").await;
    let client = &builds.cluster.client;
    for read in Read::ALL {
        jobs.until_gone().await;
        read.fail(&proxy, Failing::Refuses(403, "no right"));
        let contents = format!("{read:?}");
        builds.kernel_argument(&contents).await;
        other_config(&builds, &contents).await;
        other = until_other(&builds, &other).await;
        proxy.failed(1).await;
        until_event(client, "ConfigReconcileFailed", "worker", read.words()).await;
        // Not at once again, and again: pauses of 2, 4, 8 s.
        let asked = proxy.mend();
        assert!(asked.iter().all(|asked| *asked <= 4), "{read:?}: {asked:?}");
        (last, _) = builds.until_published(&last).await;
    }
    jobs.until_gone().await;
    let mut started = jobs.started();
    started.sort_unstable();
    let all = started.len();
    started.dedup();
    assert_eq!(started.len(), all, "each build has one Job: {started:?}");
}

/// Reads of what surrounds each build: the first part of the path, and the object.
const AROUND: [(&str, &str); 3] = [
    ("/controllerconfigs/machine-config-controller", "ControllerConfig machine-config-controller"),
    ("/configmaps/etc-yum-repos-d", "ConfigMap openshift-machine-config-operator/etc-yum-repos-d"),
    ("/secrets/global-pull-secret-copy", "Secret openshift-machine-config-operator/global-pull-secret-copy"),
];

/// What surrounds builds can't be read: no build begins without it, an Event names object, cause and next step, a pool without image mode gets
/// its target and so does its node meanwhile, and the build goes on once it can be read.
#[tokio::test]
async fn surroundings_of_builds_fail() {
    let mut builds = Builds::new().await;
    let proxy = put_before(&mut builds.cluster).await;
    let client = builds.cluster.client.clone();
    builds.secret().await;
    builds.secret_named("global-pull-secret-copy").await;
    builds.controller_config(&json!({})).await;
    let infra = |contents: String| MachineConfigBuilder::new("50-infra").file("/etc/i", 0o644, contents);
    builds.cluster.pool("infra").await;
    builds.cluster.config("infra", infra(String::new())).await;
    let _controller = builds.start("a", &[]);
    let mut target = builds.cluster.until_target("infra", "").await;
    infra_node(&client, &target).await;
    let jobs = JobController::start(&builds.cluster.bench, Plays::Well).await;
    builds.os_config(CONTAINERFILE).await;
    let (mut last, _) = builds.until_published("").await;
    let ways = [
        (
            Failing::Refuses(403, "no right"),
            "is refused: no right (403); grant the controller's account this right",
        ),
        (Failing::Refuses(503, "etcd has no leader"), "is refused: etcd has no leader (503)"),
        (Failing::AnswersSomethingElse, "its answer can't be read"),
        (Failing::NeverAnswers, "no answer within 10 s"),
    ];
    for (number, (path, object)) in AROUND.into_iter().enumerate() {
        for (round, (failing, words)) in ways.into_iter().enumerate() {
            jobs.until_gone().await;
            let started = jobs.started();
            proxy.fail(Seam::new(Method::GET, &[path]), failing);
            let contents = format!("round{number}{round}");
            builds.kernel_argument(&contents).await;
            proxy.failed(1).await;
            builds.cluster.config("infra", infra(contents)).await;
            target = builds.cluster.until_target("infra", &target).await;
            until_desired(&client, "i1", &target).await;
            finish(&client, "i1").await;
            until_told(&client, &format!("reading of {object}"), words).await;
            assert_eq!(jobs.started(), started, "{object}, {failing:?}");
            // Not at once again, and again: pauses of 2, 4, 8 s.
            let asked = proxy.mend();
            assert!(asked.iter().all(|asked| *asked <= 4), "{object}, {failing:?}: {asked:?}");
            (last, _) = builds.until_published(&last).await;
        }
    }
}

/// A node of the pool `infra`, which has its config, from the first moment on.
async fn infra_node(client: &Client, config: &str) {
    let annotations =
        json!({ key("currentConfig"): config, key("desiredConfig"): config, key("state"): "Done" });
    let labels = json!({ "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": "" });
    let node = json!({ "metadata": { "name": "i1", "labels": labels, "annotations": annotations } });
    node_api(client).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    node_api(client).patch_status("i1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
}

/// Waits for an Event of the `MachineOSConfig` that has both texts.
async fn until_told(client: &Client, object: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let is_it = |event: &Event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("ConfigReconcileFailed")
            && event.involved_object.name.as_deref() == Some("worker")
            && message.contains(object)
            && message.contains(words)
    };
    within(&format!("{object}: {words}"), async {
        while !events.list(&ListParams::default()).await.unwrap().items.iter().any(is_it) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The target of a pool can't be read: changes of other objects are no reason to ask again, and the build goes on once it can be read.
#[tokio::test]
async fn target_that_can_not_be_read_is_asked_for_rarely() {
    let mut builds = Builds::new().await;
    let proxy = put_before(&mut builds.cluster).await;
    builds.cluster.pool("infra").await;
    let _controller = builds.start("a", &[]);
    let target = builds.cluster.until_target("worker", "").await;
    let read = Seam::new(Method::GET, &[&*format!("/machineconfigs/{target}")]);
    proxy.fail(read, Failing::Refuses(503, "etcd has no leader"));
    builds.os_config(CONTAINERFILE).await;
    proxy.failed(1).await;
    until_event(&builds.cluster.client, "ConfigReconcileFailed", "worker", "etcd has no leader").await;
    for change in 0..12 {
        let labels = json!({ "metadata": { "labels": { "change": change.to_string() } } });
        builds.cluster.patch_pool("infra", labels).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let tries = proxy.mend()[0];
    assert!((2..=4).contains(&tries), "{tries}");
    // The Secret is missing.
    builds.until_condition("True", "BuildPending").await;
}
