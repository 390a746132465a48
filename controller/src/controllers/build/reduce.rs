//! `MachineOSConfig`s and `MachineOSBuild`s reduced for [`crate::build`].

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::api::{CURRENT_BUILD, PRE_BUILT_IMAGE, controller_of};
use crate::build::{
    Build, FINALIZER, IMAGE_INPUTS, JOB_UID, NO_REUSE, OsConfig, PRE_BUILT, REBUILD, REPLACES, State,
};

fn text(object: &DynamicObject, pointer: &str) -> Option<String> {
    let text = object.data.pointer(pointer).and_then(Value::as_str);
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

fn annotation(object: &DynamicObject, name: &str) -> Option<String> {
    object.annotations().get(name).filter(|text| !text.is_empty()).cloned()
}

/// Returns the condition of a type, where it is True.
fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    let mut all = object.data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.find(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Takes what decides how the image of a pool is built.
pub(in crate::controllers) fn os_config(object: &DynamicObject) -> OsConfig {
    OsConfig {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        pre_built: annotation(object, PRE_BUILT_IMAGE),
        current: annotation(object, CURRENT_BUILD),
        rebuild: object.annotations().contains_key(REBUILD),
        replaces: annotation(object, REPLACES),
        image: text(object, "/status/currentImagePullSpec"),
        image_of: text(object, "/status/machineOSBuild/name"),
        observed: object
            .data
            .pointer("/status/observedGeneration")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
        seeded: condition(object, "Seeded").is_some(),
        unreadable: None,
    }
}

/// Takes what decides about a build. An end before what led to it.
pub(in crate::controllers) fn build(object: &DynamicObject) -> Build {
    let states = [State::Succeeded, State::Failed, State::Interrupted, State::Building, State::Prepared];
    let found =
        states.into_iter().find_map(|state| Some((state, condition(object, state.condition()?)?.clone())));
    let (state, condition) = found.unwrap_or_default();
    let word = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let owner = controller_of(&object.metadata, "MachineOSConfig");
    Build {
        uid: object.uid().unwrap_or_default(),
        owner: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
        inputs: annotation(object, IMAGE_INPUTS).unwrap_or_default(),
        pre_built: object.labels().contains_key(PRE_BUILT),
        no_reuse: object.annotations().contains_key(NO_REUSE),
        job_uid: annotation(object, JOB_UID),
        state,
        reason: word("reason"),
        message: word("message"),
        image: text(object, "/status/digestedImagePushSpec"),
        deleting: object.metadata.deletion_timestamp.is_some(),
        has_finalizer: object.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn build_is_read_with_its_end() {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {
                "name": "worker-1", "uid": "u", "finalizers": [FINALIZER, "other"],
                "annotations": { JOB_UID: "j", IMAGE_INPUTS: "i", NO_REUSE: "" },
                "ownerReferences": [{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
                    "name": "worker", "uid": "c", "controller": true }],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "status": {
                "digestedImagePushSpec": "r.test/os@sha256:1",
                "conditions": [
                    { "type": "Building", "status": "True", "reason": "Building", "message": "b" },
                    { "type": "Succeeded", "status": "True", "reason": "Ready", "message": "m" },
                    { "type": "Failed", "status": "False", "reason": "Failed", "message": "f" },
                ],
            },
        }))
        .unwrap();
        let expected = Build {
            uid: "u".to_owned(),
            owner: "c".to_owned(),
            inputs: "i".to_owned(),
            pre_built: false,
            no_reuse: true,
            job_uid: Some("j".to_owned()),
            state: State::Succeeded,
            reason: "Ready".to_owned(),
            message: "m".to_owned(),
            image: Some("r.test/os@sha256:1".to_owned()),
            deleting: true,
            has_finalizer: true,
        };
        assert_eq!(build(&object), expected);
    }
}
