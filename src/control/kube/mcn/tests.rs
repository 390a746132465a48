//! Writes over stored conditions, as tables. The report is the crate's own projection, as JSON.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::{Value, json};

use super::merge::{ConditionLayout, Cordons, MergeInput, changes, lists, name, pool, spec, status};
use super::stored::Stored;
use crate::report::{NodeReport, Status};

const THEN: &str = "2026-11-20T20:00:00Z";
const NOW: &str = "2026-11-20T21:00:00Z";

fn report(desired: &str, conditions: &[(&str, &str, &str)]) -> NodeReport {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| json!({ "type": kind, "status": status, "reason": reason, "message": "m" }))
        .collect();
    let report = json!({
        "schemaVersion": 1, "node": "worker-0", "state": "Working", "reason": "", "currentConfig": "rendered-worker-a",
        "desiredConfig": desired, "phase": "Idle", "conditions": conditions, "since": THEN,
    });
    serde_json::from_value(report).unwrap()
}

fn words(report: &NodeReport, form: ConditionLayout) -> MergeInput<'_> {
    MergeInput { report, form, cordons: Cordons::Controllers, now: NOW.to_owned() }
}

/// The object that results from a write: as the API server merges it, with one manager.
fn after(stored: &Stored, status: &Value) -> Stored {
    let keys: serde_json::Map<String, Value> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| (format!("k:{{\"type\":{}}}", condition["type"]), json!({})))
        .collect();
    let object = json!({
        "metadata": { "resourceVersion": "9", "generation": stored.generation, "managedFields": [{
            "manager": "machine-config-operator", "operation": "Apply", "subresource": "status",
            "fieldsV1": { "f:status": { "f:conditions": keys, "f:pinnedImageSets": {} } },
        }] },
        "spec": { "pool": { "name": stored.pool }, "configVersion": { "desired": stored.desired } },
        "status": status,
    });
    Stored::read(&object)
}

/// Writes a report as `Mcn` does; returns the statuses and what is stored in the end.
fn write(stored: &Stored, words: &MergeInput<'_>) -> (Vec<Value>, Stored) {
    let (mut stored, mut written) = (stored.clone(), Vec::new());
    for list in lists(&stored, words) {
        if let Some(next) = status(&stored, &list, words) {
            stored = after(&stored, &next);
            written.push(next);
        }
    }
    (written, stored)
}

fn summary(status: &Value, kind: &str) -> Option<String> {
    let all = status["conditions"].as_array()?;
    let one = all.iter().find(|condition| condition["type"] == kind)?;
    Some(format!("{} {}", one["status"].as_str()?, one["reason"].as_str()?))
}

const PREPARED: (&str, &str, &str) = ("UpdatePrepared", "True", "UpdatePrepared");
const NOT_UPDATED: (&str, &str, &str) = ("Updated", "False", "Updated");
const UPDATED: (&str, &str, &str) = ("Updated", "True", "Updated");
const FINE: (&str, &str, &str) = ("NodeDegraded", "False", "NodeDegraded");

/// MCN-005, MCD-247: the list is complete at once, in the form of the CRD.
#[test]
fn first_write_has_every_condition() {
    let report = report("rendered-worker-b", &[PREPARED, NOT_UPDATED, FINE]);
    for (form, count, has) in
        [(ConditionLayout::Joint, 15, "AppliedFilesAndOS"), (ConditionLayout::Split, 17, "AppliedOSImage")]
    {
        let (written, stored) = write(&Stored { generation: 3, ..Stored::default() }, &words(&report, form));
        assert_eq!(written.len(), 1);
        assert_eq!(stored.conditions.len(), count, "{form:?}");
        assert_eq!(summary(&written[0], has).unwrap(), "False NotYetOccurred");
        assert_eq!(summary(&written[0], "UpdatePrepared").unwrap(), "True UpdatePrepared");
        assert_eq!(written[0]["observedGeneration"], 4);
        assert_eq!(written[0]["configVersion"]["desired"], "rendered-worker-b");
        assert_eq!(write(&stored, &words(&report, form)).0, Vec::<Value>::new(), "MCD-248");
    }
}

