//! Pools and rendered configs of a cluster.
//!
//! Pools, builds and the `ControllerConfig` are watched, reduced to what is read. A rendered config is fetched when a node asks
//! for it; the last ones are cached for when the API server is away.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::ClusterResourceScope;
use kube::api::Api;
use kube::runtime::reflector::{Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde_json::Value;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::authorities::authorities;
use super::choice::{self, Images};
use super::ignition::Joining;
use super::no_config::NoConfig;
use crate::api::controller_config::CONTROLLER_CONFIG;
use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use crate::reading::{Lenient, Object};
use crate::watches;

/// Timeout of a config's read from the API server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Most rendered configs in the cache.
const MAX_CACHED: usize = 8;

/// The cluster.
pub struct Cluster {
    client: Client,
    pools: Watched<MachineConfigPool>,
    os_configs: Watched<MachineOSConfig>,
    builds: Watched<MachineOSBuild>,
    controller_configs: Watched<ControllerConfig>,
    cached: Mutex<VecDeque<MachineConfig>>,
    /// The watches end with this.
    _watches: JoinSet<()>,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("pools", &self.pools.objects.len()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Begins to watch. Within a tokio runtime.
    pub fn watch(client: Client) -> Self {
        let mut watches = JoinSet::new();
        let pools = watched(&client, &mut watches, all(), |pool: &mut MachineConfigPool| {
            pool.spec.machine_config_selector = None;
            pool.spec.node_selector = None;
            if let Some(status) = &mut pool.status {
                status.conditions = None;
            }
        });
        let os_configs =
            watched(&client, &mut watches, all(), |os: &mut MachineOSConfig| os.spec.container_file = None);
        let builds = watched(&client, &mut watches, all(), |build: &mut MachineOSBuild| {
            if let Some(status) = &mut build.status {
                status.related_objects = None;
            }
        });
        // By its name: it holds the pull secret, so a role names it.
        let only = watcher::Config::default().fields(&format!("metadata.name={CONTROLLER_CONFIG}"));
        let controller_configs = watched(&client, &mut watches, only, |config: &mut ControllerConfig| {
            let spec = std::mem::take(&mut config.spec);
            config.spec.kube_api_server_serving_ca_data = spec.kube_api_server_serving_ca_data;
            config.spec.cloud_provider_ca_data = spec.cloud_provider_ca_data;
            config.spec.image_registry_bundle_data = spec.image_registry_bundle_data;
            config.spec.image_registry_bundle_user_data = spec.image_registry_bundle_user_data;
        });
        let cached = Mutex::default();
        Self { client, pools, os_configs, builds, controller_configs, cached, _watches: watches }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.pools.is_listed()
            && self.os_configs.is_known()
            && self.builds.is_known()
            && self.controller_configs.is_known()
    }

    pub(super) async fn joining(&self, name: &str) -> Result<Joining, NoConfig> {
        if !self.is_ready() {
            return Err(NoConfig::NotYet("the API server has not listed the pools yet".to_owned()));
        }
        let Some(pool) = self.pools.objects.find(|pool| pool.name_any() == name) else {
            // It may come: a node that was started too early retries.
            return Err(NoConfig::NotYet(format!("there is no MachineConfigPool {name} in the cluster")));
        };
        let pool = readable(&pool)?;
        let config = choice::config(pool);
        let config =
            config.ok_or_else(|| NoConfig::NotYet(format!("pool {name} has no rendered config yet")))?;
        let (os_configs, builds) = (self.os_configs.objects.state(), self.builds.objects.state());
        // One that can't be read may be of this pool, and its image would be missing.
        let configs: Vec<_> = os_configs.iter().map(|one| readable(one)).collect::<Result<_, _>>()?;
        let builds: Vec<_> = builds.iter().filter_map(|one| one.object.as_ref().ok()).collect();
        let image = choice::image(pool, config, &Images { configs: &configs, builds: &builds });
        let image = image.map(str::to_owned);
        let mut joining = Joining { config: self.fetch(config).await?, image, ..Joining::default() };
        if let Some(cluster) = self.controller_configs.objects.find(|one| one.name_any() == CONTROLLER_CONFIG)
        {
            joining.authorities = authorities(&readable(&cluster)?.spec)?;
        }
        Ok(joining)
    }

    /// Gets a rendered config: as the API server has it, or as it was last where that can't be reached.
    async fn fetch(&self, name: &str) -> Result<MachineConfig, NoConfig> {
        let api: Api<Lenient<MachineConfig>> = Api::all(self.client.clone());
        match tokio::time::timeout(FETCH_TIMEOUT, api.get(name)).await {
            Ok(Ok(config)) => {
                let config = readable(&config)?;
                self.store(config);
                Ok(config.clone())
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                Err(NoConfig::NotYet(format!("there is no MachineConfig {name} in the cluster")))
            }
            refused => {
                let why = match refused {
                    Ok(Err(kube::Error::Api(status))) => format!("status {}", status.code),
                    Ok(_) => "it can't be reached".to_owned(),
                    Err(_) => format!("no answer in {} s", FETCH_TIMEOUT.as_secs()),
                };
                let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
                let config = cached.iter().find(|config| config.name_any() == name).cloned();
                let away = || format!("the API server does not give MachineConfig {name}: {why}");
                config.ok_or_else(|| NoConfig::NotYet(away()))
            }
        }
    }

    fn store(&self, config: &MachineConfig) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|other| other.name_any() != config.name_any());
        cached.push_back(config.clone());
        if cached.len() > MAX_CACHED {
            cached.pop_front();
        }
    }
}

