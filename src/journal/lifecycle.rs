//! Small states on disk beside the record of an update, in the agent's directory of the stateroot that runs: the stages of an
//! image-based upgrade (`stateroot-lifecycle.json`), and the seed that an object describes (`seed-generation.json`). One process
//! carries each out, and what it does it has written down before.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::JournalError;
use super::files::{STATE_DIR_MODE, state};
use super::place;
use super::record_file::{RecordFile, RecordKind};
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::stateroot::lifecycle::{LIFECYCLE_FILE, LIFECYCLE_SCHEMA, Lifecycle};
use crate::stateroot::{GENERATION_SCHEMA, SeedGeneration};

const LIFECYCLE: StateKind = StateKind {
    record: RecordKind { file: LIFECYCLE_FILE, what: "the stages of stateroots", schema: LIFECYCLE_SCHEMA },
    lock: "stateroot-lifecycle.lock",
    fail_point: "lifecycle-recorded",
};
const GENERATION: StateKind = StateKind {
    record: RecordKind {
        file: "seed-generation.json",
        what: "the seed of the SeedGenerator",
        schema: GENERATION_SCHEMA,
    },
    lock: "seed-generation.lock",
    fail_point: "generation-recorded",
};

/// A kind of state, and its names.
#[derive(Debug, Clone, Copy)]
struct StateKind {
    record: RecordKind,
    lock: &'static str,
    fail_point: &'static str,
}

/// Refuses files of these that can't be read. Changes nothing.
pub fn check(root: &Root) -> Result<(), JournalError> {
    LIFECYCLE.record.load::<Lifecycle>(root)?;
    GENERATION.record.load::<SeedGeneration>(root).map(drop)
}

/// A state, open: its lock is held.
#[derive(Debug)]
pub struct StateJournal<T> {
    file: RecordFile<T>,
    fail_points: FailPoints,
    fail_point: &'static str,
    _lock: LockFile,
}

/// The stages.
pub type LifecycleJournal = StateJournal<Lifecycle>;

/// The seed of an object.
pub type GenerationJournal = StateJournal<SeedGeneration>;

impl LifecycleJournal {
    /// Takes the lock and reads the stages.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        Self::open_kind(LIFECYCLE, root, fail_points)
    }
}

impl GenerationJournal {
    /// Takes the lock and reads the seed.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        Self::open_kind(GENERATION, root, fail_points)
    }
}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> StateJournal<T> {
    fn open_kind(kind: StateKind, root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let lock = place::lock(&root, kind.lock)?
            .ok_or_else(|| JournalError::StaterootLocked { path: state(kind.lock) })?;
        durable::sync_directory(&root, STATE_DIR)?;
        let file = RecordFile::open(root, kind.record)?;
        Ok(Self { file, fail_points, fail_point: kind.fail_point, _lock: lock })
    }

    /// Returns the state; `None` where there never was one.
    pub fn current(&self) -> Option<&T> {
        self.file.get()
    }

    /// Writes the state down; the same again costs nothing.
    pub fn record(&mut self, state: T) -> Result<(), JournalError> {
        if self.current() == Some(&state) {
            return self.file.settle();
        }
        self.file.write(state)?;
        self.fail_points.hit(self.fail_point);
        Ok(())
    }

    /// Removes the state; a missing one is ignored.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        if self.current().is_none() { self.file.settle() } else { self.file.remove() }
    }
}

/// Returns true if a stage was ever set on this host.
pub fn has_stages(root: &Root) -> Result<bool, JournalError> {
    Ok(root.exists(&state(LIFECYCLE.record.file))?)
}

/// Returns true if this host has the seed of an object.
pub fn has_generation(root: &Root) -> Result<bool, JournalError> {
    Ok(root.exists(&state(GENERATION.record.file))?)
}
