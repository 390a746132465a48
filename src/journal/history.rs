//! Past updates: one small file each, so that a long history costs an update nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{JournalError, STATE_MODE, state};
use crate::host::root::Root;
use crate::model::{Target, Timestamp};
use crate::update::{Fault, Record};

/// How many past updates are kept. A node sees some ten a month: half a year, in under a mebibyte.
pub const KEPT: usize = 64;

/// How an update ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its spec is the committed one.
    Committed,
    /// It was undone after a fault.
    RolledBack,
    /// It was undone because another target was wanted.
    Superseded,
    /// It ended with a fault and its effects stayed.
    Faulted,
}

impl Outcome {
    /// Returns the outcome's word.
    pub fn word(self) -> &'static str {
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
pub struct Entry {
    /// Its id.
    pub id: String,
    /// What was committed when it began.
    pub from: Option<Target>,
    /// What it led to.
    pub to: Target,
    /// When it began, RFC 3339.
    pub started: String,
    /// When it ended, RFC 3339.
    pub ended: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of steps.
    pub steps: usize,
    /// How often the node was rebooted for it.
    pub reboots: u32,
    /// Whether the node was drained for it.
    pub drained: bool,
    /// Microseconds by phase word.
    pub durations: BTreeMap<String, u64>,
    /// What went wrong.
    pub fault: Option<Fault>,
}

impl Entry {
    /// Sums up a record.
    pub(super) fn of(record: &Record, outcome: Outcome, now: Timestamp) -> Self {
        let mut durations = record.durations.clone();
        let last = u64::try_from(now.since(record.since).as_micros()).unwrap_or(u64::MAX);
        *durations.entry(record.phase.word().to_owned()).or_default() += last;
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
        }
    }

    /// Writes the entry, and forgets the oldest beyond [`KEPT`].
    pub(super) fn save(&self, root: &Root) -> Result<(), JournalError> {
        let path = state(&format!("history/{}.json", self.id));
        let bytes = serde_json::to_vec(self).map_err(|error| JournalError::Unreadable {
            path: path.clone(),
            what: "JSON",
            cause: error.to_string(),
        })?;
        root.replace(&path, &bytes, STATE_MODE)?;
        let mut names = root.list(&state("history"))?;
        names.sort();
        for old in names.iter().take(names.len().saturating_sub(KEPT)) {
            root.remove(&state(&format!("history/{old}")))?;
        }
        Ok(())
    }
}

/// Reads the past updates, oldest first (an update's id begins with the time it began).
pub fn load(root: &Root) -> Result<Vec<Entry>, JournalError> {
    let mut names = root.list(&state("history"))?;
    names.retain(|name| name.strip_suffix(".json").is_some());
    names.sort();
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let path = state(&format!("history/{name}"));
        let Some(bytes) = root.read(&path)? else { continue };
        let entry = serde_json::from_slice(&bytes).map_err(|error| JournalError::Unreadable {
            path,
            what: "a past update",
            cause: error.to_string(),
        })?;
        entries.push(entry);
    }
    Ok(entries)
}
