//! The build controller with render and node controller: from a `MachineOSConfig` to nodes that have its image.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::build_jobs::{JobController, Plays, digest};
use crate::cluster::{
    MachineConfigBuilder, annotation, create_object, key, node_until, object_api, object_until, within,
};
use crate::process::{Cluster, Controller, NAMESPACE, condition};
use crate::rollout::ready_node;

const BASE: &str = "registry.test/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A pool, its config, and Secrets.
pub struct Builds {
    pub cluster: Cluster,
    settings: tempfile::TempDir,
    /// Registry that images are pushed to: host and repository.
    pub repository: String,
}

impl Builds {
    pub async fn new() -> Self {
        Self::pushing_to("registry.test").await
    }

    pub async fn pushing_to(registry: &str) -> Self {
        Self::with_settings(registry, "").await
    }

    /// With more lines of the build settings.
    pub async fn with_settings(registry: &str, more: &str) -> Self {
        let cluster = Cluster::new().await;
        let settings = tempfile::tempdir().unwrap();
        let images = "builderImage: registry.test/buildah:1\nagentImage: registry.test/agent:1";
        let text = format!("{images}\ninsecureRegistries: [\"{registry}\"]\n{more}");
        std::fs::write(settings.path().join("build.yaml"), text).unwrap();
        let builds = Self { cluster, settings, repository: format!("{registry}/os/worker") };
        builds.cluster.pool("worker").await;
        builds.config("1").await;
        builds
    }

