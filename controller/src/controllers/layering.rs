//! Image source of a pool's target, from the objects of the build controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::build::reduce;
use crate::api::{MachineOSConfig, MachineOSConfigSpec};
use crate::build::{self, BUILD_NAMESPACE, Build, BuilderType, IMAGE_BUILDER, PUSH_SECRET, State, job_name};
use crate::opt_in::is_made;
use crate::reading::{of_tree, spec_of_tree};
use crate::rollout::{BuildState, Layering};
use crate::seed;
use crate::view::ObservedBuild;
use crate::watches::version::is_older;

/// Cached fields of a `MachineOSConfig`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OsConfig {
    pub(super) version: String,
    pub(super) pool: String,
    /// Its spec, or the cause that it can't be read, without the spec's text.
    pub(super) spec: Result<MachineOSConfigSpec, String>,
    pub(super) build: build::OsConfig,
    /// Builder of the next build.
    pub(super) builder: BuilderType,
    /// Source of the component that its pool is rendered with.
    pub(super) seed: seed::Source,
    /// The whole of one that was made from a pool's label.
    pub(super) made: Option<Arc<MachineOSConfig>>,
}

/// Cached fields of a `MachineOSBuild`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OsBuild {
    pub(super) version: String,
    pub(super) config: String,
    pub(super) os_config: String,
    /// The tag that the image is pushed to.
    pub(super) push_spec: String,
    /// The Secret that may delete its image.
    pub(super) push_secret: Option<String>,
    pub(super) build: Build,
    pub(super) builder: BuilderType,
    /// Its start, and its entry into the state.
    began: Option<Timestamp>,
    since: Option<Timestamp>,
    /// Namespace and name of its Job, or of its Build of OpenShift.
    job: Option<(String, String)>,
}

/// Pods of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuildPods {
    pub(super) namespace: String,
    /// Their label.
    pub(super) selector: String,
    /// The container that builds.
    pub(super) container: &'static str,
}

fn text(object: &DynamicObject, pointer: &str) -> String {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl OsConfig {
    pub(super) fn of(object: &DynamicObject) -> Self {
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let spec: Result<MachineOSConfigSpec, String> = spec_of_tree(&spec);
        let builder = spec.as_ref().map_or("", |spec| spec.image_builder.image_builder_type.as_str());
        let pool = text(object, "/spec/machineConfigPool/name");
        Self {
            version: object.resource_version().unwrap_or_default(),
            pool: pool.clone(),
            build: build::OsConfig {
                unreadable: spec.as_ref().err().map(|cause| unreadable(object, cause)),
                ..reduce::os_config(object)
            },
            builder: builder_type(object, builder),
            spec,
            seed: seed::Source {
                name: object.metadata.name.clone().unwrap_or_default(),
                uid: object.metadata.uid.clone().unwrap_or_default(),
                pool,
                image: seed::image(object.metadata.annotations.as_ref()),
            },
            made: made(object),
        }
    }

    /// Returns true if this one was read before another one.
    pub(super) fn is_older(&self, than: &Self) -> bool {
        is_older(&self.version, &than.version)
    }
}

fn builder_type(object: &DynamicObject, spec: &str) -> BuilderType {
    BuilderType::new(object.annotations().get(IMAGE_BUILDER).map(String::as_str), spec)
}

/// Says that a spec can't be read: object, cause and next step.
fn unreadable(object: &DynamicObject, cause: &str) -> String {
    let name = object.name_any();
    format!(
        "the spec of MachineOSConfig {name} can't be read: {cause}; correct it with `kubectl edit machineosconfig {name}`"
    )
}

/// Reads an object that was made from a pool's label: its definition lets nothing else be written.
fn made(object: &DynamicObject) -> Option<Arc<MachineOSConfig>> {
    let tree = is_made(&object.metadata).then(|| serde_json::to_value(object))?.ok()?;
    of_tree::<MachineOSConfig>(&tree).ok().map(|found| Arc::new(found.value))
}

/// Returns namespace and name of what carries a build out, where that is known.
fn job(object: &DynamicObject) -> Option<(String, String)> {
    let field = |field: &str| text(object, &format!("/status/builder/job/{field}"));
    let job = (field("namespace"), field("name"));
    let own = || {
        let namespace = object.annotations().get(BUILD_NAMESPACE)?.clone();
        Some((namespace, job_name(&object.name_any())))
    };
    Some(job).filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty()).or_else(own)
}

