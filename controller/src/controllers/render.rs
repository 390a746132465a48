//! The render controller: the MachineConfigs of each pool become one, and the pool names it as its target.
//!
//! # Decisions
//!
//! - Changes that come together are rendered together: `kubectl apply` of a directory is one rollout and not one for each file.
//!   [`SETTLE`] after the last change, at most [`SETTLE_AT_MOST`] after the first.
//! - What a config is rendered to depends on the objects alone. Two replicas, a restart and another order of events give the
//!   same name; a write that was made before is not made again.
//! - A config that the pool's nodes could not reconcile is not made their target: the pool keeps the one it has. To compare
//!   with the target is enough: what must not change is equal in all configs that ever became one.
//! - Unused rendered configs are deleted but for the newest of each pool ([`super::unused`]).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::cached::{Cached, store};
use super::client::{RequestError, read, send};
use super::events::{About, Severity, emit};
use super::metrics::Metrics;
use super::seed;
use super::unused::unused;
use crate::api::pool::{Condition, Configuration, Reference};
use crate::api::{MachineConfig, MachineConfigPool};
use crate::cost::reconcilable;
use crate::model::policy::DisruptionPolicy;
use crate::reading::Lenient;
use crate::render::{RenderError, Rendered};

/// Length of the pause after the last change.
const SETTLE: Duration = Duration::from_millis(200);

/// Longest wait after the first change.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);

/// Wait for a retry of a write, if nothing changes before.
const RETRY: Duration = Duration::from_secs(5);

/// Condition of a pool that can't be rendered.
const RENDER_DEGRADED: &str = "RenderDegraded";

/// Condition of a pool whose MachineConfigs have fields that nobody knows, and the reason of their Events.
const UNKNOWN_FIELDS: &str = "UnknownFields";

/// Unknown fields that a condition names.
const MAX_NAMED: usize = 8;

/// Runs it. It has no end.
pub(super) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    let needed = [
        Kind::Definitions,
        Kind::Pools,
        Kind::Configs,
        Kind::Nodes,
        Kind::ControllerConfig,
        Kind::Policy,
        Kind::RolloutPolicies,
        Kind::OsConfigs,
        Kind::OsBuilds,
    ];
    cache.until(|snapshot| needed.iter().all(|kind| snapshot.knows(*kind))).await;
    info!("The render controller runs");
    let mut changes = cache.inputs();
    let controller = Controller { client, cache, metrics };
    loop {
        changes.mark_unchanged();
        let again = controller.reconcile().await;
        let retry = async {
            match again {
                None => std::future::pending().await,
                Some(wait) => tokio::time::sleep(wait).await,
            }
        };
        tokio::select! {
            _ = changes.changed() => settled(&mut changes).await,
            () = retry => {}
        }
    }
}

/// Waits for a pause in the changes.
async fn settled(changes: &mut tokio::sync::watch::Receiver<u64>) {
    let latest = Instant::now() + SETTLE_AT_MOST;
    loop {
        let pause = latest.min(Instant::now() + SETTLE);
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep_until(pause) => return,
        }
        if latest <= Instant::now() {
            return;
        }
    }
}

struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
}

/// Result of a pool's rendering.
struct Outcome {
    pool: MachineConfigPool,
    rendered: Result<Rendered, String>,
    /// MachineConfigs with fields that nobody knows: name, uid, and what is said of them.
    unknown: Vec<(String, String, String)>,
}

impl Controller {
    /// Renders all pools; returns the delay before the next try, if something was refused or failed.
    async fn reconcile(&self) -> Option<Duration> {
        let mut again = None;
        let names: Vec<String> = self.cache.lock().pools.keys().cloned().collect();
        for name in names {
            let outcome = outcome(&self.cache.lock(), &name);
            let Some(outcome) = outcome else { continue };
            let written = self.bring(outcome).await;
            // One rendering keeps the thread for milliseconds. Leases and watches have their turn before the next.
            tokio::task::yield_now().await;
            let Err(error) = written else { continue };
            let wait = if error.code() == 409 && self.refresh(&name).await.is_ok() {
                // Another writer changed the pool, such as the node controller its status.
                Duration::ZERO
            } else {
                warn!("pool {name}: {error}");
                self.metrics.wrote("render", "failed");
                RETRY
            };
            again = Some(again.map_or(wait, |other: Duration| other.min(wait)));
        }
        if let Err(error) = seed::components(&self.client, &self.cache, &self.metrics).await {
            warn!("MachineConfigs of images that were built before are not written: {error}");
            again = again.or(Some(RETRY));
        }
        if let Err(error) = self.collect().await {
            warn!("rendered configs that nobody uses are not deleted: {error}");
            again = again.or(Some(RETRY));
        }
        again
    }

