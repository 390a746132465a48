//! The objects of a cluster that a plan needs, read once. It writes nothing: its fence is never opened.

use std::path::Path;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, TypeMeta};
use kube::{Api, Client};
use tokio::time::timeout;

use super::client::{self, Fence, RequestError, send};
use super::error::RunError;
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::rendered_for;
use crate::manifests::{ManifestError, Manifests};
use crate::model::document::Kind;

/// Timeout of the whole read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Objects of one answer: a rendered config may have more than a megabyte.
const PAGE: u32 = 50;

/// The most objects of a kind.
const MAX_OBJECTS: usize = 10_000;

/// Place of its objects, as errors have it.
const CLUSTER: &str = "the cluster";

/// Next step where there is no answer.
const NO_ANSWER: &str = "check whether the API server answers `kubectl get --raw /readyz`, and name another kubeconfig with --kubeconfig if it is not this one";

/// Reads pools, MachineConfigs, the `ControllerConfig` and the disruption policy; returns what can be read, and the errors of the rest.
pub fn live_manifests(kubeconfig: Option<&Path>) -> Result<(Manifests, Vec<ManifestError>), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reading = async { timeout(READ_TIMEOUT, read(kubeconfig)).await };
    runtime.block_on(reading).unwrap_or_else(|_| {
        let cause = format!("no answer within {} s", READ_TIMEOUT.as_secs());
        Err(RunError::Unread { what: "the cluster".to_owned(), cause, next: NO_ANSWER })
    })
}

async fn read(kubeconfig: Option<&Path>) -> Result<(Manifests, Vec<ManifestError>), RunError> {
    let (client, server) = client::connect_to(kubeconfig, &Fence::default()).await?;
    let mut reader = Reader { client, server, manifests: Manifests::default(), errors: Vec::new() };
    reader.list(Kind::POOL, "machineconfigpools").await?;
    reader.list(Kind::MACHINE_CONFIG, "machineconfigs").await?;
    reader.get(Kind::CONTROLLER_CONFIG, "controllerconfigs", CONTROLLER_CONFIG).await?;
    reader.get(Kind::POLICY, "machineconfigurations", "cluster").await?;
    Ok((reader.manifests, reader.errors))
}

struct Reader {
    client: Client,
    server: String,
    manifests: Manifests,
    errors: Vec<ManifestError>,
}

impl Reader {
    /// Lists a kind, without what was rendered: of that nothing is rendered.
    async fn list(&mut self, kind: Kind, plural: &str) -> Result<(), RunError> {
        let api = self.api(kind, plural);
        let resource = format!("{plural}.{}", group(kind));
        let mut found = 0;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = send(api.list(&page)).await.map_err(|error| self.unread("list", &resource, &error))?;
            for object in list.items {
                if rendered_for(&object.metadata).is_none() {
                    found += 1;
                    self.take(kind, object);
                }
            }
            if found > MAX_OBJECTS {
                let cause = format!("there are more than {MAX_OBJECTS}");
                return Err(RunError::Unread { what: resource, cause, next: "delete unused ones" });
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Reads an object, where it and its kind are there.
    async fn get(&mut self, kind: Kind, plural: &str, name: &str) -> Result<(), RunError> {
        match send(self.api(kind, plural).get(name)).await {
            Ok(object) => self.take(kind, object),
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(self.unread("get", &format!("{plural}.{}", group(kind)), &error)),
        }
        Ok(())
    }

    /// Takes an object as of a file. Lists give them without kind and version.
    fn take(&mut self, kind: Kind, mut object: DynamicObject) {
        object.types =
            Some(TypeMeta { api_version: kind.group_version.to_owned(), kind: kind.kind.to_owned() });
        self.errors.extend(self.manifests.add_object(Path::new(CLUSTER), &object));
    }

    fn api(&self, kind: Kind, plural: &str) -> Api<DynamicObject> {
        let version = GroupVersionKind::gvk(group(kind), "v1", kind.kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&version, plural))
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

fn group(kind: Kind) -> &'static str {
    kind.group_version.split('/').next().unwrap_or_default()
}
