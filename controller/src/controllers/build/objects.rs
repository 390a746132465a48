//! The objects of builds at the API server, whatever their kind. What it answers is put into the cache at once.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::build::{JobSettings, MACHINE_OS_BUILD};
use crate::controllers::cache::Cache;
use crate::controllers::cached::{Cached, Identified};
use crate::controllers::client::{RequestError, send};
use crate::controllers::conflict::{Conflict, Expected, judge, judged_by_uid, or_judged};
use crate::controllers::write::{Write, write};

/// A kind of object that is read and written in a namespace.
pub(super) trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
{
}

/// kube's client says nothing of itself.
#[derive(Clone)]
struct KubeClient(Client);

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// The objects in the namespace of the build settings.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    client: KubeClient,
    cache: Cache,
    pub(super) settings: JobSettings,
}

impl Objects {
    pub(super) const fn new(client: Client, cache: Cache, settings: JobSettings) -> Self {
        Self { client: KubeClient(client), cache, settings }
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.0.clone(), &self.settings.namespace)
    }

    /// Creates what carries a build out.
    pub(super) async fn create<K: Namespaced + Cached>(&self, object: &K) -> Result<(), RequestError> {
        let (api, how) = (self.api::<K>(), PostParams::default());
        let (made, name) = (write(Write::BuildJob, api.create(&how, object)).await, object.name_any());
        let made = or_judged(Write::BuildJob, made, &Expected::Absent, api.get(&name)).await;
        self.store(made.map_err(named::<K>("creation", &name))?);
        Ok(())
    }

    /// Changes what carries a build out.
    pub(super) async fn patch<K: Namespaced + Cached>(
        &self,
        name: &str,
        patch: Value,
    ) -> Result<(), RequestError> {
        let (api, how) = (self.api::<K>(), PatchParams::default());
        match write(Write::BuildJob, api.patch(name, &how, &Patch::Merge(patch))).await {
            Ok(patched) => self.store(patched),
            Err(error) => {
                let error = judged_by_uid(Write::BuildJob, error, None, api.get(name)).await;
                return Err(named::<K>("start", name)(error));
            }
        }
        Ok(())
    }

    /// Deletes it with what it owns, if it still has that UID.
    pub(super) async fn delete<K: Namespaced + Identified>(
        &self,
        name: &str,
        uid: &str,
    ) -> Result<(), RequestError> {
        let how = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let api = self.api::<K>();
        if let Err(error) = write(Write::BuildJob, api.delete(name, &how)).await {
            let error = judged_by_uid(Write::BuildJob, error, Some(uid), api.get(name)).await;
            if error.code() != 404 || !error.is_conflict() {
                return Err(named::<K>("deletion", name)(error));
            }
        }
        self.find::<K>(name).await.map(drop)
    }

    /// Reads it into the cache; returns its UID.
    pub(super) async fn find<K: Namespaced + Identified>(
        &self,
        name: &str,
    ) -> Result<Option<String>, RequestError> {
        let known = K::known(&self.cache, name);
        match send(self.api::<K>().get(name)).await {
            Ok(found) => {
                let uid = found.uid();
                self.store(found);
                Ok(uid)
            }
            Err(error) if error.code() == 404 => {
                self.cache.change(|snapshot| K::remove_gone(snapshot, name, known.as_deref()));
                Ok(None)
            }
            Err(error) => Err(named::<K>("reading", name)(error)),
        }
    }

    fn store<K: Cached>(&self, object: K) {
        self.cache.change(|snapshot| object.put(snapshot));
    }

    /// Creates the Secrets of a build, as far as they are missing.
    pub(super) async fn create_secrets(&self, secrets: &[Secret], owner: &str) -> Result<(), RequestError> {
        for secret in secrets {
            self.create_input(secret, owner).await?;
        }
        Ok(())
    }

    /// Creates an input. One that an earlier object of the same name left is replaced; where no answer came, it may be there.
    pub(super) async fn create_input<K: Namespaced>(
        &self,
        object: &K,
        owner: &str,
    ) -> Result<(), RequestError> {
        let (api, name) = (self.api::<K>(), object.name_any());
        let creation = || named::<K>("creation", &name);
        let made = write(Write::BuildInput, api.create(&PostParams::default(), object)).await;
        let Err(error) = made else { return Ok(()) };
        let found = if error.code() == 0 {
            send(api.get(&name)).await.ok()
        } else {
            let judged = judge(Write::BuildInput, error.clone(), &Expected::Absent, api.get(&name)).await;
            match judged.map_err(creation())? {
                Conflict::Changed(found) => Some(found),
                Conflict::Gone => None,
            }
        };
        let Some(found) = found else { return Err(creation()(error)) };
        if found.owner_references().iter().any(|one| one.uid == owner) {
            return Ok(());
        }
        if !is_same_input(found.meta(), object.meta()) {
            let (kind, namespace) = (K::kind(&()), &self.settings.namespace);
            return Err(RequestError::Failed(format!(
                "{kind} {namespace}/{name} is in the way of a build, and not of one; delete it"
            )));
        }
        self.delete_input(&api, &found).await?;
        let made = write(Write::BuildInput, api.create(&PostParams::default(), object)).await;
        let made = or_judged(Write::BuildInput, made, &Expected::Absent, api.get(&name)).await;
        made.map(drop).map_err(creation())
    }

    /// Deletes an input of an earlier object, as it was found.
    async fn delete_input<K: Namespaced>(&self, api: &Api<K>, found: &K) -> Result<(), RequestError> {
        let name = found.name_any();
        let seen = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
        let how = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
        let deleted = write(Write::BuildInput, api.delete(&name, &how)).await;
        let deleted =
            or_judged(Write::BuildInput, deleted, &Expected::of(found.meta()), api.get(&name)).await;
        deleted.map(drop).map_err(named::<K>("deletion", &name))
    }
}

