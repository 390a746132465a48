//! The cluster's definition of pools, as far as a rollout depends on it.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::controllers::cache::{Cache, Kind};
use crate::controllers::client::{send, uptime};
use crate::retry::Retries;

/// The first read is waited for so long; later ones are made beside the decisions.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Fields of the definition, and the version that they were read from. A definition that comes later or changes is read again.
#[derive(Debug, Default)]
pub(super) struct PoolsDefinition {
    version: Option<String>,
    has_plan: bool,
    /// The read under way.
    reading: Option<JoinHandle<Answer>>,
    retries: Retries,
    /// It was read since [`PoolsDefinition::read`] said so.
    is_news: bool,
}

/// The version that the cache knew, and whether the definition has `status.plan`, or why it can't be read.
type Answer = (String, Result<bool, String>);

impl PoolsDefinition {
    /// Has the definition read, unless the version that the cache knows was read before; returns true if it was read since the last
    /// call.
    pub(super) async fn read(&mut self, client: &Client, cache: &Cache) -> bool {
        let Some(name) = Kind::Pools.definition() else { return false };
        let version = cache.lock().definitions.get(name).cloned();
        let new = version.filter(|version| self.version.as_ref() != Some(version));
        match new {
            None => self.retries = Retries::default(),
            Some(new) if self.reading.is_none() && self.retries.wait(name, &new, uptime()).is_none() => {
                let (is_first, client) = (self.retries.cause(name).is_none(), client.clone());
                self.reading = Some(tokio::spawn(async move {
                    let found = send(Api::<CustomResourceDefinition>::all(client).get(name)).await;
                    (new, found.map(has_plan).map_err(|error| error.to_string()))
                }));
                if is_first {
                    // Without an answer it goes on.
                    drop(timeout(FIRST_ANSWER, self.answered()).await);
                }
            }
            Some(_) => {}
        }
        std::mem::take(&mut self.is_news)
    }

    /// Waits for the answer to the read under way. Cancel-safe.
    pub(super) async fn answered(&mut self) {
        let Some(reading) = &mut self.reading else { return std::future::pending().await };
        let answer = reading.await;
        self.reading = None;
        let (Ok((version, found)), Some(name)) = (answer, Kind::Pools.definition()) else { return };
        match found {
            Ok(has_plan) => {
                (self.version, self.has_plan, self.is_news) = (Some(version), has_plan, true);
                self.retries = Retries::default();
            }
            Err(cause) => {
                let (_, is_news) = self.retries.failed(name, &version, &cause, uptime());
                if is_news {
                    warn!(
                        "CustomResourceDefinition {name} can't be read: {cause}; pools have no status.plan until it can"
                    );
                }
            }
        }
    }

    /// Returns the time until the next try, where the last one failed.
    pub(super) fn next_try(&self) -> Option<Duration> {
        self.retries.next(Kind::Pools.definition()?, uptime()).filter(|_| self.reading.is_none())
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
