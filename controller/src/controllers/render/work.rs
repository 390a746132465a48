//! Work of the render controller: the pools go on beside each other.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{Controller, SETTLE, SETTLE_AT_MOST, is_known, outcome};
use crate::controllers::cache::Cache;
use crate::controllers::metrics::Metrics;
use crate::controllers::seed;
use crate::controllers::work::Work;

/// Maximum pools rendered and written concurrently: each holds a rendered config in memory.
const MAX_AT_ONCE: usize = 4;

/// Runs the controller until the task is aborted.
pub(in crate::controllers) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    cache.until(is_known).await;
    info!("The render controller runs");
    let mut changes = cache.inputs();
    changes.mark_unchanged();
    let mut jobs = Jobs::new(Controller::new(client, cache, metrics));
    loop {
        jobs.begin();
        tokio::select! {
            _ = changes.changed() => {
                settled(&mut changes).await;
                changes.mark_unchanged();
                jobs.all_due();
            }
            () = jobs.next() => {}
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

/// Work for no pool alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Common {
    /// MachineConfigs of images that were built before.
    Components,
    /// Unused rendered configs are deleted.
    Unused,
}

/// The pools that are to be rendered, and the work beside them. Each piece returns the delay before the next try, if there is one.
struct Jobs {
    controller: Controller,
    /// One is rendered at a time.
    rendering: Arc<Semaphore>,
    pools: Work<String, Option<Duration>>,
    common: Work<Common, Option<Duration>>,
}

impl Jobs {
    fn new(controller: Controller) -> Self {
        let (pools, common) = (Work::new(MAX_AT_ONCE), Work::new(2));
        let mut jobs = Self { controller, rendering: Arc::new(Semaphore::new(1)), pools, common };
        jobs.all_due();
        jobs
    }

    /// Has everything decided again: an input changed.
    fn all_due(&mut self) {
        let pools: Vec<String> = self.controller.cache.lock().pools.keys().cloned().collect();
        self.controller.forget_all_but(&pools);
        for gone in self.pools.replace(pools) {
            self.controller.metrics.forget_rendered(&gone);
        }
        self.common.replace([Common::Components, Common::Unused]);
    }

    /// Begins what is due and not under way.
    fn begin(&mut self) {
        if !self.can_decide() {
            return;
        }
        let Self { controller, rendering, pools, common } = self;
        pools.begin(|name| render(controller.clone(), name.clone(), Arc::clone(rendering)));
        common.begin(|job| perform(controller.clone(), *job));
    }

    /// Waits until something is to be begun: one has ended, or is due.
    async fn next(&mut self) {
        // What waits for the state to be known is begun by the change that makes it known.
        if !self.can_decide() {
            tokio::select! {
                ended = self.pools.next_ended() => self.rendered(ended),
                ended = self.common.next_ended() => self.done(ended),
            }
            return;
        }
        tokio::select! {
            ended = self.pools.next() => self.rendered(ended),
            ended = self.common.next() => self.done(ended),
        }
    }

    fn rendered(&mut self, ended: Option<(String, Option<Duration>)>) {
        let Some((name, wait)) = ended else { return };
        if !self.controller.cache.lock().pools.contains_key(&name) {
            // It went meanwhile.
            self.controller.metrics.forget_rendered(&name);
        }
        self.common.add(Common::Unused, Instant::now());
        if let Some(wait) = wait {
            self.pools.add(name, Instant::now() + wait);
        }
    }

    fn done(&mut self, ended: Option<(Common, Option<Duration>)>) {
        if let Some((job, Some(wait))) = ended {
            self.common.add(job, Instant::now() + wait);
        }
    }

    /// Not by the sources of one time and the pools of another one: the list of the last kind brings the next decision.
    fn can_decide(&self) -> bool {
        let snapshot = self.controller.cache.lock();
        is_known(&snapshot) && !snapshot.is_between_states()
    }
}

/// Renders a pool and writes what comes of it.
async fn render(mut controller: Controller, name: String, rendering: Arc<Semaphore>) -> Option<Duration> {
    let cache = controller.cache.clone();
    // A rendering takes megabytes of small pieces. On a thread of its own they are in an arena of their own, which is empty
    // afterwards and goes back to the system; here objects that stay would lie between them.
    let rendered = {
        let _one = rendering.acquire().await.ok()?;
        spawn_blocking(move || outcome(&cache.lock(), &name)).await
    };
    Box::pin(controller.attempt(rendered.ok()??)).await
}

async fn perform(controller: Controller, job: Common) -> Option<Duration> {
    match job {
        Common::Components => {
            seed::components(
                &controller.client,
                &controller.cache,
                &controller.metrics,
                &controller.components,
                &controller.unruled,
            )
            .await
        }
        Common::Unused => controller.collect().await,
    }
}
