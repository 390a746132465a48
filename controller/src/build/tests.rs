//! Names and states as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::core::ObjectMeta;

use super::*;
use crate::api::os_config::{ContainerFile, MachineOSConfigSpec};
use crate::api::pool::Configuration;
use crate::api::{MachineConfig, MachineConfigSpec};
use crate::image::ApplyBy;

fn spec(content: &str) -> MachineOSConfigSpec {
    let file = ContainerFile { containerfile_arch: None, content: content.to_owned() };
    MachineOSConfigSpec { container_file: Some(vec![file]), ..MachineOSConfigSpec::default() }
}

fn rendered(kernel: &str, files: &str) -> MachineConfig {
    let spec = MachineConfigSpec {
        kernel_type: Some(kernel.to_owned()),
        config: Some(serde_json::json!({ "files": files })),
        ..MachineConfigSpec::default()
    };
    let name = format!("rendered-worker-{kernel}-{files}");
    MachineConfig { metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() }, spec }
}

fn names(content: &str, kernel: &str, files: &str) -> (String, String) {
    names_by(content, kernel, files, ApplyBy::Agent)
}

fn names_by(content: &str, kernel: &str, files: &str, apply_by: ApplyBy) -> (String, String) {
    let (spec, rendered) = (spec(content), rendered(kernel, files));
    let configuration = Configuration { name: rendered.metadata.name.clone(), source: None };
    let (configuration, rendered) = (&configuration, &rendered);
    let inputs = Inputs { os_config: "worker", spec: &spec, configuration, rendered, apply_by };
    (build_name(&inputs).unwrap(), image_inputs(&inputs).unwrap())
}

/// OCL-021: a name is stable, of a form, and another one for each input.
#[test]
fn build_name_is_stable_and_differs_by_input() {
    let (name, image) = names("FROM configs", "default", "a");
    assert_eq!(names("FROM configs", "default", "a"), (name.clone(), image.clone()));
    let digits = name.strip_prefix("worker-").unwrap();
    assert!(digits.len() == 32 && digits.chars().all(|digit| digit.is_ascii_hexdigit()), "{name}");
    let others = [names("RUN true", "default", "a"), names("FROM configs", "realtime", "a")];
    assert!(others.iter().all(|(other, inputs)| *other != name && *inputs != image));
    // Files make another build with the same image.
    let (files, same) = names("FROM configs", "default", "b");
    assert!(files != name && same == image);
    // An image that Ignition made is not taken for one that the agent made.
    let (by_ignition, made) = names_by("FROM configs", "default", "a", ApplyBy::Ignition);
    assert!(by_ignition != name && made != image);
}

/// One build runs at a time, and none whose image would be published nowhere: the spec is another one.
#[test]
fn invalid_text_ends_build_of_earlier_text() {
    let config = OsConfig { uid: "config".to_owned(), generation: 2, ..OsConfig::default() };
    let build = Build { uid: "b".to_owned(), owner: config.uid.clone(), ..Build::default() };
    let builds = BTreeMap::from([("worker-old".to_owned(), Build { state: State::Building, ..build })]);
    let why = "the Containerfile, line 2: it is no instruction".to_owned();
    let desired = DesiredBuild {
        name: "worker-new".to_owned(),
        inputs: "i".to_owned(),
        ready: Ready::Invalid(why.clone()),
    };
    let pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let decided = |builds: &BTreeMap<String, Build>| {
        decide(&BuildInput {
            os_config: Some(&config),
            pool: Some(&pool),
            desired: Some(&desired),
            builds,
            jobs: &BTreeMap::new(),
            used_images: &BTreeSet::new(),
            answers: &Answers::default(),
        })
    };
    let old = ("worker-old".to_owned(), "b".to_owned());
    let expected = Action::DeleteBuild { name: old.0, uid: old.1, reason: DeletionReason::Superseded };
    assert_eq!(decided(&builds), expected);
    let Action::SetCondition(condition) = decided(&BTreeMap::new()) else { panic!("the pool says why") };
    assert!(condition.is_degraded && condition.message.contains(&why), "{condition:?}");
}

