//! The ImageBasedUpgrade as a desire, and the report as its status. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::singleton::LcaObject;
use crate::control::lifecycle::LifecycleReport;
use crate::stateroot::TrialRules;
use crate::stateroot::lifecycle::{Desire, MANUAL_CLEANUP, SeedRef, Source, Stage};

/// The annotations that opt out of the return: of a system that does not prove itself, and of one in which the upgrade can't be
/// completed. Their value is [`DISABLED`].
const INIT_MONITOR: &str = "auto-rollback-on-failure.lca.openshift.io/init-monitor";
const COMPLETION: &str = "auto-rollback-on-failure.lca.openshift.io/upgrade-completion";
const DISABLED: &str = "Disabled";

/// Longest trial, as that of `stateroot activate`.
const MAX_TRIAL_SECONDS: u64 = 604_800;

/// Most bytes of an object that are stored in the agent's state.
const MAX_STORED_BYTES: usize = 256 * 1024;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    stage: Option<Stage>,
    seed_image_ref: SeedRef,
    auto_rollback_on_failure: AutoRollback,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct AutoRollback {
    init_monitor_timeout_seconds: u64,
}

/// Reads the object.
pub(super) fn desire(object: &LcaObject) -> Result<Desire, String> {
    let spec = if object.spec.is_null() { json!({}) } else { object.spec.clone() };
    let read: Spec = serde_json::from_value(spec).map_err(|error| format!("spec: {error}"))?;
    let mut trial =
        TrialRules { returns: object.annotation(INIT_MONITOR) != Some(DISABLED), ..TrialRules::default() };
    // Zero is the default, as for lifecycle-agent.
    let seconds = read.auto_rollback_on_failure.init_monitor_timeout_seconds.min(MAX_TRIAL_SECONDS);
    if seconds > 0 {
        trial.within = seconds;
    }
    let stored = json!({ "annotations": object.annotations(), "spec": object.spec });
    Ok(Desire {
        stage: read.stage.unwrap_or_default(),
        seed: read.seed_image_ref,
        trial,
        keeps_incomplete: object.annotation(COMPLETION) == Some(DISABLED),
        is_cleaned_up: object.annotation(MANUAL_CLEANUP).is_some(),
        generation: object.metadata.generation,
        source: Source::Cluster,
        object: Some(stored).filter(|stored| stored.to_string().len() <= MAX_STORED_BYTES),
    })
}

/// Returns annotations and spec of an object that is made from the agent's state.
pub(super) fn remembered(last: Option<&LifecycleReport>) -> (BTreeMap<String, String>, Value) {
    let desire = last.map(|report| &report.state.desire);
    let stored = desire.and_then(|desire| desire.object.as_ref());
    let annotations =
        stored.and_then(|stored| serde_json::from_value(stored.get("annotations")?.clone()).ok());
    let spec = stored.and_then(|stored| stored.get("spec")).filter(|spec| spec.is_object()).cloned();
    let named = || {
        let (stage, seed) =
            desire.map_or((Stage::Idle, SeedRef::default()), |desire| (desire.stage, desire.seed.clone()));
        let mut spec = json!({ "stage": stage });
        if let Some(fields) = spec.as_object_mut().filter(|_| !seed.image.is_empty()) {
            fields.insert("seedImageRef".to_owned(), json!(seed));
        }
        spec
    };
    (annotations.unwrap_or_default(), spec.unwrap_or_else(named))
}

/// Returns true if the object is the one of the agent's state.
pub(super) fn is_same(object: &LcaObject, report: &LifecycleReport) -> bool {
    remembered(Some(report)).1 == object.spec
}

/// Returns the status; a field that is null is removed.
pub(super) fn status(report: &LifecycleReport) -> Value {
    let valid = if report.valid.is_empty() { Value::Null } else { json!(report.valid) };
    json!({
        "observedGeneration": report.state.desire.generation,
        "conditions": report.state.conditions,
        "validNextStages": valid,
    })
}

#[cfg(test)]
mod tests {
    use super::super::singleton::object;
    use super::*;
    use crate::stateroot::lifecycle::{Conditions, Lifecycle};

    #[test]
    fn object_is_read_as_a_desire() {
        let read = desire(&object(json!({
            "metadata": {"uid": "u", "generation": 7, "resourceVersion": "9", "annotations": {
                "auto-rollback-on-failure.lca.openshift.io/init-monitor": "Disabled", "other/x": "y"}},
            "spec": {"stage": "Upgrade", "seedImageRef": {"version": "4.17.2", "image": "r.test/a@sha256:0",
                "pullSecretRef": {"name": "p"}}, "autoRollbackOnFailure": {"initMonitorTimeoutSeconds": 60},
                "extraManifests": [{"name": "a", "namespace": "b"}]},
        })))
        .unwrap();
        assert_eq!((read.stage, read.generation, &*read.seed.version), (Stage::Upgrade, 7, "4.17.2"));
        assert_eq!((&read.trial, read.keeps_incomplete), (&TrialRules { within: 60, returns: false }, false));
        let stored = read.object.clone().unwrap();
        assert_eq!(stored["annotations"].as_object().unwrap().len(), 1, "those of others are not kept");
        let state = Lifecycle::new(read, Conditions::default());
        let report = LifecycleReport { state, valid: Vec::new(), fault: None };
        let (annotations, spec) = remembered(Some(&report));
        assert_eq!((annotations.len(), &spec), (1, &stored["spec"]));
        assert!(status(&report)["validNextStages"].is_null());
    }

    #[test]
    fn absent_fields_are_the_defaults() {
        let read = desire(&object(json!({"metadata": {}}))).unwrap();
        assert_eq!((read.stage, read.trial), (Stage::Idle, TrialRules::default()));
        let completion = json!({"metadata": {"annotations": {COMPLETION: "Disabled"}}});
        assert!(desire(&object(completion)).unwrap().keeps_incomplete);
        let zero = json!({"autoRollbackOnFailure": {"initMonitorTimeoutSeconds": 0}});
        assert_eq!(desire(&object(json!({"metadata": {}, "spec": zero}))).unwrap().trial.within, 1800);
        assert!(desire(&object(json!({"metadata": {}, "spec": {"stage": "Other"}}))).is_err());
        assert_eq!(remembered(None).1, json!({"stage": "Idle"}));
    }
}
