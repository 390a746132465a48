//! The record of work on stateroots, on disk: the only door to an effect on one.
//!
//! As the journal of updates: [`StaterootJournal::advance`] lends a [`StaterootIntent`] only while the record says what is
//! about to happen, and moves it when that is done. It is a file and a lock of its own (`stateroot.json`,
//! `stateroot.lock`), so the daemon goes on meanwhile: nothing that it works on is touched. Both work on the
//! sysroot one after the other, by libostree's own lock.
//!
//! What was prepared is kept in `stateroots/<name>.json`, for people and for `stateroot list`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::{AdvanceError, JournalError};
use super::files::{STATE_DIR_MODE, STATE_MODE, state};
use super::place;
use super::record_file::{RecordFile, RecordKind, unreadable};
use super::version;
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::model::{BootId, ImageRef, Timestamp};
use crate::stateroot::{
    Findings, Job, RETURN_FILE, Return, STATEROOT_SCHEMA, StaterootName, StaterootPhase, StaterootRecord,
    StaterootStep, StaterootTrial, TRIAL_FILE, TRIAL_SCHEMA, Version,
};
use crate::update::Fault;

/// The name of these files in messages.
const WHAT: &str = "the work on a stateroot";

const RECORD: RecordKind = RecordKind { file: "stateroot.json", what: WHAT, schema: STATEROOT_SCHEMA };
const LOCK: &str = "stateroot.lock";
const PREPARED: &str = "stateroots";
const TRIAL_LOCK: &str = "stateroot-trial.lock";

/// A stateroot that was prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// The version of this shape.
    pub schema: u32,
    /// The seed image.
    pub image: ImageRef,
    /// Its version.
    pub version: Version,
    /// The deployment that was made.
    pub deployment: Option<String>,
    /// The images to have before the new system runs.
    pub containers: Vec<String>,
    /// When it was done.
    pub at: Timestamp,
}

/// The permission for one step: it exists only while the record on disk says so.
#[derive(Debug)]
pub struct StaterootIntent<'a> {
    record: &'a StaterootRecord,
    step: StaterootStep,
}

impl StaterootIntent<'_> {
    /// Returns the step.
    pub fn step(&self) -> StaterootStep {
        self.step
    }

    /// Returns the requested job.
    pub fn job(&self) -> &Job {
        &self.record.job
    }

    /// Returns the boot in which it is worked on.
    pub fn boot_id(&self) -> &BootId {
        &self.record.boot_id
    }

    /// Returns the id of the work.
    pub fn id(&self) -> &crate::model::UpdateId {
        &self.record.id
    }
}

/// The journal, open: its lock is held.
#[derive(Debug)]
pub struct StaterootJournal {
    root: Root,
    fail_points: FailPoints,
    file: RecordFile<StaterootRecord>,
    _lock: LockFile,
}

