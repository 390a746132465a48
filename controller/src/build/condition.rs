//! The pool's condition `ImageBuildDegraded`: the build's state for people.

use super::action::Waiting;
use super::input::{Build, BuildInput, PoolCondition, State};

/// Ending of a build that failed.
const NEXT: &str = "correct the cause, then change the MachineOSConfig or annotate it with \
    machineconfiguration.openshift.io/rebuild=";

/// Returns the condition that the pool should have; none where nothing was or is built for it.
pub(super) fn condition(input: &BuildInput<'_>, waiting: &Waiting) -> Option<PoolCondition> {
    let pool = input.pool?;
    if input.os_config.is_none_or(|config| config.deleting) {
        let text = format!("Pool {} has no MachineOSConfig", pool.name);
        // A pool that never had one is left alone.
        return pool.condition.as_ref().map(|_| PoolCondition::new(false, "NoLayeredObjects", text));
    }
    let pending = |is_degraded, why: String| Some(PoolCondition::new(is_degraded, "BuildPending", why));
    match waiting {
        Waiting::PoolDegraded(what) => {
            let text =
                format!("The image of pool {} is built once the pool is not degraded: {what}", pool.name);
            return pending(false, text);
        }
        Waiting::Missing(what) => {
            return pending(true, format!("The image of pool {} can't be built yet: {what}", pool.name));
        }
        Waiting::Registry(why) => {
            return pending(true, format!("The image of pool {} can't be looked up: {why}", pool.name));
        }
        Waiting::Push(why) => {
            let text =
                format!("The image of pool {} can't be pushed, so it is not built yet: {why}", pool.name);
            return pending(true, text);
        }
        Waiting::Invalid(why) => {
            let text = format!("The image of pool {} can't be built: {why}", pool.name);
            return Some(PoolCondition::new(true, "BuildFailed", text));
        }
        Waiting::Target => return None,
        Waiting::Rest | Waiting::Job | Waiting::Removal => {}
    }
    let desired = input.desired?;
    match input.builds.get(&desired.name).filter(|build| !build.deleting) {
        Some(build) => Some(of_build(&pool.name, &desired.name, build)),
        None => pending(false, format!("The image of pool {} is queued", pool.name)),
    }
}

fn of_build(pool: &str, name: &str, build: &Build) -> PoolCondition {
    let failed = |what: &str| {
        let message = if build.message.is_empty() { "no message" } else { build.message.as_str() };
        let text = format!("{what} OS image for pool {pool} (MachineOSBuild: {name}): {message}; {NEXT}");
        PoolCondition::new(true, "BuildFailed", text)
    };
    match build.state {
        State::Initial | State::Prepared => PoolCondition::new(
            false,
            "BuildPending",
            format!("Build {name} of pool {pool} waits for its pod"),
        ),
        State::Building => {
            PoolCondition::new(false, "Building", format!("Build {name} of pool {pool} is running"))
        }
        State::Succeeded => {
            PoolCondition::new(false, "BuildSuccess", format!("Build succeeded for pool {pool}"))
        }
        State::Failed => failed("Failed to build"),
        State::Interrupted => failed("Interrupted the build of the"),
    }
}
