//! Statuses that the API server refuses, or that another program writes, too: each is told once, and written again after growing
//! pauses, or when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::controllers::events::About;
use crate::retry::{Repeats, Retries};

/// A pool's status is written so often at most.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause after an answer that may be another one at any moment.
const LONGEST_UNSENT: Duration = Duration::from_secs(30);

/// Failures in a row before one is told: a connection that breaks once is nobody's concern.
const MAX_UNTOLD: u32 = 2;

/// Outcome of the write of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It was so already.
    Same,
    /// It is so now.
    Made,
    /// Somebody else wrote meanwhile.
    Conflict,
}

/// Outcomes of the writes of statuses.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    pub(super) refused: Retries,
    /// Failures of writes whose fate is not known: of an API server that is not well.
    unsent: Retries,
    pub(super) repeats: Repeats,
    /// Objects whose status is being written.
    under_way: BTreeSet<String>,
    /// When the status of a pool was written last.
    written: BTreeMap<String, Duration>,
    /// Message by pool whose policy's status could not be written.
    unrecorded: BTreeMap<String, String>,
}

impl Statuses {
    /// Returns the time to wait before a status is written again; `None` if it is due.
    pub(super) fn wait<S: Serialize>(&self, about: &About, status: &S, now: Duration) -> Option<Duration> {
        let (name, status) = (about.key(), content(status));
        // A server that is not well is so whatever the status is.
        let waits = [
            self.refused.wait(&name, &status, now),
            self.unsent.wait(&name, "", now),
            self.repeats.wait(&name, &status, now),
        ];
        waits.into_iter().flatten().max()
    }

    /// Returns the cause of the last failure of a status that has not been written since.
    pub(super) fn failure(&self, about: &About) -> Option<String> {
        let name = about.key();
        self.refused.cause(&name).or_else(|| self.unsent.cause(&name)).map(str::to_owned)
    }

    /// Records that a write of a status was sent.
    pub(super) fn sent(&mut self, about: &About) {
        self.under_way.insert(about.key());
    }

    /// Records that it was answered.
    pub(super) fn answered(&mut self, about: &About) {
        self.under_way.remove(&about.key());
    }

    /// Returns true if a write of a status is not answered yet.
    pub(super) fn is_under_way(&self, about: &About) -> bool {
        self.under_way.contains(&about.key())
    }

    /// Records that the status of a pool was written.
    pub(super) fn written(&mut self, pool: &str, now: Duration) {
        self.written.insert(pool.to_owned(), now);
    }

    /// Returns the time until a pool's status is written again, if that was a moment ago. Each change of a node may change the counts.
    pub(super) fn pause(&self, pool: &str, now: Duration) -> Option<Duration> {
        let again = self.written.get(pool)?.saturating_add(STATUS_INTERVAL);
        again.checked_sub(now).filter(|pause| !pause.is_zero())
    }

    pub(super) fn succeeded(&mut self, name: &str) {
        self.refused.succeeded(name);
        self.unsent.succeeded(name);
    }

    /// Records a write whose fate is not known; returns the pause before the next one, and true if it is to be told.
    pub(super) fn not_sent(&mut self, name: &str, cause: &str, now: Duration) -> (Duration, bool) {
        let (wait, is_news) = self.unsent.failed_for(name, "", cause, LONGEST_UNSENT, now);
        let tries = self.unsent.tries(name);
        (wait, tries == MAX_UNTOLD || (is_news && tries > MAX_UNTOLD))
    }

    pub(super) fn unrecorded(&self, pool: &str) -> Option<String> {
        self.unrecorded.get(pool).cloned()
    }

    /// Records whether the status of a pool's policy is written; returns true if that is news.
    pub(super) fn record(&mut self, pool: &str, failure: Option<String>) -> bool {
        match failure {
            Some(message) => self.unrecorded.insert(pool.to_owned(), message.clone()) != Some(message),
            None => self.unrecorded.remove(pool).is_some(),
        }
    }
}

/// Returns the content of a status, without times that change with each write.
pub(super) fn content<S: Serialize>(status: &S) -> String {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    strip(&mut value);
    value.to_string()
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("lastTransitionTime");
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
