//! State that outlived its installation: the verbs that complete a first boot and follow it drop it.

use tracing::warn;

use super::CliError;
use crate::journal::{Journal, mcd};
use crate::model::message;

/// Drops the state of an earlier installation, whose `/var` was kept. Only Ignition leaves an encapsulated config.
pub(super) fn drop_earlier_installation(journal: &mut Journal) -> Result<(), CliError> {
    if !journal.is_of_earlier_installation()? {
        return Ok(());
    }
    let config = journal.current().map(|current| current.config.to_string()).unwrap_or_default();
    journal.drop_earlier_installation()?;
    warn!(
        MESSAGE_ID = message::EARLIER_STATE_DROPPED,
        "Dropped the state of an earlier installation of this host, which had {config}: /var was kept, and {} is not there",
        mcd::CONFIG
    );
    Ok(())
}
