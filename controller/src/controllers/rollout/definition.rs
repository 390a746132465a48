//! The cluster's definition of pools, as far as a rollout depends on it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use crate::controllers::cache::{Cache, Kind};
use crate::controllers::client::send;

/// Fields of the definition, and the version that they were read from. A definition that comes later or changes is read again.
#[derive(Debug, Default)]
pub(super) struct PoolsDefinition {
    version: Option<String>,
    has_plan: bool,
}

impl PoolsDefinition {
    /// Reads the definition, unless the version that the cache knows was read before; returns true if it was read now.
    pub(super) async fn read(&mut self, client: &Client, cache: &Cache) -> bool {
        let Some(name) = Kind::Pools.definition() else { return false };
        let version = cache.lock().definitions.get(name).cloned();
        if version.is_none() || version == self.version {
            return false;
        }
        // One that can't be read now is read at the next decision.
        let found = send(Api::<CustomResourceDefinition>::all(client.clone()).get(name)).await;
        let Ok(found) = found else { return false };
        *self = Self { version, has_plan: has_plan(found) };
        true
    }

    /// Returns true if pools have `status.plan`.
    pub(super) fn has_plan(&self) -> bool {
        self.has_plan
    }
}

fn has_plan(definition: CustomResourceDefinition) -> bool {
    let schema = definition.spec.versions.into_iter().find_map(|version| version.schema?.open_api_v3_schema);
    let status = schema.and_then(|schema| schema.properties).and_then(|mut all| all.remove("status"));
    status.and_then(|status| status.properties).is_some_and(|all| all.contains_key("plan"))
}