/// Returns an object, or the cause why it can't be read.
fn readable<K: Resource<DynamicType = ()>>(found: &Lenient<K>) -> Result<&K, NoConfig> {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let unread = |cause: &String| {
        NoConfig::NotYet(format!("{} {name} can't be read: {cause}; correct it", K::kind(&())))
    };
    found.object.as_ref().map_err(unread)
}

/// The objects of a kind.
struct Watched<K: Resource<DynamicType = ()> + Clone + 'static> {
    objects: Store<Lenient<K>>,
    state: Arc<State>,
}

/// State of a watch.
#[derive(Default)]
struct State {
    listed: AtomicBool,
    /// The cluster has no such kind.
    absent: AtomicBool,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Watched<K> {
    fn is_listed(&self) -> bool {
        self.state.listed.load(Ordering::Relaxed)
    }

    /// Returns true if the kind was listed or is absent.
    fn is_known(&self) -> bool {
        self.is_listed() || self.state.absent.load(Ordering::Relaxed)
    }
}

fn all() -> watcher::Config {
    watcher::Config::default()
}

fn watched<K>(
    client: &Client,
    watches: &mut JoinSet<()>,
    which: watcher::Config,
    reduce: fn(&mut K),
) -> Watched<K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    K: Object + Clone + Debug + Send + Sync + 'static,
{
    let (objects, writer) = store();
    let state = Arc::new(State::default());
    let known = Arc::clone(&state);
    // No Lease tells of a restore here: what broke is listed again.
    let events = watches::paced(Api::<Lenient<K>>::all(client.clone()), which)
        .modify(move |found: &mut Lenient<K>| {
            found.metadata.managed_fields = None;
            found.metadata.annotations = None;
            (found.excerpt, found.unknown) = (Value::Null, Vec::new());
            if let Ok(object) = &mut found.object {
                object.managed_fields_mut().clear();
                object.annotations_mut().clear();
                reduce(object);
            }
        })
        .reflect(writer);
    watches.spawn(async move {
        let mut events = std::pin::pin!(events);
        let mut is_well = true;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if !is_well {
                        info!("watching {} again", K::plural(&()));
                    }
                    is_well = true;
                    if matches!(event, watcher::Event::InitDone) {
                        known.listed.store(true, Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    known.absent.store(is_absent(&error), Ordering::Relaxed);
                    // Once for each outage; it is tried again until it works.
                    if is_well {
                        warn!("can't watch {}: {}", K::plural(&()), cause(&error));
                    }
                    is_well = false;
                }
            }
        }
    });
    Watched { objects, state }
}

fn is_absent(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Returns the last cause: it has most detail.
fn cause(error: &watcher::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    watches::of_reader(&error.to_string()).to_owned()
}
