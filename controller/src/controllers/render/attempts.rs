//! Tries of a pool's rendering. What the API server refuses is told on the pool and tried again with growing pauses, at once when an
//! input changes. What it does not answer is told when that happens again. What another program sets back is written again with growing pauses, too.

use std::time::Duration;

use tracing::warn;

use super::{Controller, Outcome, RENDER_DEGRADED};
use crate::api::MachineConfigPool;
use crate::controllers::client::{RequestError, uptime};
use crate::controllers::contested::Field;
use crate::controllers::events::{About, Severity, emit};
use crate::retry::LONGEST;

/// Tries without an answer before the pool says so: a connection that breaks once is nobody's concern.
const MAX_UNTOLD: u32 = 2;

/// The longest pause after a try without an answer: it may be another one at any moment.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(30);

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
        if let Some(wait) = self.retries().wait(&name, &input, uptime()) {
            return Some(wait);
        }
        if let Some(wait) = self.unanswered().wait(&name, &input, uptime()) {
            return Some(wait);
        }
        let error = match Box::pin(self.bring(outcome)).await {
            Ok(()) => {
                self.retries().succeeded(&name);
                self.unanswered().succeeded(&name);
                return self.later.take();
            }
            Err(error) => error,
        };
        if error.is_conflict() && error.code() == 409 && self.refresh(&name).await.is_ok() {
            // Another writer changed the pool, such as the node controller its status.
            return Some(Duration::ZERO);
        }
        self.stand_for_present(&pool);
        self.metrics.wrote("render", "failed");
        if !error.is_refusal() {
            let (wait, is_news, tries) = {
                let mut unanswered = self.unanswered();
                let (wait, is_news) =
                    unanswered.failed_for(&name, &input, &error.to_string(), LONGEST_UNANSWERED, uptime());
                (wait, is_news, unanswered.tries(&name))
            };
            // Not each try.
            if is_news {
                warn!("pool {name}: {error}");
            }
            if tries == MAX_UNTOLD || (is_news && tries > MAX_UNTOLD) {
                self.refused(pool, &error).await;
            }
            return Some(self.later.take().map_or(wait, |later| later.max(wait)));
        }
        let (wait, is_news) = self.retries().failed(&name, &input, &error.to_string(), uptime());
        if is_news {
            self.refused(pool, &error).await;
        }
        Some(wait)
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

    /// Reports a failure that is no pool's once; returns the time until the next try.
    pub(super) fn failed(&mut self, what: &str, error: &RequestError) -> Duration {
        let longest = if error.is_refusal() { LONGEST } else { LONGEST_UNANSWERED };
        let (wait, is_news) = self.retries().failed_for(what, "", &error.to_string(), longest, uptime());
        if is_news {
            warn!("{what}: {error}");
        }
        wait
    }
}