/// A rebuild is requested, and the build of the desired name is not ours: it stays.
#[test]
fn rebuild_deletes_no_build_of_others() {
    let mut config =
        OsConfig { uid: "config".to_owned(), generation: 2, rebuild: true, ..OsConfig::default() };
    let desired = DesiredBuild { name: "worker-new".to_owned(), inputs: "i".to_owned(), ready: Ready::Yes };
    let pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let decided = |config: &OsConfig, owner: &str| {
        let build = Build { uid: "b".to_owned(), owner: owner.to_owned(), ..Build::default() };
        decide(&BuildInput {
            os_config: Some(config),
            pool: Some(&pool),
            desired: Some(&desired),
            builds: &BTreeMap::from([("worker-new".to_owned(), build)]),
            jobs: &BTreeMap::new(),
            used_images: &BTreeSet::new(),
            answers: &Answers::default(),
        })
    };
    let is_begun = |action: &Action| matches!(action, Action::BeginRebuild { .. });
    assert!(is_begun(&decided(&config, "config")) && !is_begun(&decided(&config, "another")));
    config.replaces = Some("b".to_owned());
    let is_deleted = |action: &Action| matches!(action, Action::DeleteBuild { .. });
    assert!(is_deleted(&decided(&config, "config")) && !is_deleted(&decided(&config, "another")));
    let Action::SetCondition(told) = decided(&config, "") else { panic!("the pool says why") };
    let words =
        "MachineOSBuild worker-new is to be built again, and no MachineOSConfig controls it; delete it";
    assert!(told.is_degraded && told.message.contains(words), "{told:?}");
}

/// The name of a Job is that of its build, and a build that is made again has the same: a Job of the later one is not left by the earlier one.
#[test]
fn build_that_ended_deletes_its_own_job_alone() {
    let (name, image) = ("worker-new".to_owned(), "r.test/os@sha256:1".to_owned());
    let config = OsConfig {
        uid: "config".to_owned(),
        current: Some(name.clone()),
        image: Some(image.clone()),
        image_of: Some(name.clone()),
        ..OsConfig::default()
    };
    let build = Build {
        uid: "b".to_owned(),
        owner: "config".to_owned(),
        state: State::Succeeded,
        image: Some(image),
        ..Build::default()
    };
    let decided = |owner: &str| {
        let job = Job { uid: "j".to_owned(), owner: owner.to_owned(), ..Job::default() };
        decide(&BuildInput {
            os_config: Some(&config),
            pool: Some(&Pool { name: "worker".to_owned(), ..Pool::default() }),
            desired: Some(&DesiredBuild { name: name.clone(), inputs: String::new(), ready: Ready::Yes }),
            builds: &BTreeMap::from([(name.clone(), build.clone())]),
            jobs: &BTreeMap::from([(job_name(&name), job)]),
            used_images: &BTreeSet::new(),
            answers: &Answers::default(),
        })
    };
    let is_deleted = |action: &Action| matches!(action, Action::DeleteJob { .. });
    assert!(is_deleted(&decided("b")) && !is_deleted(&decided("the build that is made again")));
}