impl OsBuild {
    pub(super) fn of(object: &DynamicObject) -> Self {
        let build = reduce::build(object);
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let mut held = conditions.into_iter().flatten();
        let held = held.find(|held| held["type"].as_str() == build.state.condition());
        let since = held.and_then(|held| held["lastTransitionTime"].as_str()).unwrap_or_default();
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
        let began = Some(text(object, "/status/buildStart")).filter(|began| !began.is_empty()).or(created);
        Self {
            version: object.resource_version().unwrap_or_default(),
            config: text(object, "/spec/machineConfig/name"),
            os_config: text(object, "/spec/machineOSConfig/name"),
            push_spec: text(object, "/spec/renderedImagePushSpec"),
            builder: builder_type(object, ""),
            push_secret: object.annotations().get(PUSH_SECRET).cloned(),
            build,
            began: began.and_then(|began| began.parse().ok()),
            since: since.parse().ok(),
            job: job(object),
        }
    }

    /// Returns the pods that build it, if there are any: they may write lines.
    pub(super) fn pods(&self) -> Option<BuildPods> {
        let (namespace, name) = self.job.as_ref().filter(|_| self.build.state == State::Building)?;
        let (label, container) = match self.builder {
            BuilderType::Job => ("batch.kubernetes.io/job-name", "image-build"),
            BuilderType::OpenShiftBuild => ("openshift.io/build.name", "docker-build"),
            BuilderType::Unknown(_) => return None,
        };
        Some(BuildPods { namespace: namespace.clone(), selector: format!("{label}={name}"), container })
    }

    /// Returns it as a person sees it.
    pub(super) fn view(
        &self,
        name: &str,
        configs: &BTreeMap<String, OsConfig>,
        last_line: Option<&String>,
    ) -> ObservedBuild {
        ObservedBuild {
            name: name.to_owned(),
            pool: configs.get(&self.os_config).map(|config| config.pool.clone()).unwrap_or_default(),
            config: self.config.clone(),
            state: self.build.state.condition(),
            began: self.began,
            since: self.since,
            message: self.build.message.clone(),
            last_line: last_line.cloned(),
        }
    }

    /// Returns true if this one was read before another one.
    pub(super) fn is_older(&self, than: &Self) -> bool {
        is_older(&self.version, &than.version)
    }
}

/// Returns where the image of a pool's target comes from.
pub(super) fn layering(
    pool: &str,
    target: &str,
    configs: &BTreeMap<String, OsConfig>,
    builds: &BTreeMap<String, OsBuild>,
) -> Layering {
    let Some((name, config)) = configs.iter().find(|(_, config)| config.pool == pool) else {
        return Layering::None;
    };
    let is_candidate =
        |build: &OsBuild| &build.os_config == name && build.config == target && !build.build.deleting;
    let mut candidates: Vec<(&String, &OsBuild)> =
        builds.iter().filter(|(_, build)| is_candidate(build)).collect();
    // Two builds of one config: another Containerfile. One that has not ended is the one that is meant now (one at a time runs): a node
    // that is given the image of the other one reboots twice. Else the one whose image is named, else the newest by what it did.
    let is_published = |of: &OsBuild| of.build.image.is_some() && of.build.image == config.build.image;
    let is_over = is_superseded(config) || names_unread_build(config, builds);
    let is_old = |of: &OsBuild| is_published(of) && is_over;
    candidates.sort_by_key(|(_, of)| {
        let state = of.build.state;
        (state.is_final(), is_old(of), !is_published(of), state != State::Succeeded)
    });
    let Some((build_name, build)) = candidates.first().filter(|(_, of)| !is_old(of)) else {
        return Layering::Waiting { machine_os_config: name.clone() };
    };
    let state = match (build.build.state, &build.build.image) {
        (State::Succeeded, Some(image)) if config.build.image.as_ref() == Some(image) => {
            BuildState::Built(image.clone())
        }
        (State::Succeeded, _) => BuildState::Unpublished,
        (State::Failed, _) => BuildState::Failed,
        (State::Interrupted, _) => BuildState::Interrupted,
        (State::Building, _) => BuildState::Building,
        (State::Prepared, _) => BuildState::Prepared,
        (State::Initial, _) => BuildState::Initial,
    };
    Layering::Build { machine_os_build: (*build_name).clone(), state }
}

