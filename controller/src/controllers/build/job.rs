//! The builder `Job`: a Kubernetes Job with buildah.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::builder::{Answer, Builder, Credentials, Ended, Order, image};
use crate::build::{InputOwner, JobSettings, MACHINE_OS_BUILD, Outcome, inputs, job, job_name, label};
use crate::controllers::cache::{Cache, Seen};
use crate::controllers::client::{RequestError, ask};
use crate::controllers::kept::Kept as _;

/// The most of a failed pod's last words that is told.
const MAX_FAILURE: usize = 1000;

/// Kubernetes Jobs in one namespace.
#[derive(Debug)]
pub(super) struct Jobs {
    client: KubeClient,
    cache: Cache,
    settings: JobSettings,
}

/// kube's client says nothing of itself.
#[derive(Clone)]
pub(super) struct KubeClient(pub(super) Client);

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Jobs {
    pub(super) const fn new(client: Client, cache: Cache, settings: JobSettings) -> Self {
        Self { client: KubeClient(client), cache, settings }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.0.clone(), &self.settings.namespace)
    }

    fn keep(&self, job: Job) {
        self.cache.change(|seen| job.put(seen));
    }

    async fn let_run(&self, order: &Order, uid: &str, credentials: &Credentials) -> Result<(), RequestError> {
        let owner = InputOwner::Job(uid);
        let made = inputs(&order.request(), &self.settings, owner, &credentials.base, &credentials.push);
        let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
        create_input(&self.api(), &made.config_map, uid).await?;
        for secret in &made.secrets {
            create_input(&self.api(), secret, uid).await?;
        }
        let patch = json!({ "metadata": { "uid": uid }, "spec": { "suspend": false } });
        let name = job_name(&order.build);
        let (api, how) = (self.api::<Job>(), PatchParams::default());
        self.keep(ask(api.patch(&name, &how, &Patch::Merge(patch))).await?);
        Ok(())
    }
}

/// Creates an input of a builder's object. One that an earlier object of the same name left is replaced.
pub(super) async fn create_input<K>(api: &Api<K>, object: &K, owner: &str) -> Result<(), RequestError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let name = object.name_any();
    match ask(api.create(&PostParams::default(), object)).await {
        Ok(_) => return Ok(()),
        Err(error) if error.code() == 409 => {}
        Err(error) => return Err(error),
    }
    let found = ask(api.get(&name)).await?;
    if found.owner_references().iter().any(|one| one.uid == owner) {
        return Ok(());
    }
    if !found.labels().contains_key(MACHINE_OS_BUILD) {
        let (kind, namespace) = (K::kind(&()), object.namespace().unwrap_or_default());
        return Err(RequestError::Failed(format!(
            "{kind} {namespace}/{name} is in the way of a build, and not of one; delete it"
        )));
    }
    let uid = Preconditions { uid: found.uid(), resource_version: None };
    let how = DeleteParams { preconditions: Some(uid), ..DeleteParams::default() };
    ask(api.delete(&name, &how)).await?;
    ask(api.create(&PostParams::default(), object)).await.map(drop)
}

impl Builder for Jobs {
    fn missing(&self, _: &Seen) -> Option<String> {
        let images =
            [("builderImage", &self.settings.builder_image), ("agentImage", &self.settings.agent_image)];
        let (field, _) = images.into_iter().find(|(_, image)| image.is_empty())?;
        Some(format!("the build settings have no {field}; name it in the file of --build-settings"))
    }

    fn mounted_secrets(&self) -> Vec<&str> {
        self.settings.mounted_secrets()
    }

    fn create<'a>(&'a self, order: &'a Order) -> Answer<'a, ()> {
        Box::pin(async move {
            let made = job(&order.request(), &self.settings);
            let made = made.map_err(|error| RequestError::Failed(error.to_string()))?;
            self.keep(ask(self.api().create(&PostParams::default(), &made)).await?);
            Ok(())
        })
    }

    fn start<'a>(&'a self, order: &'a Order, uid: &'a str, credentials: &'a Credentials) -> Answer<'a, ()> {
        Box::pin(self.let_run(order, uid, credentials))
    }

    fn delete<'a>(&'a self, name: &'a str, uid: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let how = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            match ask(self.api::<Job>().delete(name, &how)).await {
                Ok(_) => {}
                Err(error) if error.code() == 404 => {}
                Err(error) => return Err(error),
            }
            self.find(name).await.map(drop)
        })
    }

    fn find<'a>(&'a self, name: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            match ask(self.api::<Job>().get(name)).await {
                Ok(found) => {
                    let uid = found.uid();
                    self.keep(found);
                    Ok(uid)
                }
                Err(error) if error.code() == 404 => {
                    self.cache.change(|seen| Job::remove(seen, name));
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    fn outcome<'a>(&'a self, build: &'a str, uid: &'a str, push_spec: &'a str) -> Answer<'a, Ended> {
        Box::pin(async move {
            let which = ListParams::default().labels(&format!("{MACHINE_OS_BUILD}={}", label(build)));
            let pods = ask(self.api::<Pod>().list(&which)).await?;
            let of_job = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == uid);
            Ok(ended(&pods.items.into_iter().filter(of_job).collect::<Vec<_>>(), push_spec))
        })
    }
}

/// Returns what pods left.
fn ended(pods: &[Pod], push_spec: &str) -> Ended {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let succeeded = pods.iter().find(|pod| phase(pod) == "Succeeded");
    let digest = succeeded.and_then(|pod| {
        let build = containers(pod).find(|container| container.name == "image-build")?;
        build.state.as_ref()?.terminated.as_ref()?.message.clone()
    });
    let image = digest.and_then(|digest| image(push_spec, &digest));
    let mut failed: Vec<&Pod> = pods.iter().filter(|pod| phase(pod) == "Failed").collect();
    failed.sort_by_key(|pod| pod.creation_timestamp());
    let failure = failed.last().map(|pod| failure(pod));
    Ended { outcome: Outcome { image, failure }, is_gone: succeeded.is_none() }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status
        .flat_map(|status| [&status.init_container_statuses, &status.container_statuses])
        .flatten()
        .flatten()
}

/// What a pod that failed said last.
fn failure(pod: &Pod) -> String {
    let container = containers(pod).find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        let words = [ended.message.as_deref().map(str::trim), ended.reason.as_deref()];
        let words = words.into_iter().flatten().find(|word| !word.is_empty());
        let words = words.map_or_else(|| format!("exit status {}", ended.exit_code), last);
        Some(format!("pod {}: {words}", pod.name_any()))
    });
    container.unwrap_or_else(|| {
        let status = pod.status.clone().unwrap_or_default();
        let words = status.message.or(status.reason).unwrap_or_else(|| "no message".to_owned());
        format!("pod {}: {}", pod.name_any(), last(&words))
    })
}

/// The end of a text: the error is there.
fn last(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(MAX_FAILURE);
    text.chars().skip(skipped).collect()
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
        let found = ended(&pods, "r.test/os:b-1");
        assert_eq!(found.outcome.image, Some(format!("r.test/os@{digest}")));
        assert_eq!(found.outcome.failure.as_deref(), Some("pod b: no space left"));
        assert!(!found.is_gone);
        let found = ended(&pods[1..2], "r.test/os:b-1");
        assert_eq!((found.outcome.image, found.is_gone), (None, true));
        assert_eq!(found.outcome.failure.as_deref(), Some("pod a: OOMKilled"));
    }
}
