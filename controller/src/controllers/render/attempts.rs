//! Tries of a pool's rendering. What the API server refuses is told on the pool and tried again with growing pauses, at once when an
//! input changes. What it does not answer is told when that happens again. What another program sets back is written again with growing pauses, too.

use std::time::Duration;

use tracing::{info, warn};

use super::{Controller, Outcome, RENDER_DEGRADED};
use crate::api::MachineConfigPool;
use crate::controllers::client::RequestError;
use crate::controllers::contested::Field;
use crate::controllers::events::{About, Severity, emit};

impl Outcome {
    /// Returns what a refusal depends on: the pool, which may be another one of the same name, the content of the rendered config, and its
    /// sources.
    fn input(&self) -> String {
        let pool = self.pool.metadata.uid.as_deref().unwrap_or_default();
        match &self.rendered {
            Ok(rendered) => format!("{pool} {} {}", rendered.name(), rendered.sources.join(" ")),
            Err(why) => format!("{pool} {why}"),
        }
    }
}

impl Controller {
    /// Renders a pool, unless it was refused a moment ago; returns the time until the next try, if there is one.
    pub(super) async fn attempt(&mut self, outcome: Outcome) -> Option<Duration> {
        let (pool, input) = (outcome.pool.clone(), outcome.input());
        let name = pool.metadata.name.clone().unwrap_or_default();
        if let Some(wait) = self.tries.wait(&name, &input) {
            return Some(wait);
        }
        let error = match Box::pin(self.bring(outcome)).await {
            Ok(()) => {
                self.tries.succeeded(&name);
                // One that is told in the meantime is not over.
                if self.later.is_none() && self.causes.is_over(&name) {
                    info!("pool {name}: it is rendered again");
                }
                return self.later.take();
            }
            Err(error) => error,
        };
        if error.is_conflict()
            && let Ok(is_there) = self.refresh(&name).await
        {
            // Another writer changed the pool, such as the node controller its status.
            return is_there.then_some(Duration::ZERO);
        }
        if About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default()).is_gone(&self.cache.lock()) {
            return None;
        }
        self.stand_for_present(&pool);
        self.metrics.wrote("render", "failed");
        let failed = self.tries.failed(&name, &input, &error);
        // Do not log each try.
        if failed.is_logged && !failed.is_told && self.causes.is_news(&name, &error.to_string()) {
            warn!("pool {name}: {error}");
        }
        if failed.is_told {
            self.refused(pool, &error).await;
        }
        let later = self.later.take().filter(|_| !error.is_refusal());
        Some(later.map_or(failed.wait, |later| later.max(failed.wait)))
    }

    /// Tells of a try that failed: in the condition, and where that is refused, too, as an Event.
    async fn refused(&mut self, pool: MachineConfigPool, error: &RequestError) {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        let message = format!("Failed to render configuration for pool {name}: {error}");
        self.metrics.rendered(&name, false);
        // As the cache has it: a write before the refused one has changed it.
        let now = self.cache.lock().pools.get(&name).cloned().and_then(Result::ok).unwrap_or(pool);
        if let Err(error) = self.condition(now, RENDER_DEGRADED, Some(message.clone())).await {
            warn!("pool {name}: {message}; its condition is not written: {error}");
            emit(&self.client, &about, Severity::Warning, RENDER_DEGRADED, &message).await;
        }
    }

    /// Returns true if a value may be written now. Otherwise another program sets it back again and again, and it waits.
    pub(super) fn may_repeat(&mut self, what: &Field, value: &str) -> bool {
        let Some(wait) = self.contested.wait(what, value) else { return true };
        self.try_later(wait);
        false
    }

    /// Has the pool be tried again after a time at the latest.
    pub(super) fn try_later(&mut self, wait: Duration) {
        self.later = Some(self.later.map_or(wait, |later| later.min(wait)));
    }
}