/// Only what controls it proves whose it is: a running build of nobody, and a Job of nobody in the way, stay.
#[test]
fn builds_and_jobs_of_others_are_not_deleted() {
    let config = OsConfig { uid: "config".to_owned(), generation: 2, ..OsConfig::default() };
    let desired = DesiredBuild { name: "worker-new".to_owned(), inputs: "i".to_owned(), ready: Ready::Yes };
    let pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let decided = |builds: &BTreeMap<String, Build>, jobs: &BTreeMap<String, Job>| {
        decide(&BuildInput {
            os_config: Some(&config),
            pool: Some(&pool),
            desired: Some(&desired),
            builds,
            jobs,
            used_images: &BTreeSet::new(),
            answers: &Answers::default(),
        })
    };
    let build = |owner: &str| Build {
        uid: "b".to_owned(),
        owner: owner.to_owned(),
        state: State::Building,
        ..Build::default()
    };
    let other = |owner: &str| BTreeMap::from([("worker-old".to_owned(), build(owner))]);
    let is_deleted =
        |action: &Action| matches!(action, Action::DeleteBuild { .. } | Action::DeleteJob { .. });
    assert!(is_deleted(&decided(&other("config"), &BTreeMap::new())));
    assert!(!is_deleted(&decided(&other(""), &BTreeMap::new())));
    assert!(!is_deleted(&decided(&other("another"), &BTreeMap::new())));
    let new = Build { state: State::Initial, ..build("config") };
    let new = BTreeMap::from([("worker-new".to_owned(), new)]);
    let job = |owner: &str| {
        let job = Job { uid: "j".to_owned(), owner: owner.to_owned(), ..Job::default() };
        BTreeMap::from([(job_name("worker-new"), job)])
    };
    assert!(is_deleted(&decided(&new, &job("an earlier build"))));
    let action = decided(&new, &job(""));
    let Action::SetCondition(condition) = action else { panic!("the pool says why: {action:?}") };
    assert!(condition.message.contains("build-worker-new is in the way"), "{condition:?}");
}

#[test]
fn tags_and_jobs_have_names_that_fit() {
    assert_eq!(
        push_spec("registry.test:5000/os/worker:latest", "worker-1"),
        "registry.test:5000/os/worker:worker-1"
    );
    assert_eq!(
        push_spec("registry.test:5000/os/worker", "worker-1"),
        "registry.test:5000/os/worker:worker-1"
    );
    assert_eq!(job_name("worker-1"), "build-worker-1");
    let long = format!("{}-{}", "pool.".repeat(40), "0123456789abcdef".repeat(2));
    let (job, tag) = (job_name(&long), push_spec("registry.test/a:b", &long));
    assert!(job.len() <= 63 && job.ends_with("0123456789abcdef") && !job.starts_with('.'), "{job}");
    assert!(tag.len() <= "registry.test/a:".len() + 128 && tag.ends_with("0123456789abcdef"), "{tag}");
}

/// OCL-024, and docs/builds.md, "States of a build".
#[test]
fn progress_follows_the_job() {
    let job = Job::default();
    let failed = |failed| Job { failed, ..job.clone() };
    let table = [
        (job.clone(), State::Prepared),
        (Job { active: 1, ..job.clone() }, State::Building),
        (Job { has_uncounted: true, ..job.clone() }, State::Building),
        (failed(3), State::Building),
        (failed(4), State::Failed),
        (Job { failure: Some("DeadlineExceeded".to_owned()), ..failed(1) }, State::Failed),
        (Job { succeeded: 1, ..job.clone() }, State::Building),
        (Job { succeeded: 1, is_complete: true, ..job.clone() }, State::Succeeded),
        (Job { is_complete: true, deleting: true, ..job.clone() }, State::Succeeded),
        (Job { deleting: true, ..failed(4) }, State::Failed),
        (Job { deleting: true, active: 1, ..job.clone() }, State::Interrupted),
    ];
    for (job, state) in table {
        assert_eq!(progress(&job), state, "{job:?}");
    }
}

