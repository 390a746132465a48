//! Past updates: one small file each, so that a long history costs an update nothing.
//!
//! # Decisions
//! 1. The order is that of writing: files are numbered. An update's id is its time by the wall clock, which may jump; of
//!    the files of older agents, which are named by it, nothing better is known, and all of them come first.
//! 2. While one target is tried, what is undone for the same reason is one entry with a count, at the place of its last
//!    try: a disk that is full for a day does not push out earlier entries, nor do two reasons in turn.
//! 3. An unreadable entry is skipped, logged and kept: the history is for people, and no update waits for it.
//! 4. An update that failed and is held is shown last although its record is still open: for people it has ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::error::JournalError;
use super::files::{STATE_MODE, state};
use super::stored;
use crate::host::root::Root;
use crate::model::text::chain;
use crate::model::yaml::redacted;
use crate::model::{FaultClass, Target, Timestamp};
use crate::update::resume::held;
use crate::update::{Fault, Record};

/// Most past updates kept. A node sees some ten a month: half a year, in under a mebibyte.
pub const MAX_ENTRIES: usize = 64;

/// Prefix of the names of entries; it sorts behind the digits of the ids that older agents took.
const PREFIX: &str = "entry-";

/// Outcome of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its spec is the committed one.
    Committed,
    /// It was undone after a fault.
    RolledBack,
    /// It was undone because another target was desired.
    Superseded,
    /// It ended with a fault and its effects stayed.
    Faulted,
}

impl Outcome {
    /// Returns the outcome's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled-back",
            Self::Superseded => "superseded",
            Self::Faulted => "faulted",
        }
    }
}

/// A past update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The current target when it began.
    pub from: Option<Target>,
    /// Its target.
    pub to: Target,
    /// Its start, RFC 3339.
    pub started: String,
    /// Its end, RFC 3339.
    pub ended: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// The number of steps.
    pub steps: usize,
    /// Reboots of the node for it.
    pub reboots: u32,
    /// Set if the node was drained for it.
    pub drained: bool,
    /// Microseconds by phase.
    pub durations: BTreeMap<String, u64>,
    /// Its fault.
    pub fault: Option<Fault>,
    /// Tries that were undone for the same reason while no other target was tried; the other fields are of the last one.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub attempts: u32,
    /// Set if its record is still open: the target is held, or waits for its next try.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

fn once() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_once(attempts: &u32) -> bool {
    *attempts == 1
}

impl Entry {
    /// Sums up a record.
    pub(super) fn new(record: &Record, outcome: Outcome, now: Timestamp) -> Self {
        let mut durations = record.durations.clone();
        let last = u64::try_from(now.since(record.since).as_micros()).unwrap_or(u64::MAX);
        *durations.entry(record.phase.as_str().to_owned()).or_default() += last;
        Self {
            id: record.id.to_string(),
            from: record.from.clone(),
            to: record.to.clone(),
            started: record.started.to_string(),
            ended: now.to_string(),
            outcome,
            steps: record.plan.steps().len(),
            reboots: record.reboots,
            drained: record.drained,
            durations,
            fault: record.fault.clone(),
            attempts: 1,
            held: false,
        }
    }

    /// Sums up an open record whose update has failed and is held.
    fn of_held(record: &Record) -> Option<Self> {
        record.fault.as_ref()?;
        let outcome = match (record.is_undone(), held(record)) {
            (true, _) => Outcome::RolledBack,
            (false, true) => Outcome::Faulted,
            (false, false) => return None,
        };
        Some(Self { held: true, ..Self::new(record, outcome, record.since) })
    }

    /// Writes the entry, and forgets the oldest beyond [`MAX_ENTRIES`]. It may be repeated.
    pub(super) fn save(mut self, root: &Root) -> Result<(), JournalError> {
        let mut names = names(root)?;
        let merged = self.merged(root, &names)?;
        // What was written before, and cut off after, has counted the others already.
        let is_repeated = merged.first().is_some_and(|(_, entry)| entry.id == self.id);
        let counted = || merged.iter().take(if is_repeated { 1 } else { usize::MAX }).map(|(_, entry)| entry);
        let own = u32::from(!is_repeated);
        self.attempts = counted().fold(own, |sum, entry| sum.saturating_add(entry.attempts));
        if let Some(first) = counted().next_back() {
            self.started.clone_from(&first.started);
        }
        let name = match (merged.first(), names.last()) {
            (Some((newest, _)), Some(last)) if newest == last => newest.clone(),
            (_, last) => {
                let number = last.and_then(|name| number(name)).map_or(1, |last| last + 1);
                format!("{PREFIX}{number:010}.json")
            }
        };
        names.retain(|old| *old != name && merged.iter().all(|(merged, _)| merged != old));
        names.push(name.clone());
        let path = path(&name);
        let bytes = serde_json::to_vec(&self).map_err(|error| JournalError::Unreadable {
            path: path.clone(),
            what: "JSON",
            cause: error.to_string(),
        })?;
        let surplus = names.iter().take(names.len().saturating_sub(MAX_ENTRIES));
        let others = merged.iter().map(|(name, _)| name).filter(|merged| **merged != name);
        let stale: Vec<String> = surplus.chain(others).map(|old| self::path(old)).collect();
        Ok(root.replace_and_remove((&path, &bytes, STATE_MODE), &stale)?)
    }

