//! The record of a seed in the making, on disk: the only door to an effect of it.
//!
//! It says which services rest and where the files are, before any service is stopped. Whoever opens it next, the command or the
//! daemon, restores the host from it. It is a file and a lock of its own (`seed.json`, `seed.lock`), so the daemon goes on
//! meanwhile.

use super::error::{AdvanceError, JournalError};
use super::files::{STATE_DIR_MODE, state};
use super::place;
use super::record_file::{RecordFile, RecordKind};
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::stateroot::{SEED_SCHEMA, SeedRecord, SeedStep};

const RECORD: RecordKind =
    RecordKind { file: "seed.json", what: "the record of a seed", schema: SEED_SCHEMA };
const LOCK: &str = "seed.lock";

/// The permission for one step: it exists only while the record on disk says so.
#[derive(Debug)]
pub struct SeedIntent<'a> {
    record: &'a SeedRecord,
    step: SeedStep,
}

impl SeedIntent<'_> {
    /// Returns the step.
    pub fn step(&self) -> SeedStep {
        self.step
    }

    /// Returns the record.
    pub fn record(&self) -> &SeedRecord {
        self.record
    }
}

/// The journal, open: its lock is held.
#[derive(Debug)]
pub struct SeedJournal {
    file: RecordFile<SeedRecord>,
    fail_points: FailPoints,
    _lock: LockFile,
}

impl SeedJournal {
    /// Takes the lock and reads the record; `None` if another process makes a seed.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Option<Self>, JournalError> {
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let Some(lock) = place::lock(&root, LOCK)? else { return Ok(None) };
        durable::sync_directory(&root, STATE_DIR)?;
        Ok(Some(Self { file: RecordFile::open(root, RECORD)?, fail_points, _lock: lock }))
    }

    /// Returns the error of a journal that another process holds.
    pub fn held() -> JournalError {
        JournalError::StaterootLocked { path: state(LOCK) }
    }

    /// Returns the seed in the making.
    pub fn record(&self) -> Option<&SeedRecord> {
        self.file.get()
    }

    /// Opens a record.
    pub fn begin(&mut self, record: SeedRecord) -> Result<(), JournalError> {
        self.write(record)
    }

    /// Records a step and carries it out.
    pub async fn advance<T, E>(
        &mut self,
        step: SeedStep,
        run: impl AsyncFnOnce(&SeedIntent<'_>) -> Result<T, E>,
    ) -> Result<T, AdvanceError<E>> {
        let record = self.record().cloned().ok_or(JournalError::NoUpdate { what: step.as_str() })?;
        self.write(SeedRecord { step: Some(step), ..record })?;
        let record = self.record().ok_or(JournalError::NoUpdate { what: step.as_str() })?;
        let found = run(&SeedIntent { record, step }).await.map_err(AdvanceError::Effect)?;
        self.fail_points.hit("seed-ran");
        Ok(found)
    }

    /// Closes the record.
    pub fn close(&mut self) -> Result<(), JournalError> {
        self.file.settle()?;
        if self.record().is_none() {
            return Ok(());
        }
        self.fail_points.hit("seed-closing");
        self.file.remove()
    }

    fn write(&mut self, record: SeedRecord) -> Result<(), JournalError> {
        self.file.write(record)?;
        self.fail_points.hit("seed-recorded");
        Ok(())
    }
}

/// Reads the record without its lock.
pub fn load_record(root: &Root) -> Result<Option<SeedRecord>, JournalError> {
    RECORD.load(root)
}