/// A pool without image mode is left alone; one that leaves it says so.
#[test]
fn pool_without_os_config_is_left_alone() {
    let (builds, jobs, used) = (BTreeMap::new(), BTreeMap::new(), std::collections::BTreeSet::new());
    let answers = Answers::default();
    let mut pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let next = |pool: &Pool| {
        decide(&BuildInput {
            os_config: None,
            pool: Some(pool),
            desired: None,
            builds: &builds,
            jobs: &jobs,
            used_images: &used,
            answers: &answers,
        })
    };
    assert_eq!(next(&pool), Action::Wait { retry: false });
    let (reason, message) = ("BuildFailed".to_owned(), "m".to_owned());
    pool.condition = Some(PoolCondition { is_degraded: true, reason, message });
    let Action::SetCondition(condition) = next(&pool) else { panic!() };
    assert_eq!((condition.is_degraded, condition.reason.as_str()), (false, "NoLayeredObjects"));
    pool.condition = Some(condition);
    assert_eq!(next(&pool), Action::Wait { retry: false });
}

/// SEED-005, SEED-006, SEED-007: an image that was built before becomes a build that has succeeded, without a Job; the `MachineOSConfig`
/// names both. SEED-010: a pool without a target begins nothing, and no rendered config is looked up by an empty name.
#[test]
#[expect(clippy::wildcard_enum_match_arm, reason = "what is left is about Jobs")]
fn image_built_before_is_published_without_a_job() {
    let image = format!("registry.test/os@sha256:{}", "1".repeat(64));
    let mut config = OsConfig { uid: "c".to_owned(), pre_built: Some(image.clone()), ..OsConfig::default() };
    let desired = DesiredBuild {
        name: "worker-1".to_owned(),
        inputs: "i".to_owned(),
        ready: Ready::Missing("a Secret".to_owned()),
    };
    let mut pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let mut builds = BTreeMap::new();
    let (jobs, used, answers) = (BTreeMap::new(), std::collections::BTreeSet::new(), Answers::default());
    let mut done = Vec::new();
    let mut has_target = false;
    loop {
        let action = decide(&BuildInput {
            os_config: Some(&config),
            pool: Some(&pool),
            desired: has_target.then_some(&desired),
            builds: &builds,
            jobs: &jobs,
            used_images: &used,
            answers: &answers,
        });
        done.push(format!("{action:?}").split([' ', '(']).next().unwrap().to_owned());
        assert!(done.len() < 12, "no end: {done:?}");
        match action {
            Action::CreateBuild { pre_built, .. } => {
                assert!(pre_built);
                let build =
                    Build { uid: "b".to_owned(), owner: "c".to_owned(), pre_built, ..Build::default() };
                builds.insert("worker-1".to_owned(), build);
            }
            Action::WriteStatus(status) => {
                assert_eq!((status.state, status.reason.as_str()), (State::Succeeded, SEEDED));
                assert_eq!(status.image.as_ref(), Some(&image));
                let build = builds.get_mut("worker-1").unwrap();
                (build.state, build.reason, build.image) = (status.state, status.reason, status.image);
            }
            Action::Publish { image, seeded } => {
                (config.image, config.seeded) = (Some(image), seeded);
                config.image_of = Some("worker-1".to_owned());
            }
            Action::NameBuild => config.current = Some("worker-1".to_owned()),
            Action::SetCondition(condition) => pool.condition = Some(condition),
            Action::Wait { .. } if has_target => break,
            Action::Wait { .. } => has_target = true,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, ["Wait", "CreateBuild", "WriteStatus", "Publish", "NameBuild", "SetCondition", "Wait"]);
    assert!(config.seeded && !config.awaits_seeding());
}

/// A registry that does not answer keeps a build for a while, whatever the clock of the API server says.
#[test]
fn silent_registry_keeps_deleted_build_for_ten_minutes() {
    let image = Some("registry.test/os@sha256:a".to_owned());
    let build = Build {
        uid: "b".to_owned(),
        state: State::Succeeded,
        image,
        deleting: true,
        has_finalizer: true,
        ..Build::default()
    };
    let builds = BTreeMap::from([("worker-1".to_owned(), build)]);
    let (jobs, used_images) = (BTreeMap::new(), BTreeSet::new());
    let after = |unanswered: Duration| {
        let failed = Deletion::Failed { cause: "no answer".to_owned(), unanswered };
        let deletions = BTreeMap::from([("worker-1".to_owned(), failed)]);
        let answers = Answers { deletions, ..Answers::default() };
        decide(&BuildInput {
            os_config: None,
            pool: None,
            desired: None,
            builds: &builds,
            jobs: &jobs,
            used_images: &used_images,
            answers: &answers,
        })
    };
    assert_eq!(after(Duration::from_secs(599)), Action::Wait { retry: true });
    let release = Action::ReleaseBuild { name: "worker-1".to_owned(), uid: "b".to_owned() };
    assert_eq!(after(Duration::from_secs(600)), release);
}

/// The pool says which object can't be read, why, and what to do; nothing is created or deleted.
#[test]
fn unreadable_spec_is_reported() {
    let pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let why = "the spec of MachineOSConfig worker can't be read: missing field `imageBuilder`; correct it with `kubectl edit machineosconfig worker`";
    let config = OsConfig { uid: "c".to_owned(), unreadable: Some(why.to_owned()), ..OsConfig::default() };
    let builds = BTreeMap::from([("worker-1".to_owned(), Build { uid: "b".to_owned(), ..Build::default() })]);
    let (jobs, images, answers) = (BTreeMap::new(), BTreeSet::new(), Answers::default());
    let input = BuildInput {
        os_config: Some(&config),
        pool: Some(&pool),
        desired: None,
        builds: &builds,
        jobs: &jobs,
        used_images: &images,
        answers: &answers,
    };
    let Action::SetCondition(condition) = decide(&input) else { panic!("{:?}", decide(&input)) };
    assert!(condition.is_degraded && condition.reason == "BuildPending", "{condition:?}");
    assert!(condition.message.contains(why), "{condition:?}");
    let reported = Pool { condition: Some(condition), ..pool.clone() };
    assert_eq!(decide(&BuildInput { pool: Some(&reported), ..input.clone() }), Action::Wait { retry: false });
}

/// Before the first Job the registry is asked for the right to push. A refusal is told, and asked about again; where the registry
/// does not say, the build finds out.
#[test]
fn refused_push_is_told_before_build() {
    let config = OsConfig { uid: "config".to_owned(), generation: 1, ..OsConfig::default() };
    let desired = DesiredBuild { name: "worker-1".to_owned(), inputs: "i".to_owned(), ready: Ready::Yes };
    let pool = Pool { name: "worker".to_owned(), ..Pool::default() };
    let build = Build { uid: "b".to_owned(), owner: "config".to_owned(), ..Build::default() };
    let builds = BTreeMap::from([("worker-1".to_owned(), build)]);
    let (jobs, used_images) = (BTreeMap::new(), BTreeSet::new());
    let decided = |pool: &Pool, access: Option<PushAccess>| {
        let pushes = access.map(|access| ("worker-1".to_owned(), access)).into_iter().collect();
        decide(&BuildInput {
            os_config: Some(&config),
            pool: Some(pool),
            desired: Some(&desired),
            builds: &builds,
            jobs: &jobs,
            used_images: &used_images,
            answers: &Answers { pushes, ..Answers::default() },
        })
    };
    assert_eq!(decided(&pool, None), Action::Query(Query::Push));
    assert_eq!(decided(&pool, Some(PushAccess::NotRefused)), Action::CreateJob);
    let refused = Some(PushAccess::Refused("registry r refuses os (401)".to_owned()));
    let Action::SetCondition(condition) = decided(&pool, refused.clone()) else {
        panic!("the pool says why")
    };
    assert!(condition.is_degraded && condition.reason == "BuildPending", "{condition:?}");
    assert!(
        condition.message.ends_with("can't be pushed, so it is not built yet: registry r refuses os (401)"),
        "{condition:?}"
    );
    let told = Pool { condition: Some(condition), ..pool };
    assert_eq!(decided(&told, refused), Action::Wait { retry: true });
}
