//! `ConfigMap`s as tables: what they are read as, and what is refused.

use serde_json::{Value, json};

use super::*;
use crate::api::pool::Condition;
use crate::render::Release;
use crate::rollout::{BuildState, Layering};

const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Objects of a cluster.
struct Cluster {
    pool: MachineConfigPool,
    settings: Option<BTreeMap<String, String>>,
    os_image: Option<BTreeMap<String, String>>,
    containerfiles: Option<BTreeMap<String, String>>,
    release: Release,
    os_config: Option<MachineOSConfig>,
    configs: BTreeMap<String, MachineConfig>,
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn image(name: &str) -> String {
    format!("registry.test/{name}@sha256:{DIGEST}")
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cluster() -> Cluster {
    Cluster {
        pool: object(json!({
            "metadata": { "name": "worker", "uid": "pool-uid", "labels": { ENABLED: "" } },
            "spec": { "machineConfigSelector": { "matchLabels": { ROLE: "worker" } } },
        })),
        settings: Some(map(&[
            ("baseImagePullSecretName", "pull"),
            ("finalImagePushSecretName", "push"),
            ("finalImagePullspec", "registry.test:5000/os/worker:any"),
        ])),
        os_image: Some(map(&[("baseOSContainerImage", &image("os")), ("releaseVersion", "1")])),
        containerfiles: Some(map(&[
            ("worker", "FROM configs AS final\nRUN true"),
            ("infra", "FROM configs"),
        ])),
        release: Release::default(),
        os_config: None,
        configs: BTreeMap::new(),
    }
}

impl Cluster {
    fn next(&self) -> Result<Option<Action>, OptInError> {
        opt_in(&OptInInput {
            pool: &self.pool,
            namespace: "machine-config-agent",
            settings: self.settings.as_ref(),
            os_image: self.os_image.as_ref(),
            containerfiles: self.containerfiles.as_ref(),
            release: &self.release,
            os_config: self.os_config.as_ref(),
            configs: &self.configs,
        })
    }

    /// Carries actions out until none is left, as the API server would.
    fn settle(&mut self) -> Vec<&'static str> {
        let mut done = Vec::new();
        while let Some(action) = self.next().unwrap() {
            done.push(match action {
                Action::CreateOsConfig(mut config) => {
                    assert!(self.os_config.is_none());
                    config.metadata.uid = Some("config-uid".to_owned());
                    self.os_config = Some(*config);
                    "create"
                }
                Action::UpdateOsConfig(config) => {
                    self.os_config = Some(*config);
                    "update"
                }
                Action::DeleteOsConfig { name, uid, .. } => {
                    assert_eq!((name.as_str(), uid.as_str()), ("worker", "config-uid"));
                    self.os_config = None;
                    "delete"
                }
                Action::WriteBase(config) => {
                    self.configs.insert(config.metadata.name.clone().unwrap(), *config);
                    "base"
                }
            });
            assert!(done.len() < 10, "no end: {done:?}");
        }
        done
    }

    fn refused(&self) -> String {
        self.next().unwrap_err().to_string()
    }
}

#[test]
fn label_and_config_maps_are_read_as_os_config() {
    let mut cluster = cluster();
    // The base comes second: a pool that is not in image mode yet would change to it.
    assert_eq!(cluster.settle(), ["create", "base"]);
    let config = cluster.os_config.clone().unwrap();
    assert_eq!(
        serde_json::to_value(&config.spec).unwrap(),
        json!({
            "machineConfigPool": { "name": "worker" },
            "imageBuilder": { "imageBuilderType": "Job" },
            "baseImagePullSecret": { "name": "pull" },
            "renderedImagePushSecret": { "name": "push" },
            "renderedImagePushSpec": "registry.test:5000/os/worker:any",
            "containerFile": [{ "containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true" }],
        })
    );
    assert_eq!(config.metadata.owner_references.unwrap()[0].uid, "pool-uid");
    let base = &cluster.configs["05-osimageurl-worker"];
    assert_eq!(base.spec.os_image_url, Some(image("os")));
    assert_eq!(base.metadata.labels.as_ref().unwrap()[ROLE], "worker");
    assert!(cluster.settle().is_empty(), "twice is once");
}

#[test]
fn changes_of_config_maps_change_the_objects() {
    let mut cluster = cluster();
    cluster.settle();
    cluster.containerfiles = None;
    assert_eq!(cluster.settle(), ["update"]);
    assert_eq!(cluster.os_config.as_ref().unwrap().spec.container_file, None);
    cluster.os_image = Some(map(&[
        ("baseOSContainerImage", &image("new")),
        ("baseOSExtensionsContainerImage", &image("more")),
    ]));
    assert_eq!(cluster.settle(), ["base"]);
    let spec = &cluster.configs["05-osimageurl-worker"].spec;
    assert_eq!((&spec.os_image_url, &spec.extensions_image), (&Some(image("new")), &Some(image("more"))));
    let settings = cluster.settings.as_mut().unwrap();
    settings.insert("finalImagePullspec".to_owned(), "reg.test/other".to_owned());
    let annotations = |cluster: &Cluster| cluster.os_config.clone().unwrap().metadata.annotations.unwrap();
    // What others wrote stays.
    let theirs = cluster.os_config.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
    theirs.insert("machineconfiguration.openshift.io/rebuild".to_owned(), String::new());
    assert_eq!(cluster.settle(), ["update"]);
    assert!(annotations(&cluster).contains_key("machineconfiguration.openshift.io/rebuild"));
}

/// The source design's name of OpenShift's builder becomes the annotation that the build controller reads.
#[test]
fn builder_of_config_map_is_annotation() {
    let mut cluster = cluster();
    cluster.settle();
    let builder = |cluster: &Cluster| {
        let annotations = cluster.os_config.clone().unwrap().metadata.annotations.unwrap();
        annotations.get(crate::build::IMAGE_BUILDER).cloned()
    };
    assert_eq!(builder(&cluster), None);
    for (written, expected) in [
        ("openshift-image-builder", Some("OpenShiftBuild")),
        ("custom-pod-builder", None),
        ("OpenShiftBuild", Some("OpenShiftBuild")),
        ("Job", None),
    ] {
        let settings = cluster.settings.as_mut().unwrap();
        settings.insert("imageBuilderType".to_owned(), written.to_owned());
        assert_eq!(cluster.settle(), ["update"], "{written}");
        assert_eq!(builder(&cluster).as_deref(), expected, "{written}");
    }
}

/// An annotation is copied easily: only what the pool controls is deleted.
#[test]
fn os_config_of_another_owner_stays_when_its_pool_opts_out() {
    let left = |change: &dyn Fn(&mut MachineOSConfig)| {
        let mut cluster = cluster();
        cluster.settle();
        cluster.pool.metadata.labels = None;
        change(cluster.os_config.as_mut().unwrap());
        cluster.settle().is_empty()
    };
    assert!(!left(&|_| ()));
    assert!(left(&|own| own.metadata.owner_references = None));
    assert!(left(&|own| own.metadata.owner_references.as_mut().unwrap()[0].controller = None));
    assert!(left(&|own| own.metadata.owner_references.as_mut().unwrap()[0].uid = "old-pool".to_owned()));
    assert!(left(&|own| own.metadata.name = Some("mine".to_owned())));
}

#[test]
fn opting_out_deletes_the_os_config_and_keeps_the_base() {
    let mut cluster = cluster();
    cluster.settle();
    cluster.pool.metadata.labels = None;
    assert_eq!(cluster.settle(), ["delete"]);
    // Its nodes go back to it.
    assert!(cluster.configs.contains_key("05-osimageurl-worker"));
    // It opts in again.
    cluster.pool.metadata.labels = Some(BTreeMap::from([(ENABLED.to_owned(), String::new())]));
    assert_eq!(cluster.settle(), ["create"]);
    // A pool that is being deleted takes it along.
    cluster.pool.metadata.deletion_timestamp = Some(object(json!("2026-01-01T00:00:00Z")));
    assert_eq!(cluster.settle(), ["delete"]);
}

#[test]
fn os_config_of_a_person_is_left_alone() {
    let mut cluster = cluster();
    let own = |cluster: &mut Cluster| cluster.os_config.as_mut().unwrap().metadata.annotations = None;
    cluster.settle();
    own(&mut cluster);
    cluster.containerfiles = None;
    assert_eq!(cluster.next(), Ok(None));
    cluster.pool.metadata.labels = None;
    assert_eq!(cluster.next(), Ok(None));
}

#[test]
fn base_is_not_written_where_the_cluster_has_it() {
    let mut cluster = cluster();
    cluster.release = Release { os_image: Some(image("os")), extensions_image: Some(image("more")) };
    assert_eq!(cluster.settle(), ["create"]);
    // A person's own one does as well.
    let mut cluster = self::cluster();
    cluster.os_image = None;
    let error = cluster.refused();
    assert!(error.contains("ConfigMap machine-config-agent/machine-config-osimageurl is missing"), "{error}");
    let own: MachineConfig = object(json!({
        "metadata": { "name": "50-os", "labels": { ROLE: "worker" } }, "spec": { "osImageURL": image("own") },
    }));
    cluster.configs.insert("50-os".to_owned(), own);
    assert_eq!(cluster.settle(), ["create"]);
}

#[test]
fn refusals_name_object_key_cause_and_next_step() {
    type Change = fn(&mut Cluster);
    fn set(cluster: &mut Cluster, key: &str, value: &str) {
        cluster.settings.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
    }
    let table: [(Change, &[&str]); 14] = [
        (|c| c.settings = None, &["on-cluster-build-config is missing", "create it", ENABLED]),
        (|c| c.settings = Some(map(&[])), &["finalImagePushSecretName: it is missing", "no keys"]),
        (|c| c.settings = Some(map(&[("finalImagePushSecretname", "a")])), &["has finalImagePushSecretname"]),
        (
            |c| set(c, "finalImagePushSecretName", "a/b"),
            &["finalImagePushSecretName: \"a/b\"", "write the name"],
        ),
        (|c| set(c, "baseImagePullSecretName", "A"), &["baseImagePullSecretName: \"A\""]),
        (|c| set(c, "finalImagePullspec", "os"), &["finalImagePullspec: \"os\" names no registry"]),
        (|c| set(c, "finalImagePullspec", "registry/os:1"), &["without a dot"]),
        (|c| set(c, "finalImagePullspec", "registry.test/os@sha256:1"), &["has a digest"]),
        (|c| set(c, "finalImagePullspec", "registry.test/o s:1"), &["is not the name of an image"]),
        (|c| set(c, "imageBuilderType", "kaniko"), &["imageBuilderType: \"kaniko\"", "custom-pod-builder"]),
        (
            |c| c.os_image = Some(map(&[("osImageURL", "a")])),
            &["machine-config-osimageurl: baseOSContainerImage"],
        ),
        (
            |c| c.os_image = Some(map(&[("baseOSContainerImage", "registry.test/os:1")])),
            &["not named by digest", "skopeo"],
        ),
        (
            |c| c.containerfiles = Some(map(&[("worker", &"a".repeat(4097))])),
            &["custom-dockerfile: worker", "4097"],
        ),
        (
            |c| c.pool.spec.machine_config_selector = object(json!({ "matchLabels": { ROLE: "infra" } })),
            &["does not select MachineConfig 05-osimageurl-worker", "role=worker"],
        ),
    ];
    for (change, parts) in table {
        let mut broken = cluster();
        change(&mut broken);
        let error = broken.refused();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}: {parts:?}");
        // Nothing that is there is lost by it.
        let mut later = cluster();
        later.settle();
        change(&mut later);
        assert!(!matches!(later.next(), Ok(Some(Action::DeleteOsConfig { .. }))));
    }
    let mut taken = cluster();
    let own =
        json!({ "metadata": { "name": "05-osimageurl-worker", "labels": { ROLE: "worker" } }, "spec": {} });
    taken.configs.insert("05-osimageurl-worker".to_owned(), object(own));
    assert!(taken.refused().contains("rename it"));
}