impl StaterootJournal {
    /// Takes the lock and reads the record. One that can't be read is an error, and nothing is touched.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let lock = place::lock(&root, LOCK)?.ok_or(JournalError::StaterootLocked { path: state(LOCK) })?;
        durable::sync_directory(&root, STATE_DIR)?;
        let file = RecordFile::open(root.clone(), RECORD)?;
        Ok(Self { root, fail_points, file, _lock: lock })
    }

    /// Returns the work in progress.
    pub fn record(&self) -> Option<&StaterootRecord> {
        self.file.get()
    }

    /// Opens a record.
    pub fn begin(&mut self, record: StaterootRecord) -> Result<(), JournalError> {
        if matches!(record.job, Job::Activate { .. }) {
            // What an earlier one came to says nothing of this one.
            self.root.remove(&state(RETURN_FILE))?;
        }
        self.write(record)
    }

    /// Begins again, in another boot.
    pub fn restart(&mut self, boot_id: BootId) -> Result<(), JournalError> {
        self.change(|record| record.restarted(boot_id))
    }

    /// Turns back, with what went wrong.
    pub fn roll_back(&mut self, fault: Option<Fault>) -> Result<(), JournalError> {
        self.change(|record| record.rolled_back(fault))
    }

    /// Writes down what went wrong.
    pub fn fault(&mut self, fault: Fault) -> Result<(), JournalError> {
        self.change(|record| StaterootRecord { fault: Some(fault), ..record })
    }

    /// Carries out the step that the record stands at.
    pub async fn advance<E>(
        &mut self,
        run: impl AsyncFnOnce(&StaterootIntent<'_>) -> Result<Findings, E>,
    ) -> Result<(), AdvanceError<E>> {
        self.file.settle()?;
        let record = self.file.get().ok_or(JournalError::NoUpdate { what: "advance" })?;
        let step = record.step().ok_or(JournalError::NoUpdate { what: "advance" })?;
        let found = run(&StaterootIntent { record, step }).await.map_err(AdvanceError::Effect)?;
        self.fail_points.hit("stateroot-ran");
        Ok(self.change(|record| record.stepped(found))?)
    }

    /// Does what ends this boot: the record stays where it is, and the next boot closes it.
    pub async fn attempt<T, E>(
        &mut self,
        run: impl AsyncFnOnce(&StaterootIntent<'_>) -> Result<T, E>,
    ) -> Result<T, AdvanceError<E>> {
        self.file.settle()?;
        let record = self.file.get().ok_or(JournalError::NoUpdate { what: "attempt" })?;
        let step = record.step().ok_or(JournalError::NoUpdate { what: "attempt" })?;
        let done = run(&StaterootIntent { record, step }).await.map_err(AdvanceError::Effect)?;
        self.fail_points.hit("stateroot-attempted");
        Ok(done)
    }

    /// Closes the record; what is prepared is kept, what is gone is forgotten.
    pub fn close(&mut self, now: Timestamp) -> Result<(), JournalError> {
        self.file.settle()?;
        let Some(record) = self.file.get() else { return Ok(()) };
        let path = prepared(record.job.stateroot());
        match (&record.job, record.phase) {
            (Job::Prepare { image, version, .. }, StaterootPhase::Applying { .. }) => {
                let prepared = Prepared {
                    schema: STATEROOT_SCHEMA,
                    image: image.clone(),
                    version: version.clone(),
                    deployment: record.findings.deployment.clone(),
                    containers: record.findings.containers.clone(),
                    at: now,
                };
                self.root.create_dir(&state(PREPARED), STATE_DIR_MODE)?;
                self.root.replace(&path, &json(&path, &prepared)?, STATE_MODE)?;
            }
            (Job::Prepare { .. } | Job::Remove { .. }, _) => self.root.remove(&path)?,
            (Job::Activate { .. }, _) => {}
        }
        self.fail_points.hit("stateroot-closing");
        self.file.remove()
    }

    fn change(
        &mut self,
        change: impl FnOnce(StaterootRecord) -> StaterootRecord,
    ) -> Result<(), JournalError> {
        let record = self.file.get().cloned().ok_or(JournalError::NoUpdate { what: "a change" })?;
        self.write(change(record))
    }

    fn write(&mut self, record: StaterootRecord) -> Result<(), JournalError> {
        self.file.write(record)?;
        self.fail_points.hit("stateroot-recorded");
        Ok(())
    }
}

/// Reads the record without its lock.
pub fn load_record(root: &Root) -> Result<Option<StaterootRecord>, JournalError> {
    RECORD.load(root)
}

/// Reads the trial of the stateroot that runs. One that is newer than this agent is an error, and nothing is touched.
pub fn load_trial(root: &Root) -> Result<Option<StaterootTrial>, JournalError> {
    let path = state(TRIAL_FILE);
    let Some(bytes) = root.read(&path)? else { return Ok(None) };
    version::parse(&path, WHAT, TRIAL_SCHEMA, &bytes).map(Some)
}

/// The permission for what a trial decides: it exists only while the disk says so.
#[derive(Debug)]
pub struct Trial {
    root: Root,
    fail_points: FailPoints,
    current: StaterootTrial,
    _lock: LockFile,
}

impl Trial {
    /// Takes the lock and reads the trial; `None` where there is none.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Option<Self>, JournalError> {
        if load_trial(&root)?.is_none() {
            return Ok(None);
        }
        let held = place::lock(&root, TRIAL_LOCK)?
            .ok_or_else(|| JournalError::StaterootLocked { path: state(TRIAL_LOCK) })?;
        durable::sync_directory(&root, STATE_DIR)?;
        Ok(load_trial(&root)?.map(|current| Self { root, fail_points, current, _lock: held }))
    }

    /// Returns it.
    pub fn current(&self) -> &StaterootTrial {
        &self.current
    }

    /// Writes down where it is.
    pub fn record(&mut self, trial: StaterootTrial) -> Result<(), JournalError> {
        let path = state(TRIAL_FILE);
        self.root.rewrite(&path, &json(&path, &trial)?, STATE_MODE)?;
        self.current = trial;
        self.fail_points.hit("stateroot-trial-recorded");
        Ok(())
    }
}

/// Reads why another stateroot was left. A file that can't be read says nothing: it is for people.
pub fn load_return(root: &Root) -> Result<Option<Return>, JournalError> {
    let bytes = root.read(&state(RETURN_FILE))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Writes down why another stateroot was left.
pub fn record_return(root: &Root, left: &Return) -> Result<(), JournalError> {
    let path = state(RETURN_FILE);
    Ok(root.replace(&path, &json(&path, left)?, STATE_MODE)?)
}

/// Reads what was prepared, by the names of the stateroots. A file that can't be read says nothing: it is for people.
pub fn load_prepared(root: &Root) -> Result<BTreeMap<String, Prepared>, JournalError> {
    let mut found = BTreeMap::new();
    for name in root.list(&state(PREPARED))? {
        let Some(stateroot) = name.strip_suffix(".json") else { continue };
        let bytes = root.read(&state(&format!("{PREPARED}/{name}")))?.unwrap_or_default();
        if let Ok(prepared) = serde_json::from_slice(&bytes) {
            found.insert(stateroot.to_owned(), prepared);
        }
    }
    Ok(found)
}

fn prepared(stateroot: &StaterootName) -> String {
    state(&format!("{PREPARED}/{stateroot}.json"))
}

fn json(path: &str, value: &impl Serialize) -> Result<Vec<u8>, JournalError> {
    serde_json::to_vec(value).map_err(|error| unreadable(path, WHAT, &error))
}
