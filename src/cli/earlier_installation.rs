//! State that is not this host's own: the verbs that complete a first boot and follow it drop it.

use tracing::warn;

use super::CliError;
use crate::journal::{Journal, NotOwn, mcd};
use crate::model::message;

/// Drops the state of an earlier installation, whose `/var` was kept, of the machine from which the disk was copied, or of the build
/// of the image. Only Ignition leaves an encapsulated config.
pub(super) fn drop_not_own(journal: &mut Journal) -> Result<(), CliError> {
    let Some(cause) = journal.not_own()? else { return Ok(()) };
    let begun = || journal.record().map(|record| &record.to);
    let config = journal.current().or_else(begun).map(|target| target.config.to_string()).unwrap_or_default();
    journal.drop_not_own(cause)?;
    match cause {
        NotOwn::EarlierInstallation => warn!(
            MESSAGE_ID = message::EARLIER_STATE_DROPPED,
            "Dropped the state of an earlier installation of this host, which had {config}: /var was kept, and {} does not exist",
            mcd::CONFIG
        ),
        NotOwn::Copied => warn!(
            MESSAGE_ID = message::EARLIER_STATE_DROPPED,
            "Dropped the state of another machine, which had {config}: its disk was copied, and the machine-id or the host name \
             is another one here"
        ),
        NotOwn::OfImage => warn!(
            MESSAGE_ID = message::EARLIER_STATE_DROPPED,
            "Dropped the state that came with the image, which had {config}: the image was built with `apply` and without \
             `--into-image`, or the machine-config-daemon's files are those of the image"
        ),
    }
    Ok(())
}
