//! Work of the build controller: the `MachineOSConfig`s go on beside each other, so that a request for one that hangs keeps no other. What is
//! done for one stays in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::group::groups;
use super::job::Jobs;
use super::objects::Objects;
use super::openshift::OpenShiftBuilds;
use super::{Controller, Course, Query, QueryResult, RETRY, UNTOUCHED};
use crate::build::JobSettings;
use crate::controllers::cache::Cache;
use crate::controllers::contested::Contested;
use crate::controllers::metrics::Metrics;
use crate::controllers::unread;
use crate::registry::Registry;

/// So many are written for at once.
const MAX_AT_ONCE: usize = 8;

/// Runs it. It has no end.
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
    let mut work = Work::new(controller);
    loop {
        work.begin();
        tokio::select! {
            _ = changes.changed() => {
                changes.mark_unchanged();
                work.all_due();
            }
            () = work.next() => {}
        }
    }
}

/// One that went as far as it goes: its name, its state, and the query that it waits for.
type Advanced = (String, Course, Option<Query>);

/// `MachineOSConfig`s that are due, and those under way.
struct Work {
    controller: Arc<Controller>,
    /// State of each that is not under way.
    courses: BTreeMap<String, Course>,
    due: BTreeSet<String>,
    under_way: BTreeSet<String>,
    tasks: JoinSet<Advanced>,
    queries: JoinSet<QueryResult>,
    /// Answers of queries of those that are under way.
    answers: Vec<QueryResult>,
}

impl Work {
    fn new(controller: Controller) -> Self {
        let mut work = Self {
            controller: Arc::new(controller),
            courses: BTreeMap::new(),
            due: BTreeSet::new(),
            under_way: BTreeSet::new(),
            tasks: JoinSet::new(),
            queries: JoinSet::new(),
            answers: Vec::new(),
        };
        work.all_due();
        work
    }

    /// Has all of them decided again: something changed.
    fn all_due(&mut self) {
        self.due = groups(&self.controller.cache.lock());
        let due = &self.due;
        self.courses.retain(|name, course| due.contains(name) || course.is_querying);
    }

    /// Begins what is due and not under way.
    fn begin(&mut self) {
        if self.controller.cache.lock().is_between_states() {
            return;
        }
        let now = Instant::now();
        let again = self.courses.iter().filter(|(_, course)| course.again.is_some_and(|again| again <= now));
        self.due.extend(again.map(|(name, _)| name.clone()));
        let ready: Vec<String> = self.due.difference(&self.under_way).cloned().collect();
        for name in ready {
            if self.under_way.len() >= MAX_AT_ONCE {
                return;
            }
            self.due.remove(&name);
            self.under_way.insert(name.clone());
            let mut course = self.courses.remove(&name).unwrap_or_default();
            let controller = Arc::clone(&self.controller);
            self.tasks.spawn(Box::pin(async move {
                let query = controller.advance(&name, &mut course).await;
                (name, course, query)
            }));
        }
    }

    /// Waits until something is to be begun: one has ended, is due, or has its answers.
    async fn next(&mut self) {
        let again = self.courses.values().filter_map(|course| course.again).min();
        // What waits for the state to be known is begun by the change that makes it known; what waits for its turn by the end of another one.
        let is_between_states = self.controller.cache.lock().is_between_states();
        let again = again.filter(|_| !is_between_states && self.under_way.len() < MAX_AT_ONCE);
        let timer = async {
            match again {
                Some(again) => sleep_until(again).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => self.ended(ended),
            Some(result) = self.queries.join_next(), if !self.queries.is_empty() => self.answered(result),
            () = timer => {}
        }
    }

    fn ended(&mut self, ended: Result<Advanced, JoinError>) {
        // A panic ends the process, and nobody cancels it.
        let Ok((name, course, query)) = ended else { return };
        self.under_way.remove(&name);
        if let Some(query) = query {
            self.queries.spawn(query);
        }
        self.courses.insert(name.clone(), course);
        let (own, others) = std::mem::take(&mut self.answers).into_iter().partition(|(of, ..)| *of == name);
        self.answers = others;
        let own: Vec<QueryResult> = own;
        for result in own {
            self.record(result);
        }
    }

    fn answered(&mut self, result: Result<QueryResult, JoinError>) {
        let Ok(result) = result else { return };
        if self.under_way.contains(&result.0) {
            self.answers.push(result);
        } else {
            self.record(result);
        }
    }

    /// Records the answers of a query.
    fn record(&mut self, (name, turn, result): QueryResult) {
        let Some(course) = self.courses.get_mut(&name) else { return };
        course.is_querying = false;
        match result {
            Ok(answers) if course.turn == turn => course.answers = answers,
            Ok(_) => {}
            Err(error) => {
                warn!("MachineOSConfig {name}: {error}");
                course.again = Some(Instant::now() + RETRY);
            }
        }
        self.due.insert(name);
    }
}
