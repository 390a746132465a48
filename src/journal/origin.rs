//! The config that the next update comes from, for verbs that only read.

use super::decoding::{CURRENT, FROM};
use super::error::JournalError;
use super::files::state;
use super::mcd;
use super::stored::Stored;
use crate::host::root::Root;

/// Reads it: the committed config, or that of an update which ended wrong and whose effects stayed (true), or
/// machine-config-daemon's. `None` on a host that no config manages.
pub fn load(root: &Root) -> Result<Option<(Stored, bool)>, JournalError> {
    if let Some(left) = Stored::load(root, &state(FROM))? {
        return Ok(Some((left, true)));
    }
    let committed = match Stored::load(root, &state(CURRENT))? {
        Some(stored) => Some(stored),
        None => mcd::read(root)?,
    };
    Ok(committed.map(|stored| (stored, false)))
}