/// Names the object of an error: a server that does not answer names none.
fn named<K: Namespaced>(action: &str, name: &str) -> impl FnOnce(RequestError) -> RequestError {
    let what = format!("{action} of {} {name}", K::kind(&()));
    move |error| error.about(&what)
}

/// Returns true if an object is the same input of an earlier run of the build: a label alone is anybody's to add.
fn is_same_input(found: &ObjectMeta, desired: &ObjectMeta) -> bool {
    let build = |metadata: &ObjectMeta| {
        metadata.labels.as_ref().and_then(|labels| labels.get(MACHINE_OS_BUILD).cloned())
    };
    let owners = |metadata: &ObjectMeta| -> Vec<(String, String)> {
        let owners = metadata.owner_references.iter().flatten();
        owners.map(|owner| (owner.kind.clone(), owner.name.clone())).collect()
    };
    build(found).is_some()
        && build(found) == build(desired)
        && !owners(found).is_empty()
        && owners(found) == owners(desired)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_of_a_person_stays() {
        let metadata = |build: &str, owner: &str| -> ObjectMeta {
            let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u" });
            let owners = if owner["name"] == "" { json!([]) } else { json!([owner]) };
            serde_json::from_value(
                json!({ "labels": { MACHINE_OS_BUILD: build }, "ownerReferences": owners }),
            )
            .unwrap()
        };
        let desired = metadata("worker-1", "build-worker-1");
        assert!(is_same_input(&metadata("worker-1", "build-worker-1"), &desired));
        assert!(!is_same_input(&metadata("worker-1", ""), &desired), "nobody owns it");
        assert!(!is_same_input(&metadata("worker-1", "mine"), &desired));
        assert!(!is_same_input(&metadata("worker-2", "build-worker-1"), &desired));
        assert!(!is_same_input(&ObjectMeta::default(), &ObjectMeta::default()));
    }
}