    /// A config with a file.
    pub async fn config(&self, contents: impl AsRef<[u8]>) {
        let config = MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents);
        self.cluster.config("worker", config.os_image_url(BASE)).await;
    }

    /// Another kernel argument: another image.
    pub async fn kernel_argument(&self, argument: &str) {
        self.cluster.config("worker", MachineConfigBuilder::new("60-k").karg(argument)).await;
    }

    pub fn start(&self, name: &str, more: &[&str]) -> Controller {
        let settings = self.settings.path().join("build.yaml");
        let fixed =
            ["--controllers", "render,node,drain,build", "--build-settings", settings.to_str().unwrap()];
        self.cluster.start(name, &[&fixed[..], more].concat())
    }

    pub async fn secret(&self) {
        self.secret_named("push").await;
    }

    /// The `ControllerConfig` of a cluster, with more fields of its spec.
    pub async fn controller_config(&self, more: &Value) {
        self.cluster.controller_config(more).await;
    }

    pub async fn secret_named(&self, name: &str) {
        let secret = json!({
            "metadata": { "name": name },
            "type": "kubernetes.io/dockerconfigjson",
            "data": { ".dockerconfigjson": "eyJhdXRocyI6eyJyZWdpc3RyeS50ZXN0Ijp7ImF1dGgiOiJjR0UxTlhkdmNtUTZjR0UxTlhkdmNtUT0ifX19" },
        });
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    pub async fn os_config(&self, containerfile: &str) -> DynamicObject {
        let spec = spec(containerfile, &self.repository);
        create_object(&self.cluster.client, "machineosconfigs", "worker", json!({ "spec": spec }))
            .await
            .unwrap()
    }

    pub async fn patch_os_config(&self, patch: Value) {
        let api = object_api(&self.cluster.client, "machineosconfigs");
        api.patch("worker", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the server that came back serves all that is read here; it has no event for that, and is asked.
    pub async fn served(&self) {
        for plural in ["machineconfigpools", "machineosbuilds", "machineosconfigs"] {
            let api = object_api(&self.cluster.client, plural);
            within("the kind is served", async {
                while api.list(&ListParams::default()).await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }

    /// Waits until a build is in a state; returns it.
    pub async fn until_state(&self, build: &str, state: &str) -> Value {
        let read = |object: &DynamicObject| serde_json::to_value(object).unwrap();
        let holds = |object: &DynamicObject| {
            let object = read(object);
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == state && one["status"] == "True")
        };
        read(&object_until(&self.builds(), build, state, holds).await)
    }

    /// The one build that is there.
    pub async fn only_build(&self) -> String {
        let listed = self.builds().list(&ListParams::default()).await.unwrap();
        let [build] = &listed.items[..] else { panic!("{listed:?}") };
        build.name_any()
    }

    pub fn builds(&self) -> Api<DynamicObject> {
        object_api(&self.cluster.client, "machineosbuilds")
    }

    pub async fn until_os_config(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let api = object_api(&self.cluster.client, "machineosconfigs");
        let read = |object: &DynamicObject| serde_json::to_value(object).unwrap();
        read(&object_until(&api, "worker", what, |object| holds(&read(object))).await)
    }

    /// Waits for the pool's word about its image.
    pub async fn until_condition(&self, status: &str, reason: &str) -> Value {
        let found = |pool: &Value| {
            let found = condition(pool, "ImageBuildDegraded");
            found["status"] == status && found["reason"] == reason
        };
        let pool = self.cluster.until_pool("worker", &format!("{reason} is {status}"), found).await;
        condition(&pool, "ImageBuildDegraded").clone()
    }

    /// Waits until the `MachineOSConfig` has the image of a build; returns the build.
    pub async fn until_published(&self, other_than: &str) -> (String, String) {
        let named = key("current-machine-os-build");
        let config = self
            .until_os_config("another image", |config| {
                let of = config["status"]["machineOSBuild"]["name"].as_str().unwrap_or_default();
                !of.is_empty() && of != other_than && config["metadata"]["annotations"][&named] == of
            })
            .await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&config["status"]["machineOSBuild"]["name"]), text(&config["status"]["currentImagePullSpec"]))
    }
}

pub fn spec(containerfile: &str, repository: &str) -> Value {
    json!({
        "machineConfigPool": { "name": "worker" },
        "imageBuilder": { "imageBuilderType": "Job" },
        "renderedImagePushSecret": { "name": "push" },
        "renderedImagePushSpec": format!("{repository}:latest"),
        "containerFile": [{ "containerfileArch": "NoArch", "content": containerfile }],
    })
}

/// The whole chain: `MachineOSConfig`, build, Job with its inputs, digest, and the pair on a node in one patch.
#[tokio::test]
async fn machine_os_config_becomes_image_on_nodes() {
    let builds = Builds::new().await;
    let cluster = &builds.cluster;
    let controller = builds.start("a", &[]);
    let target = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &target).await;
    let jobs = JobController::start(&cluster.bench, Plays::Held).await;
    builds.os_config("FROM configs AS final\nRUN true").await;
    // Something is missing: the pool names it.
    let missing = builds.until_condition("True", "BuildPending").await;
    assert!(missing["message"].as_str().unwrap().contains("Secret push"), "{missing}");
    builds.secret().await;
    let pending = builds.until_condition("False", "BuildPending").await;
    assert!(pending["message"].as_str().unwrap().contains("waits for its pod"), "{pending}");
    let name = builds.only_build().await;
    assert!(name.starts_with("worker-") && name.len() == "worker-".len() + 32, "OCL-021: {name}");
    jobs.play(Plays::Well);
    let (published, image) = builds.until_published("").await;
    assert_eq!(published, name);
    assert_eq!(image, format!("registry.test/os/worker@{}", digest(&name)));
    // Config and image come together.
    let node =
        node_until(&cluster.client, "n1", "an image", |node| annotation(node, "desiredImage").is_some())
            .await;
    let pair = (annotation(&node, "desiredConfig"), annotation(&node, "desiredImage"));
    assert_eq!(pair, (Some(target.as_str()), Some(image.as_str())));
    builds.until_condition("False", "BuildSuccess").await;
    jobs.until_gone().await;
    assert_eq!(jobs.started(), std::slice::from_ref(&name), "one Job");
    assert!(controller.terminate().await.success());
    is_reported_without_secrets(&builds, &controller, &name).await;
}

/// The five conditions and the Events are those of docs/builds.md; no line and no Event has a secret.
async fn is_reported_without_secrets(builds: &Builds, controller: &Controller, name: &str) {
    let build = serde_json::to_value(builds.builds().get(name).await.unwrap()).unwrap();
    let conditions = build["status"]["conditions"].as_array().unwrap();
    let mut states: Vec<_> =
        conditions.iter().map(|one| (one["type"].as_str().unwrap(), one["status"] == "True")).collect();
    states.sort_unstable();
    let expected = ["Building", "Failed", "Interrupted", "Prepared", "Succeeded"]
        .map(|kind| (kind, kind == "Succeeded"));
    assert_eq!(states, expected);
    assert!(build["status"]["buildStart"].as_str() < build["status"]["buildEnd"].as_str(), "{build}");
    let events: Api<Event> = Api::namespaced(builds.cluster.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let has = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
    for reason in [
        "BuildStarted",
        "JobCreated",
        "JobStarted",
        "BuildPreparing",
        "BuildBuilding",
        "BuildCompleted",
        "JobCompleted",
        "JobDeleted",
        "ConfigReconciled",
        "BuildDegraded",
        "BuildRecovered",
    ] {
        assert!(has(reason), "{reason}: {events:#?}");
    }
    let text = format!("{:?} {events:?} {build}", controller.lines());
    assert!(!text.contains("pa55word") && !text.contains("cGE1NXdvcmQ6"), "{text}");
    let pods: Api<Pod> = Api::namespaced(builds.cluster.client.clone(), NAMESPACE);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty(), "removed with their Job");
}

/// The build settings choose what brings the config in; the image is verified by the agent all the same.
#[tokio::test]
async fn settings_choose_ignition_of_base() {
    let builds = Builds::with_settings("registry.test", "applyBy: Ignition\n").await;
    let _controller = builds.start("a", &[]);
    let _jobs = JobController::start(&builds.cluster.bench, Plays::Running).await;
    builds.secret().await;
    builds.os_config("FROM configs AS final\nRUN true").await;
    builds.until_condition("False", "Building").await;
    let name = format!("containerfile-{}", builds.only_build().await);
    let maps: Api<ConfigMap> = Api::namespaced(builds.cluster.client.clone(), NAMESPACE);
    let text = maps.get(&name).await.unwrap().data.unwrap()["Containerfile"].clone();
    assert!(text.contains("ignition-apply --ignore-unsupported"), "{text}");
    assert!(!text.contains(" apply --to ") && text.contains("\"verify\""), "{text}");
}

/// A build pulls as a node of its pool does, and its steps have the cluster's proxy and entitlements, without a key of the build
/// settings; one that is set is stronger.
#[tokio::test]
async fn cluster_and_rendered_config_are_surroundings_of_a_build() {
    let builds = Builds::with_settings("registry.test", "policyJson: '{\"default\": [\"own\"]}'\n").await;
    let cluster = &builds.cluster;
    let auths = "{\"auths\":{\"mirror.test\":{\"auth\":\"bm9kZTpwYTU1d29yZA==\"}}}";
    let files = MachineConfigBuilder::new("40-registries")
        .file("/etc/containers/registries.conf", 0o644, "[[registry]]\n")
        .file("/etc/containers/policy.json", 0o644, "{}")
        .file("/var/lib/kubelet/config.json", 0o600, auths);
    cluster.config("worker", files).await;
    // "PEM\n" in base64.
    builds
        .controller_config(&json!({
            "additionalTrustBundle": "UEVNCg==", "proxy": { "httpsProxy": "http://proxy.test:3128" },
            "imageRegistryBundleUserData": [{ "file": "registry.test..5000", "data": "UEVNCg==" }],
        }))
        .await;
    builds.secret_named("etc-pki-entitlement").await;
    let client = &cluster.client;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let repositories = json!({ "metadata": { "name": "etc-yum-repos-d" }, "data": { "a.repo": "" } });
    maps.create(&PostParams::default(), &serde_json::from_value(repositories).unwrap()).await.unwrap();
    builds.secret().await;
    let controller = builds.start("a", &[]);
    let _jobs = JobController::start(&cluster.bench, Plays::Running).await;
    builds.os_config("FROM configs AS final\nRUN true").await;
    builds.until_condition("False", "Building").await;
    let name = builds.only_build().await;
    let texts = maps.get(&format!("containerfile-{name}")).await.unwrap().data.unwrap();
    let text = |key: &str| texts.get(key).map(String::as_str);
    assert_eq!(text("registries.conf"), Some("[[registry]]\n"));
    assert_eq!(text("policy.json"), Some("{\"default\": [\"own\"]}"), "settings are stronger");
    assert_eq!((text("ca-bundle.crt"), text("ca-of-registry.test..5000")), (Some("PEM\n"), Some("PEM\n")));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let base = secrets.get(&format!("base-{name}")).await.unwrap().data.unwrap();
    assert_eq!(String::from_utf8(base[".dockerconfigjson"].0.clone()).unwrap(), auths);
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let job = serde_json::to_value(jobs.get(&format!("build-{name}")).await.unwrap()).unwrap();
    let pod = &job["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let variable = |name: &str| env.iter().find(|one| one["name"] == name).unwrap()["value"].clone();
    assert_eq!(variable("HTTPS_PROXY"), "http://proxy.test:3128");
    let volumes = "--volume=/run/build/mounts/0:/etc/pki/entitlement:ro --volume=/run/build/mounts/1:/etc/yum.repos.d:ro";
    assert_eq!(variable("VOLUMES"), volumes);
    let lines = format!("{:?}", controller.lines());
    assert!(!lines.contains("bm9kZTpwYTU1d29yZA"), "{lines}");
}
