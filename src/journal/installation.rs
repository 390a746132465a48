//! A state directory that outlived its installation: `/var` can be kept over one, `/etc` is new.

use super::{Journal, JournalError, mcd, originals, state};

impl Journal {
    /// Returns true if the committed config is that of an earlier installation: each commit writes MCD's file in `/etc`
    /// first, and it is not there.
    pub fn is_of_earlier_installation(&self) -> Result<bool, JournalError> {
        Ok(self.current.is_some() && !self.root.exists(mcd::CONFIG)?)
    }

    /// Drops the state of an earlier installation, and its open update. Its history stays, for people.
    pub fn drop_earlier_installation(&mut self) -> Result<(), JournalError> {
        self.change(|journal| {
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