/// Both parts become one: under way while one is, done when what there is is done.
#[test]
fn joint_form_joins_what_was_applied() {
    let rows = [
        (Some("Unknown"), Some("Unknown"), "Unknown UpdateExecutedAppliedFilesAndOS"),
        (Some("True"), Some("False"), "True UpdateExecutedAppliedFilesAndOS"),
        (Some("False"), Some("True"), "True UpdateExecutedAppliedFilesAndOS"),
        (Some("True"), Some("Unknown"), "Unknown UpdateExecutedAppliedFilesAndOS"),
        (Some("False"), Some("False"), "False NotYetOccurred"),
        (None, None, "False NotYetOccurred"),
    ];
    for (files, os, joined) in rows {
        let mut reported = vec![PREPARED, ("UpdateExecuted", "Unknown", "AppliedFiles"), NOT_UPDATED];
        reported.extend(files.map(|status| ("AppliedFiles", status, "UpdateExecutedAppliedFiles")));
        reported.extend(os.map(|status| ("AppliedOSImage", status, "UpdateExecutedAppliedOSImage")));
        let report = report("rendered-worker-b", &reported);
        let (written, _) = write(&Stored::default(), &words(&report, ConditionLayout::Joint));
        assert_eq!(summary(&written[0], "AppliedFilesAndOS").unwrap(), joined);
        assert_eq!(summary(&written[0], "UpdateExecuted").unwrap(), "Unknown AppliedFilesAndOS");
        assert_eq!(summary(&written[0], "AppliedFiles"), None);
    }
}

/// MCD-249, and none is skipped: an open condition is written as done before it is reset.
#[test]
fn update_ends_in_two_writes() {
    let begun = report(
        "rendered-worker-b",
        &[PREPARED, ("RebootedNode", "Unknown", "UpdatePostActionCompleteRebootedNode"), NOT_UPDATED, FINE],
    );
    let (_, stored) = write(&Stored::default(), &words(&begun, ConditionLayout::Joint));
    let mut done = report("rendered-worker-b", &[UPDATED, FINE]);
    done.current_config.clone_from(&done.desired_config);
    let (written, stored) = write(&stored, &words(&done, ConditionLayout::Joint));
    assert_eq!(written.len(), 2);
    for kind in ["UpdateExecuted", "UpdatePostActionComplete", "RebootedNode", "Resumed", "UpdateComplete"] {
        assert!(summary(&written[0], kind).unwrap().starts_with("True "), "{kind}");
    }
    assert_eq!(summary(&written[0], "Updated").unwrap(), "False Updated");
    assert_eq!(summary(&written[1], "Updated").unwrap(), "True Updated");
    for condition in &stored.conditions {
        let done = condition.kind == "Updated";
        assert_eq!(condition.status, if done { Status::True } else { Status::False }, "{}", condition.kind);
    }
    let rebooted = stored.conditions.iter().find(|held| held.kind == "RebootedNode").unwrap();
    let message = "Action during update to rendered-worker-b: update to rendered-worker-b: done";
    assert_eq!(rebooted.message, message);
    assert_eq!(write(&stored, &words(&done, ConditionLayout::Joint)).0, Vec::<Value>::new());
}

/// MCD-250: an update that is not prepared does not show its config.
#[test]
fn desired_config_is_shown_after_prepare() {
    let refused =
        report("rendered-worker-b", &[("UpdatePrepared", "Unknown", "UpdatePrepared"), NOT_UPDATED]);
    let (written, _) = write(&Stored::default(), &words(&refused, ConditionLayout::Joint));
    let versions = json!({ "desired": "not-yet-set", "current": "rendered-worker-a" });
    assert_eq!(written[0]["configVersion"], versions);
    assert_eq!(summary(&written[0], "UpdatePrepared").unwrap(), "Unknown UpdatePrepared");
    let before =
        Stored { desired: "rendered-worker-a".to_owned(), pool: "worker".to_owned(), ..Stored::default() };
    let labels = [("node-role.kubernetes.io/worker".to_owned(), String::new())].into();
    assert_eq!(spec(&before, &labels, &words(&refused, ConditionLayout::Joint)), None);
    let prepared = report("rendered-worker-b", &[PREPARED]);
    let next = spec(&before, &labels, &words(&prepared, ConditionLayout::Joint)).unwrap();
    assert_eq!(next["configVersion"]["desired"], "rendered-worker-b");
}

