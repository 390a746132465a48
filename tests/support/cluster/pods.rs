//! The environment of an eviction: pods that run, a kubelet that ends them, and the controller that computes the allowed
//! disruptions of a budget. The same on a real server, which has neither.

use std::pin::pin;

use futures_util::{StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Bench;
use super::objects::{Presence, changes};

/// Creates a pod that runs on a node and is ready. `metadata` may have labels, annotations and owners.
pub async fn running_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    node: &str,
    mut metadata: Value,
) -> Pod {
    metadata["name"] = json!(name);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": { "nodeName": node, "containers": [{ "name": "one", "image": "example.com/one:1" }] },
    });
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap()
}

/// Waits until a pod is gone.
pub async fn pod_gone(client: &Client, namespace: &str, name: &str) {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let which = ListParams::default().fields(&format!("metadata.name={name}"));
    // Watched before it is looked for: one that goes in between is seen by either.
    let mut changes = pin!(changes(&api, &which).await.unwrap());
    if api.list(&which).await.unwrap().items.is_empty() {
        return;
    }
    let going = async {
        while let Some((_, presence)) = changes.next().await {
            if presence == Presence::Gone {
                return;
            }
        }
    };
    super::within("the pod goes", going).await;
}

/// A kubelet's part of a deletion: a pod of its node that is to go is gone.
#[derive(Debug)]
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Starts to watch the node's pods.
    pub async fn start(bench: &Bench, node: &str) -> Self {
        let client = bench.client("kubelet").await;
        let which = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let all: Api<Pod> = Api::all(client.clone());
        Self(tokio::spawn(async move {
            loop {
                let mut changes = pin!(changes(&all, &which).await.unwrap());
                while let Some((pod, presence)) = changes.next().await {
                    if presence == Presence::There && pod.metadata.deletion_timestamp.is_some() {
                        let own: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
                        // It may be gone by now.
                        drop(own.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
                    }
                }
            }
        }))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The disruption controller of one namespace: keeps the status of its budgets.
#[derive(Debug)]
pub struct DisruptionController(JoinHandle<()>);

impl DisruptionController {
    /// Starts to watch the namespace's pods and budgets.
    pub async fn start(bench: &Bench, namespace: &str) -> Self {
        let client = bench.client("disruption-controller").await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, namespace);
        Self(tokio::spawn(async move {
            let all = ListParams::default();
            loop {
                // The end of either is the end of both, which are then begun again.
                let end = || stream::once(future::ready(None));
                let of_pods = changes(&pods, &all).await.unwrap().map(|_| Some(())).chain(end());
                let of_budgets = changes(&budgets, &all).await.unwrap().map(|_| Some(())).chain(end());
                let mut changes = pin!(stream::select(of_pods, of_budgets));
                while changes.next().await.flatten().is_some() {
                    reckon(&pods, &budgets).await;
                }
            }
        }))
    }
}

impl Drop for DisruptionController {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the status of each budget that differs from its pods.
async fn reckon(pods: &Api<Pod>, budgets: &Api<PodDisruptionBudget>) {
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    for budget in budgets.list(&ListParams::default()).await.unwrap() {
        let spec = budget.spec.clone().unwrap_or_default();
        let labels = spec.selector.and_then(|selector| selector.match_labels).unwrap_or_default();
        let selected: Vec<&Pod> = pods
            .iter()
            .filter(|pod| labels.iter().all(|(name, value)| pod.labels().get(name) == Some(value)))
            .collect();
        let expected = i32::try_from(selected.len()).unwrap();
        let healthy = i32::try_from(selected.iter().filter(|pod| is_healthy(pod)).count()).unwrap();
        let desired = match (&spec.min_available, &spec.max_unavailable) {
            (Some(least), _) => share(least, expected),
            (None, Some(most)) => (expected - share(most, expected)).max(0),
            (None, None) => 0,
        };
        let allowed = (healthy - desired).max(0);
        let now = budget.status.clone().unwrap_or_default();
        let known =
            (now.observed_generation, now.disruptions_allowed, now.current_healthy, now.desired_healthy);
        if known == (budget.metadata.generation, Some(allowed), Some(healthy), Some(desired)) {
            continue;
        }
        let status = json!({ "status": {
            "observedGeneration": budget.metadata.generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }});
        // It may be gone, or just have been spent; the next change shows it.
        drop(budgets.patch_status(&budget.name_any(), &PatchParams::default(), &Patch::Merge(status)).await);
    }
}

fn is_healthy(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn share(of: &IntOrString, expected: i32) -> i32 {
    match of {
        IntOrString::Int(count) => *count,
        IntOrString::String(percent) => {
            let percent: i32 = percent.trim_end_matches('%').parse().unwrap();
            (expected * percent + 99) / 100
        }
    }
}
