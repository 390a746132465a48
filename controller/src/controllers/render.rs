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
//! - A few pools are rendered and written beside each other: a request for one that hangs keeps no other.
//! - Nodes are given what was rendered here, whoever else writes the pool's target ([`super::own_target`]).
//! - Unused rendered configs are deleted but for the newest of each pool ([`super::unused`]).

mod attempts;
mod collect;
mod names;
mod targets;
pub(super) mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::cached::{Cached, Identified as _, store};
use super::causes::Causes;
use super::client::{RequestError, send};
use super::conflict::{Conflict, Expected, judge, judged};
use super::contested::{Contested, Field};
use super::events::{About, Severity, emit};
use super::metrics::Metrics;
use super::own_target::{is_told, present};
use super::seed;
use super::tries::Tries;
use super::unread;
use super::write::{Write, write, write_and_read};
use crate::api::pool::{Condition, Configuration, Reference};
use crate::api::{MachineConfig, MachineConfigPool};
use crate::cost::reconcilable;
use crate::interlock::TAKE_OVER;
use crate::model::NotApplied;
use crate::model::policy::DisruptionPolicy;
use crate::model::text::listed;
use crate::reading::Lenient;
use crate::render::{RenderError, Rendered};
use crate::retry::{Turn, Turns};
use machine_config_core::report::MAX_REASON_LENGTH;
use names::Names;

/// Length of the pause after the last change.
const SETTLE: Duration = Duration::from_millis(200);

/// Longest wait after the first change.
const SETTLE_AT_MOST: Duration = Duration::from_secs(2);

/// Condition of a pool that can't be rendered.
const RENDER_DEGRADED: &str = "RenderDegraded";

/// Condition of a pool whose MachineConfigs have fields that nobody knows, and the reason of their Events.
const UNKNOWN_FIELDS: &str = "UnknownFields";

/// Condition of a pool whose rendered config has what no node applies.
const FIELDS_NOT_APPLIED: &str = "FieldsNotApplied";

/// Characters of unknown fields in an Event, which may have 1024 with the name.
const MAX_EVENT_LENGTH: usize = 700;

fn is_known(snapshot: &Snapshot) -> bool {
    unread::RENDER.iter().all(|kind| snapshot.knows(*kind))
}

/// Context of the work for one pool. Clones share all but what belongs to one piece of work.
#[derive(Clone)]
struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    /// Failures, by pool.
    tries: Tries,
    /// Failures of MachineConfigs of images that were built before.
    components: Tries,
    /// Those of them that no `MachineOSConfig` rules.
    unruled: seed::Unruled,
    /// Failures of deletions, by rendered config.
    deletions: Tries,
    /// Values that were written again.
    contested: Contested,
    /// Targets that pools had before.
    turns: Arc<Mutex<Turns>>,
    /// Names of rendered configs that are about to be targets, and of those that are being deleted.
    names: Names,
    /// Time at which a contested field may be written again.
    later: Option<Duration>,
    /// Causes of failures of pools that were logged.
    causes: Causes,
}

/// Result of a pool's rendering.
struct Outcome {
    pool: MachineConfigPool,
    rendered: Result<Rendered, String>,
    /// Objects with fields that nobody knows, and what is said of them.
    unknown: Vec<(About, String)>,
    /// Cause of the refusal of the disruption policy.
    refused_policy: Option<String>,
}

impl Controller {
    fn new(client: Client, cache: Cache, metrics: Metrics) -> Self {
        Self {
            client,
            cache,
            metrics,
            tries: Tries::default(),
            components: Tries::default(),
            unruled: seed::Unruled::default(),
            deletions: Tries::default(),
            contested: Contested::default(),
            turns: Arc::default(),
            names: Names::default(),
            later: None,
            causes: Causes::default(),
        }
    }

    /// Forgets what is known of pools that are gone.
    fn forget_all_but(&self, pools: &[String]) {
        self.names.keep(pools);
        self.tries.keep(|name| pools.iter().any(|pool| pool == name));
        self.cache.change(|snapshot| {
            if let Some(all) = &mut snapshot.own_targets {
                all.retain(|name, _| pools.contains(name));
            }
            // Nothing is decided by those of pools that are gone.
            false
        });
    }

