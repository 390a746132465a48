//! The build controller: the shell of [`crate::build`].
//!
//! | file | holds |
//! |---|---|
//! | `cached.rs`, `observed.rs`, `reduce.rs` | Jobs, Secrets, builds, as the cache has them |
//! | `group.rs`, `desired.rs` | inputs of a decision: one `MachineOSConfig` with all that belongs to it |
//! | `write.rs`, `written.rs` | each write of a decision, and what it writes |
//! | `queries.rs` | queries to registries, and results of pods |
//! | `builder.rs`, `job.rs`, `openshift.rs`, `objects.rs` | what carries a build out, and its requests |
//! | `report.rs` | log lines and Events |
//! | `work.rs` | which `MachineOSConfig` is decided when |
//!
//! It decides by what the cache holds, does the one thing that comes of it, puts the answer into the cache, and decides again until
//! it waits. A write that is refused, or whose outcome is not known, is followed by reading what it was about. The `MachineOSConfig`s go on
//! beside each other, and queries to a registry beside everything else: one that hangs keeps no other pool.

mod builder;
mod cached;
mod desired;
mod group;
mod job;
mod objects;
mod observed;
mod openshift;
mod queries;
pub(super) mod reduce;
mod report;
pub(super) mod work;
mod write;
mod written;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::awaited::Untouched;
use super::cache::{Cache, Kind, Snapshot};
use super::client::{RequestError, uptime};
use super::contested::Contested;
use super::events::About;
use super::layering::OsConfig;
use super::metrics::Metrics;
use super::unread;
use crate::build::{
    Action, Answers, BuilderType, DesiredBuild, job_name, push_spec, user_lines, waits_for_registry,
};
use crate::image::ApplyBy;
use crate::registry::Registry;
use crate::retry::{Retries, is_same};
use builder::Builder;
use desired::Plan;
use group::Group;
use job::Jobs;
pub(super) use observed::{BuildJob, ObservedSecret};
pub(super) use openshift::OpenShiftBuild;
use openshift::OpenShiftBuilds;
use queries::{QueryRunner, RemoteQuery};
use report::Reporter;
use write::{Writer, refresh};

/// When something that failed is tried again, if nothing changes before.
const RETRY: Duration = Duration::from_secs(5);

/// When a query to a registry that does not answer is sent again.
const QUERY_RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// Actions for one `MachineOSConfig` before the next one has its turn.
const MAX_ACTIONS: usize = 32;

/// Conflicts in a row before it waits.
const MAX_CONFLICTS: u32 = 5;

/// Names each `MachineOSConfig`: none is built while a kind can't be read.
const UNTOUCHED: Untouched =
    Untouched { kinds: &unread::BUILD, reason: "ConfigReconcileFailed", objects: untouched };

fn untouched(snapshot: &Snapshot) -> Vec<(About, String)> {
    let named = |(name, config): (&String, &OsConfig)| {
        (About::os_config(name, &config.build.uid), format!("MachineOSConfig {name} is not built"))
    };
    snapshot.os_configs.iter().map(named).collect()
}

/// State of one `MachineOSConfig` in memory. All of it can be requested again.
#[derive(Debug, Default)]
struct Course {
    plan: Option<Plan>,
    answers: Answers,
    /// It grows with each write: an answer to an earlier query is not taken.
    turn: u64,
    is_querying: bool,
    /// The API server refused or did not answer what the last query reads.
    failed_query: Option<RequestError>,
    /// No query is sent before.
    query_after: Option<Instant>,
    /// When a registry was first requested to delete the image of a build, by the build's UID.
    deletions: BTreeMap<String, Instant>,
    conflicts: u32,
    /// When it is tried again.
    again: Option<Instant>,
    /// The error that was reported last, so that it is reported once.
    error: Option<String>,
    /// Refusals of the API server.
    retries: Retries,
}

impl Course {
    /// Returns when the deletion of a build's image was first requested; now, if it was not.
    fn deletion_since(&mut self, group: &Group, uid: &str) -> Instant {
        self.deletions.retain(|known, _| group.builds.values().any(|build| build.build.uid == *known));
        *self.deletions.entry(uid.to_owned()).or_insert_with(Instant::now)
    }
}

