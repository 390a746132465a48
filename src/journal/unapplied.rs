//! Directories and links of configs that were applied without them: by MCD, or by an agent that left them to the installation.

use std::collections::BTreeSet;

use super::Journal;
use super::decoding::{CURRENT, FROM};
use super::error::JournalError;
use super::files::state;
use super::stored::Stored;
use crate::model::{HostSpec, ManagedPath};

impl Journal {
    /// Records which directories and links of the state's configs are not as listed on the host: of those that were applied
    /// without them, by MCD or an agent before this one. `not_held` looks. Once is enough.
    pub fn settle_unapplied<E: From<JournalError>>(
        &mut self,
        not_held: impl Fn(&HostSpec) -> Result<BTreeSet<ManagedPath>, E>,
    ) -> Result<(), E> {
        if self.is_settled {
            return Ok(());
        }
        for name in [CURRENT, FROM, "target.json"] {
            let path = state(name);
            let Some(stored) = Stored::load(&self.root, &path)?.filter(|stored| !stored.is_settled()) else {
                continue;
            };
            let spec = stored.known_spec();
            if !spec.stored().is_empty() {
                let unapplied = not_held(&spec)?;
                stored.settled(unapplied).save(&self.root, &path)?;
            }
        }
        self.release_decoded();
        if let Some(record) = self.record().cloned() {
            self.record = Some(Self::reopen(&self.root, record)?);
        }
        self.is_settled = true;
        Ok(())
    }
}