    /// Reads a pool as it is now; returns false if it is gone.
    async fn refresh(&self, name: &str) -> Result<bool, RequestError> {
        self.metrics.wrote("render", "conflict");
        let known = Lenient::<MachineConfigPool>::known(&self.cache, name);
        match send(self.pools().get(name)).await {
            Ok(pool) => self.cache.change(|snapshot| pool.put(snapshot)),
            Err(error) if error.code() == 404 => {
                self.cache.change(|snapshot| {
                    Lenient::<MachineConfigPool>::remove_gone(snapshot, name, known.as_deref())
                });
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    async fn bring(&mut self, outcome: Outcome) -> Result<(), RequestError> {
        let Outcome { pool, rendered, unknown, refused_policy } = outcome;
        let rendered = match rendered {
            Ok(rendered) => self.admissible(&pool, rendered).await?,
            Err(why) => Err(why),
        };
        let name = pool.metadata.name.clone().unwrap_or_default();
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(why) => {
                self.stands(&pool);
                // Which of its MachineConfigs have such fields is known again once it is rendered.
                let degraded = format!("Failed to render configuration for pool {name}: {why}");
                return self.condition(pool, RENDER_DEGRADED, Some(degraded)).await.map(drop);
            }
        };
        let turn = self.turn(&pool, rendered.name());
        if matches!(turn, Turn::Held(_)) {
            self.stands(&pool);
            return self.condition(pool, RENDER_DEGRADED, Some(alternates(&name))).await.map(drop);
        }
        self.names.wants(&name, rendered.name());
        self.create(&pool, &rendered).await?;
        let pool = self.target(pool, &rendered).await?;
        // Each time that it is made it is there for a moment.
        if let Some(left) = self.contested.unproven(&made(&pool, rendered.name()), "") {
            self.try_later(left);
            let degraded =
                format!("Failed to render configuration for pool {name}: {}", deleted(rendered.name()));
            return self.condition(pool, RENDER_DEGRADED, Some(degraded)).await.map(drop);
        }
        let degraded = matches!(turn, Turn::Unsettled(_)).then(|| alternates(&name));
        let pool = self.condition(pool, RENDER_DEGRADED, degraded).await?;
        let pool = self.report_unknown(pool, &unknown).await?;
        self.report_not_applied(pool, &rendered.remarks, refused_policy).await
    }

    /// Names what nodes will not apply: a node without a MachineConfigNode has no such condition, and a dropped digest is known
    /// here alone.
    async fn report_not_applied(
        &mut self,
        pool: MachineConfigPool,
        remarks: &[NotApplied],
        refused_policy: Option<String>,
    ) -> Result<(), RequestError> {
        let old = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        let is_told = old.into_iter().flatten().any(|condition| condition.type_ == FIELDS_NOT_APPLIED);
        let texts = remarks.iter().map(ToString::to_string);
        let texts: Vec<String> = refused_policy.into_iter().chain(texts).collect();
        if texts.is_empty() && !is_told {
            return Ok(());
        }
        let message = (!texts.is_empty()).then(|| listed(&texts, MAX_REASON_LENGTH));
        self.condition(pool, FIELDS_NOT_APPLIED, message).await.map(drop)
    }

    /// Names the fields that nobody knows: the Machine Config Operator lets them pass, so they are not refused.
    async fn report_unknown(
        &mut self,
        pool: MachineConfigPool,
        unknown: &[(About, String)],
    ) -> Result<MachineConfigPool, RequestError> {
        let named: Vec<&str> = unknown.iter().map(|(_, text)| text.as_str()).collect();
        let message = (!named.is_empty()).then(|| listed(&named, MAX_REASON_LENGTH));
        let old = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
        let old = old.into_iter().flatten().find(|condition| condition.type_ == UNKNOWN_FIELDS);
        if message.is_none() && old.is_none() {
            return Ok(pool);
        }
        let told = old.and_then(|old| old.message.clone()).unwrap_or_default();
        let version = pool.metadata.resource_version.clone();
        let pool = self.condition(pool, UNKNOWN_FIELDS, message).await?;
        if pool.metadata.resource_version == version {
            return Ok(pool);
        }
        for (about, text) in unknown.iter().filter(|(_, text)| !told.contains(text)) {
            emit(&self.client, about, Severity::Warning, UNKNOWN_FIELDS, text).await;
        }
        Ok(pool)
    }

    /// Refuses a config that nodes with the pool's target could not reconcile: the own one, if another program has set a further one.
    async fn admissible(
        &self,
        pool: &MachineConfigPool,
        rendered: Rendered,
    ) -> Result<Result<Rendered, String>, RequestError> {
        let own = self.cache.lock().own_target(pool).and_then(|own| own.configs.first().cloned());
        let target = own.unwrap_or_else(|| present(pool).to_owned());
        let Some(target) = Some(target).filter(|name| !name.is_empty() && name != rendered.name()) else {
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
            Err(error) => return Err(error.about(&format!("reading of MachineConfig {target}"))),
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
    async fn create(&mut self, pool: &MachineConfigPool, rendered: &Rendered) -> Result<(), RequestError> {
        self.names.usable(rendered.name())?;
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
        let what = made(pool, rendered.name());
        if !self.may_repeat(&what, "") {
            return Err(RequestError::Failed(deleted(rendered.name())));
        }
        let new = Lenient::of(object.clone());
        let (configs, how) = (self.configs(), PostParams::default());
        match write_and_read(Write::RenderedConfig, configs.create(&how, &new)).await {
            Ok(made) => {
                info!("Rendered {} from {}", rendered.name(), rendered.sources.join(", "));
                for remark in &rendered.remarks {
                    warn!("Not applied by nodes with {}: {remark}", rendered.name());
                }
                self.metrics.wrote("render", "created");
                store(&self.cache, made);
                self.contested.made(&self.client, &what).await;
                Ok(())
            }
            Err(error) => {
                let read = configs.get(rendered.name());
                match judge(Write::RenderedConfig, error, &Expected::Absent, read).await {
                    // Already exists; our cache is stale.
                    Ok(Conflict::Changed(_)) => self.restore(object).await,
                    // Absent is what it was decided by.
                    Ok(Conflict::Gone) => Ok(()),
                    Err(error) => Err(error.about(&format!("MachineConfig {}", rendered.name()))),
                }
            }
        }
    }

    /// Restores a rendered config: its name is the digest of its content.
    async fn restore(&mut self, mut object: MachineConfig) -> Result<(), RequestError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let known = Lenient::<MachineConfig>::known(&self.cache, &name);
        let found = match send(self.configs().get(&name)).await {
            Ok(found) => found,
            Err(error) => {
                // It is made by the next try.
                if error.code() == 404 {
                    self.cache.change(|snapshot| {
                        Lenient::<MachineConfig>::remove_gone(snapshot, &name, known.as_deref())
                    });
                }
                return Err(error);
            }
        };
        if found.object.is_ok_and(|found| found.spec == object.spec) {
            return Ok(());
        }
        object.metadata.resource_version = found.metadata.resource_version;
        let about = About::machine_config(&name, found.metadata.uid.as_deref().unwrap_or_default());
        let field = Field::new(about, format!("spec of MachineConfig {name}"));
        if !self.may_repeat(&field, "") {
            return Err(RequestError::Failed(format!("another program edits MachineConfig {name}; stop it")));
        }
        let object = Lenient::of(object);
        let (configs, how) = (self.configs(), PostParams::default());
        let expected = Expected::of(&object.metadata);
        if let Err(error) = write(Write::RenderedConfig, configs.replace(&name, &how, &object)).await {
            let error = judged(Write::RenderedConfig, error, &expected, configs.get(&name)).await;
            return Err(error.about(&format!("MachineConfig {name}")));
        }
        // After that, the other program is named.
        if !self.contested.is_contested(&field, "") {
            warn!(
                "MachineConfig {name} was edited and is restored. Edit the MachineConfigs it is rendered from"
            );
        }
        self.metrics.wrote("render", "restored");
        self.contested.wrote(&self.client, &field, "").await;
        Ok(())
    }

    /// Makes the rendered config the pool's target.
    async fn target(
        &mut self,
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
        let name = pool.metadata.name.clone().unwrap_or_default();
        let field = target_of(&pool);
        let is_first = self.cache.lock().own_target(&pool).is_none();
        if is_first && is_told(&pool) {
            self.contested.take_over(&field, rendered.name());
        }
        if pool.spec.configuration.as_ref() == Some(&target) {
            self.stands_with(&pool, vec![rendered.name().to_owned()]);
            return Ok(pool);
        }
        let mut metadata =
            json!({ "resourceVersion": pool.metadata.resource_version, "uid": pool.metadata.uid });
        // It was for the target that goes now: the next one of another program is taken over by another annotation.
        let is_taken_over = has_annotation(&pool, TAKE_OVER);
        if is_taken_over && let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("annotations".to_owned(), json!({ TAKE_OVER: null }));
        }
        let patch = json!({ "metadata": metadata, "spec": { "configuration": target } });
        if !self.may_repeat(&field, rendered.name()) {
            self.stand_for(&pool, vec![rendered.name().to_owned()], true);
            return Ok(pool);
        }
        // Before the node controller sees it.
        let is_contested = self.contested.is_contested(&field, rendered.name());
        self.stand_for_next(&pool, rendered.name(), is_contested);
        let (pools, how) = (self.pools(), PatchParams::default());
        let patched = write_and_read(Write::PoolTarget, pools.patch(&name, &how, &Patch::Merge(patch))).await;
        let patched = match patched {
            Ok(patched) => patched,
            Err(error) => {
                let error =
                    judged(Write::PoolTarget, error, &Expected::of(&pool.metadata), pools.get(&name)).await;
                return Err(error.about(&format!("spec.configuration of pool {name}")));
            }
        };
        self.metrics.wrote("render", "targeted");
        if present(&pool) != rendered.name() {
            let from =
                if is_taken_over { format!(", taken over from {}", present(&pool)) } else { String::new() };
            info!("Pool {name} targets {}{from}", rendered.name());
        }
        self.stand_for(&patched, vec![rendered.name().to_owned()], is_contested);
        store(&self.cache, patched.clone());
        self.contested.wrote(&self.client, &field, rendered.name()).await;
        Ok(patched)
    }

    /// Sets a condition of a pool, true where there is a message; returns the pool as it is then.
    async fn condition(
        &mut self,
        pool: MachineConfigPool,
        type_: &'static str,
        degraded: Option<String>,
    ) -> Result<MachineConfigPool, RequestError> {
        let status = if degraded.is_some() { "True" } else { "False" };
        let message = degraded.clone().unwrap_or_default();
        let name = pool.metadata.name.clone().unwrap_or_default();
        if type_ == RENDER_DEGRADED {
            self.metrics.rendered(&name, degraded.is_none());
        }
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
        let patch = json!({
            "metadata": { "resourceVersion": pool.metadata.resource_version, "uid": pool.metadata.uid },
            "status": { "conditions": conditions },
        });
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        let field = Field::new(about.clone(), format!("condition {type_} of pool {name}"));
        if !self.may_repeat(&field, &message) {
            return Ok(pool);
        }
        let (pools, how) = (self.pools(), PatchParams::default());
        let patched =
            write_and_read(Write::RenderCondition, pools.patch_status(&name, &how, &Patch::Merge(patch)))
                .await;
        let patched = match patched {
            Ok(patched) => patched,
            Err(error) => {
                let expected = Expected::of(&pool.metadata);
                let error = judged(Write::RenderCondition, error, &expected, pools.get(&name)).await;
                return Err(error.about(&format!("condition {type_} of pool {name}")));
            }
        };
        self.metrics.wrote("render", "reported");
        store(&self.cache, patched.clone());
        self.contested.wrote(&self.client, &field, &message).await;
        if degraded.is_some() {
            warn!("{message}");
            emit(&self.client, &about, Severity::Warning, type_, &message).await;
        }
        Ok(patched)
    }
}

/// Returns the cause of a target that is kept although another one was rendered a moment ago.
fn alternates(pool: &str) -> String {
    format!(
        "Failed to render configuration for pool {pool}: its MachineConfigs change back and forth, so it keeps its target until they have \
         stayed the same for a time, of 30 minutes at most; find who changes them in metadata.managedFields and stop it"
    )
}

fn has_annotation(pool: &MachineConfigPool, key: &str) -> bool {
    pool.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
}

/// Names the target of a pool.
fn target_of(pool: &MachineConfigPool) -> Field {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let about = About::pool(name, pool.metadata.uid.as_deref().unwrap_or_default());
    Field::new(about, format!("spec.configuration of pool {name}"))
}

/// Names the rendered config of a pool.
fn made(pool: &MachineConfigPool, config: &str) -> Field {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let about = About::pool(name, pool.metadata.uid.as_deref().unwrap_or_default());
    Field::new(about, format!("MachineConfig {config}"))
}

/// Returns the cause of a rendered config that is made again and again.
fn deleted(name: &str) -> String {
    format!(
        "another program deletes MachineConfig {name}; find it in the audit log of the API server and stop it"
    )
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
    let unknown = sources.iter().filter_map(|name| unknown_fields(snapshot, name));
    let unknown = unknown.chain(unknown_of_shared(snapshot)).collect();
    let refused_policy = snapshot.policy.as_ref().and_then(|policy| policy.as_ref().err()).map(|cause| {
        format!(
            "MachineConfiguration cluster is not applied: {cause}; correct it, nodes begin no update with it"
        )
    });
    Some(Outcome { pool: pool.clone(), rendered, unknown, refused_policy })
}

/// Returns what is to be said of objects of which a cluster has one.
fn unknown_of_shared(snapshot: &Snapshot) -> impl Iterator<Item = (About, String)> {
    snapshot.unknown_of_shared.iter().map(|(kind, (uid, fields))| {
        let is_policy = *kind == Kind::Policy;
        let about = if is_policy { About::disruption_policy(uid) } else { About::controller_config(uid) };
        let text = format!("{about}: {}", listed(fields, MAX_EVENT_LENGTH));
        (about, text)
    })
}

/// Returns what is to be said of a MachineConfig with fields that nobody knows.
fn unknown_fields(snapshot: &Snapshot, name: &str) -> Option<(About, String)> {
    let fields = snapshot.unknown_fields.get(name)?;
    let uid = snapshot.configs.get(name)?.object.metadata.uid.clone().unwrap_or_default();
    let about = About::machine_config(name, &uid);
    let text = format!("{about}: {}", listed(fields, MAX_EVENT_LENGTH));
    Some((about, text))
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