/// MCN-003: another manager's condition is left out; one that the shared manager holds is sent as it is.
/// MCD-252: of an internal release image nothing is written.
#[test]
fn fields_of_other_managers_are_kept() {
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "Other", "message": "o", "lastTransitionTime": THEN });
    let object = json!({
        "metadata": { "generation": 1, "managedFields": [
            { "manager": "machine-config-operator", "operation": "Apply", "subresource": "status", "fieldsV1":
                { "f:status": { "f:pinnedImageSets": {}, "f:conditions": { "k:{\"type\":\"Cordoned\"}": {},
                    "k:{\"type\":\"AppliedFiles\"}": {} } } } },
            { "manager": "someone", "operation": "Apply", "subresource": "status", "fieldsV1":
                { "f:status": { "f:internalReleaseImage": {}, "f:conditions": { "k:{\"type\":\"Theirs\"}": {} } } } },
        ] },
        "status": {
            "observedGeneration": 7, "pinnedImageSets": [{ "name": "p" }], "internalReleaseImage": { "releases": [] },
            "conditions": [condition("Cordoned"), condition("Theirs"), condition("AppliedFiles")],
        },
    });
    let stored = Stored::read(&object);
    let report = report("rendered-worker-b", &[PREPARED, NOT_UPDATED, FINE]);
    let (written, _) = write(&stored, &words(&report, ConditionLayout::Joint));
    assert_eq!(summary(&written[0], "Cordoned").unwrap(), "True Other");
    assert_eq!(summary(&written[0], "Theirs"), None);
    assert_eq!(summary(&written[0], "AppliedFiles"), None, "the other form's goes");
    assert_eq!(written[0]["pinnedImageSets"], json!([{ "name": "p" }]));
    assert_eq!(written[0].get("internalReleaseImage"), None);
    assert_eq!(written[0]["observedGeneration"], 7, "it never falls");
}

/// MCD-251: the list is null when nothing differs, and is not written if it is stored already or unknown.
#[test]
fn irreconcilable_changes_are_written_when_they_are_others() {
    let change = json!({ "fieldPath": "spec.config.storage.disks[0].wipeTable", "diff": "- false\n+ true" });
    let stored = |list: &Value| Stored::read(&json!({ "status": { "irreconcilableChanges": list } }));
    let mut report = report("rendered-worker-b", &[UPDATED, FINE]);
    assert_eq!(changes(&stored(&json!([change])), &report), None, "nobody knows");
    report.irreconcilable_changes = Some(Vec::new());
    assert_eq!(changes(&stored(&json!([change])), &report), Some(Value::Null));
    assert_eq!(changes(&stored(&Value::Null), &report), None);
    assert_eq!(changes(&Stored::default(), &report), None);
    report.irreconcilable_changes = serde_json::from_value(json!([change])).unwrap();
    assert_eq!(changes(&Stored::default(), &report), Some(json!([change])));
    assert_eq!(changes(&stored(&json!([change])), &report), None);
}

