//! The builder `Job`: a Kubernetes Job with buildah.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::builder::{ApiFuture, Builder, Credentials, EndedBuild, Order, PodOutcome, image};
use super::objects::Objects;
use crate::build::{InputOwner, JobSettings, MACHINE_OS_BUILD, Outcome, inputs, job, job_name, label};
use crate::controllers::cache::Snapshot;
use crate::controllers::client::{RequestError, send};

/// Kubernetes Jobs in one namespace.
#[derive(Debug)]
pub(super) struct Jobs {
    objects: Objects,
}

impl Jobs {
    pub(super) const fn new(objects: Objects) -> Self {
        Self { objects }
    }

    async fn start_build(
        &self,
        order: &Order,
        uid: &str,
        credentials: &Credentials,
    ) -> Result<(), RequestError> {
        let owner = InputOwner::Job(uid);
        let settings = &self.objects.settings.within(&order.surroundings);
        let made = inputs(&order.request(), settings, owner, &credentials.base, &credentials.push);
        let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
        self.objects.create_input(&made.config_map, uid).await?;
        self.objects.create_secrets(&made.secrets, uid).await?;
        let patch = json!({ "metadata": { "uid": uid }, "spec": { "suspend": false } });
        self.objects.patch::<Job>(&job_name(&order.build), patch).await
    }
}

impl Builder for Jobs {
    fn missing(&self, _: &Snapshot) -> Option<String> {
        let images = [
            ("builderImage", &self.objects.settings.builder_image),
            ("agentImage", &self.objects.settings.agent_image),
        ];
        let (field, _) = images.into_iter().find(|(_, image)| image.is_empty())?;
        Some(format!("the build settings have no {field}; name it in the file of --build-settings"))
    }

    fn settings(&self) -> &JobSettings {
        &self.objects.settings
    }

    fn create<'a>(&'a self, order: &'a Order) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            let made = job(&order.request(), &self.objects.settings.within(&order.surroundings));
            let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
            self.objects.create(&made).await
        })
    }

    fn start<'a>(
        &'a self,
        order: &'a Order,
        uid: &'a str,
        credentials: &'a Credentials,
    ) -> ApiFuture<'a, ()> {
        Box::pin(self.start_build(order, uid, credentials))
    }

    fn delete<'a>(&'a self, name: &'a str, uid: &'a str) -> ApiFuture<'a, ()> {
        Box::pin(self.objects.delete::<Job>(name, uid))
    }

    fn find<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Option<String>> {
        Box::pin(self.objects.find::<Job>(name))
    }

    fn outcome<'a>(&'a self, ended: &'a EndedBuild<'a>) -> ApiFuture<'a, PodOutcome> {
        Box::pin(async move {
            let which = ListParams::default().labels(&format!("{MACHINE_OS_BUILD}={}", label(ended.build)));
            let pods = send(self.objects.api::<Pod>().list(&which)).await;
            let pods =
                pods.map_err(|error| error.about(&format!("list of the pods of build {}", ended.build)))?;
            let of_job = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == ended.uid);
            Ok(pod_outcome(&pods.items.into_iter().filter(of_job).collect::<Vec<_>>(), ended))
        })
    }
}

/// Returns what pods left.
fn pod_outcome(pods: &[Pod], of: &EndedBuild<'_>) -> PodOutcome {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let succeeded = pods.iter().find(|pod| phase(pod) == "Succeeded");
    let digest = succeeded.and_then(|pod| {
        let build = containers(pod).find(|container| container.name == "image-build")?;
        build.state.as_ref()?.terminated.as_ref()?.message.clone()
    });
    let image = digest.and_then(|digest| image(of.push_spec, &digest));
    let mut failed: Vec<&Pod> = pods.iter().filter(|pod| phase(pod) == "Failed").collect();
    failed.sort_by_key(|pod| pod.creation_timestamp());
    let failure = failed.last().map(|pod| failure(pod, of));
    PodOutcome { outcome: Outcome { image, failure }, is_gone: succeeded.is_none() }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status
        .flat_map(|status| [&status.init_container_statuses, &status.container_statuses])
        .flatten()
        .flatten()
}

/// Returns why a pod failed.
fn failure(pod: &Pod, of: &EndedBuild<'_>) -> String {
    let container = containers(pod).find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        let words = [ended.message.as_deref().map(str::trim), ended.reason.as_deref()];
        let words = words.into_iter().flatten().find(|word| !word.is_empty());
        let words =
            words.map_or_else(|| format!("exit status {}", ended.exit_code), |words| of.explained(words));
        Some(format!("pod {}: {words}", pod.name_any()))
    });
    container.unwrap_or_else(|| {
        let status = pod.status.clone().unwrap_or_default();
        let words = status.message.or(status.reason).unwrap_or_else(|| "no message".to_owned());
        format!("pod {}: {}", pod.name_any(), of.explained(&words))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, made: u32, phase: &str, ended: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": format!("2026-01-01T00:00:0{made}Z") },
            "status": {
                "phase": phase,
                "initContainerStatuses": [{ "name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { "terminated": { "exitCode": 0, "message": "sha256:0" } } }],
                "containerStatuses": [{ "name": "image-build", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": { "terminated": ended } }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn digest_of_good_pod_and_words_of_last_bad_one_are_taken() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let bad = |name: &str, made: u32, ended: &Value| pod(name, made, "Failed", ended);
        let good = pod("c", 3, "Succeeded", &json!({ "exitCode": 0, "message": digest }));
        let pods = [
            bad("b", 2, &json!({ "exitCode": 1, "reason": "Error", "message": "no space left\n" })),
            bad("a", 1, &json!({ "exitCode": 137, "reason": "OOMKilled" })),
            good,
        ];
        let of = EndedBuild { build: "b", uid: "u", push_spec: "r.test/os:b-1", containerfile: "" };
        let found = pod_outcome(&pods, &of);
        assert_eq!(found.outcome.image, Some(format!("r.test/os@{digest}")));
        assert_eq!(found.outcome.failure.as_deref(), Some("pod b: no space left"));
        assert!(!found.is_gone);
        let found = pod_outcome(&pods[1..2], &of);
        assert_eq!((found.outcome.image, found.is_gone), (None, true));
        assert_eq!(found.outcome.failure.as_deref(), Some("pod a: OOMKilled"));
    }
}
