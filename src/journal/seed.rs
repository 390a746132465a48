//! The record of a seed in the making, on disk: the only door to an effect of it.
//!
//! It says which services rest and where the files are, before any service is stopped. Whoever opens it next, the command or the
//! daemon, restores the host from it. It is a file and a lock of its own (`seed.json`, `seed.lock`), so the daemon goes on
//! meanwhile.
//!
//! Invariant: the memory is what the disk says; after a write that failed the next one writes the whole record again.

use serde::Deserialize;

use super::{AdvanceError, JournalError, STATE_DIR_MODE, STATE_MODE, state};
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::stateroot::{SEED_SCHEMA, SeedRecord, SeedStep};

const RECORD: &str = "seed.json";
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
    root: Root,
    fail_points: FailPoints,
    record: Option<SeedRecord>,
    in_doubt: bool,
    _lock: LockFile,
}

impl SeedJournal {
    /// Takes the lock and reads the record; `None` if another process makes a seed.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Option<Self>, JournalError> {
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let Some(lock) = root.lock(&state(LOCK))? else { return Ok(None) };
        durable::sync_directory(&root, STATE_DIR)?;
        let record = load_record(&root)?;
        Ok(Some(Self { root, fail_points, record, in_doubt: false, _lock: lock }))
    }

    /// Returns the error of a journal that another process holds.
    pub fn held() -> JournalError {
        JournalError::StaterootLocked { path: state(LOCK) }
    }

    /// Returns the seed in the making.
    pub fn record(&self) -> Option<&SeedRecord> {
        self.record.as_ref()
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
        let record = self.record.clone().ok_or(JournalError::NoUpdate { what: step.as_str() })?;
        self.write(SeedRecord { step: Some(step), ..record })?;
        let record = self.record.as_ref().ok_or(JournalError::NoUpdate { what: step.as_str() })?;
        let found = run(&SeedIntent { record, step }).await.map_err(AdvanceError::Effect)?;
        self.fail_points.hit("seed-ran");
        Ok(found)
    }

    /// Closes the record.
    pub fn close(&mut self) -> Result<(), JournalError> {
        self.settle()?;
        if self.record.is_none() {
            return Ok(());
        }
        self.fail_points.hit("seed-closing");
        self.in_doubt = true;
        self.root.remove(&state(RECORD))?;
        self.record = None;
        self.in_doubt = false;
        Ok(())
    }

    fn write(&mut self, record: SeedRecord) -> Result<(), JournalError> {
        self.settle()?;
        self.in_doubt = true;
        self.root.replace(&state(RECORD), &json(&record)?, STATE_MODE)?;
        self.record = Some(record);
        self.in_doubt = false;
        self.fail_points.hit("seed-recorded");
        Ok(())
    }

    /// After a change that failed, has the disk say what the memory says.
    fn settle(&mut self) -> Result<(), JournalError> {
        if !self.in_doubt {
            return Ok(());
        }
        match &self.record {
            Some(record) => self.root.rewrite(&state(RECORD), &json(record)?, STATE_MODE)?,
            None => self.root.remove_again(&state(RECORD))?,
        }
        self.in_doubt = false;
        Ok(())
    }
}

/// Reads the record without its lock.
pub fn load_record(root: &Root) -> Result<Option<SeedRecord>, JournalError> {
    #[derive(Deserialize)]
    struct Schema {
        schema: u64,
    }
    let path = state(RECORD);
    let Some(bytes) = root.read(&path)? else { return Ok(None) };
    let Schema { schema } = serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?;
    if schema > u64::from(SEED_SCHEMA) {
        return Err(JournalError::Newer { path, found: schema, known: SEED_SCHEMA });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| unreadable(&error))
}

fn json(record: &SeedRecord) -> Result<Vec<u8>, JournalError> {
    serde_json::to_vec(record).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> JournalError {
    let (path, cause) = (state(RECORD), error.to_string());
    JournalError::Unreadable { path, what: "the record of a seed", cause }
}
