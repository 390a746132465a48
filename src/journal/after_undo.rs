//! The host as it will be once an open update is undone, or has ended, for a plan that is shown before.
//!
//! The originals that the undo puts back are laid over the root, in memory. What their batches reached counts: an original is
//! saved before the batch changes anything, and putting back what was never changed changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::error::JournalError;
use super::origin::State;
use super::originals::Preimages;
use super::stored::{OpenUpdate, Stored};
use super::{Originals, originals};
use crate::host::root::{LaidPath, LaidPaths, Root};
use crate::host::saved::{PREIMAGES, PathSnapshot, SAVED_DIRECTORY};
use crate::host::{account_kept, accounts, keys_kept};
use crate::model::users::{CORE, KEYS_FILE, Users};
use crate::model::{ConfigName, FileMode, FileSpec, HostSpec, ManagedPath};

impl State {
    /// Returns the root as it will be once the open update is undone, for looking only, and what the undo leaves as persons have changed
    /// it since: accounts and groups with their parts.
    pub fn after_undo(&self, root: &Root) -> Result<(Root, Vec<String>), JournalError> {
        let Some(OpenUpdate { record, to, .. }) = &self.open else { return Ok((root.clone(), Vec::new())) };
        let Some(reached) = record.reached() else { return Ok((root.clone(), Vec::new())) };
        let own = self.left.as_ref().or(self.current.as_ref()).map(Stored::known_spec);
        let before = own.as_ref().map(|spec| spec.users.clone()).unwrap_or_default();
        let own = own.map(|spec| spec.written()).unwrap_or_default();
        let (mut laid, mut kept) = (LaidPaths::default(), KeptParts::new());
        // The last batch first, as it is undone.
        for batch in (0..=reached).rev() {
            take(
                root,
                &Originals::new(record.id.clone(), batch),
                (&own, &before, &to.users),
                (&mut laid, &mut kept),
            )?;
        }
        let kept = kept
            .into_iter()
            .map(|(name, parts)| format!("{name} ({})", parts.into_iter().collect::<Vec<_>>().join(", ")));
        Ok((root.laid_over(laid)?, kept.collect()))
    }

    /// Returns the root with the originals as they are kept once the open update has ended: for looking only.
    pub fn after_end(&self, root: &Root) -> Result<Root, JournalError> {
        let Some(OpenUpdate { record, to, .. }) = &self.open else { return Ok(root.clone()) };
        let from = match self.left.as_ref().or(self.current.as_ref()) {
            Some(stored) => stored.known_spec(),
            None => HostSpec::empty(ConfigName::new(HostSpec::UNMANAGED)?),
        };
        let kept = originals::promoted(root, Some(&record.id), &from, to)?;
        if kept.is_empty() {
            return Ok(root.clone());
        }
        let mut laid = LaidPaths::default();
        let directory = LaidPath::Directory { mode: FileMode::PRIVATE_DIRECTORY.bits(), uid: 0, gid: 0 };
        laid.paths.insert(format!("{PREIMAGES}/{SAVED_DIRECTORY}"), directory);
        let document = |bytes| LaidPath::File { bytes, mode: FileMode::PRIVATE.bits(), uid: 0, gid: 0 };
        laid.paths.extend(kept.into_iter().map(|(path, bytes)| (path, document(bytes))));
        Ok(root.laid_over(laid)?)
    }
}

/// Accounts and groups (`account core`) with the names of their parts that an undo leaves.
type KeptParts = BTreeMap<String, BTreeSet<&'static str>>;

/// Keeps what persons have changed of keys files since.
fn keep_keys(
    root: &Root,
    users: &Users,
    preimages: &mut Preimages,
    (laid, kept): (&LaidPaths, &mut KeptParts),
) -> Result<(), JournalError> {
    for original in preimages.paths.iter_mut().filter(|original| original.path.ends_with(KEYS_FILE)) {
        let so_far = root.laid_over(laid.clone())?;
        let saved = (original.path.as_str(), &original.saved);
        if let Some((name, file)) = keys_kept::merged(&so_far, users, preimages.accounts.as_ref(), saved)? {
            kept.entry(format!("account {name}")).or_default().insert("keys");
            original.saved = file;
        }
    }
    Ok(())
}

fn take(
    root: &Root,
    originals: &Originals,
    (own, before, users): (&BTreeMap<ManagedPath, FileSpec>, &Users, &Users),
    (laid, kept): (&mut LaidPaths, &mut KeptParts),
) -> Result<(), JournalError> {
    // A batch that saved nothing changed nothing.
    let Some(mut preimages) = originals.read(root, own)? else { return Ok(()) };
    keep_keys(root, users, &mut preimages, (laid, kept))?;
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
        let (hash, stays) = account_kept::password_of_core(&so_far, users, hash)?;
        if stays {
            kept.entry(format!("account {CORE}")).or_default().insert("password");
        }
        laid.paths.extend(accounts::laid_password(&so_far, CORE, &hash)?);
    }
    if let Some(accounts) = &preimages.accounts {
        let so_far = root.laid_over(laid.clone())?;
        for (name, parts) in accounts.kept(&so_far, (before, users))? {
            kept.entry(name).or_default().extend(parts);
        }
        for (path, will_be) in accounts.laid(&so_far, (before, users))? {
            // A home goes with all that is in it.
            if will_be == LaidPath::Absent {
                let is_in = |other: &str| other.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'));
                laid.paths.retain(|other, _| !is_in(other));
                laid.trees.insert(path.clone());
            }
            laid.paths.insert(path, will_be);
        }
    }
    Ok(())
}
