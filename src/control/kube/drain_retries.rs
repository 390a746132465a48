//! Drains that were answered while the node stayed schedulable: they are requested again, at growing intervals.

use tokio::time::Instant;

use crate::model::ConfigName;
use crate::model::backoff::Backoff;

/// Drains that were answered while the node stayed schedulable.
#[derive(Debug)]
pub(super) struct DrainRetries {
    config: Option<ConfigName>,
    pub(super) drains: u32,
    backoff: Backoff,
    /// Time of the next request of a drain.
    pub(super) due: Option<Instant>,
}

impl DrainRetries {
    /// None so far.
    pub(super) fn new(node: &str) -> Self {
        Self { config: None, drains: 0, backoff: Backoff::for_requests(node), due: None }
    }

    /// Counts a drain of this config, unless the last one is still to be requested again; returns when it is.
    pub(super) fn count(&mut self, config: &ConfigName, now: Instant) -> Instant {
        if self.config.as_ref() != Some(config) {
            self.forget();
            self.config = Some(config.clone());
        }
        if let Some(due) = self.due {
            return due;
        }
        self.drains = self.drains.saturating_add(1);
        let due = now + self.backoff.next_wait();
        self.due = Some(due);
        due
    }

    pub(super) fn forget(&mut self) {
        (self.config, self.drains, self.due) = (None, 0, None);
        self.backoff.reset();
    }
}
