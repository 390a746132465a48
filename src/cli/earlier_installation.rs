//! State that is not this host's own: the verbs that complete a first boot and follow it drop it.

use tracing::warn;

use super::CliError;
use crate::journal::{Journal, NotOwn, mcd};
use crate::model::message;

/// Drops the state of an earlier installation, whose `/var` was kept, or of the machine from which the disk was copied. Only
/// Ignition leaves an encapsulated config.
pub(super) fn drop_not_own(journal: &mut Journal) -> Result<(), CliError> {
    let Some(cause) = journal.not_own()? else { return Ok(()) };
    let config = journal.current().map(|current| current.config.to_string()).unwrap_or_default();
    journal.drop_not_own(cause)?;
    match cause {
        NotOwn::EarlierInstallation => warn!(
            MESSAGE_ID = message::EARLIER_STATE_DROPPED,
            "Dropped the state of an earlier installation of this host, which had {config}: /var was kept, and {} is not there",
            mcd::CONFIG
        ),
        NotOwn::Copied => warn!(
            MESSAGE_ID = message::EARLIER_STATE_DROPPED,
            "Dropped the state of another machine, which had {config}: its disk was copied, and the machine-id or the host name \
             is another one here"
        ),
    }
    Ok(())
}