/// The time of a condition is that of its last change, and never goes back.
#[test]
fn times_only_continue() {
    let begun = report("rendered-worker-b", &[PREPARED, NOT_UPDATED, FINE]);
    let early = MergeInput { now: THEN.to_owned(), ..words(&begun, ConditionLayout::Joint) };
    let (_, mut stored) = write(&Stored::default(), &early);
    let degraded =
        report("rendered-worker-b", &[PREPARED, NOT_UPDATED, ("NodeDegraded", "True", "DiskFull")]);
    let (_, later) = write(&stored, &words(&degraded, ConditionLayout::Joint));
    let time = |stored: &Stored, kind: &str| {
        stored.conditions.iter().find(|held| held.kind == kind).unwrap().last_transition_time.clone()
    };
    assert_eq!((time(&later, "UpdatePrepared"), time(&later, "NodeDegraded")), (THEN.into(), NOW.into()));
    for held in &mut stored.conditions {
        held.last_transition_time = "2027-01-01T00:00:00Z".to_owned();
    }
    let (_, back) = write(&stored, &words(&degraded, ConditionLayout::Joint));
    assert_eq!(time(&back, "NodeDegraded"), "2027-01-01T00:00:00Z");
}

/// With its own drain the agent reports the cordon, too.
#[test]
fn self_drain_reports_cordoned() {
    let draining = report("rendered-worker-b", &[PREPARED, ("Drained", "Unknown", "UpdateExecutedDrained")]);
    let own = MergeInput { cordons: Cordons::Own, ..words(&draining, ConditionLayout::Joint) };
    let (written, stored) = write(&Stored::default(), &own);
    assert_eq!(summary(&written[0], "Cordoned").unwrap(), "True UpdateExecutedCordoned");
    let (written, _) = write(&Stored::default(), &words(&draining, ConditionLayout::Joint));
    assert_eq!(summary(&written[0], "Cordoned").unwrap(), "False NotYetOccurred");
    let done = report("rendered-worker-b", &[UPDATED, FINE]);
    let (written, _) =
        write(&stored, &MergeInput { cordons: Cordons::Own, ..words(&done, ConditionLayout::Joint) });
    assert_eq!(summary(&written[0], "Uncordoned").unwrap(), "True UpdateCompleteUncordoned");
    assert_eq!(summary(&written[1], "Cordoned").unwrap(), "False UpdateExecutedCordoned");
}

/// MCN-005: images only where the CRD has them, and only those that it takes.
#[test]
fn images_are_reported_in_split_form() {
    let digest = "a".repeat(64);
    let rows = [
        (format!("reg.test/ns/os@sha256:{digest}"), true),
        (format!("reg.test:5000/os@sha256:{digest}"), true),
        (format!("reg.test/a/b/os@sha256:{digest}"), false),
        (format!("reg/os@sha256:{digest}"), false),
    ];
    for (image, fits) in rows {
        let mut report = report("rendered-worker-b", &[PREPARED, NOT_UPDATED]);
        report.desired_image = Some(crate::model::ImageRef::parse(&image).unwrap());
        let (written, _) = write(&Stored::default(), &words(&report, ConditionLayout::Split));
        let desired_image = written[0].pointer("/configImage/desiredImage");
        assert_eq!(desired_image.and_then(Value::as_str), fits.then_some(image.as_str()), "{image}");
        let (written, _) = write(&Stored::default(), &words(&report, ConditionLayout::Joint));
        assert_eq!(written[0].get("configImage"), None);
    }
}

#[test]
fn pools_follow_config_then_roles() {
    let rendered = format!("rendered-gpu-{}", "0a".repeat(16));
    let rows: [(&[&str], Option<&str>, &str, &str); 8] = [
        (&["worker"], Some("rendered-worker-b"), "", "worker"),
        (&["worker", "infra"], None, "", "infra"),
        (&["worker", "infra", "gpu"], None, "infra", "infra"),
        (&["worker", "infra", "gpu"], None, "", "not-yet-set"),
        (&["master", "worker", "infra"], None, "", "master"),
        (&["control-plane"], None, "", "not-yet-set"),
        (&[], None, "kept", "kept"),
        (&["worker"], Some(&rendered), "worker", "gpu"),
    ];
    for (roles, config, stored, expected) in rows {
        let labels = roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), String::new()));
        assert_eq!(pool(&labels.collect(), config, stored), expected, "{roles:?}");
    }
    for bad in ["", "A", "-a", "a..b", "a_b"] {
        assert_eq!(name(bad), "not-yet-set", "{bad}");
    }
}
