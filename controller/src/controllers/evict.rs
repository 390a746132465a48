//! One eviction, and the meaning of its answer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::client::{RequestError, send, uptime};
use crate::drain::{EvictionState, Pod};

/// Wait for the next request for a pod whose eviction failed for a reason that is not the pod's.
const SHORT_RETRY: Duration = Duration::from_secs(5);

/// Requests the eviction of a pod. Returns a word for the metrics, and how the pod stands then; `None` if it is gone. A refusal
/// by a budget is requested again after `retry`.
pub(super) async fn evict(
    client: &Client,
    pod: &Pod,
    retry: Duration,
) -> (&'static str, Option<EvictionState>) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        // Another pod of the same name is not meant.
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let pods = Api::<PodObject>::namespaced(client.clone(), &pod.namespace);
    let params = PostParams::default();
    match send(pods.create_subresource::<_, Value>("eviction", &pod.name, &params, &object)).await {
        Ok(_) => ("evicted", Some(EvictionState::Leaving)),
        Err(RequestError::Refused(status)) if is_gone(&status) => ("gone", None),
        Err(RequestError::Refused(status)) => ("refused", Some(refused(&status, retry, uptime()))),
        Err(error @ (RequestError::TimedOut | RequestError::Failed(_))) => {
            let again = uptime() + SHORT_RETRY;
            ("failed", Some(EvictionState::Refused { budget: false, message: error.to_string(), again }))
        }
    }
}

/// Returns true if the pod is gone, or another one of its name is there. Another conflict is a pod that changed meanwhile: it is
/// still there.
fn is_gone(status: &Status) -> bool {
    status.code == 404 || (status.code == 409 && status.message.contains("UID in precondition"))
}

/// Reads a refusal. A budget is a 429 with a cause, two of them on one pod a 500 with a sentence.
fn refused(status: &Status, retry: Duration, now: Duration) -> EvictionState {
    let details = status.details.as_ref();
    let cause =
        details.and_then(|details| details.causes.iter().find(|cause| cause.reason == "DisruptionBudget"));
    let several = status.code == 500 && status.message.contains("more than one PodDisruptionBudget");
    let message = match cause {
        Some(cause) => cause.message.clone(),
        None => status.message.clone(),
    };
    let given = details.map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
    let again = match given {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None if cause.is_some() || several => retry,
        None => SHORT_RETRY,
    };
    EvictionState::Refused { budget: cause.is_some() || several, message, again: now + again }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_is_another_pod_only_by_its_uid() {
        let status = |code: u16, message: &str| -> Status {
            serde_json::from_value(json!({ "code": code, "message": message })).unwrap()
        };
        let other = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert!(is_gone(&status(404, "pods \"a\" not found")) && is_gone(&status(409, other)));
        let changed =
            status(409, "the object has been modified; please apply your changes to the latest version");
        assert!(!is_gone(&changed), "a drain would end with the pod on the node");
        let state = refused(&changed, Duration::from_secs(60), Duration::ZERO);
        let again = matches!(state, EvictionState::Refused { again, .. } if again == SHORT_RETRY);
        assert!(again, "{state:?}");
    }

    /// Answers of a kube-apiserver.
    #[test]
    fn refusals_are_reported_apart() {
        let needs = "The disruption budget a needs 1 healthy pods and has 1 currently";
        let table = [
            (
                json!({ "code": 429, "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                        "details": { "causes": [{ "reason": "DisruptionBudget", "message": needs }] } }),
                (true, needs, 60),
            ),
            (
                json!({ "code": 429, "message": "no", "details": { "retryAfterSeconds": 10,
                        "causes": [{ "reason": "DisruptionBudget", "message": "still being processed" }] } }),
                (true, "still being processed", 10),
            ),
            (
                json!({ "code": 500, "message": "This pod has more than one PodDisruptionBudget, which the eviction \
                        subresource does not support." }),
                (
                    true,
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                    60,
                ),
            ),
            // Priority and fairness, not a budget.
            (
                json!({ "code": 429, "message": "busy", "details": { "retryAfterSeconds": 1 } }),
                (false, "busy", 1),
            ),
            (json!({ "code": 403, "message": "a webhook says no" }), (false, "a webhook says no", 5)),
        ];
        for (status, (budget, message, seconds)) in table {
            let status: Status = serde_json::from_value(status).unwrap();
            let state = refused(&status, Duration::from_secs(60), Duration::ZERO);
            let again = Duration::from_secs(seconds);
            assert_eq!(state, EvictionState::Refused { budget, message: message.to_owned(), again });
        }
    }
}
