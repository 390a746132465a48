//! The shell of [`crate::opt_in`]: a pool's label and `ConfigMap`s become a `MachineOSConfig`, and what comes of it stands on the pool.
//!
//! It decides by what the cache has, writes one object, and decides again by what the API server answered. A controller that is killed
//! between two writes is replaced by one that makes the second. The pools go on beside each other.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::awaited::Untouched;
use super::cache::{Cache, Kind, Snapshot};
use super::cached::{Cached, Identified as _, store};
use super::client::RequestError;
use super::conflict::{Expected, or_judged};
use super::contested::{Contested, Field};
use super::events::{About, Severity, emit};
use super::follow::follow;
use super::layering::layering;
use super::metrics::Metrics;
use super::tries::Tries;
use super::unread;
use super::untyped::MachineOsConfig;
use super::work::Work;
use super::write::{Write, write, write_and_read};
use crate::api::{MachineConfig, MachineConfigPool, MachineOSConfig};
use crate::opt_in::{self, Action, CONTAINERFILES, NEWEST_IMAGE, OS_IMAGE, Results, SETTINGS};
use crate::reading::Lenient;
use crate::render::Release;

/// Wait after a conflict, if nothing changes before.
const RETRY: Duration = Duration::from_secs(5);

/// So many pools are written for at once.
const MAX_AT_ONCE: usize = 16;

/// The most writes for one pool in a row: more of them are a mistake of this program.
const MAX_WRITES: usize = 8;

/// Runs the controller until the task is aborted.
pub(super) async fn run(client: Client, cache: Cache, metrics: Metrics, namespace: String) {
    let mut watches = JoinSet::new();
    watches.spawn(follow(Api::<BuildSettings>::namespaced(client.clone(), &namespace), cache.clone()));
    watches.spawn(follow(Api::<OsImage>::namespaced(client.clone(), &namespace), cache.clone()));
    watches.spawn(follow(Api::<Containerfiles>::namespaced(client.clone(), &namespace), cache.clone()));
    UNTOUCHED.until_read(&client, &cache, &unread::OPT_IN).await;
    info!("The controller of pools that opt in runs");
    let mut changes = cache.contents();
    let (tries, contested) = (Tries::default(), Contested::default());
    let controller = Controller { client, cache, metrics, namespace, tries, contested };
    let mut work = Work::new(MAX_AT_ONCE);
    changes.mark_changed();
    loop {
        tokio::select! {
            _ = changes.changed() => {
                changes.mark_unchanged();
                controller.all_due(&mut work);
            }
            ended = work.next() => if let Some((pool, Some(wait))) = ended {
                work.add(pool, Instant::now() + wait);
            },
        }
        work.begin(|pool| {
            let (controller, pool) = (controller.clone(), pool.clone());
            async move { controller.bring(&pool).await }
        });
    }
}

/// Names pools that have opted in while their settings can't be read.
const UNTOUCHED: Untouched =
    Untouched { kinds: &unread::SETTINGS, reason: "OptInRefused", objects: untouched };

fn untouched(snapshot: &Snapshot) -> Vec<(About, String)> {
    let named = |pool: &MachineConfigPool| {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        (about, format!("Pool {name} can't enter image mode"))
    };
    snapshot.readable_pools().filter(|pool| opt_in::is_enabled(pool)).map(named).collect()
}

#[derive(Clone)]
struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    namespace: String,
    /// Failures, by pool.
    tries: Tries,
    contested: Contested,
}

/// Writes for a pool.
enum Step {
    Write(Action),
    /// With why it is refused.
    Report(Box<MachineConfigPool>, Results, Option<String>),
    Nothing,
}

