//! The state of the stages on disk (`stateroot-lifecycle.json`), in the agent's directory of the stateroot that runs: one
//! process carries them out, and what it does it has written down before.

use super::record_file::{RecordFile, RecordKind};
use super::{JournalError, STATE_DIR_MODE, state};
use crate::host::durable;
use crate::host::failpoint::FailPoints;
use crate::host::root::{LockFile, Root};
use crate::model::ids::STATE_DIR;
use crate::stateroot::lifecycle::{LIFECYCLE_FILE, LIFECYCLE_SCHEMA, Lifecycle};

const RECORD: RecordKind =
    RecordKind { file: LIFECYCLE_FILE, what: "the stages of stateroots", schema: LIFECYCLE_SCHEMA };
const LOCK: &str = "stateroot-lifecycle.lock";

/// The state, open: its lock is held.
#[derive(Debug)]
pub struct LifecycleJournal {
    file: RecordFile<Lifecycle>,
    fail_points: FailPoints,
    _lock: LockFile,
}

impl LifecycleJournal {
    /// Takes the lock and reads the state.
    pub fn open(root: Root, fail_points: FailPoints) -> Result<Self, JournalError> {
        root.create_dir(STATE_DIR, STATE_DIR_MODE)?;
        let lock = root.lock(&state(LOCK))?.ok_or(JournalError::StaterootLocked { path: state(LOCK) })?;
        durable::sync_directory(&root, STATE_DIR)?;
        Ok(Self { file: RecordFile::open(root, RECORD)?, fail_points, _lock: lock })
    }

    /// Returns the state; `None` where no stage was ever set.
    pub fn current(&self) -> Option<&Lifecycle> {
        self.file.get()
    }

    /// Writes the state down; the same again costs nothing.
    pub fn record(&mut self, state: Lifecycle) -> Result<(), JournalError> {
        if self.current() == Some(&state) {
            return self.file.settle();
        }
        self.file.write(state)?;
        self.fail_points.hit("lifecycle-recorded");
        Ok(())
    }
}

/// Returns true if a stage was ever set on this host.
pub fn has_state(root: &Root) -> Result<bool, JournalError> {
    Ok(root.exists(&state(LIFECYCLE_FILE))?)
}
