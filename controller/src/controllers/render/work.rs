//! Work of the render controller: the pools go on beside each other, so that a request for one that hangs keeps no other. What is done for one
//! pool stays in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{Controller, SETTLE, SETTLE_AT_MOST, is_known, outcome};
use crate::controllers::cache::Cache;
use crate::controllers::client::uptime;
use crate::controllers::metrics::Metrics;
use crate::controllers::seed;

/// So many pools are rendered and written at once: each holds a rendered config in memory.
const MAX_AT_ONCE: usize = 4;

/// Runs it. It has no end.
pub(in crate::controllers) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    cache.until(is_known).await;
    info!("The render controller runs");
    let mut changes = cache.inputs();
    changes.mark_unchanged();
    let mut work = Work::new(Controller::new(client, cache, metrics));
    loop {
        work.begin();
        tokio::select! {
            _ = changes.changed() => {
                settled(&mut changes).await;
                changes.mark_unchanged();
                work.all_due();
            }
            () = work.next() => {}
        }
    }
}

/// Waits for a pause in the changes.
async fn settled(changes: &mut tokio::sync::watch::Receiver<u64>) {
    let latest = Instant::now() + SETTLE_AT_MOST;
    loop {
        let pause = latest.min(Instant::now() + SETTLE);
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep_until(pause) => return,
        }
        if latest <= Instant::now() {
            return;
        }
    }
}

/// A piece of work: one of each is under way at most.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    /// A pool is rendered.
    Pool(String),
    /// MachineConfigs of images that were built before.
    Components,
    /// Unused rendered configs are deleted.
    Unused,
}

/// Jobs that are due, and those under way.
struct Work {
    controller: Controller,
    /// One is rendered at a time.
    rendering: Arc<Semaphore>,
    due: BTreeMap<Job, Instant>,
    /// When each was begun last: the one that has waited longest goes first.
    begun: BTreeMap<Job, Instant>,
    under_way: BTreeSet<Job>,
    tasks: JoinSet<(Job, Option<Duration>)>,
}

impl Work {
    fn new(controller: Controller) -> Self {
        let mut work = Self {
            controller,
            rendering: Arc::new(Semaphore::new(1)),
            due: BTreeMap::new(),
            begun: BTreeMap::new(),
            under_way: BTreeSet::new(),
            tasks: JoinSet::new(),
        };
        work.all_due();
        work
    }

    /// Has everything decided again: an input changed.
    fn all_due(&mut self) {
        let pools: Vec<String> = self.controller.cache.lock().pools.keys().cloned().collect();
        let now = Instant::now();
        self.controller.forget_all_but(&pools);
        self.due = pools
            .into_iter()
            .map(Job::Pool)
            .chain([Job::Components, Job::Unused])
            .map(|job| (job, now))
            .collect();
        self.begun.retain(|job, _| self.due.contains_key(job));
    }

    /// Begins what is due and not under way.
    fn begin(&mut self) {
        if !self.can_decide() {
            return;
        }
        let now = Instant::now();
        let is_ready = |(job, due): &(&Job, &Instant)| **due <= now && !self.under_way.contains(*job);
        let ready = self.due.iter().filter(is_ready).map(|(job, _)| job.clone()).collect();
        for job in in_turn(ready, &self.begun) {
            if matches!(job, Job::Pool(_)) && self.pools_under_way() >= MAX_AT_ONCE {
                continue;
            }
            self.due.remove(&job);
            self.under_way.insert(job.clone());
            self.begun.insert(job.clone(), now);
            let (controller, rendering) = (self.controller.clone(), Arc::clone(&self.rendering));
            self.tasks.spawn(Box::pin(async move {
                let wait = Box::pin(perform(controller, &job, &rendering)).await;
                (job, wait)
            }));
        }
    }

    /// Waits until something is to be begun: one has ended, or is due.
    async fn next(&mut self) {
        let is_full = self.pools_under_way() >= MAX_AT_ONCE;
        let can_begin =
            |job: &Job| !self.under_way.contains(job) && (!is_full || !matches!(job, Job::Pool(_)));
        // What waits for the state to be known is begun by the change that makes it known.
        let due = self.due.iter().filter(|(job, _)| can_begin(job)).map(|(_, due)| *due).min();
        let due = due.filter(|_| self.can_decide());
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => self.ended(ended),
            () = timer => {}
        }
    }

    fn ended(&mut self, ended: Result<(Job, Option<Duration>), JoinError>) {
        // A panic ends the process, and nobody cancels it.
        let Ok((job, wait)) = ended else { return };
        self.under_way.remove(&job);
        if matches!(job, Job::Pool(_)) {
            self.due.entry(Job::Unused).or_insert_with(Instant::now);
        }
        if let Some(wait) = wait {
            let again = Instant::now() + wait;
            let due = self.due.entry(job).or_insert(again);
            *due = again.min(*due);
        }
    }

    fn pools_under_way(&self) -> usize {
        self.under_way.iter().filter(|job| matches!(job, Job::Pool(_))).count()
    }

    /// Not by the sources of one time and the pools of another one: the list of the last kind brings the next decision.
    fn can_decide(&self) -> bool {
        let snapshot = self.controller.cache.lock();
        is_known(&snapshot) && !snapshot.is_between_states()
    }
}

/// Sorts jobs by when they were begun last: of many that hang each time, none keeps another from its turn.
fn in_turn(mut ready: Vec<Job>, begun: &BTreeMap<Job, Instant>) -> Vec<Job> {
    ready.sort_by_key(|job| begun.get(job).copied());
    ready
}

/// Does it; returns the delay before the next try, if something was refused or failed.
async fn perform(mut controller: Controller, job: &Job, rendering: &Semaphore) -> Option<Duration> {
    match job {
        Job::Pool(name) => {
            let (cache, name) = (controller.cache.clone(), name.clone());
            // A rendering takes megabytes of small pieces. On a thread of its own they are in an arena of their own, which is empty
            // afterwards and goes back to the system; here objects that stay would lie between them.
            let rendered = {
                let _one = rendering.acquire().await.ok()?;
                spawn_blocking(move || outcome(&cache.lock(), &name)).await
            };
            Box::pin(controller.attempt(rendered.ok()??)).await
        }
        Job::Components => {
            let mut retries = controller.components.lock().await;
            seed::components(&controller.client, &controller.cache, &controller.metrics, &mut retries).await
        }
        Job::Unused => {
            let what = "rendered configs that nobody uses are not deleted";
            let wait = controller.retries().wait(what, "", uptime());
            match wait {
                Some(wait) => Some(wait),
                None => match controller.collect().await {
                    Ok(()) => {
                        controller.retries().succeeded(what);
                        None
                    }
                    Err(error) => Some(controller.failed(what, &error)),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_that_has_waited_longest_is_next() {
        let job = |name: &str| Job::Pool(name.to_owned());
        let start = Instant::now();
        let begun = [("a", 20), ("b", 10)].map(|(name, at)| (job(name), start + Duration::from_secs(at)));
        let found = in_turn(["a", "b", "z"].map(job).to_vec(), &begun.into_iter().collect());
        assert_eq!(found, ["z", "b", "a"].map(job));
    }
}