/// Returns true if the image that is published is of an earlier spec: the one of this spec has yet to be built or published.
fn is_superseded(config: &OsConfig) -> bool {
    config.build.observed > 0 && config.build.observed < config.build.generation
}

/// Returns true if the build that is named as the current one was not read yet: the image that is published is of the one before.
fn names_unread_build(config: &OsConfig, builds: &BTreeMap<String, OsBuild>) -> bool {
    config.build.current.as_ref().is_some_and(|name| !name.is_empty() && !builds.contains_key(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::CURRENT_BUILD;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn running_build_has_pods_of_its_builder() {
        let build = |builder: &str, status: Value, state: &str| {
            let mut status = status;
            status["conditions"] = json!([{ "type": state, "status": "True" }]);
            OsBuild::of(&object(json!({
                "metadata": { "name": "worker-1", "annotations": {
                    IMAGE_BUILDER: builder, BUILD_NAMESPACE: "ns",
                } },
                "status": status,
            })))
        };
        let job = json!({ "builder": { "job": { "namespace": "jobs", "name": "build-worker-1" } } });
        let pods = build("Job", job, "Building").pods().unwrap();
        assert_eq!((&*pods.namespace, pods.container), ("jobs", "image-build"));
        assert_eq!(pods.selector, "batch.kubernetes.io/job-name=build-worker-1");
        let pods = build("OpenShiftBuild", json!({}), "Building").pods().unwrap();
        assert_eq!((&*pods.namespace, pods.container), ("ns", "docker-build"));
        assert_eq!(pods.selector, "openshift.io/build.name=build-worker-1");
        assert_eq!(build("OpenShiftBuild", json!({}), "Succeeded").pods(), None);
        assert_eq!(build("Mine", json!({}), "Building").pods(), None);
    }

    /// OCL-022: nodes wait until build and config agree on the digest.
    #[test]
    fn image_is_known_when_build_and_config_agree() {
        let image = format!("example.com/os@sha256:{}", "a".repeat(64));
        let config = |image: &str| {
            OsConfig::of(&object(json!({
                "metadata": { "name": "worker" },
                "spec": { "machineConfigPool": { "name": "worker" } },
                "status": { "currentImagePullSpec": image },
            })))
        };
        let build = |config: &str, state: &str| {
            OsBuild::of(&object(json!({
                "metadata": { "name": "worker-1" },
                "spec": { "machineConfig": { "name": config }, "machineOSConfig": { "name": "worker" } },
                "status": {
                    "digestedImagePushSpec": image,
                    "conditions": [
                        { "type": "Building", "status": "True" },
                        { "type": state, "status": "True" },
                    ],
                },
            })))
        };
        let state = |image: &str, build: OsBuild| {
            let configs = BTreeMap::from([("worker".to_owned(), config(image))]);
            layering("worker", "b", &configs, &BTreeMap::from([("worker-1".to_owned(), build)]))
        };
        let of = |state: BuildState| Layering::Build { machine_os_build: "worker-1".to_owned(), state };
        assert_eq!(state(&image, build("b", "Succeeded")), of(BuildState::Built(image.clone())));
        assert_eq!(state("", build("b", "Succeeded")), of(BuildState::Unpublished));
        assert_eq!(state("other", build("b", "Succeeded")), of(BuildState::Unpublished));
        assert_eq!(state(&image, build("b", "Failed")), of(BuildState::Failed));
        let mut deleted = build("b", "Succeeded");
        deleted.build.deleting = true;
        assert!(matches!(state(&image, deleted), Layering::Waiting { .. }), "its image goes with it");
        let waiting = Layering::Waiting { machine_os_config: "worker".to_owned() };
        assert_eq!(state(&image, build("a", "Succeeded")), waiting);
        assert_eq!(layering("worker", "b", &BTreeMap::new(), &BTreeMap::new()), Layering::None);
    }

    /// A build controller names its next build on the `MachineOSConfig`, and the build itself is read a moment later.
    #[test]
    fn nodes_wait_for_build_that_is_named_and_not_read() {
        let image = format!("example.com/os@sha256:{}", "a".repeat(64));
        let found = |current: &str| {
            let config = OsConfig::of(&object(json!({
                "metadata": { "name": "worker", "annotations": { CURRENT_BUILD: current } },
                "spec": { "machineConfigPool": { "name": "worker" } },
                "status": { "currentImagePullSpec": image },
            })));
            let build = OsBuild::of(&object(json!({
                "metadata": { "name": "worker-1" },
                "spec": { "machineConfig": { "name": "b" }, "machineOSConfig": { "name": "worker" } },
                "status": {
                    "digestedImagePushSpec": image,
                    "conditions": [{ "type": "Succeeded", "status": "True" }],
                },
            })));
            let builds = BTreeMap::from([("worker-1".to_owned(), build)]);
            layering("worker", "b", &BTreeMap::from([("worker".to_owned(), config)]), &builds)
        };
        let built = Layering::Build {
            machine_os_build: "worker-1".to_owned(),
            state: BuildState::Built(image.clone()),
        };
        assert_eq!(found("worker-1"), built);
        assert_eq!(found(""), built);
        assert_eq!(found("worker-2"), Layering::Waiting { machine_os_config: "worker".to_owned() });
    }

    /// A new Containerfile while the image of the old one is rolled out: each node would reboot for either.
    #[test]
    fn nodes_wait_for_image_of_new_spec() {
        let image = |digit: &str| format!("example.com/os@sha256:{}", digit.repeat(64));
        let config = |generation: u8, observed: u8| {
            OsConfig::of(&object(json!({
                "metadata": { "name": "worker", "generation": generation },
                "spec": { "machineConfigPool": { "name": "worker" } },
                "status": { "currentImagePullSpec": image("1"), "observedGeneration": observed },
            })))
        };
        let build = |digit: &str, state: &str| {
            let done = if state == "Succeeded" { json!(image(digit)) } else { json!(null) };
            OsBuild::of(&object(json!({
                "metadata": { "name": "worker-1" },
                "spec": { "machineConfig": { "name": "b" }, "machineOSConfig": { "name": "worker" } },
                "status": { "digestedImagePushSpec": done, "conditions": [{ "type": state, "status": "True" }] },
            })))
        };
        let found = |config: OsConfig, new: Option<&str>| {
            let old = ("worker-1".to_owned(), build("1", "Succeeded"));
            let new = new.map(|state| ("worker-2".to_owned(), build("2", state)));
            let builds: BTreeMap<String, OsBuild> = [old].into_iter().chain(new).collect();
            layering("worker", "b", &BTreeMap::from([("worker".to_owned(), config)]), &builds)
        };
        let of = |name: &str, state: BuildState| Layering::Build {
            machine_os_build: format!("worker-{name}"),
            state,
        };
        let old = || of("1", BuildState::Built(image("1")));
        assert_eq!(found(config(1, 1), None), old());
        // Not built yet, being built, built and not published, failed.
        assert!(matches!(found(config(2, 1), None), Layering::Waiting { .. }));
        assert_eq!(found(config(2, 1), Some("Building")), of("2", BuildState::Building));
        assert_eq!(found(config(2, 2), Some("Building")), of("2", BuildState::Building));
        assert_eq!(found(config(2, 1), Some("Succeeded")), of("2", BuildState::Unpublished));
        assert_eq!(found(config(2, 1), Some("Failed")), of("2", BuildState::Failed));
        // The old text again: its image was published for it.
        assert_eq!(found(config(3, 3), Some("Failed")), old());
        assert_eq!(found(config(3, 3), Some("Succeeded")), old());
        // A program that does not say what it observed.
        assert_eq!(found(config(2, 0), None), old());
    }
}