impl Step {
    /// Names what is written for a pool, and returns it without versions and times.
    fn content(&self, pool: &str) -> (String, String) {
        let spec = |spec: serde_json::Result<String>| spec.unwrap_or_default();
        let (field, value) = match self {
            Self::Write(Action::CreateOsConfig(config) | Action::UpdateOsConfig(config)) => {
                ("MachineOSConfig", spec(serde_json::to_string(&config.spec)))
            }
            Self::Write(Action::DeleteOsConfig { uid, .. }) => ("MachineOSConfig", uid.clone()),
            Self::Write(Action::WriteBase(config)) => {
                ("MachineConfig with the base image", spec(serde_json::to_string(&config.spec)))
            }
            Self::Report(_, results, _) => {
                let conditions = results.conditions.iter().flatten();
                let conditions = conditions.map(|one| (&one.type_, &one.status, &one.message));
                ("image mode conditions", format!("{:?} {:?}", conditions.collect::<Vec<_>>(), results.image))
            }
            Self::Nothing => ("", String::new()),
        };
        (format!("{field} of pool {pool}"), value)
    }
}

impl Controller {
    /// Has the pools decided again: something changed.
    fn all_due(&self, work: &mut Work<String, Option<Duration>>) {
        let snapshot = self.cache.lock();
        // The list of the last kind brings the next decision.
        if !snapshot.is_between_states() {
            self.tries.keep(|pool| snapshot.pools.contains_key(pool));
            work.replace(concerned(&snapshot));
        }
    }

    /// Brings a pool to where it should be; returns the time until the next try, if something was refused or failed.
    async fn bring(&self, pool: &str) -> Option<Duration> {
        for _ in 0..MAX_WRITES {
            let step = {
                let snapshot = self.cache.lock();
                if snapshot.is_between_states() {
                    return None;
                }
                step(&snapshot, pool, &self.namespace)
            };
            let input = match &step {
                Step::Nothing => return None,
                Step::Write(action) => format!("{action:?}"),
                Step::Report(..) => "results".to_owned(),
            };
            let (field, value) = step.content(pool);
            // Of a pool that is gone nothing is left to write.
            let field = Field::new(self.about(pool)?, field);
            let wait = self.tries.wait(pool, &input);
            if let Some(wait) = wait.or_else(|| self.contested.wait(&field, &value)) {
                return Some(wait);
            }
            let written = match step {
                Step::Nothing => return None,
                Step::Write(action) => self.write(action).await,
                Step::Report(object, results, refused) => {
                    self.report(&object, results, refused.as_deref()).await
                }
            };
            if let Err(error) = written {
                return self.failed(pool, &input, &error).await;
            }
            self.tries.succeeded(pool);
            self.contested.wrote(&self.client, &field, &value).await;
        }
        None
    }

    /// Tells of a write that failed; returns the time until the next try, if there is one.
    async fn failed(&self, pool: &str, input: &str, error: &RequestError) -> Option<Duration> {
        // Somebody else wrote: the watch brings the next decision.
        if error.is_conflict() {
            return Some(RETRY);
        }
        // Of a pool that is gone nothing is told.
        let about = self.about(pool)?;
        self.metrics.wrote("opt-in", "failed");
        let failed = self.tries.failed(pool, input, error);
        let text = format!("Pool {pool} can't enter image mode: {error}");
        if failed.is_logged {
            warn!("{text}");
        }
        if failed.is_told {
            emit(&self.client, &about, Severity::Warning, "OptInRefused", &text).await;
        }
        Some(failed.wait)
    }

    fn about(&self, pool: &str) -> Option<About> {
        let snapshot = self.cache.lock();
        let found = snapshot.pools.get(pool)?.as_ref().ok()?;
        Some(About::pool(pool, found.metadata.uid.as_deref().unwrap_or_default()))
    }

