//! Where the image of a pool's target comes from, as the build controller writes it.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::Value;

use crate::rollout::{BuildState, Layering};

/// What of a `MachineOSConfig` is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OsConfig {
    pool: String,
    image: Option<String>,
}

/// What of a `MachineOSBuild` is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OsBuild {
    pub(super) config: String,
    os_config: String,
    image: Option<String>,
    state: Option<&'static str>,
}

fn text(object: &DynamicObject, pointer: &str) -> String {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl OsConfig {
    pub(super) fn of(object: &DynamicObject) -> Self {
        Self {
            pool: text(object, "/spec/machineConfigPool/name"),
            image: some(text(object, "/status/currentImagePullSpec")),
        }
    }
}

impl OsBuild {
    pub(super) fn of(object: &DynamicObject) -> Self {
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = |kind: &str| {
            let mut all = conditions.into_iter().flatten();
            all.any(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        // An end before what led to it.
        let states = ["Succeeded", "Failed", "Interrupted", "Building", "Prepared"];
        Self {
            config: text(object, "/spec/machineConfig/name"),
            os_config: text(object, "/spec/machineOSConfig/name"),
            image: some(text(object, "/status/digestedImagePushSpec")),
            state: states.into_iter().find(|state| is_true(state)),
        }
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
    let mut candidates: Vec<(&String, &OsBuild)> =
        builds.iter().filter(|(_, build)| &build.os_config == name && build.config == target).collect();
    // Two builds of one config: another Containerfile. The one whose image is named is meant, else the newest by what it did.
    candidates.sort_by_key(|(_, build)| (build.image != config.image, build.state != Some("Succeeded")));
    let Some((build_name, build)) = candidates.first() else {
        return Layering::Waiting { machine_os_config: name.clone() };
    };
    let state = match (build.state, &build.image) {
        (Some("Succeeded"), Some(image)) if config.image.as_ref() == Some(image) => {
            BuildState::Built(image.clone())
        }
        (Some("Succeeded"), _) => BuildState::Unpublished,
        (Some("Failed"), _) => BuildState::Failed,
        (Some("Interrupted"), _) => BuildState::Interrupted,
        (Some("Building"), _) => BuildState::Building,
        (Some("Prepared"), _) => BuildState::Prepared,
        _ => BuildState::Initial,
    };
    Layering::Build { machine_os_build: (*build_name).clone(), state }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
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
        let waiting = Layering::Waiting { machine_os_config: "worker".to_owned() };
        assert_eq!(state(&image, build("a", "Succeeded")), waiting);
        assert_eq!(layering("worker", "b", &BTreeMap::new(), &BTreeMap::new()), Layering::None);
    }
}
