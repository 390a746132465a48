//! Request of one eviction.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client};
use machine_config_core::drain::{Answer, Outcome};
use serde_json::{Value, json};

use super::client::{RequestError, send};
use super::write::{Write, write};
use crate::drain::Pod;

/// Requests the eviction of a pod. Returns a word for the metrics, and the outcome. A refusal by a budget is requested again
/// after `retry`.
pub(super) async fn evict(client: &Client, pod: &Pod, retry: Duration) -> (&'static str, Outcome) {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        // Another pod of the same name is not meant.
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let pods = Api::<PodObject>::namespaced(client.clone(), &pod.namespace);
    let params = PostParams::default();
    let evicted =
        write(Write::Eviction, pods.create_subresource::<_, Value>("eviction", &pod.name, &params, &object))
            .await;
    let (word, found) = outcome(evicted, "evicted", retry);
    confirmed(&pods, pod, word, found).await
}

/// Deletes a pod with its own grace period, whatever its budgets say. Returns as [`evict`] does.
pub(super) async fn delete(client: &Client, pod: &Pod) -> (&'static str, Outcome) {
    let pods = Api::<PodObject>::namespaced(client.clone(), &pod.namespace);
    // Another pod of the same name is not meant.
    let preconditions = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = write(Write::Eviction, pods.delete(&pod.name, &params)).await;
    let (word, found) = outcome(deleted, "deleted", Duration::ZERO);
    let (word, found) = confirmed(&pods, pod, word, found).await;
    (word, found.of_deletion())
}

/// Looks at a pod that is said to be gone.
async fn confirmed(
    pods: &Api<PodObject>,
    pod: &Pod,
    word: &'static str,
    outcome: Outcome,
) -> (&'static str, Outcome) {
    if outcome != Outcome::Gone {
        return (word, outcome);
    }
    // The right to list pods is there already.
    let named = ListParams::default().fields(&format!("metadata.name={}", pod.name));
    match send(pods.list_metadata(&named)).await {
        Ok(found) => {
            let uid = found.items.into_iter().find_map(|found| found.metadata.uid);
            let outcome = outcome.confirmed(&pod.uid, uid.as_deref());
            (if outcome == Outcome::Gone { word } else { "refused" }, outcome)
        }
        Err(error) => ("failed", Outcome::of_failure(&error.to_string())),
    }
}

fn outcome<T>(
    answer: Result<T, RequestError>,
    done: &'static str,
    retry: Duration,
) -> (&'static str, Outcome) {
    let outcome = match answer {
        Ok(_) => Outcome::Evicted,
        Err(RequestError::Refused(status) | RequestError::NoConflict(status)) => {
            Outcome::of_refusal(self::answer(&status), retry)
        }
        Err(error) => Outcome::of_failure(&error.to_string()),
    };
    let word = match &outcome {
        Outcome::Evicted => done,
        Outcome::Gone => "gone",
        Outcome::Refused(refusal) if refusal.cause.is_passing() => "failed",
        Outcome::Refused(_) => "refused",
    };
    (word, outcome)
}

fn answer(status: &Status) -> Answer<'_> {
    let details = status.details.as_ref();
    let causes = details.map(|details| details.causes.as_slice()).unwrap_or_default();
    let budget = causes.iter().find(|cause| cause.reason == "DisruptionBudget");
    Answer {
        code: status.code,
        message: &status.message,
        budget: budget.map(|cause| cause.message.as_str()),
        retry_after: details.map(|details| details.retry_after_seconds).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer of a kube-apiserver.
    #[test]
    fn cause_and_time_of_refusal_are_read() {
        let status: Status = serde_json::from_value(json!({ "code": 429, "message": "no", "details": {
            "retryAfterSeconds": 10, "causes": [{ "reason": "DisruptionBudget", "message": "needs 1" }] } }))
        .unwrap();
        let Answer { code, message, budget, retry_after } = answer(&status);
        assert_eq!((code, message, budget, retry_after), (429, "no", Some("needs 1"), 10));
    }
}
