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
    let release = "the plan has no image of a release";
    reader.get(Kind::CONTROLLER_CONFIG, "controllerconfigs", CONTROLLER_CONFIG, release).await?;
    let policy = "the plan is by the default disruption policy";
    reader.get(Kind::POLICY, "machineconfigurations", "cluster", policy).await?;
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
            let list = match send(api.list(&page)).await {
                Ok(list) => list,
                Err(error) => {
                    let is_served = self.is_served(&error, kind, plural).await;
                    return Err(self.unread("list", &resource, &error, is_served));
                }
            };
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

    /// Reads an object, where it is there. A kind that the cluster does not have is named, with what follows.
    async fn get(&mut self, kind: Kind, plural: &str, name: &str, without: &str) -> Result<(), RunError> {
        let error = match send(self.api(kind, plural).get(name)).await {
            Ok(object) => {
                self.take(kind, object);
                return Ok(());
            }
            Err(error) => error,
        };
        let resource = format!("{plural}.{}", group(kind));
        match self.is_served(&error, kind, plural).await {
            false => {
                let note = format!("the cluster has no {resource}, so {without}");
                self.manifests.notes.push(note);
                Ok(())
            }
            true if error.code() == 404 => Ok(()),
            true => Err(self.unread("get", &resource, &error, true)),
        }
    }

    /// Returns false if a request failed because the API server does not have the kind. The answer to a path that it does not know is
    /// no status, and has no code.
    async fn is_served(&self, error: &RequestError, kind: Kind, plural: &str) -> bool {
        if !matches!(error, RequestError::Refused(_)) || !matches!(error.code(), 0 | 404) {
            return true;
        }
        let Ok(groups) = send(self.client.list_api_groups()).await else { return true };
        let has_version = groups
            .groups
            .iter()
            .any(|group| group.versions.iter().any(|version| version.group_version == kind.group_version));
        if !has_version {
            return false;
        }
        let resources = send(self.client.list_api_group_resources(kind.group_version)).await;
        resources.map_or(true, |all| all.resources.iter().any(|resource| resource.name == plural))
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
    fn unread(&self, verb: &str, resource: &str, error: &RequestError, is_served: bool) -> RunError {
        let code = if is_served { error.code() } else { 404 };
        let (what, next) = match code {
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
        let cause = if is_served { error.to_string() } else { "the cluster has no such kind".to_owned() };
        RunError::Unread { what, cause, next }
    }
}

fn group(kind: Kind) -> &'static str {
    kind.group_version.split('/').next().unwrap_or_default()
}
