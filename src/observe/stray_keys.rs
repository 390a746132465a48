//! Keys of configs in homes that accounts had before, or of accounts that were removed.
//!
//! # Decisions
//! A home is known by the record of what the agent wrote there: whoever gets it is let in by its keys. It counts until it has none of
//! them, read as safely as it was written, with the hands of its account or of its owner now.

use std::collections::BTreeSet;

use crate::host::account_records::AccountRecords;
use crate::host::accounts::Accounts;
use crate::host::saved::PathSnapshot;
use crate::host::{HostError, Root, keys};
use crate::model::observation::StrayKeys;
use crate::model::users::keys_in;
use crate::model::{HostSpec, ObservedFile, Obstacle};

/// Returns them. The keys files of accounts of the specs are compared with these.
pub(super) fn of(
    root: &Root,
    accounts: &Accounts,
    records: &AccountRecords,
    specs: &[&HostSpec],
) -> Result<Vec<StrayKeys>, HostError> {
    let keyed: BTreeSet<&str> = specs.iter().flat_map(|spec| spec.users.keyed()).collect();
    let mut found = Vec::new();
    for (home, written) in records.stray_homes(root, accounts, &keyed)? {
        let (path, keys) = (keys::path_in(home), written.keys());
        if root.observe(&path)? == ObservedFile::Absent {
            continue;
        }
        let (count, unremovable) = match keys::read_left(root, home, written.uid) {
            Ok((PathSnapshot::File { bytes, .. }, uid)) => {
                let count = keys_in(bytes.as_slice(), keys.iter()).len();
                if count == 0 {
                    continue;
                }
                (count, keys::left_obstacle(root, home, uid)?)
            }
            Ok(_) => continue,
            // Whatever is there now, nothing has shown that they are gone.
            Err(error) if error.is_of_names() => (keys.len(), Some(Obstacle::from(&error))),
            Err(error) => return Err(error),
        };
        found.push(StrayKeys { user: written.user.clone(), path, count, unremovable });
    }
    Ok(found)
}
