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
mod surroundings;
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
use super::client::RequestError;
use super::contested::Contested;
use super::events::About;
use super::layering::OsConfig;
use super::metrics::Metrics;
use super::tries::Tries;
use super::unread;
use crate::build::{
    Action, Answers, BuilderType, DesiredBuild, job_name, push_spec, user_lines, waits_for_registry,
};
use crate::image::ApplyBy;
use crate::registry::Registry;
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
    /// The last query that was sent.
    asked: Attempt,
    /// When a registry was first requested to delete the image of a build, by the build's UID.
    deletions: BTreeMap<String, Instant>,
    conflicts: u32,
    /// When it is tried again.
    again: Option<Instant>,
    /// The awaited object, as it was reported last, so that it is reported once.
    waits: Option<String>,
    /// Failures so far. What succeeds is forgotten, and all of them once nothing is left to be done.
    tries: Tries,
}

/// Something that may fail: of each kind the last one counts.
#[derive(Debug, Clone, Default)]
struct Attempt {
    kind: String,
    /// A change of it is a reason to try at once.
    input: String,
}

impl Attempt {
    fn plan(group: &Group) -> Self {
        let config = group.os_config.as_ref().map(|config| (&config.build.uid, config.build.generation));
        Self { kind: "plan".to_owned(), input: format!("{config:?} {:?}", group.target()) }
    }

    fn query(group: &Group, query: &RemoteQuery) -> Self {
        let generation = group.os_config.as_ref().map(|config| config.build.generation);
        Self { kind: "query".to_owned(), input: format!("{query:?} {generation:?}") }
    }

    fn write(content: String) -> Self {
        let kind = content.split(|end: char| !end.is_alphanumeric()).next().unwrap_or_default().to_owned();
        Self { kind, input: content }
    }
}