    /// Reads a pool as it is now.
    async fn refresh(&self, name: &str) -> Result<(), RequestError> {
        self.metrics.wrote("render", "conflict");
        let pool = send(self.pools().get(name)).await?;
        self.cache.change(|snapshot| pool.put(snapshot));
        Ok(())
    }

    async fn bring(&self, outcome: Outcome) -> Result<(), RequestError> {
        let Outcome { pool, rendered, unknown } = outcome;
        let rendered = match rendered {
            Ok(rendered) => self.admissible(&pool, rendered).await?,
            Err(why) => Err(why),
        };
        let name = pool.metadata.name.clone().unwrap_or_default();
        self.metrics.rendered(&name, rendered.is_ok());
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(why) => {
                // Which of its MachineConfigs have such fields is known again once it is rendered.
                let degraded = format!("Failed to render configuration for pool {name}: {why}");
                return self.condition(pool, RENDER_DEGRADED, Some(degraded)).await.map(drop);
            }
        };
        self.create(&pool, &rendered).await?;
        let pool = self.target(pool, &rendered).await?;
        let pool = self.condition(pool, RENDER_DEGRADED, None).await?;
        self.report_unknown(pool, &unknown).await
    }

    /// Names the fields that nobody knows: the Machine Config Operator lets them pass, so they are not refused.
    async fn report_unknown(
        &self,
        pool: MachineConfigPool,
        unknown: &[(String, String, String)],
    ) -> Result<(), RequestError> {
        let named: Vec<&str> = unknown.iter().map(|(.., text)| text.as_str()).take(MAX_NAMED).collect();
        let message = (!named.is_empty()).then(|| named.join("; "));
        let old = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        let old = old.into_iter().flatten().find(|condition| condition.type_ == UNKNOWN_FIELDS);
        if message.is_none() && old.is_none() {
            return Ok(());
        }
        let told = old.and_then(|old| old.message.clone()).unwrap_or_default();
        let version = pool.metadata.resource_version.clone();
        let pool = self.condition(pool, UNKNOWN_FIELDS, message).await?;
        if pool.metadata.resource_version == version {
            return Ok(());
        }
        for (name, uid, text) in unknown.iter().filter(|(.., text)| !told.contains(text)) {
            let about = About::machine_config(name, uid);
            emit(&self.client, &about, Severity::Warning, UNKNOWN_FIELDS, text).await;
        }
        Ok(())
    }

    /// Refuses a config that nodes with the pool's target could not reconcile.
    async fn admissible(
        &self,
        pool: &MachineConfigPool,
        rendered: Rendered,
    ) -> Result<Result<Rendered, String>, RequestError> {
        let target = pool.spec.configuration.as_ref().and_then(|target| target.name.clone());
        let Some(target) = target.filter(|name| !name.is_empty() && name != rendered.name()) else {
            return Ok(Ok(rendered));
        };
        let policy = match &self.cache.lock().policy {
            Some(Ok(policy)) => policy.clone(),
            // The policy decides the disruption of a change, not whether it is possible.
            None | Some(Err(_)) => DisruptionPolicy::defaults(),
        };
        let from = match send(self.configs().get(&target)).await {
            // One that can't be read: nodes did what they could with it.
            Ok(Lenient { object: Err(_), .. }) => return Ok(Ok(rendered)),
            Ok(Lenient { object: Ok(object), .. }) => {
                Rendered { object, sources: Vec::new(), remarks: Vec::new() }
            }
            // No config to compare with: it was deleted.
            Err(error) if error.code() == 404 => return Ok(Ok(rendered)),
            Err(error) => return Err(error),
        };
        Ok(match reconcilable(&from, &rendered, &policy) {
            Err(error @ RenderError::Irreconcilable { .. }) => Err(error.to_string()),
            // The old one can't be read: nodes did what they could with it.
            Ok(()) | Err(_) => Ok(rendered),
        })
    }

    fn configs(&self) -> Api<Lenient<MachineConfig>> {
        Api::all(self.client.clone())
    }

    fn pools(&self) -> Api<Lenient<MachineConfigPool>> {
        Api::all(self.client.clone())
    }

    /// Creates the rendered config where it is missing, and restores an edited one.
    async fn create(&self, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), RequestError> {
        let known = self.cache.lock().rendered.get(rendered.name()).cloned();
        if known.as_ref().is_some_and(|known| known.generation == 1) {
            return Ok(());
        }
        let mut object = rendered.object.clone();
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "machineconfiguration.openshift.io/v1".to_owned(),
            kind: "MachineConfigPool".to_owned(),
            name: pool.metadata.name.clone().unwrap_or_default(),
            uid: pool.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
        if known.is_some() {
            return self.restore(object).await;
        }
        match read(self.configs().create(&PostParams::default(), &Lenient::of(object.clone()))).await {
            Ok(made) => {
                info!("Rendered {} from {}", rendered.name(), rendered.sources.join(", "));
                for remark in &rendered.remarks {
                    warn!("Not applied by nodes with {}: {remark}", rendered.name());
                }
                self.metrics.wrote("render", "created");
                store(&self.cache, made);
                Ok(())
            }
            // Made before, and the watch is behind.
            Err(error) if error.code() == 409 => self.restore(object).await,
            Err(error) => Err(error),
        }
    }

    /// Restores a rendered config: its name is the digest of its content.
    async fn restore(&self, mut object: MachineConfig) -> Result<(), RequestError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let found = send(self.configs().get(&name)).await?;
        if found.object.is_ok_and(|found| found.spec == object.spec) {
            return Ok(());
        }
        object.metadata.resource_version = found.metadata.resource_version;
        send(self.configs().replace(&name, &PostParams::default(), &Lenient::of(object))).await?;
        warn!(
            "MachineConfig {name} was edited; it holds again what its name says. Edit the MachineConfigs it is rendered from"
        );
        self.metrics.wrote("render", "restored");
        Ok(())
    }

    /// Makes the rendered config the pool's target.
    async fn target(
        &self,
        pool: MachineConfigPool,
        rendered: &Rendered,
    ) -> Result<MachineConfigPool, RequestError> {
        let reference = |name: &String| Reference {
            api_version: Some("machineconfiguration.openshift.io/v1".to_owned()),
            kind: Some("MachineConfig".to_owned()),
            name: Some(name.clone()),
        };
        let target = Configuration {
            name: Some(rendered.name().to_owned()),
            source: Some(rendered.sources.iter().map(reference).collect()),
        };
        if pool.spec.configuration.as_ref() == Some(&target) {
            return Ok(pool);
        }
        let patch = json!({
            "metadata": { "resourceVersion": pool.metadata.resource_version, "uid": pool.metadata.uid },
            "spec": { "configuration": target },
        });
        let name = pool.metadata.name.clone().unwrap_or_default();
        let patched = read(self.pools().patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        self.metrics.wrote("render", "targeted");
        if pool.spec.configuration.and_then(|old| old.name) != target.name {
            info!("Pool {name} targets {}", rendered.name());
        }
        store(&self.cache, patched.clone());
        Ok(patched)
    }

    /// Sets a condition of a pool, true where there is a message; returns the pool as it is then.
    async fn condition(
        &self,
        pool: MachineConfigPool,
        type_: &'static str,
        degraded: Option<String>,
    ) -> Result<MachineConfigPool, RequestError> {
        let status = if degraded.is_some() { "True" } else { "False" };
        let message = degraded.clone().unwrap_or_default();
        let old = pool.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(String::new()),
            message: Some(message.clone()),
            last_transition_time: None,
        };
        let Some(conditions) = with_condition(&old, condition, jiff::Timestamp::now()) else {
            return Ok(pool);
        };
        let name = pool.metadata.name.clone().unwrap_or_default();
        let patch = json!({
            "metadata": { "resourceVersion": pool.metadata.resource_version, "uid": pool.metadata.uid },
            "status": { "conditions": conditions },
        });
        let patched =
            read(self.pools().patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        self.metrics.wrote("render", "reported");
        let about = About::pool(&name, patched.metadata.uid.as_deref().unwrap_or_default());
        store(&self.cache, patched.clone());
        if degraded.is_some() {
            warn!("{message}");
            emit(&self.client, &about, Severity::Warning, type_, &message).await;
        }
        Ok(patched)
    }

    /// Deletes unused rendered configs.
    async fn collect(&self) -> Result<(), RequestError> {
        let surplus = unused(&self.cache.lock());
        if surplus.is_empty() {
            return Ok(());
        }
        for (name, uid, version) in surplus {
            let preconditions = Preconditions { uid: Some(uid), resource_version: Some(version) };
            let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match send(self.configs().delete(&name, &how)).await {
                Ok(_) => {
                    info!("Deleted {name}: no node and no pool uses it");
                    self.metrics.wrote("render", "deleted");
                    self.cache.change(|snapshot| <Lenient<MachineConfig> as Cached>::remove(snapshot, &name));
                }
                Err(error) if matches!(error.code(), 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the rendered config of a pool, or its error.
fn outcome(snapshot: &Snapshot, pool: &str) -> Option<Outcome> {
    let pool = snapshot.pools.get(pool)?.as_ref().ok()?;
    if pool.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let rendered = match selected_unreadable(pool, snapshot) {
        Some(why) => Err(why),
        None => seed::rendered(pool, snapshot),
    };
    let sources = rendered.as_ref().map(|rendered| rendered.sources.as_slice()).unwrap_or_default();
    let unknown = sources.iter().filter_map(|name| unknown_fields(snapshot, name)).collect();
    Some(Outcome { pool: pool.clone(), rendered, unknown })
}

/// Returns what is to be said of a MachineConfig with fields that nobody knows.
fn unknown_fields(snapshot: &Snapshot, name: &str) -> Option<(String, String, String)> {
    let fields = snapshot.unknown_fields.get(name)?;
    let uid = snapshot.configs.get(name)?.metadata.uid.clone().unwrap_or_default();
    let named: Vec<String> = fields.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    Some((name.to_owned(), uid, format!("MachineConfig {name}: {}", named.join("; "))))
}

/// A MachineConfig that the pool selects and that can't be read: to leave it out would take it from the nodes.
fn selected_unreadable(pool: &MachineConfigPool, snapshot: &Snapshot) -> Option<String> {
    use kube::core::SelectorExt as _;
    let selector = pool.spec.machine_config_selector.clone().unwrap_or_default();
    let selector = kube::core::Selector::try_from(selector).ok()?;
    let nothing = BTreeMap::new();
    snapshot.unreadable.iter().find_map(|(name, (metadata, why))| {
        let selected = selector.matches(metadata.labels.as_ref().unwrap_or(&nothing));
        selected.then(|| format!("MachineConfig {name} can't be read: {why}; correct it"))
    })
}

/// Returns the conditions with one changed; `None` if it is unchanged. The others stay as they are.
pub(super) fn with_condition(
    old: &[Condition],
    new: Condition,
    now: jiff::Timestamp,
) -> Option<Vec<Condition>> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let before = old.iter().find(|condition| condition.type_ == new.type_);
    if before.is_some_and(|before| {
        (&before.status, text(&before.reason), text(&before.message))
            == (&new.status, text(&new.reason), text(&new.message))
    }) {
        return None;
    }
    let unchanged = before.filter(|before| before.status == new.status);
    let now = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    let since = unchanged.and_then(|before| before.last_transition_time.clone()).unwrap_or(now);
    let new = Condition { last_transition_time: Some(since), ..new };
    let mut all: Vec<Condition> = old.to_vec();
    match all.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(place) => *place = new,
        None => all.push(new),
    }
    Some(all)
}