    /// Returns the entries that become one with it, the newest first: its own, which was cut off, and earlier tries that
    /// were undone for the same reason, while no other target was tried.
    fn merged(&self, root: &Root, names: &[String]) -> Result<Vec<(String, Self)>, JournalError> {
        let mut merged = Vec::new();
        for (back, name) in names.iter().rev().enumerate() {
            let Some(entry) = read(root, name)?.entry() else { break };
            let is_own = back == 0 && entry.id == self.id;
            if !is_own && !self.is_of_same_target(&entry) {
                break;
            }
            if is_own || self.reason() == entry.reason() {
                merged.push((name.clone(), entry));
            }
        }
        Ok(merged)
    }

    /// Returns true if both are tries of one target that were undone for a fault.
    fn is_of_same_target(&self, other: &Self) -> bool {
        let is_undone = |entry: &Self| entry.outcome == Outcome::RolledBack && entry.fault.is_some();
        is_undone(self) && is_undone(other) && (&self.from, &self.to) == (&other.from, &other.to)
    }

    fn reason(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| fault.reason.as_str())
    }
}

/// The past updates in the order in which they ended, and why some can't be read.
#[derive(Debug)]
pub struct History {
    /// Those that can be read.
    pub entries: Vec<Entry>,
    /// The others.
    pub damaged: Vec<JournalError>,
}

/// Reads the past updates.
pub fn load(root: &Root) -> Result<History, JournalError> {
    let mut history = History { entries: Vec::new(), damaged: Vec::new() };
    for name in names(root)? {
        match read(root, &name)? {
            Found::Nothing => {}
            Found::Entry(entry) => history.entries.push(*entry),
            Found::Damaged(error) => history.damaged.push(error),
        }
    }
    Ok(history)
}

/// Returns the name of the newest entry: an update that has ended since has another one.
pub fn newest(root: &Root) -> Result<Option<String>, JournalError> {
    Ok(names(root)?.pop())
}

/// Returns the time at which the host came to rest: that of the commit, or the end of an update that was undone since. `None` where
/// neither is known.
pub fn settled_at(root: &Root, committed: Option<Timestamp>) -> Result<Option<Timestamp>, JournalError> {
    let newest = names(root)?.pop().map(|name| read(root, &name)).transpose()?;
    let ended = newest.and_then(Found::entry).and_then(|entry| Timestamp::read(&entry.ended));
    Ok(committed.into_iter().chain(ended).filter(|at| *at != Timestamp::default()).max())
}

/// Reads the past updates, and last the one that failed and is held.
pub fn load_with_held(root: &Root) -> Result<History, JournalError> {
    let mut history = load(root)?;
    let entries = &mut history.entries;
    let held = stored::load_record(root)?.as_ref().and_then(Entry::of_held);
    // One whose archive was cut off is in both.
    entries.extend(held.filter(|held| entries.last().is_none_or(|last| last.id != held.id)));
    Ok(history)
}

/// Returns the names of the entries in the order in which they were written.
fn names(root: &Root) -> Result<Vec<String>, JournalError> {
    let mut names = root.list(&state("history"))?;
    names.retain(|name| name.strip_suffix(".json").is_some());
    names.sort_by_cached_key(|name| (number(name), name.clone()));
    Ok(names)
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(".json")?.parse().ok()
}

fn path(name: &str) -> String {
    state(&format!("history/{name}"))
}

/// File at the place of an entry.
enum Found {
    Nothing,
    Entry(Box<Entry>),
    Damaged(JournalError),
}

impl Found {
    /// Returns the entry; logs why there is none to be read.
    fn entry(self) -> Option<Entry> {
        match self {
            Self::Nothing => None,
            Self::Entry(entry) => Some(*entry),
            Self::Damaged(error) => {
                warn!("Skipped a past update: {}", chain(&error));
                None
            }
        }
    }
}

/// Reads an entry. Only a passing failure is an error: the next try reads it.
fn read(root: &Root, name: &str) -> Result<Found, JournalError> {
    let path = path(name);
    let bytes = match root.read(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Found::Nothing),
        Err(error) if error.class() == FaultClass::Retry => return Err(error.into()),
        Err(error) => return Ok(Found::Damaged(error.into())),
    };
    Ok(match serde_json::from_slice(&bytes) {
        Ok(entry) => Found::Entry(Box::new(entry)),
        Err(error) => Found::Damaged(JournalError::Unreadable {
            path,
            what: "a past update",
            cause: redacted(&error.to_string()),
        }),
    })
}