impl Course {
    /// Returns true if something that failed may be tried again, or never failed; it comes back at that time.
    fn is_due(&mut self, attempt: &Attempt) -> bool {
        let wait = self.tries.wait(&attempt.kind, &attempt.input);
        if let Some(wait) = wait {
            self.again = Some(Instant::now() + wait);
        }
        wait.is_none()
    }

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
            let asked = course.asked.clone();
            self.failed(name, course, &asked, &error).await;
            return None;
        }
        for _ in 0..MAX_ACTIONS {
            match self.step(name, course).await {
                Ok(Step::Done) => {}
                Ok(Step::Rest) => return None,
                Ok(Step::Query(query)) => return Some(query),
                Err((attempt, error)) => {
                    self.failed(name, course, &attempt, &error).await;
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
    async fn step(&self, name: &str, course: &mut Course) -> Result<Step, (Attempt, RequestError)> {
        let group = Group::new(name, &self.cache.lock());
        if !course.plan.as_ref().is_some_and(|plan| plan.holds(&group)) {
            course.plan = None;
            let attempt = Attempt::plan(&group);
            if !course.is_due(&attempt) {
                return Ok(Step::Rest);
            }
            let plan = Plan::new(&self.client, &group, self.apply_by).await;
            course.plan = plan.map_err(|error| (attempt.clone(), error))?;
            course.tries.succeeded(&attempt.kind);
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
            let attempt = Attempt::query(&group, &query);
            if course.is_querying || !course.is_due(&attempt) {
                return Ok(Step::Rest);
            }
            course.asked = attempt;
            let query = self.query(&group, desired.as_ref(), course, query);
            return Ok(query.map_or(Step::Rest, Step::Query));
        }
        if let Action::Wait { retry } = &action {
            self.wait(&group, course, *retry).await;
            return Ok(Step::Rest);
        }
        // An earlier build may be of another builder.
        let builder =
            if let Action::DeleteJob { build, .. } = &action { self.builder(&group, build) } else { builder };
        self.write(&group, desired.as_ref(), builder.as_deref(), course, &action).await
    }

    /// Nothing is to be done now.
    async fn wait(&self, group: &Group, course: &mut Course, retry: bool) {
        course.again = retry.then(|| course.again.unwrap_or_else(|| Instant::now() + QUERY_RETRY_INTERVAL));
        let unreadable = group.os_config.as_ref().and_then(|config| config.build.unreadable.clone());
        let waits = unreadable.or_else(|| waits_for_registry(&course.answers));
        // Its pool may be what can't be read, and a build that is being deleted may be of no pool.
        if let Some(why) = waits.as_ref().filter(|_| course.waits != waits) {
            report::failed(&self.client, group, why).await;
        }
        course.waits = waits;
        course.tries = Tries::default();
    }

    async fn write(
        &self,
        group: &Group,
        desired: Option<&DesiredBuild>,
        builder: Option<&dyn Builder>,
        course: &mut Course,
        action: &Action,
    ) -> Result<Step, (Attempt, RequestError)> {
        let (client, cache, namespace) = (&self.client, &self.cache, self.namespace.as_str());
        let attempt = Attempt::write(report::content(group, desired, action));
        let field = report::field(group, desired, action);
        if !course.is_due(&attempt) {
            return Ok(Step::Rest);
        }
        if let Some(wait) = field.as_ref().and_then(|field| self.contested.wait(field, &attempt.input)) {
            course.again = Some(Instant::now() + wait);
            return Ok(Step::Rest);
        }
        let writer = Writer { client, cache, namespace, builder, group, desired };
        let written = writer.execute(action).await;
        if written.is_ok() {
            course.conflicts = 0;
            course.tries.succeeded(&attempt.kind);
            self.metrics.wrote("build", "written");
            let build = desired.and_then(|desired| {
                let uid = cache.lock().os_builds.get(&desired.name)?.build.uid.clone();
                Some((desired.name.clone(), uid))
            });
            Reporter { client, group, build, answers: &course.answers }.report(action).await;
            if let Some(field) = field {
                self.contested.wrote(client, &field, &attempt.input).await;
            }
        }
        // Answers of registries and pods do not change with the pool's condition.
        if !matches!(action, Action::SetCondition(_)) {
            course.answers = Answers::default();
            course.turn = course.turn.wrapping_add(1);
        }
        let Err(error) = written else { return Ok(Step::Done) };
        // It may have come to something: what is there now is decided by.
        let refreshed = refresh(&writer).await;
        course.plan = None;
        let error = refreshed.err().unwrap_or(error);
        course.conflicts = course.conflicts.saturating_add(1);
        if error.is_conflict() && course.conflicts < MAX_CONFLICTS {
            self.metrics.wrote("build", "conflict");
            return Ok(Step::Done);
        }
        Err((attempt, error))
    }

    /// Reports an error once, and tries again after a while: longer each time.
    async fn failed(&self, name: &str, course: &mut Course, attempt: &Attempt, error: &RequestError) {
        self.metrics.wrote("build", "failed");
        course.conflicts = 0;
        let failed = course.tries.failed(&attempt.kind, &attempt.input, error);
        course.again = Some(Instant::now() + failed.wait);
        if failed.is_logged {
            let group = Group::new(name, &self.cache.lock());
            report::failed(&self.client, &group, &report::error_text(error)).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_fails_again_and_again_is_tried_rarely_until_it_succeeds() {
        let status = kube::core::Status::failure("etcd has no leader", "Test").with_code(503);
        let error = RequestError::Refused(Box::new(status));
        let mut course = Course::default();
        let failing = Attempt::write("NameBuild of b".to_owned());
        let other = Attempt::write("Publish { image: \"i\" } of b".to_owned());
        assert_eq!((&*failing.kind, &*other.kind), ("NameBuild", "Publish"));
        for (pause, is_logged) in [(2, true), (4, false), (8, false), (16, false), (30, false), (30, false)] {
            assert!(course.is_due(&failing));
            let failed = course.tries.failed(&failing.kind, &failing.input, &error);
            assert_eq!((failed.wait.as_secs(), failed.is_logged), (pause, is_logged));
            // What goes well beside it is no reason to try at once.
            course.tries.succeeded(&other.kind);
            assert!(course.is_due(&other) && !course.is_due(&failing));
            assert_eq!(course.again, Some(Instant::now() + failed.wait));
            // Another build is.
            assert!(course.is_due(&Attempt::write("NameBuild of c".to_owned())));
            tokio::time::advance(failed.wait).await;
        }
        // It went well once: the same cause is news.
        course.tries.succeeded(&failing.kind);
        assert!(course.tries.failed(&failing.kind, &failing.input, &error).is_logged);
    }
}
