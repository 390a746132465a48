//! Work of the build controller: the `MachineOSConfig`s go on beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::info;

use super::group::groups;
use super::job::Jobs;
use super::objects::Objects;
use super::openshift::OpenShiftBuilds;
use super::{Controller, Course, Query, QueryResult, UNTOUCHED};
use crate::build::JobSettings;
use crate::controllers::cache::Cache;
use crate::controllers::contested::Contested;
use crate::controllers::metrics::Metrics;
use crate::controllers::unread;
use crate::controllers::work::Work;
use crate::registry::Registry;

/// So many are written for at once.
const MAX_AT_ONCE: usize = 8;

/// Runs the controller until the task is aborted.
pub(in crate::controllers) async fn run(
    client: Client,
    cache: Cache,
    metrics: Metrics,
    settings: JobSettings,
    registry: Arc<dyn Registry>,
) {
    UNTOUCHED.until_read(&client, &cache, &unread::BUILD).await;
    info!("The build controller runs");
    let mut changes = cache.contents();
    let (namespace, apply_by) = (settings.namespace.clone(), settings.apply_by);
    let objects = Objects::new(client.clone(), cache.clone(), settings);
    let jobs = Arc::new(Jobs::new(objects.clone()));
    let openshift_builds = Arc::new(OpenShiftBuilds::new(objects));
    let contested = Contested::default();
    let controller = Controller {
        client,
        cache,
        metrics,
        namespace,
        apply_by,
        registry,
        jobs,
        openshift_builds,
        contested,
    };
    changes.mark_unchanged();
    let mut courses = Courses::new(controller);
    loop {
        courses.begin();
        tokio::select! {
            _ = changes.changed() => {
                changes.mark_unchanged();
                courses.all_due();
            }
            () = courses.next() => {}
        }
    }
}

/// The `MachineOSConfig`s, as far as each is. A piece of work returns the state of one, and the query that it waits for.
struct Courses {
    controller: Arc<Controller>,
    /// State of each that is not under way.
    idle: BTreeMap<String, Course>,
    work: Work<String, (Course, Option<Query>)>,
    queries: JoinSet<QueryResult>,
    /// Answers of queries of those that are under way.
    answers: Vec<QueryResult>,
}

impl Courses {
    fn new(controller: Controller) -> Self {
        let mut courses = Self {
            controller: Arc::new(controller),
            idle: BTreeMap::new(),
            work: Work::new(MAX_AT_ONCE),
            queries: JoinSet::new(),
            answers: Vec::new(),
        };
        courses.all_due();
        courses
    }

    /// Has all of them decided again: something changed.
    fn all_due(&mut self) {
        let due = groups(&self.controller.cache.lock());
        self.idle.retain(|name, course| due.contains(name) || course.is_querying);
        self.work.replace(due);
    }

    /// Begins what is due and not under way.
    fn begin(&mut self) {
        if self.is_between_states() {
            return;
        }
        let Self { controller, idle, work, .. } = self;
        work.begin(|name| {
            let mut course = idle.remove(name).unwrap_or_default();
            let (controller, name) = (Arc::clone(controller), name.clone());
            async move {
                let query = controller.advance(&name, &mut course).await;
                (course, query)
            }
        });
    }

    fn is_between_states(&self) -> bool {
        self.controller.cache.lock().is_between_states()
    }

    /// Waits until something is to be begun: one has ended, is due, or has its answers.
    async fn next(&mut self) {
        // What waits for the state to be known is begun by the change that makes it known.
        let is_between_states = self.is_between_states();
        let work = &mut self.work;
        let work = async { if is_between_states { work.next_ended().await } else { work.next().await } };
        tokio::select! {
            ended = work => if let Some((name, (course, query))) = ended { self.ended(&name, course, query) },
            Some(result) = self.queries.join_next(), if !self.queries.is_empty() => self.answered(result),
        }
    }

    fn ended(&mut self, name: &str, course: Course, query: Option<Query>) {
        if let Some(query) = query {
            self.queries.spawn(query);
        }
        if let Some(again) = course.again {
            self.work.add(name.to_owned(), again);
        }
        self.idle.insert(name.to_owned(), course);
        let (own, others) = std::mem::take(&mut self.answers).into_iter().partition(|(of, ..)| of == name);
        self.answers = others;
        let own: Vec<QueryResult> = own;
        for result in own {
            self.record(result);
        }
    }

    fn answered(&mut self, result: Result<QueryResult, JoinError>) {
        let Ok(result) = result else { return };
        if self.work.is_under_way(&result.0) {
            self.answers.push(result);
        } else {
            self.record(result);
        }
    }

    /// Records the answers of a query.
    fn record(&mut self, (name, turn, result): QueryResult) {
        let Some(course) = self.idle.get_mut(&name) else { return };
        course.is_querying = false;
        if result.is_ok() {
            course.tries.succeeded(&course.asked.kind);
        }
        match result {
            Ok(answers) if course.turn == turn => course.answers = answers,
            Ok(_) => {}
            Err(error) => course.failed_query = Some(error),
        }
        self.work.add(name, Instant::now());
    }
}
