//! An exhaustive walk over a small world: targets and Containerfiles change, somebody requests a rebuild, deletes a Job, a build or
//! the `MachineOSConfig`, pods fail, the registry is away, the controller dies, at each point, up to so many misfortunes. Each state
//! is visited once; invariants hold in each, and from each the world comes to rest by itself.

mod moves;
mod picture;
mod world;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash as _, Hasher as _};

use super::{Action, Ready, State, job_name};
use moves::{follow, mended, misfortunes, others};
use picture::Edge;
use world::{PRE_BUILT_IMAGE, World};

/// So many moves lead to a rest, from anywhere.
const MAX_MOVES: usize = 120;

/// States of one walk: a key that grows for ever is found out.
const MAX_STATES: usize = 2_000_000;

/// A digest of a state: all of them fit.
fn key(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Invariants of each state.
fn holds(world: &World, action: &Action) {
    for (name, starts) in &world.starts {
        let may = world.may_start.get(name).copied().unwrap_or(1);
        assert!(*starts <= may, "{name} is built {starts} times: {world:#?}");
    }
    assert!(
        world.replaced <= world.requests,
        "a build is replaced that nobody requested to replace: {world:#?}"
    );
    for (name, build) in &world.builds {
        let job = world.jobs.get(&job_name(name)).filter(|job| job.owner == build.uid);
        assert!(job.is_none() || !build.pre_built, "SEED-006: a Job of a seeded build: {world:#?}");
        if let Some(job) = job.filter(|job| !job.suspended) {
            assert_eq!(build.job_uid.as_ref(), Some(&job.uid), "a Job runs that no build names");
        }
        assert_eq!(build.state == State::Succeeded, build.image.is_some(), "{world:#?}");
    }
    if let Action::DeleteImage { image, .. } = action {
        let config = world.os_config.as_ref().filter(|config| !config.deleting);
        let is_published = config.is_some_and(|config| config.image.as_ref() == Some(image));
        assert!(!is_published && !world.used.contains(image), "OCL-026: {world:#?}");
        assert_ne!(image, PRE_BUILT_IMAGE, "an image is deleted that was not built here");
        let owners = world.builds.values().filter(|build| build.image.as_ref() == Some(image));
        assert_eq!(owners.count(), 1, "another build has the image");
    }
    let is_invalid = matches!(world.ready, Ready::Invalid(_));
    let is_created = matches!(action, Action::CreateBuild { pre_built: false, .. });
    let has_image = world.builds.values().any(|build| build.inputs == world.desired().inputs);
    assert!(!is_invalid || !is_created || has_image, "a build that can't be made is created: {world:#?}");
    assert!(!is_invalid || !matches!(action, Action::CreateJob | Action::StartJob { .. }), "{world:#?}");
    let starts = matches!(action, Action::CreateJob);
    assert!(!starts || world.pool.degraded.is_none(), "a degraded pool gets no build");
    if let Action::Publish { image, .. } = action {
        assert_eq!(world.builds[&world.desired().name].image.as_ref(), Some(image));
    }
}

/// Lets the world go on without misfortunes until nothing happens by itself any more. Returns a rest that nothing led to before.
fn comes_to_rest(world: &World, known: &mut HashSet<u64>) -> Option<World> {
    let mut world = World { misfortunes: 0, changes: 0, ..world.clone() };
    let (mut path, mut actions) = (Vec::new(), Vec::new());
    for _ in 0..MAX_MOVES {
        let key = key(&world);
        if known.contains(&key) {
            known.extend(path);
            return None;
        }
        path.push(key);
        let action = world.decide();
        holds(&world, &action);
        let done = follow(&world, &action).into_iter().next();
        let Some(next) = done.or_else(|| others(&world).into_iter().next()) else {
            is_rest(&world, &actions);
            known.extend(path);
            return Some(world);
        };
        actions.push(action);
        world = next;
    }
    panic!("it does not come to rest: {actions:#?} {world:#?}");
}

/// The image is published and all is cleared up, or the pool says what has to be done.
fn is_rest(world: &World, actions: &[Action]) {
    let says = || format!("{actions:#?} {world:#?}");
    assert!(world.builds.values().all(|build| !build.deleting), "{}", says());
    let Some(config) = &world.os_config else {
        assert!(world.builds.is_empty() && world.jobs.is_empty(), "{}", says());
        let degraded = world.pool.condition.as_ref().is_some_and(|condition| condition.is_degraded);
        assert!(!degraded, "{}", says());
        return;
    };
    let name = world.desired().name;
    let condition = world.pool.condition.as_ref().unwrap_or_else(|| panic!("no condition: {}", says()));
    let Some(build) = world.builds.get(&name) else {
        if let Ready::Invalid(why) = &world.ready {
            assert!(condition.is_degraded && condition.reason == "BuildFailed", "{}", says());
            assert!(condition.message.contains(why), "{}", says());
        } else {
            assert!(world.pool.degraded.is_some() && condition.reason == "BuildPending", "{}", says());
        }
        return;
    };
    let is_blocked = world.pool.degraded.is_some() || world.ready != Ready::Yes;
    assert!(!config.rebuild || is_blocked, "a rebuild is forgotten: {}", says());
    assert!(config.replaces.is_none() || is_blocked, "{}", says());
    match build.state {
        State::Succeeded => {
            assert_eq!((&config.image, &config.image_of), (&build.image, &Some(name.clone())), "{}", says());
            assert_eq!(config.current, Some(name.clone()), "{}", says());
            assert!(!world.jobs.contains_key(&job_name(&name)) && !condition.is_degraded, "{}", says());
            assert_eq!(condition.reason, "BuildSuccess", "{}", says());
        }
        State::Failed | State::Interrupted => {
            assert!(condition.is_degraded && condition.reason == "BuildFailed", "{}", says());
            assert!(condition.message.contains("rebuild="), "{}", says());
        }
        State::Initial | State::Prepared | State::Building => {
            assert!(is_blocked && condition.reason == "BuildPending", "{}", says());
        }
    }
}

/// Ending of each rest that is not a success, by the pool's condition.
fn is_mended(rest: &World) {
    if rest.os_config.is_none() {
        return;
    }
    let mut end = comes_to_rest(&mended(rest), &mut HashSet::new()).unwrap();
    let state = end.desired_build().state;
    assert_eq!(state, State::Succeeded, "{end:#?}");
}

struct Walk {
    states: usize,
    edges: BTreeSet<Edge>,
}

#[expect(clippy::print_stdout, reason = "the number of states is for who runs the test")]
fn walk(pre_built: bool, unlucky: u32, changes: u32) -> Walk {
    let (mut visited, mut known, mut edges) = (HashSet::new(), HashSet::new(), BTreeSet::new());
    let mut open = vec![World::new(pre_built, unlucky, changes)];
    while let Some(world) = open.pop() {
        if !visited.insert(key(&world)) {
            continue;
        }
        assert!(visited.len() < MAX_STATES, "the world is not small: {world:#?}");
        if let Some(rest) = comes_to_rest(&world, &mut known) {
            is_mended(&rest);
        }
        let action = world.decide();
        holds(&world, &action);
        let next = follow(&world, &action);
        let by = picture::name(&action);
        let to = |next: &World| picture::state(next);
        edges.extend(next.iter().map(|next| (picture::state(&world), to(next), by)));
        let removed = others(&world);
        edges.extend(removed.iter().map(|next| (picture::state(&world), to(next), "removal")));
        open.extend(next);
        open.extend(removed);
        open.extend(misfortunes(&world));
    }
    println!("{} states: {unlucky} misfortunes, {changes} changes, pre-built {pre_built}", visited.len());
    Walk { states: visited.len(), edges }
}

#[test]
fn every_state_keeps_its_invariants_and_leads_to_rest() {
    let walks = [walk(true, 1, 1), walk(false, 2, 0), walk(false, 0, 1)];
    assert!(walks.iter().all(|walk| walk.states > 100));
    picture::compare(&walks.into_iter().flat_map(|walk| walk.edges).collect());
}

/// `cargo test -p machine-config-controller --lib larger_world -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn every_state_of_larger_world_holds_invariants() {
    assert!(walk(false, 1, 1).states > 100_000);
    assert!(walk(false, 0, 2).states > 100_000);
}
