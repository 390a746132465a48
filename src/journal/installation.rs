//! A state directory that is not this host's own: `/var` can be kept over an installation, the disk of a managed host can be
//! copied, and an image can hold the state of its build.

use super::machine::Machine;
use super::{Journal, JournalError, mcd, originals, state};

/// Reason for which a state is not this host's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOwn {
    /// `/var` was kept over an installation.
    EarlierInstallation,
    /// The disk was copied from another machine.
    Copied,
    /// It came with the image: MCD's files are as the booted image has them, and nothing says that this machine wrote it.
    OfImage,
}

impl Journal {
    /// Returns why the state is not this host's own. Each commit writes MCD's file in `/etc`, and which machine it is; only a
    /// provisioning makes either differ, so without one nobody asks. The record of a first boot is of this host.
    pub fn not_own(&self) -> Result<Option<NotOwn>, JournalError> {
        let is_begun = self.record().is_some_and(|record| !record.provisioning);
        if self.current.is_none() && !is_begun {
            return Ok(None);
        }
        if self.current.is_some() && !self.root.exists(mcd::CONFIG)? {
            return Ok(Some(NotOwn::EarlierInstallation));
        }
        let (stored, here) = (Machine::stored(&self.root), Machine::here(&self.root));
        // An update that was begun may have changed the host's name: what it has done can only be undone by its originals.
        let is_another =
            if self.current.is_some() { stored.is_another(&here) } else { stored.has_other_id(&here) };
        if is_another {
            return Ok(Some(NotOwn::Copied));
        }
        // Without MCD's file nothing proves that the state came with the image.
        let is_of_image =
            self.root.exists(mcd::CONFIG)? && !stored.is_known_as(&here) && !mcd::is_committed(&self.root)?;
        Ok(is_of_image.then_some(NotOwn::OfImage))
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