    async fn write(&self, action: Action) -> Result<(), RequestError> {
        let os_configs = Api::<Lenient<MachineOSConfig>>::all(self.client.clone());
        let name = |object: &MachineOSConfig| object.metadata.name.clone().unwrap_or_default();
        match action {
            Action::CreateOsConfig(config) => {
                let (lenient, how) = (Lenient::of(*config.clone()), PostParams::default());
                let name = name(&config);
                let made = write_and_read(Write::OptInOsConfig, os_configs.create(&how, &lenient)).await;
                let expected = Expected::Absent;
                self.store(or_judged(Write::OptInOsConfig, made, &expected, os_configs.get(&name)).await?);
                info!("Created MachineOSConfig {name}: its pool has the label {}", opt_in::ENABLED);
                self.metrics.wrote("opt-in", "created");
            }
            Action::UpdateOsConfig(config) => {
                let lenient = Lenient::of(*config.clone());
                let (name, how) = (name(&config), PostParams::default());
                let expected = Expected::of(&config.metadata);
                let made =
                    write_and_read(Write::OptInOsConfig, os_configs.replace(&name, &how, &lenient)).await;
                self.store(or_judged(Write::OptInOsConfig, made, &expected, os_configs.get(&name)).await?);
                info!("Updated MachineOSConfig {name} from its ConfigMaps");
                self.metrics.wrote("opt-in", "updated");
            }
            Action::DeleteOsConfig { name, uid, version } => {
                let expected = Expected::Version { uid: Some(uid.clone()), version: version.clone() };
                let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: version };
                let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                let deleted = write(Write::OptInOsConfig, os_configs.delete(&name, &how)).await;
                or_judged(Write::OptInOsConfig, deleted, &expected, os_configs.get(&name)).await?;
                self.cache.change(|snapshot| MachineOsConfig::remove_gone(snapshot, &name, Some(&uid)));
                info!("Deleted MachineOSConfig {name}: its pool has lost the label {}", opt_in::ENABLED);
                self.metrics.wrote("opt-in", "deleted");
            }
            Action::WriteBase(config) => self.write_base(&config).await?,
        }
        Ok(())
    }

    async fn write_base(&self, config: &MachineConfig) -> Result<(), RequestError> {
        let api = Api::<Lenient<MachineConfig>>::all(self.client.clone());
        let lenient = Lenient::of(config.clone());
        let name = config.metadata.name.clone().unwrap_or_default();
        let how = PostParams::default();
        let (expected, written) = if config.metadata.resource_version.is_some() {
            let written = write_and_read(Write::OptInBaseImage, api.replace(&name, &how, &lenient)).await;
            (Expected::of(&config.metadata), written)
        } else {
            (Expected::Absent, write_and_read(Write::OptInBaseImage, api.create(&how, &lenient)).await)
        };
        let written = or_judged(Write::OptInBaseImage, written, &expected, api.get(&name)).await?;
        info!("MachineConfig {name} has the image of ConfigMap {OS_IMAGE}");
        self.metrics.wrote("opt-in", "updated");
        store(&self.cache, written);
        Ok(())
    }

    /// Writes what came of it to the pool: the annotation, then the conditions. A refusal is an Event, too.
    async fn report(
        &self,
        pool: &MachineConfigPool,
        results: Results,
        refused: Option<&str>,
    ) -> Result<(), RequestError> {
        let api = Api::<Lenient<MachineConfigPool>>::all(self.client.clone());
        let name = pool.metadata.name.clone().unwrap_or_default();
        let mut version = pool.metadata.resource_version.clone();
        let uid = &pool.metadata.uid;
        if let Some(image) = results.image {
            let patch = json!({ "metadata": {
                "resourceVersion": version, "uid": uid, "annotations": { NEWEST_IMAGE: image },
            } });
            let how = PatchParams::default();
            let patched =
                write_and_read(Write::OptInResult, api.patch(&name, &how, &Patch::Merge(patch))).await;
            let expected = Expected::Version { uid: uid.clone(), version: version.clone() };
            let patched = or_judged(Write::OptInResult, patched, &expected, api.get(&name)).await?;
            version.clone_from(&patched.metadata.resource_version);
            store(&self.cache, patched);
        }
        if let Some(conditions) = results.conditions {
            let patch = json!({
                "metadata": { "resourceVersion": version, "uid": uid },
                "status": { "conditions": conditions },
            });
            let how = PatchParams::default();
            let patched =
                write_and_read(Write::OptInResult, api.patch_status(&name, &how, &Patch::Merge(patch))).await;
            let expected = Expected::Version { uid: uid.clone(), version: version.clone() };
            let patched = or_judged(Write::OptInResult, patched, &expected, api.get(&name)).await?;
            store(&self.cache, patched);
            // The condition changes with the refusal, so each is reported once.
            if let Some(refused) = refused {
                warn!("Pool {name} is refused: {refused}");
                let about = About::pool(&name, uid.as_deref().unwrap_or_default());
                let text = format!("Pool {name} can't enter image mode: {refused}");
                emit(&self.client, &about, Severity::Warning, "OptInRefused", &text).await;
            }
        }
        self.metrics.wrote("opt-in", "reported");
        Ok(())
    }

    fn store(&self, config: MachineOSConfig) {
        let object = serde_json::to_value(config).and_then(serde_json::from_value::<DynamicObject>);
        if let Ok(object) = object {
            self.cache.change(|snapshot| MachineOsConfig::from(object).put(snapshot));
        }
    }
}

