//! The host as it will be once an open update is undone, for a plan that is shown before.
//!
//! The originals that the undo puts back are laid over the root, in memory. What their batches reached counts: an original is
//! saved before the batch changes anything, and putting back what was never changed changes nothing.

use std::collections::BTreeMap;

use super::Originals;
use super::error::JournalError;
use super::origin::State;
use super::stored::{OpenUpdate, Stored};
use crate::host::accounts;
use crate::host::root::{LaidPaths, Root};
use crate::host::saved::PathSnapshot;
use crate::model::users::CORE;
use crate::model::{FileSpec, ManagedPath};

impl State {
    /// Returns the root as it will be once the open update is undone: for looking only.
    pub fn after_undo(&self, root: &Root) -> Result<Root, JournalError> {
        let Some(OpenUpdate { record, .. }) = &self.open else { return Ok(root.clone()) };
        let Some(reached) = record.reached() else { return Ok(root.clone()) };
        let own = self.left.as_ref().or(self.current.as_ref()).map(Stored::known_spec);
        let own = own.map(|spec| spec.written()).unwrap_or_default();
        let mut laid = LaidPaths::default();
        // The last batch first, as it is undone.
        for batch in (0..=reached).rev() {
            take(root, &Originals::new(record.id.clone(), batch), &own, &mut laid)?;
        }
        Ok(root.laid_over(laid)?)
    }
}

fn take(
    root: &Root,
    originals: &Originals,
    own: &BTreeMap<ManagedPath, FileSpec>,
    laid: &mut LaidPaths,
) -> Result<(), JournalError> {
    // A batch that saved nothing changed nothing.
    let Some(preimages) = originals.read(root, own)? else { return Ok(()) };
    let (links, others): (Vec<_>, Vec<_>) =
        preimages.paths.iter().partition(|original| matches!(original.saved, PathSnapshot::HardLink { .. }));
    for original in others {
        laid.hard_links.retain(|(path, _)| *path != original.path);
        laid.paths.insert(original.path.clone(), original.saved.laid());
    }
    for original in links {
        let PathSnapshot::HardLink { target } = &original.saved else { continue };
        let file = match laid.paths.get(target) {
            Some(file) => file.clone(),
            None => PathSnapshot::read(root, target)?.laid(),
        };
        laid.hard_links.insert((original.path.clone(), target.clone()));
        laid.paths.insert(original.path.clone(), file);
    }
    if let Some(hash) = &preimages.password {
        let so_far = root.laid_over(laid.clone())?;
        laid.paths.extend(accounts::laid_password(&so_far, CORE, hash)?);
    }
    if let Some(accounts) = &preimages.accounts {
        let so_far = root.laid_over(laid.clone())?;
        laid.paths.extend(accounts.laid(&so_far)?);
    }
    Ok(())
}
