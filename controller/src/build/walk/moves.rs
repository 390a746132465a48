//! Events of the walk: results of the controller's action, acts of others in the cluster, and failures.

use std::time::Duration;

use super::world::{PRE_BUILT_IMAGE, TARGETS, World};
use crate::build::*;

/// Results of an action: the good answer first.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is left is a write")]
pub(super) fn follow(world: &World, action: &Action) -> Vec<World> {
    let bad = world.misfortunes.checked_sub(1).map(|misfortunes| World { misfortunes, ..world.clone() });
    let mut all = Vec::new();
    match action {
        Action::Wait { retry: false } => {}
        // Requested again, sooner or later.
        Action::Wait { retry: true } => {
            all.push(World { answers: Answers::default(), ..world.clone() });
            all.extend(unanswered(world));
        }
        Action::Query(query) => return answered(world, bad, query),
        Action::DeleteImage { build, image } => {
            let mut deleted = |world: &World, answer: Deletion, is_gone: bool| {
                let mut world = world.clone();
                world.answers.deletions.insert(build.clone(), answer);
                if is_gone {
                    world.lost.insert(image.clone());
                }
                all.push(world);
            };
            deleted(world, Deletion::Done, true);
            if let Some(bad) = bad {
                deleted(&bad, Deletion::Refused("405".to_owned()), false);
                deleted(&bad, failed("away"), false);
                deleted(&bad, failed("no answer"), true);
            }
        }
        _ => return written(world, bad, action),
    }
    all
}

fn failed(cause: &str) -> Deletion {
    Deletion::Failed { cause: cause.to_owned(), unanswered: Duration::ZERO }
}

/// The registry has not answered for an hour.
fn unanswered(world: &World) -> Option<World> {
    let mut late = world.clone();
    let mut failed = false;
    for answer in late.answers.deletions.values_mut() {
        if let Deletion::Failed { unanswered, .. } = answer {
            (*unanswered, failed) = (Duration::from_secs(3600), true);
        }
    }
    failed.then_some(late)
}

fn written(world: &World, bad: Option<World>, action: &Action) -> Vec<World> {
    let mut good = world.clone();
    good.execute(action.clone());
    let mut all = vec![good];
    // It dies between two inputs.
    if let (Action::StartJob { uid }, Some(mut bad)) = (action, bad) {
        bad.inputs.insert(uid.clone(), 1);
        bad.answers = Answers::default();
        all.push(bad);
    }
    all
}

fn answered(world: &World, bad: Option<World>, query: &Query) -> Vec<World> {
    let mut good = world.clone();
    let mut all = Vec::new();
    match query {
        Query::Image(image) => {
            let there = if world.lost.contains(image) { Registry::Missing } else { Registry::There };
            good.answers.registry.insert(image.clone(), there);
            if let Some(mut bad) = bad {
                let mut away = bad.clone();
                away.answers.registry.insert(image.clone(), Registry::Unknown("401".to_owned()));
                bad.lost.insert(image.clone());
                all.extend([away, bad]);
            }
        }
        Query::Push => {
            let name = world.desired().name;
            good.answers.pushes.insert(name.clone(), PushAccess::NotRefused);
            if let Some(mut bad) = bad {
                bad.answers.pushes.insert(name, PushAccess::Refused("401".to_owned()));
                all.push(bad);
            }
        }
        Query::Pods(uid) => {
            let outcome = Outcome { image: Some(format!("registry.test/os@{uid}")), failure: None };
            good.answers.outcomes.insert(uid.clone(), outcome);
            if let Some(mut bad) = bad {
                bad.answers.outcomes.insert(uid.clone(), Outcome::default());
                all.push(bad);
            }
        }
        Query::Job { name, uid } => {
            assert!(world.jobs.get(name).is_none_or(|job| job.uid != *uid));
            good.answers.absent_jobs.insert(uid.clone());
        }
    }
    all.insert(0, good);
    all
}

/// Acts of the rest of the cluster, without a failure.
pub(super) fn others(world: &World) -> Vec<World> {
    let mut all = Vec::new();
    let mut push = |world: World| all.push(world);
    for (name, job) in &world.jobs {
        let mut next = world.clone();
        if job.deleting {
            next.jobs.remove(name);
            next.inputs.remove(&job.uid);
            push(next);
            continue;
        }
        if !world.builds.values().any(|build| build.uid == job.owner) {
            next.jobs.get_mut(name).unwrap().deleting = true;
            push(next);
            continue;
        }
        let is_over = job.is_complete || job.failure.is_some();
        if job.suspended || is_over {
            continue;
        }
        assert_eq!(world.inputs[&job.uid], 2, "a Job runs without its inputs");
        let next_job = next.jobs.get_mut(name).unwrap();
        if job.failed > MAX_FAILURES {
            next_job.failure = Some("BackoffLimitExceeded".to_owned());
        } else if job.active == 0 {
            next_job.active = 1;
        } else {
            (next_job.active, next_job.succeeded, next_job.is_complete) = (0, 1, true);
        }
        push(next);
    }
    for (name, build) in &world.builds {
        let is_owned = world.os_config.as_ref().is_some_and(|config| config.uid == build.owner);
        let mut next = world.clone();
        if build.deleting && !build.has_finalizer {
            next.builds.remove(name);
            push(next);
        } else if !build.deleting && !is_owned {
            next.delete_build(name);
            push(next);
        }
    }
    if world.os_config.as_ref().is_some_and(|config| config.deleting) {
        push(World { os_config: None, ..world.clone() });
    }
    all
}

