//! Inputs of [`crate::build`] from the cache.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::MachineConfigPool;
use crate::api::pool::Configuration;
use crate::build::{self, Action, Answers, BuilderType, DesiredBuild, PoolCondition, decide, job_name};
use crate::controllers::cache::Snapshot;
use crate::controllers::layering::{OsBuild, OsConfig};

/// The pool's condition that is the build controller's.
pub(super) const DEGRADED: &str = "ImageBuildDegraded";

/// Conditions of a pool that keep a build from starting. `ImageBuildDegraded` is none: a build is the way out.
const KEEPS_BUILDS: [&str; 4] =
    ["NodeDegraded", "RenderDegraded", "PinnedImageSetsDegraded", "PoolSynchronizerDegraded"];

/// One `MachineOSConfig`, or what is left of it, with all that belongs to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    /// Its name.
    pub(super) name: String,
    pub(super) os_config: Option<OsConfig>,
    pub(super) object: Option<MachineConfigPool>,
    pool: Option<build::Pool>,
    pub(super) builds: BTreeMap<String, OsBuild>,
    reduced: BTreeMap<String, build::Build>,
    pub(super) jobs: BTreeMap<String, build::Job>,
    used_images: BTreeSet<String>,
}

/// Returns the names of all `MachineOSConfig`s, and of those that left something behind.
pub(super) fn groups(snapshot: &Snapshot) -> BTreeSet<String> {
    let has_condition = |pool: &&MachineConfigPool| condition(pool).is_some();
    let pools = snapshot.readable_pools().filter(has_condition).filter_map(|pool| pool.metadata.name.clone());
    let of_builds = snapshot.os_builds.values().map(|build| build.os_config.clone());
    let all = snapshot.os_configs.keys().cloned().chain(of_builds).chain(pools);
    // The pool of a MachineOSConfig of another name is that one's.
    let taken = |name: &String| {
        let mut others = snapshot.os_configs.iter().filter(|(other, _)| *other != name);
        !snapshot.os_configs.contains_key(name) && others.any(|(_, config)| config.pool == *name)
    };
    all.filter(|name| !name.is_empty() && !taken(name)).collect()
}

/// Returns the pool's condition as it is.
fn condition(pool: &MachineConfigPool) -> Option<PoolCondition> {
    let mut all = pool.status.as_ref()?.conditions.iter().flatten();
    let condition = all.find(|condition| condition.type_ == DEGRADED)?;
    Some(PoolCondition {
        is_degraded: condition.status == "True",
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    })
}

fn degraded(pool: &MachineConfigPool) -> Option<String> {
    let mut all = pool.status.as_ref()?.conditions.iter().flatten();
    let keeps = |kind: &str| KEEPS_BUILDS.contains(&kind);
    let found = all.find(|condition| condition.status == "True" && keeps(&condition.type_))?;
    // Its own message may change with each node.
    Some(format!("its condition {} shows why", found.type_))
}

impl Group {
    pub(super) fn new(name: &str, snapshot: &Snapshot) -> Self {
        let os_config = snapshot.os_configs.get(name).cloned();
        let pool = os_config.as_ref().map_or(name, |config| config.pool.as_str());
        let object = snapshot.pools.get(pool).and_then(|pool| pool.as_ref().ok()).cloned();
        let of_pool = |object: &MachineConfigPool| build::Pool {
            name: pool.to_owned(),
            degraded: degraded(object),
            condition: condition(object),
        };
        let builds: BTreeMap<String, OsBuild> = snapshot
            .os_builds
            .iter()
            .filter(|(_, build)| build.os_config == name)
            .map(|(name, build)| (name.clone(), build.clone()))
            .collect();
        let reduced: BTreeMap<String, build::Build> =
            builds.iter().map(|(name, of)| (name.clone(), of.build.clone())).collect();
        let jobs = builds.iter().filter_map(|(build, of)| {
            let all = match of.builder {
                BuilderType::OpenShiftBuild => &snapshot.openshift_builds,
                BuilderType::Job | BuilderType::Unknown(_) => &snapshot.jobs,
            };
            let name = job_name(build);
            let job = all.get(&name)?.job.clone();
            Some((name, job))
        });
        let is_held = reduced.values().any(build::Build::is_held);
        let images = snapshot.nodes.values().flat_map(|node| [&node.current, &node.desired]);
        let images = images.filter_map(|pair| pair.image.clone());
        Self {
            name: name.to_owned(),
            pool: object.as_ref().map(of_pool),
            jobs: jobs.collect(),
            used_images: if is_held { images.collect() } else { BTreeSet::new() },
            os_config,
            object,
            builds,
            reduced,
        }
    }

    /// Returns true if the pool says that its image can't be built.
    pub(super) fn is_degraded(&self) -> bool {
        let condition = self.pool.as_ref().and_then(|pool| pool.condition.as_ref());
        condition.is_some_and(|condition| condition.is_degraded)
    }

    /// Returns the builder of a build: its own where it exists, else that of the next one.
    pub(super) fn builder(&self, build: &str) -> BuilderType {
        let own = self.builds.get(build).map(|build| &build.builder);
        let next = || self.os_config.as_ref().map(|config| &config.builder);
        own.or_else(next).cloned().unwrap_or_default()
    }

    /// Returns the target of the pool.
    pub(super) fn target(&self) -> Option<(String, &Configuration)> {
        let configuration = self.object.as_ref()?.spec.configuration.as_ref()?;
        let name = configuration.name.clone().filter(|name| !name.is_empty())?;
        Some((name, configuration))
    }

    pub(super) fn decide(&self, desired: Option<&DesiredBuild>, answers: &Answers) -> Action {
        decide(&build::BuildInput {
            os_config: self.os_config.as_ref().map(|config| &config.build),
            pool: self.pool.as_ref(),
            desired,
            builds: &self.reduced,
            jobs: &self.jobs,
            used_images: &self.used_images,
            answers,
        })
    }
}
