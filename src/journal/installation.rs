//! A state directory that is not this host's own: `/var` can be kept over an installation, and the disk of a managed host can be
//! copied.

use super::machine::Machine;
use super::{Journal, JournalError, mcd, originals, state};

/// Reason for which a state is not this host's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOwn {
    /// `/var` was kept over an installation.
    EarlierInstallation,
    /// The disk was copied from another machine.
    Copied,
}

impl Journal {
    /// Returns why the committed config is not this host's own. Each commit writes MCD's file in `/etc`, and which machine it is;
    /// only a provisioning makes either differ, so without one nobody asks.
    pub fn not_own(&self) -> Result<Option<NotOwn>, JournalError> {
        if self.current.is_none() {
            return Ok(None);
        }
        if !self.root.exists(mcd::CONFIG)? {
            return Ok(Some(NotOwn::EarlierInstallation));
        }
        let is_copied = Machine::stored(&self.root).is_another(&Machine::here(&self.root));
        Ok(is_copied.then_some(NotOwn::Copied))
    }

    /// Drops a state that is not this host's own, and its open update. Its history stays, for people.
    pub fn drop_not_own(&mut self, cause: NotOwn) -> Result<(), JournalError> {
        self.change(|journal| {
            if cause == NotOwn::Copied {
                mcd::forget(&journal.root)?;
            }
            journal.root.remove(&state("record.json"))?;
            journal.record = None;
            for name in ["target.json", "from.json"] {
                journal.root.remove(&state(name))?;
            }
            originals::discard_all(&journal.root)?;
            journal.fail_points.hit("earlier-installation");
            // Last: while it is there, the next start does all of this again.
            journal.root.remove(&state("current.json"))?;
            journal.current = None;
            Ok(())
        })
    }
}
