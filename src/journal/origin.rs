//! The state as a start finds it, for verbs that only read: the same is refused, with the same words.

use super::decoding::{CURRENT, FROM};
use super::error::JournalError;
use super::files::state;
use super::stored::{self, OpenUpdate, Stored};
use super::{kept, mcd, place, version};
use crate::host::HostError;
use crate::host::account_records::{self, ACCOUNTS, AccountRecords};
use crate::host::root::Root;

/// Name of the account records in messages.
const WHAT: &str = "account records";

/// The state.
#[derive(Debug)]
pub struct State {
    /// The update that is open or held.
    pub open: Option<OpenUpdate>,
    /// The committed config.
    pub current: Option<Stored>,
    /// The config of an update that ended wrong and whose effects stayed.
    pub left: Option<Stored>,
}

/// Most readings of a state that changes meanwhile.
const READINGS: usize = 20;

/// A state that is wrong is read so often again.
const SURE: usize = 4;

impl State {
    /// Reads it. What a start would refuse is an error. Nobody waits for the lock here, so an agent may begin or end an update between two
    /// files: then all of them are read again.
    pub fn load(root: &Root) -> Result<Self, JournalError> {
        let record = || stored::read_state(root, &state("record.json"), WHAT).ok();
        let mut before = record();
        let mut read = Self::read(root);
        let (mut wrong, mut last) = (0, None);
        for _ in 1..READINGS {
            let after = record();
            let is_steady = after == before;
            // Files beside the record come before it, and go after it: what is wrong is so each time.
            if is_steady && (read.is_ok() || wrong == SURE) {
                return read;
            }
            wrong = if is_steady { wrong + 1 } else { 0 };
            last = read.ok().or(last);
            (before, read) = (after, Self::read(root));
        }
        read.or_else(|error| last.ok_or(error))
    }

    fn read(root: &Root) -> Result<Self, JournalError> {
        check(root)?;
        let record = stored::load_record(root)?;
        kept::check(root, record.as_ref().map(|record| &record.id))?;
        let open = record.map(|record| stored::reopen(root, record)).transpose()?;
        let current = Stored::load(root, &state(CURRENT))?;
        let left = Stored::load(root, &state(FROM))?;
        Ok(Self { open, current, left })
    }

    /// Returns the committed config, or machine-config-daemon's, which a start would import.
    pub fn committed(&self, root: &Root) -> Result<Option<Stored>, JournalError> {
        match &self.current {
            Some(stored) => Ok(Some(stored.clone())),
            None if self.open.is_some() => Ok(None),
            None => mcd::read(root),
        }
    }
}

/// Refuses a state that can't be read, or that an update could not be written to. Changes nothing.
pub(super) fn check(root: &Root) -> Result<(), JournalError> {
    place::check(root)?;
    if let Some(bytes) = stored::read_state(root, ACCOUNTS, WHAT)? {
        version::check(ACCOUNTS, account_records::SCHEMA, &bytes)?;
    }
    AccountRecords::load(root).map_err(damaged_accounts)?;
    stored::load_kargs(root).map(drop)
}

/// Refuses files of machine-config-daemon that no commit could be written to.
pub fn check_commit(root: &Root) -> Result<(), JournalError> {
    mcd::check(root)
}

/// Refuses a state, and files of machine-config-daemon, that an update could not write.
pub fn check_writable(root: &Root) -> Result<(), JournalError> {
    place::check_writable(root)?;
    mcd::check_writable(root)
}

/// Refuses a lock that a run could not take.
pub fn check_lock(root: &Root) -> Result<(), JournalError> {
    place::check_lock_writable(root)
}

fn damaged_accounts(error: HostError) -> JournalError {
    if let HostError::Malformed { path, cause, .. } = error {
        return JournalError::Unreadable { path, what: WHAT, cause };
    }
    error.into()
}
