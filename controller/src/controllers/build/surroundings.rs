//! Reads the surroundings of a build, when it needs them: a build is rare, and a watch of each would be held for all its life.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use machine_config_core::model::HostSpec;
use machine_config_core::model::machineconfig::MachineConfig as Document;

use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{ControllerConfig, MachineConfig};
use crate::build::{Around, GLOBAL_PULL_SECRET, REPOSITORIES, Surroundings};
use crate::controllers::cache::Cache;
use crate::controllers::client::{self, RequestError, send};
use crate::reading::Lenient;
use crate::registry::credentials_of_secret;

/// Place where surroundings are read.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) client: &'a Client,
    pub(super) cache: &'a Cache,
    /// The namespace of builds.
    pub(super) namespace: &'a str,
}

impl Place<'_> {
    /// Reads the surroundings of a build of a rendered config.
    pub(super) async fn surroundings(
        self,
        rendered: MachineConfig,
        pool: &str,
        has_policy: bool,
    ) -> Result<Surroundings, RequestError> {
        let rendered = spec(rendered).await?;
        let configs = Api::<Lenient<ControllerConfig>>::all(self.client.clone());
        let cluster = client::read(configs.get(CONTROLLER_CONFIG)).await;
        let cluster = found(cluster, &format!("ControllerConfig {CONTROLLER_CONFIG}"))?;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
        let repositories: Option<PartialObjectMeta<ConfigMap>> =
            found(send(maps.get_metadata(REPOSITORIES.0)).await, &self.named("ConfigMap", REPOSITORIES.0))?;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), self.namespace);
        let global = if self.has_secret(GLOBAL_PULL_SECRET) {
            found(send(secrets.get(GLOBAL_PULL_SECRET)).await, &self.named("Secret", GLOBAL_PULL_SECRET))?
        } else {
            None
        };
        let global = global.as_ref().and_then(credentials_of_secret);
        let around = Around {
            pool,
            rendered: &rendered,
            cluster: cluster.as_ref().map(|config| &config.spec),
            secrets: &|name| self.has_secret(name),
            has_repositories: repositories.is_some(),
            has_policy,
            global: global.as_deref(),
        };
        Surroundings::of(&around).map_err(RequestError::Failed)
    }

    fn named(self, kind: &str, name: &str) -> String {
        format!("{kind} {}/{name}", self.namespace)
    }

    fn has_secret(self, name: &str) -> bool {
        self.cache.lock().secrets.contains_key(name)
    }
}

/// Reads a rendered config whole, beside the thread of all others: it may be large.
async fn spec(rendered: MachineConfig) -> Result<HostSpec, RequestError> {
    let read = move || {
        let bytes = serde_json::to_vec(&rendered).map_err(|error| error.to_string())?;
        let document = Document::parse(&bytes, "the rendered config");
        document.and_then(|document| document.spec(None)).map_err(|error| error.to_string())
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| error.to_string()).and_then(|read| read).map_err(RequestError::Failed)
}

/// One that is not there is none.
fn found<K>(read: Result<K, RequestError>, what: &str) -> Result<Option<K>, RequestError> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code() == 404 => Ok(None),
        Err(error) => Err(error.about(&format!("reading of {what}"))),
    }
}
