//! A build and its status, as they are written.

use jiff::{SignedDuration, Timestamp, Unit};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::group::Group;
use crate::build::{
    BuilderType, DesiredBuild, FINALIZER, IMAGE_BUILDER, IMAGE_INPUTS, MACHINE_OS_BUILD, NO_REUSE, PRE_BUILT,
    PUSH_SECRET, State, Status, job_name, label, push_spec,
};

/// The conditions of a build, with reason and message where they are not True.
const CONDITIONS: [(State, &str, &str, &str); 5] = [
    (State::Prepared, "Prepared", "Prepared", "Build Prepared and Pending"),
    (State::Building, "Building", "Building", "Image Build In Progress"),
    (State::Failed, "Failed", "Failed", "Build Failed"),
    (State::Interrupted, "Interrupted", "Interrupted", "Build Interrupted"),
    (State::Succeeded, "Succeeded", "Ready", "Build Ready"),
];

/// The message of the conditions that are False where no Job ran.
const NO_JOB: &str = "No Job ran for this build";

/// The longest message of a condition.
const MAX_MESSAGE: usize = 32768;

/// The desired build, without a status.
pub(super) fn build(group: &Group, desired: &DesiredBuild, pre_built: bool, no_reuse: bool) -> Option<Value> {
    let config = group.os_config.as_ref()?;
    let (spec, (target, _)) = (config.spec.as_ref().ok()?, group.target()?);
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let mut object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineOSBuild",
        "metadata": {
            "name": desired.name,
            "labels": {
                key("machine-os-config"): label(&group.name),
                key("target-machine-config-pool"): label(&config.pool),
                key("rendered-machine-config"): label(&target),
                MACHINE_OS_BUILD: label(&desired.name),
            },
            "annotations": {
                IMAGE_INPUTS: desired.inputs,
                PUSH_SECRET: spec.rendered_image_push_secret.name,
            },
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineOSConfig",
                "name": group.name,
                "uid": config.build.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "machineConfig": { "name": target },
            "machineOSConfig": { "name": group.name },
            "renderedImagePushSpec": push_spec(&spec.rendered_image_push_spec, &desired.name),
        },
    });
    let mut add = |kind: &str, name: &str, value: &str| {
        if let Some(all) = object.pointer_mut(&format!("/metadata/{kind}")).and_then(Value::as_object_mut) {
            all.insert(name.to_owned(), json!(value));
        }
    };
    if pre_built {
        add("labels", PRE_BUILT, "true");
    }
    if config.builder != BuilderType::Job {
        add("annotations", IMAGE_BUILDER, config.builder.as_str());
    }
    if no_reuse {
        add("annotations", NO_REUSE, "true");
    }
    Some(object)
}

/// The status of a build. What is set once stays.
pub(super) fn status(object: &DynamicObject, status: &Status, namespace: &str, now: Timestamp) -> Value {
    let name = object.metadata.name.clone().unwrap_or_default();
    let second = |time: Timestamp| time.round(Unit::Second).unwrap_or(time);
    let now = second(now);
    let mut new = json!({ "conditions": conditions(object, status, now) });
    let mut set = |field: &str, value: Value| {
        if let Some(new) = new.as_object_mut() {
            new.insert(field.to_owned(), value);
        }
    };
    if let Some(image) = &status.image {
        set("digestedImagePushSpec", json!(image));
    }
    // The definitions of builds allow no other type.
    if has_job(object) && annotation(object, IMAGE_BUILDER).is_none() {
        let job =
            json!({ "group": "batch", "resource": "jobs", "namespace": namespace, "name": job_name(&name) });
        set("builder", json!({ "imageBuilderType": "Job", "job": job }));
    }
    let old = |field: &str| object.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
    let start = old("buildStart").and_then(|start| start.parse::<Timestamp>().ok());
    if start.is_none() && (status.state == State::Building || status.state.is_final()) {
        // One that was over at once began before it ended.
        let before = SignedDuration::from_secs(i64::from(status.state.is_final()));
        set("buildStart", json!(now.checked_sub(before).unwrap_or(now).to_string()));
    }
    if status.state.is_final() {
        let earliest = start.and_then(|start| start.checked_add(SignedDuration::from_secs(1)).ok());
        set("buildEnd", json!(earliest.map_or(now, |earliest| second(earliest).max(now)).to_string()));
    }
    new
}

fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a String> {
    object.metadata.annotations.as_ref()?.get(name)
}

/// Returns true if a Job speaks for the build. Another one has an image that was there, or could not begin.
fn has_job(object: &DynamicObject) -> bool {
    annotation(object, crate::build::JOB_UID).is_some()
}

fn conditions(object: &DynamicObject, status: &Status, now: Timestamp) -> Vec<Value> {
    let old = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let one = |(state, kind, reason, message): (State, &str, &str, &str)| {
        let is_true = state == status.state;
        let word = if is_true { "True" } else { "False" };
        let before = old.into_iter().flatten().find(|old| old["type"] == kind && old["status"] == word);
        let since = before.and_then(|before| before["lastTransitionTime"].as_str().map(str::to_owned));
        let message = if has_job(object) { message } else { NO_JOB };
        let message: String =
            if is_true { status.message.chars().take(MAX_MESSAGE).collect() } else { message.to_owned() };
        json!({
            "type": kind,
            "status": word,
            "reason": if is_true { status.reason.as_str() } else { reason },
            "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| now.to_string()),
        })
    };
    CONDITIONS.map(one).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(status: &Value) -> DynamicObject {
        let metadata = json!({ "name": "b", "annotations": { crate::build::JOB_UID: "u" } });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn ended() -> Status {
        let image = Some("r.test/os@sha256:1".to_owned());
        Status {
            state: State::Succeeded,
            reason: "Ready".to_owned(),
            message: "Build Ready".to_owned(),
            image,
        }
    }

    /// The API server refuses an end that is not after the start, and a start that changes.
    #[test]
    fn end_is_after_start_whatever_the_clock_says() {
        let now: Timestamp = "2026-01-01T00:00:10.6Z".parse().unwrap();
        for (start, end) in [
            (json!({}), "2026-01-01T00:00:11Z"),
            (json!({ "buildStart": "2026-01-01T00:00:05Z" }), "2026-01-01T00:00:11Z"),
            (json!({ "buildStart": "2026-01-01T00:00:11Z" }), "2026-01-01T00:00:12Z"),
            (json!({ "buildStart": "2026-01-01T01:00:00Z" }), "2026-01-01T01:00:01Z"),
        ] {
            let written = status(&object(&start), &ended(), "n", now);
            assert_eq!(written["buildEnd"], end, "{start}");
            assert_eq!(written.get("buildStart").is_some(), start.get("buildStart").is_none());
            let begun = start.get("buildStart").unwrap_or(&written["buildStart"]);
            assert!(begun.as_str().unwrap() < end, "{start}");
        }
    }

    /// SEED-005: an image that was built before has start and end, no builder, and nothing that reads like a failure.
    #[test]
    fn build_without_job_has_start_and_end_and_no_failure() {
        let object = serde_json::from_value(json!({ "metadata": { "name": "b" } })).unwrap();
        let written = status(&object, &ended(), "n", "2026-01-01T00:00:00Z".parse().unwrap());
        assert!(written["buildStart"].as_str() < written["buildEnd"].as_str(), "{written}");
        assert!(
            written.get("builder").is_none() && !written.to_string().contains("Build Failed"),
            "{written}"
        );
        assert!(written.to_string().contains(NO_JOB), "{written}");
    }

    #[test]
    fn all_five_conditions_are_written_and_one_is_true() {
        let old = json!({ "conditions": [
            { "type": "Failed", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z" },
            { "type": "Succeeded", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z" },
        ]});
        let written = status(&object(&old), &ended(), "n", "2026-01-01T00:00:00Z".parse().unwrap());
        let conditions = written["conditions"].as_array().unwrap();
        let is_true = |one: &&Value| one["status"] == "True";
        assert_eq!(conditions.len(), 5);
        assert_eq!(
            conditions.iter().filter(is_true).map(|one| &one["type"]).collect::<Vec<_>>(),
            ["Succeeded"]
        );
        let since = |kind: &str| {
            conditions.iter().find(|one| one["type"] == kind).unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(
            (since("Failed"), since("Succeeded")),
            (json!("2025-01-01T00:00:00Z"), json!("2026-01-01T00:00:00Z"))
        );
    }
}
