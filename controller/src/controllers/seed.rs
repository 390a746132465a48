//! The shell of [`crate::seed`], beside the render controller: MachineConfigs of images that were built before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Client};
use tracing::{info, warn};

use super::cache::{Cache, Snapshot};
use super::cached::{Identified as _, store};
use super::client::RequestError;
use super::conflict::{Expected, judged};
use super::events::{About, Severity, emit};
use super::metrics::Metrics;
use super::tries::Tries;
use super::write::{Write, write, write_and_read};
use crate::api::{MachineConfig, MachineConfigPool};
use crate::reading::Lenient;
use crate::render::{Rendered, render, render_first};
use crate::seed::{Action, COMPONENT_PREFIX, Source, actions, selected, unruled, with_components};

/// So many are written at once.
const MAX_AT_ONCE: usize = 4;

/// Renders a pool with the image that was built before, where it has one: also before the API server has that MachineConfig.
pub(super) fn rendered(pool: &MachineConfigPool, snapshot: &Snapshot) -> Result<Rendered, String> {
    let sources = sources(snapshot);
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let nothing = BTreeMap::new();
    // A selector that can't be read is refused by the rendering.
    let selector = Selector::try_from(pool.spec.machine_config_selector.clone().unwrap_or_default()).ok();
    let is_selected = |config: &MachineConfig| {
        let labels = config.metadata.labels.as_ref().unwrap_or(&nothing);
        selector.as_ref().is_some_and(|selector| selector.matches(labels))
    };
    let configs = snapshot.whole_configs(|name, config| is_component(name) || is_selected(config));
    let configs = with_components(name, &sources, &configs).map_err(|error| error.to_string())?;
    let configs = configs.iter().map(|config| &**config);
    let release = snapshot.release()?;
    // Nodes with a target may have what the first ones would refuse: that is judged from their target.
    let target = pool.spec.configuration.as_ref().and_then(|target| target.name.as_deref());
    let rendered = match target.filter(|name| !name.is_empty()) {
        Some(_) => render(pool, configs, &release).map_err(|error| error.to_string())?,
        None => render_first(pool, configs, &release)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?,
    };
    selected(name, &sources, &rendered.sources).map_err(|error| error.to_string())?;
    Ok(rendered)
}

fn is_component(name: &str) -> bool {
    name.starts_with(COMPONENT_PREFIX)
}

fn sources(snapshot: &Snapshot) -> Vec<Source> {
    snapshot.os_configs.values().map(|config| config.seed.clone()).collect()
}

/// Those that nobody rules, and that are told: name and UID. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Unruled(Arc<Mutex<BTreeSet<(String, String)>>>);

impl Unruled {
    /// Takes those that there are now; returns the names of new ones.
    fn take(&self, now: BTreeSet<(String, String)>) -> Vec<String> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = now.difference(&told).map(|(name, _)| name.clone()).collect();
        *told = now;
        new
    }
}

/// Creates, updates and deletes these MachineConfigs as the `MachineOSConfig`s require; returns the time until the next try, if something
/// was refused or failed.
pub(super) async fn components(
    client: &Client,
    cache: &Cache,
    metrics: &Metrics,
    tries: &Tries,
    told: &Unruled,
) -> Option<Duration> {
    let (actions, unruled) = {
        let snapshot = cache.lock();
        let (sources, configs) = (sources(&snapshot), snapshot.whole_configs(|name, _| is_component(name)));
        let key = |config: &MachineConfig| (name(config), config.metadata.uid.clone().unwrap_or_default());
        // Errors of a source are reported where its pool is rendered.
        (actions(&sources, &configs).0, unruled(&sources, &configs).map(key).collect::<BTreeSet<_>>())
    };
    let components = Components { client, cache, metrics, tries };
    for name in told.take(unruled) {
        components.tell_unruled(&name).await;
    }
    let waits = stream::iter(actions).map(|action| components.bring(action)).buffer_unordered(MAX_AT_ONCE);
    waits.collect::<Vec<_>>().await.into_iter().flatten().min()
}

struct Components<'a> {
    client: &'a Client,
    cache: &'a Cache,
    metrics: &'a Metrics,
    tries: &'a Tries,
}