/// Returns the pools that have opted in, or have something left of it.
fn concerned(snapshot: &Snapshot) -> Vec<String> {
    let is_concerned = |pool: &&MachineConfigPool| {
        let name = pool.metadata.name.as_ref();
        let has_made =
            || snapshot.os_configs.values().any(|config| Some(&config.pool) == name && config.made.is_some());
        opt_in::is_enabled(pool) || opt_in::has_results(pool) || has_made()
    };
    snapshot.readable_pools().filter(is_concerned).filter_map(|pool| pool.metadata.name.clone()).collect()
}

/// Returns the next write for a pool.
fn step(snapshot: &Snapshot, name: &str, namespace: &str) -> Step {
    let Some(Ok(pool)) = snapshot.pools.get(name) else { return Step::Nothing };
    let map = |name: &str| snapshot.config_maps.get(name);
    let of_person = MachineOSConfig::default();
    let os_config = snapshot.os_configs.values().find(|config| config.pool == name);
    let decide = |release: Release| {
        let decided = opt_in::opt_in(&opt_in::OptInInput {
            pool,
            namespace,
            settings: map(SETTINGS),
            os_image: map(OS_IMAGE),
            containerfiles: map(CONTAINERFILES),
            release: &release,
            os_config: os_config.map(|config| config.made.as_deref().unwrap_or(&of_person)),
            configs: &snapshot.whole_configs(|name, config| {
                name.starts_with(opt_in::BASE_PREFIX) || config.spec.os_image_url.is_some()
            }),
        });
        decided.map_err(|error| error.to_string())
    };
    let refused = match snapshot.release().and_then(decide) {
        Ok(Some(action)) => return Step::Write(action),
        Ok(None) => None,
        Err(refused) => Some(refused),
    };
    let target = pool.spec.configuration.as_ref().and_then(|target| target.name.clone()).unwrap_or_default();
    let layering = layering(name, &target, &snapshot.os_configs, &snapshot.os_builds);
    let results = opt_in::results(pool, &layering, refused.as_deref(), Timestamp::now());
    if results == Results::default() {
        Step::Nothing
    } else {
        Step::Report(Box::new(pool.clone()), results, refused)
    }
}

/// A `ConfigMap` of one name.
macro_rules! watched {
    ($type:ident, $kind:expr, $name:expr) => {
        #[doc = "See its name."]
        #[derive(Debug, Clone, serde::Deserialize, Resource)]
        #[resource(inherit = ConfigMap)]
        pub(super) struct $type {
            metadata: ObjectMeta,
            data: Option<BTreeMap<String, String>>,
        }

        impl Cached for $type {
            const KIND: Kind = $kind;
            const NAME: Option<&'static str> = Some($name);

            fn insert(self, snapshot: &mut Snapshot) -> bool {
                if self.metadata.name.as_deref() != Some($name) {
                    return false;
                }
                let new = self.data.unwrap_or_default();
                snapshot.config_maps.insert($name, new.clone()) != Some(new)
            }
            fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
                name == $name && snapshot.config_maps.remove($name).is_some()
            }
            fn names(_: &Snapshot) -> std::collections::BTreeSet<String> {
                std::collections::BTreeSet::from([$name.to_owned()])
            }
        }
    };
}

watched!(BuildSettings, Kind::BuildSettings, SETTINGS);
watched!(OsImage, Kind::OsImage, OS_IMAGE);
watched!(Containerfiles, Kind::Containerfiles, CONTAINERFILES);