/// Returns true if Builds of OpenShift are not read yet, and may be.
fn is_unread(snapshot: &Snapshot) -> bool {
    let kind = Kind::OpenShiftBuilds;
    !snapshot.synced.contains(&kind) && !snapshot.failing.contains_key(&kind)
}

/// The answers of a query, with the turn in which it was sent.
type QueryResult = (String, u64, Result<Answers, RequestError>);

/// A query that is to be sent.
type Query = Pin<Box<dyn Future<Output = QueryResult> + Send>>;

struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    namespace: String,
    apply_by: ApplyBy,
    registry: Arc<dyn Registry>,
    jobs: Arc<Jobs>,
    openshift_builds: Arc<OpenShiftBuilds>,
    contested: Contested,
}

/// Result of a decision.
enum Step {
    /// It is decided again.
    Done,
    /// Nothing is to be done now.
    Rest,
    /// As that, and a query is to be sent.
    Query(Query),
}

impl Controller {
    /// Brings a `MachineOSConfig` as far as it goes; returns the query that it waits for.
    async fn advance(&self, name: &str, course: &mut Course) -> Option<Query> {
        if course.again.is_some_and(|again| again <= Instant::now()) {
            course.again = None;
            course.answers = Answers::default();
            course.turn = course.turn.wrapping_add(1);
        }
        if let Some(error) = course.failed_query.take() {
            self.failed(name, course, &error).await;
            course.query_after = course.again;
            return None;
        }
        for _ in 0..MAX_ACTIONS {
            match self.step(name, course).await {
                Ok(Step::Done) => {}
                Ok(Step::Rest) => return None,
                Ok(Step::Query(query)) => return Some(query),
                Err(error) => {
                    self.failed(name, course, &error).await;
                    return None;
                }
            }
        }
        None
    }

    /// Returns the builder of a build; Jobs of a `MachineOSConfig` that is gone are still deleted.
    fn builder(&self, group: &Group, build: &str) -> Option<Arc<dyn Builder>> {
        match group.builder(build) {
            BuilderType::Job => {
                let jobs = Arc::clone(&self.jobs);
                Some(jobs)
            }
            BuilderType::OpenShiftBuild => {
                let builds = Arc::clone(&self.openshift_builds);
                Some(builds)
            }
            BuilderType::Unknown(_) => None,
        }
    }

    /// Decides, and carries one action out.
    async fn step(&self, name: &str, course: &mut Course) -> Result<Step, RequestError> {
        let group = Group::new(name, &self.cache.lock());
        if !course.plan.as_ref().is_some_and(|plan| plan.holds(&group)) {
            course.plan = None;
            course.plan = Plan::new(&self.client, &group, self.apply_by).await?;
        }
        let name = course.plan.as_ref().map(Plan::name).unwrap_or_default();
        if group.builder(name) == BuilderType::OpenShiftBuild && is_unread(&self.cache.lock()) {
            return Ok(Step::Rest);
        }
        let builder = self.builder(&group, name);
        let desired = course
            .plan
            .as_ref()
            .map(|plan| plan.desired_build(&group, &self.cache.lock(), builder.as_deref()));
        let action = group.decide(desired.as_ref(), &course.answers);
        if let Some(query) = RemoteQuery::from_action(&action) {
            if course.query_after.is_some_and(|after| after > Instant::now()) {
                course.again = course.query_after;
                return Ok(Step::Rest);
            }
            let query = self.query(&group, desired.as_ref(), course, query);
            return Ok(query.map_or(Step::Rest, Step::Query));
        }
        if let Action::Wait { retry } = &action {
            course.again =
                retry.then(|| course.again.unwrap_or_else(|| Instant::now() + QUERY_RETRY_INTERVAL));
            let unreadable = group.os_config.as_ref().and_then(|config| config.build.unreadable.clone());
            let waits = unreadable.or_else(|| waits_for_registry(&course.answers));
            // Its pool may be what can't be read, and a build that is being deleted may be of no pool.
            if let Some(why) = waits.as_ref().filter(|_| course.error != waits) {
                report::failed(&self.client, &group, why).await;
            }
            course.error = waits;
            return Ok(Step::Rest);
        }
        // An earlier build may be of another builder.
        let builder =
            if let Action::DeleteJob { build, .. } = &action { self.builder(&group, build) } else { builder };
        self.write(&group, desired.as_ref(), builder.as_deref(), course, &action).await
    }

