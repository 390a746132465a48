//! Statuses that the API server refuses, or that another program writes, too: each is told once, and written again after growing
//! pauses, or when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::api::pool::Condition;
use crate::api::{MachineConfigPool, MachineConfigPoolStatus};
use crate::controllers::client::RequestError;
use crate::controllers::events::{About, POOL};
use crate::controllers::tries::{Failed, Tries};
use crate::retry::Repeats;
use crate::rollout::{HALTED, RESUMED};

/// A pool's status is written so often at most.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

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

/// Conditions that the next decision about a pool reads.
#[derive(Debug, Clone, Default)]
struct Decided {
    uid: Option<String>,
    halted: Option<Condition>,
    resumed: Option<Condition>,
}

/// Outcomes of the writes of statuses.
#[derive(Debug)]
pub(super) struct Statuses {
    /// A server that is not well is so whatever the status is.
    pub(super) tries: Tries,
    pub(super) repeats: Repeats,
    /// Statuses that the API server took without a change, by object, with the version that it has: a field that the definition lacks is
    /// dropped.
    unchanged: BTreeMap<String, (Option<String>, String)>,
    /// Objects whose status is being written.
    under_way: BTreeSet<String>,
    /// When the status of a pool was written last.
    written: BTreeMap<String, Duration>,
    /// Message by pool whose policy's status could not be written.
    unrecorded: BTreeMap<String, String>,
    /// The conditions of each pool that the next decision reads, as they were decided last, with the pool's UID.
    decided: BTreeMap<String, Decided>,
}

impl Default for Statuses {
    fn default() -> Self {
        Self {
            tries: Tries::of_frequent_inputs(),
            repeats: Repeats::default(),
            unchanged: BTreeMap::new(),
            under_way: BTreeSet::new(),
            written: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
            decided: BTreeMap::new(),
        }
    }
}

impl Statuses {
    /// Returns the time to wait before a status is written again; `None` if it is due.
    pub(super) fn wait<S: Serialize>(&self, about: &About, status: &S, now: Duration) -> Option<Duration> {
        let (name, status) = (about.key(), content(status));
        let waits = [self.tries.wait(&name, &status), self.repeats.wait(&name, &status, now)];
        waits.into_iter().flatten().max()
    }

    /// Returns the cause of the last failure of a status that has not been written since.
    pub(super) fn failure(&self, about: &About) -> Option<String> {
        self.tries.cause(&about.key())
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

    /// Records that a status was written.
    pub(super) fn succeeded(&mut self, name: &str) {
        self.tries.succeeded(name);
        self.unchanged.remove(name);
    }

    /// Records that a status changed nothing at an object of this version.
    pub(super) fn changed_nothing(&mut self, name: &str, version: Option<String>, status: &str) {
        self.tries.succeeded(name);
        self.unchanged.insert(name.to_owned(), (version, status.to_owned()));
    }

    /// Returns true if a status is known to change nothing at an object of this version.
    pub(super) fn changes_nothing<S: Serialize>(
        &self,
        about: &About,
        version: Option<&str>,
        status: &S,
    ) -> bool {
        let known = self.unchanged.get(&about.key());
        known.is_some_and(|(known, last)| known.as_deref() == version && *last == content(status))
    }

    /// Records a write that failed.
    pub(super) fn failed(&mut self, name: &str, status: &str, error: &RequestError) -> Failed {
        self.tries.failed(name, status, error)
    }

    /// Forgets pools that are gone.
    pub(super) fn keep_pools(&mut self, pools: &BTreeSet<String>) {
        // By kind, name and uid.
        let name = |key: &str| key.strip_prefix(POOL)?.split_whitespace().next().map(str::to_owned);
        let is_kept = |key: &str| name(key).is_none_or(|name| pools.contains(&name));
        self.tries.keep(is_kept);
        self.unchanged.retain(|name, _| is_kept(name));
        self.written.retain(|pool, _| pools.contains(pool));
        self.unrecorded.retain(|pool, _| pools.contains(pool));
        self.decided.retain(|pool, _| pools.contains(pool));
    }

    /// Records the status that was decided for a pool: a halt holds, and a deleted policy is missed, although the API server does not take it.
    pub(super) fn decided(&mut self, pool: &MachineConfigPool, status: &MachineConfigPoolStatus) {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let (halted, resumed) = (halted(status).cloned(), condition(status, RESUMED).cloned());
        self.decided.insert(name, Decided { uid: pool.metadata.uid.clone(), halted, resumed });
    }

    /// Returns the condition `RolloutHalted` that was decided last for this very pool.
    pub(super) fn halted(&self, pool: &MachineConfigPool) -> Option<Condition> {
        self.decided_for(pool)?.halted.clone()
    }

    /// Returns the condition `RolloutResumed` that was decided last for this very pool.
    pub(super) fn resumed(&self, pool: &MachineConfigPool) -> Option<Condition> {
        self.decided_for(pool)?.resumed.clone()
    }

    fn decided_for(&self, pool: &MachineConfigPool) -> Option<&Decided> {
        let decided = self.decided.get(pool.metadata.name.as_deref()?)?;
        (decided.uid == pool.metadata.uid).then_some(decided)
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

/// Returns the condition of a halt.
pub(super) fn halted(status: &MachineConfigPoolStatus) -> Option<&Condition> {
    condition(status, HALTED)
}

fn condition<'a>(status: &'a MachineConfigPoolStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().flatten().find(|one| one.type_ == type_)
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
