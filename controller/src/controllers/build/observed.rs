//! Jobs and Secrets of builds, reduced.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;

use crate::api::controller_of;
use crate::build;
use crate::watches::version::is_older;

/// A Job of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::controllers) struct BuildJob {
    version: String,
    pub(super) job: build::Job,
}

impl BuildJob {
    pub(super) const fn new(version: String, job: build::Job) -> Self {
        Self { version, job }
    }

    /// Returns true if it is older than another one of its name.
    fn is_older(&self, than: &Self) -> bool {
        is_older(&self.version, &than.version)
    }

    pub(super) fn of(object: &Job) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_true = |kind: &str| conditions.iter().find(|one| one.type_ == kind && one.status == "True");
        let number = |count: Option<i32>| count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        let has_any = |pods: Option<Vec<String>>| pods.is_some_and(|pods| !pods.is_empty());
        let owner = controller_of(&object.metadata, "MachineOSBuild");
        let job = build::Job {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            owner: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            suspended: object.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false),
            active: number(status.active),
            failed: number(status.failed),
            succeeded: number(status.succeeded),
            has_uncounted: has_any(uncounted.failed) || has_any(uncounted.succeeded),
            is_complete: is_true("Complete").is_some(),
            failure: is_true("Failed").map(|failed| {
                let words = [failed.message.clone(), failed.reason.clone()];
                words.into_iter().flatten().find(|word| !word.is_empty()).unwrap_or_default()
            }),
        };
        Self { version: object.metadata.resource_version.clone().unwrap_or_default(), job }
    }
}

/// Puts one among the others, unless a later version is there that counts; returns true if it changed.
pub(super) fn put_job(
    jobs: &mut BTreeMap<String, BuildJob>,
    name: String,
    new: BuildJob,
    takes_older: bool,
) -> bool {
    if !takes_older && jobs.get(&name).is_some_and(|old| new.is_older(old)) {
        return false;
    }
    let is_changed = jobs.get(&name).is_none_or(|old| old.job != new.job);
    jobs.insert(name, new);
    is_changed
}

/// A Secret, without what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::controllers) struct ObservedSecret {
    pub(super) version: String,
    pub(super) has_credentials: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(status: &Value) -> build::Job {
        let object = json!({
            "metadata": {
                "uid": "j",
                "ownerReferences": [{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSBuild",
                    "name": "b", "uid": "u", "controller": true }],
            },
            "status": status,
        });
        BuildJob::of(&serde_json::from_value(object).unwrap()).job
    }

    #[test]
    fn job_is_read_as_its_controller_writes_it() {
        let job = build::Job { uid: "j".to_owned(), owner: "u".to_owned(), ..build::Job::default() };
        let condition = |kind: &str, message: &str| json!([{ "type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": message }]);
        let table = [
            (json!({}), job.clone()),
            (json!({ "active": 1, "failed": 2 }), build::Job { active: 1, failed: 2, ..job.clone() }),
            (
                json!({ "uncountedTerminatedPods": { "succeeded": ["p"] } }),
                build::Job { has_uncounted: true, ..job.clone() },
            ),
            (
                json!({ "succeeded": 1, "conditions": condition("Complete", "") }),
                build::Job { succeeded: 1, is_complete: true, ..job.clone() },
            ),
            (
                json!({ "failed": 4, "conditions": condition("Failed", "m") }),
                build::Job { failed: 4, failure: Some("m".to_owned()), ..job.clone() },
            ),
            (
                json!({ "conditions": condition("Failed", "") }),
                build::Job { failure: Some("BackoffLimitExceeded".to_owned()), ..job },
            ),
        ];
        for (status, expected) in table {
            assert_eq!(read(&status), expected, "{status}");
        }
    }
}
