//! The objects of a cluster that a plan needs, read once. It writes nothing: its fence is never opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, Resource};
use tokio::time::timeout;

use super::client::{self, Fence, RequestError, send};
use super::error::RunError;
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{MachineConfig, MachineConfigPool, rendered_for};
use crate::manifests::{Manifests, WholeObject};
use crate::model::policy::DisruptionPolicy;
use crate::reading::Lenient;
use crate::reading::Object;

/// Timeout of the whole read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Objects of one answer: a rendered config may have more than a megabyte.
const PAGE: u32 = 50;

/// The most objects of a kind.
const MAX_OBJECTS: usize = 10_000;

/// Next step where there is no answer.
const NO_ANSWER: &str = "check whether the API server answers `kubectl get --raw /readyz`, and name another kubeconfig with --kubeconfig if it is not this one";

/// Reads pools, MachineConfigs, the `ControllerConfig` and the disruption policy.
pub fn live_manifests(kubeconfig: Option<&Path>) -> Result<Manifests, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reading = async { timeout(READ_TIMEOUT, read(kubeconfig)).await };
    runtime.block_on(reading).unwrap_or_else(|_| {
        let cause = format!("no answer within {} s", READ_TIMEOUT.as_secs());
        Err(RunError::Unread { what: "the cluster".to_owned(), cause, next: NO_ANSWER })
    })
}

async fn read(kubeconfig: Option<&Path>) -> Result<Manifests, RunError> {
    let (client, server) = client::connect_to(kubeconfig, &Fence::default()).await?;
    let reader = Reader { client, server };
    let mut manifests = Manifests {
        pools: reader.list::<MachineConfigPool>().await?,
        configs: reader.list::<MachineConfig>().await?,
        ..Manifests::default()
    };
    let group = "machineconfiguration.openshift.io";
    let config = reader.get(group, "ControllerConfig", "controllerconfigs", CONTROLLER_CONFIG).await?;
    manifests.controller_config =
        config.and_then(|config| serde_json::to_value(config).ok()).map(WholeObject);
    let name = "MachineConfiguration cluster";
    if let Some(policy) = reader
        .get("operator.openshift.io", "MachineConfiguration", "machineconfigurations", "cluster")
        .await?
    {
        let next = "correct the object";
        let unread = |cause: String| RunError::Unread { what: name.to_owned(), cause, next };
        let bytes = serde_json::to_vec(&policy).map_err(|error| unread(error.to_string()))?;
        let policy = DisruptionPolicy::parse(&bytes, name).map_err(|error| unread(error.to_string()))?;
        manifests.policy = Some(policy);
    }
    Ok(manifests)
}

struct Reader {
    client: Client,
    server: String,
}

impl Reader {
    /// Lists a kind, without what was rendered: of that nothing is rendered.
    async fn list<K>(&self) -> Result<BTreeMap<String, K>, RunError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + Object
            + std::fmt::Debug,
    {
        let api = Api::<Lenient<K>>::all(self.client.clone());
        let resource = format!("{}.{}", K::plural(&()), K::group(&()));
        let mut found = BTreeMap::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = send(api.list(&page)).await.map_err(|error| self.unread("list", &resource, &error))?;
            for Lenient { metadata, object, .. } in list.items {
                if rendered_for(&metadata).is_some() {
                    continue;
                }
                let name = metadata.name.unwrap_or_default();
                let what = || format!("{} {name}", K::kind(&()));
                let next = "correct the object";
                let object = object.map_err(|cause| RunError::Unread { what: what(), cause, next })?;
                found.insert(name, object);
            }
            if found.len() > MAX_OBJECTS {
                let cause = format!("there are more than {MAX_OBJECTS}");
                return Err(RunError::Unread { what: resource, cause, next: "delete unused ones" });
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Reads an object; `None` where it, or its kind, is not there.
    async fn get(
        &self,
        group: &str,
        kind: &str,
        plural: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, RunError> {
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
        match send(api.get(name)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(self.unread("get", &format!("{plural}.{group}"), &error)),
        }
    }

    /// Names the resource, what was asked of it, the server, the cause and the next step.
    fn unread(&self, verb: &str, resource: &str, error: &RequestError) -> RunError {
        let (what, next) = match error.code() {
            401 => {
                (format!("{resource} ({verb})"), "log in again, or name another kubeconfig with --kubeconfig")
            }
            403 => (format!("{resource} ({verb})"), "name a user with --kubeconfig that may do that"),
            404 => {
                let next = "name a cluster that has this kind, or print its definition with `machine-config-controller crds`";
                (format!("{resource} ({verb})"), next)
            }
            _ => (format!("{resource} ({verb}) of {}", self.server), NO_ANSWER),
        };
        RunError::Unread { what, cause: error.to_string(), next }
    }
}