    async fn write(
        &self,
        group: &Group,
        desired: Option<&DesiredBuild>,
        builder: Option<&dyn Builder>,
        course: &mut Course,
        action: &Action,
    ) -> Result<Step, RequestError> {
        let (client, cache, namespace) = (&self.client, &self.cache, self.namespace.as_str());
        let apply_by = self.apply_by;
        let input = format!("{action:?}");
        let field = report::field(group, desired, action);
        let contested = field.as_ref().and_then(|field| self.contested.wait(field, &input));
        if let Some(wait) = course.retries.wait("", &input, uptime()).or(contested) {
            course.again = Some(Instant::now() + wait);
            return Ok(Step::Rest);
        }
        let writer = Writer { client, cache, namespace, apply_by, builder, group, desired };
        let written = writer.execute(action).await;
        if written.is_ok() {
            course.conflicts = 0;
            course.retries = Retries::default();
            self.metrics.wrote("build", "written");
            let build = desired.and_then(|desired| {
                let uid = cache.lock().os_builds.get(&desired.name)?.build.uid.clone();
                Some((desired.name.clone(), uid))
            });
            Reporter { client, group, build, answers: &course.answers }.report(action).await;
            if let Some(field) = field {
                self.contested.wrote(client, &field, &input).await;
            }
        }
        // Answers of registries and pods do not change with the pool's condition.
        if !matches!(action, Action::SetCondition(_)) {
            course.answers = Answers::default();
            course.turn = course.turn.wrapping_add(1);
        }
        let Err(error) = written else { return Ok(Step::Done) };
        if error.is_refusal() {
            course.retries.failed("", &input, &error.to_string(), uptime());
        }
        // It may have come to something: what is there now is decided by.
        refresh(&writer).await?;
        course.plan = None;
        course.conflicts = course.conflicts.saturating_add(1);
        if error.is_conflict() && course.conflicts < MAX_CONFLICTS {
            self.metrics.wrote("build", "conflict");
            return Ok(Step::Done);
        }
        Err(error)
    }

    /// Reports an error once, and tries again after a while.
    async fn failed(&self, name: &str, course: &mut Course, error: &RequestError) {
        self.metrics.wrote("build", "failed");
        course.conflicts = 0;
        course.again = Some(Instant::now() + RETRY);
        let text = error.to_string();
        if !course.error.as_ref().is_some_and(|known| is_same(known, &text)) {
            let group = Group::new(name, &self.cache.lock());
            report::failed(&self.client, &group, &text).await;
            course.error = Some(text);
        }
    }

    /// Returns a query, which runs beside everything else: one of a `MachineOSConfig` at a time.
    fn query(
        &self,
        group: &Group,
        desired: Option<&DesiredBuild>,
        course: &mut Course,
        query: RemoteQuery,
    ) -> Option<Query> {
        if std::mem::replace(&mut course.is_querying, true) {
            return None;
        }
        let spec = group.os_config.as_ref().and_then(|config| config.spec.as_ref().ok());
        let of_spec = spec.map(|spec| spec.rendered_image_push_secret.name.clone());
        let mut since = Instant::now();
        let (build, secret) = match &query {
            RemoteQuery::Deletion { build, .. } => {
                let own = group.builds.get(build);
                if let Some(own) = own {
                    since = course.deletion_since(group, &own.build.uid);
                }
                (build.clone(), own.and_then(|own| own.push_secret.clone()).or(of_spec))
            }
            RemoteQuery::Query(_) => {
                (desired.map(|desired| desired.name.clone()).unwrap_or_default(), of_spec)
            }
        };
        let runner = QueryRunner {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            registry: Arc::clone(&self.registry),
            builder: self.builder(group, &build),
            secret,
            push_spec: spec.map(|spec| push_spec(&spec.rendered_image_push_spec, &build)).unwrap_or_default(),
            containerfile: spec.map(|spec| user_lines(spec).to_owned()).unwrap_or_default(),
            is_complete: group.jobs.get(&job_name(&build)).is_some_and(|job| job.is_complete),
            build,
            since,
        };
        let (name, turn, mut answers) = (group.name.clone(), course.turn, course.answers.clone());
        Some(Box::pin(async move {
            let result = runner.run(query, &mut answers).await;
            (name, turn, result.map(|()| answers))
        }))
    }
}