#[test]
fn pull_spec_gets_a_tag_where_it_has_none() {
    let service = "image-registry.openshift-image-registry.svc:5000/ns/os-image";
    let table = [
        ("registry.test/os", "registry.test/os:latest"),
        ("registry.test:5000/a/b", "registry.test:5000/a/b:latest"),
        ("registry.test:5000/a/b:c", "registry.test:5000/a/b:c"),
        (service, "image-registry.openshift-image-registry.svc:5000/ns/os-image:latest"),
    ];
    for (text, expected) in table {
        let mut cluster = cluster();
        cluster.settings.as_mut().unwrap().insert("finalImagePullspec".to_owned(), text.to_owned());
        cluster.settle();
        assert_eq!(cluster.os_config.unwrap().spec.rendered_image_push_spec, expected);
    }
}

fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// The type of the condition that is True, of the four.
fn truth(conditions: &[Condition]) -> Vec<(&str, &str)> {
    let own = ["BuildPending", "Building", "BuildSuccess", "BuildFailed"];
    let all = conditions.iter().filter(|one| own.contains(&&*one.type_) && one.status == "True");
    all.map(|one| (one.type_.as_str(), one.message.as_deref().unwrap_or_default())).collect()
}

#[test]
fn results_are_on_the_pool_and_go_with_the_label() {
    let mut pool = cluster().pool;
    let foreign =
        json!([{ "type": "Updated", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z" }]);
    pool.status = object(json!({ "conditions": foreign }));
    let of = |state| Layering::Build { machine_os_build: "worker-1".to_owned(), state };
    let table = [
        (Layering::None, "BuildPending"),
        (Layering::Waiting { machine_os_config: "worker".to_owned() }, "BuildPending"),
        (of(BuildState::Prepared), "BuildPending"),
        (of(BuildState::Building), "Building"),
        (of(BuildState::Failed), "BuildFailed"),
        (of(BuildState::Interrupted), "BuildFailed"),
        (of(BuildState::Unpublished), "BuildSuccess"),
        (of(BuildState::Built(image("os"))), "BuildSuccess"),
    ];
    for (layering, expected) in table {
        let results = results(&pool, &layering, None, now());
        let known = pool.status.clone().unwrap().conditions.unwrap();
        let conditions = results.conditions.clone().unwrap_or(known);
        let found = truth(&conditions);
        assert!(
            found.len() == 1 && found[0].0 == expected && !found[0].1.is_empty(),
            "{layering:?}: {found:?}"
        );
        pool.status.as_mut().unwrap().conditions = Some(conditions);
        if let Some(image) = results.image {
            pool.metadata.annotations = image.map(|image| BTreeMap::from([(NEWEST_IMAGE.to_owned(), image)]));
        }
        assert_eq!(super::results(&pool, &layering, None, now()), Results::default(), "twice is once");
    }
    assert_eq!(pool.metadata.annotations.as_ref().unwrap()[NEWEST_IMAGE], image("os"));
    // The next build does not take it away.
    assert_eq!(results(&pool, &of(BuildState::Building), None, now()).image, None);
    let refused = results(&pool, &Layering::None, Some("ConfigMap a/b: why"), now()).conditions.unwrap();
    assert_eq!(truth(&refused), [("BuildPending", "The image can't be built: ConfigMap a/b: why")]);
    pool.metadata.labels = None;
    let left = results(&pool, &Layering::None, None, now());
    assert_eq!(
        left.conditions.unwrap().iter().map(|one| one.type_.as_str()).collect::<Vec<_>>(),
        ["Updated"]
    );
    assert_eq!(left.image, Some(None));
}

/// The cause of a failed build is that of the condition `ImageBuildDegraded`.
#[test]
fn failure_is_reported_with_its_cause() {
    let mut pool = cluster().pool;
    let degraded = json!([{ "type": "ImageBuildDegraded", "status": "True", "message": "RUN false failed" }]);
    pool.status = object(json!({ "conditions": degraded }));
    let failed = Layering::Build { machine_os_build: "worker-1".to_owned(), state: BuildState::Failed };
    let conditions = results(&pool, &failed, None, now()).conditions.unwrap();
    assert_eq!(truth(&conditions), [("BuildFailed", "RUN false failed")]);
    // Text that can't be built has no build.
    for (reason, kind) in [("BuildFailed", "BuildFailed"), ("BuildPending", "BuildPending")] {
        let degraded = json!([{ "type": "ImageBuildDegraded", "status": "True", "reason": reason, "message": "line 2" }]);
        pool.status = object(json!({ "conditions": degraded }));
        let conditions = results(&pool, &Layering::None, None, now()).conditions.unwrap();
        assert_eq!(truth(&conditions), [(kind, "line 2")]);
    }
}