impl Components<'_> {
    /// Makes a write, unless it failed a moment ago; returns the time until the next try, if there is one.
    async fn bring(&self, action: Action) -> Option<Duration> {
        let (outcome, config) = match &action {
            Action::Create(config) => ("created", config),
            Action::Update(config) => ("updated", config),
            Action::Delete(config) => ("deleted", config),
        };
        let name = config.metadata.name.clone().unwrap_or_default();
        let image = config.spec.os_image_url.as_deref().unwrap_or_default();
        let (field, input) =
            (format!("MachineConfig {name} of an image that was built before"), format!("{outcome} {image}"));
        if let Some(wait) = self.tries.wait(&field, &input) {
            return Some(wait);
        }
        let expected = match &action {
            Action::Create(_) => Expected::Absent,
            Action::Update(config) | Action::Delete(config) => Expected::of(&config.metadata),
        };
        let api = Api::<Lenient<MachineConfig>>::all(self.client.clone());
        let error = match execute(&api, self.cache, action).await {
            Ok(done) => {
                info!("{done}");
                self.metrics.wrote("render", outcome);
                self.tries.succeeded(&field);
                return None;
            }
            Err(error) => judged(Write::SeedConfig, error, &expected, api.get(&name)).await,
        };
        if error.is_conflict() {
            // Another process wrote first, and the watch is behind: it brings the next decision.
            return None;
        }
        let failed = self.tries.failed(&field, &input, &error);
        let text = format!("{field} is not {outcome}: {error}");
        if failed.is_logged {
            warn!("{text}");
        }
        if failed.is_told
            && let Some(about) = self.pool_of(&name)
        {
            emit(self.client, &about, Severity::Warning, "PrebuiltImageNotWritten", &text).await;
        }
        Some(failed.wait)
    }

    /// Tells of a MachineConfig that stays because it names no maker: a person's would look like it.
    async fn tell_unruled(&self, name: &str) {
        let text = format!(
            "MachineConfig {name} stays, and its image with it: it is as the Machine Config Operator makes it and names no maker, and no \
             MachineOSConfig is for its pool. If nobody needs it: kubectl delete machineconfig {name}"
        );
        info!("{text}");
        let Some(about) = self.pool_of(name) else { return };
        emit(self.client, &about, Severity::Warning, "PrebuiltImageLeft", &text).await;
    }

    /// Returns the pool whose nodes have the image of such a MachineConfig.
    fn pool_of(&self, config: &str) -> Option<About> {
        let name = config.strip_prefix(COMPONENT_PREFIX)?;
        let snapshot = self.cache.lock();
        let pool = snapshot.pools.get(name)?.as_ref().ok()?;
        Some(About::pool(name, pool.metadata.uid.as_deref().unwrap_or_default()))
    }
}

fn name(config: &MachineConfig) -> String {
    config.metadata.name.clone().unwrap_or_default()
}

/// Makes one write; returns its log line.
async fn execute(
    api: &Api<Lenient<MachineConfig>>,
    cache: &Cache,
    action: Action,
) -> Result<String, RequestError> {
    match action {
        Action::Create(config) => {
            let name = name(&config);
            let config = Lenient::of(*config);
            let how = PostParams::default();
            store(cache, write_and_read(Write::SeedConfig, api.create(&how, &config)).await?);
            Ok(format!("Created {name}: the image was built before"))
        }
        Action::Update(config) => {
            let name = name(&config);
            let config = Lenient::of(*config);
            let how = PostParams::default();
            store(cache, write_and_read(Write::SeedConfig, api.replace(&name, &how, &config)).await?);
            Ok(format!("Wrote {name} as its MachineOSConfig names it now"))
        }
        Action::Delete(config) => {
            let name = name(&config);
            let preconditions = Preconditions {
                uid: config.metadata.uid.clone(),
                resource_version: config.metadata.resource_version.clone(),
            };
            let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            write(Write::SeedConfig, api.delete(&name, &how)).await?;
            let uid = config.metadata.uid.as_deref();
            cache.change(|snapshot| Lenient::<MachineConfig>::remove_gone(snapshot, &name, uid));
            Ok(format!("Deleted {name}: no MachineOSConfig names its image"))
        }
    }
}