/// Failures, and acts of people.
pub(super) fn misfortunes(world: &World) -> Vec<World> {
    let mut all = people(world);
    let Some(misfortunes) = world.misfortunes.checked_sub(1) else { return all };
    let world = World { misfortunes, ..world.clone() };
    // The controller dies.
    if world.answers != Answers::default() {
        all.push(World { answers: Answers::default(), ..world.clone() });
    }
    for (name, job) in &world.jobs {
        let is_over = job.is_complete || job.failure.is_some() || job.deleting;
        if job.active > 0 && !is_over {
            for failed in [1, MAX_FAILURES + 1] {
                let mut next = world.clone();
                let job = next.jobs.get_mut(name).unwrap();
                (job.active, job.failed) = (0, job.failed + failed);
                all.push(next);
            }
        }
        // Deleted by hand: observed, or only that it is gone.
        let mut next = world.clone();
        next.jobs.get_mut(name).unwrap().deleting = true;
        all.push(next);
        let mut next = world.clone();
        next.jobs.remove(name);
        all.push(next);
    }
    for (name, build) in &world.builds {
        if !build.deleting {
            let mut next = world.clone();
            next.delete_build(name);
            all.push(next);
        }
    }
    all
}

/// Other targets: as they are, and too large to be built. The image may be the same.
fn other_targets(world: &World) -> Vec<World> {
    let others = (0..TARGETS.len()).filter(|target| *target != world.target);
    let to = |target| {
        let next = World { target, ..world.clone() };
        let too_large = World { ready: Ready::Invalid("too large".to_owned()), ..next.clone() };
        [next, too_large]
    };
    others.flat_map(to).collect()
}

fn people(world: &World) -> Vec<World> {
    let mut all = Vec::new();
    // What is missing or degraded comes right.
    if matches!(world.ready, Ready::Missing(_)) {
        all.push(World { ready: Ready::Yes, ..world.clone() });
    }
    if world.pool.degraded.is_some() {
        let mut next = world.clone();
        next.pool.degraded = None;
        all.push(next);
    }
    let Some(changes) = world.changes.checked_sub(1) else { return all };
    let world = World { changes, ..world.clone() };
    let Some(config) = &world.os_config else {
        let mut next = world.clone();
        let uid = next.uid("config");
        next.os_config = Some(OsConfig { uid, generation: 1, ..OsConfig::default() });
        all.push(next);
        return all;
    };
    if config.deleting {
        return all;
    }
    let edit = |edit: &dyn Fn(&mut World, &mut OsConfig)| {
        let mut next = world.clone();
        let mut config = config.clone();
        edit(&mut next, &mut config);
        next.os_config = Some(config);
        next
    };
    all.extend(other_targets(&world));
    all.push(edit(&|next, config| {
        next.spec = 3 - next.spec;
        next.ready = Ready::Yes;
        config.generation += 1;
    }));
    all.push(edit(&|next, config| {
        next.spec = 3 - next.spec;
        next.ready = Ready::Invalid("line 1".to_owned());
        config.generation += 1;
    }));
    all.push(edit(&|next, config| {
        config.rebuild = true;
        next.requests += 1;
    }));
    all.push(edit(&|_, config| config.deleting = true));
    all.push(World { ready: Ready::Missing("Secret".to_owned()), ..world.clone() });
    let mut next = world.clone();
    next.pool.degraded = Some("NodeDegraded".to_owned());
    all.push(next);
    // Nodes take the image, or leave it.
    if let Some(image) = &config.image {
        let mut next = world.clone();
        next.used = [image.clone()].into();
        all.push(next);
    }
    all
}

/// A person does what the pool's condition says.
pub(super) fn mended(world: &World) -> World {
    let mut next = World { ready: Ready::Yes, ..world.clone() };
    next.pool.degraded = None;
    next.requests += 1;
    let config = next.os_config.as_mut().unwrap();
    config.rebuild = true;
    config.pre_built.get_or_insert_with(|| PRE_BUILT_IMAGE.to_owned());
    next
}
